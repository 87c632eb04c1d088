"""Where a target is spent: the scores of all axes by what an index costs the network for what it saves.

A layer passes on the energy of its indices, the squares of their scores. The share that an index has of it is what the
weights along its axis lose; of what they save, the FLOPs of the axis tell. Shares add up while little goes; the less of
an axis is left, the more of that the next index takes, so its share of what is left counts as well. Measured on the
nets of docs/quality.md at 0.3 of the FLOPs, where scores were in relation to the mean of their axis alone: an LSTM had
16 % of its answers right where it has 42, torchcrepe 2 % where it has 46, a decoder a perplexity of 29 for 23.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.pruning.plan.counts import Floats, Scores

RUINED = 0.1  # how much what is left of an axis counts, beside what it had; of 0 … 1
TOWARDS_SAVINGS = 0.75  # power of what is saved for each weight; of 0 … 1, where 0 spends everywhere alike
ALL_BUT_NOTHING = 1e-12  # of the energy of an axis


def worths(scores: Scores, weights: Mapping[Term, int], savings: Mapping[Term, float]) -> dict[Term, Floats]:
    """For each axis the worth of its indices, comparable from axis to axis, in the order of their scores.

    `weights`: how many run along an axis; `savings`: the share of the sizes asked for that goes with all of it.
    """
    found = {}
    for term, own in scores.items():
        saved_by_weight = max(savings.get(term, 0.0), ALL_BUT_NOTHING) / max(weights.get(term, 0), 1)
        found[term] = _lost(own) / saved_by_weight**TOWARDS_SAVINGS
    return found


def _lost(scores: Floats) -> Floats:
    """Of each index the energy that is lost with it when those of lower scores have gone, relative to the mean."""
    if not len(scores):
        return scores
    relative = scores / (np.abs(scores).mean() or 1.0)
    energy = np.sign(relative) * relative**2
    order = np.argsort(energy, kind="stable")
    left = np.maximum(np.cumsum(np.maximum(energy[order], 0.0)[::-1])[::-1], np.finfo(np.float64).tiny)
    after = np.maximum(np.append(left[1:], 0.0), ALL_BUT_NOTHING * left[0])
    of_the_rest = np.empty_like(energy)
    of_the_rest[order] = np.maximum.accumulate(len(left) * np.log(left / np.minimum(left, after)))
    return (1 - RUINED) * energy / (np.abs(energy).mean() or 1.0) + RUINED * of_the_rest
