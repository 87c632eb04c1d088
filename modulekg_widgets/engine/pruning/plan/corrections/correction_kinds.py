"""The kinds of correction: an attribute follows a size, sizes are tied, or axes stay whole.

Each makes a new candidate, with a change that says what was corrected and which line of code asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.plan.corrections.candidate import (
    ATTRIBUTE,
    CONSTRAINT,
    PINNED,
    Change,
    PlanCandidate,
)
from modulekg_widgets.engine.pruning.plan.corrections.constraint_solver import solve_constraints
from modulekg_widgets.engine.pruning.plan.corrections.dim_locations import dim_at, locate_dim
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection, SizeConstraint
from modulekg_widgets.engine.pruning.plan.selection.shared_size import shared_size_names
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import Attribute

MAX_NAMES = 6


class Corrections:
    """Corrects candidates; `source` is the line of code that asks for it."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    # ------------------------------------------------------------ attributes

    def with_attribute(
        self, candidate: PlanCandidate, attribute: Attribute, term: Term, source: str
    ) -> PlanCandidate | None:
        """The candidate in which an attribute follows a size, in all modules of the class.

        A number that several modules hold together, as that of a common configuration, makes their sizes equal. None
        where no sizes are so.
        """
        alike = self._corresponding_attributes(attribute, term, candidate)
        shared = tuple(
            SizeConstraint(term, other) for twin, other in alike.items() if twin.identity == attribute.identity
        )
        selection = candidate.selection
        if any(selection.size(constraint.right or term) != selection.size(term) for constraint in shared):
            found = solve_constraints(
                selection, (*candidate.constraints, *candidate.shared_constraints, *shared), candidate.wanted
            )
            if found is None:
                return None
            selection = found
        others = f", as {len(alike)} others of its class do" if len(alike) > 1 else ""
        one = ", one number for all" if shared and len(shared) == len(alike) else ""
        what = f"{attribute} follows {self._describe_term(term)}{others}{one}"
        change = Change(ATTRIBUTE, what, source, self._axis_names([term]))
        return replace(
            candidate,
            selection=selection,
            shared_constraints=(*candidate.shared_constraints, *shared),
            attribute_terms={**candidate.attribute_terms, **alike, attribute: term},
            changes=(*candidate.changes, change),
        )

    def with_attributes(
        self, candidate: PlanCandidate, followed: Mapping[Attribute, Term], source: str
    ) -> PlanCandidate:
        """The candidate with several attributes that follow sizes, as far as each can."""
        for attribute, term in followed.items():
            candidate = self.with_attribute(candidate, attribute, term, source) or candidate
        return candidate

    def _corresponding_attributes(
        self, attribute: Attribute, term: Term, candidate: PlanCandidate
    ) -> dict[Attribute, Term]:
        """The same attribute of other modules of the class, with the corresponding dimension."""
        modules = self.axes.graph.modules
        home = modules[attribute.module]
        place = locate_dim(self.axes, term, attribute.module)
        if place is None:
            return {}
        found: dict[Attribute, Term] = {}
        for path, node in modules.items():
            if type(node.module) is type(home.module) and path != attribute.module:
                other = dim_at(self.axes, path, place)
                twin = attribute.in_module(path, node.module)
                if (
                    other is not None
                    and twin is not None
                    and twin not in candidate.attribute_terms
                    and twin.size == other.size
                ):
                    found[twin] = other
        return found

    # ------------------------------------------------------ size constraints

    def with_constraint(
        self, candidate: PlanCandidate, constraint: SizeConstraint, source: str, fixed: Collection[Term] = ()
    ) -> PlanCandidate | None:
        """The candidate with the nearest sizes that meet a further constraint; None if there are none.

        Axes that are `fixed` keep their counts.
        """
        selection = candidate.selection
        if not constraint.is_met(selection):
            every = (*candidate.constraints, *candidate.shared_constraints, constraint)
            found = solve_constraints(selection, every, candidate.wanted, fixed)
            if found is None:
                return None
            selection = found
        terms = [constraint.left, *([constraint.right] if constraint.right else [])]
        what = self.describe_constraint(constraint, selection)
        change = Change(CONSTRAINT, what, source, self._axis_names(terms))
        return replace(
            candidate,
            selection=selection,
            constraints=(*candidate.constraints, constraint),
            changes=(*candidate.changes, change),
        )

    def describe_constraint(self, constraint: SizeConstraint, selection: Selection) -> str:
        """A constraint as text, with the sizes of a selection."""
        left = (
            f"{self._describe_term(constraint.left)} keeps {selection.size(constraint.left)} of {constraint.left.size}"
        )
        if constraint.right is None:
            return left
        text = f"{left}, tied to {self._describe_term(constraint.right)}"
        every = [*atoms(constraint.left), *atoms(constraint.right)]
        shared = [self._shared_sizes[atom] for atom in every if atom in self._shared_sizes]
        stays = selection.size(constraint.left) == constraint.left.size
        return text + _shared_size_note(self.axes, *shared[0]) if stays and shared else text

    # ---------------------------------------------------------- pinned axes

    def with_pinned(self, candidate: PlanCandidate, cut: Sequence[Term], source: str) -> PlanCandidate:
        """The candidate with some axes kept whole."""
        names = ", ".join(self.axes.of(atom).name for atom in cut[:3]) + (", …" if len(cut) > 3 else "")
        what = f"{names} is not cut{self._shared_size_reason(candidate, cut)}"
        change = Change(PINNED, what, source, self._axis_names(cut))
        return replace(candidate, selection=candidate.selection.pin(cut, source), changes=(*candidate.changes, change))

    def _shared_size_reason(self, candidate: PlanCandidate, cut: Sequence[Term]) -> str:
        """The reason that one number of a module is the size of several axes, or ""."""
        for number, group in (self._shared_sizes[atom] for atom in cut if atom in self._shared_sizes):
            if len({candidate.wanted.get(atom, atom.size) for atom in group}) > 1:
                return _shared_size_note(self.axes, number, group)
        return ""

    @cached_property
    def _shared_sizes(self) -> dict[Term, tuple[str, tuple[Term, ...]]]:
        return shared_size_names(self.axes.free)

    def _describe_term(self, term: Term) -> str:
        return " · ".join(self._axis_names([term])[:3])

    def _axis_names(self, terms: Iterable[Term]) -> tuple[str, ...]:
        """The names of the axes in some dimensions."""
        inside = (atom for term in terms for atom in atoms(term) if atom.size > 1)
        return tuple(dict.fromkeys(self.axes.of(atom).name for atom in inside))


def _shared_size_note(axes: Axes, number: str, group: Sequence[Term]) -> str:
    names = ", ".join(printable(axes.of(atom).name) for atom in group[:MAX_NAMES])
    more = ", …" if len(group) > MAX_NAMES else ""
    return f", for {number} is one number for {names}{more}, which must have equal sizes"
