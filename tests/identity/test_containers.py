"""Containers that contain themselves, nest deep, or multiply by sharing."""

import sys
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, digest
from modulekg_widgets.engine.identity.encoding.python_values import Encoder


class Node:
    def __init__(self, name: int) -> None:
        self.name = name
        self.others: list[Any] = []


def loop(*values: Any) -> list[Any]:
    made: list[Any] = list(values)
    made.append(made)
    return made


def test_a_list_that_contains_itself() -> None:
    assert digest(x=loop(1)) == digest(x=loop(1))
    assert len({digest(x=loop(1)), digest(x=loop(2)), digest(x=loop()), digest(x=[1, [1]])}) == 4


def test_a_dict_that_contains_itself() -> None:
    def made(value: int) -> dict[str, Any]:
        inner: dict[str, Any] = {"value": value}
        inner["self"] = [inner]
        return inner

    assert digest(x=made(1)) == digest(x=made(1)) != digest(x=made(2))


def test_an_object_that_knows_its_module() -> None:
    def made(width: int) -> nn.Module:
        module = nn.Linear(width, 1)
        module.__dict__["owner"] = [module]
        return module

    assert mk.fingerprint(made(1)) == mk.fingerprint(made(1)) != mk.fingerprint(made(2))


def ring(size: int) -> list[Node]:
    nodes = [Node(i) for i in range(size)]
    for i, node in enumerate(nodes):
        node.others = [nodes[(i + 1) % size]]
    return nodes


@pytest.mark.parametrize("first", range(3))
def test_a_ring_is_encoded_alike_wherever_the_walk_enters_it(first: int) -> None:
    nodes = ring(3)
    encoder = Encoder()
    order = nodes[first:] + nodes[:first]
    together = {node.name: encoder.encode(node, "") for node in order}
    alone = {node.name: Encoder().encode(node, "") for node in ring(3)}
    assert together == alone


def test_a_set_of_objects_that_know_each_other_has_no_order() -> None:
    digests = {digest(x=set(ring(4))) for _ in range(20)}
    assert len(digests) == 1


@pytest.mark.parametrize("kind", [list, tuple])
def test_sharing_does_not_multiply(kind: type) -> None:
    def doubled(value: Any) -> Any:
        for _ in range(60):
            value = kind([value, value])
        return value

    assert digest(x=doubled(1)) == digest(x=doubled(1)) != digest(x=doubled(2))


def test_a_long_text_in_many_places_is_read_once() -> None:
    text = "y" * 5_000_000
    assert digest(x=[text] * 1000) == digest(x=[text] * 1000)


@pytest.mark.slow
def test_a_dense_graph_of_objects_ends() -> None:
    def clique() -> Node:
        nodes = [Node(i) for i in range(12)]
        for node in nodes:
            node.others = list(nodes)
        return nodes[0]

    found = mk.fingerprint(Holder(x=clique()))
    assert found.opaque_paths
    assert found == mk.fingerprint(Holder(x=clique()))


def test_ten_thousand_levels_are_opaque_below_some_depth() -> None:
    value: Any = []
    for _ in range(10_000):
        value = [value]
    found = mk.fingerprint(Holder(x=value))
    assert len(found.opaque_paths) == 1


def test_nesting_does_not_need_much_of_the_stack() -> None:
    value: Any = 1
    for _ in range(50):
        value = [{"k": (value,)}]

    def deep(levels: int) -> str:
        return digest(x=value) if not levels else deep(levels - 1)

    assert deep(sys.getrecursionlimit() // 4) == digest(x=value)


def test_twenty_thousand_entries() -> None:
    many = {f"word {i}": (i, [i]) for i in range(20_000)}
    assert digest(x=many) == digest(x=dict(reversed(many.items())))
