"""Rank-frequency distribution of structures, with a fitted power law and its alternatives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd

from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.tables import data_frame
from modulekg_widgets.engine.knowledge.facts.usage import checked_level, occurrences_at_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from modulekg_widgets.engine.knowledge.analysis.power_law import PowerLaw

SIGNIFICANCE_LEVEL = 0.1  # the level at which Clauset et al. (2009) call a likelihood ratio conclusive


@dataclass(frozen=True, eq=False, repr=False)
class RankFrequency:
    """Structures by falling number of occurrences; the fit is computed when first used.

    The fit is the discrete maximum-likelihood one of Clauset, Shalizi & Newman (2009) by the package `powerlaw`; what
    needs it raises `MissingPackageError` without.
    """

    table: pd.DataFrame = field(repr=False)  # rank (from 1), count, name
    level: str | None = None

    @cached_property
    def fit(self) -> PowerLaw:
        """The complete fit."""
        from modulekg_widgets.engine.knowledge.analysis.power_law import fit_power_law

        return fit_power_law(self.table["count"].tolist())

    @property
    def alpha(self) -> float:
        """The exponent of p(count) ∝ count^-alpha; NaN where there is too little to fit."""
        return self.fit.alpha

    @property
    def xmin(self) -> float:
        """The count from which on the power law is fitted."""
        return self.fit.xmin

    @property
    def sigma(self) -> float:
        """The standard error of `alpha`."""
        return self.fit.sigma

    @property
    def comparisons(self) -> pd.DataFrame:
        """One row for each other law: `alternative`, `R`, `p`, `reliable`.

        `R` is the log-likelihood ratio, positive where the power law is the likelier, `p` the probability of one as
        large by chance. Not `reliable`: rounding errors spoil the package's likelihood, as where a law fits best with
        extreme parameters.
        """
        return self.fit.comparisons

    @property
    def verdict(self) -> str:
        """The result of the fit in words, with its limits."""
        if self.fit.tail == 0:
            return "Too few different counts to fit a power law."
        head = (
            f"Power law with exponent {self.alpha:.2f} ± {self.sigma:.2f} for counts of {self.xmin:g} and more "
            f"({self.fit.tail:,} of {len(self.table):,} structures)"
        )
        return ". ".join([head, *_findings(self.comparisons)]) + "."

    def plot(self, ax: Axes | None = None) -> Figure | Axes:
        """Plots linear and log–log axes; on given axes the log–log plot."""
        from modulekg_widgets.engine.knowledge.analysis.plots import plot_rank_frequency

        return plot_rank_frequency(self, ax)

    def __repr__(self) -> str:
        level = "" if self.level is None else f" at level {self.level}"
        return f"<RankFrequency of {len(self.table)} structures{level}>"


def rank_frequency(contents: Contents, level: str | None = None) -> RankFrequency:
    """All structures by falling number of occurrences, ties by name; only those at `level`, if given.

    Raises `UnknownNameError` for an unknown level.
    """
    checked_level(level)
    uses = Counter[str]()
    for model in contents.models.values():
        uses.update(occurrences_at_level(model, level))
    names = contents.names
    ranked = sorted((-count, names[key]) for key, count in uses.items() if count > 0)
    rows = [(rank, -count, name) for rank, (count, name) in enumerate(ranked, 1)]
    ranks = data_frame(rows, ["rank", "count", "name"])
    return RankFrequency(ranks, level)


def _findings(comparisons: pd.DataFrame) -> list[str]:
    distinct = comparisons[comparisons["p"] < SIGNIFICANCE_LEVEL]
    alike = comparisons[~(comparisons["p"] < SIGNIFICANCE_LEVEL)]
    better, worse = distinct[distinct["R"] > 0], distinct[distinct["R"] < 0]
    parts = [
        ("It fits better than", better),
        ("It fits worse than", worse),
        ("It cannot be told apart from", alike),
    ]
    return [f"{words} {_listed(rows)}" for words, rows in parts if len(rows)]


def _listed(rows: pd.DataFrame) -> str:
    laws = [
        f"{law} (p {p:.2g}{'' if reliable else ', numerically unstable'})"
        for law, p, reliable in zip(rows["alternative"], rows["p"], rows["reliable"], strict=True)
    ]
    return ", ".join(laws[:-1]) + " and " + laws[-1] if len(laws) > 1 else laws[0]
