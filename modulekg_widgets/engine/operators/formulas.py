"""FLOP formulas of the operators that torch's FLOP counter does not know, by ATen name.

Any function, as an exponential, counts 1 per element. Moving, creating and selecting numbers counts 0. An operator
without an entry here, in torch's formulas or by its tags has no known cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.recorded_call import Value

Formula = Callable[[OperatorCall], "float | None"]
F = TypeVar("F", bound=Formula)


def _aten(names: str) -> list[str]:
    return [name if "::" in name else f"aten::{name}" for name in names.split()]


def _by_name(names_of: dict[int, str]) -> dict[str, int]:
    return {name: count for count, names in names_of.items() for name in _aten(names)}


# copies, gathering and scattering, padding, random numbers, checks, and questions about the data
FREE = frozenset(
    _aten("""
    _to_copy clone copy copy_ fill zero lift lift_fresh lift_fresh_copy detach detach_ alias set_ resize resize_as
    contiguous _unsafe_view _reshape_copy _lazy_clone _pin_memory _resize_output complex _conj
    empty_like zeros_like ones_like full_like new_empty new_empty_strided new_full new_ones new_zeros
    cat concat stack _stack block_diag split_copy unsafe_split unsafe_split_with_sizes unsafe_chunk
    repeat repeat_interleave tile flip roll rot90 tril triu trace diag_embed lu_unpack
    index _unsafe_index _unsafe_masked_index index_select index_fill index_copy index_put _index_put_impl
    _unsafe_index_put gather scatter take put embedding embedding_renorm masked_scatter masked_select
    select_scatter slice_scatter diagonal_scatter as_strided_scatter nonzero nonzero_static
    constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d im2col max_unpool2d max_unpool3d pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d _pack_padded_sequence _pad_packed_sequence
    _sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_unsafe sparse_compressed_tensor
    _sparse_compressed_tensor_unsafe _to_dense _to_sparse _to_sparse_csr _to_sparse_csc _coalesce
    sparse_mask _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward
    _nested_tensor_from_tensor_list
    bernoulli uniform normal normal_functional random exponential cauchy geometric log_normal poisson binomial
    rand_like randn_like randint_like
    _local_scalar_dense is_nonzero prims::convert_element_type
    _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async
    _linalg_check_errors
""")
)

# operations per element of the result
PER_OUTPUT = _by_name({
    1: """hardswish log_sigmoid_forward _prelu_kernel floor_divide rrelu_with_noise _masked_scale
          prims::add prims::div prims::mul prims::neg prims::sub""",
    2: "native_dropout _fused_dropout glu polar _add_relu rrelu_with_noise_functional",
    3: "upsample_linear1d linalg_cross",  # of n points: n multiplications, n - 1 additions
    # quantisation: scale, round, clamp, scale back
    4: """batch_norm_elemt fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
          _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine""",
    5: "softmax _softmax log_softmax _log_softmax _safe_softmax _masked_softmax",  # max, subtract, exp, sum, divide
    7: "upsample_bilinear2d",
    15: "upsample_trilinear3d",
    16: "_thnn_fused_gru_cell",
    21: "_thnn_fused_lstm_cell",  # 12 additions for the gates, 5 functions, 3 operations for the cell, 1 for the output
    31: "upsample_bicubic2d",
})  # fmt: skip

# operations per element of the first tensor that goes in; a reduction that stands nowhere here takes 1
PER_INPUT = _by_name({
    1: """cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp median nanmedian
          kthvalue mode topk unique_consecutive bincount histc equal col2im nll_loss_forward nll_loss2d_forward
          aminmax _aminmax _is_all_true _is_any_true segment_reduce""",
    2: "norm linalg_vector_norm multinomial",
    3: "mse_loss dist renorm _weight_norm_interface",
    4: "var std var_mean std_mean batch_norm_stats logsumexp",  # sum, subtract, square, sum
    5: "smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits",
})  # fmt: skip

elementwise_parts: dict[str, Formula] = {}  # of what is made of multiply-adds but for a part: that part
formulas: dict[str, Formula] = {}  # what takes more than a number per element
multiply_adds: set[str] = set()  # those of them that count multiplications and additions in pairs
counted_by_torch: set[str] = set()  # those of them whose parts torch's FlopCounterMode counts where it sees them


def _formula(*names: str, pairs: bool = False, parts: bool = False) -> Callable[[F], F]:
    def register(formula: F) -> F:
        formulas.update(dict.fromkeys(names, formula))
        multiply_adds.update(names if pairs or parts else ())
        counted_by_torch.update(names if parts else ())
        return formula

    return register


# ----------------------------------------------- multiply-adds torch has no formula for


@_formula(*_aten("mv addmv dot vdot"), pairs=True)
def _with_vector(call: OperatorCall) -> float:
    return 2 * call.get("mat", call.inputs[0]).numel()


@_formula("aten::addr", pairs=True)
def _outer_product(call: OperatorCall) -> float:
    return 2 * call.output.numel()


@_formula(*_aten("_int_mm _addmm_activation addbmm _grouped_mm _weight_int8pack_mm"), pairs=True)
def _matrices(call: OperatorCall) -> float:
    left = call.get("mat1", call.get("batch1", call.inputs[0]))
    return 2 * left.numel() * call.output.shape[-1]


@_formula(*_aten("_sparse_addmm _sparse_mm _sparse_mm_reduce_impl _sparse_sparse_matmul"), pairs=True)
def _without_sparse(call: OperatorCall) -> None:
    return None  # with one sparse matrix it is counted by what that stores


@_formula("aten::sparse_sampled_addmm", pairs=True)
def _sampled(call: OperatorCall) -> float | None:
    stored = call["self"].stored
    return 2 * stored * call["mat1"].shape[-1] if stored is not None and stored >= 0 else None


@_formula(*_aten("linear matmul"), parts=True)
def _with_rows(call: OperatorCall) -> float:
    return 2 * call.output.numel() * call.inputs[0].shape[-1]


@_formula("aten::_trilinear", pairs=True)
def _trilinear(call: OperatorCall) -> float:
    # nn.Bilinear: the first input with the weight, then what that gave with the second input
    batch, left, right = call["i1"].shape[0], call["i1"].shape[-1], call["i3"].shape[-1]
    return 2 * batch * call["i2"].shape[0] * right * (left + 1)


@_formula(*_aten("mkldnn_convolution miopen_convolution _conv_depthwise2d conv1d conv2d conv3d"), parts=True)
def _convolution(call: OperatorCall) -> int:  # as torch counts `aten::convolution` itself, which cost.py asks
    return 2 * call.output.numel() * math.prod(call["weight"].shape[1:])


@_formula(*_aten(
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu"
), parts=True)  # fmt: skip
def _attention(call: OperatorCall) -> float:
    """The scores, and the sums of values that they weigh."""
    query, value = call["query"], call["value"]
    return 2 * query.numel() * value.shape[-2] + 2 * call.output.numel() * value.shape[-2]


@_formula("torchvision::deform_conv2d", pairs=True)
def _deformed_convolution(call: OperatorCall) -> float:
    batch, _, height, width = call.output.shape
    samples = batch * height * width * call.inputs[0].shape[1] * math.prod(call["weight"].shape[2:])
    return _convolution(call) + 8 * samples  # each sample is read between four points


@_formula(*_aten("_cdist_forward _euclidean_dist"))
def _distances(call: OperatorCall) -> float:
    return 3 * call.output.numel() * call.inputs[0].shape[-1]


@_formula(*_aten("_embedding_bag _embedding_bag_forward_only"))
def _embedding_bag(call: OperatorCall) -> float:
    return call["indices"].numel() * call["weight"].shape[1]


# ------------------------------------------------------- recurrent layers, as their steps

FLOPS_PER_STEP = {
    "lstm": 13,
    "gru": 10,
    "rnn_tanh": 2,
    "rnn_relu": 2,
}  # functions, sums and products of each hidden index


def recurrent_cells(call: OperatorCall) -> list[list[Value]]:
    """The weights and biases of each layer and direction of a recurrent layer."""
    every = call["params"]
    count = len(every) // (call["num_layers"] * (2 if call["bidirectional"] else 1))
    return [every[at : at + count] for at in range(0, len(every), count)]


def _steps(call: OperatorCall) -> int:
    """Returns the number of cell calls for one batch."""
    return call.inputs[0].numel() // max(call.inputs[0].shape[-1], 1)


def _elementwise_flops(call: OperatorCall) -> float:
    """Returns the FLOPs of the steps without matrix products; biases count where they are added separately."""
    first = call.inputs[0]
    own = sum(FLOPS_PER_STEP[call.name] * _hidden(cell) for cell in recurrent_cells(call))
    if call.get("batch_first") and call["has_biases"] and min(first.shape[:2]) > 1:
        own += sum(cell[0].shape[0] for cell in recurrent_cells(call)[: 2 if call["bidirectional"] else 1])
    return _steps(call) * own


def _hidden(cell: list[Value]) -> int:
    """The width of a state within a cell: what its projection reads, or else its own weight."""
    return [weight for weight in cell if weight.dim() == 2][-1].shape[1]


@_formula(*_aten("lstm gru rnn_tanh rnn_relu"), parts=True)
def _recurrent(call: OperatorCall) -> float:
    weights = sum(each.numel() for cell in recurrent_cells(call) for each in cell if each.dim() == 2)
    return 2 * _steps(call) * weights + _elementwise_flops(call)


elementwise_parts.update(dict.fromkeys(_aten("lstm gru rnn_tanh rnn_relu"), _elementwise_flops))

# ----------------------------------------------------------------- normalisation


@_formula(*_aten(
    "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit _batch_norm_with_update"
    " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_no_update"
))  # fmt: skip
def _batch_norm(call: OperatorCall) -> float:
    """With running statistics a scale and a shift, which hold weight and bias; else as any normalisation."""
    fixed = call.name.endswith(("no_training", "no_update")) or call.get("training") is False
    return 2 * call.inputs[0].numel() if fixed else _normalisation(call)


@_formula(*_aten("native_layer_norm native_group_norm layer_norm group_norm instance_norm"))
def _normalisation(call: OperatorCall) -> int:
    """Sum, subtract, square, sum, scale, then the weight and the bias."""
    return call.inputs[0].numel() * (5 + sum(call.get(name) is not None for name in ("weight", "bias")))


@_formula(*_aten("_fused_rms_norm rms_norm"))
def _rms_norm(call: OperatorCall) -> float:
    return call.inputs[0].numel() * (3 + (call["weight"] is not None))


# ------------------------------------------------------- windows and interpolation


@_formula(*_aten(
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices"
    " max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d fractional_max_pool2d fractional_max_pool3d"
))  # fmt: skip
def _pool(call: OperatorCall) -> float:
    kernel = call["kernel_size"]
    spatial = int(call.name.partition("pool")[2][0])
    return call.output.numel() * math.prod(kernel if len(kernel) == spatial else kernel * spatial)


@_formula(*_aten(
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d"
    " adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
))  # fmt: skip
def _adaptive_pool(call: OperatorCall) -> float:
    spatial = len(call["output_size"])
    sizes = zip(call.inputs[0].shape[-spatial:], call.output.shape[-spatial:], strict=True)
    return call.output.numel() * math.prod(-(-before // after) for before, after in sizes)


@_formula(*_aten("grid_sampler_2d grid_sampler_3d cudnn_grid_sampler"))
def _grid_sampler(call: OperatorCall) -> float:
    dims = call["grid"].shape[-1]
    points = {0: 2**dims, 1: 1, 2: 4**dims}[call.get("interpolation_mode", 0)]
    return call.output.numel() * (2 * points - 1 if points > 1 else 0)


@_formula(*_aten("_upsample_bilinear2d_aa _upsample_bicubic2d_aa"))
def _smooth_resize(call: OperatorCall) -> float:
    """First along the width, then along the height; more points count where the step is larger."""
    (height, width), (new_height, new_width) = call.inputs[0].shape[-2:], call.output.shape[-2:]
    support = 2 if "bilinear" in call.name else 4
    across, down = (math.ceil(support * max(a / b, 1.0)) for a, b in ((width, new_width), (height, new_height)))
    planes = math.prod(call.inputs[0].shape[:-2])
    return planes * new_width * (height * (2 * across - 1) + new_height * (2 * down - 1))


@_formula("torchvision::roi_align")
def _roi_align(call: OperatorCall) -> float | None:
    ratio = call["sampling_ratio"]
    return call.output.numel() * ratio**2 * 8 if ratio > 0 else None  # else it depends on the boxes


@_formula("aten::affine_grid_generator")
def _affine_grid(call: OperatorCall) -> float:
    return call.output.numel() * (2 * call.inputs[0].shape[-1] - 1)


# ---------------------------------------------------- accumulating, sorting, searching


@_formula(*_aten("index_add scatter_add scatter_reduce index_reduce _unsafe_masked_index_put_accumulate"))
def _accumulate(call: OperatorCall) -> float:
    return call.get("source", call.get("src", call.get("values"))).numel()


@_formula(*_aten("sort msort argsort _unique _unique2 unique_dim"))
def _sort(call: OperatorCall) -> float:
    """n log2(n) comparisons of each row."""
    shape = call.inputs[0].shape or (1,)
    whole = "unique" in call.name
    length = call.inputs[0].numel() if whole else shape[0 if call.name == "msort" else call.get("dim", -1)]
    return call.inputs[0].numel() * math.ceil(math.log2(max(length, 2)))


@_formula(*_aten("searchsorted bucketize isin"))
def _search(call: OperatorCall) -> float:
    among = call.get("sorted_sequence", call.get("boundaries", call.get("test_elements")))
    return call.output.numel() * math.ceil(math.log2(among.shape[-1] + 1))


# --------------------------------------------------- Fourier transforms and linear algebra


@_formula(*_aten("_fft_c2c _fft_r2c _fft_c2r"))
def _fft(call: OperatorCall) -> float:
    """5 n log2(n) for n complex numbers, half of it where one side is real, as FFTW reports its speed."""
    whole = call.output if call.name == "_fft_c2r" else call.inputs[0]
    length = math.prod(whole.shape[dim] for dim in call["dim"])
    return (5 if call.name == "_fft_c2c" else 2.5) * whole.numel() * math.log2(max(length, 2))


_CUBIC = {"linalg_inv_ex": 2, "_linalg_det": 2 / 3, "_linalg_slogdet": 2 / 3, "linalg_lu_factor_ex": 2 / 3,
          "linalg_cholesky_ex": 1 / 3, "_linalg_solve_ex": 2 / 3}  # fmt: skip


@_formula(*(f"aten::{name}" for name in _CUBIC))
def _factorisation(call: OperatorCall) -> float:
    """The leading term for a matrix of n rows, and 2 n² for each right-hand side."""
    size = call.inputs[0].shape[-1]
    right_hand = call.get("B")
    solving = 2 * size * right_hand.numel() if right_hand is not None else 0
    return _CUBIC[call.name] * size**2 * call.inputs[0].numel() / max(size, 1) + solving


@_formula("aten::linalg_solve_triangular")
def _triangular(call: OperatorCall) -> float:
    return call.inputs[0].shape[-1] * call["B"].numel()
