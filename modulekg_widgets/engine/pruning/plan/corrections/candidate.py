"""A candidate plan, with the corrections that were applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.cut.edits import SizeValue
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection, SizeConstraint
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import Attribute

ATTRIBUTE, CONSTRAINT, PINNED, SCALE, OUTPUT = "attribute", "tie", "whole", "scale", "output"  # as plan files have them


@dataclass(frozen=True, slots=True)
class Change:
    """A correction of a plan, and the line of code that required it."""

    kind: str  # "attribute", "tie", "whole", "scale" or "output"
    what: str
    source: str
    axes: tuple[str, ...] = field(default=(), compare=False)  # those that it is about, by name

    def __str__(self) -> str:
        return f"{self.what}: {self.source}"


@dataclass(frozen=True)
class PlanCandidate:
    """A candidate plan: the remaining indices, and the attributes that follow sizes."""

    selection: Selection
    wanted: Mapping[Term, int]  # the counts before any correction
    constraints: tuple[SizeConstraint, ...] = ()  # each with its change
    shared_constraints: tuple[SizeConstraint, ...] = ()  # sizes that one attribute holds for several modules
    attribute_terms: Mapping[Attribute, Term] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    strict: bool = False  # no attributes but those that the adapters know

    def with_followers(self, followed: Mapping[Attribute, Term]) -> PlanCandidate:
        """The candidate with further attributes that follow sizes, without a change that says so."""
        return replace(self, attribute_terms={**self.attribute_terms, **followed})

    def attributes(self) -> dict[str, tuple[SizeValue, SizeValue]]:
        """The changes of attributes that dry runs found, by path."""
        values: dict[tuple[int, str], tuple[SizeValue, SizeValue]] = {}
        named: dict[str, tuple[int, str]] = {}
        for attribute, term in self.attribute_terms.items():
            size = self.selection.size(term)
            if size != term.size:
                one = attribute.identity[:2]  # of a tuple all parts, under whatever names they were found
                before, after = values.get(one, (attribute.value, attribute.value))
                values[one] = (before, attribute.with_size(after, size))
                named[attribute.path] = one
        return {path: values[one] for path, one in named.items()}
