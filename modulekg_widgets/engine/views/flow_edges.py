"""Data edges between modules: what one gave and another took, through the code between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from modulekg_widgets.engine.views.flow_tables import FlowTables

OUTSIDE = -1  # the model's input as a source, its output as a target
MOST_SOURCES = 64  # of one value; a model that adds up all that it ever computed has as many as modules

Key = TypeVar("Key")
Sources = dict[tuple[int, int], None]  # (node of the hierarchy, value that it gave), in order


def module_edges(tables: FlowTables) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(source, target, shape of what the source gave) once each, by node of the hierarchy.

    Modules in which others ran are not ends themselves: their own code leads on to what it reads. Only what such code
    makes of the outside alone comes from the container, and only what leaves it unread by its modules goes to it.
    """
    flow = _ModuleFlow(tables)
    seen: set[tuple[int, int, tuple[int, ...]]] = set()
    for value, target in flow.uses():
        for source, given in flow.sources(*value):
            edge = (source, target, tables.nodes[given].shape)
            if source != target and edge not in seen:
                seen.add(edge)
                yield edge


class _ModuleFlow:
    def __init__(self, tables: FlowTables) -> None:
        self.tables = tables
        self.tree = tables.tree
        self.given = set(tables.model_inputs)
        # of what a container's own code made: the modules in it, and the values from around it, that it comes from
        self.mixed: dict[int, tuple[Sources, dict[int, None]]] = {}
        made: dict[int, list[int]] = {}
        for value, step in enumerate(tables.made_by):
            made.setdefault(step, []).append(value)
        for at, step in enumerate(tables.steps):
            if not self.tree.is_leaf(step.call):
                mixture = self._mixture(step.inputs, step.call)
                self.mixed.update((value, mixture) for value in made.get(at, ()))

    def uses(self) -> Iterator[tuple[tuple[int, int], int]]:
        """((value, call that reads it), node that it goes to) of all that is read by something else than it made."""
        tables, tree = self.tables, self.tree
        readers: dict[int, list[int]] = {}
        for step in tables.steps:
            if tree.is_leaf(step.call):
                for value in step.inputs:
                    for origin in (value, *(self.mixed[value][1] if value in self.mixed else ())):
                        readers.setdefault(origin, []).append(step.call)
                    yield (value, step.call), tree.calls[step.call].node
        for call in range(1, len(tree.calls)):
            for value in dict.fromkeys(tables.outputs[call]):
                if value in self.mixed and self._maker(value) == call:
                    for outer in self.mixed[value][1]:
                        if not any(tree.is_within(reader, call) for reader in readers.get(outer, ())):
                            yield (outer, tree.calls[call].parent), tree.calls[call].node
        for value in dict.fromkeys(tables.model_outputs):
            yield (value, 0), OUTSIDE

    def sources(self, value: int, reader: int) -> Sources:
        """The modules that a value comes from, seen from the call that reads it."""
        maker = self._maker(value)
        if maker is None:
            return {(OUTSIDE, value): None} if value in self.given else {}
        own: Sources = {(self.tree.calls[maker].node, value): None}
        if value not in self.mixed:
            return own
        inner, outer = self.mixed[value]
        if not self.tree.is_within(reader, maker):
            return inner or own
        return _joined([inner, *(self.sources(other, maker) for other in outer)])

    def _mixture(self, inputs: Iterable[int], call: int) -> tuple[Sources, dict[int, None]]:
        inner: list[Sources] = []
        outer: list[dict[int, None]] = []
        for value in inputs:
            maker = self._maker(value)
            if maker is None or not self.tree.is_within(maker, call):
                outer.append({value: None})
            elif maker == call and value in self.mixed:
                inner.append(self.mixed[value][0])
                outer.append(self.mixed[value][1])
            else:
                inner.append(self.sources(value, call))
        return _joined(inner), _joined(outer)

    def _maker(self, value: int) -> int | None:
        step = self.tables.made_by[value]
        return None if step < 0 else self.tables.steps[step].call


def _joined(several: Iterable[dict[Key, None]]) -> dict[Key, None]:
    """All of them; of very many the latest."""
    joined: dict[Key, None] = {}
    for sources in several:
        joined.update(sources)
    return dict(list(joined.items())[-MOST_SOURCES:]) if len(joined) > MOST_SOURCES else joined
