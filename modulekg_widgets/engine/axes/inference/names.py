"""Names of axes, from their origin and role, as `encoder.self_attention.heads`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.inference.attention import Attention, find_attention
from modulekg_widgets.engine.axes.inference.layers import CONVOLUTION, EMBEDDING, Layer, Layers, owner_and_attribute
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, SUM, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.index_semantics import EXPERT_GROUPS, EXPERTS
from modulekg_widgets.engine.tracing.dataflow import DataNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.inference.inference import Inference


# -------------------- Roles of axes: heads and channels of attention, the hidden state of recurrent cells


GATES = (3, 4)  # of a GRU, of an LSTM
# what torch calls the weights that lead from a state back into its cell, by layer and direction
STATE_WEIGHT = re.compile(r"weight_hh_l(\d+)(_reverse)?(?![^_])")
Cell = tuple[int, str]  # the layer, and "reverse" or nothing


@dataclass(frozen=True, slots=True)
class Role:
    """The role of an axis: its kind, the path of its module (or None for its origin), and its name there."""

    role: str
    home: str | None
    name: str


def roles_from_rules(roles: Mapping[Term, str]) -> Iterator[tuple[Term, Role]]:
    """Yields the roles that the rules set; of a product, the innermost factor has the role."""
    for term, text in roles.items():
        *outer, inner = flattened_parts(term)
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
    """Yields the role of the residual stream: the projections read it, and the output is added to it."""
    for layer in dict.fromkeys((*attention.query, *attention.key, *attention.value)):
        stream = find(layer.into)
        if stream.kind == ATOM and stream.size > 1 and any(find(out.out) is stream for out in attention.output):
            yield stream, Role("hidden", None, "hidden")


def gated_hidden_roles(inference: Inference, layers: Layers) -> dict[Term, Role]:
    """The state of a recurrent cell: its weight leads from the state to three or four gates as large as the state."""
    roles: dict[Term, Role] = {}
    for layer in layers:
        dims = inference.dims(layer.weight)
        if len(dims) == 2 and find(dims[0]).kind == SUM:
            gates, state = flattened_parts(dims[0]), find(dims[1])
            if len(gates) in GATES and set(gates) == {state}:
                roles.setdefault(state, Role("hidden", owner_and_attribute(layer.label)[0], "hidden"))
    return roles


def recurrent_state_roles(inference: Inference) -> dict[Term, Role]:
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
    """Yields the hidden axes of a recurrent weight (gates·hidden, input), and those of its projection."""
    out, given = (find(term) for term in inference.dims(weight))
    rows = flattened_parts(out) if out.kind == SUM else [out]
    if out is not given and not any(rows == rows[: len(rows) // count] * count for count in GATES):
        return  # as where the layer never ran: nothing says what its rows are
    hidden = dict.fromkeys(atoms(out))
    yield from ((atom, "hidden") for atom in hidden)
    yield from ((atom, "projection") for atom in dict.fromkeys(atoms(given)) if atom not in hidden)


def _place(cells: list[Cell]) -> list[str]:
    """The layer and direction of the first of the cells that have an axis; without a direction where both have it."""
    layer, direction = cells[0]
    return [f"layer{layer}", *([direction] if direction and (layer, "") not in cells else [])]


# ----------------------------------------


TensorDim = tuple["DataNode", int]
TensorDims = dict[Term, list[TensorDim]]
KERNELS = {1: ("kernel",), 2: ("kernel_h", "kernel_w"), 3: ("kernel_d", "kernel_h", "kernel_w")}
_PRODUCES, _READS, _SEVERAL, _ONE = range(4)  # where an axis is best named after: what makes it comes first


def axis_names(inference: Inference, places: TensorDims) -> tuple[dict[Term, str], dict[str, Term]]:
    """A name for every atom, no two alike: `layer1.0.conv1.out`, `encoder.self_attention.heads`.

    And the atoms by names that they once had, which stand in plans and programs of then. The roles that the data flow
    shows are written to `inference.roles`.
    """
    layers = Layers(inference)
    attention = attention_roles(find_attention(layers))
    ruled = dict(roles_from_rules(inference.roles))  # a rule knows best
    once = {**gated_hidden_roles(inference, layers), **attention, **ruled}
    states = recurrent_state_roles(inference)
    roles = {**once, **states, **attention, **ruled}
    inference.roles = {atom: role.role for atom, role in roles.items()}
    dimensions = _dimensions(inference, layers)
    names = _names(inference, places, roles, dimensions)
    now = set(names.values())
    before = _names(inference, places, once, dimensions) if states else {}
    return names, {name: atom for atom, name in before.items() if name not in now}


def _names(
    inference: Inference,
    places: TensorDims,
    roles: dict[Term, Role],
    dimensions: dict[tuple[int, int], DimensionName],
) -> dict[Term, str]:
    names: dict[Term, str] = {}
    taken: set[str] = set()
    for atom, at in places.items():
        names[atom] = _unique(_name(inference, atom, at, roles.get(atom), dimensions), taken)
    return names


def short_name(name: str) -> str:
    """The last word of an axis's name, with the one before where it is a number: `conv1.out.0` as `out.0`."""
    head, _, last = name.rpartition(".")
    return f"{head.rpartition('.')[2]}.{last}" if last.isdecimal() and head else last


def _unique(name: str, taken: set[str]) -> str:
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


# ------------------------------------------------------------------ dimensions

DimensionName = tuple[str, str, int]  # the layer's name, the dimension's name, and how well an axis is named after it


def _dimensions(inference: Inference, layers: Layers) -> dict[tuple[int, int], DimensionName]:
    """Returns the names of the weights' dimensions; of a tied weight, the first layer names them."""
    found: dict[tuple[int, int], DimensionName] = {}
    for layer in layers:
        for at, (word, rank) in enumerate(_words(inference, layer)):
            found.setdefault((layer.weight.index, at), (layer.name, word, rank))
    return found


def _words(inference: Inference, layer: Layer) -> list[tuple[str, int]]:
    if layer.kind == EMBEDDING:
        return [("vocabulary", _READS), ("dim", _PRODUCES)]
    dims = inference.dims(layer.weight)
    if layer.kind == CONVOLUTION and len(dims) - 2 in KERNELS:
        kernel = [(word, _READS) for word in KERNELS[len(dims) - 2]]
        sides = [("out", _PRODUCES), ("in", _READS)]
        return [*(sides if find(dims[0]) is not find(layer.into) else sides[::-1]), *kernel]
    return [_side(layer, term, f"dim{at}") for at, term in enumerate(dims)]


def _side(layer: Layer, term: Term, else_: str) -> tuple[str, int]:
    if find(term) is find(layer.out):
        return "out", _PRODUCES
    return ("in", _READS) if find(term) is find(layer.into) else (else_, _SEVERAL)


# ----------------------------------------------------------------------- names


def _name(
    inference: Inference,
    atom: Term,
    at: list[TensorDim],
    role: Role | None,
    dimensions: dict[tuple[int, int], DimensionName],
) -> str:
    if role is not None and role.home is not None:
        return _joined(role.home, role.name)
    node, dim = _origin(inference, atom, at, dimensions)
    path, word, _ = _dimension(node, dim, dimensions)
    if role is not None:
        return _joined(path, role.name)
    parts = list(dict.fromkeys(part for part in atoms(inference.dims(node)[dim]) if part.size > 1))
    return _joined(path, word if len(parts) == 1 else f"{word}.{parts.index(atom)}")


def _joined(path: str, word: str) -> str:
    return f"{path}.{word}" if path else word


def _origin(
    inference: Inference, atom: Term, at: list[TensorDim], dimensions: dict[tuple[int, int], DimensionName]
) -> TensorDim:
    """The dimension that makes the axis before one that reads it, alone in its dimension before a part of it."""
    best, badness = at[0], (_ONE + 1, True)
    for node, dim in at:
        known = dimensions.get((node.index, dim))
        rank = known[2] if known is not None else _ONE if node.dim() == 1 else _SEVERAL
        if rank <= badness[0]:
            found = rank, find(inference.dims(node)[dim]) is not atom
            if found < badness:
                best, badness = (node, dim), found
                if found == (_PRODUCES, False):
                    break
    return best


def _dimension(node: DataNode, dim: int, dimensions: dict[tuple[int, int], DimensionName]) -> DimensionName:
    known = dimensions.get((node.index, dim))
    if known is not None:
        return known
    owner, attribute = owner_and_attribute(node.label)
    return (owner, attribute, _ONE) if node.dim() == 1 else (_joined(owner, attribute), f"dim{dim}", _SEVERAL)
