"""The shadow of a model: a structural copy that can be run and changed without reaching the model.

Modules, containers, plain objects, bound methods, hooks and closures are copied, so that they lead to copies. Tensors
are new objects on the same memory, or with memory of their own. Modules are created by `cls.__new__` with a copied
`__dict__`: no code of the model runs, and nothing is written to it. Objects whose state is outside of Python (locks,
files, threads, process groups) are shared as they are. `Shadow.of(value)` returns the copy of a value,
`Shadow.original(tensor)` the way back, and `is_original` tells whether forward left the copy. Creating a shadow costs
about a tenth of a trace.
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.hooks import HOOK_REGISTRIES, NoHooks
from modulekg_widgets.engine.torch_runtime.isolation.callables import CallableCopies
from modulekg_widgets.engine.torch_runtime.isolation.captured_state import captured_class_state, copy_class_attributes
from modulekg_widgets.engine.torch_runtime.isolation.instances import (
    HEAP_TYPE,
    IMMUTABLE_TYPES,
    SCALARS,
    STANDARD_CONTAINERS,
    allocate,
    apply_reduction,
    attributes,
    clone,
    has_attributes,
    has_native_state,
    is_external,
    is_plain_object,
    slots,
    stores_arguments,
)
from modulekg_widgets.engine.torch_runtime.modules import REGISTRIES, STANDARD, is_script, module_state, unwrapped
from modulekg_widgets.engine.torch_runtime.private import (
    CALL_HOOKS,
    COMPILED_CALL,
    DisableTorchFunctionSubclass,
    address_of,
    as_class,
    can_take_data,
    disable_current_modes,
    has_storage,
    is_traceable_wrapper_subclass,
)

# -------------------- Copies of tensors for a shadow: on the same memory, or with memory of their own


Tensor = torch.Tensor
MAX_STORAGE_RATIO = 16  # times its own size: what lies beside a tensor in its memory, and is copied with it
SMALL_STORAGE = 1 << 20  # bytes


def has_strided_memory(tensor: Tensor) -> bool:
    """True if strides describe the tensor's memory: not for sparse, quantized and wrapper tensors."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not is_traceable_wrapper_subclass(tensor)


def alias(tensor: Tensor) -> Tensor:
    """Another tensor on the same memory, without gradient and hooks, whose versions are counted apart."""
    cls = type(tensor)
    if cls is nn.Parameter and not tensor.is_inference():
        return as_class(cls, tensor.data, tensor.requires_grad)
    if cls is Tensor and not tensor.requires_grad:
        return tensor.data
    with torch.inference_mode(tensor.is_inference()):
        return _as_original_class(tensor, tensor.detach() if is_traceable_wrapper_subclass(tensor) else tensor.data)


def can_swap_data(tensor: Tensor, value: Tensor) -> bool:
    """True if a tensor object can take over the memory, shape and dtype of another one."""
    plain = type(tensor) in (Tensor, nn.Parameter) and type(value) in (Tensor, nn.Parameter)
    if not plain or tensor.is_inference():
        return False
    return can_take_data(tensor, value)  # type: ignore[attr-defined]


class TensorCopier:
    """A copier that gives tensors memory of their own; tensors that shared memory share the copy."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # each with its copy

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor with its contents in other memory, without gradient and hooks."""
        if tensor.is_meta:
            return alias(tensor)
        with torch.inference_mode(tensor.is_inference()):
            return _as_original_class(tensor, self._value(tensor))

    def _value(self, tensor: Tensor) -> Tensor:
        if not _is_plain(tensor):
            return tensor.detach().clone()
        storage = tensor.untyped_storage()
        key = address_of(storage)
        if key not in self._storages:
            if storage.nbytes() > max(MAX_STORAGE_RATIO * tensor.numel() * tensor.itemsize, SMALL_STORAGE):
                return tensor.detach().clone()  # as one sample of a whole data set
            self._storages[key] = (storage, storage.clone())
        value = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return value.set_(self._storages[key][1], tensor.storage_offset(), tensor.shape, tensor.stride())


def _is_plain(tensor: Tensor) -> bool:
    strided = tensor.layout is torch.strided and has_storage(tensor) and not tensor.is_nested
    if not strided or is_traceable_wrapper_subclass(tensor):
        return False
    return not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference())


def _as_original_class(tensor: Tensor, value: Tensor) -> Tensor:
    """A value as the tensor is: of its class, with its flag."""
    cls = type(tensor)
    if cls is Tensor or is_traceable_wrapper_subclass(tensor):
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(value, tensor.requires_grad)
        return value.requires_grad_() if tensor.requires_grad else value
    return as_class(cls, value, tensor.requires_grad)


# ----------------------------------------


SHARED, UNREGISTERED, ALL = range(3)  # who gets memory of its own: nobody, what is no parameter or buffer, every tensor
MIN_ADDRESS = 1 << 16  # of an object
Maker = Callable[[Any], Any]


class Shadow:
    """A structural copy of `model` and its inputs; `own_memory` says which tensors get memory of their own.

    `no_hooks` stands for every registry of hooks that is empty; without it each module has its own.
    """

    def __init__(
        self, model: nn.Module, held: Any = (), own_memory: int = SHARED, no_hooks: NoHooks | None = None
    ) -> None:
        self.own = own_memory
        self._no_hooks = no_hooks
        self.shared: list[Any] = []  # what has a state and could not be copied
        self._copies: dict[int, Any] = {}  # by the address of the original
        self._references: list[Any] = []  # the originals, so that their addresses stay their own
        self._originals: dict[int, torch.Tensor] = {}  # by the address of a copy
        self._makers: dict[type, Maker | None] = {}
        self._unfilled: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._callables = CallableCopies(
            self.of, self._remember_with_attributes, lambda value: self._copies.get(id(value))
        )
        self._with_finalizer: list[nn.Module] = []
        self._modules: list[tuple[nn.Module, nn.Module]] = []  # each with its copy, made by no code of theirs
        self._instances: list[tuple[Any, Any, dict[str, Any]]] = []  # that may find something in their class
        self._deferred: list[Callable[[], None]] = []  # what needs its parts filled
        self._memory = TensorCopier()
        with (
            disable_current_modes(),
            torch.inference_mode(False),
            torch.no_grad(),
            DisableTorchFunctionSubclass(),
        ):
            self.model: nn.Module = self.of(model)
            self.held = self.of(held)
            self._fill()
            of_the_model = len(self._copies)
            notable = len(self.shared)
            while self._instances:
                instances, self._instances = self._instances, []
                code = captured_class_state({type(value) for value, _, _ in instances})
                for value, new, state in instances:
                    copy_class_attributes(code, value, new, state, self.of, self._callables.mark_writers)
                self._fill()
            del self.shared[notable:]  # what lies past the model is none of it
        self._beyond_model = set(islice(self._copies, of_the_model, None))
        self._forget_parts()

    def of(self, value: object) -> Any:
        """Returns the copy of a value, or the value itself where it contains nothing of the model."""
        cls = type(value)
        try:
            make = self._makers[cls]
        except KeyError:
            make = self._makers[cls] = self._maker(cls)
        if make is None:
            return value
        known = self._copies.get(id(value))
        return make(value) if known is None else known

    def original(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the original of a copied tensor; other tensors are returned as they are."""
        return self._originals.get(id(tensor), tensor)

    def forget(self, copy: torch.Tensor) -> None:
        """Detaches a copied tensor from its original, as it is given another value."""
        self._originals.pop(id(copy), None)

    def is_original(self, value: object) -> bool:
        """True if a module or tensor belongs to the original model, which forward of the copy must not reach."""
        return id(value) not in self._beyond_model and self._copies.get(id(value), value) is not value

    def release(self) -> None:
        """Releases the copy without running finalizers of the model's modules."""
        for module in self._with_finalizer:
            module.__class__ = nn.Module
        for module, new in self._modules:
            module_state(new).clear()  # modules lead to each other, and to themselves by their methods
            module_state(new).update(module_state(module))  # and who has kept one has, in effect, the original
        for held in (
            self._makers,
            self._copies,
            self._references,
            self._originals,
            self._with_finalizer,
            self._modules,
        ):
            held.clear()
        self.shared.clear()
        self._callables.release()
        del self._callables  # no circle is left, so that all goes at once

    def _fill(self) -> None:
        while self._unfilled or self._deferred:
            while self._unfilled:
                fill, value, new = self._unfilled.pop()
                fill(value, new)
            if self._deferred:
                self._deferred.pop()()

    def _forget_parts(self) -> None:
        """Drops all but modules and tensors from the maps of the copy."""
        classes = {*map(type, self._references), *map(type, self._copies.values())}
        classes = {cls for cls in classes if issubclass(cls, torch.Tensor | nn.Module)}
        self._references = [value for value in self._references if type(value) in classes]
        self._copies = {address: new for address, new in self._copies.items() if type(new) in classes}

    def _remember(self, value: object, new: Any, fill: Callable[[Any, Any], None] | None = None) -> Any:
        self._copies[id(value)] = new
        self._references.append(value)
        if fill is not None:
            self._unfilled.append((fill, value, new))
        return new

    def _remember_with_attributes(self, value: object, new: Any, state: Any = None) -> Any:
        return self._remember(value, new, self._fill_attributes if state else None)

    def _maker(self, cls: type) -> Maker | None:
        """Returns the function that copies instances of a class; None for classes that are shared."""
        if issubclass(cls, IMMUTABLE_TYPES):
            return None
        if issubclass(cls, torch.Tensor):
            return self._tensor
        if issubclass(cls, nn.Module):
            return self._module
        if hasattr(cls, "__del__"):  # it cleans up when an instance goes, and would do so for the original
            return None
        for kind, make in self._kinds():
            if issubclass(cls, kind):
                return make
        if has_native_state(cls):
            return self._clone
        if is_external(cls):
            return self._as_it_is if stores_arguments(cls) else None
        return self._object if is_plain_object(cls) else self._by_reduction

    def _kinds(self) -> Iterable[tuple[type, Maker]]:
        yield (NoHooks, NoHooks.refuse)  # of a shadow that is looked at, held elsewhere than in its modules
        yield from ((dict, self._dict), (list, self._container), (tuple, self._tuple))
        yield from ((set, self._container), (frozenset, self._frozenset), (deque, self._deque))
        yield from self._callables.copiers()
        yield from ((weakref.WeakKeyDictionary, self._weak_dict), (weakref.WeakValueDictionary, self._weak_dict))

    # ------------------------------------------------------------- tensors

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._copied_tensor(tensor, self.own >= UNREGISTERED)

    def _registered(self, tensor: Any) -> None:
        """A parameter or buffer."""
        if isinstance(tensor, torch.Tensor) and id(tensor) not in self._copies:
            self._copied_tensor(tensor, self.own == ALL)

    def _copied_tensor(self, tensor: torch.Tensor, own_memory: bool) -> torch.Tensor:
        if nn.parameter.is_lazy(tensor):
            return tensor
        new = self._memory.copy(tensor) if own_memory else alias(tensor)
        self._originals[id(new)] = tensor
        return self._remember(tensor, new, self._fill_attributes if has_attributes(tensor) else None)

    # ------------------------------------------------------------- modules

    def _module(self, module: nn.Module) -> nn.Module:
        if (inner := unwrapped(module)) is not module:
            return self._remember(module, self.of(inner))  # compiled code runs as it is written
        if is_script(module):
            return self._script(module)
        new = allocate(type(module))
        self._modules.append((module, new))
        if hasattr(type(module), "__del__"):
            self._with_finalizer.append(new)
        return self._remember(module, new, self._fill_module)

    def _fill_module(self, module: nn.Module, new: nn.Module) -> None:
        state, mine = module_state(module), module_state(new)
        for name, value in state.copy().items():
            cls = type(value)
            if cls in SCALARS:
                mine[name] = value
            elif (
                name in STANDARD and (cls in STANDARD_CONTAINERS or cls is NoHooks) and not value
            ):  # nobody else holds it
                mine[name] = self._empty(name, cls)
            else:
                if name in REGISTRIES:
                    for tensor in value.copy().values():
                        self._registered(tensor)
                elif name in CALL_HOOKS:
                    self._callables.mark_writers(value.copy().values())
                mine[name] = self.of(value)
        mine[COMPILED_CALL] = None
        self._instances.append((module, new, mine))
        self._fill_slots(module, new)
        if isinstance(module, dict | list | set | deque):
            self._fill_contents(module, new)

    def _empty(self, name: str, cls: type) -> Any:
        if self._no_hooks is not None and name in HOOK_REGISTRIES:
            return self._no_hooks
        return OrderedDict() if cls is NoHooks else cls()

    def _script(self, module: nn.Module) -> nn.Module:
        """Returns a TorchScript copy, with tensors of its own."""
        try:
            new = copy.deepcopy(module)
        except Exception:  # noqa: BLE001 - code in C++, which may hold anything
            self.shared.append(module)
            return self._remember(module, module)
        for tensors in ("parameters", "buffers"):
            for mine, its in zip(getattr(module, tensors)(), getattr(new, tensors)(), strict=True):
                self._originals[id(its)] = mine
                self._copies.setdefault(id(mine), its)
        self._copies[id(new)] = new
        self._references.append(new)  # with the objects of its tensors
        return self._remember(module, new)

    # ---------------------------------------------------------- containers

    def _dict(self, value: dict[Any, Any]) -> Any:
        cls = type(value)
        if isinstance(value, defaultdict):
            new: Any = defaultdict.__new__(cls)
            defaultdict.__init__(new, self.of(value.default_factory))
        else:
            new = allocate(cls)
        return self._remember(value, new, self._fill_contents)

    def _container(self, value: object) -> Any:
        return self._remember(value, allocate(type(value)), self._fill_contents)

    def _deque(self, value: deque[Any]) -> Any:
        new = deque.__new__(type(value))
        deque.__init__(new, (), value.maxlen)
        return self._remember(value, new, self._fill_contents)

    def _fill_contents(self, value: object, new: Any) -> None:
        """Copies the entries of a container, and the attributes of a user's container class."""
        if isinstance(value, dict):
            self._fill_dict(value, new)
        elif isinstance(value, list):
            list.extend(new, [self.of(part) for part in list.copy(value)])
        elif isinstance(value, deque):
            deque.extend(new, [self.of(part) for part in deque.copy(value)])
        elif isinstance(value, set):
            parts = [self.of(part) for part in set.copy(value)]
            self._after(parts, lambda: set.update(new, parts))
        if type(value).__flags__ & HEAP_TYPE and not isinstance(value, nn.Module):
            self._fill_attributes(value, new)
            self._fill_slots(value, new)

    def _fill_dict(self, value: dict[Any, Any], new: dict[Any, Any]) -> None:
        base: Any = OrderedDict if isinstance(value, OrderedDict) else dict
        if all(type(key) is str for key in list(base.keys(value))) and type(new) in STANDARD_CONTAINERS:
            new.update([(key, self.of(part)) for key, part in list(base.items(value))])
            return
        pairs = [(self.of(key), self.of(part)) for key, part in list(base.items(value))]

        def put() -> None:
            for key, part in pairs:
                base.__setitem__(new, self._address(key) if type(key) is int else key, part)

        if any(type(key) is int and key >= MIN_ADDRESS for key, _ in pairs):
            self._deferred.insert(0, put)
        else:
            self._after([key for key, _ in pairs], put)

    def _address(self, number: int) -> int:
        """Returns the address of a copy, if the number is the `id` of an original."""
        new = self._copies.get(number)
        return id(new) if issubclass(type(new), torch.Tensor | nn.Module) else number

    def _after(self, keys: Iterable[Any], put: Callable[[], None]) -> None:
        """Put now, or once the keys are complete: a hash may ask for what is in them."""
        if all(self._makers.get(type(key), self) is None for key in keys):
            put()
        else:
            self._deferred.append(put)

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        if all(type(part) in SCALARS for part in tuple.__iter__(value)):
            return value
        parts: Any = [self.of(part) for part in tuple.__iter__(value)]
        if all(map(lambda one, other: one is other, parts, tuple.__iter__(value))):
            return value
        try:
            new = tuple.__new__(type(value), parts)
        except TypeError:  # a sequence of torch's
            new = type(value)(parts)
        return self._remember(value, new)

    def _frozenset(self, value: frozenset[Any]) -> Any:
        parts = [self.of(part) for part in value]
        same = all(self._makers[type(part)] is None for part in parts)
        return value if same else self._remember(value, type(value)(parts))

    # ------------------------------------------------------------- objects

    def _object(self, value: object) -> Any:
        try:
            new = object.__new__(type(value))
        except TypeError:  # of a class in C++
            return self._by_reduction(value)
        return self._remember(value, new, self._fill_object)

    def _fill_object(self, value: object, new: Any) -> None:
        self._fill_attributes(value, new)
        if (own := attributes(new)) is not None:
            self._instances.append((value, new, own))
        self._fill_slots(value, new)

    def _fill_attributes(self, value: object, new: Any) -> None:
        state = attributes(value)
        if state:
            own = attributes(new)
            assert own is not None
            for name, part in state.copy().items():
                own[name] = self.of(part)

    def _fill_slots(self, value: object, new: Any) -> None:
        for slot in slots(type(value)):
            try:
                part = slot.__get__(value)
            except AttributeError:
                continue
            slot.__set__(new, self.of(part))

    def _by_reduction(self, value: object) -> Any:
        """A copy as pickle would make it, of parts that are copied like all others."""
        try:
            reduced: Any = value.__reduce_ex__(4)
            if isinstance(reduced, str):
                return self._remember(value, value)
            make, args, state, items, pairs = (*reduced, None, None, None)[:5]
            new = self.of(make)(*self.of(tuple(args or ())))
        except Exception:  # noqa: BLE001 - code of the object's class
            return self._as_it_is(value)
        if state is None and items is None and pairs is None:
            return self._remember(value, new)
        parts = self.of((state, None if items is None else list(items), None if pairs is None else list(pairs)))
        self._deferred.append(lambda: apply_reduction(new, *parts))
        return self._remember(value, new)

    def _as_it_is(self, value: object) -> Any:
        self.shared.append(value)
        return self._remember(value, value)

    def _clone(self, value: object) -> Any:
        return self._remember(value, clone(value))

    def _weak_dict(self, value: weakref.WeakKeyDictionary[Any, Any] | weakref.WeakValueDictionary[Any, Any]) -> Any:
        def put() -> None:
            for key, part in list(value.items()):
                new[self.of(key)] = self.of(part)

        new = type(value)()
        self._deferred.append(put)
        return self._remember(value, new)
