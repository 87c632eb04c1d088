"""All cells that were asked for; what is done already is read from a file, a line each."""

from __future__ import annotations

import itertools
import json
import logging
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.research.quality import ours, peer, ways
from benchmarks.research.quality.measure import OURS, PEER, SIDES, Bench, Cell, Result
from benchmarks.research.quality.nets import TASKS

LEFT = (0.7, 0.5, 0.3)
SCOPES = ("local", "global")
# of both sides where both have one of that name; the default is one of them
IMPORTANCES = ("default", "l1", "l2", "taylor", "hessian", "activation", "fpgm", "bn_scale", "lamp")
OF_BATCH_NORM = "bn_scale"  # without any, the peer's gives no net, and ours is its default
DEFAULTS = {OURS: ours.DEFAULT, PEER: peer.DEFAULT}
SEEDS = 3
SAME_SHARE = 0.01  # of the uncut FLOPs: two nets that differ by more are not compared
PER_FLOP = json.dumps({"per": "flops"})
BY_LOSS = "taylor"  # a share of a loss can be weighed against FLOPs, a length of weights cannot
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """Which part of the table."""

    nets: Sequence[str] = tuple(TASKS)
    left: Sequence[float] = LEFT
    scopes: Sequence[str] = SCOPES
    importances: Sequence[str] = IMPORTANCES
    sides: Sequence[str] = SIDES
    seeds: int | None = None  # of all cells; by default those of the task for the defaults, and SEEDS for the others
    options: Mapping[str, Any] = field(default_factory=dict)
    ways: bool = False  # to train as well

    def cells(self) -> Iterator[Cell]:
        """The first seed of everything comes before the second of anything."""
        text = json.dumps(dict(self.options), sort_keys=True)
        known = {OURS: ours.importances(), PEER: list(peer.IMPORTANCES)}
        most = max((self._seeds(net, of_default=True) for net in self.nets), default=0)
        for seed, net, left, scope, side in itertools.product(
            range(most), self.nets, self.left, self.scopes, self.sides
        ):
            of_default, of_others = (seed < self._seeds(net, each) for each in (True, False))
            for name in dict.fromkeys(DEFAULTS[side] if name == "default" else name for name in self.importances):
                if name == OF_BATCH_NORM and not TASKS[net].has_batch_norm:
                    continue
                if name in known[side] and (of_default if name == DEFAULTS[side] else of_others):
                    yield Cell(net, seed, side, name, scope, left, text if side == OURS else "{}")
            if (side, scope) == (OURS, "global") and text == "{}" and of_default:
                yield Cell(net, seed, side, BY_LOSS, scope, left, PER_FLOP)
        yield from self._ways()

    def _seeds(self, net: str, of_default: bool) -> int:
        return self.seeds or (TASKS[net].seeds if of_default else SEEDS)

    def _ways(self) -> Iterator[Cell]:
        """What the second table is of."""
        nets = [net for net in self.nets if self.ways and net in ways.NETS]
        for seed, net, left, name in itertools.product(range(self.seeds or ways.SEEDS), nets, ways.LEFT, ways.EVERY):
            if left in self.left:
                yield Cell(net, seed, ways.WAYS, name, ways.SCOPE, left)


def run(asked: Asked, file: Path, bench: Bench | None) -> list[Result]:
    """The results of all cells, in order; each is kept as soon as it is there. Without a bench, those that are."""
    done = {result.cell.key: result for result in read(file)}
    file.parent.mkdir(parents=True, exist_ok=True)
    found = _measured(list(asked.cells()), done, file, bench)
    return found + _measured(list(at_the_peers_share(found)), done, file, bench)


def at_the_peers_share(found: Sequence[Result]) -> Iterator[Cell]:
    """Both defaults once more, at the share of the FLOPs that the peer's gives where it does not come to the asked."""
    groups: dict[tuple[str, str, float], list[Result]] = {}
    for result in found:
        cell = result.cell
        if (cell.side, cell.importance) == (PEER, peer.DEFAULT) and not result.refusal:
            groups.setdefault((cell.net, cell.scope, cell.left), []).append(result)
    for (net, scope, left), results in groups.items():
        share = round(statistics.fmean(result.left for result in results), 3)
        if abs(share - left) > SAME_SHARE:
            for result, side in itertools.product(results, SIDES):
                yield Cell(net, result.cell.seed, side, DEFAULTS[side], scope, share)


def _measured(cells: Sequence[Cell], done: dict[str, Result], file: Path, bench: Bench | None) -> list[Result]:
    for number, cell in enumerate(cells, 1):
        if cell.key not in done and bench is not None:
            result = bench.measured(cell)
            with file.open("a", encoding="utf-8") as lines:
                # a line starts with its end too: a run may have been stopped in the middle of the last one
                lines.write(f"\n{result.written()}\n")
            done[cell.key] = result
            log.info("%s of %s: %s", number, len(cells), shown(result))
    return [done[cell.key] for cell in cells if cell.key in done]


def read(file: Path) -> Iterator[Result]:
    """What a file holds; a last line that was cut short is no result."""
    if file.exists():
        for line in filter(None, file.read_text("utf-8").splitlines()):
            try:
                yield Result.read(line)
            except (json.JSONDecodeError, TypeError):
                log.warning("a line of %s is not a result: measured again", file.name)


def shown(result: Result) -> str:
    cell = result.cell
    scores = [result.one_shot, result.recalibrated, result.tuned]
    figures = " ".join("    –" if score is None else f"{score:5.1f}" for score in scores)
    return (
        f"{cell.net} {cell.seed} {cell.left:g} {cell.scope} {cell.side} {cell.importance}: uncut {result.uncut:.1f}, "
        f"left {result.left:.3f}: {result.refusal or figures} ({result.seconds:.1f} s)"
    )
