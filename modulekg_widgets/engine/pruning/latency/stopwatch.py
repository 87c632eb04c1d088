"""What is known of a traced model's time on its device: its modules, and cuts beside it."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.profiling.module_times import module_times
from modulekg_widgets.engine.profiling.profile import timed_on_copy
from modulekg_widgets.engine.profiling.timing import Comparison, TimedModel, check_real, in_turn
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.latency.measured import compared, timed_as_cut
from modulekg_widgets.engine.pruning.latency.operator_times import operator_times
from modulekg_widgets.engine.pruning.latency.size_times import times_by_size
from modulekg_widgets.engine.residuals.removal import NOTHING_REMOVED
from modulekg_widgets.engine.torch_runtime.state import registered_tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow

T = TypeVar("T")
QUICK, THOROUGH = 0.4, 1.0  # seconds of passes of each model
NANOSECONDS = 1e6  # of a millisecond: the unit of estimates, so that small models have no fractions

# what was measured on a device, by traced model: the times of modules, and cuts by the sizes that they leave
_known: weakref.WeakKeyDictionary[Dataflow, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


class Stopwatch:
    """Measures a traced model and its cuts; what is known of it on this device is not measured again."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.walked = walk(graph.model)
        check_real(self.walked, graph.call)
        self._uncut = Edits((), {}, graph.removal or NOTHING_REMOVED)
        own = [tensor for state in self.walked.states for tensor in registered_tensors(state).values()]
        # where and how it computes, which may have changed since the trace
        self._place = (torch.get_num_threads(), *dict.fromkeys((str(t.device), str(t.dtype)) for t in own))

    def whole(self) -> float:
        """Milliseconds of the uncut model."""
        return self._once(("whole",), lambda: self._uncut_runs(lambda timed: statistics.median(in_turn([timed])[0])))

    def times(self, counted: Dataflow) -> dict[int, float]:
        """Nanoseconds of the operators of a pass over the uncut model, by their numbers."""

        def measure() -> dict[int, float]:
            return operator_times(counted, {path: taken * NANOSECONDS for path, taken in self._exclusive().items()})

        return times_by_size(counted, self._place, measure)

    def slowest(self) -> list[tuple[str, float]]:
        """The modules by what they take without those in them, the slowest first."""
        exclusive = self._exclusive()
        return sorted(exclusive.items(), key=lambda entry: -entry[1])

    def of(self, edits: Edits, thorough: bool) -> Comparison:
        """The cut model beside the uncut one."""
        sizes = tuple((edit.names, edit.shape_after) for edit in edits.tensors)
        sizes += tuple((each.path,) for each in edits.removal.modules)
        seconds = THOROUGH if thorough else QUICK
        return self._once(
            ("cut", thorough, sizes),
            lambda: compared(self.graph.model, self._uncut, edits, self.graph.call, seconds=seconds),
        )

    def _exclusive(self) -> dict[str, float]:
        """Milliseconds of each module, by path, without what it calls."""
        found = self._once(
            ("modules",), lambda: self._uncut_runs(lambda timed: module_times([timed], seconds=QUICK)[0].exclusive)
        )
        return {self.walked.path(index): taken for index, taken in found.items()}

    def _uncut_runs(self, run: Callable[[TimedModel], T]) -> T:
        if self._uncut.removal:
            return timed_as_cut(self.graph.model, self._uncut, self.graph.call, run)
        return timed_on_copy(self.graph.model, self.walked, self.graph.call, run)

    def _once(self, key: tuple[Hashable, ...], measure: Any) -> Any:
        known = _known.setdefault(self.graph, {})
        key = (*self._place, *key)
        if key not in known:
            known[key] = measure()
        return known[key]
