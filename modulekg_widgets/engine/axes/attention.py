"""Attention, in whatever way it is written: its projections, and the axes of heads and channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from modulekg_widgets.engine.axes.algebra import ATOM, PRODUCT, SUM, Term, atoms, find, flat
from modulekg_widgets.engine.axes.attention_search import REACH, Core, carries, core
from modulekg_widgets.engine.axes.call import Dims
from modulekg_widgets.engine.axes.layers import Layer, Layers, Sources
from modulekg_widgets.engine.operators.traits import MATRIX_PRODUCT
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """One attention: `operator` is the product with the values, or the fused operator.

    `query`, `key`, `value` and `output` are the layers that project into it and out of it: usually one each, the same
    one where projections are fused, none where there is no projection. The tuples of terms are axes.
    """

    operator: OperatorNode
    query: tuple[Layer, ...]
    key: tuple[Layer, ...]
    value: tuple[Layer, ...]
    output: tuple[Layer, ...]
    heads_axes: tuple[Term, ...]  # the key's heads, or all where every query head has a key of its own
    group_axes: tuple[Term, ...]  # the query heads that share a key
    head_dim_axes: tuple[Term, ...]
    rotary_axes: tuple[Term, ...]  # those of head_dim that are rotated: as two halves, or in pairs of neighbours
    value_heads_axes: tuple[Term, ...]  # where heads were mixed, so that the values have others than the queries
    value_dim_axes: tuple[Term, ...]
    head_dim: int
    kv_heads: int

    @property
    def name(self) -> str:
        """The product with the values, as `module:bmm_12`."""
        return self.operator.outputs[0].name

    @property
    def module(self) -> str:
        """The path of the module that called it."""
        return self.operator.module

    @property
    def heads(self) -> int:
        """How many heads the queries have."""
        return prod(atom.size for atom in (*self.heads_axes, *self.group_axes))

    @property
    def layers(self) -> list[Layer]:
        """The projections of q, k, v and out, each once."""
        return list(dict.fromkeys((*self.query, *self.key, *self.value, *self.output)))

    @property
    def projections(self) -> dict[str, list[str]]:
        """The names of the layers of q, k, v and out."""
        found = {"q": self.query, "k": self.key, "v": self.value, "out": self.output}
        return {part: [layer.name for layer in layers] for part, layers in found.items()}

    def __repr__(self) -> str:
        names = ", ".join(layer.name for layer in self.layers)
        shared = f" over {self.kv_heads} keys" if self.kv_heads != self.heads else ""
        return f"<Attention {self.name}: {self.heads} heads{shared} of {self.head_dim}, {names}>"


def find_attention(layers: Layers) -> list[Attention]:
    """Every attention of a model in the order of its operators; one pass, and a bounded search from each softmax."""
    cores = [found for operator in layers.inference.graph.operators if (found := core(layers, operator)) is not None]
    if not cores:
        return []
    sources = layers.sources()
    return [_attention(layers, sources, found) for found in cores]


def _attention(layers: Layers, sources: list[Sources | None], found: Core) -> Attention:
    q, k, v = (sources[node.index] or () for node in (found.query, found.key, found.value))
    dims = layers.inference.dims
    of_q, of_k, of_v = (_channels(layers_of) for layers_of in (q, k, v))
    summed = _of_terms(found.contracted)
    inside = [atom for atom in summed if atom in of_q or atom in of_k]
    heads = [atom for atom in _of_terms(dims(found.query)) if atom in (of_q or of_k) and atom not in summed]
    if not inside:
        # attention between channels: what is summed over are positions, and the rows are the channels of a head
        batch = _of_terms(found.batch)
        inside, heads = [a for a in heads if a not in batch], [a for a in heads if a in batch]
    own = _of_terms(dims(_before_expansion(layers, found.key)))
    kept = [atom for atom in heads if atom in own]
    values = [a for a in _of_terms(dims(found.value)) if a in of_v and a not in heads and a not in inside]
    apart = _of_terms(dims(found.operator.outputs[0])[:-2])
    return Attention(
        found.operator, q, k, v, _below(layers, found.operator.outputs[0]),
        heads_axes=tuple(kept or heads),
        group_axes=tuple(atom for atom in heads if atom not in kept) if kept else (),
        head_dim_axes=tuple(inside),
        rotary_axes=tuple(atom for atom in inside if atom in _rotated(found.contracted)),
        value_heads_axes=tuple(atom for atom in values if atom in apart),
        value_dim_axes=tuple(atom for atom in values if atom not in apart),
        head_dim=_channel_size(found.contracted, dims(found.query), inside),
        kv_heads=prod(atom.size for atom in kept),
    )  # fmt: skip


def _channel_size(contracted: Dims, query: Dims, inside: list[Term]) -> int:
    """The size of what is summed over, or in attention between channels that of the rows."""
    wanted = set(inside)
    if not wanted or any(atom in wanted for term in contracted for atom in atoms(term)):
        return prod(term.size for term in contracted)
    return prod(term.size for term in query if any(atom in wanted for atom in atoms(term)))


def _channels(found: Iterable[Layer]) -> set[Term]:
    return {atom for layer in found for atom in atoms(layer.out) if atom.size > 1}


def _of_terms(terms: Iterable[Term]) -> list[Term]:
    return list(dict.fromkeys(atom for term in terms for atom in atoms(term) if atom.size > 1))


def _rotated(terms: Iterable[Term]) -> set[Term]:
    """The axes that stand in a dimension twice, as two halves, and those of pairs of neighbours."""
    seen: set[Term] = set()
    found: set[Term] = set()
    for term in terms:
        for atom in atoms(term):
            if atom in seen:
                found.add(atom)
            seen.add(atom)
        for part in _parts(term):
            factors = flat(part)
            if part.kind == PRODUCT and len(factors) == 2 and factors[1].size == 2 and factors[1].frozen is not None:
                found.update(factor for factor in factors if factor.kind == ATOM)
    return found


def _parts(term: Term) -> list[Term]:
    term = find(term)
    return flat(term) if term.kind == SUM else [term]


def _before_expansion(layers: Layers, node: DataNode) -> DataNode:
    """What a key was made of that is repeated for several queries: a form of it that is as large or smaller."""
    for _ in range(REACH):
        operator = node.producer
        if operator is None or not carries(layers.traits(operator)):
            break
        above = next((n for n in operator.inputs if layers.is_activation(n) and n.numel() <= node.numel()), None)
        if above is None:
            break
        node = above
    return node


def _below(layers: Layers, context: DataNode) -> tuple[Layer, ...]:
    """The first layer that reads the context."""
    waiting, seen = deque([context]), {context.index}
    while waiting and len(seen) < REACH:
        node = waiting.popleft()
        for operator in node.consumers:
            own = layers.at.get(operator.index)
            if own and not own[0].depthwise:
                return tuple(own)
            traits = layers.traits(operator)
            if traits.is_softmax or (traits.layer == MATRIX_PRODUCT and not own):
                continue  # it is read by another attention before any layer
            for result in operator.outputs:
                if result.index not in seen:
                    seen.add(result.index)
                    waiting.append(result)
    return ()
