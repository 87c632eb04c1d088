"""How important the blocks of a model are that is pruned by hand, by what there is to tell it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from modulekg_widgets.engine.pruning.blocks.influence import BlockInfluence
from modulekg_widgets.engine.pruning.blocks.scoring import block_scores
from modulekg_widgets.engine.residuals.blocks import ResidualBlock
from modulekg_widgets.engine.tracing.dataflow import Dataflow

MOST_BATCHES = 4  # that run through the model before anything is shown
INFLUENCE, WEIGHTS = "block influence", "l2"
log = logging.getLogger("modulekg_widgets")


class BlockScores(NamedTuple):
    """What the blocks are scored by, and the score of each by its path; no name where nothing can score them."""

    importance: str
    scores: dict[str, float]


def shown_scores(graph: Dataflow, blocks: Sequence[ResidualBlock], batches: Iterable[Any] | None) -> BlockScores:
    """Block influence on the first batches, else the mean square of their weights; larger for more important."""
    ways: list[tuple[str, Any]] = [(WEIGHTS, WEIGHTS)]
    if batches is not None:
        ways.insert(0, (INFLUENCE, BlockInfluence(_First(batches))))
    for name, importance in ways if blocks else ():
        try:
            return BlockScores(name, block_scores(graph, blocks, importance))
        except Exception as error:  # noqa: BLE001 - whatever data of the user raise: it is asked for by nobody yet
            log.debug("no %s of blocks: %s", name, error)
    return BlockScores("", {})


@dataclass(frozen=True)
class _First:
    """The first batches of what may have very many."""

    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.batches), MOST_BATCHES)
