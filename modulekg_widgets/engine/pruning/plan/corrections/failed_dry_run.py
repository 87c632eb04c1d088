"""A dry run that failed: the operator at which it stopped, and the dimensions and axes around that operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import adjacent_summands, subterms
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch
from modulekg_widgets.engine.tracing.dataflow import DataNode, ModuleNode


@dataclass(frozen=True)
class FailedDryRun:
    """A candidate, the operator at which its sizes do not fit, and the dimensions around that operator."""

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
