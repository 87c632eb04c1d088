"""What the names and shapes of tensors tell of the module that they belong to, where a file does not name its class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from modulekg_widgets.engine.files.records import TensorRecord

CONTAINER, OTHER = "module", "tensors"
# by a tensor that no other kind has
BY_NAME = {"running_mean": "batch norm", "weight_ih_l0": "recurrent", "in_proj_weight": "attention"}
BY_DIMENSIONS = {1: "norm", 2: "matrix", 3: "convolution 1d", 4: "convolution 2d", 5: "convolution 3d"}
BUFFER_NAMES = frozenset({"running_mean", "running_var", "num_batches_tracked"})
KINDS = frozenset({CONTAINER, OTHER, *BY_NAME.values(), *BY_DIMENSIONS.values()})
_TORCH = re.compile(r"(?:torch\.ops\.(\w+)|(aten|prims|quantized|torchvision))\.(\w+)")
MOST_NAMES = 2  # of operators that a module is called by


def kind_of(own: Mapping[str, TensorRecord], operators: Iterable[str] = ()) -> str:
    """The kind of a module in plain words, by its own tensors; where these tell none, by what runs in it.

    `operators` are those of a module that holds no others.
    """
    kind = _kind_by_tensors(own)
    if kind not in (CONTAINER, OTHER):
        return kind
    names = list(dict.fromkeys(operator_name(op).rpartition(":")[2] for op in operators))
    if len(names) > MOST_NAMES:
        return ", ".join([*names[:MOST_NAMES], f"+{len(names) - MOST_NAMES}"])
    return ", ".join(names) or kind


def operator_name(op: str) -> str:
    """`torch.ops.aten.conv2d.default` and `aten.conv2d.default` as `aten::conv2d`."""
    parts = _TORCH.match(op)
    return f"{parts[1] or parts[2]}::{parts[3]}" if parts else op


def _kind_by_tensors(own: Mapping[str, TensorRecord]) -> str:
    if not own:
        return CONTAINER
    for name, kind in BY_NAME.items():
        if name in own:
            return kind
    weight = own.get("weight")
    return OTHER if weight is None else BY_DIMENSIONS.get(len(weight.shape), OTHER)


def is_buffer(name: str, record: TensorRecord) -> bool:
    """Whether a tensor of this own name is no parameter: as the file says, else by its name and dtype."""
    if record.role is not None:
        return record.role != "parameter"
    return name in BUFFER_NAMES or record.dtype.startswith(("int", "uint", "bool"))
