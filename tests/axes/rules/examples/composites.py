"""Functions that torch takes apart into operators, each with the terms that these give together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axes.rules.harness import function, idle, ints, mask, of_module, positive, shapes_only, x, z


def _of_best_groups(scores: Tensor) -> Tensor:
    """Of five groups the two with the best scores stay."""
    best = scores.unflatten(1, (5, 2)).amax(2).topk(2, 1)[1]
    mark = torch.zeros(3, 5).scatter_(1, best, 1)
    return scores.masked_fill(~mark[:, :, None].expand(3, 5, 2).reshape(3, 10).bool(), 0.0)


PRODUCTS = [
    function(
        "einsum", "a b c, d e c -> a d b e", lambda a, b: torch.einsum("bqd,hkd->bhqk", a, b), x(2, 3, 5), x(7, 11, 5)
    ),
    function(
        "einsum of three",
        "a b, b c, c d -> a d",
        lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c),
        x(2, 3),
        x(3, 5),
        x(5, 7),
    ),
    function("einsum of a diagonal", "a a b -> a b", lambda a: torch.einsum("iij->ij", a), x(3, 3, 5)),
    function("matmul", ". a b c, a c d -> . a b d", torch.matmul, x(2, 3, 5, 7), x(3, 7, 11)),
    function("linear", "a b c, d c, d -> a b d", F.linear, x(2, 3, 5), x(7, 5), x(7)),
    function("bilinear", "a b, a c, d b c, d -> a d", F.bilinear, x(2, 3), x(2, 5), x(7, 3, 5), x(7)),
    function(
        "tensordot",
        "a b c, c b d -> a d",
        lambda a, b: torch.tensordot(a, b.transpose(0, 1), 2),
        x(2, 3, 5),
        x(5, 3, 7),
    ),
    function("outer", "a, b -> a b", torch.outer, x(3), x(5)),
    function("kron", "a b, c d -> (a c) (b d)", torch.kron, x(2, 3), x(5, 7)),
    function("inner", "a b, c b -> a c", torch.inner, x(2, 3), x(5, 3)),
    function("chain", "a b, b c, c d -> a d", lambda *m: torch.linalg.multi_dot(list(m)), x(2, 3), x(3, 5), x(5, 7)),
    function("cdist", "a b c, a d c -> a b d", torch.cdist, x(2, 3, 5), x(2, 7, 5)),
    function(
        "cdist of many",
        "a b, c b -> a c",
        lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"),
        x(2, 3),
        x(5, 3),
    ),
    function("pdist", ". a -> .", F.pdist, x(5, 3)),
    function("cosine similarity", "a b c, a b c -> a c", F.cosine_similarity, x(2, 3, 5), x(2, 3, 5)),
    function("pairwise distance", "a b, a b -> a", F.pairwise_distance, x(2, 3), x(2, 3)),
    function("cross", "a ., a . -> a .", lambda a, b: torch.cross(a, b, dim=1), x(2, 3), x(2, 3)),
    function("vecdot", "a b, a b -> a", torch.linalg.vecdot, x(2, 3), x(2, 3)),
]

LAYERS = [
    *(
        function(
            f"convolution in {n} dimensions",
            " ".join(["a b", *"." * n]) + ", " + " ".join(["c b", *"." * n]) + ", c -> " + " ".join(["a c", *"." * n]),
            getattr(F, f"conv{n}d"),
            x(2, 3, *(7, 11, 13)[:n]),
            x(5, 3, *(2,) * n),
            x(5),
        )
        for n in (1, 2, 3)
    ),
    function(
        "convolution, same",
        "a b . ., c b . . -> a c . .",
        lambda a, w: F.conv2d(a, w, padding="same"),
        x(2, 3, 7, 11),
        x(5, 3, 2, 3),
    ),
    function("convolution of one sample", "a . ., b a . . -> b . .", F.conv2d, x(3, 7, 11), x(5, 3, 2, 3)),
    function("transposed convolution", "a b ., b c ., c -> a c .", F.conv_transpose1d, x(2, 3, 7), x(3, 5, 2), x(5)),
    of_module(
        "conv + bn",
        "a b . ., c b . ., c, c, c, c, c -> a c . .",
        nn.Sequential(nn.Conv2d(3, 5, (2, 3)), nn.BatchNorm2d(5)).eval(),
        x(2, 3, 7, 11),
    ),
    of_module(
        "conv + bn in training",
        "a b . ., c b . ., c, c -> a c . .",
        nn.Sequential(nn.Conv2d(3, 5, (2, 3), bias=False), nn.BatchNorm2d(5, track_running_stats=False)),
        x(2, 3, 7, 11),
    ),
    of_module("group norm", "a (b c) d, (b c), (b c) -> a (b c) d", nn.GroupNorm(2, 6), x(3, 6, 5)),
    function(
        "instance norm",
        ". a b, a, a -> . a b",
        lambda a, w, b: F.instance_norm(a, weight=w, bias=b),
        x(2, 3, 5),
        x(3),
        x(3),
    ),
    function("rms norm", "a b, b -> a b", lambda a, w: F.rms_norm(a, [3], w), x(2, 3), x(3)),
    function(
        "windows of what lies in another order",
        "a . b -> a b . .",
        lambda a: a.transpose(1, 2).as_strided([2, 5, 3, 3], [35, 1, 10, 5]),
        x(2, 7, 5),
    ),
    function("local response norm", "a . b -> a . b", lambda a: F.local_response_norm(a, 3), x(2, 5, 7)),
    function("normalize", "a b c -> a b c", F.normalize, x(2, 3, 5)),
    of_module(
        "weight norm", "a b, c, c 1, c b -> a c", nn.utils.parametrizations.weight_norm(nn.Linear(3, 5)), x(2, 3)
    ),
    function(
        "embedding bag", ". ., . a -> . a", lambda i, w: F.embedding_bag(i, w, mode="sum"), ints(11, 2, 5), x(11, 3)
    ),
    function("embedding", "a b, . c -> a b c", F.embedding, ints(11, 2, 5), x(11, 3)),
    function("PReLU", "a b c, b -> a b c", F.prelu, x(2, 3, 5), x(3)),
    function("GLU", "a (b+b) -> a b", F.glu, x(2, 6)),
    function("maxout", "a (b c) -> a b", lambda a: a.view(2, 3, 5).max(-1).values, x(2, 15)),
    # indices that the data choose, and what they pick
    function("matrices of the best", "a b, b c d -> a c d", lambda s, w: w[s.argmax(1)], x(3, 7), x(7, 2, 4)),
    function(
        "rows of the best two", "a b, b c -> a . c", lambda s, t: F.embedding(s.topk(2, 1)[1], t), x(3, 7), x(7, 4)
    ),
    function(
        "the best two marked", "a b -> a b", lambda s: torch.zeros_like(s).scatter(1, s.topk(2, 1)[1], 1), x(3, 7)
    ),
    function("one hot of the best", "a b -> a b", lambda s: F.one_hot(s.max(1)[1], 7).double(), x(3, 7)),
    function("scores of the best two", "a b -> a .", lambda s: (-s).gather(1, s.topk(2, 1)[1]), x(3, 7)),
    function("the best by sorting", "a . -> a .", lambda s: s.gather(1, s.argsort(1)[:, -2:]), x(3, 7)),
    function("the one after the best", "a ., . b -> a b", lambda s, t: t[(s.argmax(1) + 1) % 7], x(3, 7), x(7, 4)),
    function("the best of two groups", "a (b c) -> a (b c)", _of_best_groups, x(3, 10)),
    shapes_only(function("gumbel softmax", "a b -> a b", lambda a: F.gumbel_softmax(a, hard=True), x(2, 3))),
]


_POOLS: list[tuple[str, Callable[[Tensor], Any]]] = [
    ("nearest", lambda a: F.interpolate(a, scale_factor=2)),
    ("nearest-exact", lambda a: F.interpolate(a, size=(13, 5), mode="nearest-exact")),
    ("bilinear", lambda a: F.interpolate(a, size=(13, 5), mode="bilinear", align_corners=True)),
    ("bilinear, antialiased", lambda a: F.interpolate(a, size=(5, 5), mode="bilinear", antialias=True)),
    ("bicubic", lambda a: F.interpolate(a, scale_factor=(2, 0.5), mode="bicubic")),
    ("area", lambda a: F.interpolate(a, size=(5, 5), mode="area")),
    ("pad, reflected", lambda a: F.pad(a, (1, 2, 3, 1), mode="reflect")),
    ("pad, replicated", lambda a: F.pad(a, (1, 2, 3, 1), mode="replicate")),
    ("adaptive maximum", lambda a: F.adaptive_max_pool2d(a, (2, 3))),
    ("powers", lambda a: F.lp_pool2d(a.abs(), 2, 2)),
    (
        "fractional maximum",
        lambda a: F.fractional_max_pool2d(a, 2, output_size=(3, 5), _random_samples=torch.zeros(2, 3, 2).double()),
    ),
]

POSITIONS = [
    *(function(title, "a b . . -> a b . .", of, x(2, 3, 7, 11)) for title, of in _POOLS),
    function("linear", "a b . -> a b .", lambda a: F.interpolate(a, size=5, mode="linear"), x(2, 3, 7)),
    function(
        "trilinear",
        "a b . . . -> a b . . .",
        lambda a: F.interpolate(a, scale_factor=2, mode="trilinear"),
        x(2, 3, 2, 3, 5),
    ),
    function(
        "pad, circular", "a b (1+c+d) -> a b (d+1+c+d+1)", lambda a: F.pad(a, (2, 1), mode="circular"), x(2, 3, 7)
    ),
    function("pad", "a b c -> a b (1+c+.)", lambda a: F.pad(a, (1, 2)), x(2, 3, 5)),
    function(
        "unpool",
        "a b . . -> a b . .",
        lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), [2, 2]),
        x(2, 3, 6, 10),
    ),
    function(
        "grid sample",
        "a b . ., a c d . -> a b c d",
        lambda a, g: F.grid_sample(a, g, align_corners=False),
        x(2, 3, 7, 11),
        positive(2, 5, 13, 2),
    ),
    function(
        "affine grid", "a . . -> a . . .", lambda t: F.affine_grid(t, [2, 3, 5, 7], align_corners=False), x(2, 2, 3)
    ),
    function("unfold", "a b . . -> a (b .) .", lambda a: F.unfold(a, (2, 3)), x(2, 3, 7, 11)),
    function("fold", "a (b .) . -> a b . .", lambda a: F.fold(a, (7, 11), (2, 3)), x(2, 18, 54)),
    function("pixel shuffle", "a (b . .) c d -> a b (c .) (d .)", lambda a: F.pixel_shuffle(a, 2), x(2, 12, 5, 7)),
    function("pixel unshuffle", "a b (c .) (d .) -> a (b . .) c d", lambda a: F.pixel_unshuffle(a, 2), x(2, 3, 10, 14)),
    function("channel shuffle", "a (b c) d e -> a (c b) d e", lambda a: F.channel_shuffle(a, 2), x(2, 6, 5, 7)),
]


def _by_parts(a: Tensor, b: Tensor) -> Tensor:
    out = torch.empty(2, 8, dtype=torch.float64)
    out[:, :3], out[:, 3:] = a, b
    return out


def _positive(a: Tensor) -> Tensor:
    out = a.clone()
    out[a < 0] = 0.0
    return out


def _counted(a: Tensor) -> Tensor:
    out = a.clone()
    out[a > 0] += 1.0
    return out


_LENGTHS = torch.tensor([[7, 7], [3, 3]])
MEMORY = [
    function("filled with a constant", "-> ~a ~b", lambda: torch.empty(2, 3).fill_(5)),
    function("filled with values", "a b -> a b", lambda a: torch.empty(2, 3, dtype=torch.float64).copy_(a), x(2, 3)),
    shapes_only(function("filled at random", "-> . .", lambda: torch.empty(2, 3).normal_())),
    shapes_only(function("dropped", "a b -> a b", lambda a: F.dropout(a), x(2, 3))),
    shapes_only(function("a constant, dropped", "-> . .", lambda: F.dropout(torch.ones(2, 3)))),
    function("filled by parts", "a b, a c -> a (b+c)", _by_parts, x(2, 3), x(2, 5)),
    function("filled where a mask is true", "a b -> a b", lambda a: a.clone().masked_fill_(a > 0, 1.0), x(2, 3)),
    function("set where a mask is true", "a b -> a b", _positive, x(2, 3)),
    # what is read with a mask is in an order of its own
    function("counted where a mask is true", ". . -> . .", _counted, x(2, 3)),
    function("chosen with a mask, only the number is read", "a b -> a b", lambda a: a * a[a > 0].numel(), x(2, 3)),
    function(
        "rows where a mask is true",
        ". . a, . ., . . a -> . . a",
        lambda a, m, v: a.masked_scatter(m.unsqueeze(-1).expand(3, 2, 7), v),
        x(3, 2, 7),
        mask(3, 2),
        x(3, 2, 7),
    ),
    function("determinant", ". . -> ()", torch.linalg.det, x(3, 3)),
    # rows and columns of the matrix are kept together, as it is square
    idle(function("solved", "a b b, a b c -> a b c", torch.linalg.solve, x(2, 5, 5), x(2, 5, 3))),
    function("inverted", "a b b -> a b b", torch.linalg.inv, x(2, 5, 5)),
    function("inverted as well as can be", "a b c -> a c b", torch.linalg.pinv, x(2, 5, 3)),
    function("matrix norm", ". . -> ()", lambda a: torch.linalg.matrix_norm(a, "nuc"), x(3, 5)),
    function("loss of classes", "a ., a -> ()", F.cross_entropy, x(5, 3), ints(3, 5)),
    function("loss of class probabilities", "a b, a b -> ()", F.cross_entropy, x(5, 3), positive(5, 3)),
    function(
        "KL divergence", "a b, a b -> a b", lambda a, b: F.kl_div(a, b, reduction="none"), x(2, 3), positive(2, 3)
    ),
    # with a margin that no draw of values reaches, where the loss would be zero whatever the order
    function("triplet", "a b, a b, a b -> ()", F.triplet_margin_loss, x(2, 3), x(2, 3), x(2, 3), 99.0),
    function(
        "CTC",
        ". . ., . . -> ()",
        lambda a, t: F.ctc_loss(a.log_softmax(-1), t, _LENGTHS[0], _LENGTHS[1]),
        x(7, 2, 5),
        1 + ints(4, 2, 3),
    ),
]

_TRANSFORMS = ["fft", "ifft", "rfft", "hfft", "ihfft"]
SIGNALS = [
    *(
        function(f"fft.{name}", "a . b -> a . b", lambda a, name=name: getattr(torch.fft, name)(a, dim=1), x(2, 6, 5))
        for name in _TRANSFORMS
    ),
    *(
        function(f"fft.{name}", "a . b -> a . b", lambda a, name=name: getattr(torch.fft, name)(a, dim=1), z(2, 6, 5))
        for name in ("irfft", "ifft")
    ),
    *(
        function(f"fft.{name}", "a . . -> a . .", getattr(torch.fft, name), z(2, 6, 5))
        for name in ("fft2", "ifft2", "irfft2", "hfft2")
    ),
    *(function(f"fft.{name}", "a . . -> a . .", getattr(torch.fft, name), x(2, 6, 5)) for name in ("rfft2", "ihfft2")),
    *(
        function(f"fft.{name}", ". . . -> . . .", getattr(torch.fft, name), z(2, 6, 5))
        for name in ("fftn", "ifftn", "irfftn", "hfftn")
    ),
    *(function(f"fft.{name}", ". . . -> . . .", getattr(torch.fft, name), x(2, 6, 5)) for name in ("rfftn", "ihfftn")),
    *(
        function(f"fft.{name}", ". . . -> . . .", getattr(torch.fft, name), x(2, 6, 5))
        for name in ("fftshift", "ifftshift")
    ),
    function(
        "stft", "a . -> a . .", lambda a: torch.stft(a, 4, return_complex=True, window=torch.hann_window(4)), x(2, 12)
    ),
]

EXAMPLES = [*PRODUCTS, *LAYERS, *POSITIONS, *MEMORY, *SIGNALS]
