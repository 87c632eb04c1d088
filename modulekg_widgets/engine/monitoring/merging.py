"""Values of several processes become the value of all: the rules, and rows of numbers to which they are applied.

Nothing here communicates; `distributed` brings the rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.monitoring.metrics.base import BACKWARD, MetricKind
from modulekg_widgets.engine.monitoring.readings import SCALAR, Slot

# by metric; all others take the mean, weighted by how much data each process has measured
RULES = {
    "InputSndNorm": "norm",
    "OutputSndNorm": "norm",
    "OutputGradSndNorm": "norm",
    "InputGradSndNorm": "norm",
    "WeightNorm": "norm",
    "WeightGradNorm": "norm",
    "InputStd": "std",
    "WeightStatistic": "statistic",
    "UpdateRatio": "ratio",
    "WeightParamJump": "sum",
    "ActivationMax": "max",
    "AttentionMaxLogit": "max",
    "NonFiniteOrigin": "max",
    "DeadNeuronFraction": "min",
    "LinearDeadNeuronNum": "min",
    "WeightHistogram": "histogram",
    "WeightGradHistogram": "histogram",
    "InputHistogram": "histogram",
    "OutputHistogram": "histogram",
    "OutputGradHistogram": "histogram",
}
# what has to be known beside a value so that it can be merged
BESIDE = {"InputStd": "InputMean", "UpdateRatio": "WeightNorm"}
_BESIDE = "beside "  # begins the names of slots that are measured for the sake of others
OF_KEYS = {"mean": "mean", "std": "std", "min": "min", "max": "max"}  # of a statistic; its other keys take the mean

MEAN, NORM, SUM, LEAST, GREATEST, STD, RATIO = range(7)
_CODES = {"norm": NORM, "sum": SUM, "min": LEAST, "max": GREATEST, "std": STD, "ratio": RATIO}


def rule_of(kind: MetricKind) -> str:
    """How the values of a metric are merged: the name of a rule, or "none" for those of the loss."""
    return "none" if kind.needs == ("Loss",) else kind.ranks or RULES.get(kind.name, "mean")


def beside(metric: str) -> str:
    """The name of the slots of a metric that is measured for the sake of another."""
    return _BESIDE + metric


def is_beside(metric: str) -> bool:
    """Whether slots of this name are measured for the sake of others."""
    return metric.startswith(_BESIDE)


@dataclass
class Table:
    """What all processes have read at a step: `amounts` of shape (P, slots), `numbers` of shape (P, columns).

    An amount says how much data a value stands for: NaN where a process has no value, 0 for one that does not count,
    below 0 for a copy of what other processes have too.
    """

    amounts: np.ndarray
    numbers: np.ndarray


@dataclass
class Merged:
    """The values of all: which slots have one, and the columns of all slots."""

    found: np.ndarray
    numbers: np.ndarray


@dataclass
class Layout:
    """Where the value of each slot stands; the same in all processes."""

    world: int
    kind_of: Callable[[Slot], MetricKind]
    slots: list[Slot] = field(default_factory=list)
    places: dict[Slot, int] = field(default_factory=dict)
    columns: list[slice] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._index()

    @property
    def width(self) -> int:
        """The count of columns."""
        return self.columns[-1].stop if self.columns else 0

    def extend(self, slots: Iterable[Slot]) -> None:
        """Append those of the slots that are not there yet."""
        for sent in slots:
            slot = sent._replace(form=SCALAR) if sent.form == SCALAR else sent  # rows compare it by identity
            if slot not in self.places:
                self.places[slot] = len(self.slots)
                self.slots.append(slot)
                self.columns.append(slice(self.width, self.width + slot.form.size))
        self._index()

    def merge(self, table: Table) -> Merged:
        """One value for each slot out of those of the processes."""
        with np.errstate(all="ignore"):
            return self._merge(table)

    def _merge(self, table: Table) -> Merged:
        amounts = _counted(table.amounts)
        total = amounts.sum(0)
        weights = amounts[:, self._slot_of]
        counts = weights > 0
        values = np.where(counts, table.numbers, 0.0)
        sums = weights.sum(0)
        out = (weights * values).sum(0) / sums
        for code, merge in _PLAIN.items():
            at = self._at[code]
            if len(at):
                out[at] = merge(values[:, at], counts[:, at])
        out[self._at[NORM]] *= self._factor[self._at[NORM]]
        self._merge_pairs(out, values, weights)
        for place in self._histograms:
            part = self.columns[place]
            rows = np.flatnonzero(amounts[:, place])
            out[part] = _merged_histogram(self.slots[place], values[rows, part], self._factor[part.start])
        out[np.flatnonzero(sums == 0)] = np.nan
        has_value = ~np.isnan(table.amounts).all(0)
        # a process without a value notes NaN under a form of its own: where another has one, it does not count
        elsewhere = np.bincount(self._name_of, total, len(self.slots))[self._name_of]
        return Merged(has_value & ((total > 0) | (elsewhere == 0)), out)

    def _merge_pairs(self, out: np.ndarray, values: np.ndarray, weights: np.ndarray) -> None:
        at = self._at[STD]
        if len(at):
            means = self._beside[at]
            offsets = values[:, means] - out[means]
            out[at] = np.sqrt((weights[:, at] * (values[:, at] ** 2 + offsets**2)).sum(0) / weights[:, at].sum(0))
        at = self._at[RATIO]
        if len(at):
            whole = values[:, self._beside[at]]
            out[at] = _norm(values[:, at] * whole) / _norm(whole)

    def _index(self) -> None:
        kinds = [self.kind_of(slot) for slot in self.slots]
        sizes = [slot.form.size for slot in self.slots]
        self._slot_of = np.repeat(np.arange(len(self.slots)), sizes)
        names: dict[tuple[str, str, int, str], int] = {}
        self._name_of = np.array([names.setdefault(slot[:4], len(names)) for slot in self.slots], np.int64)
        self._factor = np.repeat([1 / self.world if _is_gradient(kind) else 1.0 for kind in kinds], sizes)
        self._histograms = [at for at, kind in enumerate(kinds) if rule_of(kind) == "histogram" and _has_bins(self, at)]
        self._beside = np.zeros(self.width, np.int64)
        codes = np.zeros(self.width, np.int64)
        by_name = {(slot[:4], slot.form.size): part for slot, part in zip(self.slots, self.columns, strict=True)}
        for slot, kind, part in zip(self.slots, kinds, self.columns, strict=True):
            if rule_of(kind) == "statistic":
                self._index_keys(slot, part.start, codes)
                continue
            code = _CODES.get(rule_of(kind), MEAN)
            if code in (STD, RATIO):
                name = (slot.module, beside(BESIDE.get(kind.name, "")), slot.call, slot.phase)
                other = by_name.get((name, slot.form.size))
                if other is None:
                    continue
                self._beside[part] = np.arange(other.start, other.stop)
            codes[part] = code
        self._at = [np.flatnonzero(codes == code) for code in range(7)]

    def _index_keys(self, slot: Slot, start: int, codes: np.ndarray) -> None:
        places = _places(slot, start)
        for key, at in places.items():
            codes[at] = _CODES.get(OF_KEYS.get(key, ""), MEAN)
            if codes[at] == STD and "mean" in places:
                self._beside[at] = places["mean"]


def _places(slot: Slot, start: int = 0) -> dict[str, int]:
    """Where the part of each key of a dict begins."""
    found = {}
    for key, length in slot.form.parts:
        found[key] = start
        start += 1 if length is None else length
    return found


def _is_gradient(kind: MetricKind) -> bool:
    """Whether its values grow with the gradients of a call, which are those of a process's own mean loss."""
    return any(need in BACKWARD for need in kind.needs)


def _counted(amounts: np.ndarray) -> np.ndarray:
    """How much each value counts; of copies the first one does, whatever its size."""
    copies = amounts < 0
    first = copies & (np.cumsum(copies, 0) == 1)
    return np.where(copies, first, np.nan_to_num(amounts))


def _norm(values: np.ndarray, _: object = None) -> np.ndarray:
    """The root of the sum of squares, also where squares leave the range of float64."""
    peak = np.abs(values).max(0)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    return np.sqrt(((values / scale) ** 2).sum(0)) * scale


_PLAIN: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    NORM: _norm,
    SUM: lambda values, counts: values.sum(0),
    LEAST: lambda values, counts: np.where(counts, values, np.inf).min(0),
    GREATEST: lambda values, counts: np.where(counts, values, -np.inf).max(0),
}


def _has_bins(layout: Layout, at: int) -> bool:
    return {"low", "high", "counts"} <= {key for key, _ in layout.slots[at].form.parts}


def _merged_histogram(slot: Slot, rows: np.ndarray, factor: float) -> np.ndarray:
    """The rows of some processes as one, over the range of all; each count spreads evenly over its bin."""
    places = _places(slot)
    low, high, start = places["low"], places["high"], places["counts"]
    bins = next(length for key, length in slot.form.parts if key == "counts") or 1
    out = rows.sum(0)
    if not len(rows):
        return out
    out[low], out[high] = rows[:, low].min() * factor, rows[:, high].max() * factor
    ends = out[low], out[high]
    parts = [rebinned(row[start : start + bins], row[low] * factor, row[high] * factor, *ends) for row in rows]
    out[start : start + bins] = np.sum(parts, 0)
    return out


def rebinned(counts: np.ndarray, low: float, high: float, new_low: float, new_high: float) -> np.ndarray:
    """Counts of bins between `low` and `high` as those of as many bins of a range that contains it."""
    bins = len(counts)
    if (low, high) == (new_low, new_high):
        return counts
    if low == high:
        out = np.zeros(bins)
        out[min(int((low - new_low) / (new_high - new_low) * bins), bins - 1)] = counts.sum()
        return out
    upto = np.interp(
        np.linspace(new_low, new_high, bins + 1), np.linspace(low, high, bins + 1), np.append(0.0, np.cumsum(counts))
    )
    return np.diff(upto)
