"""Likely size constraints after a mismatch, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import SizeConstraint
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch, SizeRequest


class LikelyConstraints:
    """Proposes which sizes are tied to one another, or to a number."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def equal_parts(self, mismatch: Mismatch) -> Iterator[SizeConstraint]:
        """Constraints that parts of one operator, such as halves, stay equal."""
        results = mismatch.operator.outputs if mismatch.operator is not None else []
        every = [self.axes.inference.dims(node) for node in results]
        for at in range(min(map(len, every), default=0)):
            first, *others = [dims[at] for dims in every]
            for other in others:
                if first.size == other.size and find(first) is not find(other):
                    yield SizeConstraint(first, other)

    def constraints(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[SizeConstraint]:
        """Constraints of a dimension to the size of a nearby one, or to the requested number."""
        requests = mismatch.requests
        near = self._candidate_sources(candidate, mismatch) if requests else self._module_dims(candidate, mismatch)
        for request in requests or self._guessed_requests(candidate, mismatch):
            for other in near:
                times, rest = divmod(other.size, max(request.term.size, 1))
                fits = rest == 0 and candidate.selection.size(other) // times == request.asked
                if fits and find(other) is not find(request.term) and candidate.selection.free_atoms(request.term):
                    yield SizeConstraint(request.term, other, times)
        for request in requests:
            yield from self._quotient_constraints(candidate, request, near)
        for request in requests:
            if candidate.selection.free_atoms(request.term):
                yield SizeConstraint(request.term, None, request.asked)

    def _quotient_constraints(
        self, candidate: PlanCandidate, request: SizeRequest, near: Sequence[Term]
    ) -> Iterator[SizeConstraint]:
        """Constraints for a requested quotient of sizes, as `width // heads`.

        The dimension that this is asked of keeps its planned size.
        """
        size = candidate.selection.size
        for part, whole in product(near, near):
            was_so = part.size * request.term.size == whole.size and find(part) is not find(whole)
            if was_so and size(whole) // max(size(part), 1) == request.asked:
                yield SizeConstraint(part, whole, request.planned)

    def _guessed_requests(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[SizeRequest]:
        """Requests for equal sizes, if the requested size is unknown."""
        if mismatch.operator is None:
            return []
        selection = candidate.selection
        found = []
        for node in mismatch.operator.outputs:
            for term in self.axes.inference.dims(node):
                for other in self._module_dims(candidate, mismatch):
                    if term.size > 1 and other.size % term.size == 0:
                        asked = selection.size(other) // (other.size // term.size)
                        if asked != selection.size(term):
                            found.append(SizeRequest(term, selection.size(term), asked))
        return found

    def _candidate_sources(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[Term]:
        """The dimensions whose size the requested number may be, the likeliest first."""
        every = (
            self._attribute_dims(candidate, mismatch),
            self._module_dims(candidate, mismatch),
            self._inner_weight_axes(candidate, mismatch),
        )
        return list(dict.fromkeys(term for terms in every for term in terms))

    def _module_dims(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[Term]:
        """The dimensions of the inputs and parameters of the current module that may change."""
        if mismatch.operator is None:
            return []
        module = self.axes.graph.modules.get(mismatch.operator.module)
        nodes = [] if module is None else [*module.inputs, *module.params.values()]
        terms = [find(term) for node in nodes for term in self.axes.inference.dims(node)]
        return [term for term in dict.fromkeys(terms) if candidate.selection.free_atoms(term)]

    def _attribute_dims(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[Term]:
        """The dimensions that attributes of the current module follow."""
        home = mismatch.operator.module if mismatch.operator is not None else None
        return [term for attribute, term in candidate.attribute_terms.items() if attribute.module == home]

    def _inner_weight_axes(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[Term]:
        """The axes of the weights below the current module.

        A number that the code asks for is most likely the size of one of these, and then a tie holds for other choices
        as well.
        """
        home = mismatch.operator.module if mismatch.operator is not None else None
        below = [
            node
            for path, node in self.axes.graph.modules.items()
            if home is not None and path != home and path.startswith(f"{home}." if home else "")
        ]
        nodes = [weight for module in below for weight in module.params.values()]
        inside = (atom for node in nodes for term in self.axes.inference.dims(node) for atom in atoms(term))
        return [atom for atom in dict.fromkeys(inside) if candidate.selection.free_atoms(atom)]
