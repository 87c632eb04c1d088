"""Examples for rules/backward.py."""

from __future__ import annotations

import torch

from axes.rules.harness import Example, example, idle, ints, positive, x

_DOTS = {2: ". .", 3: ". . ."}
_SMALL, _LARGE = {2: (4, 5), 3: (4, 5, 2)}, {2: (8, 10), 3: (8, 10, 4)}


def _window(name: str, count: int, *args: object, indices: bool = False) -> Example:
    """The gradient of a window of two positions each way."""
    one = f"a b {_DOTS[count]}"
    gradient, given = x(2, 3, *_SMALL[count]), x(2, 3, *_LARGE[count])
    if not indices:
        return idle(example(f"aten::{name}", f"{one}, {one} -> {one}", gradient, given, *args))
    places = getattr(torch.nn.functional, f"max_pool{count}d")(given, 2, return_indices=True)[1]
    return idle(example(f"aten::{name}", f"{one}, {one}, {one} -> {one}", gradient, given, *args, places))


def _normalised() -> tuple[object, ...]:
    given = x(2, 3)
    _, mean, scale = torch.native_layer_norm(given, [3], None, None, 1e-5)
    return given, [3], mean, scale


def _grouped() -> tuple[object, ...]:
    given = x(2, 6, 5)
    return given, *torch.native_group_norm(given, None, None, 2, 6, 5, 3, 1e-5)[1:]


EXAMPLES = [
    example("aten::_softmax_backward_data", "a b, a b -> a b", x(2, 3), x(2, 3).softmax(1), 1, torch.float64),
    example("aten::_log_softmax_backward_data", "a b, a b -> a b", x(2, 3), x(2, 3).log_softmax(1), 1, torch.float64),
    example("aten::softplus_backward", "a b, a b -> a b", x(2, 3), x(2, 3), 1.0, 20.0),
    example("aten::elu_backward", "a b, a b -> a b", x(2, 3), 1.0, 1.0, 1.0, False, x(2, 3)),
    example("aten::leaky_relu_backward", "a b, a b -> a b", x(2, 3), x(2, 3), 0.2, False),
    example("aten::hardtanh_backward", "a b, a b -> a b", x(2, 3), x(2, 3), -1.0, 1.0),
    example("aten::hardswish_backward", "a b, a b -> a b", x(2, 3), x(2, 3)),
    idle(example("aten::hardsigmoid_backward", "a b, a b -> a b", x(2, 3), x(2, 3))),
    example("aten::hardshrink_backward", "a b, a b -> a b", x(2, 3), x(2, 3), 0.5),
    idle(example("aten::softshrink_backward", "a b, a b -> a b", x(2, 3), x(2, 3), 0.5)),
    example("aten::mish_backward", "a b, a b -> a b", x(2, 3), x(2, 3)),
    example("aten::select_backward", "a b -> a . b", x(2, 3), [2, 4, 3], 1, 2),
    example("aten::slice_backward", "a b -> a (1+b+~c)", x(2, 3), [2, 6], 1, 1, 4, 1),
    example("aten::slice_backward", "a . -> a .", x(2, 3), [2, 6], 1, 0, 6, 2),
    example("aten::embedding_dense_backward", "a b c, a b -> . c", x(2, 3, 5), ints(7, 2, 3), 7, -1, False),
    example(
        "aten::convolution_backward",
        "a b . ., a c . ., b c . . -> a c . ., b c . ., b",
        x(2, 4, 5, 5),
        x(2, 3, 7, 7),
        x(4, 3, 3, 3),
        [4],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, True],
    ),
    idle(
        example(
            "aten::native_layer_norm_backward",
            "a b, a b, a 1, a 1, b, b -> a b, b, b",
            x(2, 3),
            *_normalised(),
            x(3),
            x(3),
            [True, True, True],
        )
    ),
    example(
        "aten::native_group_norm_backward",
        "a (b c) d, a (b c) d, a b, a b, (b c) -> a (b c) d, (b c), (b c)",
        x(2, 6, 5),
        *_grouped(),
        x(6),
        2,
        6,
        5,
        3,
        [True, True, True],
    ),
    example(
        "aten::native_batch_norm_backward",
        "a b c, a b c, b, b, b -> a b c, b, b",
        x(2, 3, 5),
        x(2, 3, 5),
        x(3),
        x(3),
        positive(3),
        None,
        None,
        False,
        1e-5,
        [True, True, True],
    ),
    _window("max_pool2d_with_indices_backward", 2, [2, 2], [2, 2], [0, 0], [1, 1], False, indices=True),
    _window("max_pool3d_with_indices_backward", 3, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, indices=True),
    _window("avg_pool2d_backward", 2, [2, 2], [2, 2], [0, 0], False, True, None),
    _window("avg_pool3d_backward", 3, [2] * 3, [2] * 3, [0] * 3, False, True, None),
    _window("_adaptive_avg_pool2d_backward", 2),
    _window("_adaptive_avg_pool3d_backward", 3),
    _window("adaptive_max_pool2d_backward", 2, indices=True),
    _window("adaptive_max_pool3d_backward", 3, indices=True),
]
