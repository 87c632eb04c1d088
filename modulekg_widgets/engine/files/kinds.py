"""What the names and shapes of tensors tell of the module that they belong to, where a file does not name its class."""

from __future__ import annotations

from collections.abc import Mapping

from modulekg_widgets.engine.files.records import TensorRecord

CONTAINER, OTHER = "module", "tensors"
# by a tensor that no other kind has
BY_NAME = {"running_mean": "batch norm", "weight_ih_l0": "recurrent", "in_proj_weight": "attention"}
BY_DIMENSIONS = {1: "norm", 2: "matrix", 3: "convolution 1d", 4: "convolution 2d", 5: "convolution 3d"}
BUFFER_NAMES = frozenset({"running_mean", "running_var", "num_batches_tracked"})
KINDS = frozenset({CONTAINER, OTHER, *BY_NAME.values(), *BY_DIMENSIONS.values()})


def kind_of(own: Mapping[str, TensorRecord]) -> str:
    """The kind of a module in plain words, by its own tensors."""
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
