"""Examples for rules/convolution.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axes.rules.harness import Example, as_if, example, x

PLAIN = "a b . ., c b . ., c -> a c . ."


def _convolution(
    terms: str, image: Tensor, weight: Tensor, bias: Any = None, transposed: bool = False, groups: int = 1
) -> Example:
    """`aten::convolution` with a stride of 1 and no padding."""
    count = image.dim() - 2
    return example(
        "aten::convolution",
        terms,
        image,
        weight,
        bias,
        [1] * count,
        [0] * count,
        [1] * count,
        transposed,
        [0] * count,
        groups,
    )


def _plain(image: Tensor, weight: Tensor, bias: Any = None, *_: Any) -> Tensor:
    return torch.conv2d(image, weight, bias)


_ARGUMENTS = (x(2, 3, 7, 11), x(5, 3, 2, 3), x(5), [1, 1], [0, 0], [1, 1])

EXAMPLES = [
    _convolution("a b ., c b . -> a c .", x(2, 3, 7), x(5, 3, 2)),
    _convolution(PLAIN, x(2, 3, 7, 11), x(5, 3, 2, 3), x(5)),
    _convolution("a b . . ., c b . . ., c -> a c . . .", x(2, 3, 7, 5, 11), x(5, 3, 2, 3, 4), x(5)),
    _convolution("a (b c) . ., (b d) c . . -> a (b d) . .", x(2, 6, 7, 11), x(10, 3, 2, 3), groups=2),
    # a kernel of one position walks over nothing
    _convolution("a b c, d b 1, d -> a d c", x(2, 3, 7), x(5, 3, 1), x(5)),
    _convolution("a b c . d, e b 1 . 1 -> a e c . d", x(2, 3, 7, 11, 4), x(5, 3, 1, 2, 1)),
    _convolution("a b c ., b d 1 . -> a d c .", x(2, 3, 7, 11), x(3, 5, 1, 2), transposed=True),
    # depthwise, plain and with two results per channel
    _convolution("a b . ., b 1 . ., b -> a b . .", x(2, 3, 7, 11), x(3, 1, 2, 3), x(3), groups=3),
    _convolution("a b . ., (b c) 1 . . -> a (b c) . .", x(2, 3, 7, 11), x(6, 1, 2, 3), groups=3),
    _convolution("a b . ., b c . ., c -> a c . .", x(2, 3, 7, 11), x(3, 5, 2, 3), x(5), transposed=True),
    _convolution(
        "a (b c) . ., (b c) d . ., (b d) -> a (b d) . .",
        x(2, 6, 7, 11),
        x(6, 5, 2, 3),
        x(10),
        transposed=True,
        groups=2,
    ),
    example("aten::_convolution", PLAIN, *_ARGUMENTS, False, [0, 0], 1, False, False, False, False),
    example(
        "aten::mkldnn_convolution",
        PLAIN,
        _ARGUMENTS[0].float(),
        _ARGUMENTS[1].float(),
        _ARGUMENTS[2].float(),
        [0, 0],
        [1, 1],
        [1, 1],
        1,
    ),
    as_if(example("aten::convolution_overrideable", PLAIN, *_ARGUMENTS, False, [0, 0], 1), _plain),
    as_if(
        example(
            "aten::cudnn_convolution",
            "a b . ., c b . . -> a c . .",
            *_ARGUMENTS[:2],
            [0, 0],
            [1, 1],
            [1, 1],
            1,
            False,
            False,
            False,
        ),
        lambda image, weight, *_: _plain(image, weight),
    ),
    example("aten::conv_tbc", ". a b, . b c, c -> . a c", x(7, 2, 3), x(2, 3, 5), x(5)),
]
