"""Transactions: a list of writes that is committed as a whole or rolled back."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import setitem
from typing import Any, Generic, SupportsIndex, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, ModelInUseError, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit, as_integers, locate_attributes, locate_tensors
from modulekg_widgets.engine.residuals.module_removal import remove_modules
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.isolation.shadow import has_strided_memory
from modulekg_widgets.engine.torch_runtime.modules import Attributes
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, FLAT_WEIGHTS, PARAMETERS
from modulekg_widgets.engine.torch_runtime.threads import current_use, training_thread
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    PARAMETER,
    named_registered_tensors,
    set_unregistered_tensors,
)

T = TypeVar("T")
Value = TypeVar("Value")
Items = dict[Any, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class Write(Generic[Value]):
    """One assignment; `assign` may run twice, also after an interrupted run."""

    assign: Callable[[Value], object]
    before: Value
    after: Value


def item_write(container: MutableMapping[Any, Any] | list[Any], key: Any, after: object) -> Write:
    """A write of an existing item of a dictionary or list."""
    return Write(partial(container.__setitem__, key), container[key], after)


def attribute_write(owner: object, name: str, after: object) -> Write:
    """A write of an existing attribute."""
    return Write(partial(setattr, owner, name), getattr(owner, name), after)


def contents_write(container: Items, after: Items) -> Write:
    """A write of the whole content of a dictionary or list."""
    return Write(partial(_refill, container), container.copy(), after)


def _refill(container: Items, after: Items) -> None:
    container.clear()
    (container.update if isinstance(container, dict) else container.extend)(after)


def commit(writes: Sequence[Write], result: T, modules: Sequence[nn.Module] = ()) -> T:
    """Do all writes and return `result`; if anything fails, interrupts included, all are rolled back.

    Raises `ModelInUseError` where another thread runs or trains one of `modules`, before and also meanwhile.
    Nothing may follow the call of this function, and the call is a plain one, after which Python looks for no signals:
    the last thing that can fail is inside its `try`.
    """
    refuse_in_use(modules)
    try:
        for write in writes:
            write.assign(write.after)
        _raise_if_in_use(modules, current_use(modules))
        return result
    except BaseException:
        _roll_back(writes)
        raise


def refuse_in_use(modules: Sequence[nn.Module]) -> None:
    """Raise `ModelInUseError` where another thread runs or trains one of `modules`."""
    _raise_if_in_use(modules, training_thread(modules))


def _raise_if_in_use(modules: Sequence[nn.Module], user: str | None) -> None:
    if user is not None:
        name = printable(type(modules[0]).__name__)
        raise ModelInUseError(
            f"{name} cannot be changed now: {user}. Wait for that thread, or stop it; nothing was changed"
        )


def _roll_back(writes: Sequence[Write]) -> None:
    """Write the old values, also if a write fails; interrupts are delayed."""
    whole = False
    while not whole:
        try:
            for write in writes:
                with suppress(Exception):
                    write.assign(write.before)
            whole = True
        except KeyboardInterrupt:
            continue


# -------------------- Snapshots of containers and tensors, from which their state can be written back


_ABSENT = object()


class WeakReferenceLists(list[tuple[Attributes, str, list[object], list[object]]]):
    """Lists of weak references, which are dropped when a receipt is copied or pickled."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type, tuple[()]]:
        return WeakReferenceLists, ()


class Snapshot:
    """Recorded contents of dictionaries and lists, and bytes of tensors."""

    def __init__(self) -> None:
        self._contents: list[tuple[Items, Items]] = []
        self._entries: list[tuple[Attributes, str, object]] = []
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._bytes: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self._recorded_ids: set[int] = set()
        self._references = WeakReferenceLists()

    def record(self, name: str, value: object, by_identity: Container[int] = ()) -> None:
        """Record all that a container holds; tensors with an id in `by_identity` are not copied."""
        if id(value) in self._recorded_ids or id(value) in by_identity:
            return
        if isinstance(value, torch.Tensor):
            self.record_bytes(name, value)
        elif isinstance(value, dict | list):
            self._recorded_ids.add(id(value))
            self._contents.append((value, value.copy()))
        parts: Iterable[object] = value.values() if isinstance(value, dict) else ()
        for part in value if isinstance(value, list | tuple) else parts:
            self.record(name, part, by_identity)

    def record_entry(self, container: Attributes, key: str) -> None:
        """Record the object at a key."""
        self._entries.append((container, key, container[key]))

    def record_references(self, container: Attributes, key: str) -> None:
        """Record the list of weak references at a key."""
        self._references.append((container, key, container[key], container[key].copy()))

    def record_bytes(self, name: str, tensor: torch.Tensor) -> None:
        """Record the memory of a tensor, without its gradient."""
        if id(tensor) not in self._recorded_ids and not nn.parameter.is_lazy(tensor):
            self._recorded_ids.add(id(tensor))
            self._bytes.append((name, tensor, writable_alias(tensor).clone()))

    def record_gradient(self, name: str, tensor: torch.Tensor) -> None:
        """Record the gradient of a leaf, and its content."""
        if tensor.is_leaf:
            self._gradients.append((tensor, tensor.grad))
            if tensor.grad is not None:
                self.record_bytes(name, tensor.grad)

    def writes(self) -> Iterator[Write]:
        """The writes that restore everything; raises `CutError` for another shape, dtype or device."""
        for name, tensor, copy in self._bytes:
            now = writable_alias(tensor)
            if (now.shape, now.dtype, now.device) != (copy.shape, copy.dtype, copy.device):
                raise CutError(
                    f"{printable(name)} was {describe_tensor(copy)} and is {describe_tensor(now)}: undo the cut that "
                    "changed it, or "
                    "move the model back, and try again"
                )
            if not _same_bytes(now, copy):  # a graph that needs the values would be told of the write
                yield Write(now.copy_, now.clone(), copy)
        for container, before in self._contents:
            yield contents_write(container, before)
        for container, key, listed, before in self._references:
            yield contents_write(listed, before)
            yield Write(partial(_set_or_delete, container, key), container.get(key, _ABSENT), listed)
        for container, key, before in self._entries:
            if container.get(key, _ABSENT) is not before:
                yield Write(partial(_set_or_delete, container, key), container.get(key, _ABSENT), before)
        for tensor, before in self._gradients:
            yield attribute_write(tensor, "grad", before)


def _set_or_delete(container: Attributes, key: str, value: object) -> None:
    if value is _ABSENT:
        container.pop(key, None)
    else:
        setitem(container, key, value)


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not has_strided_memory(a):
        return False
    return a.is_meta or torch.equal(*(as_integers(each.resolve_conj().resolve_neg()) for each in (a, b)))


def writable_alias(tensor: torch.Tensor) -> torch.Tensor:
    """An alias of a tensor for writes outside autograd; the version counter is shared."""
    alias = tensor.detach()
    if alias.layout is torch.strided:
        for at in range(alias.dim()):
            if alias.stride(at) == 0 and alias.shape[at] > 1:  # expanded: all of them share one element
                alias = alias.narrow(at, 0, 1)
    return alias


def describe_tensor(tensor: torch.Tensor) -> str:
    """Shape, dtype and device of a tensor, for messages."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"


# -------------------- Edits applied to a sandbox, so that the model can be run as it would be cut


Tensor = torch.Tensor
Slicer = Callable[[TensorEdit, Tensor], Tensor]


def apply_edits(
    walk: Walk, sandbox: Sandbox, edits: Edits, slice_of: Slicer, others: Mapping[str, Tensor] | None = None
) -> None:
    """Apply edits to the modules of a sandbox; `others` are further tensors by name."""
    new: dict[int, Tensor] = {}
    targets = locate_tensors(walk, edits)
    for target in targets:
        new[id(target.tensor)] = sandbox.hold(
            target.tensor, _as_parameter_like(target.tensor, slice_of(target.edit, target.tensor))
        )
    for held in list(named_registered_tensors(walk, walk.all_paths())) if new or others else ():
        if id(held.tensor) not in new and others is not None and held.name in others:  # what goes may have no others
            new[id(held.tensor)] = sandbox.hold(held.tensor, _as_parameter_like(held.tensor, others[held.name]))
        if id(held.tensor) in new:
            held.state[PARAMETERS if held.kind == PARAMETER else BUFFERS][held.attribute] = new[id(held.tensor)]
    set_unregistered_tensors(
        walk,
        {
            **(others or {}),
            **{each.name: new[id(each.tensor)] for target in targets for each in target.attribute_locations},
        },
    )
    if any(FLAT_WEIGHTS in state for state in walk.states):
        _replace_in_lists(walk, new)
    for setting in locate_attributes(walk, edits):
        setting.state[setting.name] = setting.after
    remove_modules(walk, edits.removal)


def _as_parameter_like(tensor: Tensor, value: Tensor) -> Tensor:
    """A value as a parameter, if the tensor is one."""
    if not isinstance(tensor, nn.Parameter):
        return value
    with torch.inference_mode(False):
        return nn.Parameter(value.clone() if value.is_inference() else value, tensor.requires_grad)


def _replace_in_lists(walk: Walk, new: Mapping[int, Tensor]) -> None:
    """Replace tensors in the weight lists of recurrent layers."""
    for state in walk.states:
        for name, value in state.items():
            if isinstance(value, list) and any(id(part) in new for part in value):
                state[name] = [new.get(id(part), part) for part in value]
