"""Examples for rules/normalization.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axes.rules.harness import Example, as_if, example, idle, positive, shapes_only, x

PLAIN = "a b c, b, b, b, b -> a b c"


def _tensors() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Samples, a gain, a bias, a mean and a variance."""
    return x(2, 3, 5), x(3), x(3), x(3), positive(3)


def _normalised(given: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return torch.nn.functional.batch_norm(given, mean, variance, gain, bias)


def _on_cuda(name: str, results: int) -> Example:
    """A batch normalisation on a GPU; statistics follow the first result."""

    def run(*given: Any) -> Any:
        statistics = [torch.zeros(3), torch.zeros(3), torch.zeros(0)]
        return (_normalised(*given[:5]), *statistics[: results - 1])

    terms = ", ".join(["b", "b", "."][: results - 1])
    return shapes_only(as_if(example(name, f"{PLAIN}, {terms}", *_tensors(), False, 0.1, 1e-5), run), results=1)


def _elements(given: Tensor, gain: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, _: float) -> Tensor:
    shape = (1, 3, 1)
    return (given - mean.view(shape)) * scale.view(shape) * gain.view(shape) + bias.view(shape)


EXAMPLES = [
    idle(example("aten::native_batch_norm", f"{PLAIN}, b, b", *_tensors(), True, 0.1, 1e-5)),
    shapes_only(example("aten::native_batch_norm", f"{PLAIN}, b, b", *_tensors(), False, 0.1, 1e-5), results=1),
    example("aten::native_batch_norm", "a b, b, b -> a b, b, b", x(7, 3), x(3), x(3), None, None, True, 0.1, 1e-5),
    idle(example("aten::_native_batch_norm_legit", f"{PLAIN}, b, b", *_tensors(), True, 0.1, 1e-5)),
    shapes_only(
        example("aten::_native_batch_norm_legit_no_training", f"{PLAIN}, b, b", *_tensors(), 0.1, 1e-5), results=1
    ),
    example("aten::_native_batch_norm_legit_functional", f"{PLAIN}, b, b, b, b", *_tensors(), True, 0.1, 1e-5),
    example("aten::batch_norm", PLAIN, *_tensors(), False, 0.1, 1e-5, False),
    example("aten::_batch_norm_impl_index", f"{PLAIN}, ., ., .", *_tensors(), False, 0.1, 1e-5, False),
    shapes_only(example("aten::_batch_norm_no_update", f"{PLAIN}, b, b, .", *_tensors(), 0.1, 1e-5), results=1),
    idle(example("aten::_batch_norm_with_update", f"{PLAIN}, b, b, .", *_tensors(), 0.1, 1e-5)),
    example("aten::_batch_norm_with_update_functional", f"{PLAIN}, b, b, ., b, b", *_tensors(), 0.1, 1e-5),
    _on_cuda("aten::cudnn_batch_norm", 4),
    _on_cuda("aten::miopen_batch_norm", 3),
    as_if(example("aten::batch_norm_elemt", PLAIN, *_tensors(), 1e-5), _elements),
    as_if(
        example("aten::batch_norm_stats", "a b c -> b, b", x(2, 3, 5), 1e-5),
        lambda given, _: (given.mean((0, 2)), given.var((0, 2))),
    ),
    idle(example("aten::batch_norm_update_stats", "a b c, b, b -> b, b", x(2, 3, 5), x(3), positive(3), 0.1)),
    example("aten::native_layer_norm", "a b c, c, c -> a b c, a b 1, a b 1", x(2, 3, 5), [5], x(5), x(5), 1e-5),
    example(
        "aten::native_layer_norm", "a b c, b c, b c -> a b c, a 1 1, a 1 1", x(2, 3, 5), [3, 5], x(3, 5), x(3, 5), 1e-5
    ),
    example("aten::layer_norm", "a b c, c -> a b c", x(2, 3, 5), [5], x(5), None, 1e-5),
    example("aten::rms_norm", "a b c, c -> a b c", x(2, 3, 5), [5], x(5), 1e-5),
    example("aten::_fused_rms_norm", "a b c, c -> a b c, a b 1", x(2, 3, 5), [5], x(5), 1e-5),
    example(
        "aten::native_group_norm",
        "a (b c) d, (b c), (b c) -> a (b c) d, a b, a b",
        x(2, 6, 5),
        x(6),
        x(6),
        2,
        6,
        5,
        3,
        1e-5,
    ),
    example("aten::native_group_norm", "a b c, b, b -> a b c, a b, a b", x(2, 6, 5), x(6), x(6), 2, 6, 5, 6, 1e-5),
    example("aten::native_group_norm", "a b c, b, b -> a b c, a 1, a 1", x(2, 6, 5), x(6), x(6), 2, 6, 5, 1, 1e-5),
    example("aten::group_norm", "a (b c) d, (b c), (b c) -> a (b c) d", x(2, 6, 5), 3, x(6), x(6), 1e-5),
    example("aten::instance_norm", PLAIN, *_tensors(), False, 0.1, 1e-5, False),
    example("aten::_weight_norm_interface", "a b c, a 1 1 -> a b c, a 1 1", x(2, 3, 5), x(2, 1, 1), 0),
    example("aten::_weight_norm", "a b c, 1 1 c -> a b c", x(2, 3, 5), x(1, 1, 5), 2),
    example("aten::renorm", "a b c -> a b c", x(2, 3, 5), 2, 1, 0.5),
]
