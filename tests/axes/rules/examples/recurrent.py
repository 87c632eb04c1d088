"""Examples for rules/recurrent.py: gates are equal parts of one dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axes.rules.harness import Example, as_if, example, shapes_only, x

_TIME, _BATCH, _INPUT, _HIDDEN, _PROJECTED = 7, 2, 5, 3, 11


def _weights(gates: int, layers: int = 1, directions: int = 1, projected: int = 0) -> list[Tensor]:
    """The weights and biases of all cells, in torch's order."""
    out, width = [], projected or _HIDDEN
    for layer in range(layers):
        for _ in range(directions):
            below = _INPUT if layer == 0 else directions * width
            out += [x(gates * _HIDDEN, below), x(gates * _HIDDEN, width), x(gates * _HIDDEN), x(gates * _HIDDEN)]
            out += [x(projected, _HIDDEN)] if projected else []
    return out


def _state(count: int = 1, width: int = _HIDDEN) -> Tensor:
    return x(count, _BATCH, width)


def _gated(gates: int, hidden: str = "d", below: str = "c", end: str = "") -> str:
    """The terms of the weights of a cell."""
    parts = f"({'+'.join([hidden] * gates)})" if gates > 1 else hidden
    return f"{parts} {below}, {parts} {end or hidden}, {parts}, {parts}"


_SEQUENCE = x(_TIME, _BATCH, _INPUT)
_SIZES = torch.tensor([2, 2, 1])
_ONE_WAY: tuple[Any, ...] = (True, 1, 0.0, False, False)  # biases, layers, dropout, training, directions


def _lstm(gates: Tensor, hidden: Tensor, state: Tensor, bias: Tensor, hidden_bias: Tensor) -> Any:
    """A step of an LSTM, its workspace the gates."""
    i, f, g, o = (gates + hidden + bias + hidden_bias).chunk(4, 1)
    after = f.sigmoid() * state + i.sigmoid() * g.tanh()
    return o.sigmoid() * after.tanh(), after, torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1)


def _gru(gates: Tensor, hidden: Tensor, state: Tensor, bias: Tensor, hidden_bias: Tensor) -> Any:
    """A step of a GRU, its workspace the gates, the state and what the new gate saw of it."""
    (r, z, n), (hr, hz, hn) = (gates + bias).chunk(3, 1), (hidden + hidden_bias).chunk(3, 1)
    r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
    new = (n + r * hn).tanh()
    return new + z * (state - new), torch.cat([r, z, new, state, hn], 1)


def _fused(name: str, terms: str, gates: int, run: Any) -> Example:
    wide = gates * _HIDDEN
    return as_if(example(name, terms, x(_BATCH, wide), x(_BATCH, wide), x(_BATCH, _HIDDEN), x(wide), x(wide)), run)


EXAMPLES = [
    example(
        "aten::lstm.input",
        f". a b, 1 a c, 1 a c, {_gated(4, 'c', 'b')} -> . a c, 1 a c, 1 a c",
        _SEQUENCE,
        [_state(), _state()],
        _weights(4),
        *_ONE_WAY,
        False,
    ),
    example(
        "aten::gru.input",
        f". a b, 1 a c, {_gated(3, 'c', 'b')} -> . a c, 1 a c",
        _SEQUENCE,
        _state(),
        _weights(3),
        *_ONE_WAY,
        False,
    ),
    *(
        example(
            f"aten::{name}.input",
            f". a b, 1 a c, {_gated(1, 'c', 'b')} -> . a c, 1 a c",
            _SEQUENCE,
            _state(),
            _weights(1),
            *_ONE_WAY,
            False,
        )
        for name in ("rnn_tanh", "rnn_relu")
    ),
    # (batch, time, features), two layers, both directions
    example(
        "aten::gru.input",
        f"a . b, . a c, {', '.join([_gated(3, 'c', 'b')] * 2 + [_gated(3, 'c', '(c+c)')] * 2)} -> a . (c+c), . a c",
        x(_BATCH, _TIME, _INPUT),
        _state(4),
        _weights(3, 2, 2),
        True,
        2,
        0.0,
        False,
        True,
        True,
    ),
    # a projection
    example(
        "aten::lstm.input",
        f". a b, 1 a c, 1 a d, {_gated(4, 'd', 'b', 'c')}, c d -> . a c, 1 a c, 1 a d",
        _SEQUENCE,
        [_state(1, _PROJECTED), _state()],
        _weights(4, projected=_PROJECTED),
        *_ONE_WAY,
        False,
    ),
    # sequences of several lengths
    example(
        "aten::gru.data",
        f". a, ., 1 . b, {_gated(3, 'b', 'a')} -> . b, 1 . b",
        x(5, _INPUT),
        _SIZES,
        _state(),
        _weights(3),
        *_ONE_WAY,
    ),
    example(
        "aten::lstm.data",
        f". a, ., 1 . b, 1 . b, {_gated(4, 'b', 'a')} -> . b, 1 . b, 1 . b",
        x(5, _INPUT),
        _SIZES,
        [_state(), _state()],
        _weights(4),
        *_ONE_WAY,
    ),
    # one layer in one direction, in single precision
    *(
        shapes_only(
            example(
                "aten::mkldnn_rnn_layer",
                f". a b, {_gated(4, 'c', 'b')}, a c, a c -> . a c, a c, a c, .",
                *(t.float() for t in (_SEQUENCE, *_weights(4), *(x(_BATCH, _HIDDEN) for _ in range(2)))),
                backwards,
                [],
                2,
                _HIDDEN,
                1,
                True,
                False,
                False,
                True,
            ),
            results=3,
        )
        for backwards in (False, True)
    ),
    _fused(
        "aten::_thnn_fused_lstm_cell",
        "a (b+b+b+b), a (b+b+b+b), a b, (b+b+b+b), (b+b+b+b) -> a b, a b, a (b+b+b+b)",
        4,
        _lstm,
    ),
    _fused("aten::_thnn_fused_gru_cell", "a (b+b+b), a (b+b+b), a b, (b+b+b), (b+b+b) -> a b, a (b+b+b+b+b)", 3, _gru),
    example("aten::_pack_padded_sequence", ". . a, . -> . a, .", _SEQUENCE, torch.tensor([7, 4]), False),
    example("aten::_pack_padded_sequence", ". . a b, . -> . a b, .", x(2, 7, 3, 5), torch.tensor([7, 4]), True),
    example("aten::_pad_packed_sequence", ". a, . -> . . a, .", x(5, _INPUT), _SIZES, False, 0.0, 3),
]
