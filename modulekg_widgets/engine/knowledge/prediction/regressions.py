"""Ridge regression and kernels on the structure of models, with the choice of their settings by left-out families.

All are kernel ridge regressions, with the arithmetic of process.py. Labels of structure after Shervashidze and others,
Weisfeiler-Lehman Graph Kernels, 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.features import Array, Features, log_counts, sizes
from modulekg_widgets.engine.knowledge.prediction.process import Families, Process, blocks_of

NESTED = 200  # values, up to which settings are chosen anew without each family
RBF_SCALES = (0.4, 0.6, 0.8, 1.0, 1.3, 2.0)  # decades of parameters and FLOPs
RBF_WEIGHTS = (1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Regression:
    """Kernels of which the one that predicts best is chosen, together with a ridge."""

    title: str
    kernels: Callable[[Sequence[Features]], list[Array]]
    ridges: tuple[float, ...]


def _size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    return [columns @ columns.T]


def _none(features: Sequence[Features]) -> list[Array]:
    return [np.zeros((len(features), len(features)))]


def _parameters(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, with_flops=False)
    return [columns @ columns.T]


def _ops(features: Sequence[Features]) -> list[Array]:
    rows = log_counts([each.ops for each in features])
    return [rows @ rows.T]


def _ops_and_size(features: Sequence[Features]) -> list[Array]:
    (size,), (ops,) = _size(features), _ops(features)
    return [ops + weight * size for weight in (3.0, 10.0, 30.0, 100.0)]


def _wl(features: Sequence[Features]) -> list[Array]:
    return [_cosine(log_counts(counts)) for counts in zip(*(each.rounds for each in features), strict=True)]


def _wl_and_size(features: Sequence[Features]) -> list[Array]:
    columns = sizes(features, _costs_known(features))
    apart = ((columns[:, None] - columns[None]) ** 2).sum(-1)
    bumps = [weight * np.exp(-apart / (2 * scale**2)) for scale in RBF_SCALES for weight in RBF_WEIGHTS]
    return [structure + bump for structure in _wl(features) for bump in bumps]


def _cosine(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    return rows @ rows.T


def _costs_known(features: Sequence[Features]) -> bool:
    return all(each.flops is not None for each in features)


def _powers(low: int, high: int) -> tuple[float, ...]:
    return tuple(10.0 ** (half / 2) for half in range(2 * low, 2 * high + 1))


KERNELS: dict[str, Regression] = {
    "mean": Regression("mean", _none, (1.0,)),
    "params": Regression("ridge on log-params", _parameters, _powers(-2, 2)),
    "ridge-size": Regression("ridge on log-params and log-FLOPs", _size, _powers(-2, 2)),
    "ridge-ops": Regression("ridge on op histogram", _ops, _powers(0, 3)),
    "ridge-ops-size": Regression("ridge on op histogram, log-params, log-FLOPs", _ops_and_size, _powers(0, 3)),
    "wl": Regression("WL kernel ridge", _wl, _powers(-3, 0)),
    "wl-rbf": Regression("WL kernel ridge + RBF of size", _wl_and_size, _powers(-3, 0)),
}


# -------------------------------------------------------------- without a family


def left_out(predictor: Regression, features: Sequence[Features], values: Array, families: Families) -> Array:
    """Each family predicted from the others, with the kernel and the ridge that tell these best.

    Of more than 200 values the settings for a family are those that tell the other families best, each without itself
    alone: to leave out two at a time would take hours.
    """
    kernels = predictor.kernels(features)
    settings = [(kernel, ridge) for kernel in kernels for ridge in predictor.ridges]
    told = [Process(kernel, values, ridge).left_out(families)[0] for kernel, ridge in settings]
    found = np.zeros(len(values))
    for block in blocks_of(families):
        others = np.setdiff1d(np.arange(len(values)), block)
        if len(settings) == 1:
            losses = [0.0]
        elif len(values) <= NESTED:
            losses = [_loss(kernel[np.ix_(others, others)], ridge, values[others], families[others])
                      for kernel, ridge in settings]  # fmt: skip
        else:
            losses = [float(((each - values)[others] ** 2).mean()) for each in told]
        found[block] = told[int(np.argmin(losses))][block]
    return found


def _loss(kernel: Array, ridge: float, values: Array, families: Families) -> float:
    """The mean square of the residuals of left-out families."""
    return float(((Process(kernel, values, ridge).left_out(families)[0] - values) ** 2).mean())


def nearest_structure(features: Sequence[Features], values: Array, families: Families) -> Array:
    """Of each model the value of the one that is most alike by its labels, among other families."""
    (*_, likeness) = _wl(features)
    likeness = np.where(families[:, None] == families[None], -1.0, likeness)
    return values[likeness.argmax(1)]
