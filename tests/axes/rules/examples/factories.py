"""Examples for rules/factories.py: fills are fillers, what differs from index to index is frozen."""

from __future__ import annotations

import torch

from axes.rules.harness import as_if, example, idle, positive, shapes_only, x

_SHAPE = [2, 3]

EXAMPLES = [
    example("aten::zeros", "-> ~a ~b", _SHAPE),
    example("aten::ones", "-> ~a ~b", _SHAPE),
    example("aten::full", "-> ~a ~b", _SHAPE, 5.0),
    shapes_only(example("aten::empty.memory_format", "-> . .", _SHAPE)),
    shapes_only(example("aten::empty_strided", "-> . .", _SHAPE, [3, 1])),
    shapes_only(example("aten::empty_permuted", "-> . .", _SHAPE, [1, 0])),
    example("aten::_efficientzerotensor", "-> ~a ~b", _SHAPE),
    example("aten::scalar_tensor", "-> ()", 5.0),
    example("aten::new_zeros", "a -> ~b ~c", x(5), _SHAPE),
    example("aten::new_ones", "a -> ~b ~c", x(5), _SHAPE),
    example("aten::new_full", "a -> ~b ~c", x(5), _SHAPE, 7.0),
    shapes_only(example("aten::new_empty", "a -> . .", x(5), _SHAPE)),
    shapes_only(example("aten::new_empty_strided", "a -> . .", x(5), _SHAPE, [3, 1])),
    example("aten::arange", "-> .", 5),
    example("aten::range", "-> .", 1, 5),
    example("aten::linspace", "-> .", 0, 1, 5),
    example("aten::logspace", "-> .", 0, 1, 5),
    example("aten::eye", "-> . .", 3),
    example("aten::tril_indices", "-> . .", 3, 5),
    example("aten::triu_indices", "-> . .", 3, 5),
    *(example(f"aten::{name}_window", "-> .", 5) for name in ("hann", "hamming", "kaiser", "blackman", "bartlett")),
    example("aten::fft_fftfreq", "-> .", 5),
    example("aten::fft_rfftfreq", "-> .", 5),
    shapes_only(example("aten::rand", "-> . .", _SHAPE)),
    shapes_only(example("aten::randn", "-> . .", _SHAPE)),
    shapes_only(example("aten::randint", "-> . .", 5, _SHAPE)),
    shapes_only(example("aten::randperm", "-> .", 5)),
    shapes_only(example("aten::rand_like", "a b -> a b", x(2, 3))),
    shapes_only(example("aten::randn_like", "a b -> a b", x(2, 3))),
    shapes_only(example("aten::randint_like", "a b -> a b", x(2, 3), 5)),
    *(
        shapes_only(example(f"aten::{name}", "a b -> a b", x(2, 3)))
        for name in ("uniform", "cauchy", "log_normal", "exponential", "random")
    ),
    shapes_only(example("aten::geometric", "a b -> a b", x(2, 3), 0.5)),
    shapes_only(example("aten::uniform_", "a b -> a b", x(2, 3))),
    shapes_only(example("aten::normal_functional", "a b -> a b", x(2, 3))),
    shapes_only(example("aten::normal.Tensor_Tensor", "a b, b -> a b", x(2, 3), positive(3))),
    shapes_only(example("aten::normal.float_float", "-> . .", 0.0, 1.0, _SHAPE)),
    shapes_only(example("aten::_sample_dirichlet", "a b -> a b", positive(2, 3))),
    shapes_only(as_if(example("aten::from_file", "-> .", "a file", False, 5), lambda *_: x(5))),
    shapes_only(
        as_if(
            example("aten::_fused_dropout", "a b -> a b, a b", x(2, 3), 0.5),
            lambda t, p: torch.native_dropout(t, p, True),
        )
    ),
    shapes_only(example("aten::bernoulli", "a b -> a b", positive(2, 3))),
    shapes_only(example("aten::bernoulli.Tensor", "a b, a b -> a b", x(2, 3), positive(2, 3))),
    shapes_only(example("aten::binomial", "a b, b -> a b", positive(2, 3), positive(3))),
    shapes_only(example("aten::dropout", "a b -> a b", x(2, 3), 0.5, True)),
    shapes_only(example("aten::native_dropout", "a b -> a b, a b", x(2, 3), 0.5, True)),
    example("aten::native_dropout", "a b -> a b, a b", x(2, 3), 0.5, False),
    shapes_only(example("aten::poisson", "a b -> a b", positive(2, 3))),
    shapes_only(example("aten::_standard_gamma", "a b -> a b", positive(2, 3))),
    shapes_only(example("aten::rrelu_with_noise", "a b, a b -> a b", x(2, 3), x(2, 3), 0.1, 0.3, True)),
    idle(example("aten::rrelu_with_noise", "a b, a b -> a b", x(2, 3), x(2, 3), 0.1, 0.3, False)),
    shapes_only(example("aten::rrelu_with_noise_functional", "a b, a b -> a b, a b", x(2, 3), x(2, 3), 0.1, 0.3, True)),
]
