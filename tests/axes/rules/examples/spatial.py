"""Examples for rules/spatial.py: positions are frozen, samples and channels are kept."""

from __future__ import annotations

from typing import Any

import torch

from axes.rules.harness import Example, as_if, example, ints, positive, x

_POSITIONS = {1: [7], 2: [7, 11], 3: [7, 11, 5]}


def _kept(name: str, count: int, *args: Any, results: int = 1) -> Example:
    """Something that walks over the last `count` dimensions and keeps those before."""
    dots = " ".join(["."] * count)
    terms = ", ".join([f"a b {dots}"] * results)
    return example(f"aten::{name}", f"a b {dots} -> {terms}", x(2, 3, *_POSITIONS[count]), *args)


def _unpool(name: str, count: int, *args: Any) -> Example:
    """What was pooled goes back to its places."""
    dots = " ".join(["."] * count)
    shape = (2, 3, *(7, 5, 11)[:count])
    whole = 4 * 7 * 5 * (11 if count == 3 else 1)
    places = ints(whole, 2, 3, *shape[2:]).sort(-1).values
    return example(f"aten::{name}", f"a b {dots}, a b {dots} -> a b {dots}", x(*shape), places, *args)


EXAMPLES = [
    *(_kept(f"max_pool{n}d", n, [2] * n) for n in (1, 2, 3)),
    # a window of one position walks over nothing
    example("aten::avg_pool2d", "a b . c -> a b . c", x(2, 3, 7, 11), [5, 1], [1]),
    example("aten::avg_pool3d", "a . b c -> a . b c", x(2, 7, 11, 5), [5, 1, 1], [1]),
    example("aten::max_pool2d", "a b . c -> a b . c", x(2, 3, 7, 11), [2, 1], [1, 1]),
    example("aten::max_pool2d_with_indices", "a b . . -> a b . ., a b . .", x(2, 3, 7, 11), [2, 1], [1, 1]),
    example("aten::reflection_pad2d", "a b c . -> a b c .", x(2, 3, 7, 11), [1, 2, 0, 0]),
    example("aten::replication_pad3d", "a b . c . -> a b . c .", x(2, 3, 7, 11, 5), [1, 0, 0, 0, 2, 1]),
    _kept("max_pool1d_with_indices", 1, [2], results=2),
    _kept("max_pool2d_with_indices", 2, [2, 3], results=2),
    _kept("max_pool3d_with_indices", 3, [2, 3, 2], results=2),
    *(as_if(_kept(f"mkldnn_max_pool{n}d", n, [2] * n), getattr(torch, f"max_pool{n}d")) for n in (2, 3)),
    *(_kept(f"avg_pool{n}d", n, [2] * n) for n in (1, 2, 3)),
    *(_kept(f"adaptive_max_pool{n}d", n, [2] * n, results=2) for n in (1, 2, 3)),
    *(_kept(f"adaptive_avg_pool{n}d", n, [2] * n) for n in (1, 2, 3)),
    *(_kept(f"_adaptive_avg_pool{n}d", n, [2] * n) for n in (2, 3)),
    example("aten::max_pool2d_with_indices", "a . . -> a . ., a . .", x(3, 7, 11), [2, 2]),
    example(
        "aten::fractional_max_pool2d",
        "a b . ., a b . -> a b . ., a b . .",
        x(2, 3, 17, 23),
        [2, 2],
        [5, 7],
        positive(2, 3, 2),
    ),
    example(
        "aten::fractional_max_pool3d",
        "a b . . ., a b . -> a b . . ., a b . . .",
        x(2, 3, 7, 11, 6),
        [2, 2, 2],
        [3, 5, 2],
        positive(2, 3, 3),
    ),
    _unpool("max_unpool2d", 2, [14, 10]),
    _unpool("max_unpool3d", 3, [14, 10, 11], [2, 2, 1], [0, 0, 0]),
    *(_kept(f"{kind}_pad{n}d", n, [1, 2] * n) for kind in ("reflection", "replication") for n in (1, 2, 3)),
    *(_kept(f"{kind}{n}d", n, [13] * n) for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    _kept("upsample_linear1d", 1, [13], False),
    *(
        _kept(name, 2, [13, 5], True)
        for name in ("upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
    ),
    _kept("_upsample_lanczos2d_aa", 2, [13, 5], False),
    _kept("upsample_trilinear3d", 3, [13, 5, 3], False),
    example("aten::grid_sampler_2d", "a b . ., a c d . -> a b c d", x(2, 3, 7, 11), positive(2, 5, 13, 2), 0, 0, False),
    example(
        "aten::grid_sampler_3d",
        "a b . . ., a c d e . -> a b c d e",
        x(2, 3, 7, 11, 5),
        positive(2, 5, 13, 4, 3),
        0,
        0,
        False,
    ),
    example("aten::grid_sampler", "a b . ., a c d . -> a b c d", x(2, 3, 7, 11), positive(2, 5, 13, 2), 0, 0, False),
    as_if(
        example("aten::cudnn_grid_sampler", "a b . ., a c d . -> a b c d", x(2, 3, 7, 11), positive(2, 5, 13, 2)),
        lambda image, grid: torch.grid_sampler(image, grid, 0, 0, True),
    ),
    example("aten::affine_grid_generator", "a . . -> a . . .", x(2, 2, 3), [2, 3, 5, 7], False),
    example("aten::im2col", "a b . . -> a (b .) .", x(2, 3, 7, 11), [2, 3], [1, 1], [0, 0], [1, 1]),
    example("aten::im2col", "a . . -> (a .) .", x(3, 7, 11), [2, 3], [1, 1], [0, 0], [1, 1]),
    example("aten::col2im", "a (b .) . -> a b . .", x(2, 18, 54), [7, 11], [2, 3], [1, 1], [0, 0], [1, 1]),
    example("aten::unfold", "a . b -> a . b .", x(2, 7, 3), 1, 3, 2),
    example("aten::unfold_copy", "a . b -> a . b .", x(2, 7, 3), 1, 3, 2),
    example("aten::pixel_shuffle", "a (b . .) c d -> a b (c .) (d .)", x(2, 12, 5, 7), 2),
    example("aten::pixel_unshuffle", "a b (c .) (d .) -> a (b . .) c d", x(2, 3, 10, 14), 2),
    example("aten::pixel_unshuffle", "a 1 b c -> a 1 b c", x(2, 1, 3, 5), 1),
    example("aten::channel_shuffle", "a (b c) d e -> a (c b) d e", x(2, 6, 5, 7), 2),
    example("aten::native_channel_shuffle", "a (b c) d e -> a (c b) d e", x(2, 6, 5, 7), 2),
]
