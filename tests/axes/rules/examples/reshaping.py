"""Examples for rules/reshaping.py."""

from __future__ import annotations

import torch

from axes.rules.harness import example, idle, x

_VIEWS = ["view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy"]

EXAMPLES = [
    # several to one, one to several, both, with ones in between
    *(example(f"aten::{name}", "a b c -> a (b c)", x(2, 3, 5), [2, 15]) for name in _VIEWS),
    example("aten::view", "a (b c) -> a b c", x(2, 15), [2, 3, 5]),
    example("aten::view", "a (b c) d -> (a b) (c d)", x(2, 6, 5), [6, 10]),
    example("aten::view", "(a b) (c d) -> a (b c) d", x(6, 10), [2, 6, 5]),
    example("aten::view", "a 1 b -> 1 a b 1", x(2, 1, 3), [1, 2, 3, 1]),
    example("aten::view", "a -> 1 a 1 1", x(18), [1, 18, 1, 1]),
    example("aten::view", "() -> 1 1", x(), [1, 1]),
    example("aten::view.dtype", "a . -> a .", x(2, 3), torch.float32),
    example("aten::view.dtype", "a b -> a b", x(2, 3), torch.int64),
    example("aten::_reshape_alias", "a b c -> a (b c)", x(2, 3, 5), [2, 15], [15, 1]),
    *(example(f"aten::{name}", "a b c -> c a b", x(2, 3, 5), [2, 0, -2]) for name in ("permute", "permute_copy")),
    *(example(f"aten::{name}", "a b c -> c b a", x(2, 3, 5), 0, -1) for name in ("swapaxes", "swapdims")),
    *(example(f"aten::{name}.int", "a b c -> c b a", x(2, 3, 5), 0, -1) for name in ("transpose", "transpose_copy")),
    *(example(f"aten::{name}", "a b -> b a", x(2, 3)) for name in ("t", "t_copy")),
    example("aten::t", "a -> a", x(3)),
    example("aten::numpy_T", "a b -> b a", x(2, 3)),
    example("aten::movedim.intlist", "a b c d -> c a b d", x(2, 3, 5, 7), [2], [0]),
    example("aten::movedim.int", "a b c -> b c a", x(2, 3, 5), 0, -1),
    *(example(f"aten::{name}", "a 1 b 1 -> a b", x(2, 1, 3, 1)) for name in ("squeeze", "squeeze_copy")),
    example("aten::squeeze.dim", "a 1 b 1 -> a 1 b", x(2, 1, 3, 1), -1),
    example("aten::squeeze.dims", "a 1 b 1 -> a b 1", x(2, 1, 3, 1), [0, 1]),
    *(example(f"aten::{name}", "a b -> a b 1", x(2, 3), -1) for name in ("unsqueeze", "unsqueeze_copy")),
    *(
        example(f"aten::{name}", "a 1 -> ~b a ~c", x(3, 1), [2, 3, 5])
        for name in ("expand", "expand_copy", "broadcast_to")
    ),
    example("aten::expand_as", "a 1, b c d -> ~e a ~f", x(3, 1), x(2, 3, 5)),
    example("aten::repeat", "a b 1 -> ~c (. a) b ~d", x(2, 3, 1), [5, 3, 1, 7]),
    example("aten::tile", "a b -> a (. b)", x(2, 3), [5]),
    example("aten::repeat_interleave.self_int", "a b -> a (b .)", x(2, 3), 5, 1),
    example("aten::repeat_interleave.self_int", "a b -> (a b .)", x(2, 3), 5),
    example("aten::repeat_interleave.self_Tensor", "a b, 1 -> a (b .)", x(2, 3), torch.tensor([5]), 1),
    example("aten::repeat_interleave.self_Tensor", "a ., . -> a .", x(2, 3), torch.tensor([1, 2, 4]), -1),
    example("aten::repeat_interleave.Tensor", ". -> .", torch.tensor([1, 2, 4])),
    example("aten::as_strided", "a b -> a b", x(2, 3), [2, 3], [3, 1]),
    *(example(f"aten::{name}", "a b -> b a", x(2, 3), [3, 2], [1, 3]) for name in ("as_strided", "as_strided_copy")),
    # overlapping windows, each with all of its features; steps that run over the end of a row; the diagonal
    example("aten::as_strided", "a . b -> a . . b", x(3, 7, 5), [3, 3, 3, 5], [35, 10, 5, 1]),
    example("aten::as_strided", "a . . -> a .", x(3, 4, 5), [3, 7], [20, 3]),
    example("aten::as_strided", ". . -> . .", x(4, 5), [2, 5], [3, 1]),
    example("aten::as_strided", ". . -> .", x(5, 5), [5], [6]),
    # windows that overlap: only the dimension they walk along is fixed
    example("aten::as_strided", "a . b -> a . . b", x(2, 6, 3), [2, 3, 4, 3], [18, 3, 3, 1]),
    example("aten::as_strided", "a . -> a .", x(2, 3), [2, 2], [3, 1]),
    example("aten::as_strided", ". . -> . .", x(2, 6), [3, 4], [2, 1]),
    example("aten::as_strided", ". . -> . .", x(3, 3), [2, 3], [3, 1], 1),
    example("aten::resize", "a b -> a b", x(2, 3), [2, 3]),
    example("aten::resize", ". . -> .", x(2, 3), [5]),
    idle(example("aten::resize_as_", "a b, a b -> a b", x(2, 3), x(2, 3))),
    *(example(f"aten::{name}", "a b a -> b a", x(3, 2, 3), 0, 0, 2) for name in ("diagonal", "diagonal_copy")),
    example("aten::diagonal", ". . a -> a .", x(3, 3, 2), 1),
    example("aten::diagonal", ". . a -> a .", x(3, 5, 2)),
    example("aten::diag_embed", "a b -> a b b", x(2, 3)),
    example("aten::diag_embed", "a b -> b b a", x(2, 3), 0, 0, 1),
    example("aten::diag_embed", "a . -> a . .", x(2, 3), 1),
]
