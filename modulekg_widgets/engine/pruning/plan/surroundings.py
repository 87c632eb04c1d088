"""The part of a pass around one operator: calls that ended before the current module was called need not run again."""

from __future__ import annotations

from typing import NamedTuple

from modulekg_widgets.engine.tracing.dataflow import Dataflow, ModuleCall
from modulekg_widgets.engine.tracing.trace import REAL

BEHIND = 40  # operators that run behind the one in question: what an answer changes shows soon
WORTHWHILE = 60  # operators that need not run: to spare fewer costs more than it saves


class Surroundings(NamedTuple):
    """What runs of a pass: from the call of a module on, to an operator behind it."""

    calls: dict[tuple[str, int], ModuleCall]  # by path and first operator
    begin: int
    until: int

    def finished(self, path: str, at: int) -> ModuleCall | None:
        """The recorded call of a module that begins with an operator and has ended before these surroundings."""
        call = self.calls.get((path, at))
        return None if call is None or call.end is None or call.end > self.begin else call


class Neighbourhood:
    """The surroundings of the operators of one recorded pass."""

    def __init__(self, graph: Dataflow) -> None:
        self.graph = graph
        self.calls: dict[tuple[str, int], ModuleCall] = {}
        self.untrue: set[int] = set()  # operators around which less than all shows something else
        for node in dict.fromkeys(graph.modules.values()):
            for call in node.calls:
                # a call that is no plain structure cannot be given, and one without operators costs nothing
                if call.result is not None and call.end is not None and call.end > call.start:
                    self.calls.setdefault((call.path, call.start), call)

    def of(self, position: int) -> Surroundings | None:
        """What runs to look at an operator; None where all has to run or hardly anything is spared."""
        if self.graph.traced_on == REAL or position >= len(self.graph.operators) or position in self.untrue:
            return None
        begin = 0
        module = self.graph.modules.get(self.graph.operators[position].module)
        for call in () if module is None else module.calls:
            if call.start <= position and (call.end is None or position < call.end):
                begin = max(begin, call.start)
        return Surroundings(self.calls, begin, position + BEHIND) if begin >= WORTHWHILE else None
