"""What is open when a graph is first shown: as much as a reader takes in at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import Any

AT_FIRST = 25  # nodes
DEEPEST = 4  # levels; a chain of single children says little when it is opened to its end


def first_opening(payload: dict[str, Any]) -> list[int]:
    """The containers to open, level by level from the top, while at most 25 nodes show."""
    rows = rows_of(payload)
    opened: list[int] = []
    shown = len(rows.get(0, ()))
    waiting = deque((child, 1) for child in rows.get(0, ()))
    while waiting:
        node, depth = waiting.popleft()
        inside = rows.get(node)
        if not inside or depth >= DEEPEST:
            continue
        if shown + len(inside) > AT_FIRST:
            if depth == 1:
                continue  # a wide stage does not keep the others shut
            break  # opening a later sibling instead would look like a choice
        opened.append(node)
        shown += len(inside)
        waiting.extend((child, depth + 1) for child in inside)
    return opened


def rows_of(payload: dict[str, Any]) -> dict[int, list[int]]:
    """For each container its children as drawn: one for a folded run, its first member."""
    hidden = {member for _, *others in folded_members(payload) for member in others}
    return {parent: [c for c in inside if c not in hidden] for parent, inside in _children(payload).items()}


def as_drawn(payload: dict[str, Any], nodes: Iterable[int]) -> set[int]:
    """`nodes` with every member of a folded run replaced by the first, which stands for it."""
    stands_for = {member: members[0] for members in folded_members(payload) for member in members}
    return {stands_for.get(node, node) for node in nodes}


def data_edges(payload: dict[str, Any], drawn: Container[int]) -> list[tuple[int, int, str]]:
    """The edges of a traced model between the nodes that are drawn, once each; -1 is the model's input or output."""
    parents = payload["nodes"]["parent"]
    stands_for = {member: members[0] for members in folded_members(payload) for member in members}

    def visible(node: int) -> int:
        while node > 0 and node not in drawn:
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
    """Whether one of two nodes contains the other."""
    low, high = max(one, other), min(one, other)
    while low > high:
        low = parents[low]
    return low == high >= 0


def output_shapes(payload: dict[str, Any]) -> dict[int, str]:
    """Of each module that a forward pass called what it gave first, as `1×64×56×56`."""
    flow = payload["flow"]
    found: dict[int, str] = {}
    if flow:
        for node, outputs in zip(flow["calls"]["node"], flow["calls"]["outputs"], strict=True):
            for value in outputs[:1]:
                found.setdefault(node, "×".join(map(str, flow["shapes"][flow["values"]["shape"][value]])))
    return found


def _children(payload: dict[str, Any]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(payload["nodes"]["parent"]):
        if parent >= 0:
            children.setdefault(parent, []).append(node)
    return children


def folded_members(payload: dict[str, Any]) -> Iterator[list[int]]:
    """The members of each folded run."""
    children = _children(payload)
    place = {node: position for inside in children.values() for position, node in enumerate(inside)}
    for first, count, _, _ in payload["folds"]:
        yield children[payload["nodes"]["parent"][first]][place[first] : place[first] + count]
