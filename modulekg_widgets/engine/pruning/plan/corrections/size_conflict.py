"""The place where a candidate's dry run stopped: the dimensions around it, and the constraints that they suggest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import adjacent_summands, subterms
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch, SizeRequest
from modulekg_widgets.engine.pruning.plan.selection.selection import SizeConstraint
from modulekg_widgets.engine.tracing.dataflow import DataNode, ModuleNode


@dataclass(frozen=True)
class SizeConflict:
    """A candidate, the operator at which its sizes do not fit, and what lies around that operator."""

    axes: Axes
    candidate: PlanCandidate
    mismatch: Mismatch

    @property
    def path(self) -> str:
        """The path of the module at work; that of the model behind the last operator."""
        return "" if self.mismatch.operator is None else self.mismatch.operator.module

    @property
    def module(self) -> ModuleNode | None:
        """The module at work; None behind the last operator."""
        return None if self.mismatch.operator is None else self.axes.graph.modules.get(self.path)

    def module_dims(self) -> list[Term]:
        """The dimensions of the inputs and parameters of the module that may change."""
        nodes = [] if self.module is None else [*self.module.inputs, *self.module.params.values()]
        terms = [find(term) for node in nodes for term in self.axes.inference.dims(node)]
        return [term for term in dict.fromkeys(terms) if self._may_change(term)]

    def nearby_dims(self) -> list[Term]:
        """The dimensions whose size the requested number may be, the likeliest first."""
        attributes = [
            term for attribute, term in self.candidate.attribute_terms.items()
            if self.mismatch.operator is not None and attribute.module == self.path
        ]  # fmt: skip
        return list(dict.fromkeys([*attributes, *self.module_dims(), *self._inner_weight_axes()]))

    def changed_dims(self) -> list[Term]:
        """The changed dimensions at the operator with their factors and summands, requested ones first.

        Where code raised and named no size, what it got may be of the wrong one, as a first state of zeros: then it is
        the weights of the current module that count, and neighbouring summands count together, as two directions do.
        """
        terms = [term for request in self.mismatch.requests for term in subterms(request.term)]
        operator = self.mismatch.operator
        if operator is not None:
            nodes = [*operator.outputs, *operator.inputs]
            terms += [part for node in nodes for term in self.axes.inference.dims(node) for part in subterms(term)]
            if self.mismatch.error and not self.mismatch.requests and self.module is not None:
                own = self.module.params.values()
                weighed = [term for node in own for term in self.axes.inference.dims(node)]
                terms += [part for term in weighed for part in (*subterms(term), *adjacent_summands(term))]
        return [term for term in dict.fromkeys(terms) if self.candidate.selection.size(term) != term.size]

    def cut_axes(self) -> Iterator[list[Term]]:
        """Groups of axes that lose indices: requested ones, those of the operator, then of its modules outwards."""
        for request in self.mismatch.requests:
            yield self.candidate.selection.cut_atoms(request.term)
        yield [atom for request in self.mismatch.requests for atom in self.candidate.selection.cut_atoms(request.term)]
        operator, path = self.mismatch.operator, self.path
        nodes: list[DataNode] = []
        if operator is not None:
            nodes = [*operator.inputs, *operator.outputs]
            yield self._cut_axes_of(nodes)
        while True:
            module = self.axes.graph.modules.get(path)
            if module is not None:
                nodes += [*module.inputs, *module.outputs, *module.params.values()]
                yield self._cut_axes_of(nodes)
                for each in module.operators:
                    nodes += [*each.inputs, *each.outputs]
                yield self._cut_axes_of(nodes)
            if not path:
                return
            path = path.rpartition(".")[0]

    def _cut_axes_of(self, nodes: Iterable[DataNode]) -> list[Term]:
        found: dict[Term, None] = {}
        for node in dict.fromkeys(nodes):
            for term in self.axes.inference.dims(node):
                found.update(dict.fromkeys(self.candidate.selection.cut_atoms(term)))
        return list(found)

    def _inner_weight_axes(self) -> list[Term]:
        """The axes of the weights below the current module.

        A number that the code asks for is most likely the size of one of these, and then a tie holds for other choices
        as well.
        """
        if self.mismatch.operator is None:
            return []
        prefix = f"{self.path}." if self.path else ""
        below = [
            node for path, node in self.axes.graph.modules.items() if path != self.path and path.startswith(prefix)
        ]
        nodes = [weight for module in below for weight in module.params.values()]
        inside = (atom for node in nodes for term in self.axes.inference.dims(node) for atom in atoms(term))
        return [atom for atom in dict.fromkeys(inside) if self._may_change(atom)]

    def _may_change(self, term: Term) -> bool:
        return bool(self.candidate.selection.free_atoms(term))


def equal_parts(conflict: SizeConflict) -> Iterator[SizeConstraint]:
    """Constraints that parts of one operator, such as halves, stay equal."""
    operator = conflict.mismatch.operator
    every = [conflict.axes.inference.dims(node) for node in (operator.outputs if operator is not None else [])]
    for at in range(min(map(len, every), default=0)):
        first, *others = [dims[at] for dims in every]
        for other in others:
            if first.size == other.size and find(first) is not find(other):
                yield SizeConstraint(first, other)


def constraint_candidates(conflict: SizeConflict) -> Iterator[SizeConstraint]:
    """Constraints of a dimension to the size of a nearby one, or to the requested number, the likeliest first."""
    selection, requests = conflict.candidate.selection, conflict.mismatch.requests
    near = conflict.nearby_dims() if requests else conflict.module_dims()
    for request in requests or _guessed_requests(conflict):
        for other in near:
            times, rest = divmod(other.size, max(request.term.size, 1))
            fits = rest == 0 and selection.size(other) // times == request.asked
            if fits and find(other) is not find(request.term) and selection.free_atoms(request.term):
                yield SizeConstraint(request.term, other, times)
    for request in requests:
        yield from _divisibility_constraints(conflict, request, near)
    for request in requests:
        if selection.free_atoms(request.term):
            yield SizeConstraint(request.term, None, request.asked)


def _divisibility_constraints(
    conflict: SizeConflict, request: SizeRequest, near: Sequence[Term]
) -> Iterator[SizeConstraint]:
    """Constraints for a requested quotient of sizes, as `width // heads`.

    The dimension that this is asked of keeps its planned size.
    """
    size = conflict.candidate.selection.size
    for part, whole in product(near, near):
        was_so = part.size * request.term.size == whole.size and find(part) is not find(whole)
        if was_so and size(whole) // max(size(part), 1) == request.asked:
            yield SizeConstraint(part, whole, request.planned)


def _guessed_requests(conflict: SizeConflict) -> list[SizeRequest]:
    """Requests for equal sizes, if the requested size is unknown."""
    operator, size = conflict.mismatch.operator, conflict.candidate.selection.size
    near = conflict.module_dims()
    found = []
    for node in operator.outputs if operator is not None else ():
        for term in conflict.axes.inference.dims(node):
            for other in near:
                if term.size > 1 and other.size % term.size == 0:
                    asked = size(other) // (other.size // term.size)
                    if asked != size(term):
                        found.append(SizeRequest(term, size(term), asked))
    return found
