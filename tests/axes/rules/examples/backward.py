"""Examples for rules/backward.py."""

from __future__ import annotations

import torch

from axes.rules.harness import Example, example, idle, x

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


EXAMPLES = [
    example("aten::_softmax_backward_data", "a b, a b -> a b", x(2, 3), x(2, 3).softmax(1), 1, torch.float64),
    example("aten::_log_softmax_backward_data", "a b, a b -> a b", x(2, 3), x(2, 3).log_softmax(1), 1, torch.float64),
    _window("max_pool2d_with_indices_backward", 2, [2, 2], [2, 2], [0, 0], [1, 1], False, indices=True),
    _window("max_pool3d_with_indices_backward", 3, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, indices=True),
    _window("avg_pool2d_backward", 2, [2, 2], [2, 2], [0, 0], False, True, None),
    _window("avg_pool3d_backward", 3, [2] * 3, [2] * 3, [0] * 3, False, True, None),
    _window("_adaptive_avg_pool2d_backward", 2),
    _window("_adaptive_avg_pool3d_backward", 3),
    _window("adaptive_max_pool2d_backward", 2, indices=True),
    _window("adaptive_max_pool3d_backward", 3, indices=True),
]
