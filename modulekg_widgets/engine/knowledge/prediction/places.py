"""Which places tell of another: those whose data are of the same kind, and of these the most alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.datasets import CLEARLY, likeness
from modulekg_widgets.engine.knowledge.prediction.design import Sample
from modulekg_widgets.engine.knowledge.prediction.features import Features
from modulekg_widgets.engine.knowledge.prediction.modality import (
    TABLES,
    UNTOLD,
    agree,
    modality,
    modality_of,
    takes,
    task_of,
)
from modulekg_widgets.engine.knowledge.prediction.observations import Site
from modulekg_widgets.engine.knowledge.prediction.published import IMAGENET


@dataclass(frozen=True)
class Places:
    """Where values are known, by what the data sets there hold."""

    known: Mapping[Site, Sequence[tuple[Sample, float]]]
    datasets: Mapping[str, DataSetNode]
    _held: dict[str | None, str | None] = field(default_factory=dict, repr=False)
    _others: dict[tuple[Site, str | None], str] = field(default_factory=dict, repr=False)

    def held(self, place: Site) -> str | None:
        """What its data set holds, as that says, else what most models take of which values are known on it.

        Rows of numbers count where nothing else is taken: they may be pictures laid flat.
        """
        if place.dataset not in self._held:
            taken = Counter(modality(sample.features) or UNTOLD for sample in self.tried_on(place.dataset))
            told = [kind for kind, _ in taken.most_common() if kind not in (TABLES, UNTOLD)]
            rows = [kind for kind in (TABLES, UNTOLD) if kind in taken]
            self._held[place.dataset] = self._stated(place) or next(iter([*told, *rows]), None)
        return self._held[place.dataset]

    def tried_on(self, dataset: str | None) -> Iterator[Sample]:
        """The models of which values are known on a data set, on whatever device."""
        for place, pairs in self.known.items():
            if place.dataset == dataset:
                yield from (sample for sample, _ in pairs)

    def of_same_kind(self, place: Site, taken: str | None = None) -> list[Site]:
        """Those whose data may be like those of the place, or what a model takes; all where there are none."""
        kind = self.held(place) or taken
        return [other for other in self.known if agree(kind, self.held(other))] or list(self.known)

    def most_alike(self, place: Site, others: Sequence[Site]) -> Site:
        """The one with most models, unless the data set of another is clearly more like that of the place."""
        alike = {other: self._likeness(place, other) for other in others}
        nearly = [other for other in others if alike[other] >= max(alike.values()) - CLEARLY]
        return max(nearly, key=lambda other: (self._models(other), other.dataset == IMAGENET, alike[other]))

    def another_use(self, place: Site, features: Features) -> str:
        """Why a model, or what is known, is not for the data set of a place; empty where it may be."""
        held, taken = self._stated(place), modality(features)
        if not takes(taken, held):
            return f"{shown(str(place.dataset))} holds {held}, the model takes {taken}"
        if (place, taken) not in self._others:
            self._others[place, taken] = self._another_task(place, taken)
        return self._others[place, taken]

    def _another_task(self, place: Site, taken: str | None) -> str:
        task = None if place in self.known else self._task(place)
        others = {each for other in self.of_same_kind(place, taken) if (each := self._task(other)) is not None}
        if task is None or not others or task in others:
            return ""
        known = " and ".join(sorted(others))
        return f"{shown(str(place.dataset))} is for {shown(task)}, and values are known of {shown(known)}"

    def _stated(self, place: Site) -> str | None:
        node = self.datasets.get(place.dataset or "")
        return None if node is None else modality_of(node)

    def _task(self, place: Site) -> str | None:
        node = self.datasets.get(place.dataset or "")
        return None if node is None else task_of(node)

    def _models(self, place: Site) -> int:
        return len({sample.features.record.model.root for sample, _ in self.known[place]})

    def _likeness(self, one: Site, other: Site) -> float:
        nodes = [self.datasets.get(place.dataset or "") for place in (one, other)]
        return likeness(nodes[0], nodes[1]) if nodes[0] is not None and nodes[1] is not None else 0.0
