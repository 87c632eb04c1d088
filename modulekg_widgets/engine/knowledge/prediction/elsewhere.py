"""Values on a data set of which none is known: the order of another one, and how far levels of data sets lie apart."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.mixture import LEVEL, NORMAL, Told
from modulekg_widgets.engine.knowledge.prediction.scales import LOG_ODDS, Array
from modulekg_widgets.engine.knowledge.prediction.surface import Surface

FEWEST = 3  # places: two tell one distance, which is no spread
WHOLE = 100.0  # percent


def carried_over(told: Told, known: Iterable[Surface]) -> Told:
    """Values on another data set, in percent: those told for a known one, as uncertain as known ones lie apart.

    The distances are those of the mean log-odds of the known data sets. With fewer than three of these nothing is
    known of the level: the interval is nearly all that a percentage can be. Values and ends are as near to 0 and 100
    as log-odds tell apart.
    """
    levels = [float(LOG_ODDS.of(surface.values).mean()) for surface in known]
    told = Told(*(LOG_ODDS.back(LOG_ODDS.of(each)) for each in (told.values, told.low, told.high)))
    if len(levels) < FEWEST:
        edge = np.full(len(told.values), WHOLE * (1 - LEVEL) / 2)
        return Told(told.values, np.minimum(edge, told.low), np.maximum(WHOLE - edge, told.high))
    apart = np.sqrt(np.mean([(one - other) ** 2 for one, other in permutations(levels, 2)]))
    further = NORMAL * float(apart)
    return Told(told.values, _moved(told, told.low, -further), _moved(told, told.high, further))


def _moved(told: Told, end: Array, further: float) -> Array:
    """An end of an interval with the distance of the level beside its own."""
    middle, own = LOG_ODDS.of(told.values), LOG_ODDS.of(end)
    return LOG_ODDS.back(middle + np.sign(further) * np.hypot(own - middle, further))
