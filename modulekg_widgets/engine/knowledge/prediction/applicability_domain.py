"""Applicability domain: models for which a prediction is possible, by inputs, size and structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.knowledge.prediction.data.datasets import (
    UNKNOWN_MODALITY,
    are_compatible,
    is_modality_undecided,
    modality,
)
from modulekg_widgets.engine.knowledge.prediction.data.design import Design, Sample, SampleRows
from modulekg_widgets.engine.knowledge.prediction.data.features import Array, Features

FAR_QUANTILE = 0.005  # of known models are as far from those of other families
TOLERANCE = 1e-9  # of a likeness
MAX_EXTRAPOLATION = 1.0  # decades of parameters beyond those known, at most


@dataclass(frozen=True)
class ApplicabilityDomain:
    """Applicability domain of the models with known values."""

    samples: Sequence[Sample]

    @cached_property
    def _design(self) -> Design:
        return Design(self.samples, costs=False)

    @cached_property
    def _modalities(self) -> set[str]:
        """Modalities of the known models."""
        return {modality(each) or UNKNOWN_MODALITY for each in self._design.known.models}

    @cached_property
    def _min_similarity(self) -> float:
        """A low quantile of the similarity of known models to the nearest of another family.

        Of one family alone nothing tells how far others may be: it is that of its models which are least alike.
        """
        known = self._design.known
        families = np.array([each.family for each in known.models])
        likeness = self._design.similarity(known)
        if len(set(families)) == 1:
            return float(likeness.min())
        nearest = np.where(families[:, None] == families[None], -1.0, likeness).max(1)
        return float(np.quantile(nearest, FAR_QUANTILE))

    @cached_property
    def _sizes(self) -> tuple[int, int, float]:
        """Smallest and largest number of parameters, and the factor of extrapolation beyond them.

        As far beyond as they lie apart: what a few of one size have in common tells nothing of others.
        """
        sizes = [each.parameters for each in self._design.known.models]
        least, most = min(sizes), max(sizes)
        return least, most, min(10**MAX_EXTRAPOLATION, most / max(least, 1))

    def reasons(self, samples: Sequence[Sample]) -> list[str]:
        """Returns why nothing can be predicted for each sample; empty if something can."""
        rows = self._design.rows(samples)
        nearest = self._design.similarity(rows).max(1)[rows.model_of]
        return [self._reason(sample.features, float(alike)) for sample, alike in zip(samples, nearest, strict=True)]

    def is_same_modality(self, features: Features) -> bool:
        """True if the known models take the same modality as this one."""
        kinds, taken = self._modalities, modality(features) or UNKNOWN_MODALITY
        return not kinds or is_modality_undecided(features, kinds) or any(are_compatible(taken, kind) for kind in kinds)

    def nearest(self, samples: Sequence[Sample]) -> list[tuple[str, ...]]:
        """Returns the names of the three most similar known models for each sample."""
        rows = self._design.rows(samples)
        likeness = self._design.similarity(rows) + np.exp(-self._size_distances(rows))
        order = np.argsort(-likeness, axis=1, kind="stable")[:, :3]
        return [tuple(self._design.known.models[at].name for at in order[row]) for row in rows.model_of]

    def _size_distances(self, rows: SampleRows) -> Array:
        """Returns squared distances between sizes, in standard deviations."""
        first = np.unique(rows.model_of, return_index=True)[1]
        known = np.unique(self._design.known.model_of, return_index=True)[1]
        one, other = rows.size_matrix[first], self._design.known.size_matrix[known]
        return ((one[:, None] - other[None]) ** 2).sum(-1) / 2

    def _reason(self, features: Features, alike: float) -> str:
        if not features.parameters:
            return "it has no weights that could be trained"
        if not self.is_same_modality(features):
            known = " and ".join(sorted(self._modalities))
            taken = modality(features) or "an unknown kind of input"
            return f"it takes {taken}, and values are known of models for {known}"
        least, most, beyond = self._sizes
        if not least / beyond <= features.parameters <= most * beyond:
            return f"it has {features.parameters:,} parameters, and the known models {least:,} to {most:,}"
        if alike < self._min_similarity - TOLERANCE:
            return (
                f"no known model has a structure like it (similarity {alike:.2f}, at least "
                f"{self._min_similarity:.2f} among known ones)"
            )
        return ""
