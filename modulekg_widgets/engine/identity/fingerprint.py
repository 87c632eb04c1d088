"""The structural fingerprint: a Merkle tree over the canonical encodings of classes, attributes and tensor shapes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import BrokenModuleError, UninitializedModuleError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.identity import torch_values as _torch_values  # noqa: F401  they register the encodings
from modulekg_widgets.engine.identity import values as _values  # noqa: F401
from modulekg_widgets.engine.identity.encoding import (
    Encoder,
    class_mro,
    digest,
    fast_key,
    instance_state,
    sized,
    slot_members,
    text,
)
from modulekg_widgets.engine.identity.hierarchy import Walk, class_name, is_script, nominal_class, walk
from modulekg_widgets.engine.identity.tensors import (
    PLAIN_TENSORS,
    is_uninitialised,
    own_tensors,
    reachable,
    without_subclass_code,
)
from modulekg_widgets.engine.identity.torch_values import encode_script, tensor_encoding

SCHEME = b"modulekg structure 1"

# what every module carries: hooks, the training flag, its registries; asked of torch, so that new ones are known too
NOT_STRUCTURE = frozenset(vars(nn.Module())) | {
    "_compiled_call_impl", "_is_torch_compile", "__overloads__",  # compiled, wrapped by torch.compile, scripted once
    "_ddp_params_and_buffers_to_ignore", "_is_fsdp_managed_module", "_fsdp_use_orig_params", "_sync_gradients",
    "_state_dict_type", "_state_dict_config", "_distribute_module_applied",  # what parallel training leaves behind
}  # fmt: skip
_RANDOM_KEY = "__composable_api_state_key_"  # likewise, with a random number behind it


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for modules of the same structure; compares and hashes by its digest.

    `opaque_paths` are the attributes that could not be seen into: they count by their type alone.
    """

    hexdigest: str
    display_name: str = field(compare=False)
    opaque_paths: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return self.display_name


def display_name(class_name: str, hexdigest: str, digits: int = 3) -> str:
    """The class name with the last decimal digits of the digest, such as `ReLU854`."""
    return f"{class_name}{int(hexdigest, 16) % 10**digits:0{digits}d}"


class _Plan:
    """How to read the instances of one class that have the same attributes in the same order."""

    __slots__ = ("attributes", "labels", "names", "read", "slots", "start")

    def __init__(self, cls: type, attributes: list[str]) -> None:
        self.attributes = attributes
        self.names = tuple(sorted(n for n in attributes if n not in NOT_STRUCTURE and _is_structure(n)))
        self.labels = tuple(sized(text(n)) for n in self.names)
        # itemgetter gives a tuple only for two names and more
        padded = self.names + self.names if len(self.names) == 1 else self.names
        self.read = itemgetter(*padded) if padded else _nothing
        # where those that count all stand behind those that do not, as `__init__` leaves them
        start = len(attributes) - len(self.names)
        self.start = start if NOT_STRUCTURE.issuperset(attributes[:start]) else None
        self.slots = tuple(slot for base in class_mro(cls) for slot in slot_members(base))


def _is_structure(name: object) -> bool:
    return isinstance(name, str) and not name.startswith(_RANDOM_KEY)


def _nothing(state: dict[str, Any]) -> tuple[Any, ...]:
    return ()


def _key(plan: _Plan, state: dict[str, Any]) -> tuple | None:
    """A key that is equal only for modules of the same own structure, made without Python code per attribute."""
    if plan.slots:
        return None
    # as a list, since marshal tells it from the tuple that `read` gives: the two have different orders
    attributes = fast_key(plan.read(state) if plan.start is None else list(state.values())[plan.start :])
    if attributes is None:
        return None
    parameters, buffers = state.get("_parameters", {}), state.get("_buffers", {})
    if not parameters and not buffers:
        return plan, attributes
    key: list[Any] = [plan, attributes, *parameters, None, *buffers]
    try:
        for tensor in (*parameters.values(), *buffers.values()):
            if type(tensor) in PLAIN_TENSORS:
                key.append(tensor.shape)
                key.append(tensor.dtype)
            elif tensor is None:
                key.append(None)
            else:
                return None
    except RuntimeError:  # a nested tensor has no shape
        return None
    return tuple(key)


class Identities:
    """The structural digests of all modules of one walk."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._encoder = Encoder()
        self._plans: dict[tuple, _Plan] = {}
        self._recent: dict[type, _Plan] = {}  # most instances of a class have the same attributes
        self._known: dict[tuple | None, bytes] = {}
        self._wholes: dict[tuple, bytes] = {}  # (own digest, names of the slots, their digests) -> digest
        self._own_opaque: dict[int, list[str]] = {}
        self.uninitialised: list[tuple[int, str]] = []
        self.digests: list[bytes] = [b""] * len(walk.modules)
        with without_subclass_code():
            self._digest_all()

    def _digest_all(self) -> None:
        # one loop with few calls: a million modules pass through it
        walk = self._walk
        modules, states, children, irregular = walk.modules, walk.states, walk.children, walk.irregular
        digests, known, recent = self.digests, self._known, self._recent
        for index in walk.bottom_up:
            module, state = modules[index], states[index]
            plan = recent.get(type(module))
            if plan is None or plan.attributes != list(state):
                plan = self._plan(type(module), state)
            key = _key(plan, state)
            own = known.get(key)
            if own is None:
                own = self._own_digest(index, plan, key)
            if index in children or index in irregular:
                own = self._with_slots(index, own)
            digests[index] = own

    def fingerprint(self, index: int) -> Fingerprint:
        """The fingerprint of module `index`; raises `UninitializedModuleError` for one that holds a lazy module."""
        for lazy, name in sorted(self.uninitialised, key=itemgetter(0)):
            if self._within(index, [lazy]):
                path = self._attribute_path(lazy, name)
                raise UninitializedModuleError(
                    f"{shown(path)!r} of {shown(self._class_name(lazy))} has no shape yet, so its structure is not "
                    "settled: run one forward pass first"
                )
        hexdigest = self.digests[index].hex()
        prefix = self._walk.path(index) + "." if index else ""
        inside = self._within(index, self.opaque_indices)
        paths = (self._attribute_path(i, a) for i in inside for a in self._own_opaque[i])
        opaque = tuple("" if path + "." == prefix else path.removeprefix(prefix) for path in paths)
        return Fingerprint(hexdigest, display_name(self._class_name(index), hexdigest), opaque)

    def _within(self, index: int, others: Sequence[int]) -> Sequence[int]:
        """Those of `others`, which are sorted, that module `index` contains or is; shared ones included."""
        if not others:
            return others
        if self._walk.irregular:
            reached = reachable(self._walk, index)
            return [other for other in others if other in reached]
        return others[bisect_left(others, index) : bisect_left(others, self._walk.ends[index])]

    @cached_property
    def opaque_indices(self) -> list[int]:
        """The modules that have attributes that could not be seen into."""
        return sorted(self._own_opaque)

    def opaque_attributes(self, index: int) -> list[str]:
        """The module's own attributes that could not be seen into."""
        return self._own_opaque.get(index, [])

    def _class_name(self, index: int) -> str:
        return class_name(self._walk.modules[index])

    def _attribute_path(self, index: int, attribute: str) -> str:
        return ".".join(filter(None, (self._walk.path(index), attribute)))

    # -------------------------------------------------------------- one module

    def _with_slots(self, index: int, own: bytes) -> bytes:
        walk, digests = self._walk, self.digests
        if index in walk.irregular:
            contents = [self._slot_digest(index, child) for _, child in walk.irregular[index]]
        else:
            contents = [digests[child] for child in walk.children[index]]
        names = tuple(walk.states[index]["_modules"])
        key = (own, names, *contents)
        whole = self._wholes.get(key)
        if whole is None:
            label = b"".join([sized(text(name)) for name in names])
            whole = self._wholes[key] = digest(SCHEME, own, sized(label), *contents)
        return whole

    def _slot_digest(self, index: int, child: int | None) -> bytes:
        if child is None:
            return digest(b"N")
        if not self.digests[child]:  # not finished yet, so it contains this slot
            up = self._walk.depths[index] - self._walk.depths[child]
            return digest(b"^", up.to_bytes(4, "big"))
        return self.digests[child]

    def _plan(self, cls: type, state: dict[str, Any]) -> _Plan:
        key = (cls, *state)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(cls, list(state))
        self._recent[cls] = plan
        return plan

    def _own_digest(self, index: int, plan: _Plan, key: tuple | None) -> bytes:
        """The digest of class, attributes and tensors; kept under `key` where the key tells all of it."""
        module, state, encoder = self._walk.modules[index], self._walk.states[index], self._encoder
        buffers_met = encoder.buffers_met
        parts = [SCHEME, sized(encoder.class_reference(nominal_class(module)))]
        if is_script(module):
            parts.append(sized(encode_script(encoder, state)))
            encoder.opaque.append("")
        else:
            parts += self._attributes(module, state, plan)
        tensors = list(own_tensors(state))
        for own in tensors:
            if type(own.name) is not str and not issubclass(type(own.name), str):
                path = shown(self._walk.path(index)) or "(root)"
                raise BrokenModuleError(f"a parameter or buffer of {path!r} is not named by a text: names are text")
            if type(own.tensor) not in PLAIN_TENSORS and own.tensor is not None and is_uninitialised(own.tensor):
                self.uninitialised.append((index, own.name))
        for own in sorted(tensors, key=itemgetter(1, 0)):
            parts.append(sized(text(own.role)) + sized(text(own.name)))
            parts.append(sized(b"N" if own.tensor is None else tensor_encoding(own.tensor)))
        own_digest = digest(*parts)
        if encoder.opaque:
            self._own_opaque[index] = list(dict.fromkeys(encoder.opaque))
            encoder.opaque = []
        elif key is not None and encoder.buffers_met == buffers_met:
            self._known[key] = own_digest
        return own_digest

    def _attributes(self, module: nn.Module, state: dict[str, Any], plan: _Plan) -> list[bytes]:
        encode = self._encoder.encode_attribute
        if plan.slots:
            attributes = {n: v for n, v in instance_state(module).items() if n not in NOT_STRUCTURE}
            return [sized(part) for part in self._encoder.encode_attributes(attributes, "")]
        values = plan.read(state)
        return [
            label + sized(encode(value, name))
            for label, name, value in zip(plan.labels, plan.names, values, strict=False)
        ]


def fingerprint(module: nn.Module, scheme: str = "structure") -> Fingerprint:
    """The identity of a module: equal for the same class, hyper-parameters, tensor names and shapes, and children.

    Weights, training flag, device, precision and hooks do not count. `scheme="seed"` reproduces the digests that
    ModuleKG published. Raises `FingerprintError`, naming the attribute path, where there is no settled structure.
    """
    if scheme == "structure":
        return Identities(walk(module)).fingerprint(0)
    if scheme == "seed":
        from modulekg_widgets.engine.identity.seed import seed_fingerprints

        return seed_fingerprints(walk(module))[0]
    raise UnknownNameError(f"there is no scheme {shown(str(scheme))!r}: {nearest(str(scheme), ('structure', 'seed'))}")
