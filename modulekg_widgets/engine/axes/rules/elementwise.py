"""Axis rules of elementwise operators: dimensions unify right-aligned, as in broadcasting."""

from __future__ import annotations

from modulekg_widgets.engine.axes.terms.algebra import ONE
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rule
from modulekg_widgets.engine.operators.traits import ELEMENTWISE


@rule(*ELEMENTWISE)
def elementwise(call: Call) -> list[Dims]:
    """Dimensions of equal size unify; a broadcast dimension of size 1 constrains nothing."""
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    return [dims[len(dims) - node.dim() :] for node in call.results]


def broadcast(call: Call, *several: Dims) -> Dims:
    """Dimensions right-aligned, as torch broadcasts them: those of equal size are one."""
    dims: Dims = [ONE] * max(map(len, several), default=0)
    for own in several:
        offset = len(dims) - len(own)
        for at, term in enumerate(own, offset):
            if term.size == 1:
                continue
            if dims[at].size == 1:
                dims[at] = term
            else:
                call.unify(dims[at], term)
    return dims


@rule("aten::prelu", "aten::_prelu_kernel")
def prelu(call: Call) -> Dims:
    """A slope per channel, the second dimension, or one for all."""
    x, slope = call.inputs
    dims, own = call.axes(x), call.axes(slope)
    if slope.dim() == x.dim():
        call.unify_broadcast(slope, dims)
    elif own and own[0].size > 1:
        call.unify(own[0], dims[1])
    return dims


@rule("aten::glu")
def glu(call: Call) -> Dims:
    """Two equal halves; one gates the other."""
    dims = call.axes(call["self"])
    at = call.dim(call["dim"], len(dims))
    half = dims[at].size // 2
    first, gate = call.parts(dims[at], half, half)
    call.unify(first, gate)
    return [*dims[:at], first, *dims[at + 1 :]]


@rule("aten::fake_quantize_per_channel_affine_cachemask", "aten::_fake_quantize_learnable_per_channel_affine")
def fake_quantize_per_channel(call: Call) -> list[Dims]:
    """A scale and a zero point per index of one dimension."""
    dims = call.axes(call["self"])
    at: int = call["axis"]
    for name in ("scale", "zero_point"):
        call.unify(call.axes(call[name])[0], dims[at])
    return [dims for _ in call.results]


@rule("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_per_tensor(call: Call) -> list[Dims]:
    """One scale and one zero point for the whole tensor; the second result is the mask of unclipped elements."""
    dims = call.axes(call["self"])
    return [dims for _ in call.results]


@rule("aten::log_sigmoid_forward")
def log_sigmoid(call: Call) -> list[Dims]:
    """The result, and a buffer for the backward pass, which is empty on a GPU."""
    dims = call.axes(call["self"])
    return [dims if node.dim() == len(dims) else call.frozen_all(node.shape, "empty") for node in call.results]


@rule("aten::_fused_moving_avg_obs_fq_helper")
def observe_and_quantize(call: Call) -> list[Dims]:
    """Ranges, scales and zero points for all, or per index of one dimension."""
    dims = call.axes(call["self"])
    at: int = call["ch_axis"]
    for node in call.inputs[3:]:
        if node.numel() > 1:
            call.unify(call.axes(node)[0], dims[at])
    return [dims, dims]


@rule("aten::view_as_real", "aten::view_as_real_copy")
def view_as_real(call: Call) -> Dims:
    """Real and imaginary part as a last dimension of two."""
    return [*call.axes(call["self"]), call.frozen(2, "real and imaginary part")]


@rule("aten::view_as_complex", "aten::view_as_complex_copy")
def view_as_complex(call: Call) -> Dims:
    """The last dimension of two becomes real and imaginary part."""
    *dims, pair = call.axes(call["self"])
    call.freeze(pair, "real and imaginary part")
    return dims


# -------------------- Axis rules of tensor factories: a constant fill binds only the size, other factories are frozen


CONSTANT_SHAPE = "a constant shape in the code"


@rule("aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones", "aten::new_full",
      "aten::scalar_tensor", "aten::_efficientzerotensor")  # fmt: skip
def constant_fill(call: Call) -> Dims:
    """A constant shape whose indices are all alike."""
    return [call.filler(size, CONSTANT_SHAPE) for size in call.output.shape]


@rule("aten::empty", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted")
def uninitialized(call: Call) -> Dims:
    """A constant shape that later operators fill; where none of them does, what it holds was written unseen."""
    if call.output.storage.writer is None:
        return call.frozen_all(call.output.shape, "filled by code that runs no operators")
    return constant_fill(call)


@rule("aten::arange", "aten::linspace", "aten::logspace", "aten::range", "aten::eye", "aten::rand", "aten::randn",
      "aten::randint", "aten::randperm", "aten::tril_indices", "aten::triu_indices", "aten::hann_window",
      "aten::hamming_window", "aten::kaiser_window", "aten::blackman_window", "aten::bartlett_window",
      "aten::fft_fftfreq", "aten::fft_rfftfreq", "aten::from_file")  # fmt: skip
def distinct_indices(call: Call) -> Dims:
    """A constant shape whose indices differ."""
    return call.frozen_all(call.output.shape, CONSTANT_SHAPE)


@rule("aten::rand_like", "aten::randn_like", "aten::randint_like", "aten::uniform", "aten::normal",
      "aten::exponential", "aten::random", "aten::cauchy", "aten::log_normal", "aten::geometric",
      "aten::normal_functional", "aten::_sample_dirichlet", "aten::bernoulli", "aten::binomial", "aten::poisson",
      "aten::_standard_gamma", "aten::dropout", "aten::native_dropout", "aten::_fused_dropout",
      "aten::rrelu_with_noise", "aten::rrelu_with_noise_functional")  # fmt: skip
def noise(call: Call) -> list[Dims]:
    """Noise shaped as other tensors: it has the same distribution in any order, but a fill is one no more."""
    if not call.inputs:
        return [distinct_indices(call)]
    dims = broadcast(call, *(call.axes(node) for node in call.inputs))
    for term in dims:
        call.freeze_fillers(term, "random, in a shape fixed in the code")
    return [dims for _ in call.results]
