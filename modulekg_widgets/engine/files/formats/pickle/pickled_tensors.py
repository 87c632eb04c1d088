"""Tensors in pickles, from the arguments of the rebuild functions of torch and numpy."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.file_formats.format_tables import TORCH_BITS, TORCH_STORAGES
from modulekg_widgets.engine.files.formats.pickle.pickle_machine import (
    GlobalReference,
    ObjectRecord,
    PersistentReference,
    PickleValue,
    TruncatedText,
)
from modulekg_widgets.engine.files.formats.pickle.torch_names import (
    LEGACY_REBUILD,
    PARAMETER,
    REBUILD,
    SIZE,
)

MAX_DIMENSIONS = 16
MAX_ELEMENTS = 1 << 62
MAX_FLAGS = 32  # of a tensor, as that it is the conjugate of what is stored
MAX_SCALAR_BYTES = 16  # bytes
MAX_DEPTH = 8  # parameters of subclasses of parameters …


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """A storage of torch; `offset` is None if its bytes are not stored as they are in memory."""

    dtype: str
    nbytes: int
    offset: int | None = None


class PickledTensor(NamedTuple):
    """A tensor of a pickle, without a name."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    offset: int | None = None
    strides: tuple[int, ...] | None = None
    role: str | None = None


def storage_dtype(kind: PickleValue) -> str:
    """Returns the dtype of a storage class; raises `ValueError` for any other class."""
    name = kind.path.rpartition(".")[2] if isinstance(kind, GlobalReference) else ""
    if name not in TORCH_STORAGES:
        raise ValueError(f"a tensor is stored in {printable(class_path(kind)) or 'nothing'}, which torch does not have")
    return TORCH_STORAGES[name]


def class_path(maker: PickleValue) -> str:
    """Returns the path of a class or function, unwrapped from the legacy format; "" for an object."""
    if (
        type(maker) is PersistentReference
        and type(maker.key) is tuple
        and maker.key[:1] == ("module",)
        and len(maker.key) > 1
    ):
        maker = maker.key[1]
    return maker.path if type(maker) is GlobalReference else ""


class TensorRebuilder:
    """Rebuilds tensors as records; `storage` resolves a persistent id or inline bytes."""

    def __init__(self, storage: Callable[[PickleValue], StorageRecord]) -> None:
        self._storage = storage

    def rebuild(self, value: PickleValue, depth: int = 0) -> PickledTensor | None:
        """Returns the tensor of a value; None for other values, `ValueError` for an impossible one."""
        if type(value) is ObjectRecord:
            rebuild = _REBUILD.get(class_path(value.maker))
            if rebuild is None:
                return None
            if depth > MAX_DEPTH:
                raise ValueError("a tensor is wrapped in too many others")
            try:
                return rebuild(self, value, depth + 1)
            except (IndexError, TypeError, AttributeError) as error:
                raise ValueError(f"{class_path(value.maker)} is given what makes no tensor") from error
        if type(value) is PersistentReference and type(value.key) is tuple and value.key[:1] == ("storage",):
            storage = self._storage(value)
            return PickledTensor(
                (storage.nbytes * 8 // TORCH_BITS[storage.dtype],), storage.dtype, storage.nbytes, storage.offset
            )
        return None

    def _dense(self, made: ObjectRecord, depth: int) -> PickledTensor:
        """`_rebuild_tensor(storage, offset, size, stride)` and its later versions."""
        storage = self._storage(made.args[0])
        return _view(storage, storage.dtype, made.args[1:4], _is_changed(made.args[6:7]))

    def _typed(self, made: ObjectRecord, depth: int) -> PickledTensor:
        """`_rebuild_tensor_v3`, with the dtype of an untyped storage."""
        return _view(self._storage(made.args[0]), dtype_word(made.args[6]), made.args[1:4], _is_changed(made.args[7:8]))

    def _quantized(self, made: ObjectRecord, depth: int) -> PickledTensor:
        storage = self._storage(made.args[0])
        return _view(storage, storage.dtype, made.args[1:4])

    def _parameter(self, made: ObjectRecord, depth: int) -> PickledTensor | None:
        found = self.rebuild(made.args[0], depth)
        return found and found._replace(role="parameter")

    def _subclass(self, made: ObjectRecord, depth: int) -> PickledTensor | None:
        """`_rebuild_from_type_v2(function, class, arguments, state)`; buffers are marked in the state."""
        found = self.rebuild(ObjectRecord(made.args[0], made.args[2]), depth)
        if found is None:
            return None
        state = made.args[3]
        if isinstance(state, dict) and state.get("_is_buffer") is True:
            return found._replace(role="buffer")
        return found._replace(role="parameter") if class_path(made.args[1]) == PARAMETER else found

    def _sparse(self, made: ObjectRecord, depth: int) -> PickledTensor:
        """`_rebuild_sparse_tensor(layout, (indices, …, values, size, …))`."""
        data = made.args[1][:4]
        held = [part for part in data if type(part) is ObjectRecord and class_path(part.maker) != SIZE]
        parts = [self.rebuild(part, max(MAX_DEPTH, depth)) for part in held]  # which are no sparse ones themselves
        found = [part for part in parts if part is not None]
        sizes = [part for part in data if type(part) is not ObjectRecord or class_path(part.maker) == SIZE]
        return PickledTensor(sizes_from(sizes[0]), found[-1].dtype, sum(part.nbytes for part in found))

    def _meta(self, made: ObjectRecord, depth: int) -> PickledTensor:
        return PickledTensor(sizes_from(made.args[1]), dtype_word(made.args[0]), 0)

    def _wrapper(self, made: ObjectRecord, depth: int) -> PickledTensor:
        return PickledTensor(sizes_from(made.args[2]), dtype_word(made.args[1]), 0)

    def _wrapped(self, made: ObjectRecord, depth: int) -> PickledTensor | None:
        """A tensor of another device, or a nested one, rebuilt from a plain one."""
        return self.rebuild(made.args[0], depth)

    def _array(self, made: ObjectRecord, depth: int) -> PickledTensor | None:
        """A numpy array: version, shape, dtype, order and bytes."""
        if type(made.state) is not tuple:
            return None
        _, shape, dtype, _, content = made.state
        return _inline_array(shape, dtype, content)

    def _buffer_array(self, made: ObjectRecord, depth: int) -> PickledTensor | None:
        content, dtype, shape = made.args[:3]
        return _inline_array(shape, dtype, content)


def _is_changed(metadata: PickleValue) -> bool:
    """True if the values are conjugates or negatives of the stored ones."""
    if not metadata or not isinstance(metadata[0], dict):
        return False
    return len(metadata[0]) > MAX_FLAGS or any(map(bool, metadata[0].values()))


def dtype_word(kind: PickleValue) -> str:
    name = kind.path.removeprefix("torch.") if isinstance(kind, GlobalReference) else ""
    if name not in TORCH_BITS:
        raise ValueError(
            f"a tensor has the type {printable(class_path(kind)) or 'of nothing'}, which torch does not have"
        )
    return name


def sizes_from(value: PickleValue) -> tuple[int, ...]:
    if type(value) is ObjectRecord and class_path(value.maker) == SIZE:
        value = value.args[0] if value.args else ()
    if not isinstance(value, (tuple, list)) or len(value) > MAX_DIMENSIONS:
        raise ValueError("a tensor has no shape that can be")
    for size in value:
        if type(size) is not int or not 0 <= size <= MAX_ELEMENTS:
            raise ValueError(f"a tensor has a size or stride of {_size_value(size)}")
    if math.prod(value) > MAX_ELEMENTS:
        raise ValueError("a tensor has more elements than fit into any memory")
    return tuple(value)


def _size_value(size: PickleValue) -> str:
    return f"{size:,}" if type(size) is int and abs(size) < 1 << 64 else type(size).__name__


def _view(storage: StorageRecord, dtype: str, layout: PickleValue, changed: bool = False) -> PickledTensor:
    """Returns a view of a storage; raises `ValueError` if offset, size and strides exceed it."""
    start, size, strides = layout
    shape = sizes_from(size)
    if type(strides) is not tuple or len(strides) != len(shape) or any(type(s) is not int or s < 0 for s in strides):
        raise ValueError("a tensor has strides that do not fit its shape")
    bits = TORCH_BITS[dtype]
    elements = math.prod(shape)
    end = start + 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if type(start) is not int or start < 0 or (elements and end * bits > storage.nbytes * 8 + 7):
        raise ValueError("a tensor ends after its storage")
    nbytes = min(-(-elements * bits // 8), storage.nbytes)
    whole = bits >= 8 or start == 0
    offset = None if storage.offset is None or changed or not whole else storage.offset + start * bits // 8
    return PickledTensor(shape, dtype, nbytes, offset, None if _is_contiguous(shape, strides, elements) else strides)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], elements: int) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return not elements
        expected *= length
    return True


_NUMPY = {
    "f2": "float16", "f4": "float32", "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "b1": "bool", "c8": "complex64",
    "c16": "complex128",
}  # fmt: skip
_NUMBERS = {
    "f4": "f",
    "f8": "d",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u4": "I",
    "u8": "Q",
    "b1": "?",
}


def _code(dtype: PickleValue) -> tuple[str, int]:
    """The code of a numpy dtype, as "f4", and its item size."""
    code = dtype.args[0]
    if type(code) is not str or not re.fullmatch(r"[A-Za-z]\d{1,9}", code):
        raise ValueError("an array has a type that numpy does not have")
    return code, int(code[1:]) * (4 if code[0] == "U" else 1)


def _inline_array(shape: PickleValue, dtype: PickleValue, content: PickleValue) -> PickledTensor | None:
    """An array with its bytes in the pickle; None for an object array."""
    content = _encoded(content)
    code, size = _code(dtype)
    if code[0] == "O" or type(content) not in (bytes, str, TruncatedText):
        return None
    shape = sizes_from(shape)
    nbytes = math.prod(shape) * size
    if nbytes > (content.length if type(content) is TruncatedText else len(content)):
        raise ValueError("an array has fewer bytes than its shape needs")
    return PickledTensor(shape, _NUMPY.get(code, code), nbytes)


def _encoded(content: PickleValue) -> PickleValue:
    """Bytes that an old protocol stores as text, one character each."""
    return (
        content.args[0] if type(content) is ObjectRecord and class_path(content.maker) == "_codecs.encode" else content
    )


def first_bytes(content: PickleValue) -> bytes | None:
    """Returns bytes, or the first of truncated ones; None for other values."""
    content = _encoded(content)
    if type(content) is TruncatedText:
        content = content.head.decode(content.encoding, "ignore") if content.encoding else content.head
    if type(content) is str:
        return content.encode("latin-1", "ignore")
    return content if type(content) is bytes else None


def _is_short(content: PickleValue) -> bool:
    content = _encoded(content)
    return type(content) in (bytes, str) and len(content) <= MAX_SCALAR_BYTES


def scalar_value(made: ObjectRecord) -> int | float | bool | None:
    """Returns the number of a numpy scalar; None for other values."""
    if class_path(made.maker) not in _SCALARS or type(made.args) is not tuple or len(made.args) != 2:
        return None
    try:
        code, _ = _code(made.args[0])
        raw = first_bytes(made.args[1]) if _is_short(made.args[1]) else None
        swapped = type(made.args[0].state) is tuple and made.args[0].state[1:2] == (">",)
        return struct.unpack((">" if swapped else "<") + _NUMBERS[code], raw or b"")[0]
    except (KeyError, struct.error, AttributeError, IndexError, TypeError, ValueError):
        return None


_SCALARS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
_REBUILD: dict[str, Callable[[TensorRebuilder, ObjectRecord, int], PickledTensor | None]] = {
    REBUILD["tensor"]: TensorRebuilder._dense,
    REBUILD["tensor_v2"]: TensorRebuilder._dense,
    REBUILD["tensor_v3"]: TensorRebuilder._typed,
    REBUILD["qtensor"]: TensorRebuilder._quantized,
    REBUILD["parameter"]: TensorRebuilder._parameter,
    REBUILD["parameter_with_state"]: TensorRebuilder._parameter,
    PARAMETER: TensorRebuilder._parameter,
    REBUILD["from_type_v2"]: TensorRebuilder._subclass,
    REBUILD["sparse_tensor"]: TensorRebuilder._sparse,
    REBUILD["meta_tensor_no_storage"]: TensorRebuilder._meta,
    REBUILD["wrapper_subclass"]: TensorRebuilder._wrapper,
    REBUILD["nested_tensor"]: TensorRebuilder._wrapped,
    LEGACY_REBUILD: TensorRebuilder._wrapped,
    REBUILD["device_tensor_from_numpy"]: TensorRebuilder._wrapped,
    REBUILD["device_tensor_from_cpu_tensor"]: TensorRebuilder._wrapped,
    "numpy.core.multiarray._reconstruct": TensorRebuilder._array,
    "numpy._core.multiarray._reconstruct": TensorRebuilder._array,
    "numpy.core.numeric._frombuffer": TensorRebuilder._buffer_array,
    "numpy._core.numeric._frombuffer": TensorRebuilder._buffer_array,
}
