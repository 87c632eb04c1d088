"""The axes as the browser gets them: names, sizes, why they are frozen, and where they run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.axes.algebra import Term, atoms
from modulekg_widgets.engine.axes.expression import written
from modulekg_widgets.engine.views.payload import text

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes
    from modulekg_widgets.engine.tracing.dataflow import DataNode

_AXIS = re.compile(r"\{(\d+)=\d+")


class AxisTables:
    """The axes by number, which is their place in `Axes`."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def along(self, node: DataNode) -> list[int]:
        """The numbers of the axes that run through a value."""
        terms = self._terms(node)
        found = (self.axes.rank(atom) for term in terms for atom in atoms(term) if atom in self.axes.places)
        return list(dict.fromkeys(found))

    def payload(self, tensors: Iterable[DataNode]) -> dict[str, Any]:
        """`dims` has, of each tensor and dimension, a place in `written`; there an axis is its number in braces."""
        reasons: dict[str, int] = {}
        expressions: dict[str, int] = {}
        every = list(self.axes)
        return {
            "name": [text(axis.name) for axis in every],
            "label": [text(self.axes.label(axis.term)) for axis in every],
            "size": [axis.size for axis in every],
            "role": [axis.role for axis in every],
            "frozen": [-1 if axis.frozen is None else reasons.setdefault(axis.frozen, len(reasons)) for axis in every],
            "reasons": [text(reason) for reason in reasons],
            "dims": [
                [expressions.setdefault(self._written(term), len(expressions)) for term in self._terms(node)]
                for node in tensors
            ],
            "written": list(expressions),
        }

    def _terms(self, node: DataNode) -> list[Term]:
        return self.axes.inference.dims(node)

    def _written(self, term: Term) -> str:
        def marked(atom: Term) -> str:
            return f"{{{self.axes.rank(atom)}" if atom in self.axes.places else "axis"

        return _AXIS.sub(r"{\1}", written(term, marked))
