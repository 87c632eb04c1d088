"""Traits of operators: what they do with values beyond axes, one table for rules, dry runs, masks and criteria.

A row names ATen operators (without the underscore of in-place variants) and sets their traits, as
`SOFTMAX = add_traits("_softmax softmax", reads_whole=True, is_softmax=True)`. Axis rules are registered for the names
of a row, so that a family of operators is listed once; an operator may be in several rows. What is in none is pointwise
if torch tags it so, and has no other trait. To let an operator behave as a known one, add its name to that row.

>>> traits_named("aten::relu_").keeps_numbers, traits_named("aten::sort").reads_whole
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from modulekg_widgets.engine.operators.arguments import Arguments, schema_reading
from modulekg_widgets.engine.operators.signature import base_name, overloads_of
from modulekg_widgets.engine.operators.user_operators import cached_by_overload
from modulekg_widgets.engine.torch_runtime.private import Overload, schema_of

CHANNELS, LAST, GROUPS, LENGTH = "channels", "last dimensions", "groups", "length of a weight"  # what norms run over
MATRIX_PRODUCT, VECTOR_PRODUCT, LINEAR, BILINEAR = "product", "vector product", "linear", "bilinear"
CONVOLUTION, EMBEDDING, RECURRENT = "convolution", "embedding", "recurrent"
DROPPED, FLIPPED, FILLED = "what went in, or zero", "one by a probability, or zero", "numbers of no tensor"


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of one operator, beyond its axis rule."""

    pointwise: bool = False  # every element of the result comes of the elements at its place
    copies: bool = False  # the result is the tensor that went in
    is_bookkeeping: bool = False  # the result is what went in, memory and all: only torch has to know of it
    moves: bool = False  # elements change places, none is computed
    reorders: bool = False  # dimensions change places
    reshapes: bool = False  # one dimension comes of several, or several of one
    asks_for_sizes: bool = False  # the sizes of the result, or of its parts, are an argument
    selects: bool = False  # one index of a dimension, by a number
    splits: bool = False  # into parts whose sizes are an argument
    keeps_indices: bool = False  # a tensor of indices holds the same ones after it, in another shape at most
    keeps_zero: bool = False  # what is zero before is zero after
    keeps_numbers: bool = False  # of the first tensor: the result holds nothing but some of them, and zeros
    reads_whole: bool = False  # an element of the result depends on all indices of a dimension
    is_softmax: bool = False
    is_attention: bool = False  # divides by the root of the size of the query unless told a scale
    multiplies: bool = False
    normalizes: str = ""  # over CHANNELS, LAST dimensions or GROUPS of channels; a weight by its LENGTH
    sizes: tuple[tuple[str, str], ...] = ()  # arguments that are sizes of the first tensor, with what they count
    layer: str = ""  # how it carries activations across a weight
    index: str = ""  # the argument whose indices say where it reads or writes
    triangle: tuple[str, str | None] | None = None  # the argument whose triangle is read, and the flag that says so
    commutes: bool = False
    keeps_symmetry: bool = False  # of symmetric matrices, whatever their numbers, it makes a symmetric one
    noise: str = ""  # what the result is that is drawn at random: DROPPED, FLIPPED or FILLED
    writes_buffers: bool = False  # running statistics that it is given, without a word in the schema

    @property
    def scales(self) -> bool:
        """True if the operator multiplies the normalized values by its argument `weight`."""
        return self.normalizes in (CHANNELS, LAST, GROUPS)


NO_TRAITS = Traits()
POINTWISE = Traits(pointwise=True)
_table: dict[str, Traits] = {}


def add_traits(names: str, **traits: Any) -> tuple[str, ...]:
    """Adds traits to the table for some operators, and returns their full names."""
    found = tuple(name if "::" in name else f"aten::{name}" for name in names.split())
    for name in found:
        _table[name] = replace(_table.get(name, NO_TRAITS), **traits)
    return found


# ------------------------------------------------------------------- moving elements

VIEW = add_traits("view _unsafe_view reshape _reshape_alias view_copy _reshape_copy", moves=True, reshapes=True)
EXPAND = add_traits("expand expand_as expand_copy broadcast_to", moves=True)
PERMUTE = add_traits("permute permute_copy", moves=True, reorders=True)
TRANSPOSE = add_traits("transpose swapaxes swapdims transpose_copy", moves=True, reorders=True)
REVERSE = add_traits("t numpy_T t_copy", moves=True, reorders=True)
MOVEDIM = add_traits("movedim", moves=True, reorders=True)
SQUEEZE = add_traits("squeeze squeeze_copy", moves=True)
UNSQUEEZE = add_traits("unsqueeze unsqueeze_copy", moves=True)
REPEAT = add_traits("repeat tile", moves=True)
REPEAT_INTERLEAVE = add_traits("repeat_interleave", moves=True)
AS_STRIDED = add_traits("as_strided as_strided_copy", moves=True)
CAT = add_traits("cat concat concatenate", moves=True)
SPLIT = add_traits(
    "split split_with_sizes chunk unsafe_split unsafe_chunk unsafe_split_with_sizes split_copy split_with_sizes_copy"
    " tensor_split", moves=True,
)  # fmt: skip
SLICE = add_traits("slice slice_copy narrow narrow_copy", moves=True)
SELECT = add_traits("select select_copy", moves=True, selects=True)
UNBIND = add_traits("unbind unbind_copy", moves=True)
PAD = add_traits("constant_pad_nd pad", moves=True)
PIXEL_SHUFFLE = add_traits("pixel_shuffle", reshapes=True)
PIXEL_UNSHUFFLE = add_traits("pixel_unshuffle", reshapes=True)
CHANNEL_SHUFFLE = add_traits("channel_shuffle native_channel_shuffle", reshapes=True)
IM2COL = add_traits("im2col", reshapes=True)
COL2IM = add_traits("col2im", reshapes=True)
add_traits("view reshape _unsafe_view expand", asks_for_sizes=True)
add_traits("split split_with_sizes", splits=True)
add_traits("view _unsafe_view expand squeeze unsqueeze", keeps_indices=True)
# what torch may run before the view of a reshape that has to copy
BEFORE_VIEWS = add_traits("clone empty copy unsqueeze as_strided")

INDEX = add_traits("index _unsafe_index _unsafe_masked_index")
INDEX_PUT = add_traits("index_put _index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate")
INDEX_SELECT = add_traits("index_select", index="index")
GATHER = add_traits("gather", index="index")
INDEX_WRITE = add_traits("index_add index_copy index_reduce index_fill", index="index")
add_traits("index index_put", index="indices")

# -------------------------------------------------------------- element by element

# pointwise in effect, though torch tags neither them nor, for those that write in place, their namesakes
ELEMENTWISE = add_traits(
    "__and__ __iand__ __ior__ __irshift__ __or__ _add_relu _conj _conj_copy _fake_quantize_learnable_per_tensor_affine"
    " _masked_scale _neg_view _neg_view_copy _pin_memory _to_copy alias alias_copy clone complex contiguous copy detach"
    " detach_copy empty_like fake_quantize_per_tensor_affine_cachemask fill floor_divide full_like hardswish lift"
    " lift_fresh lift_fresh_copy ones_like polar prims::add prims::convert_element_type prims::div prims::mul"
    " prims::neg prims::sub resolve_conj resolve_neg zero zeros_like",
    pointwise=True,
)
COPY = add_traits("_to_copy clone detach alias", copies=True, keeps_zero=True, keeps_indices=True)
add_traits("lift lift_fresh alias detach", is_bookkeeping=True)
add_traits("contiguous", keeps_zero=True)
add_traits(
    "view _unsafe_view permute transpose t squeeze unsqueeze expand slice select clone detach alias relu"
    " max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices", keeps_numbers=True,
)  # fmt: skip
add_traits("lift_fresh", keeps_indices=True)
add_traits("equal")  # one answer for Python, though torch tags it as pointwise
add_traits("mul", pointwise=True, multiplies=True, keeps_zero=True)
add_traits("add mul maximum minimum", pointwise=True, commutes=True)
add_traits(
    "add mul maximum minimum sub div neg abs exp relu pow tanh sigmoid square sqrt clone detach _to_copy alias"
    " contiguous", pointwise=True, keeps_symmetry=True,
)  # fmt: skip

# --------------------------------------------------------- whole dimensions, normalisation

REDUCE = add_traits(
    "mean sum nansum nanmean amax amin aminmax prod var std var_mean std_mean any all logsumexp linalg_vector_norm norm"
    " count_nonzero linalg_norm max min median nanmedian mode kthvalue _aminmax linalg__powsum _is_all_true"
    " _is_any_true hash_tensor",
    reads_whole=True,
)
SOFTMAX = add_traits("_softmax _safe_softmax softmax", reads_whole=True, is_softmax=True)
LOG_SOFTMAX = add_traits("_log_softmax log_softmax", reads_whole=True)
CUMULATE = add_traits(
    "cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper _logcumsumexp", reads_whole=True
)
SORT = add_traits("sort topk argsort msort", reads_whole=True)
BATCH_NORM = add_traits(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
    " _native_batch_norm_legit_functional batch_norm cudnn_batch_norm miopen_batch_norm _batch_norm_no_update"
    " _batch_norm_with_update _batch_norm_impl_index batch_norm_elemt batch_norm_stats batch_norm_update_stats"
    " _batch_norm_with_update_functional",
    normalizes=CHANNELS,
)
INSTANCE_NORM = add_traits("instance_norm", normalizes=CHANNELS)
LAYER_NORM = add_traits(
    "native_layer_norm layer_norm _fused_rms_norm rms_norm", normalizes=LAST, reads_whole=True,
    sizes=(("normalized_shape", LAST),),
)  # fmt: skip
GROUP_NORM = add_traits(
    "native_group_norm group_norm", normalizes=GROUPS, reads_whole=True,
    sizes=(("C", CHANNELS), ("group", GROUPS), ("num_groups", GROUPS)),
)  # fmt: skip
# what gradients in forward run backwards through: they go by all indices as well
add_traits("native_layer_norm_backward _fused_rms_norm_backward", reads_whole=True, sizes=(("normalized_shape", LAST),))
add_traits("native_group_norm_backward", reads_whole=True, sizes=(("C", CHANNELS), ("group", GROUPS)))
add_traits("_softmax_backward_data _log_softmax_backward_data", reads_whole=True)
WEIGHT_NORM = add_traits("_weight_norm_interface _weight_norm", normalizes=LENGTH)
add_traits("native_batch_norm batch_norm cudnn_batch_norm miopen_batch_norm", writes_buffers=True)

# --------------------------------------------------------------------------- layers

MATMUL = add_traits("mm bmm matmul _int_mm", layer=MATRIX_PRODUCT)
ADDMM = add_traits("addmm baddbmm addbmm _addmm_activation", layer=MATRIX_PRODUCT)
SPARSE_MATMUL = add_traits("_sparse_mm _sparse_sparse_matmul _sparse_mm_reduce_impl")
SPARSE_ADDMM = add_traits("_sparse_addmm sparse_sampled_addmm")
MATVEC = add_traits("mv addmv", layer=VECTOR_PRODUCT)
LINEAR_LAYER = add_traits("linear", layer=LINEAR)
TRILINEAR = add_traits("_trilinear", layer=BILINEAR)
CONVOLUTIONS = add_traits(
    "convolution _convolution mkldnn_convolution cudnn_convolution convolution_overrideable", layer=CONVOLUTION
)
DEFORMABLE = add_traits("torchvision::deform_conv2d", layer=CONVOLUTION)
EMBEDDING_TABLE = add_traits("embedding", layer=EMBEDDING)
EMBEDDING_BAG = add_traits("embedding_bag _embedding_bag _embedding_bag_forward_only", layer=EMBEDDING)
RECURRENT_LAYER = add_traits("lstm gru rnn_tanh rnn_relu", layer=RECURRENT)
MKLDNN_RNN = add_traits("mkldnn_rnn_layer", layer=RECURRENT)
ATTENTION = add_traits(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention"
    " _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
    " _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math"
    " _scaled_dot_product_attention_math_for_mps",
    is_attention=True,
)

# --------------------------------------------------------- linear algebra, random numbers

add_traits("linalg_inv_ex linalg_matrix_exp linalg_pinv", keeps_symmetry=True)
add_traits("linalg_pinv", triangle=("self", "hermitian"))
add_traits("linalg_matrix_rank", triangle=("input", "hermitian"))
add_traits("_linalg_eigh _cholesky_solve_helper triangular_solve", triangle=("A", None))
add_traits(
    "linalg_eigh linalg_eigvalsh linalg_cholesky linalg_cholesky_ex cholesky cholesky_inverse linalg_ldl_factor"
    " linalg_ldl_factor_ex linalg_solve_triangular linalg_matrix_sqrth",
    triangle=("self", None),
)
add_traits("cholesky_solve", triangle=("input2", None))
add_traits("linalg_ldl_solve", triangle=("LD", None))
add_traits("native_dropout dropout", noise=DROPPED)
add_traits("bernoulli bernoulli_", noise=FLIPPED)
add_traits("uniform_ normal_ exponential_ rand_like randn_like", noise=FILLED)

# ----------------------------------------------------------------------------- look-up


@cached_by_overload
def traits_of(overload: Overload) -> Traits:
    """Returns the traits of an operator, or of the operator in its `like=`."""
    read = schema_reading(overload).overload
    name = schema_of(read).name
    if has_traits(name):
        return traits_named(name)
    return POINTWISE if torch.Tag.pointwise in read.tags or is_tagged_pointwise(name) else NO_TRAITS


def size_argument(call: Arguments, counts: str) -> str:
    """The argument of a call that says how many CHANNELS, GROUPS, or LAST dimensions there are."""
    return next(name for name, meaning in traits_of(call.overload).sizes if meaning == counts and call.has(name))


def traits_named(name: str) -> Traits:
    """The traits that the table has for a name, as `aten::relu_`."""
    return _table.get(name) or _table.get(base_name(name)) or NO_TRAITS


def operators_with(trait: str) -> dict[str, Any]:
    """The operators of the table that have a trait, each with what it says."""
    return {name: getattr(traits, trait) for name, traits in _table.items() if getattr(traits, trait)}


def has_traits(name: str) -> bool:
    """True if the table has a row for an operator."""
    return name in _table or base_name(name) in _table


def is_tagged_pointwise(name: str) -> bool:
    """True if torch tags the operator, or its functional variant, as pointwise."""
    return any(torch.Tag.pointwise in each.tags for each in overloads_of(base_name(name)))
