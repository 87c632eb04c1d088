"""Tensors made in the forward pass: a fill is equal everywhere, so only its size binds; the rest is frozen."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule
from modulekg_widgets.engine.axes.rules.elementwise import broadcast

SHAPE = "a constant shape in the code"


@rule("aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones", "aten::new_full",
      "aten::scalar_tensor", "aten::_efficientzerotensor")  # fmt: skip
def filled(call: Call) -> Dims:
    """A constant shape whose indices are all alike."""
    return [call.filler(size, SHAPE) for size in call.output.shape]


@rule("aten::empty", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted")
def unfilled(call: Call) -> Dims:
    """A constant shape that later operators fill; where none of them does, what it holds was written unseen."""
    if call.output.storage.writer is None:
        return call.frozen_all(call.output.shape, "filled by code that runs no operators")
    return filled(call)


@rule("aten::arange", "aten::linspace", "aten::logspace", "aten::range", "aten::eye", "aten::rand", "aten::randn",
      "aten::randint", "aten::randperm", "aten::tril_indices", "aten::triu_indices", "aten::hann_window",
      "aten::hamming_window", "aten::kaiser_window", "aten::blackman_window", "aten::bartlett_window",
      "aten::fft_fftfreq", "aten::fft_rfftfreq", "aten::from_file")  # fmt: skip
def ordered(call: Call) -> Dims:
    """A constant shape whose indices differ."""
    return call.frozen_all(call.output.shape, SHAPE)


@rule("aten::rand_like", "aten::randn_like", "aten::randint_like", "aten::uniform", "aten::normal",
      "aten::exponential", "aten::random", "aten::cauchy", "aten::log_normal", "aten::geometric",
      "aten::normal_functional", "aten::_sample_dirichlet", "aten::bernoulli", "aten::binomial", "aten::poisson",
      "aten::_standard_gamma", "aten::dropout", "aten::native_dropout", "aten::_fused_dropout",
      "aten::rrelu_with_noise", "aten::rrelu_with_noise_functional")  # fmt: skip
def noise(call: Call) -> list[Dims]:
    """Noise shaped as other tensors: it has the same distribution in any order, but a fill is one no more."""
    if not call.inputs:
        return [ordered(call)]
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    for term in dims:
        call.settle(term, "drawn at random, in a shape of the code")
    return [dims for _ in call.results]
