"""Scaled dot-product attention in its fused forms."""

from __future__ import annotations

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast
from modulekg_widgets.engine.operators.traits import ATTENTION
from modulekg_widgets.engine.tracing.dataflow import DataNode


@rule(*ATTENTION)
def attention(call: Call) -> list[Dims]:
    """q.D = k.D, key length = value length, v.D → out.D; heads and batch meet, and a mask meets the scores.

    With fewer key heads than query heads, each serves a group of queries: q.heads = kv_heads·group.
    """
    query, key, value = (call.axes(call[name]) for name in ("query", "key", "value"))
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    if call.has("is_causal") and call["is_causal"]:
        call.freeze_all([query[-2], key[-2]], "each query sees the keys before it")
    if len(query) > 3 and query[-3].size > key[-3].size > 1:
        for other in (key, value):
            _grouped(call, query[-3], other[-3])
        batch = broadcast(call, query[:-3], key[:-3], value[:-3])
        batch.append(query[-3])
    else:
        batch = broadcast(call, query[:-2], key[:-2], value[:-2])
    scores = [*batch, query[-2], key[-2]]
    for name in ("attn_mask", "attn_bias", "dropout_mask"):
        if call.has(name) and call[name] is not None:
            call.unify_broadcast(call[name], scores)
    _, *rest = call.results
    return [[*batch, query[-2], value[-1]], *(_statistic(call, node, scores) for node in rest)]


def _grouped(call: Call, query_heads: Term, heads: Term) -> None:
    """Each key or value head serves a group of query heads."""
    if heads.size > 1 and query_heads.size > heads.size:
        kv_heads, group = call.factors(query_heads, heads.size, query_heads.size // heads.size)
        call.unify(kv_heads, heads)
        call.freeze(group, "queries that share a key")
    else:
        call.unify(query_heads, heads)


def _statistic(call: Call, node: DataNode, scores: Dims) -> Dims:
    """The log-sum-exp per query, perhaps padded, the weights, or a state of the random generator."""
    text = "kept for the backward pass"
    if node.dim() < 2:
        return call.frozen_all(node.shape, text)
    if call.is_read(node):
        call.freeze_all([t for t, size in zip(scores, node.shape, strict=False) if t.size != size > 1], text)
    return [t if t.size == size else call.frozen(size, text) for t, size in zip(scores, node.shape, strict=False)]
