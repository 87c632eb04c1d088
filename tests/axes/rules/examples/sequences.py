"""Attention, recurrent layers and transformers, which torch takes apart into operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axes.rules.harness import function, idle, of_module, x

_ATTENTION = F.scaled_dot_product_attention
_LSTM, _GRU = "(c+c+c+c)", "(c+c+c)"
_LSTM_CELL = f"{_LSTM} b, {_LSTM} d, {_LSTM}, {_LSTM}"
_UPPER_CELL = f"{_LSTM} (d+d), {_LSTM} d, {_LSTM}, {_LSTM}"
_GRU_CELL = f"{_GRU} b, {_GRU} c, {_GRU}, {_GRU}"
# queries, keys and values in one matrix, of (heads, width) each; then the result, two linear layers and the norms
_ENCODER = "(. d e) c, (. d e), c (d e), c, f c, f, c f, c, c, c, c, c"


def _embedded(*sizes: int) -> tuple[Tensor, ...]:
    """Queries, keys and values: (batch 2, length, width)."""
    return tuple(x(2, length, width) for length, width in zip((5, 13, 13), sizes, strict=True))


_LENGTHS = torch.tensor([7, 4])


class _Packed(nn.Module):
    """The last state of a GRU over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 3)

    def forward(self, given: Tensor) -> Tensor:
        return self.gru(nn.utils.rnn.pack_padded_sequence(given, _LENGTHS))[1]


EXAMPLES = [
    function(
        "attention", "a b c d, a b e d, a b e f -> a b c f", _ATTENTION, x(2, 3, 5, 7), x(2, 3, 11, 7), x(2, 3, 11, 13)
    ),
    function(
        "attention with a mask",
        "a b c d, a b e d, a b e f, c e -> a b c f",
        _ATTENTION,
        x(2, 3, 5, 7),
        x(2, 3, 11, 7),
        x(2, 3, 11, 7),
        x(5, 11),
    ),
    function(
        "causal attention",
        "a b . c, a b . c, a b . d -> a b . d",
        lambda q, k, v: _ATTENTION(q, k, v, is_causal=True),
        *(x(2, 3, 5, 7) for _ in range(3)),
    ),
    function(
        "grouped attention",
        "a (b .) c d, a b e d, a b e f -> a (b .) c f",
        lambda q, k, v: _ATTENTION(q, k, v, enable_gqa=True),
        x(2, 6, 5, 7),
        x(2, 3, 11, 7),
        x(2, 3, 11, 7),
    ),
    of_module(
        "multi-head attention",
        "a b c, a d c, a d c, ((e f)+(e f)+(e g)) c, ((e f)+(e f)+(e g)), h (e g), h -> a b h, a b d",
        nn.MultiheadAttention(6, 2, batch_first=True),
        *_embedded(6, 6, 6),
    ),
    of_module(
        "multi-head attention, kdim and vdim",
        "a b c, a d e, a d f, (g h) c, (g h) e, (g i) f, ((g h)+(g h)+(g i)), "
        "1 1 (g h), 1 1 (g i), j (g i), j -> a b j, a b (d+1)",
        nn.MultiheadAttention(6, 2, kdim=5, vdim=7, batch_first=True, add_bias_kv=True),
        *_embedded(6, 5, 7),
    ),
    of_module(
        "multi-head attention of one sample",
        "a b, c b, c b, ((d e)+(d e)+(d f)) b, g (d f) -> a g, a c",
        nn.MultiheadAttention(6, 2, bias=False),
        x(5, 6),
        x(13, 6),
        x(13, 6),
    ),
    of_module("LSTM", f". a b, {_LSTM_CELL.replace('d', 'c')} -> . a c, 1 a c, 1 a c", nn.LSTM(5, 3), x(7, 2, 5)),
    of_module(
        "LSTM, both directions, projected",
        f"a . b, {', '.join([f'{_LSTM_CELL}, d c'] * 2 + [f'{_UPPER_CELL}, d c'] * 2)} -> a . (d+d), . a d, . a c",
        nn.LSTM(5, 3, 2, bidirectional=True, proj_size=2, batch_first=True),
        x(2, 7, 5),
    ),
    of_module(
        "GRU, both directions",
        f". a b, {_GRU_CELL}, {_GRU_CELL} -> . a (c+c), . a c",
        nn.GRU(5, 3, bidirectional=True),
        x(7, 2, 5),
    ),
    of_module(
        "GRU with a state",
        f". a b, 1 a c, {_GRU} b, {_GRU} c -> . a c, 1 a c",
        nn.GRU(5, 3, bias=False),
        x(7, 2, 5),
        x(1, 2, 3),
    ),
    of_module("RNN", ". a b, c b, c c, c, c -> . a c, 1 a c", nn.RNN(5, 3, nonlinearity="relu"), x(7, 2, 5)),
    of_module("packed GRU", ". . a, (b+b+b) a, (b+b+b) b, (b+b+b), (b+b+b) -> 1 (1+1) b", _Packed(), x(7, 2, 5)),
    function(
        "packed and padded",
        ". . a, . -> (.+.) (1+1) a, .",
        lambda a, n: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(a, n)),
        x(7, 2, 5),
        _LENGTHS,
    ),
    # a first step multiplies a state of zeros
    idle(of_module("LSTM cell", f"a b, {_LSTM_CELL} -> a c, a c", nn.LSTMCell(5, 3), x(2, 5))),
    idle(of_module("GRU cell", f"a b, {_GRU} b, {_GRU} d, {_GRU}, {_GRU} -> a c", nn.GRUCell(5, 3), x(2, 5))),
    idle(of_module("RNN cell", "a b, c b, c d, c, c -> a c", nn.RNNCell(5, 3), x(2, 5))),
    of_module("GRU cell with a state", f"a b, a c, {_GRU_CELL} -> a c", nn.GRUCell(5, 3), x(2, 5), x(2, 3)),
    of_module(
        "encoder layer",
        f"a b c, {_ENCODER} -> a b c",
        nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, batch_first=True),
        x(2, 7, 6),
    ),
    of_module(
        "encoder layer, norm first",
        f"a b c, {_ENCODER} -> a b c",
        nn.TransformerEncoderLayer(6, 2, 5, norm_first=True).eval(),
        x(7, 2, 6),
    ),
    of_module(
        "decoder layer",
        "a b c, d b c, (. e f) c, (. e f), c (e f), c, ((g h)+(. g h)) c, ((g h)+(. g h)), c (g h), c, "
        "i c, i, c i, c, c, c, c, c, c, c -> a b c",
        nn.TransformerDecoderLayer(6, 2, 5, dropout=0.0),
        x(7, 2, 6),
        x(11, 2, 6),
    ),
    of_module(
        "transformer",
        "a b c, d b c, (. e f) c, (. e f), c (e f), c, g c, g, c g, c, c, c, c, c, c, c, "
        "(. h i) c, (. h i), c (h i), c, ((j k)+(. j k)) c, ((j k)+(. j k)), c (j k), c, "
        "l c, l, c l, c, c, c, c, c, c, c, c, c "
        "-> d b c",
        nn.Transformer(6, 2, 1, 1, 5, dropout=0.0),
        x(5, 2, 6),
        x(3, 2, 6),
    ),
]
