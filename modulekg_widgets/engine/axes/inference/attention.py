"""The attentions of a model: their projections, and the axes of heads and channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from modulekg_widgets.engine.axes.inference.inference import find_rule
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers, Sources
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, SUM, Algebra, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.call import Call, Dims
from modulekg_widgets.engine.operators.traits import CONVOLUTION, MATRIX_PRODUCT, Traits
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

# -------------------- The search for attention in the data flow: softmax(QK)V written out, or one fused operator


MAX_VISITED = 64  # values looked at on the way between a softmax and its products: bounds the cost per attention
EXPONENTIALS = ("exp", "exp2", "expm1")


@dataclass(slots=True)
class AttentionMatch:
    """The operators of an attention: queries, keys and values."""

    operator: OperatorNode
    query: DataNode
    key: DataNode
    value: DataNode
    contracted: Dims  # what q and k are summed over
    batch: Dims  # what every product runs over


@dataclass(slots=True)
class _Scores:
    """A product of two activations, with the dimensions that come from only one of the factors."""

    result: DataNode
    left: DataNode
    right: DataNode
    contracted: Dims
    batch: Dims
    left_dims: set[int]
    right_dims: set[int]


def passes_scores(traits: Traits) -> bool:
    """True if attention scores pass through operators with these traits: they move elements or act elementwise."""
    return traits.moves or traits.pointwise


def match_attention(layers: Layers, operator: OperatorNode) -> AttentionMatch | None:
    if layers.traits(operator).is_attention and operator.outputs:
        call = layers.call(operator)
        query, key, value = (call[name] for name in ("query", "key", "value"))
        *batch, _, contracted = layers.inference.dims(query)
        return AttentionMatch(operator, query, key, value, [contracted], batch)
    normalised = _softmax(layers, operator)
    weighted = _weighted_sum(layers, operator.outputs[0]) if normalised is not None else None
    if normalised is None or weighted is None:
        return None
    found = _scores(layers, normalised[0])
    if found is None:
        return None
    scores, path = found
    query, key = scores.left, scores.right
    if _key_dim(layers, scores, path, *normalised) in scores.left_dims:
        query, key = key, query
    return AttentionMatch(weighted[0], query, key, weighted[1], scores.contracted, scores.batch)


def _softmax(layers: Layers, operator: OperatorNode) -> tuple[DataNode, int] | None:
    """Returns input and dimension of a softmax, also of one written as `e / e.sum(dim)` with `e = x.exp()`."""
    if not operator.outputs:
        return None
    if layers.traits(operator).is_softmax:
        call = layers.call(operator)
        node, dim = call.inputs[0], call.get("dim")
        return node, (dim if isinstance(dim, int) else -1) % max(node.dim(), 1)
    if layers.name(operator) != "div" or len(operator.inputs) != 2:
        return None
    node, below = layers.call(operator).inputs
    made = below.producer
    if made is not None and len(made.inputs) == 1 and layers.traits(made).pointwise:
        below = made.inputs[0]  # a small number added, or a clamp
    summed, over = below.producer, node.producer
    if summed is None or over is None or layers.name(summed) != "sum" or layers.name(over) not in EXPONENTIALS:
        return None
    dims = layers.call(summed).get("dim") if summed.inputs[0] is node else None
    return (node, dims[0] % node.dim()) if dims and len(dims) == 1 else None


# ------------------------------------------------------- from the softmax down


def _weighted_sum(layers: Layers, weights: DataNode) -> tuple[OperatorNode, DataNode] | None:
    """The operator that sums the values by `weights`, and the values."""
    waiting, seen = deque([(weights, False)]), {weights.index}
    while waiting and len(seen) < MAX_VISITED:
        node, mixed = waiting.popleft()
        for operator in node.consumers:
            found = _product_with(layers, operator, node)
            if found is not None:
                return found
            mixes = _mixes_heads(layers, operator)
            if not (passes_scores(layers.traits(operator)) or (mixes and not mixed)):
                continue
            for result in operator.outputs:
                if result.index not in seen:
                    seen.add(result.index)
                    waiting.append((result, mixed or mixes))
    return None


def _product_with(layers: Layers, operator: OperatorNode, weights: DataNode) -> tuple[OperatorNode, DataNode] | None:
    if layers.traits(operator).layer == MATRIX_PRODUCT:
        others = [node for node in layers.call(operator).inputs[-2:] if node is not weights]
        if len(others) == 1 and layers.is_activation(others[0]):
            return operator, others[0]
    elif layers.traits(operator).multiplies:
        others = [node for node in operator.inputs if node is not weights and layers.is_activation(node)]
        summed = [user for node in operator.outputs for user in node.consumers if layers.name(user) == "sum"]
        if others and summed and summed[0].outputs[0].dim() > 0:
            return summed[0], others[0]
    return None


def _mixes_heads(layers: Layers, operator: OperatorNode) -> bool:
    """True if a layer maps the scores to as many scores, as in talking-heads attention."""
    if operator.index not in layers.at or layers.traits(operator).layer not in (MATRIX_PRODUCT, CONVOLUTION):
        return False
    read = [node for node in operator.inputs if layers.is_activation(node)]
    return len(read) == 1 and read[0].numel() == operator.outputs[0].numel()


# --------------------------------------------------------- from the softmax up

Path = list[OperatorNode]


def _scores(layers: Layers, start: DataNode) -> tuple[_Scores, Path] | None:
    """The nearest product of two activations above a softmax, and the operators in between, from top to bottom."""
    below: dict[int, OperatorNode | None] = {start.index: None}
    waiting = deque([(start, False)])
    while waiting and len(below) < MAX_VISITED:
        node, mixed = waiting.popleft()
        operator = node.producer
        if operator is None:
            continue
        scores = _product_of_activations(layers, operator)
        if scores is not None:
            return scores, list(_path_down(node, below))
        mixes = _mixes_heads(layers, operator)
        carried = passes_scores(layers.traits(operator)) or (mixes and not mixed)
        bearers = _score_inputs(layers, operator, node) if carried else []
        if node.previous is not None:
            bearers.append(node.previous)  # something was written into the scores
        for above in bearers:
            if above.index not in below:
                below[above.index] = operator
                waiting.append((above, mixed or mixes))
    return None


def _path_down(node: DataNode, below: dict[int, OperatorNode | None]) -> Iterator[OperatorNode]:
    operator = below[node.index]
    while operator is not None:
        yield operator
        operator = next((below[out.index] for out in operator.outputs if out.index in below), None)


def _score_inputs(layers: Layers, operator: OperatorNode, node: DataNode) -> list[DataNode]:
    """The inputs that may be the scores: those as large as the result, and of a concatenation the largest."""
    inputs = [above for above in operator.inputs if layers.is_activation(above)]
    if len(inputs) < 2:
        return inputs
    if layers.traits(operator).moves:
        return [max(inputs, key=DataNode.numel)]
    return [above for above in inputs if above.numel() == node.numel()]


def _product_of_activations(layers: Layers, operator: OperatorNode) -> _Scores | None:
    if layers.traits(operator).layer == MATRIX_PRODUCT and operator.index not in layers.at:
        left, right = layers.call(operator).inputs[-2:]
        if not (layers.is_activation(left) and layers.is_activation(right)) or left.dim() < 2 or right.dim() < 2:
            return None
        result = operator.outputs[0]
        *batch, _, contracted = layers.inference.dims(left)
        return _Scores(result, left, right, [contracted], batch, {result.dim() - 2}, {result.dim() - 1})
    return _summed_product(layers, operator) if layers.name(operator) == "sum" else None


def _summed_product(layers: Layers, operator: OperatorNode) -> _Scores | None:
    """`(q * k).sum(dim)`: dimensions where one factor is broadcast belong to the other."""
    call = layers.call(operator)
    multiplied = call.inputs[0]
    above = multiplied.producer
    if above is None or not layers.traits(above).multiplies or len(above.inputs) != 2:
        return None
    if not call.has("dim") or call["dim"] is None:
        return None
    left, right = above.inputs
    if not (layers.is_activation(left) and layers.is_activation(right)) or left.dim() != right.dim():
        return None
    count = multiplied.dim()
    summed = {at % count for at in _as_sequence(call["dim"])}
    kept = [at for at in range(count) if at not in summed or call["keepdim"]]
    of_left = {new for new, at in enumerate(kept) if left.shape[at] > 1 == right.shape[at]}
    of_right = {new for new, at in enumerate(kept) if right.shape[at] > 1 == left.shape[at]}
    if not of_left and not of_right:
        return None  # a plain weighted sum: no position meets another one
    dims = layers.inference.dims(multiplied)
    batch = [dims[at] for new, at in enumerate(kept) if at not in summed and new not in of_left | of_right]
    return _Scores(operator.outputs[0], left, right, [dims[at] for at in summed], batch, of_left, of_right)


def _as_sequence(value: int | Sequence[int]) -> Sequence[int]:
    return [value] if isinstance(value, int) else value


def _key_dim(layers: Layers, scores: _Scores, path: Path, normalised: DataNode, over: int) -> int:
    """Returns the dimension of the product that the softmax runs over."""
    result = scores.result
    if over == normalised.dim() - 1 and not any(layers.traits(operator).reorders for operator in path):
        return result.dim() - 1
    # the same positions may stand on both sides, so the path is followed once more with a new axis for each dimension
    own = [Term(size) for size in result.shape]
    dims = _propagated_dims(layers, own, result, path, normalised)
    reached = set(atoms(dims[over]))
    return next((at for at, term in enumerate(own) if reached & set(atoms(term))), result.dim() - 1)


def _propagated_dims(layers: Layers, own: Dims, start: DataNode, path: Path, end: DataNode) -> Dims:
    algebra = Algebra()
    known: dict[int, Dims] = {start.index: own}

    def dims(node: DataNode) -> Dims:
        while node.index not in known and node.previous is not None:
            node = node.previous
        return known.setdefault(node.index, [Term(size) for size in node.shape])

    for operator in path:
        rule = find_rule(operator.overload)
        assert rule is not None
        found = rule(Call(operator, algebra, dims, {}))
        several = [found] if found and isinstance(found[0], Term) else found
        known.update({node.index: list(terms) for node, terms in zip(operator.outputs, several, strict=False)})
    return dims(end)


# ----------------------------------------


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
        """The number of heads of the queries."""
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
    """Returns all attentions of the model in execution order, by a bounded search around each softmax."""
    cores = [
        found
        for operator in layers.inference.graph.operators
        if (found := match_attention(layers, operator)) is not None
    ]
    if not cores:
        return []
    sources = layers.sources()
    return [_attention(layers, sources, found) for found in cores]


def _attention(layers: Layers, sources: list[Sources | None], found: AttentionMatch) -> Attention:
    q, k, v = (sources[node.index] or () for node in (found.query, found.key, found.value))
    dims = layers.inference.dims
    of_q, of_k, of_v = (_channels(layers_of) for layers_of in (q, k, v))
    summed = _axes_in(found.contracted)
    inside = [atom for atom in summed if atom in of_q or atom in of_k]
    heads = [atom for atom in _axes_in(dims(found.query)) if atom in (of_q or of_k) and atom not in summed]
    if not inside:
        # attention between channels: what is summed over are positions, and the rows are the channels of a head
        batch = _axes_in(found.batch)
        inside, heads = [a for a in heads if a not in batch], [a for a in heads if a in batch]
    own = _axes_in(dims(_unexpanded_key(layers, found.key)))
    kept = [atom for atom in heads if atom in own]
    values = [a for a in _axes_in(dims(found.value)) if a in of_v and a not in heads and a not in inside]
    apart = _axes_in(dims(found.operator.outputs[0])[:-2])
    return Attention(
        found.operator, q, k, v, _output_layer(layers, found.operator.outputs[0]),
        heads_axes=tuple(kept or heads),
        group_axes=tuple(atom for atom in heads if atom not in kept) if kept else (),
        head_dim_axes=tuple(inside),
        rotary_axes=tuple(atom for atom in inside if atom in _rotary_axes(found.contracted)),
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


def _axes_in(terms: Iterable[Term]) -> list[Term]:
    return list(dict.fromkeys(atom for term in terms for atom in atoms(term) if atom.size > 1))


def _rotary_axes(terms: Iterable[Term]) -> set[Term]:
    """Returns the axes of rotary embeddings: those that occur as two halves, or in interleaved pairs."""
    seen: set[Term] = set()
    found: set[Term] = set()
    for term in terms:
        for atom in atoms(term):
            if atom in seen:
                found.add(atom)
            seen.add(atom)
        for part in _parts(term):
            factors = flattened_parts(part)
            if part.kind == PRODUCT and len(factors) == 2 and factors[1].size == 2 and factors[1].frozen is not None:
                found.update(factor for factor in factors if factor.kind == ATOM)
    return found


def _parts(term: Term) -> list[Term]:
    term = find(term)
    return flattened_parts(term) if term.kind == SUM else [term]


def _unexpanded_key(layers: Layers, node: DataNode) -> DataNode:
    """Returns the key before it was repeated for several queries: the nearest form that is not larger."""
    for _ in range(MAX_VISITED):
        operator = node.producer
        if operator is None or not passes_scores(layers.traits(operator)):
            break
        above = next((n for n in operator.inputs if layers.is_activation(n) and n.numel() <= node.numel()), None)
        if above is None:
            break
        node = above
    return node


def _output_layer(layers: Layers, context: DataNode) -> tuple[Layer, ...]:
    """The first layer that reads the context."""
    waiting, seen = deque([context]), {context.index}
    while waiting and len(seen) < MAX_VISITED:
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
