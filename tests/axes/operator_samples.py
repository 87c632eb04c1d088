"""Proves the axes of torch's own operator samples, and prints a verdict for each operator, as JSON.

Every floating tensor of a sample is a parameter, every other tensor an input. All free axes change their order at
once, and the results must follow. A program of its own: to import torch's table freezes flags of its backends and
patches its classes. `--share 0.1 --seed 3` takes a random tenth of the samples of each operator. `--write` takes all
of them and the examples of our rules, and writes the names of the operators that are proved to the engine's list.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest's `pythonpath` does

import modulekg_widgets as mk
from axes.rules.checks import Orders, difference, fingerprint, permuted, random_orders
from axes.rules.tables import COMPOSITES, EXAMPLES
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.proof.double_precision import ForceDtype
from modulekg_widgets.engine.axes.proof.operator_proofs import PROVED_OPERATORS_FILE
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import RECURRENT_LAYER
from modulekg_widgets.engine.torch_runtime.pytree import leaves, tensors, with_tensors
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

WIDE = torch.float64
DRAWS = 100  # of an operator that draws at random
SIGMAS = 6.0  # that the means of two sets of draws may lie apart
TOLERANCE = 1e-8  # of float64; some samples are ill-conditioned
OK, WRONG, UNTYPED, UNKNOWN = "proved", "wrong", "untyped error", "unknown operator"
FROZEN, BROKEN, REFUSED = "nothing free", "the sample itself raises", "refused with an error of ours"
# what they give is what lies in memory
UNFILLED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


class Calls(nn.Module):
    """Calls a function with parameters in the places of floating tensors, and inputs in those of others."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__()
        self.called = (function, args, kwargs)
        every = list(dict.fromkeys(t for _, t in tensors((args, kwargs))))
        self.floats = [t for t in every if t.is_floating_point() or t.is_complex()]
        self.others = [t for t in every if not (t.is_floating_point() or t.is_complex())]
        self.values = nn.ParameterList([nn.Parameter(t, requires_grad=False) for t in self.floats])

    def forward(self, *others: Tensor) -> Any:
        return self.result([*self.values], others)

    def result(self, floats: Iterable[Tensor], others: Iterable[Tensor]) -> Any:
        """What the function makes of other tensors."""
        function, args, kwargs = self.called
        pairs = zip([*self.floats, *self.others], [*floats, *others], strict=True)
        new = {id(own): other for own, other in pairs}
        args, kwargs = with_tensors((args, kwargs), lambda t: new[id(t)])
        return function(*args, **kwargs)

    def values_of(self, floats: Iterable[Tensor], seed: int = 0) -> list[Tensor]:
        """The tensors that come out, in float64; the function may write into what it gets."""
        with torch.no_grad(), ForceDtype(WIDE):
            torch.default_generator.manual_seed(seed)
            result = self.result([t.clone() for t in floats], [t.clone() for t in self.others])
        return [t if t.layout is torch.strided else t.to_dense() for _, t in tensors(result)]


@dataclass
class Verdict:
    """What the samples of one operator showed."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)  # per kind of verdict what the first of its samples showed
    proved: set[str] = field(default_factory=set)  # the ATen operators that free axes went through

    def take(self, call: Calls, comparable: bool) -> None:
        """The verdict on one more call."""
        try:
            kind, what = self._judged(call, comparable)
        except mk.ModuleKGError as error:
            kind, what = REFUSED, str(error)
        except Exception as error:  # noqa: BLE001 - what is sought
            kind, what = UNTYPED, f"{type(error).__name__}: {error}"
        self.counts[kind] += 1
        self.first.setdefault(kind, what[:500])

    def _judged(self, call: Calls, comparable: bool) -> tuple[str, str]:
        try:
            expected = call.values_of(call.floats)
        except Exception as error:  # noqa: BLE001 - torch's samples need not run in float64
            return BROKEN, f"{type(error).__name__}: {error}"
        graph = mk.trace(call, tuple(call.others))
        proof = Proof(call, graph, expected)
        if proof.axes.unknown:
            return UNKNOWN, proof.axes.unknown[0].operator
        if not proof.free or not comparable:
            return FROZEN, ""
        if problem := proof.problem():
            return WRONG, problem
        names = proof.operators() - self.proved
        if names and proof.shows():
            self.proved |= names
        return OK, ""


class Proof:
    """The permutation of all free axes of one call, whose results are free too."""

    def __init__(self, call: Calls, graph: DataflowGraph, expected: list[Tensor]) -> None:
        self.call, self.graph, self.expected = call, graph, expected
        self.axes: Axes = graph.free_axes(outputs=True)
        self.inputs = [graph.state[f"values.{at}"] for at in range(len(call.floats))]
        self.results = [node for _, node in leaves(graph.result, DataNode)]
        every = [atom for node in (*self.inputs, *self.results) for atom in self._atoms(node)]
        self.free = [atom for atom in dict.fromkeys(every) if atom.frozen is None and atom.size > 1]
        self.orders = random_orders(self.free, fingerprint(str(expected)[:200]))

    def _dims(self, node: DataNode) -> list[Term]:
        return [find(term) for term in self.axes.inference.dims(node)]

    def _atoms(self, node: DataNode) -> Iterator[Term]:
        return (atom for term in self._dims(node) for atom in atoms(term))

    def _moved(self, values: Sequence[Tensor], nodes: Sequence[DataNode], orders: Orders) -> list[Tensor]:
        # of some operators the results kept for the backward pass are empty on some devices
        return [
            permuted(value, self._dims(node), orders) if tuple(value.shape) == node.shape else value
            for value, node in zip(values, nodes, strict=True)
        ]

    def problem(self) -> str:
        """How the results do not follow the permutation; nothing where they do."""
        if any(torch.Tag.nondeterministic_seeded in operator.overload.tags for operator in self.graph.operators):
            return self._problem_of_noise()
        wanted = self._moved(self.expected, self.results, self.orders)
        found = self.call.values_of(self._moved(self.call.floats, self.inputs, self.orders))
        worst = max(map(difference, found, wanted), default=0.0) if len(found) == len(wanted) else float("inf")
        exact = all(t.dtype in (torch.float64, torch.complex128) for t in self.call.floats)
        return f"{worst:.1e}: {self}" if worst > (TOLERANCE if exact else 1e-3) else ""

    def _problem_of_noise(self) -> str:
        """Means over many draws, before and after; what comes next depends on the draw, so no single one agrees."""
        moved = self._moved(self.call.floats, self.inputs, self.orders)
        before, after = self._draws(self.call.floats), self._draws(moved)
        for a, b, node in zip(before, after, self.results, strict=True):
            (wanted,) = self._moved([a.mean(0)], [node], self.orders)
            (spread,) = self._moved([a.var(0)], [node], self.orders)
            error = ((spread + b.var(0)) / DRAWS).sqrt()
            if bool(((b.mean(0) - wanted).abs() > SIGMAS * error + TOLERANCE).any()):
                return f"other in the mean: {self}"
        return ""

    def _draws(self, floats: list[Tensor]) -> list[Tensor]:
        """Many results, in numbers whose mean exists."""
        every = [self.call.values_of(floats, seed) for seed in range(DRAWS)]
        return [torch.stack([torch.as_tensor(t).to(WIDE).tanh() for t in drawn]) for drawn in zip(*every, strict=True)]

    def operators(self) -> set[str]:
        """The operators that a free axis goes through."""
        free = set(self.free)
        return {base_name(operator.name) for operator in self.graph.operators if free & set(self._through(operator))}

    def _through(self, operator: OperatorNode) -> Iterator[Term]:
        return (atom for node in (*operator.inputs, *operator.outputs) for atom in self._atoms(node))

    def shows(self) -> bool:
        """Whether the results would have shown a wrong order: they change with that in one of the parameters alone."""
        return any(map(self._shows, self.free)) or self._is_filled()

    def _is_filled(self) -> bool:
        """Whether the results are one number everywhere, whatever goes in, as zeros are: they have no order."""
        every = [t for t in self.expected if t.numel()]
        if not every or any(t.numel() < 2 or bool((t != t.reshape(-1)[0]).any()) for t in every):
            return False
        found = self.call.values_of([0.5 * t + 0.25 for t in self.call.floats])
        return len(found) == len(self.expected) and not any(map(difference, found, self.expected))

    def _shows(self, atom: Term) -> bool:
        at = next((at for at, node in enumerate(self.inputs) if atom in self._atoms(node)), None)
        if at is None:
            return False
        moved = list(self.call.floats)
        moved[at] = permuted(moved[at], self._dims(self.inputs[at]), {atom: self.orders[atom]})
        found = self.call.values_of(moved)
        return len(found) != len(self.expected) or any(d > TOLERANCE for d in map(difference, found, self.expected))

    def __str__(self) -> str:
        names = ", ".join(operator.name for operator in self.graph.operators)
        return f"{names} of {[self._dims(node) for node in self.inputs]} gives {[*map(self._dims, self.results)]}"


def functions(info: Any) -> list[Callable[..., Any]]:
    """An operator of the table, and the one that writes in place, into a copy."""
    in_place = info.inplace_variant
    if in_place is None:
        return [info.op]

    def on_a_copy(first: Tensor, *args: Any, **kwargs: Any) -> Any:
        return in_place(first.clone(), *args, **kwargs)

    return [info.op, on_a_copy]


def judged(info: Any, share: float, seed: int) -> Verdict:
    """The verdict on one operator of the table, by a share of its samples, one at least."""
    torch.default_generator.manual_seed(0)
    samples = list(info.sample_inputs("cpu", WIDE))
    draw = random.Random(f"{info.full_name} {seed}")
    verdict = Verdict()
    for sample in draw.sample(samples, max(1, round(share * len(samples)))) if samples and share < 1 else samples:
        for function in functions(info):
            call = Calls(function, (sample.input, *sample.args), sample.kwargs)
            verdict.take(call, comparable=info.name not in UNFILLED)
    return verdict


def judged_examples() -> Verdict:
    """The verdict on the examples of our own rules, for what torch's table has not."""
    verdict = Verdict()
    for of in [*EXAMPLES, *COMPOSITES]:
        if of.run is None and of.values is None:
            verdict.take(Calls(of.overload, of.args, of.kwargs), comparable=True)
    return verdict


def main(arguments: Sequence[str]) -> None:
    """Print the verdicts, and with `--write` write the list."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    infos = [info for info in op_db if WIDE in info.dtypes and not info.name.startswith("jiterator")]
    # some functions of the table seed torch themselves, and each sample asks the stack which test it is for
    with mock.patch.object(torch, "manual_seed"), mock.patch.object(common_utils, "extract_test_fn", return_value=None):
        verdicts = {info.full_name: judged(info, given.share, given.seed) for info in infos}
    if given.write:
        verdicts["examples of our rules"] = judged_examples()
        proved = set().union(*(verdict.proved for verdict in verdicts.values()))
        # a trace of a call takes these apart; tests/axes/test_recurrent_layers.py proves them where a layer calls them
        proved |= set(RECURRENT_LAYER)
        PROVED_OPERATORS_FILE.write_text("\n".join(sorted(proved)) + "\n", encoding="utf-8")
    report = {name: [v.counts, v.first, sorted(v.proved)] for name, v in verdicts.items()}
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
