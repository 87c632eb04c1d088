"""Examples for rules/ordering.py."""

from __future__ import annotations

import torch

from axes.rules.harness import example, idle, ints, positive, shapes_only, x

_EDGES = torch.tensor([[0.0, 1.0, 2.0], [-1.0, 0.0, 0.5]]).double()
_TRUE = torch.tensor([[True, True, False], [False, True, False]])
_CHOSEN = torch.tensor([2, 0, 1, 1, 3])

EXAMPLES = [
    *(
        example(f"aten::{name}", "a . b -> a . b", x(2, 3, 5), 1)
        for name in ("cumsum", "cumprod", "logcumsumexp", "_logcumsumexp")
    ),
    *(example(f"aten::{name}", "a . b -> a . b, a . b", x(2, 3, 5), 1) for name in ("cummax", "cummin")),
    *(
        idle(example(f"aten::{name}", "a . b, a . b, a . b -> none", x(2, 3, 5), x(2, 3, 5), ints(3, 2, 3, 5), 1))
        for name in ("_cummax_helper", "_cummin_helper")
    ),
    example("aten::diff", "a . b -> a . b", x(2, 3, 5), 1, 1),
    example("aten::diff", "a . b, a . b -> a . b", x(2, 3, 5), 1, 1, x(2, 7, 5)),
    example("aten::sort", "a . b -> a . b, a . b", x(2, 3, 5), 1),
    example("aten::sort.stable", "a b . -> a b ., a b .", x(2, 3, 5), stable=True),
    example("aten::topk", "a . b -> a . b, a . b", x(2, 7, 5), 3, 1),
    example("aten::argsort", "a . b -> a . b", x(2, 3, 5), 1),
    example("aten::msort", ". a b -> . a b", x(2, 3, 5)),
    example("aten::flip", ". a . -> . a .", x(2, 3, 5), [0, -1]),
    example("aten::fliplr", "a . b -> a . b", x(2, 3, 5)),
    example("aten::flipud", ". a b -> . a b", x(2, 3, 5)),
    example("aten::roll", "a . b -> a . b", x(2, 3, 5), [1], [1]),
    example("aten::roll", ". . -> . .", x(2, 3), [1]),
    example("aten::rot90", ". a . -> . a .", x(2, 3, 5), 1, [0, 2]),
    *(example(f"aten::{name}", "a . . -> a . .", x(2, 3, 5)) for name in ("tril", "triu")),
    example("aten::bucketize.Tensor", "a b, . -> a b", x(2, 3), torch.tensor([0.0, 1.0, 2.0])),
    example("aten::searchsorted.Tensor", "., a b -> a b", _EDGES[0], x(2, 3)),
    example("aten::searchsorted.Tensor", "a ., a b -> a b", _EDGES, x(2, 5)),
    example("aten::searchsorted.Scalar", ". -> ()", _EDGES[0], 0.5),
    example("aten::isin.Tensor_Tensor", "a b, c -> a b", ints(7, 2, 3), torch.tensor([1, 2, 5, 6])),
    example("aten::isin.Tensor_Scalar", "a b -> a b", ints(7, 2, 3), 2),
    example("aten::isin.Scalar_Tensor", "a -> ()", 5, ints(7, 3)),
    # which ones depends on the data
    example("aten::nonzero", ". . -> . .", _TRUE),
    example("aten::nonzero_static", ". . -> . .", _TRUE, size=4),
    example("aten::argwhere", ". . -> . .", _TRUE),
    example("aten::masked_select", ". ., . . -> .", x(2, 3), _TRUE),
    example("aten::unique_consecutive", ". -> ., ., .", _CHOSEN),
    example("aten::_unique2", ". -> ., ., .", _CHOSEN, True, True, True),
    example("aten::_unique", ". -> ., .", _CHOSEN),
    *(example(f"aten::{name}", ". . -> . ., ., .", x(3, 2), 0) for name in ("unique_dim", "unique_dim_consecutive")),
    example("aten::bincount", ". -> .", _CHOSEN),
    example("aten::histc", ". . -> .", x(2, 3), 5),
    example("aten::histogram.bin_ct", ". . -> ., .", x(2, 3), 5),
    example("aten::_histogramdd_bin_edges", ". . -> ., .", x(7, 2), [3, 5]),
    example("aten::_histogramdd_from_bin_cts", ". . -> . .", x(7, 2), [3, 5]),
    example("aten::_histogramdd_from_bin_tensors", ". ., ., . -> . .", x(7, 2), [_EDGES[0], _EDGES[1]]),
    shapes_only(example("aten::multinomial", ". . -> . .", positive(2, 5), 3)),
    # read by Python
    example("aten::_local_scalar_dense", "1 -> none", x(1)),
    example("aten::is_nonzero", "1 -> none", x(1)),
    example("aten::equal", ". ., . . -> none", x(2, 3), x(2, 3)),
    example("aten::allclose", ". ., . . -> none", x(2, 3), x(2, 3)),
    example("aten::_assert_async", "1 -> none", torch.tensor([True])),
    example("aten::_assert_tensor_metadata", ". . -> none", x(2, 3), [2, 3]),
    example("aten::_functional_assert_async.msg", "(), . -> .", torch.tensor(True), "a message", x(3)),
]
