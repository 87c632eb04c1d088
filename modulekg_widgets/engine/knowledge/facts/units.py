"""Canonical names of targets and units, and conversion of values to the unit in which they are compared."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

PERCENT, FRACTION = "%", "fraction"
MILLISECONDS = "ms"
TOP_1, TOP_5 = "acc@1", "acc@5"
ACCURACY_TARGETS = (TOP_1, TOP_5)
LATENCY = "latency"
COST_WORDS = frozenset(
    {"convergence", "cer", "error", "fid", LATENCY, "loss", "mae", "memory", "mse", "perplexity", "rmse", "wer"}
)
_ACCURACY = re.compile(r"(?:acc(?:uracy)?)?(?:top)?([15])(?:acc(?:uracy)?)?|acc(?:uracy)?")
# a word of its own, or behind a small letter, as in valAcc
_SHARES = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
    r"(?i:acc(?:uracy)?|top.?\d+(?:acc)?|m?ap|m?iou|precision|recall|f1(?!\d)(?:.?score)?|(?:roc|pr)?auc|auroc|auprc)"
    r"(?![a-z])"
)
_NO_SHARE = re.compile(r"(?i)loss|(?<![a-z])(?:to|per)(?![a-z])|" + LATENCY)  # steps to an accuracy are no accuracy
_TIMES = {MILLISECONDS: 1.0, "s": 1e3, "µs": 1e-3, "ns": 1e-6, "min": 6e4, "h": 3.6e6}  # in milliseconds
_WORDS = {
    PERCENT: ("%", "percent", "percents", "percentage", "pct", "per cent", "percentage points", "pp"),
    FRACTION: ("fraction", "fractions"),
    MILLISECONDS: ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "µs": ("\u00b5s", "\u03bcs", "us", "usec", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nanosecond", "nanoseconds"),
    "min": ("min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hour", "hours"),
}  # fmt: skip
_UNITS = {word: unit for unit, words in _WORDS.items() for word in words}


@lru_cache(maxsize=4096)
def canonical_target(name: str) -> str:
    """Returns the canonical name of a target that has several, such as acc@1; others unchanged."""
    word = re.sub(r"[\W_]+", "", name).casefold()
    if word == LATENCY:
        return LATENCY
    found = _ACCURACY.fullmatch(word) if len(word) > 1 else None
    return name if found is None else f"acc@{found[1] or 1}"


@lru_cache(maxsize=4096)
def canonical_unit(unit: str) -> str:
    """Returns the canonical name of a unit that has several, such as % or ms; others unchanged."""
    return _UNITS.get(" ".join(unit.split()).casefold(), unit)


@lru_cache(maxsize=4096)
def is_share(target: str) -> bool:
    """True if the name of a target is that of an accuracy or another share of a whole."""
    return target in ACCURACY_TARGETS or (_SHARES.search(target) is not None and not _NO_SHARE.search(target))


@lru_cache(maxsize=4096)
def is_cost(target: str) -> bool:
    """True if the name of a target says that less is better: one of its words is that of a cost."""
    return not COST_WORDS.isdisjoint(_words(target))


def normalized_value(target: str, value: float, unit: str | None) -> tuple[float, str | None]:
    """Returns the value and the unit in which values of the target are compared."""
    if unit is None:
        return value, None
    word = canonical_unit(unit)
    if word == FRACTION:
        return 100 * value, PERCENT
    if word in _TIMES and LATENCY in _words(target):
        return (value if word == MILLISECONDS else value * _TIMES[word]), MILLISECONDS
    return value, word


def share_error(target: str, value: float, unit: str | None) -> str | None:
    """Returns why a value is invalid for the target (a share is 0 to 100 %, or 0 to 1); None if it is valid."""
    if not is_share(target) or 0 <= value <= 1:
        return None
    word = None if unit is None else canonical_unit(unit)
    if word == FRACTION:
        return f"{target} is {value:g}, and a fraction is from 0 to 1" + (": is it a percentage?" if value > 0 else "")
    if word in (PERCENT, None) and not 0 <= value <= 100:
        return f"{target} is {value:g}: give percent from 0 to 100, or a fraction from 0 to 1"
    return None


def finite_float(value: Any) -> float | None:
    """Returns any number as a finite float; None for anything else."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return None
    try:
        found = float(value)
    except Exception:  # noqa: BLE001  # an object of anybody's: whatever its __float__ raises, it is no number
        return None
    return found if math.isfinite(found) else None


def safe_repr(value: object, limit: int = 60) -> str:
    """Returns a short `repr` for messages that never raises."""
    try:
        found = repr(value)
    except Exception:  # noqa: BLE001  # also an integer of more digits than Python writes
        found = f"an object of type {type(value).__name__}"
    return found if len(found) <= limit else found[: limit - 1] + "…"


def _words(target: str) -> list[str]:
    return re.split(r"[-_ /]", target.casefold())
