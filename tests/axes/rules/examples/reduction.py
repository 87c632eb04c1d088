"""Examples for rules/reduction.py."""

from __future__ import annotations

import torch

from axes.rules.harness import example, mask, positive, x

_WHOLE = [
    "mean",
    "sum",
    "nansum",
    "nanmean",
    "amax",
    "amin",
    "prod",
    "any",
    "all",
    "norm.Scalar",
    "count_nonzero",
    "linalg_vector_norm",
    "linalg_norm",
    "linalg__powsum",
    "max",
    "min",
    "median",
    "nanmedian",
    "var",
    "std",
]
_ALONG = [
    "mean.dim",
    "sum.dim_IntList",
    "nansum",
    "nanmean",
    "amax",
    "amin",
    "any.dims",
    "all.dims",
    "logsumexp",
    "count_nonzero.dim_IntList",
    "var.correction",
    "std.correction",
]

EXAMPLES = [
    *(example(f"aten::{name}", "a b -> ()", x(2, 3)) for name in _WHOLE),
    *(example(f"aten::{name}", "a b -> ()", mask(2, 3)) for name in ("_is_all_true", "_is_any_true")),
    example("aten::hash_tensor", "a b c -> a c", x(2, 3, 5), [1]),
    *(example(f"aten::{name}", "a b -> (), ()", x(2, 3)) for name in ("aminmax", "_aminmax", "var_mean", "std_mean")),
    *(example(f"aten::{name}", "a b c -> b", x(2, 3, 5), [0, -1]) for name in _ALONG),
    example("aten::sum.dim_IntList", "a b c -> a 1 c", x(2, 3, 5), [1], True),
    example("aten::sum.dim_IntList", "a b c -> ()", x(2, 3, 5), []),
    example("aten::sum.dim_IntList", "a b c -> 1 1 1", x(2, 3, 5), None, True),
    example("aten::any.dims", "a b -> a b", mask(2, 3), []),
    example("aten::prod.dim_int", "a b c -> a c", x(2, 3, 5), 1),
    example("aten::var.dim", "a b c -> a c", x(2, 3, 5), [1]),
    example("aten::linalg_vector_norm", "a b c -> a 1 c", x(2, 3, 5), 3, [1], True),
    example("aten::linalg_norm", "a b c -> b", x(2, 3, 5), 2, [0, 2]),
    example("aten::norm.ScalarOpt_dim", "a b c -> a c", x(2, 3, 5), 2, [1]),
    example("aten::linalg__powsum", "a b c -> a c", x(2, 3, 5), 2, [1]),
    example("aten::aminmax", "a b c -> a c, a c", x(2, 3, 5), dim=1),
    example("aten::_aminmax.dim", "a b c -> a c, a c", x(2, 3, 5), 1),
    *(
        example(f"aten::{name}.correction", "a b c -> a 1 c, a 1 c", x(2, 3, 5), [1], keepdim=True)
        for name in ("var_mean", "std_mean")
    ),
    # where an index is returned
    *(
        example(f"aten::{name}.dim", "a . b -> a b, a b", x(2, 3, 5), 1)
        for name in ("max", "min", "median", "nanmedian")
    ),
    example("aten::mode", "a . b -> a b, a b", x(2, 3, 5), 1),
    example("aten::kthvalue", "a . b -> a 1 b, a 1 b", x(2, 3, 5), 2, 1, True),
    *(example(f"aten::{name}", "a . b -> a b", x(2, 3, 5), 1) for name in ("argmax", "argmin")),
    example("aten::argmax", ". . -> ()", x(2, 3)),
    *(example(f"aten::{name}.other", "a b, b -> a b", x(2, 3), x(3)) for name in ("max", "min")),
    *(example(f"aten::{name}", "a b c -> a b c", x(2, 3, 5), 1, False) for name in ("_softmax", "_log_softmax")),
    *(example(f"aten::{name}.int", "a b c -> a b c", x(2, 3, 5), 1) for name in ("softmax", "log_softmax")),
    example("aten::_safe_softmax", "a b c -> a b c", x(2, 3, 5), 1),
    # masks of (queries, keys), of (batch, keys), and of all scores
    example("aten::_masked_softmax", "a b c d, c d -> a b c d", x(2, 3, 5, 5), mask(5, 5), 3, 0),
    example("aten::_masked_softmax", "a b c d, a d -> a b c d", x(2, 3, 5, 5), mask(2, 5), 3, 1),
    example("aten::_masked_softmax", "a b c d, a b c d -> a b c d", x(2, 3, 5, 5), mask(2, 3, 5, 5), 3, 2),
    example("aten::dist", "a b, b -> ()", x(2, 3), x(3)),
    example("aten::trace", "a a -> ()", x(5, 5)),
    example("aten::trace", ". . -> ()", x(3, 5)),
    example("aten::segment_reduce", ". a, . -> . a", positive(7, 3), "sum", lengths=torch.tensor([2, 4, 1])),
    example(
        "aten::segment_reduce",
        ". . a, . . -> . . a",
        positive(2, 5, 3),
        "max",
        lengths=torch.tensor([[2, 3], [4, 1]]),
        axis=1,
    ),
]
