"""What axes are for, where the data flow shows it: heads and channels of attention, the state of a recurrent cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.algebra import ATOM, PRODUCT, SUM, Term, atoms, find, flat
from modulekg_widgets.engine.axes.attention import Attention
from modulekg_widgets.engine.axes.chosen_indices import EXPERT_GROUPS, EXPERTS
from modulekg_widgets.engine.axes.layers import Layers, owner_and_attribute
from modulekg_widgets.engine.tracing.dataflow import DataNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.inference import Inference

GATES = (3, 4)  # of a GRU, of an LSTM
# what torch calls the weights that lead from a state back into its cell, by layer and direction
STATE_WEIGHT = re.compile(r"weight_hh_l(\d+)(_reverse)?(?![^_])")
Cell = tuple[int, str]  # the layer, and "reverse" or nothing


@dataclass(frozen=True, slots=True)
class Role:
    """What an axis is for, the module that it belongs to, and its name there; without a module: where it originates."""

    role: str
    home: str | None
    name: str


def ruled_roles(roles: Mapping[Term, str]) -> Iterator[tuple[Term, Role]]:
    """What the rules said; of a product the innermost factor has the role, and the others group it."""
    for term, text in roles.items():
        *outer, inner = flat(term)
        yield inner, Role(text, None, text)
        for group in outer if find(term).kind == PRODUCT else ():
            name = EXPERT_GROUPS if text == EXPERTS else text
            yield group, Role(name, None, name)


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


def states_of_layers(inference: Inference) -> dict[Term, Role]:
    """The states of recurrent layers, by torch's names of their weights: `lstm.layer1.reverse.hidden`.

    What all cells of a module share is `lstm.hidden`, what both directions of a layer share `lstm.layer1.hidden`.
    """
    cells: dict[str, list[Cell]] = {}  # of each module
    owners: dict[tuple[str, Term, str], list[Cell]] = {}
    for node in dict.fromkeys(inference.graph.state.values()):
        home, attribute = owner_and_attribute(node.label)
        found = STATE_WEIGHT.match(attribute)
        if found is not None and node.dim() == 2:
            cell = (int(found[1]), "reverse" if found[2] else "")
            cells.setdefault(home, []).append(cell)
            for atom, word in _states(inference, node):
                owners.setdefault((home, atom, word), []).append(cell)
    roles: dict[Term, Role] = {}
    for (home, atom, word), own in owners.items():
        place = [] if len(own) == len(cells[home]) > 1 else _place(own)
        roles.setdefault(atom, Role(word, home, ".".join((*place, word))))
    return roles


def _states(inference: Inference, weight: DataNode) -> Iterator[tuple[Term, str]]:
    """The hidden axes of a cell's weight (gates·hidden, given), and those of a projection that it gives instead."""
    out, given = (find(term) for term in inference.dims(weight))
    rows = flat(out) if out.kind == SUM else [out]
    if out is not given and not any(rows == rows[: len(rows) // count] * count for count in GATES):
        return  # as where the layer never ran: nothing says what its rows are
    hidden = dict.fromkeys(atoms(out))
    yield from ((atom, "hidden") for atom in hidden)
    yield from ((atom, "projection") for atom in dict.fromkeys(atoms(given)) if atom not in hidden)


def _place(cells: list[Cell]) -> list[str]:
    """The layer and direction of the first of the cells that have an axis; without a direction where both have it."""
    layer, direction = cells[0]
    return [f"layer{layer}", *([direction] if direction and (layer, "") not in cells else [])]
