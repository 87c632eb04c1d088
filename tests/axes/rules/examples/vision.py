"""Examples for rules/vision.py."""

from __future__ import annotations

import torch
import torchvision

from axes.rules.harness import example, idle, positive, shapes_only, x

_BOXES = torch.tensor([[0, 1, 1, 5, 5], [1, 0, 2, 4, 6], [1, 2, 1, 6, 3]]).double()

EXAMPLES = [
    example("torchvision::roi_align", ". a . ., b . -> b a . .", x(2, 5, 7, 11), _BOXES, 1.0, 2, 3, 2, False),
    example("torchvision::roi_pool", ". a . ., b . -> b a . ., b a . .", x(2, 5, 7, 11), _BOXES, 1.0, 2, 3),
    *(
        shapes_only(
            example(
                f"torchvision::{name}",
                ". (a .) . ., b . -> b a . ., b a . .",
                x(2, 30, 7, 11),
                _BOXES,
                1.0,
                2,
                3,
                *more,
            ),
            results=1,
        )
        for name, more in (("ps_roi_align", [2]), ("ps_roi_pool", []))
    ),
    example(
        "torchvision::deform_conv2d",
        "a b . ., c b . ., a . . ., a . . ., c -> a c . .",
        x(2, 3, 7, 11),
        x(5, 3, 2, 3),
        x(2, 12, 6, 9),
        positive(2, 6, 6, 9),
        x(5),
        1,
        1,
        0,
        0,
        1,
        1,
        1,
        1,
        True,
    ),
    # without a mask, in its place one number per sample
    idle(
        example(
            "torchvision::deform_conv2d",
            "a (b c) . ., (b d) c . ., a . . ., a 1, (b d) -> a (b d) . .",
            x(2, 6, 7, 11),
            x(10, 3, 2, 3),
            x(2, 12, 6, 9),
            torch.zeros(2, 1).double(),
            x(10),
            1,
            1,
            0,
            0,
            1,
            1,
            2,
            1,
            False,
        )
    ),
    example(
        "torchvision::deform_conv2d",
        "a . . ., b . . ., a . . ., a . . ., b -> a b . .",
        x(2, 6, 7, 11),
        x(5, 6, 2, 3),
        x(2, 24, 6, 9),
        positive(2, 12, 6, 9),
        x(5),
        1,
        1,
        0,
        0,
        1,
        1,
        1,
        2,
        True,
    ),
    example("torchvision::nms", ". ., . -> .", _BOXES[:, 1:], positive(3), 0.5),
]
_ = torchvision
