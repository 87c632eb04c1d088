"""Axis rules of recurrent layers that run as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.operators.formulas import recurrent_cells
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.operators.traits import MKLDNN_RNN, RECURRENT_LAYER

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
WALKED_IN_TIME = "processed in time order"
PACKED = "packed by lengths"
LAYERS = "layers and directions"


@rule(*RECURRENT_LAYER)
def recurrent(call: Call) -> list[Dims]:
    """Per layer and direction: w_ih (gates·H, in), w_hh (gates·H, H); the outputs of both directions lie end to end.

    First and last states have one width for all layers and directions, so these share their hidden dimension, but where
    the first ones are all equal, as zeros, and nobody reads the last ones.
    """
    x = call.axes(call.inputs[0])
    states = [call.axes(node) for node in nodes_in(call["hx"])]
    batch = _batch(call, x)
    for state in states:
        call.freeze(state[0], LAYERS)
        if batch is not None:
            call.unify(state[1], batch)
        else:
            call.freeze(state[1], PACKED)
    directions = 2 if call["bidirectional"] else 1
    below: Term = x[-1]
    ends: list[Term] = []  # of each cell
    hidden: list[Term] = []
    for cell in recurrent_cells(call):
        # where there is a projection, the second state keeps the width from before it
        inside, end = _cell(call, cell, below, GATES[call.name])
        hidden.append(inside)
        ends.append(end)
        call.unify(call.with_fresh_fillers(states[0][-1]), end)
        call.unify(call.with_fresh_fillers(states[-1][-1]), inside if len(states) > 1 else end)
        if len(ends) % directions == 0:
            below = call.sum(*ends[-directions:])
    _, *last = call.results
    for node, own in zip(last, (ends, hidden), strict=False):
        for other in own[1:] if call.counts(node) else ():
            call.unify(own[0], other)
    after = [[call.frozen(node.shape[0], LAYERS), state[1], own[0]]
             for node, state, own in zip(last, states, (ends, hidden), strict=False)]  # fmt: skip
    return [[*x[:-1], below], *after]


def _batch(call: Call, x: Dims) -> Term | None:
    """The dimension of samples, None where they are packed; time is walked in order."""
    if call.has("batch_sizes"):
        call.freeze_all([*x[:-1], *call.axes(call["batch_sizes"])], PACKED)
        return None
    time, batch = (1, 0) if call["batch_first"] else (0, 1)
    call.freeze(x[time], WALKED_IN_TIME)
    return x[batch]


def _cell(call: Call, weights: Sequence[Any], below: Term, gates: int) -> tuple[Term, Term]:
    """Returns the hidden dimension of a cell and its output dimension, which is the projection if there is one."""
    into, again, *rest = weights
    gated, inside = call.axes(into)
    again_gated, end = call.axes(again)
    call.unify(inside, below)
    call.unify(again_gated, gated)
    hidden = call.parts(gated, *([gated.size // gates] * gates))
    for part in hidden[1:]:
        call.unify(hidden[0], part)
    for node in rest:
        if node.dim() == 1:
            call.unify(call.axes(node)[0], gated)
        else:
            out, inner = call.axes(node)
            call.unify(out, end)
            call.unify(inner, hidden[0])
    if not any(node.dim() == 2 for node in rest):
        call.unify(end, hidden[0])
    return hidden[0], end


@rule(*MKLDNN_RNN)
def mkldnn_rnn(call: Call) -> list[Dims]:
    """One layer in one direction over (time, batch, features)."""
    time, batch, features = call.axes(call["input"])
    call.freeze(time, WALKED_IN_TIME)
    gates = {2: 4, 3: 3}.get(call["mode"], 1)
    weights = [call[f"weight{at}"] for at in range(4)]
    _, end = _cell(call, weights if call["has_biases"] else weights[:2], features, gates)
    states = [call.axes(call[name]) for name in ("hx_", "cx_")]
    for state in states:
        call.unify(state[-1], end)
        call.unify(state[-2], batch)
    kept = [call.frozen_all(node.shape, "kept for the backward pass") for node in call.results[3:]]
    return [[time, batch, end], *states, *kept]


@rule("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell")
def fused_cell(call: Call) -> list[Dims]:
    """The gates of one step on a GPU: (batch, gates·H) twice, the state (batch, H), two biases."""
    state = call.axes(call["cx"] if call.has("cx") else call["hx"])
    gates = GATES["lstm" if call.has("cx") else "gru"]
    for name in ("input_gates", "hidden_gates", "input_bias", "hidden_bias"):
        if call[name] is not None:
            *batch, gated = call.axes(call[name])
            call.unify_all(batch, state[: len(batch)])
            for part in call.parts(gated, *([state[-1].size] * gates)):
                call.unify(part, state[-1])
    # the workspace for the backward pass holds as many gates, or one or two more
    kept = call.sum(*([state[-1]] * (call.results[-1].shape[-1] // state[-1].size)))
    return [*(state for _ in call.results[1:]), [state[0], kept]]


@rule("aten::_pack_padded_sequence")
def pack(call: Call) -> list[Dims]:
    """(time, batch, features) → (steps, features), and the batch sizes."""
    first, second, *features = call.axes(call["input"])
    call.freeze_all([first, second, *call.axes(call["lengths"])], PACKED)
    steps, sizes = call.results
    return [[call.frozen(steps.shape[0], PACKED), *features], call.frozen_all(sizes.shape, PACKED)]


@rule("aten::_pad_packed_sequence")
def pad_packed(call: Call) -> list[Dims]:
    """(steps, features) → (time, batch, features), and the lengths."""
    steps, *features = call.axes(call["data"])
    call.freeze_all([steps, *call.axes(call["batch_sizes"])], PACKED)
    padded, lengths = call.results
    return [[*call.frozen_all(padded.shape[:2], PACKED), *features], call.frozen_all(lengths.shape, PACKED)]
