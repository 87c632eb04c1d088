"""Messages and notes for infeasible targets: the limiting options, and the nearest plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.latency import NANOSECONDS_PER_MILLISECOND
from modulekg_widgets.engine.pruning.plan.corrections.candidate import CONSTRAINT, PINNED, Change
from modulekg_widgets.engine.pruning.plan.selection.counts import Floats
from modulekg_widgets.engine.pruning.plan.selection.request import FREE, LATENCY, Request
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel
from modulekg_widgets.engine.pruning.plan.targets.target_solution import LATENCY_TOLERANCE, TOLERANCE, TargetSolution

UNIT_NAMES = {"params": "parameters", "flops": "FLOPs", "macs": "multiply-adds", "bytes": "bytes",
         "matmul_flops": "FLOPs in matrix products and convolutions"}  # fmt: skip
MAX_REASONS = 3

MinimumSizes = Callable[[Request, Sequence[str]], Mapping[str, float]]  # what a request leaves at least, by unit


def unreachable_message(
    request: Request,
    axes: Axes,
    formula: SizeModel,
    goals: Floats,
    nearest: TargetSolution | None,
    minimum_sizes: MinimumSizes,
    failed: Exception | None = None,
) -> str:
    """The message for a target below the reachable minimum."""
    smallest = minimum_sizes(request, formula.units)
    left = [smallest[unit] for unit in formula.units] if nearest is None else nearest.sizes.tolist()
    over = [(left[at] - goals[at]) / max(formula.before[at], 1.0) for at in range(len(goals))]
    worst = int(np.argmax(over))
    unit = formula.units[worst]
    kept = [] if nearest is None else [each for each in nearest.candidate.changes if each.kind in (PINNED, CONSTRAINT)]
    ways = [
        *_limiting_options(request, smallest[unit], unit, minimum_sizes),
        *frozen_axes_text(axes),
        *_corrections_text(kept),
    ]
    is_least = left[worst] - smallest[unit] <= TOLERANCE * formula.before[worst]
    size = _size_text(left[worst], formula, worst)
    found = f"at least {size} are left" if is_least else f"the nearest that was found leaves {size}"
    text = f"target={_target_text(request)} cannot be reached: {found}"
    if failed is not None and over[worst] <= TOLERANCE:  # few indices enough could stay, if the code ran with them
        text = f"target={_target_text(request)} cannot be reached: no sizes that leave so little run: {failed}"
    return f"{text}; in the way: {'; '.join(ways)}" if ways else text


def overshoot_message(request: Request, formula: SizeModel, nearest: TargetSolution, missed: int) -> str:
    """The message for a target that is far overshot."""
    size = _size_text(nearest.sizes[missed], formula, missed)
    given = [name for name in ("per_axis", "cuts", "ceiling") if getattr(request, name) is not None]
    options = ", ".join(f"{name}={printable(repr(getattr(request, name)), 80)}" for name in given)
    return f"target={_target_text(request)} cannot be reached: {options or 'the smallest cut'} already leaves {size}"


def slack_notes(request: Request, formula: SizeModel, found: TargetSolution) -> list[str]:
    """The note for a size that is below its budget, as another one is tighter."""
    room = [at for at in range(len(found.gaps)) if found.has_slack(at) and formula.units[at] != LATENCY]
    if not room:
        return []
    tightest = formula.units[int(np.argmin(found.gaps))]
    left = " and ".join(_size_text(float(found.sizes[at]), formula, at) for at in room)
    return [f"of target={_target_text(request)} {tightest!r} is the tightest: {left} are left, less than asked for"]


def missed_target_notes(request: Request, formula: SizeModel, found: TargetSolution) -> list[str]:
    """The notes for sizes that miss their goal."""
    names = ("round_to", "only", "keep", "floor", "ceiling", "per_axis", "cuts")
    ways = [
        f"{name}={printable(repr(getattr(request, name)), 80)}" for name in names if getattr(request, name) is not None
    ]
    if request.granularity not in (None, "index"):
        ways.append(f"granularity={request.granularity!r}")
    if request.layers != FREE:
        ways.append(f"layers={request.layers!r}")
    if request.scope != "local" and request.floor is None:
        ways.append(f"what scope={request.scope!r} leaves of each axis")
    ways += _corrections_text([each for each in found.candidate.changes if each.kind in (PINNED, CONSTRAINT)])
    off = [at for at in np.flatnonzero(np.abs(found.gaps) > TOLERANCE).tolist()
           if formula.units[at] != LATENCY and not found.has_slack(at)]  # fmt: skip
    left = [_size_text(float(found.sizes[at]), formula, at) for at in off]
    why = "; ".join(ways) or "the steps of single indices"
    missed = " and ".join(repr(formula.units[at]) for at in off)
    what = (
        f"of target={_target_text(request)} {missed}"
        if len(off) < len(request.target or {})
        else f"target={_target_text(request)}"
    )
    note = f"{what} is not met within 1 %: {' and '.join(left)} are left; in the way: {why}"
    return [note] if left else []


def too_slow_message(
    request: Request,
    axes: Axes,
    pair: tuple[float, float],
    nearest: TargetSolution,
    slowest: Sequence[tuple[str, float]],
    minimum_sizes: MinimumSizes,
) -> str:
    """The message for an unreachable latency; `slowest` has modules and their milliseconds."""
    flops = minimum_sizes(request, ["flops"])["flops"]
    kept = [each for each in nearest.candidate.changes if each.kind in (PINNED, CONSTRAINT)]
    ways = [
        *_limiting_options(request, flops, "flops", minimum_sizes),
        *frozen_axes_text(axes),
        *_corrections_text(kept),
    ]
    if pair[1] >= pair[0]:
        text = (
            f"no cut for target={_target_text(request)} is faster than the model: the nearest takes "
            f"{_latency_text(pair)}"
        )
    else:
        text = (
            f"target={_target_text(request)} cannot be reached: the nearest that was found takes {_latency_text(pair)}"
        )
    most = ", ".join(
        f"{printable(path) or 'the model itself'} ({taken:.3g} ms)" for path, taken in slowest[:MAX_REASONS]
    )
    return f"{text}; in the way: {'; '.join([*ways, f'what takes longest in the model: {most}'])}"


def latency_miss_notes(request: Request, wanted: float, pair: tuple[float, float]) -> list[str]:
    """The note for a plan that misses its latency."""
    if abs(pair[1] / pair[0] / wanted - 1) <= LATENCY_TOLERANCE:
        return []
    return [
        (
            f"target={_target_text(request)} is not met within 10 %: {_latency_text(pair)} are left, and no step comes "
            "nearer"
        )
    ]


def rounding_notes(request: Request, round_to: int) -> list[str]:
    """The note for a plan with sizes rounded for speed."""
    if round_to == (request.round_to or 1):
        return []
    return [f"the sizes left are multiples of {round_to}: measured, such cuts take less time for what they leave here"]


def _latency_text(pair: tuple[float, float]) -> str:
    return f"{pair[1]:.3g} ms ({pair[1] / pair[0]:.3g} of the model's {pair[0]:.3g} ms)"


def _limiting_options(request: Request, now: float, unit: str, minimum_sizes: MinimumSizes) -> list[str]:
    """The options of the request that prevent smaller plans."""
    without: list[tuple[str, Request]] = []
    for name in ("round_to", "only", "keep", "floor", "per_axis", "cuts"):
        if getattr(request, name) is not None:
            text = f"{name}={printable(repr(getattr(request, name)), 80)}"
            without.append((text, replace(request, **{name: None})))
    if request.granularity not in (None, "index"):
        without.append((f"granularity={request.granularity!r}", replace(request, granularity="index")))
    if request.layers != FREE:
        without.append((f"layers={request.layers!r}", replace(request, layers=FREE)))
    return [text for text, other in without if minimum_sizes(other, [unit])[unit] < now - 0.5]


def frozen_axes_text(axes: Axes) -> list[str]:
    """The number of frozen axes by reason, the most frequent first."""
    reasons = Counter(axis.frozen for axis in axes if axis.frozen is not None)
    if not reasons:
        return []
    listed = ", ".join(
        f"{count} for {printable(str(reason), 120)}" for reason, count in reasons.most_common(MAX_REASONS)
    )
    more = f", {len(reasons) - MAX_REASONS} more reasons" if len(reasons) > MAX_REASONS else ""
    return [f"{sum(reasons.values())} frozen axes ({listed}{more})"]


def _corrections_text(changes: Sequence[Change]) -> list[str]:
    """The corrections that keep axes whole or tie them, as text."""
    more = [f"{len(changes) - MAX_REASONS} more corrections"] if len(changes) > MAX_REASONS else []
    return [*(printable(str(change), 300) for change in changes[:MAX_REASONS]), *more]


def _target_text(request: Request) -> str:
    return printable(repr(dict(request.target or {})), 200)


def _size_text(value: float, formula: SizeModel, at: int) -> str:
    share = value / max(float(formula.before[at]), 1.0)
    if formula.units[at] == LATENCY:
        return f"about {value / NANOSECONDS_PER_MILLISECOND:.3g} ms ({share:.3g} of the model's)"
    return f"{value:,.0f} {UNIT_NAMES[formula.units[at]]} ({share:.3g} of the model's)"
