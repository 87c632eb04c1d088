"""What every reader makes of a file: plain records, which name what is in it and hold none of its code or weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PlainValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Bytes of a file that have numbers of a tensor in another form; `file` is "" for that of the record.

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
    """How the numbers of a tensor are stored that do not stand in the file as torch has them, and where.

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
    """A module that a file names: its dotted path ("" is the root's) and its class, as "torch.nn.modules.conv.Conv2d".

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
    """The shape of a value, with texts for sizes that are not fixed, and its dtype; None and "" where unknown."""

    shape: tuple[int | str, ...] | None = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """The operators of a file, the names of its inputs and outputs, and what is known of the values between."""

    operators: tuple[OperatorRecord, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, ValueRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileContents:
    """All that a reader tells of a file.

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
