"""Folded runs that are runs in a forward pass too: the same rule as in js/src/core/graph/flow/flow_items.ts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from modulekg_widgets.engine.views.flow_tables import PASS
from modulekg_widgets.engine.views.opening import folded_members

MOST_ALIKE = 12  # modules of one sort that are drawn side by side
COPIES = frozenset(
    {"to", "to_copy", "clone", "contiguous", "copy", "cast"}
)  # they change where or as what values stand
TURNS = frozenset({"transpose", "permute", "t", "movedim", "swapaxes"})  # looks in which dimensions change places
MOST_LINKED = 32  # the same, where some of them give to others: how they do is what is to be seen

NOTHING: frozenset[str] = frozenset()


def flow_folds(payload: dict[str, Any]) -> list[Any]:
    """The folds of a traced model whose members give to each other, one to the next, or which are very many."""
    runs = list(folded_members(payload))
    callers = _callers(payload, {node: run[0] for run in runs for node in run})
    kept = []
    for fold, run in zip(payload["folds"], runs, strict=True):
        caller = callers.get(run[0])
        if (len(run) > 2 if caller is None else caller.keeps(run)) or len(run) > MOST_LINKED:
            kept.append(fold)
    return kept


class _Caller:
    """A call in which modules of runs are called: what it calls, in order, and which of these reach which others."""

    def __init__(self, first: dict[int, int]) -> None:
        self.first = first  # of each member of a run
        self.order: list[int] = []  # nodes
        # of a node the others whose values reach it by the code of this call alone, and what that computes on the way
        self.reads: dict[int, dict[int, frozenset[str]]] = {}

    def keeps(self, run: list[int]) -> bool:
        """Whether a run is to be folded."""
        at = {node: place for place, node in reversed(list(enumerate(self.order)))}
        called = sorted((node for node in run if node in at), key=lambda node: at[node])
        if len(called) < 2:
            return True
        if all(a in self.reads.get(b, ()) for a, b in pairwise(called)) and self._is_even(called, at):
            return True
        members = set(called)
        is_apart = not any(self.reads.get(node, {}).keys() & members - {node} for node in called)
        return len(run) > (MOST_ALIKE if is_apart else MOST_LINKED)

    def _is_even(self, called: list[int], at: dict[int, int]) -> bool:
        """Whether the same is called and computed between all members: two norms around a module are no run."""
        gaps = [self.order[at[a] + 1 : at[b]] for a, b in pairwise(called)]
        code = [self.reads[b][a] for a, b in pairwise(called)]
        kinds = {(*(self.first.get(node, node) for node in gap), names) for gap, names in zip(gaps, code, strict=True)}
        is_between = bool(code[0]) or any(self.order.count(node) == 1 for node in gaps[0])
        return len(kinds) == 1 and (len(called) > 2 or not is_between)


def _callers(payload: dict[str, Any], first: dict[int, int]) -> dict[int, _Caller]:
    """Of each of the modules the first call that it was called in."""
    nodes, parents = payload["flow"]["calls"]["node"], payload["flow"]["calls"]["parent"]
    found: dict[int, _Caller] = {}
    by_call: dict[int, _Caller] = {}
    for node, parent in zip(nodes, parents, strict=True):
        if node in first and node not in found:
            found[node] = by_call.setdefault(parent, _Caller(first))
    for node, parent in zip(nodes, parents, strict=True):
        if parent in by_call:
            by_call[parent].order.append(node)
    above = [[(parent, call)] if parent in by_call else [] for call, parent in enumerate(parents)]
    for call, parent in enumerate(parents):  # the calls that are looked at around each, with the one in them
        if parent >= 0:
            above[call] += above[parent]
    _read(payload["flow"], by_call, above)
    return found


def _read(flow: dict[str, Any], by_call: dict[int, _Caller], above: list[list[tuple[int, int]]]) -> None:
    """Follow the values from one member to the next."""
    # (call that is looked at, value): the members that it comes from, and what the call's own code did with it since
    carried: dict[tuple[int, int], dict[int, frozenset[str]]] = {}
    nodes, steps = flow["calls"]["node"], flow["steps"]
    given: dict[int, list[int]] = {}
    for value, step in enumerate(flow["values"]["step"]):
        given.setdefault(step, []).append(value)
    views = frozenset(steps["view"])
    for step, (call, inputs) in enumerate(zip(steps["call"], steps["inputs"], strict=True)):
        around = [(call, -1)] if call in by_call else []
        for caller, inner in around + above[call]:
            sources = _joined(carried.get((caller, value), {}) for value in inputs)
            if inner >= 0:
                reads = by_call[caller].reads
                if sources:
                    reads[nodes[inner]] = _joined((reads.get(nodes[inner], {}), sources))
                sources = dict.fromkeys({nodes[inner]} & by_call[caller].first.keys(), NOTHING)
            elif sources:
                name = _computed(flow, step, views, inputs, given.get(step, []))
                sources = {node: names | name for node, names in sources.items()}
            if sources:
                carried.update(dict.fromkeys(((caller, value) for value in given.get(step, ())), sources))


def _joined(all_sources: Iterable[dict[int, frozenset[str]]]) -> dict[int, frozenset[str]]:
    joined: dict[int, frozenset[str]] = {}
    for sources in all_sources:
        for node, names in sources.items():
            joined[node] = joined.get(node, NOTHING) | names
    return joined


def _computed(
    flow: dict[str, Any], step: int, views: frozenset[int], inputs: list[int], outputs: list[int]
) -> frozenset[str]:
    """The name of a step that gives other values than it got, in another order or in another shape."""
    name = flow["steps"]["name"][step]
    if name == PASS:
        return NOTHING
    word = flow["names"][name].rpartition(":")[2].strip("_")
    shapes = flow["values"]["shape"]
    is_change = {shapes[value] for value in outputs} - {shapes[value] for value in inputs}
    computes = word in TURNS if step in views else word not in COPIES
    return frozenset({word}) if computes or is_change else NOTHING
