"""Which places tell of another: those whose data are of the same kind, and of these the most alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.datasets import CLEARLY, likeness
from modulekg_widgets.engine.knowledge.prediction.design import Sample
from modulekg_widgets.engine.knowledge.prediction.features import Features
from modulekg_widgets.engine.knowledge.prediction.modality import (
    UNTOLD,
    agree,
    is_untold_among,
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
    _kinds: dict[Site, frozenset[str]] = field(default_factory=dict, repr=False)
    _others: dict[tuple[Site, str | None], str] = field(default_factory=dict, repr=False)

    def kinds(self, place: Site) -> frozenset[str]:
        """What its data set may hold: as that says, else all that models take of which values are known on it."""
        where = Site(place.dataset) if place.dataset is not None else place
        if where not in self._kinds:
            stated = self._stated(place)
            tried = {modality(sample.features) or UNTOLD for sample in self._tried(where)}
            self._kinds[where] = frozenset(tried if stated is None else [stated])
        return self._kinds[where]

    def _tried(self, where: Site) -> Iterator[Sample]:
        """The models of which values are known on a data set, on whatever device; where none is named, on that one."""
        for place, pairs in self.known.items():
            if place == where or place.dataset == where.dataset is not None:
                yield from (sample for sample, _ in pairs)

    def may_take(self, place: Site, features: Features) -> bool:
        """Whether a model may be for what the data set of a place holds."""
        kinds, taken = self.kinds(place), modality(features)
        return not kinds or is_untold_among(features, kinds) or any(takes(taken, kind) for kind in kinds)

    def of_same_kind(self, place: Site, taken: str | None = None) -> list[Site]:
        """Those whose data may be like those of the place, or what a model takes; all where there are none."""
        kinds = self.kinds(place) or {taken}
        return [
            other
            for other in self.known
            if any(agree(kind, held) for kind in kinds for held in self.kinds(other) or {None})
        ] or list(self.known)

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
