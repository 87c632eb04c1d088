"""What axes are for, where the data flow shows it: heads and channels of attention, the state of a recurrent cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.algebra import ATOM, SUM, Term, atoms, find, flat
from modulekg_widgets.engine.axes.attention import Attention
from modulekg_widgets.engine.axes.layers import Layers, owner_and_attribute

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.inference import Inference

GATES = (3, 4)  # of a GRU, of an LSTM


@dataclass(frozen=True, slots=True)
class Role:
    """What an axis is for, the module that it belongs to, and its name there; without a module: where it originates."""

    role: str
    home: str | None
    name: str


def attention_roles(every: Iterable[Attention]) -> dict[Term, Role]:
    """The roles of all axes that attention explains; the first attention that has an axis names it."""
    roles: dict[Term, Role] = {}
    for attention in every:
        for atom, role in _roles(attention):
            roles.setdefault(atom, role)
    return roles


def _roles(attention: Attention) -> Iterator[tuple[Term, Role]]:
    home = attention.module
    grouped = bool(attention.group_axes)
    for atom in attention.heads_axes:
        name = "kv_heads" if grouped else "heads"
        yield atom, Role(name, home, name)
    for atom in attention.group_axes:
        yield atom, Role("group", home, "group")
    for atom in attention.head_dim_axes:
        name = "rot" if atom in attention.rotary_axes else "head_dim"
        name = "pair" if name == "rot" and atom.size == 2 and atom.frozen is not None else name
        yield atom, Role(name, home, name)
    for atom in attention.value_heads_axes:
        yield atom, Role("heads", home, "v_heads")
    for atom in attention.value_dim_axes:
        yield atom, Role("head_dim", home, "v_head_dim")
    explained = {*attention.heads_axes, *attention.group_axes, *attention.head_dim_axes, *attention.value_dim_axes}
    explained.update(attention.value_heads_axes)
    yield from _fused(attention, explained)
    yield from _stream(attention)


def _fused(attention: Attention, explained: set[Term]) -> Iterator[tuple[Term, Role]]:
    """The factor that stacks the projections of one layer."""
    for layer in dict.fromkeys((*attention.key, *attention.value)):
        parts = "".join(
            letter
            for letter, found in (("q", attention.query), ("k", attention.key), ("v", attention.value))
            if layer in found
        )
        for atom in atoms(layer.out):
            if atom not in explained and atom.size == len(parts) > 1 and atom.frozen is not None:
                yield atom, Role(parts, attention.module, parts)


def _stream(attention: Attention) -> Iterator[tuple[Term, Role]]:
    """What the projections read and the output goes back to."""
    for layer in dict.fromkeys((*attention.query, *attention.key, *attention.value)):
        stream = find(layer.into)
        if stream.kind == ATOM and stream.size > 1 and any(find(out.out) is stream for out in attention.output):
            yield stream, Role("hidden", None, "hidden")


def hidden_of_gates(inference: Inference, layers: Layers) -> dict[Term, Role]:
    """The state of a recurrent cell: its weight leads from the state to three or four gates as large as the state."""
    roles: dict[Term, Role] = {}
    for layer in layers:
        dims = inference.dims(layer.weight)
        if len(dims) == 2 and find(dims[0]).kind == SUM:
            gates, state = flat(dims[0]), find(dims[1])
            if len(gates) in GATES and set(gates) == {state}:
                roles.setdefault(state, Role("hidden", owner_and_attribute(layer.label)[0], "hidden"))
    return roles
