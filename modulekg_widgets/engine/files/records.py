"""Records of a model file: tensors, modules, operators and metadata as plain values.

For readers, which produce them, and for everything that shows, compares or searches files. `FileContents` is the root:
`tensors` with name, shape, dtype and location, `modules` with path and class, `graph` with operators in execution
order, `metadata` and `warnings`. Records hold no code and no weights, are frozen, and refer to each other by name
alone. Names of modules and operators may be incomplete: a format that stores tensors only has neither, and modules are
then derived from the names of tensors (`tensor_owners.py`, `skeleton.py`).

    FileContents("names", (TensorRecord("weight", (4, 2), "float32", 32),))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PlainValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Bytes that encode the numbers of a tensor; `file` is "" for the file of the record.

    `offsets` and `sizes` are the place of these numbers in a tensor that is stored in several parts; None for one that
    is not.
    """

    start: int
    nbytes: int
    file: str = ""
    offsets: tuple[int, ...] | None = None
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """Encoding and location of a tensor whose numbers are not stored as torch has them in memory.

    `form` is "protobuf" (a message of ONNX with numbers of several bytes each), "big-endian", or "torch.save".
    """

    form: str
    parts: tuple[EncodedPart, ...]


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor in a file.

    `shape` is in elements and in the order of torch, `nbytes` what it takes in the file. `dtype` is torch's word
    without its prefix, as "float32", or the format's own for one that torch has not, as "Q4_K". `offset` is that of
    its first byte in `file`, a name in the same folder, which is "" for the file that was opened; None where its bytes
    do not stand there one behind the other. `encoded` says how those can be decoded that are not as torch has them.
    `strides`, in elements, is None for a contiguous tensor. `role` is "parameter", "buffer" or "constant", and None
    where the format does not tell.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    offset: int | None = None
    file: str = ""
    strides: tuple[int, ...] | None = None
    role: str | None = None
    encoded: EncodedValues | None = None


@dataclass(frozen=True, slots=True)
class FileModuleRecord:
    """A module that a file names: dotted path ("" for the root) and class, as "torch.nn.modules.conv.Conv2d".

    `class_name` is "" where the format does not tell it; `settings` are attributes such as `in_channels`.
    """

    path: str
    class_name: str = ""
    settings: Mapping[str, PlainValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """An operator of a file's graph, in the order in which they run.

    `inputs` and `outputs` are names of values; an input that is one of the file's tensors has its name. `name` occurs
    once in a file. `module` is the dotted path of the module that it runs in.
    """

    name: str
    op: str
    module: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, PlainValue] = field(default_factory=dict)
    source: str = ""  # file and line that it comes from


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """Shape and dtype of a value; dynamic sizes are strings, None and "" stand for unknown."""

    shape: tuple[int | str, ...] | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """The operators of a file, the names of its inputs and outputs, and the known values between."""

    operators: tuple[OperatorRecord, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, ValueRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileContents:
    """The result of a reader.

    `modules` need not be complete: the names of tensors and operators tell of more. `classes` are those that the file
    names and that would be imported by whoever loads it; `warnings` say what a user should know before he does.
    """

    format: str
    tensors: tuple[TensorRecord, ...]
    title: str = ""
    metadata: Mapping[str, PlainValue] = field(default_factory=dict)
    modules: tuple[FileModuleRecord, ...] = ()
    graph: OperatorGraph | None = None
    classes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
