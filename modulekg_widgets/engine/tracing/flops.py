"""The FLOPs of a forward pass: sums over its operators and modules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.operators.cost import flops_and_kind, flops_in_parts
from modulekg_widgets.engine.operators.recorded_call import CallRecord, RecordedCall

PRODUCTS = "matrix products and convolutions"
REMEDY = "tell its cost with mk.axis_rule({name!r}, flops=lambda *args: …), or name a like operator"


class CallInModule(RecordedCall, Protocol):
    """A call of an operator that a module made."""

    module: str

    @property
    def name(self) -> str: ...

    def record(self, remedy: str = "") -> CallRecord: ...


class Flops(int):
    """The FLOPs of some operators, an int; operators without a formula are in `unknown`.

    `macs` counts pairs of a multiplication and an addition, in the operators that are made of these. `matmul` is the
    part in matrix products and convolutions, which torch's FlopCounterMode counts and papers report; where attention
    or a recurrent layer runs as one operator, as on a CPU, that counter misses what is in it. `by_module` goes by
    dotted path, each module with all that is below; the root is "".
    """

    macs: int
    matmul: int
    by_operator: dict[str, int]
    by_module: dict[str, int]
    unknown: list[CallRecord]

    @property
    def total(self) -> int:
        """The plain number."""
        return int(self)

    def __repr__(self) -> str:
        products = f"{_readable(self.matmul)}in {PRODUCTS}"
        return f"<Flops {_readable(self)}FLOPs, {products}, {len(self.unknown)} operators unknown>"

    def __str__(self) -> str:
        lines = [f"{_readable(self)}FLOPs, {_readable(self.macs)}MACs"]
        lines += [f"  {_readable(self.matmul)}FLOPs in {PRODUCTS}, as torch's FlopCounterMode counts"]
        largest = sorted(self.by_operator.items(), key=lambda item: -item[1])[:8]
        lines += [f"  {name:<40} {_readable(flops)}" for name, flops in largest if flops]
        lines += [
            f"  {entry.operator} in {printable(entry.module) or '(root)'} is unknown" for entry in self.unknown[:8]
        ]
        return "\n".join(lines)


def matmul_flops(operators: Iterable[CallInModule]) -> Flops:
    """The sums over the operators that are matrix products and convolutions, as torch's FlopCounterMode counts."""
    return count_flops((each for each in operators if flops_and_kind(each)[1].products), products_alone=True)


def count_flops(operators: Iterable[CallInModule], products_alone: bool = False) -> Flops:
    """The sums over the operators, or over what of them are matrix products and convolutions."""
    total = macs = products = 0
    by_operator: dict[str, int] = defaultdict(int)
    by_module: dict[str, int] = defaultdict(int)
    unknown = []
    for operator in operators:
        for found, kind in flops_in_parts(operator):
            if found is None:
                unknown.append(operator.record(REMEDY.format(name=operator.name)))
                continue
            if products_alone and not kind.products:
                continue
            total += found
            macs += found // 2 if kind.pairs else 0
            products += found if kind.products else 0
            by_operator[operator.name] += found
            by_module[operator.module] += found
    sums = Flops(total)
    sums.macs, sums.matmul, sums.by_operator, sums.by_module, sums.unknown = (
        macs, products, dict(by_operator), sum_by_module(by_module), unknown,
    )  # fmt: skip
    return sums


def sum_by_module(own: dict[str, int]) -> dict[str, int]:
    """The sums by path of what each module has itself, those of a container with all that is below."""
    sums: dict[str, int] = defaultdict(int)
    for path, flops in own.items():
        while path:
            sums[path] += flops
            path = path.rpartition(".")[0]
        sums[""] += flops
    return dict(sorted(sums.items()))


def _readable(count: int) -> str:
    """The number with a decimal prefix, ready for a unit: `1.82 G`."""
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if count >= 1000**power:
            return f"{count / 1000**power:.2f} {prefix}"
    return f"{int(count)} "
