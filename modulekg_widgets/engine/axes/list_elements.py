"""What belongs to an element of a list of modules that goes with an axis, as one expert of a router."""

from __future__ import annotations

from collections.abc import Iterator

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.torch_runtime.numbered import NumberedModules
from modulekg_widgets.engine.tracing.dataflow import DataNode


class ListElements:
    """The elements of all lists that go with axes."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.lists: dict[NumberedModules, Axis] = {
            each: axis for axis in axes if axis.lists and axis.frozen is None for each in axis.term.lists
        }
        self._shared_out = {each: self._is_shared_out(each, axis.size) for each, axis in self.lists.items()}

    def lists_around(self, path: str) -> list[NumberedModules]:
        """The lists in elements of which a module, or a tensor by its name, lies; they may lie in each other."""
        return [each for each in self.lists if each.split(path) is not None]

    def axes_of(self, path: str) -> list[Axis]:
        """The axes with an index of which a module or tensor goes."""
        return [self.lists[each] for each in self.lists_around(path)]

    def axes_of_cost(self, path: str) -> list[Axis]:
        """Those with an index of which what runs at this path costs nothing any more.

        Rows that are shared out among the elements go to others then.
        """
        return [self.lists[each] for each in self.lists_around(path) if not self._shared_out[each]]

    def alike(self) -> Iterator[tuple[Axis, list[DataNode]]]:
        """The tensors of one name in all elements of a list, in their order, and the axis that they go with."""
        state = self.axes.graph.state
        for each, axis in self.lists.items():
            inside = (each.split(name) for name in state)
            for name in [place[1] for place in inside if place is not None and place[0] == 0]:
                yield axis, [state[f"{each.path_of(at)}.{name}"] for at in range(axis.size)]

    def _is_shared_out(self, modules: NumberedModules, count: int) -> bool:
        """Whether elements get different numbers of rows, or some none."""
        calls = [self.axes.graph.modules[modules.path_of(at)].calls for at in range(count)]
        return len({tuple(node.shape for call in own for node in call.inputs) for own in calls}) > 1
