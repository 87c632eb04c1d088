"""Saving and restoring the state that a forward pass may change: attributes, containers and tensor memory."""

from __future__ import annotations

import random
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.isolation.captured_state import (
    CONTAINERS,
    captured_class_state,
    is_user_module,
)
from modulekg_widgets.engine.torch_runtime.isolation.instances import slots
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state, registry
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    PARAMETERS,
    DisableTorchFunctionSubclass,
    disable_current_modes,
    has_storage,
    set_versions,
    version_of,
)
from modulekg_widgets.engine.torch_runtime.threads import ThreadActivity

# two that put back at once would put back what the other one changed
_lock = threading.RLock()


@contextmanager
def preserved(modules: Sequence[nn.Module], inputs: Any = ()) -> Iterator[StateSnapshot]:
    """Restores attributes of modules and inputs, and containers in them, when the context ends.

    What is known of the tensors is their identity, flags and gradients; `preserved_memory` looks after what is in them.
    """
    with _lock:
        with DisableTorchFunctionSubclass():  # a tensor class of the user's is not asked for its flags
            kept = StateSnapshot(modules, inputs)
        try:
            yield kept
        finally:
            with DisableTorchFunctionSubclass():
                kept.restore()


@contextmanager
def preserved_memory(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restores the contents of these tensors when the context ends, without raising their versions."""
    kept = MemorySnapshot(tensors)
    try:
        yield
    finally:
        kept.restore()


class MemorySnapshot:
    """A snapshot of the memory of tensors."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in _with_data(tensors)]

    def have_changed(self) -> bool:
        return any(t.data_ptr() != m.data_ptr() or not _same_bytes(m, copy) for t, m, copy in self._before)

    def restore(self) -> None:
        """Write what has changed."""
        with torch.inference_mode(False), torch.no_grad():
            for tensor, memory, copy in self._before:
                # neither the versions nor torch.equal tell: batch_norm raises no version, and NaN differs from itself
                if not _same_bytes(memory, copy):
                    memory.data.copy_(copy)
                if tensor.data_ptr() != memory.data_ptr():
                    tensor.data = memory


def _with_data(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        plain = tensor.layout is torch.strided and not tensor.is_quantized and has_storage(tensor)
        if plain and not tensor.is_meta:
            yield tensor


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = (tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return torch.equal(a, b)


class StateSnapshot:
    """The attributes of modules, and of the containers and plain objects in them, as they are now."""

    def __init__(self, modules: Sequence[nn.Module], inputs: Any) -> None:
        self.every_tensor: list[torch.Tensor] = []  # with the gradients
        self._registered: set[int] = set()
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._empty: list[Any] = []
        self._sequences: list[tuple[Any, list[Any]]] = []
        self._slots: list[tuple[Any, Any, Any]] = []
        self._others: list[tuple[Callable[[Any], object], Any]] = []
        self._classes: list[tuple[nn.Module, type]] = []
        self._flags: list[tuple[torch.Tensor, bool, torch.Tensor | None]] = []
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._waiting: list[Any] = [inputs]
        entered = {id(module) for module in modules}
        for module in modules:
            self._save_module(module)
        while self._waiting:
            value = self._waiting.pop()
            if id(value) not in entered:
                entered.add(id(value))
                self._enter(value)

    def _save_module(self, module: nn.Module) -> None:
        state = module_state(module)
        self._classes.append((module, type(module)))
        self._save_dict(state)
        self._save_slots(module)
        self._registered.update(map(id, registry(state, BUFFERS).values()))
        for tensor in registry(state, PARAMETERS).values():
            if isinstance(tensor, torch.Tensor):
                gradient = tensor.grad if tensor.is_leaf else None
                self._registered |= {id(tensor), id(gradient)}
                self._flags.append((tensor, tensor.requires_grad, gradient))
                self._save_tensor(tensor)
                if gradient is not None:
                    self._save_tensor(gradient)

    @property
    def unregistered_tensors(self) -> list[torch.Tensor]:
        """The tensors that are neither parameters nor buffers nor gradients of these."""
        return [tensor for tensor in self.every_tensor if id(tensor) not in self._registered]

    def _save_tensor(self, tensor: torch.Tensor) -> None:
        self.every_tensor.append(tensor)
        if not tensor.is_inference():
            self._versions.append((tensor, version_of(tensor)))

    def _enter(self, value: object) -> None:
        if isinstance(value, torch.Tensor):
            self._save_tensor(value)
        elif isinstance(value, nn.Module):
            self._save_module(value)
        elif isinstance(value, dict):
            self._save_dict(value)
        elif isinstance(value, tuple | frozenset):
            self._enqueue(value)
        elif isinstance(value, list | set | deque):
            self._sequences.append((value, list(value)))
            self._enqueue(value)
        elif (restorer := _restorer(value)) is not None:
            self._others.append(restorer)
        elif type(value).__module__ != "builtins":
            if type(state := getattr(value, "__dict__", None)) is dict:
                self._save_dict(state)
            self._save_slots(value)

    def _save_dict(self, state: dict[Any, Any]) -> None:
        if state:
            self._dicts.append((state, state.copy()))
            self._enqueue(state.values())
        else:
            self._empty.append(state)

    def _enqueue(self, values: Iterable[Any]) -> None:
        for value in values:
            cls = type(value)
            if cls in _ATOMIC_TYPES:
                continue
            if cls in _CONTAINERS and not value:
                self._empty.append(value)  # as most containers of a module are
            elif not isinstance(value, _LEAVES):
                self._waiting.append(value)

    def _save_slots(self, owner: object) -> None:
        for slot in slots(type(owner)):
            try:
                value = slot.__get__(owner)
            except AttributeError:
                value = _UNSET
            self._slots.append((slot, owner, value))
            self._enqueue((value,))

    def has_changed(self) -> bool:
        """True if an attribute or container entry is another object now; tensor contents are not compared."""
        return (
            any(not (_same(now, then) and _same(now.values(), then.values())) for now, then in self._dicts)
            or any(self._empty)
            or any(not _same(now, then) for now, then in self._sequences)
            or any(getattr(owner, slot.__name__, _UNSET) is not then for slot, owner, then in self._slots)
        )

    def restore(self) -> None:
        """Make everything what it was; what is so already is not written."""
        for module, cls in self._classes:
            if type(module) is not cls:
                module.__class__ = cls
        for state, before in self._dicts:
            if not (_same(state, before) and _same(state.values(), before.values())):
                state.clear()
                state.update(before)
        for state in self._empty:
            if state:
                state.clear()
        for value, before in self._sequences:
            if not _same(value, before):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(before)
        for put_back, before in self._others:
            put_back(before)
        for slot, owner, before in self._slots:
            if before is not _UNSET:
                slot.__set__(owner, before)
            else:
                with suppress(AttributeError):
                    slot.__delete__(owner)
        for tensor, requires_grad, grad in self._flags:
            if tensor.requires_grad is not requires_grad:
                tensor.requires_grad_(requires_grad)
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
        # writing raises the version of the user's tensor, also where a copy without data is what is written
        raised = [(tensor, version) for tensor, version in self._versions if version_of(tensor) != version]
        if raised:
            set_versions(*zip(*raised, strict=True))  # type: ignore[attr-defined]


_UNSET = object()
_CONTAINERS = {dict, OrderedDict, set, list}
_ATOMIC_TYPES = {int, float, bool, str, type(None), nn.Parameter, type, FunctionType, torch.dtype}
_LEAVES = (
    torch.dtype, torch.device, str, bytes, int, float, complex, bool, type, FunctionType, BuiltinFunctionType,
    MethodType, ModuleType,
)  # fmt: skip


def _same(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _restorer(value: Any) -> tuple[Callable[[Any], object], Any] | None:
    """Returns the setter and state of objects implemented in C: random generators and NumPy arrays."""
    if isinstance(value, torch.Generator):
        return value.set_state, value.get_state()
    if isinstance(value, random.Random):
        return value.setstate, value.getstate()
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.random.Generator):
        return lambda state: setattr(value.bit_generator, "state", state), value.bit_generator.state
    if numpy and isinstance(value, numpy.ndarray) and value.flags.writeable:
        return lambda copy: numpy.copyto(value, copy), value.copy()
    return None


# ----------------------------------------------------------------------------- classes


@contextmanager
def preserved_classes(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restores attributes of user classes and the state that their code reaches when the context ends.

    Unless other threads compute: they may have written it, as training does that runs the same code.
    """
    classes = {base for cls in set(map(type, modules)) for base in cls.__mro__ if is_user_module(base.__module__)}
    kept = [(cls, _class_attributes(cls)) for cls in classes]
    behind = captured_class_state(map(type, modules)).shared_state() if kept else []
    behind += [value for _, own in kept for value in own.values()]
    held = [(value, _contents(value)) for value in behind if type(value) in CONTAINERS]
    with disable_current_modes():
        tensors = MemorySnapshot(value for value in behind if isinstance(value, torch.Tensor))
    others = ThreadActivity() if kept else None
    try:
        yield
    finally:
        changed = [(cls, own) for cls, own in kept if not _same_contents(_class_attributes(cls), own)]
        filled = [(value, before) for value, before in held if not _same_contents(_contents(value), before)]
        with disable_current_modes():
            if (changed or filled or tensors.have_changed()) and not others:
                tensors.restore()
                for cls, own in changed:
                    _restore_class(cls, own)
                for value, before in filled:
                    value.clear()
                    (value.update if isinstance(value, dict | set) else value.extend)(before)


def _class_attributes(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).copy().items() if not name.startswith("__")}


def _contents(value: Any) -> Any:
    return value.copy() if isinstance(value, dict) else list(value.copy())


def _same_contents(now: Any, before: Any) -> bool:
    if len(now) != len(before) or not all(map(is_, now, before)):
        return False
    return not isinstance(before, dict) or all(map(is_, now.values(), before.values()))


def _restore_class(cls: type, own: Attributes) -> None:
    now = _class_attributes(cls)
    for name in now.keys() - own.keys():
        type.__delattr__(cls, name)
    for name, value in own.items():
        if now.get(name, cls) is not value:
            type.__setattr__(cls, name, value)
