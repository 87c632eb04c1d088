"""Rules for merging metric values over ranks, applied to arrays; nothing here communicates.

Nothing here communicates; `distributed` brings the rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from modulekg_widgets.engine.monitoring.metric import BACKWARD, MetricKind
from modulekg_widgets.engine.monitoring.readings import SCALAR, Slot

# of metrics whose values are merged together with those of another, or part by part; all others say it themselves
RULES = {"InputStd": "std", "WeightStatistic": "statistic", "UpdateRatio": "ratio"}
# what has to be known beside a value so that it can be merged
COMPANIONS = {"InputStd": "InputMean", "UpdateRatio": "WeightNorm"}
_COMPANION_PREFIX = "beside "  # begins the names of slots that are measured for the sake of others
# of the parts of a statistic or a histogram; others take the mean
KEY_RULES = {
    "std": "std",
    "min": "min",
    "max": "max",
    "low": "min",
    "high": "max",
    "total": "sum",
    "sampled": "sum",
}

MEAN, NORM, SUM, MIN, MAX, STD, RATIO = range(7)
_CODES = {"norm": NORM, "sum": SUM, "min": MIN, "max": MAX, "std": STD, "ratio": RATIO}


def rule_of(kind: MetricKind) -> str:
    """Returns the name of the merge rule of a metric; "none" for metrics of the loss."""
    return "none" if kind.needs == ("Loss",) else kind.ranks or RULES.get(kind.name, "mean")


def companion_name(metric: str) -> str:
    """Returns the slot name of a companion metric."""
    return _COMPANION_PREFIX + metric


def is_companion(metric: str) -> bool:
    """True for the slot name of a companion metric."""
    return metric.startswith(_COMPANION_PREFIX)


@dataclass
class RankValues:
    """Values of all ranks at a step: `amounts` of shape (P, slots), `numbers` of shape (P, columns).

    An amount says how much data a value stands for: NaN where a process has no value, 0 for one that does not count,
    below 0 for a copy of what other processes have too.
    """

    amounts: np.ndarray
    numbers: np.ndarray


@dataclass
class MergedValues:
    """Merged values: the slots that have one, and the columns of all slots."""

    has_value: np.ndarray
    numbers: np.ndarray


@dataclass
class SharedLayout:
    """Columns of each slot in a row, equal on all ranks."""

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
        """Append the slots that are new."""
        for sent in slots:
            slot = sent._replace(form=SCALAR) if sent.form == SCALAR else sent  # rows compare it by identity
            if slot not in self.places:
                self.places[slot] = len(self.slots)
                self.slots.append(slot)
                self.columns.append(slice(self.width, self.width + slot.form.size))
        self._index()

    def merge(self, table: RankValues) -> MergedValues:
        """Returns one value per slot from those of the ranks."""
        with np.errstate(all="ignore"):
            return self._merge(table)

    def _merge(self, table: RankValues) -> MergedValues:
        amounts = _counted_amounts(table.amounts)
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
        out *= self._factor
        self._merge_pairs(out, values, weights)
        for histograms in self._histograms:
            histograms.merge(out, values, counts, self._factor)
        out[np.flatnonzero(sums == 0)] = np.nan
        has_value = ~np.isnan(table.amounts).all(0)
        # a process without a value notes NaN under a form of its own: where another has one, it does not count
        elsewhere = np.bincount(self._name_of, total, len(self.slots))[self._name_of]
        return MergedValues(has_value & ((total > 0) | (elsewhere == 0)), out)

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
        self._factor = np.ones(self.width)
        self._beside = np.zeros(self.width, np.int64)
        codes = np.zeros(self.width, np.int64)
        by_name = {(slot[:4], slot.form.size): part for slot, part in zip(self.slots, self.columns, strict=True)}
        histograms: dict[int, list[dict[str, int]]] = {}
        for slot, kind, part in zip(self.slots, kinds, self.columns, strict=True):
            rule, places = rule_of(kind), _key_offsets(slot, part.start)
            scale = 1 / self.world if _is_gradient(kind) else 1.0
            if rule == "statistic":
                self._index_keys(places, codes)
                continue
            if rule == "histogram" and places.keys() >= {"low", "high", "counts"}:
                histograms.setdefault(dict(slot.form.parts)["counts"] or 1, []).append(places)
                self._index_keys(places, codes)
                self._factor[[places["low"], places["high"]]] = scale
                continue
            if rule == "norm":
                self._factor[part] = scale
            code = _CODES.get(rule, MEAN)
            if code in (STD, RATIO):
                name = (slot.module, companion_name(COMPANIONS.get(kind.name, "")), slot.call, slot.phase)
                other = by_name.get((name, slot.form.size))
                if other is None:
                    continue
                self._beside[part] = np.arange(other.start, other.stop)
            codes[part] = code
        self._at = [np.flatnonzero(codes == code) for code in range(7)]
        self._histograms = [_Histograms.of(found, bins) for bins, found in histograms.items()]

    def _index_keys(self, places: dict[str, int], codes: np.ndarray) -> None:
        """Set the rules of the parts of a statistic or histogram, by their keys."""
        for key, at in places.items():
            codes[at] = _CODES.get(KEY_RULES.get(key, ""), MEAN)
            if codes[at] == STD and "mean" in places:
                self._beside[at] = places["mean"]


def _key_offsets(slot: Slot, start: int) -> dict[str, int]:
    """Returns the first column of each key of a dict value."""
    found = {}
    for key, length in slot.form.parts:
        found[key] = start
        start += 1 if length is None else length
    return found


def _is_gradient(kind: MetricKind) -> bool:
    """True if values scale with gradients, which are those of each rank's mean loss."""
    return any(need in BACKWARD for need in kind.needs)


def _counted_amounts(amounts: np.ndarray) -> np.ndarray:
    """The weight of each value; of copies only the first one counts."""
    copies = amounts < 0
    first = copies & (np.cumsum(copies, 0) == 1)
    return np.where(copies, first, np.nan_to_num(amounts))


def _norm(values: np.ndarray, _: object = None) -> np.ndarray:
    """Root of the sum of squares, also beyond the range of float64 squares."""
    peak = np.abs(values).max(0)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    return np.sqrt(((values / scale) ** 2).sum(0)) * scale


_PLAIN: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    NORM: _norm,
    SUM: lambda values, counts: values.sum(0),
    MIN: lambda values, counts: np.where(counts, values, np.inf).min(0),
    MAX: lambda values, counts: np.where(counts, values, -np.inf).max(0),
}


@dataclass(frozen=True)
class _Histograms:
    """The columns of histograms with the same count of bins."""

    low: np.ndarray  # of shape (histograms,)
    high: np.ndarray
    counts: np.ndarray  # of shape (histograms, bins)

    @staticmethod
    def of(found: list[dict[str, int]], bins: int) -> _Histograms:
        low, high, counts = (np.array([places[key] for places in found]) for key in ("low", "high", "counts"))
        return _Histograms(low, high, counts[:, None] + np.arange(bins))

    def merge(self, out: np.ndarray, values: np.ndarray, counted: np.ndarray, factor: np.ndarray) -> None:
        """Fill in the counts; the merged range is there already."""
        lows, highs = values[:, self.low] * factor[self.low], values[:, self.high] * factor[self.high]
        counts = rebinned(values[:, self.counts], lows, highs, out[self.low], out[self.high])
        out[self.counts] = np.where(counted[:, self.low, None], counts, 0.0).sum(0)


def rebinned(
    counts: np.ndarray, low: np.ndarray, high: np.ndarray, least: np.ndarray, greatest: np.ndarray
) -> np.ndarray:
    """Returns the counts of bins between `low` and `high` as counts of as many bins from `least` to `greatest`.

    What a bin holds spreads evenly over its width; a bin without a width keeps what it holds together.
    """
    bins = counts.shape[-1]
    edges = least[..., None] + (greatest - least)[..., None] * np.linspace(0.0, 1.0, bins + 1)
    width = (high - low)[..., None]
    at = np.clip((edges - low[..., None]) / np.where(width > 0, width, 1.0) * bins, 0.0, bins)
    at = np.where(np.abs(at - np.rint(at)) < 1e-9, np.rint(at), at)  # equal ranges keep whole counts
    point = np.where(edges > low[..., None], bins, 0)
    point[..., -1] = bins
    point[..., 1:] = np.where((greatest > least)[..., None], point[..., 1:], bins)
    at = np.where(width > 0, at, point)
    whole = np.minimum(at.astype(int), bins - 1)
    below = np.concatenate([np.zeros_like(counts[..., :1]), np.cumsum(counts, -1)], -1)
    upto = np.take_along_axis(below, whole, -1) + (at - whole) * np.take_along_axis(counts, whole, -1)
    return np.diff(upto)
