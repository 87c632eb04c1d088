"""Skeleton of a file: its modules as nn.Modules on the meta device, without code and values.

Classes are made here under the names that the file has for them, and share nothing else with those.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.records import FileContents, FileModuleRecord, TensorRecord
from modulekg_widgets.engine.files.tensor_owners import OwnedTensor, is_buffer, module_kind, tensor_owners
from modulekg_widgets.engine.files.tensor_reading import torch_dtype
from modulekg_widgets.engine.identity.skeleton_source import STORED_BYTES, Untold
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    MODULES,
    PARAMETERS,
    buffers_of,
    modules_of,
    parameters_of,
)

MAX_DEPTH = 200  # segments of a path; what is deeper stands in one name
MAX_MODULES = 200_000
MAX_CLASSES = 2_000  # of different names; what comes after them is shown without
EMPTY_MODULE_STATE = vars(nn.Module())  # what every module has: nobody adds a hook to what cannot be called
REGISTRIES = frozenset({PARAMETERS, BUFFERS, MODULES})
DEFAULT_TITLE = "model"
FALLBACK_DTYPE = torch.uint8  # for what torch has no dtype for


class FileModule(nn.Module):
    """A module of a file: class name, settings, children and tensor shapes; it cannot be called."""


class UntoldModule(FileModule, Untold):
    """A module of a file whose class is unknown."""


@dataclass(slots=True)
class SkeletonNode:
    """A node of the module tree, before its module is made."""

    part: FileModuleRecord | None = None
    own: dict[str, TensorRecord] = field(default_factory=dict)
    children: dict[str, SkeletonNode] = field(default_factory=dict)
    operators: dict[str, None] = field(default_factory=dict)  # distinct ones that run in it, in the order of the file


def skeleton(
    contents: FileContents, title: str, owned: Iterable[OwnedTensor] | None = None, counts_as: str = DEFAULT_TITLE
) -> nn.Module:
    """Returns the root module; `title` names its class if the file does not.

    `owned` are its tensors by their modules, where they are not those of `owners`. As a structure the root of such a
    file is `counts_as`, whatever the title; if that is "", what any other module with its tensors would be.
    Raises `ModelFileError` for more modules, or a larger tensor, than any model has.
    """
    root = _module_tree(contents, tensor_owners(contents) if owned is None else owned)
    _in_natural_order(root)
    made = _ModuleBuilder(contents.tensors)
    top = made.module(root, title, counts_as)
    waiting = [(root, top)]
    while waiting:
        place, module = waiting.pop()
        for name, child in place.children.items():
            inner = made.module(child)
            modules_of(module)[name] = inner
            waiting.append((child, inner))
        place.children.clear()  # what has been made makes room for what has not
    return top


def _module_tree(contents: FileContents, owned: Iterable[OwnedTensor]) -> SkeletonNode:
    root, count = SkeletonNode(), 0

    def at(path: str) -> SkeletonNode:
        nonlocal count
        place = root
        for segment in path.split(".", MAX_DEPTH):
            found = place.children.get(segment)
            if found is None:
                count += 1
                if count > MAX_MODULES:
                    raise ModelFileError(f"the file names more than {MAX_MODULES:,} modules: no model has as many")
                found = place.children[segment] = SkeletonNode()
            place = found
        return place

    for part in contents.modules:
        (at(part.path) if part.path else root).part = part
    for path, op in _kinds_of_operators(contents):
        if path:
            at(path).operators[op] = None
    for path, name, record in owned:
        (at(path) if path else root).own[name] = record
    return root


def _kinds_of_operators(contents: FileContents) -> Iterable[tuple[str, str]]:
    return dict.fromkeys((o.module, o.op) for o in contents.graph.operators) if contents.graph is not None else ()


def _in_natural_order(root: SkeletonNode) -> None:
    """Sort numbered siblings numerically: a file may have 10 before 2."""
    for place in _all(root):
        names = list(place.children)
        if len(names) > 1 and all(name.isdecimal() and name.isascii() and len(name) < 10 for name in names):
            place.children = {name: place.children[name] for name in sorted(names, key=int)}


def _all(root: SkeletonNode) -> Iterator[SkeletonNode]:
    waiting = [root]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(place.children.values())


class _ModuleBuilder:
    """Builds modules; tensors with the same location are one object, as tied parameters are."""

    def __init__(self, records: Iterable[TensorRecord]) -> None:
        self._names: set[str] = set()
        met: set[tuple[str, int | None]] = set()
        self._again = {place for place in map(_storage_key, records) if place in met or met.add(place)}
        self._tied: dict[tuple, nn.Parameter] = {}

    def module(self, place: SkeletonNode, title: str | None = None, counts_as: str = DEFAULT_TITLE) -> nn.Module:
        part = place.part
        name = part.class_name if part is not None else ""
        if name and (name in self._names or len(self._names) < MAX_CLASSES):
            self._names.add(name)
            made = _new_module(module_class(name))
        elif title is not None:
            made = _new_module(unknown_class(title, counts_as or module_kind(place.own)))
        else:
            made = _new_module(unknown_class(self._kind(place)))
        settings = dict(part.settings) if part is not None else {}
        dtypes = {record.dtype for record in place.own.values()}
        if dtypes:
            settings.setdefault("dtype", dtypes.pop() if len(dtypes) == 1 else ", ".join(sorted(dtypes)))
        for key, value in settings.items():
            if key not in EMPTY_MODULE_STATE:
                object.__setattr__(made, key, value)
        for name, record in place.own.items():
            registry = buffers_of(made) if is_buffer(name, record) else parameters_of(made)
            registry[name] = self._tensor(record)
        place.own.clear()
        return made

    def _kind(self, place: SkeletonNode) -> str:
        kind = module_kind(place.own, () if place.children else place.operators)
        if kind in self._names or len(self._names) < MAX_CLASSES:
            self._names.add(kind)
            return kind
        return module_kind(place.own)

    def _tensor(self, record: TensorRecord) -> nn.Parameter:
        if record.offset is None or not record.nbytes or _storage_key(record) not in self._again:
            return _meta_parameter(record)
        key = (record.file, record.offset, record.shape, record.strides, record.dtype)
        if key not in self._tied:
            self._tied[key] = _meta_parameter(record)
        return self._tied[key]


def _storage_key(record: TensorRecord) -> tuple[str, int | None]:
    return record.file, record.offset


def _new_module(cls: type[nn.Module]) -> nn.Module:
    """Returns an empty module, twice as fast as its constructor; empty registries are shared."""
    made = cls.__new__(cls)
    for name, value in EMPTY_MODULE_STATE.items():
        object.__setattr__(made, name, {} if name in REGISTRIES else value)
    return made


def _meta_parameter(record: TensorRecord) -> nn.Parameter:
    elements = math.prod(record.shape)
    dtype = torch_dtype(record.dtype) or FALLBACK_DTYPE
    made = nn.Parameter(_empty(record.shape, dtype), requires_grad=False)
    if record.nbytes != elements * dtype.itemsize:
        setattr(made, STORED_BYTES, record.nbytes)
    return made


@lru_cache(maxsize=10_000)
def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A meta tensor, one for all of a shape and dtype."""
    return torch.empty(shape, dtype=dtype, device="meta")


@lru_cache(maxsize=4_096)
def module_class(name: str) -> type[nn.Module]:
    """Returns a new class of this dotted name, unrelated to the importable one."""
    module, _, last = name.rpartition(".")
    return _new_class(last, FileModule, module)


@lru_cache(maxsize=4_096)
def unknown_class(name: str, counts_as: str = "") -> type[nn.Module]:
    """Returns a class named after a kind of module; with `counts_as` its identity is that of the kind."""
    made = _new_class(name, UntoldModule, "")
    if counts_as:  # the name of a file says nothing of the structure
        made.__qualname__ = counts_as
    return made


def _new_class(name: str, base: type[nn.Module], module: str) -> type[nn.Module]:
    name, module = (text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0") for text in (name, module))
    return type(name, (base,), {"__module__": module or base.__module__})
