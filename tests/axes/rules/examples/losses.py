"""Examples for rules/losses.py."""

from __future__ import annotations

import torch
import torch.nn.modules.linear_cross_entropy  # which registers the operators of that loss

from axes.rules.harness import example, ints, positive, shapes_only, x

_NONE, _MEAN = 0, 1

EXAMPLES = [
    *(
        example(f"aten::{name}", "a b, a b -> a b", x(2, 3), positive(2, 3), _NONE)
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")
    ),
    example("aten::mse_loss", "a b, a b -> ()", x(2, 3), x(2, 3), _MEAN),
    example("aten::binary_cross_entropy", "a b, a b, b -> a b", positive(2, 3), positive(2, 3), positive(3), _NONE),
    example(
        "aten::binary_cross_entropy_with_logits",
        "a b, a b, a 1, b -> ()",
        x(2, 3),
        positive(2, 3),
        positive(2, 1),
        positive(3),
    ),
    example("aten::nll_loss_forward", "a ., a, . -> (), ()", x(5, 3), ints(3, 5), positive(3), _MEAN, -100),
    example("aten::nll_loss_forward", "a ., a -> a, ()", x(5, 3), ints(3, 5), None, _NONE, -100),
    example("aten::nll_loss_forward", "., () -> (), ()", x(3), ints(3, 1)[0], None, _MEAN, -100),
    example(
        "aten::nll_loss2d_forward",
        "a . b c, a b c, . -> a b c, ()",
        x(2, 3, 5, 7),
        ints(3, 2, 5, 7),
        positive(3),
        _NONE,
        -100,
    ),
    example("aten::multi_margin_loss", "(), () -> ()", x(), ints(1, 1)[0]),
    example("aten::multi_margin_loss", "a ., a, . -> a", x(5, 3), ints(3, 5), 1, 1.0, positive(3), _NONE),
    example(
        "aten::multilabel_margin_loss_forward",
        "a ., a . -> a, a .",
        x(5, 3),
        torch.tensor([[1, 0, -1]] * 4 + [[2, -1, 0]]),
        _NONE,
    ),
    shapes_only(
        example(
            "aten::_ctc_loss", ". . ., . . -> ., . . .", x(7, 2, 5).log_softmax(-1), 1 + ints(4, 2, 3), [7, 7], [3, 2]
        ),
        results=1,
    ),
    example(
        "torch_nn::_linear_cross_entropy_batch_chunked",
        "a b, . b, a, ., . -> (), a b, . b, .",
        x(5, 3),
        x(7, 3),
        ints(7, 5),
        x(7),
        positive(7),
        "mean",
        -100,
        0.0,
        2,
        "precise",
        torch.float64,
        False,
        True,
        True,
        True,
    ),
    example(
        "torch_nn::_linear_cross_entropy_batch_chunked",
        "a b, . b, a . -> (), . ., . ., .",
        x(5, 3),
        x(7, 3),
        positive(5, 7),
        None,
        None,
        "sum",
        -100,
        0.0,
        2,
        "precise",
        torch.float64,
        False,
        False,
        False,
        False,
    ),
    example(
        "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
        "a b, . b, a, ., . -> a",
        x(5, 3),
        x(7, 3),
        ints(7, 5),
        x(7),
        positive(7),
        -100,
        2,
        "precise",
        torch.float64,
    ),
]
