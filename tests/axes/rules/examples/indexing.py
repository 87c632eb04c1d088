"""Examples for rules/indexing.py."""

from __future__ import annotations

import torch

from axes.rules.harness import example, ints, mask, positive, shapes_only, x

_BAGS = torch.tensor([0, 2, 5])
_PLACES = torch.rand(2, 11, 3, generator=torch.Generator().manual_seed(0)).argsort(1)[:, :5]  # no place twice
_ROWS = torch.tensor([[True, False], [False, True], [True, True]])

EXAMPLES = [
    example("aten::embedding", ". a, b c -> b c a", x(11, 3), ints(11, 2, 5)),
    example("aten::embedding_renorm", ". a, b -> . a", x(11, 3), ints(11, 5), 0.5, 2.0),
    *(
        shapes_only(example(f"aten::{name}", ". a, ., . -> . a, ., ., .", x(11, 3), ints(11, 7), _BAGS), results=1)
        for name in ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
    ),
    shapes_only(
        example(
            "aten::_embedding_bag", ". a, ., ., . -> . a, ., ., .", x(11, 3), ints(11, 7), _BAGS, False, 0, False, x(7)
        ),
        results=1,
    ),
    shapes_only(
        example(
            "aten::_embedding_bag", ". a, ., . -> . a, ., ., . a", x(11, 3), ints(11, 7), torch.tensor([0, 2]), False, 2
        ),
        results=1,
    ),
    # indexing: side by side, apart, several, none at the front
    example("aten::index.Tensor", ". a b, c -> c a b", x(11, 3, 5), [ints(11, 7)]),
    example("aten::index.Tensor", "a . b, c d -> a c d b", x(3, 11, 5), [None, ints(11, 2, 7)]),
    example("aten::index.Tensor", "a . . b, c, d c -> a d c b", x(3, 11, 13, 5), [None, ints(11, 7), ints(13, 2, 7)]),
    example("aten::index.Tensor", ". a . b, c, c -> c a b", x(11, 3, 13, 5), [ints(11, 7), None, ints(13, 7)]),
    example("aten::index.Tensor", ". a b, () -> a b", x(11, 3, 5), [ints(11, 1)[0]]),
    example("aten::index.Tensor", ". . a, . . -> . a", x(3, 2, 7), [_ROWS]),
    example("aten::index.Tensor", "a . b, . -> a . b", x(3, 4, 7), [None, torch.tensor([True, False, True, True])]),
    example("aten::index.Tensor", ". . . a, . ., . -> . a", x(3, 2, 11, 7), [_ROWS, ints(11, 4)]),
    example("aten::_unsafe_index.Tensor", ". a b, c -> c a b", x(11, 3, 5), [ints(11, 7)]),
    example(
        "aten::_unsafe_masked_index",
        "a . ., b c, b c, b c -> a b c",
        x(3, 11, 13),
        mask(2, 7),
        [None, ints(11, 2, 7), ints(13, 2, 7)],
        0.5,
    ),
    # writing
    *(
        example(f"aten::{name}", ". a b, c, c a b -> . a b", x(11, 3, 5), [ints(11, 7)], x(7, 3, 5))
        for name in ("index_put", "_unsafe_index_put", "_index_put_impl")
    ),
    example("aten::index_put_", "a . b, c, a c 1 -> a . b", x(3, 11, 5), [None, ints(11, 7)], x(3, 7, 1)),
    example(
        "aten::index_put",
        ". a . b, c, c, c a 1 -> . a . b",
        x(11, 3, 13, 5),
        [ints(11, 7), None, ints(13, 7)],
        x(7, 3, 1),
    ),
    example("aten::index_put", ". a b, c, b -> . a b", x(11, 3, 5), [ints(11, 7)], x(5), True),
    example("aten::index_put", "a b c, a b, () -> a b c", x(3, 2, 7), [_ROWS], x()),
    example("aten::index_put", "a b c, a b, 1 c -> a b c", x(3, 2, 7), [_ROWS], x(1, 7)),
    example("aten::index_put", ". . a, . ., . a -> . . a", x(3, 2, 7), [_ROWS], x(4, 7)),
    example(
        "aten::_unsafe_masked_index_put_accumulate",
        "a ., b, b, a b -> a .",
        x(3, 11),
        mask(7),
        [None, ints(11, 7)],
        x(3, 7),
    ),
    example("aten::masked_scatter", ". ., . ., . -> . .", x(3, 2), _ROWS, x(6)),
    example("aten::masked_scatter", ". ., ., . -> . .", x(3, 2), torch.tensor([True, False]), x(6)),
    example("aten::masked_scatter", ". . a, . . 1, . . a -> . . a", x(3, 2, 7), _ROWS.unsqueeze(-1), x(2, 2, 7)),
    # along one dimension
    example("aten::index_select", "a . b, c -> a c b", x(2, 11, 3), 1, ints(11, 5)),
    example("aten::index_select", "a . b, () -> a 1 b", x(2, 11, 3), 1, ints(11, 1)[0]),
    example("aten::gather", "a . b, a c b -> a c b", x(2, 11, 3), 1, ints(11, 2, 5, 3)),
    example("aten::gather", "a . ., a b . -> a b .", x(2, 11, 7), 1, ints(11, 2, 5, 3)),
    example("aten::scatter.src", "a . b, a c b, a c b -> a . b", x(2, 11, 3), 1, _PLACES, x(2, 5, 3)),
    example("aten::scatter.src", "a . b, a . b, a . b -> a . b", x(2, 11, 3), 1, _PLACES, x(2, 7, 3)),
    example("aten::scatter.value", "a . ., a b . -> a . .", x(2, 11, 7), 1, ints(11, 2, 5, 3), 0.5),
    example("aten::scatter_add", "a . ., a b ., a b . -> a . .", x(2, 11, 7), 1, ints(11, 2, 5, 3), x(2, 5, 3)),
    example(
        "aten::scatter_reduce.two",
        "a . b, a c b, a c b -> a . b",
        x(2, 11, 3),
        1,
        ints(11, 2, 5, 3),
        positive(2, 5, 3),
        "prod",
    ),
    example("aten::index_add", "a . b, c, a c b -> a . b", x(2, 11, 3), 1, ints(11, 5), x(2, 5, 3)),
    example("aten::index_copy", "a . b, c, a c b -> a . b", x(2, 11, 3), 1, ints(11, 5), x(2, 5, 3)),
    example("aten::index_reduce", "a . b, c, a c b -> a . b", x(2, 11, 3), 1, ints(11, 5), x(2, 5, 3), "amax"),
    example("aten::index_fill.int_Scalar", "a . b, c -> a . b", x(2, 11, 3), 1, ints(11, 5), 0.5),
    example("aten::index_fill.int_Tensor", "a . b, c, () -> a . b", x(2, 11, 3), 1, ints(11, 5), x()),
    example("aten::take", ". ., a b -> a b", x(3, 7), ints(21, 2, 5)),
    example("aten::put", ". ., a b, a b -> . .", x(3, 7), ints(21, 2, 5), x(2, 5)),
    example("aten::put", ". ., ., . . -> . .", x(3, 7), ints(21, 10), x(2, 5)),
    example("aten::one_hot", "a b -> a b .", ints(7, 2, 3), 7),
]
