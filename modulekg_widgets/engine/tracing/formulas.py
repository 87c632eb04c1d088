"""What operators cost beside the multiply-adds that torch counts: operations per element, by ATen name.

A call of any function counts one, an exponential as an addition. Moving, making and choosing numbers counts nothing.
An operator that stands nowhere here and that neither torch's formulas nor its tags cover has no known cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode


class Arguments:
    """The arguments of a recorded call by the names in a schema, and its first result."""

    def __init__(self, operator: OperatorNode, schema: Any) -> None:
        names = [argument.name for argument in schema.arguments]
        given = dict(zip(names, operator.args, strict=False)) | operator.kwargs
        self._values = {argument.name: argument.default_value for argument in schema.arguments} | given
        results = nodes_in(operator.result)
        self.input = operator.inputs[0]
        self.output = results[0] if results else self.input

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


Formula = Callable[[Arguments], float | None]


def nodes_in(value: Any) -> list[DataNode]:
    """The nodes in an argument or a result of an operator."""
    if isinstance(value, DataNode):
        return [value]
    return [node for part in value for node in nodes_in(part)] if isinstance(value, list | tuple) else []


def _aten(names: str) -> list[str]:
    return [f"aten::{name}" for name in names.split()]


# copies, gathering and scattering, padding, random numbers, checks, and questions about the data
FREE = frozenset([*_aten(
    "_to_copy clone copy copy_ fill zero lift lift_fresh lift_fresh_copy detach alias _unsafe_view _reshape_copy"
    " contiguous repeat tile cat _cat concat stack _stack block_diag flip roll rot90 tril triu diag_embed trace"
    " index _unsafe_index _unsafe_masked_index index_select index_fill index_copy index_put _index_put_impl"
    " _unsafe_index_put gather scatter take put embedding masked_fill masked_scatter masked_select where"
    " select_scatter slice_scatter diagonal_scatter as_strided_scatter repeat_interleave nonzero nonzero_static"
    " constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d"
    " replication_pad3d im2col max_unpool2d max_unpool3d pixel_shuffle pixel_unshuffle channel_shuffle"
    " native_channel_shuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d"
    " _upsample_nearest_exact2d _upsample_nearest_exact3d bernoulli uniform normal normal_functional random"
    " exponential cauchy geometric log_normal rand_like randn_like randint_like zeros_like ones_like full_like"
    " empty_like new_empty new_empty_strided new_full new_ones new_zeros complex _conj _local_scalar_dense is_nonzero"
    " _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async set_ resize resize_as detach_"
    " unsafe_split unsafe_split_with_sizes unsafe_chunk split_copy _pack_padded_sequence _pad_packed_sequence"
    " _resize_output _lazy_clone _is_all_true"
)])  # fmt: skip

# operations per element of the result
PER_OUTPUT: dict[str, float] = {
    **dict.fromkeys(_aten("hardswish log_sigmoid_forward _prelu_kernel floor_divide rrelu_with_noise erfinv"), 1),
    **dict.fromkeys(_aten("native_dropout glu polar"), 2),
    **dict.fromkeys(_aten("_softmax _log_softmax _safe_softmax _masked_softmax"), 5),  # maximum, -, exp, sum, /
    # taps multiplications and taps - 1 additions
    "aten::upsample_linear1d": 3,
    **dict.fromkeys(_aten("upsample_bilinear2d"), 7),
    "aten::upsample_trilinear3d": 15,
    "aten::upsample_bicubic2d": 31,
    "aten::linalg_cross": 3,
    # scale, round, clamp, scale back
    **dict.fromkeys(
        _aten(
            "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"
            " _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine"
        ), 4,
    ),
    # 12 additions of gates, 5 functions, 2 multiplications and an addition for the cell, one for the output
    "aten::_thnn_fused_lstm_cell": 21,
    "aten::_thnn_fused_gru_cell": 16,
}  # fmt: skip

# operations per element of the first tensor that goes in; a reduction that stands nowhere here takes 1
PER_INPUT: dict[str, float] = {
    **dict.fromkeys(_aten("cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp"), 1),
    **dict.fromkeys(_aten("median nanmedian kthvalue mode topk unique_consecutive bincount histc equal col2im"), 1),
    **dict.fromkeys(_aten("nll_loss_forward nll_loss2d_forward aminmax _aminmax"), 1),
    **dict.fromkeys(_aten("norm linalg_vector_norm multinomial"), 2),
    **dict.fromkeys(_aten("mse_loss renorm _weight_norm_interface"), 3),
    **dict.fromkeys(_aten("var std var_mean std_mean logsumexp"), 4),  # sum, -, square, sum; maximum, -, exp, sum
    **dict.fromkeys(_aten("smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits"), 5),
}

formulas: dict[str, Formula] = {}  # what needs more than a number per element
multiply_adds: set[str] = set()  # those of them that count multiply-adds


def _formula(names: str, fused: bool = False) -> Callable[[Formula], Formula]:
    def register(formula: Formula) -> Formula:
        for name in (names.split() if "::" in names else _aten(names)):
            formulas[name] = formula
            if fused:
                multiply_adds.add(name)
        return formula

    return register


# -------------------------------------------------------------- multiply-adds


@_formula("dot vdot mv addmv", fused=True)
def _with_vector(call: Arguments) -> float:
    matrix = call["mat"] if "mat" in call else call.input
    return 2 * matrix.numel()
