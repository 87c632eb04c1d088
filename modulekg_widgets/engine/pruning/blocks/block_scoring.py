"""Importance scores of whole residual blocks."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.blocks.influence import BlockInfluence
from modulekg_widgets.engine.pruning.importance.calibration import Calibration, ParameterPairs, parameters_with_data
from modulekg_widgets.engine.pruning.importance.criteria import L1, L2, Random
from modulekg_widgets.engine.pruning.importance.importance import Criterion
from modulekg_widgets.engine.pruning.importance.loss_criteria import Taylor
from modulekg_widgets.engine.pruning.importance.scoring import criterion_of
from modulekg_widgets.engine.residuals.blocks import ResidualBlock, block_parameters
from modulekg_widgets.engine.tracing.dataflow import Dataflow

Tensor = torch.Tensor
BlockScorer = Callable[[Criterion, Dataflow, Sequence[ResidualBlock]], dict[str, float]]


def block_scores(graph: Dataflow, blocks: Sequence[ResidualBlock], importance: object) -> dict[str, float]:
    """The importance of each block by its path; larger is more important.

    A criterion may have a method `block_scores(graph, blocks)`; of the built-in ones those know that are named below.
    Raises `CutError` for any other, or for numbers that are none.
    """
    criterion = criterion_of(importance)
    own = getattr(criterion, "block_scores", None)
    known = next((scores for kind, scores in _SCORERS.items() if isinstance(criterion, kind)), None)
    if callable(own):
        values = own(graph, blocks)
    elif known is not None:
        values = known(criterion, graph, blocks)
    else:
        raise CutError(
            f"importance {printable(repr(importance))} does not score whole blocks: pass "
            'mk.pruning.BlockInfluence(batches), mk.pruning.Taylor(batches, loss), "l1", "l2" or "random", or name the '
            'blocks, as blocks=["layers.3"]'
        )
    scores = {}
    for block in blocks:
        value = values.get(block.path) if isinstance(values, Mapping) else None
        if not isinstance(value, float | int | np.number) or not math.isfinite(float(value)):
            raise CutError(
                f"importance {printable(repr(importance))} gave no finite number for the block "
                f"{printable(block.path)!r}"
            )
        scores[block.path] = float(value)
    return scores


def _mean_over_weights(of: Callable[[Tensor], Tensor]) -> BlockScorer:
    """The mean over all weights of a block."""

    def scores(criterion: Criterion, graph: Dataflow, blocks: Sequence[ResidualBlock]) -> dict[str, float]:
        live = parameters_with_data(graph, "importance")
        means = {}
        for block in blocks:
            own = [live[node].detach() for node in block_parameters(graph, block)]
            total = sum(float(of(weight.abs().double()).sum()) for weight in own)
            means[block.path] = total / max(sum(weight.numel() for weight in own), 1)
        return means

    return scores


def _random(criterion: Criterion, graph: Dataflow, blocks: Sequence[ResidualBlock]) -> dict[str, float]:
    assert isinstance(criterion, Random)
    draws = np.random.default_rng(criterion.seed).random(len(blocks))
    return {block.path: float(draw) for block, draw in zip(blocks, draws, strict=True)}


def _first_order(criterion: Criterion, graph: Dataflow, blocks: Sequence[ResidualBlock]) -> dict[str, float]:
    """The sum of |w·∂L/∂w| over all weights of a block, as of an index."""
    assert isinstance(criterion, Taylor)
    live = parameters_with_data(graph, "importance 'taylor'")
    sums = dict.fromkeys(live, 0.0)

    def take(pairs: ParameterPairs) -> None:
        for node, (weight, gradient) in pairs.items():
            sums[node] += float((weight.double() * gradient.double()).abs().sum())

    if criterion.batches is None or criterion.loss is None:
        take({node: (weight.detach(), weight.grad) for node, weight in live.items() if weight.grad is not None})
        if not any(sums.values()):
            raise CutError(
                "importance 'taylor' reads the parameters' .grad, and there is none: call loss.backward() first, or "
                "pass importance=Taylor(batches, loss), which runs its own passes"
            )
        count = 1
    else:
        count = Calibration(graph, criterion.batches, criterion.training).gradients(criterion.loss, take)
    return {block.path: sum(sums[node] for node in block_parameters(graph, block)) / count for block in blocks}


_SCORERS: dict[type, BlockScorer] = {
    L1: _mean_over_weights(lambda weight: weight),
    L2: _mean_over_weights(lambda weight: weight.square()),
    Random: _random,
    Taylor: _first_order,
}


# --------------------
# Block scores for the mask editor: block influence where batches are given, else mean squared weights.


MAX_BATCHES = 4  # that run through the model before anything is shown
INFLUENCE, WEIGHTS = "block influence", "l2"
log = logging.getLogger("modulekg_widgets")


class BlockScores(NamedTuple):
    """The score of each block by path, and the importance they come from ("" if there is none)."""

    importance: str
    scores: dict[str, float]


def editor_block_scores(
    graph: Dataflow, blocks: Sequence[ResidualBlock], batches: Iterable[object] | None
) -> BlockScores:
    """Block influence on the first batches, else the mean square of the weights; larger is more important."""
    importances: list[tuple[str, object]] = [(WEIGHTS, WEIGHTS)]
    if batches is not None:
        importances.insert(0, (INFLUENCE, BlockInfluence(_FirstBatches(batches))))
    for name, importance in importances if blocks else ():
        try:
            return BlockScores(name, block_scores(graph, blocks, importance))
        except Exception as error:  # noqa: BLE001 - whatever data of the user raise: it is asked for by nobody yet
            log.debug("no %s of blocks: %s", name, error)
    return BlockScores("", {})


@dataclass(frozen=True)
class _FirstBatches:
    """The first batches of an iterable, drawn where random numbers are put back afterwards."""

    batches: Iterable[object]

    def __iter__(self) -> Iterator[object]:
        return itertools.islice(iter(self.batches), MAX_BATCHES)
