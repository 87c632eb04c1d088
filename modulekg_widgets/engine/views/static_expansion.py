"""Expansion of a model graph where no canvas has been measured yet, and the nodes and edges that are visible then."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

from modulekg_widgets.engine.views.flow_tables import PASS_THROUGH
from modulekg_widgets.engine.views.schema import Fold, Payload

MAX_INITIAL_NODES = 25  # nodes
MAX_DEPTH = 4  # levels; a chain of single children says little when it is opened to its end


def static_expansion(payload: Payload) -> list[int]:
    """Returns the containers to expand, level by level, while at most 25 nodes are visible."""
    rows = visible_children(payload)
    opened: list[int] = []
    shown = len(rows.get(0, ()))
    waiting = deque((child, 1) for child in rows.get(0, ()))
    while waiting:
        node, depth = waiting.popleft()
        inside = rows.get(node)
        if not inside or depth >= MAX_DEPTH:
            continue
        if shown + len(inside) > MAX_INITIAL_NODES:
            if depth == 1:
                continue  # a wide stage does not keep the others shut
            break  # opening a later sibling instead would look like a choice
        opened.append(node)
        shown += len(inside)
        waiting.extend((child, depth + 1) for child in inside)
    return opened


def visible_children(payload: Payload) -> dict[int, list[int]]:
    """Returns the visible children of each container: of a folded run the first member alone."""
    hidden = {member for _, *others in folded_members(payload) for member in others}
    return {parent: [c for c in inside if c not in hidden] for parent, inside in _children(payload).items()}


def fold_representatives(payload: Payload, nodes: Iterable[int]) -> set[int]:
    """Returns `nodes` with members of a folded run replaced by its first member."""
    stands_for = {member: members[0] for members in folded_members(payload) for member in members}
    return {stands_for.get(node, node) for node in nodes}


def data_edges(payload: Payload, visible_nodes: Container[int]) -> list[tuple[int, int, str]]:
    """Returns the distinct data edges between visible nodes; -1 is the input or output of the model."""
    parents = payload["nodes"]["parent"]
    stands_for = {member: members[0] for members in folded_members(payload) for member in members}

    def visible(node: int) -> int:
        while node > 0 and node not in visible_nodes:
            first = stands_for.get(node, node)
            node = parents[node] if first == node else first
        return node

    found: dict[tuple[int, int], str] = {}
    for source, target, shape in payload["edges"]:
        ends = visible(source), visible(target)
        if ends[0] != ends[1] and 0 not in ends and not _is_around(parents, *ends):
            found.setdefault(ends, shape)
    return [(source, target, shape) for (source, target), shape in found.items()]


def _is_around(parents: list[int], one: int, other: int) -> bool:
    """True if one of two nodes contains the other."""
    low, high = max(one, other), min(one, other)
    while low > high:
        low = parents[low]
    return low == high >= 0


def output_shapes(payload: Payload) -> dict[int, str]:
    """Returns the first output shape of each called module, as `1×64×56×56`."""
    flow = payload["flow"]
    found: dict[int, str] = {}
    if flow:
        for node, outputs in zip(flow["calls"]["node"], flow["calls"]["outputs"], strict=True):
            for value in outputs[:1]:
                found.setdefault(node, "×".join(map(str, flow["shapes"][flow["values"]["shape"][value]])))
    return found


def _children(payload: Payload) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(payload["nodes"]["parent"]):
        if parent >= 0:
            children.setdefault(parent, []).append(node)
    return children


def folded_members(payload: Payload) -> Iterator[list[int]]:
    """Yields the members of each folded run."""
    children = _children(payload)
    place = {node: position for inside in children.values() for position, node in enumerate(inside)}
    for first, count, _, _ in payload["folds"]:
        yield children[payload["nodes"]["parent"][first]][place[first] : place[first] + count]


# -------------------- Folding of repeated siblings in a traced model: only runs that are runs in the data flow, too


MAX_PARALLEL = 12  # modules of one sort that are drawn side by side
COPIES = frozenset(
    {"to", "to_copy", "clone", "contiguous", "copy", "cast"}
)  # they change where or as what values stand
TRANSPOSES = frozenset({"transpose", "permute", "t", "movedim", "swapaxes"})  # looks in which dimensions change places
MAX_LINKED = 32  # the same, where some of them give to others: how they do is what is to be seen

NO_NAMES: frozenset[str] = frozenset()


def flow_folds(payload: Payload) -> list[Fold]:
    """Returns the folds whose members feed each other in a chain, or that are very many."""
    runs = list(folded_members(payload))
    callers = _callers(payload, {node: run[0] for run in runs for node in run})
    kept = []
    for fold, run in zip(payload["folds"], runs, strict=True):
        caller = callers.get(run[0])
        if (len(run) > 2 if caller is None else caller.folds(run)) or len(run) > MAX_LINKED:
            kept.append(fold)
    return kept


class _Caller:
    """A call around members of runs: its calls in order, and the members whose values reach others."""

    def __init__(self, first: dict[int, int]) -> None:
        self.first = first  # of each member of a run
        self.order: list[int] = []  # nodes
        # of a node the others whose values reach it by the code of this call alone, and what that computes on the way
        self.reads: dict[int, dict[int, frozenset[str]]] = {}

    def folds(self, run: list[int]) -> bool:
        """True if a run is to be folded."""
        at = {node: place for place, node in reversed(list(enumerate(self.order)))}
        called = sorted((node for node in run if node in at), key=lambda node: at[node])
        if len(called) < 2:
            return True
        if all(a in self.reads.get(b, ()) for a, b in pairwise(called)) and self._is_uniform(called, at):
            return True
        members = set(called)
        is_apart = not any(self.reads.get(node, {}).keys() & members - {node} for node in called)
        return len(run) > (MAX_PARALLEL if is_apart else MAX_LINKED)

    def _is_uniform(self, called: list[int], at: dict[int, int]) -> bool:
        """True if the calls and operators between all members are the same."""
        gaps = [self.order[at[a] + 1 : at[b]] for a, b in pairwise(called)]
        code = [self.reads[b][a] for a, b in pairwise(called)]
        kinds = {(*(self.first.get(node, node) for node in gap), names) for gap, names in zip(gaps, code, strict=True)}
        is_between = bool(code[0]) or any(self.order.count(node) == 1 for node in gaps[0])
        return len(kinds) == 1 and (len(called) > 2 or not is_between)


def _callers(payload: Payload, first: dict[int, int]) -> dict[int, _Caller]:
    """Returns the caller of each of these modules, by its first call."""
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
    _follow_values(payload["flow"], by_call, above)
    return found


def _follow_values(flow: Payload, by_call: dict[int, _Caller], above: list[list[tuple[int, int]]]) -> None:
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
            sources = _union(carried.get((caller, value), {}) for value in inputs)
            if inner >= 0:
                reads = by_call[caller].reads
                if sources:
                    reads[nodes[inner]] = _union((reads.get(nodes[inner], {}), sources))
                sources = dict.fromkeys({nodes[inner]} & by_call[caller].first.keys(), NO_NAMES)
            elif sources:
                name = _computed_name(flow, step, views, inputs, given.get(step, []))
                sources = {node: names | name for node, names in sources.items()}
            if sources:
                carried.update(dict.fromkeys(((caller, value) for value in given.get(step, ())), sources))


def _union(all_sources: Iterable[dict[int, frozenset[str]]]) -> dict[int, frozenset[str]]:
    joined: dict[int, frozenset[str]] = {}
    for sources in all_sources:
        for node, names in sources.items():
            joined[node] = joined.get(node, NO_NAMES) | names
    return joined


def _computed_name(
    flow: Payload, step: int, views: frozenset[int], inputs: list[int], outputs: list[int]
) -> frozenset[str]:
    """The name of a step that changes values, their order or shape; empty for copies and plain views."""
    name = flow["steps"]["name"][step]
    if name == PASS_THROUGH:
        return NO_NAMES
    word = flow["names"][name].rpartition(":")[2].strip("_")
    shapes = flow["values"]["shape"]
    is_change = {shapes[value] for value in outputs} - {shapes[value] for value in inputs}
    computes = word in TRANSPOSES if step in views else word not in COPIES
    return frozenset({word}) if computes or is_change else NO_NAMES
