"""Attention, in whatever way it is written: a softmax between two products of activations, or one fused operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from modulekg_widgets.engine.axes.algebra import ATOM, Algebra, Term, atoms, find
from modulekg_widgets.engine.axes.call import Call, Dims, rules
from modulekg_widgets.engine.axes.layers import (
    CONVOLUTIONS,
    POINTWISE,
    PRODUCTS,
    REORDERINGS,
    VIEWS,
    Layer,
    Layers,
    Sources,
)
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

REACH = 64  # values looked at on the way between a softmax and its products: bounds the cost per attention
_SOFTMAX = rules["aten::_softmax"]
_FUSED = rules["aten::scaled_dot_product_attention"]
_SUM = rules["aten::sum"]
_CARRIERS = VIEWS | POINTWISE  # what scores pass through


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
    rotary_axes: tuple[Term, ...]  # those of head_dim whose indices stand in it twice
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

    def __repr__(self) -> str:
        names = ", ".join(layer.name for layer in self.layers)
        shared = f" over {self.kv_heads} keys" if self.kv_heads != self.heads else ""
        return f"<Attention {self.name}: {self.heads} heads{shared} of {self.head_dim}, {names}>"


@dataclass(slots=True)
class _Scores:
    """A product of two activations: which of its dimensions only the left and only the right factor have."""

    result: DataNode
    left: DataNode
    right: DataNode
    contracted: Dims
    batch: Dims
    of_left: set[int]
    of_right: set[int]


def find_attention(layers: Layers) -> list[Attention]:
    """Every attention of a model in the order of its operators; one pass, and a bounded search from each softmax."""
    cores = [core for operator in layers.inference.graph.operators if (core := _core(layers, operator)) is not None]
    if not cores:
        return []
    sources = layers.sources()
    return [_attention(layers, sources, core) for core in cores]


@dataclass(slots=True)
class _Core:
    operator: OperatorNode
    query: DataNode
    key: DataNode
    value: DataNode
    contracted: Dims  # what q and k are summed over
    batch: Dims  # what every product runs over


def _core(layers: Layers, operator: OperatorNode) -> _Core | None:
    rule = layers.rule(operator)
    if rule is _FUSED and operator.outputs:
        query, key, value = operator.inputs[:3]
        *batch, _, contracted = layers.inference.dims(query)
        return _Core(operator, query, key, value, [contracted], batch)
    if rule is not _SOFTMAX or "log" in operator.name or not operator.outputs:
        return None
    weighted = _weighted_sum(layers, operator.outputs[0])
    if weighted is None:
        return None
    found = _scores(layers, operator)
    if found is None:
        return None
    scores, path = found
    query, key = scores.left, scores.right
    if _softmax_dimension(layers, scores, path, operator) in scores.of_left:
        query, key = key, query
    return _Core(weighted[0], query, key, weighted[1], scores.contracted, scores.batch)


# ------------------------------------------------------- from the softmax down


def _weighted_sum(layers: Layers, weights: DataNode) -> tuple[OperatorNode, DataNode] | None:
    """The operator that sums the values by `weights`, and the values."""
    waiting, seen = deque([(weights, False)]), {weights.index}
    while waiting and len(seen) < REACH:
        node, mixed = waiting.popleft()
        for operator in node.consumers:
            found = _product_with(layers, operator, node)
            if found is not None:
                return found
            mixes = _mixes_heads(layers, operator)
            if not (layers.rule(operator) in _CARRIERS or (mixes and not mixed)):
                continue
            for result in operator.outputs:
                if result.index not in seen:
                    seen.add(result.index)
                    waiting.append((result, mixed or mixes))
    return None


def _product_with(layers: Layers, operator: OperatorNode, weights: DataNode) -> tuple[OperatorNode, DataNode] | None:
    if layers.rule(operator) in PRODUCTS:
        others = [node for node in operator.inputs[-2:] if node is not weights]
        if len(others) == 1 and layers.is_activation(others[0]):
            return operator, others[0]
    elif operator.name.startswith("aten::mul"):
        others = [node for node in operator.inputs if node is not weights and layers.is_activation(node)]
        summed = [user for node in operator.outputs for user in node.consumers if user.name == "aten::sum"]
        if others and summed and summed[0].outputs[0].dim() > 0:
            return summed[0], others[0]
    return None


def _mixes_heads(layers: Layers, operator: OperatorNode) -> bool:
    """Whether a layer makes as many scores of the scores: heads that talk to each other."""
    if operator.index not in layers.at or layers.rule(operator) not in PRODUCTS | CONVOLUTIONS:
        return False
    read = [node for node in operator.inputs if layers.is_activation(node)]
    return len(read) == 1 and read[0].numel() == operator.outputs[0].numel()


# --------------------------------------------------------- from the softmax up

Path = list[OperatorNode]


def _scores(layers: Layers, softmax: OperatorNode) -> tuple[_Scores, Path] | None:
    """The nearest product of two activations above a softmax, and the operators in between, from top to bottom."""
    start = softmax.inputs[0]
    below: dict[int, OperatorNode | None] = {start.index: None}
    waiting = deque([(start, False)])
    while waiting and len(below) < REACH:
        node, mixed = waiting.popleft()
        operator = node.producer
        if operator is None:
            continue
        scores = _product_of_activations(layers, operator)
        if scores is not None:
            return scores, list(_downwards(node, below))
        mixes = _mixes_heads(layers, operator)
        if not (layers.rule(operator) in _CARRIERS or (mixes and not mixed)):
            continue
        for above in _bearers(layers, operator, node):
            if above.index not in below:
                below[above.index] = operator
                waiting.append((above, mixed or mixes))
    return None


def _downwards(node: DataNode, below: dict[int, OperatorNode | None]) -> Iterator[OperatorNode]:
    operator = below[node.index]
    while operator is not None:
        yield operator
        operator = next((below[out.index] for out in operator.outputs if out.index in below), None)


def _bearers(layers: Layers, operator: OperatorNode, node: DataNode) -> list[DataNode]:
    """The inputs that may be the scores: of several those as large as the result, and the largest of a concatenation."""
    inputs = [above for above in operator.inputs if layers.is_activation(above)]
    if len(inputs) < 2:
        return inputs
    if layers.rule(operator) in VIEWS:
        return [max(inputs, key=DataNode.numel)]
    return [above for above in inputs if above.numel() == node.numel()]


def _product_of_activations(layers: Layers, operator: OperatorNode) -> _Scores | None:
    rule = layers.rule(operator)
    if rule in PRODUCTS and operator.index not in layers.at:
        left, right = operator.inputs[-2:]
        if not (layers.is_activation(left) and layers.is_activation(right)) or left.dim() < 2 or right.dim() < 2:
            return None
        result = operator.outputs[0]
        *batch, _, contracted = layers.inference.dims(left)
        return _Scores(result, left, right, [contracted], batch, {result.dim() - 2}, {result.dim() - 1})
    return _summed_product(layers, operator) if rule is _SUM and operator.name == "aten::sum" else None


def _summed_product(layers: Layers, operator: OperatorNode) -> _Scores | None:
    """`(q * k).sum(dim)`: dimensions where one factor is broadcast belong to the other."""
    multiplied, call = operator.inputs[0], layers.call(operator)
    above = multiplied.producer
    if above is None or not above.name.startswith("aten::mul") or not call.has("dim") or len(above.inputs) != 2:
        return None
    left, right = above.inputs
    if not (layers.is_activation(left) and layers.is_activation(right)) or left.dim() != right.dim():
        return None
    count = multiplied.dim()
    summed = {at % count for at in _several(call["dim"])}
    kept = [at for at in range(count) if at not in summed or call["keepdim"]]
    own = [{new for new, at in enumerate(kept) if a.shape[at] > 1 == b.shape[at]} for a, b in ((left, right), (right, left))]  # fmt: skip
    if not own[0] and not own[1]:
        return None  # a plain weighted sum: no position meets another one
    dims = layers.inference.dims(multiplied)
    batch = [dims[at] for new, at in enumerate(kept) if at not in summed and new not in own[0] | own[1]]
    return _Scores(operator.outputs[0], left, right, [dims[at] for at in summed], batch, *own)


def _several(value: object) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)  # type: ignore[call-overload]


def _softmax_dimension(layers: Layers, scores: _Scores, path: Path, softmax: OperatorNode) -> int:
    """Which dimension of the product the softmax runs over: the one of the keys."""
    result, call = scores.result, layers.call(softmax)
    over = call["dim"] if call.has("dim") and isinstance(call["dim"], int) else -1
    over %= max(softmax.inputs[0].dim(), 1)
    last = over == softmax.inputs[0].dim() - 1
    if last and not any(layers.rule(operator) in REORDERINGS for operator in path):
        return result.dim() - 1
    # the same positions may stand on both sides, so the path is followed once more with a new axis for each dimension
    own = [Term(size) for size in result.shape]
    dims = _followed(layers, own, result, path, softmax.inputs[0])
    reached = set(atoms(dims[over]))
    return next((at for at, term in enumerate(own) if reached & set(atoms(term))), result.dim() - 1)


def _followed(layers: Layers, own: Dims, start: DataNode, path: Path, end: DataNode) -> Dims:
    algebra = Algebra()
    known: dict[int, Dims] = {start.index: own}

    def dims(node: DataNode) -> Dims:
        return known.setdefault(node.index, [Term(size) for size in node.shape])

    for operator in path:
        rule = layers.rule(operator)
        assert rule is not None
        found = rule(Call(operator, algebra, dims, {}))
        several = [found] if found and isinstance(found[0], Term) else found
        known.update({node.index: list(terms) for node, terms in zip(operator.outputs, several, strict=False)})
    return dims(end)


# ------------------------------------------------------------- axes and layers


def _attention(layers: Layers, sources: list[Sources | None], core: _Core) -> Attention:
    q, k, v = (sources[node.index] or () for node in (core.query, core.key, core.value))
    dims = layers.inference.dims
    of_q, of_k, of_v = (_channels(found) for found in (q, k, v))
    summed = _of_terms(core.contracted)
    inside = [atom for atom in summed if atom in of_q or atom in of_k]
    heads = [atom for atom in _of_terms(dims(core.query)) if atom in (of_q or of_k) and atom not in summed]
    if not inside:
        # attention between channels: what is summed over are positions, and the rows are the channels of a head
        batch = _of_terms(core.batch)
        inside, heads = [a for a in heads if a not in batch], [a for a in heads if a in batch]
    kept = [atom for atom in heads if atom in of_k or atom in of_v] if of_k or of_v else heads
    values = [a for a in _of_terms(dims(core.value)) if a in of_v and a not in heads and a not in inside]
    twice = _occurring_twice(core.contracted)
    return Attention(
        core.operator, q, k, v, _below(layers, core.operator.outputs[0]),
        heads_axes=tuple(kept or heads),
        group_axes=tuple(atom for atom in heads if atom not in kept) if kept else (),
        head_dim_axes=tuple(inside),
        rotary_axes=tuple(atom for atom in inside if atom in twice),
        value_dim_axes=tuple(values),
        head_dim=_channel_size(core.contracted, dims(core.query), inside),
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


def _occurring_twice(terms: Iterable[Term]) -> set[Term]:
    seen: set[Term] = set()
    return {atom for term in terms for atom in atoms(term) if atom in seen or seen.add(atom)}  # type: ignore[func-returns-value]


def _below(layers: Layers, context: DataNode) -> tuple[Layer, ...]:
    """The first layer that reads the context."""
    waiting, seen = deque([context]), {context.index}
    while waiting and len(seen) < REACH:
        node = waiting.popleft()
        for operator in node.consumers:
            own = layers.at.get(operator.index)
            if own and not own[0].depthwise:
                return tuple(own)
            if layers.rule(operator) is _SOFTMAX or (layers.rule(operator) in PRODUCTS and not own):
                continue  # it is read by another attention before any layer
            for result in operator.outputs:
                if result.index not in seen:
                    seen.add(result.index)
                    waiting.append(result)
    return ()


# ------------------------------------------------------------------------ roles


@dataclass(frozen=True, slots=True)
class Role:
    """What an axis is for, the module that it belongs to, and its name there; no module: where it was born."""

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
        yield atom, Role(name, home, name)
    for atom in attention.value_dim_axes:
        yield atom, Role("head_dim", home, "v_head_dim")
    explained = {*attention.heads_axes, *attention.group_axes, *attention.head_dim_axes, *attention.value_dim_axes}
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
    """What the queries are made of and the output goes back to."""
    for layer in attention.query:
        stream = find(layer.into)
        if stream.kind == ATOM and stream.size > 1 and any(find(out.out) is stream for out in attention.output):
            yield stream, Role("hidden", None, "hidden")
