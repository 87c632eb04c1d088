"""Readable names of axes, from where they originate and what they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modulekg_widgets.engine.axes.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.attention import find_attention
from modulekg_widgets.engine.axes.layers import CONVOLUTION, EMBEDDING, Layer, Layers, owner_and_attribute
from modulekg_widgets.engine.axes.roles import Role, attention_roles, hidden_of_gates, ruled_roles, states_of_layers

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.inference import Inference
    from modulekg_widgets.engine.tracing.dataflow import DataNode

MemberPlace = tuple["DataNode", int]
Places = dict[Term, list[MemberPlace]]
KERNELS = {1: ("kernel",), 2: ("kernel_h", "kernel_w"), 3: ("kernel_d", "kernel_h", "kernel_w")}
_PRODUCES, _READS, _SEVERAL, _ONE = range(4)  # where an axis is best named after: what makes it comes first


def axis_names(inference: Inference, places: Places) -> tuple[dict[Term, str], dict[str, Term]]:
    """A name for every atom, no two alike: `layer1.0.conv1.out`, `encoder.self_attention.heads`.

    And the atoms by names that they once had, which stand in plans and programs of then. The roles that the data flow
    shows are written to `inference.roles`.
    """
    layers = Layers(inference)
    attention = attention_roles(find_attention(layers))
    ruled = dict(ruled_roles(inference.roles))  # a rule knows best
    once = {**hidden_of_gates(inference, layers), **attention, **ruled}
    states = states_of_layers(inference)
    roles = {**once, **states, **attention, **ruled}
    inference.roles = {atom: role.role for atom, role in roles.items()}
    dimensions = _dimensions(inference, layers)
    names = _names(inference, places, roles, dimensions)
    now = set(names.values())
    before = _names(inference, places, once, dimensions) if states else {}
    return names, {name: atom for atom, name in before.items() if name not in now}


def _names(
    inference: Inference,
    places: Places,
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
    """What the dimensions of the weights are to their layers; the first layer of a tied weight counts."""
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
    at: list[MemberPlace],
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
    inference: Inference, atom: Term, at: list[MemberPlace], dimensions: dict[tuple[int, int], DimensionName]
) -> MemberPlace:
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
