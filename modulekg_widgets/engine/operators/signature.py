"""Facts from an operator's schema: the arguments that it writes, and the memory that its results share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import Overload, has_kernel, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Kwargs

# calls that only ask about a tensor
_METADATA_QUERIES = {
    "prim::device", "prim::dtype", "prim::layout", "aten::is_contiguous", "aten::size", "aten::sym_size",
    "aten::stride", "aten::sym_stride", "aten::numel", "aten::sym_numel", "aten::dim", "aten::storage_offset",
    "aten::sym_storage_offset", "aten::is_same_size", "aten::is_complex", "aten::is_floating_point",
    "aten::_has_same_storage_numel", "aten::_nnz", "aten::is_coalesced", "aten::sparse_dim", "aten::dense_dim",
    "aten::_dimI", "aten::_dimV",
}  # fmt: skip


_SPARSE_QUERIES = {
    "aten::_values", "aten::values", "aten::_indices", "aten::indices", "aten::crow_indices", "aten::col_indices",
    "aten::ccol_indices", "aten::row_indices", "aten::_nnz",
}  # fmt: skip
_DATA_DEPENDENT_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MASKS = (torch.bool, torch.uint8)


class Signature:
    """The facts about one overload that recording needs at every call."""

    __slots__ = (
        "is_composite",
        "is_metadata_query",
        "overload",
        "reads_data",
        "reads_sparse_count",
        "takes_device",
        "views",
        "writes",
        "writes_by_keyword",
    )

    def __init__(self, overload: Overload) -> None:
        schema = schema_of(overload)
        self.overload = overload
        self.is_metadata_query = schema.name in _METADATA_QUERIES
        # questions of `prim` are in no table of kernels
        self.is_composite = not self.is_metadata_query and has_kernel(overload.name(), "CompositeImplicitAutograd")
        self.takes_device = any(argument.name == "device" for argument in schema.arguments)
        # turns data into Python values or shapes: another input may take another way; an index only by its masks
        self.reads_data = schema.name == "torchvision::nms" or bool(_DATA_DEPENDENT_TAGS & {*overload.tags})
        self.reads_sparse_count = (
            schema.name in _SPARSE_QUERIES
        )  # its shapes go by how many elements a sparse tensor stores
        self.writes: list[int] = []  # positions of the arguments that are written
        self.writes_by_keyword: list[str] = []  # names of those that are passed by keyword only
        shared: set[str] = set()
        for result in schema.returns:
            if result.alias_info is not None:
                shared |= set(result.alias_info.before_set)
        self.views: int | None = None  # position of the argument whose memory the results share
        for position, argument in enumerate(schema.arguments):
            alias = argument.alias_info
            if alias is None:
                continue
            if alias.is_write:
                (self.writes_by_keyword if argument.kwarg_only else self.writes).append(
                    argument.name if argument.kwarg_only else position  # type: ignore[arg-type]
                )
            elif self.views is None and (shared & set(alias.before_set) or "*" in alias.after_set):
                self.views = position  # "*": the results are a list of views, as of split and unbind

    def depends_on_data(self, dtypes: Iterable[torch.dtype]) -> bool:
        """True if a call with tensors of these dtypes returns Python values or shapes that depend on data."""
        return self.reads_data and (schema_of(self.overload).name != "aten::index" or any(d in _MASKS for d in dtypes))

    @property
    def is_pure(self) -> bool:
        """True if the operator writes nothing, so that equal input layouts give equal output layouts."""
        return not self.writes and not self.writes_by_keyword


def plain_name(name: str) -> str:
    """`aten::relu_` as `relu`."""
    return base_name(name).rpartition("::")[2]


def base_name(name: str) -> str:
    """`aten::relu_` as `aten::relu`: what writes in place is, but for that, its namesake."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def overloads_of(name: str) -> list[Any]:
    """Returns the overloads of an operator by name, without the `out=` variants."""
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None) if namespace and operator else None
    every = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return [each for each in every if not any(argument.is_out for argument in schema_of(each).arguments)]


@cache
def signature_of(overload: Overload) -> Signature:
    """The facts about an overload, read from its schema once."""
    return Signature(overload)


def with_meta_device(kwargs: Kwargs) -> dict[str, Any]:
    """The keywords of a factory or a copy, its device changed to meta."""
    return {**kwargs, "device": torch.device("meta")}
