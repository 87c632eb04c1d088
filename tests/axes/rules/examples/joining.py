"""Examples for rules/joining.py."""

from __future__ import annotations

import torch

from axes.rules.harness import example, idle, x

EXAMPLES = [
    *(
        example(f"aten::{name}", "a b c, a d c -> a (b+d) c", [x(2, 3, 5), x(2, 7, 5)], 1)
        for name in ("cat", "concat", "concatenate")
    ),
    example("aten::cat", "a, b, . -> (a+b)", [x(2), x(3), x(0)], 0),
    example("aten::cat", "a b, a c, a d -> a (b+c+d)", [x(2, 3), x(2, 3), x(2, 5)], -1),
    example("aten::_chunk_cat", "a (. b) c, a (. d) e -> a . ((b c)+(d e))", [x(2, 6, 5), x(2, 10, 3)], 1, 2),
    example("aten::_chunk_cat", ". a, (. b) -> . ((. a)+b)", [x(5, 3), x(4)], 0, 2),
    *(example(f"aten::{name}", "a b, a b -> a . b", [x(2, 5), x(2, 5)], 1) for name in ("stack", "_stack")),
    *(
        example(f"aten::{name}.Tensor", "a (b+c+d) e -> a b e, a c e, a d e", x(2, 8, 5), 3, 1)
        for name in ("split", "unsafe_split", "split_copy")
    ),
    *(
        example(f"aten::{name}", "a (b+c+d) e -> a b e, a c e, a d e", x(2, 10, 3), [2, 3, 5], 1)
        for name in ("split_with_sizes", "unsafe_split_with_sizes", "split_with_sizes_copy")
    ),
    *(example(f"aten::{name}", "(a+b) c -> a c, b c", x(6, 5), 2) for name in ("chunk", "unsafe_chunk")),
    example("aten::split.sizes", "a (b+c) -> a b, a c", x(2, 8), [3, 5], 1),
    example("aten::tensor_split.sections", "(a+b) c -> a c, b c", x(7, 5), 2),
    example(
        "aten::tensor_split.tensor_indices_or_sections", "(a+b+c) d, . -> a d, b d, c d", x(7, 5), torch.tensor([2, 4])
    ),
    *(example(f"aten::{name}.Tensor", "(a+b+c) d -> b d", x(11, 3), 0, 2, 7) for name in ("slice", "slice_copy")),
    example("aten::slice.Tensor", "a b -> a b", x(2, 3), 1, 0, 99),
    example("aten::slice.Tensor", "a (b+c) -> a c", x(2, 8), 1, -5),
    example("aten::slice.Tensor", "(a .) b -> a b", x(6, 5), 0, 1, 6, 3),
    example("aten::slice.Tensor", ". a -> . a", x(7, 5), 0, 0, 7, 2),
    example("aten::slice.Tensor", "(a+1+b) c -> 1 c", x(6, 5), 0, 2, 3),
    *(example(f"aten::{name}", "a (b+c+d) -> a c", x(3, 10), 1, 2, 3) for name in ("narrow", "narrow_copy")),
    *(example(f"aten::{name}.int", "a . b -> a b", x(2, 7, 3), 1, 2) for name in ("select", "select_copy")),
    *(example(f"aten::{name}.int", ". a b -> a b, a b", x(2, 3, 5), 0) for name in ("unbind", "unbind_copy")),
    example("aten::select_scatter", "a . b, a b -> a . b", x(2, 7, 3), x(2, 3), 1, 4),
    idle(example("aten::slice_scatter", "(a+b+c) d, b d -> (a+b+c) d", x(10, 7), x(3, 7), 0, 2, 5)),
    idle(example("aten::slice_scatter", "a b, a b -> a b", x(3, 7), x(3, 7))),
    example("aten::diagonal_scatter", ". ., . -> . .", x(5, 5), x(5)),
    example("aten::as_strided_scatter", ". ., . . -> . .", x(3, 5), x(2, 2), [2, 2], [1, 2]),
    example("aten::constant_pad_nd", "a b c -> a (.+b+.) (c+.)", x(2, 3, 5), [0, 2, 3, 2], 0.5),
    example("aten::constant_pad_nd", "a (b+c) -> a (c+.)", x(2, 7), [-2, 3], 0.0),
    example("aten::constant_pad_nd", "a (b+c+d) -> a c", x(2, 10), [-2, -5], 0.0),
    example("aten::pad", "a b -> a (.+b+.)", x(3, 5), [2, 3]),
    example("aten::pad", "a b . -> a b .", x(2, 3, 5), [2, 3], "reflect"),
    example("aten::pad", "a b . . -> a b . .", x(2, 3, 5, 7), [2, 3, 1, 2], "circular"),
    example("aten::block_diag", "a b, c d -> (a+c) (b+d)", [x(2, 3), x(5, 7)]),
    example("aten::block_diag", "a b, c, () -> (a+1+1) (b+c+1)", [x(2, 3), x(5), x()]),
    example("aten::meshgrid", "a, b, c -> a b c, a b c, a b c", [x(2), x(3), x(5)]),
    example("aten::meshgrid.indexing", "a, b, c -> b a c, b a c, b a c", [x(2), x(3), x(5)], indexing="xy"),
    # samples of two, one and three rows, each of five features
    example("aten::_jagged_to_padded_dense_forward", ". a, . -> . . a", x(6, 5), [torch.tensor([0, 2, 3, 6])], [3]),
    example(
        "aten::_jagged_to_padded_dense_forward", ". a b, . -> . . a b", x(6, 5, 2), [torch.tensor([0, 2, 3, 6])], [4]
    ),
    example("aten::_padded_dense_to_jagged_forward", ". . a, . -> . a", x(3, 3, 5), [torch.tensor([0, 2, 3, 6])], 6),
]
