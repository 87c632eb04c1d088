"""The axes of torchvision's float models, one row each.

Run it with `python tests/benchmarks/research/axes_table.py [--verify] [names …]`.

A row says on what the model was traced, how long tracing and inference took (CPU seconds on one thread, the better of
two), which operators no rule knows, what share of the parameters lies on free axes and, with `--verify`, how much the
output changes when all free axes are permuted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # as pytest's `pythonpath` does

import modulekg_widgets as mk
from models.zoo import float_models, zoo_case
from modulekg_widgets.engine.axes.proof.verify import Verification


@dataclass(frozen=True, slots=True)
class Row:
    """One model."""

    name: str
    traced_on: str
    seconds: float
    operators: int
    unknown: tuple[str, ...]
    free_share: float
    parameters: int
    verified: Verification | None = None
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name:36} FAILED {self.problem}"
        proof = "" if self.verified is None else f"  {'ok' if self.verified.ok else 'WRONG':5} {self.verified}"
        unknown = ", ".join(self.unknown) or "-"
        return (
            f"{self.name:36} {self.traced_on:5} {self.seconds:7.3f} s {self.operators:5} operators "
            f"{self.free_share:7.2%} free  unknown: {unknown}{proof}"
        )


def row(name: str, verify: bool = False) -> Row:
    """Trace one model and infer its axes."""
    model, args = zoo_case(name)
    size = sum(p.numel() for p in model.parameters())
    try:
        times = []
        for _ in range(2):
            start = time.process_time()
            graph = mk.trace(model, args)
            axes = graph.axes
            times.append(time.process_time() - start)
        verified = axes.verify(bipartitions=2) if verify else None
    except mk.ModuleKGError as error:
        return Row(name, "", 0.0, 0, (), 0.0, size, problem=str(error))
    unknown = tuple(dict.fromkeys(u.operator for u in axes.unknown))
    return Row(name, graph.traced_on, min(times), len(graph.operators), unknown, axes.free_share, size, verified)


def summary(rows: list[Row]) -> str:
    """The table in one paragraph."""
    done = [r for r in rows if not r.problem]
    total = sum(r.parameters for r in done) or 1
    share = sum(r.parameters * r.free_share for r in done) / total
    least = min(done, key=lambda r: r.free_share)
    times = sorted(r.seconds for r in done)
    lines = [
        f"{len(done)} of {len(rows)} traced",
        f"{share:.2%} of all parameters on free axes, least {least.free_share:.2%} ({least.name})",
        f"operators without a rule: {sorted({u for r in done for u in r.unknown}) or 'none'}",
        f"CPU seconds: median {times[len(times) // 2]:.3f}, most {times[-1]:.3f}",
    ]
    if any(r.verified for r in done):
        wrong = [r.name for r in done if r.verified and not r.verified.ok]
        lines.append(f"permutation: {len(done) - len(wrong)} right, wrong: {wrong or 'none'}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--verify", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.names or float_models():
        rows.append(row(name, options.verify))
        print(rows[-1], flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
