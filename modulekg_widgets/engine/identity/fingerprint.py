"""Structural fingerprint of a module: a Merkle tree over classes, attributes and tensor shapes.

`fingerprint(module)` is the public entry. Equal fingerprints mean the same class, hyper-parameters, names and shapes
of tensors, and the same children in the same order; weights, device, precision, training flag and hooks do not count.

The digest of a module without children is made in module_digests.py, that of a tree here. `Identities` holds
the digests of all modules of one walk. Where nothing in a model is unusual, `fast_tree_digest` computes the root in
half the time, without a walk.

Limits: lazy modules are refused until they have shapes; attributes that cannot be inspected count by their type and
are listed in `Fingerprint.opaque_paths`.

    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.fingerprint(nn.Linear(4, 2)) == mk.fingerprint(nn.Linear(4, 2).half())
    True
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, compress, count
from operator import itemgetter
from typing import Any

from torch import nn

from modulekg_widgets.engine.errors import (
    BrokenModuleError,
    UninitializedModuleError,
    UnknownNameError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.encoding.module_digests import BATCH_SIZE, SCHEME, ModuleDigester
from modulekg_widgets.engine.identity.encoding.packing import digest, length_prefixed, text
from modulekg_widgets.engine.identity.modulekg_v1_hash import seed_hashes
from modulekg_widgets.engine.identity.skeleton_source import ModelLike, as_module
from modulekg_widgets.engine.identity.tensors import without_subclass_code
from modulekg_widgets.engine.identity.walk import Walk, class_name, walk
from modulekg_widgets.engine.torch_runtime.modules import is_plain_module, module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES

# -------------------- Digests of trees of modules, computed from the digests of the modules without their children


_slots = itemgetter(MODULES)


def tree_digest(own: bytes, names: tuple[str, ...], contents: Sequence[bytes]) -> bytes:
    """Returns the digest of a container from that of the module alone and the names and digests of its slots."""
    return digest(SCHEME, own, length_prefixed(b"".join([length_prefixed(text(name)) for name in names])), *contents)


def fast_tree_digest(model: nn.Module) -> bytes | None:
    """Returns the digest of a model without unusual modules, in half the time of a `Walk`; None for other models.

    Without it test_a_million_modules of tests/benchmarks/test_identity_speed.py needs 3.6 bare walks, and may need 2.5.

    A `Walk` keeps names and paths, and knows what to do with empty slots, containers in several places, cycles,
    wrappers, TorchScript and attributes that cannot be seen into.
    """
    own_structure = ModuleDigester()
    modules: list[nn.Module] = [model]  # breadth first, so that what a container holds stands together
    digests: list[bytes] = []
    ordinary: set[type] = set()
    containers: list[int] = []
    contents: list[dict[str, nn.Module]] = []  # of the containers
    met: set[int] = set()
    while len(digests) < len(modules):
        first = len(digests)
        part = modules[first : first + BATCH_SIZE]
        kinds = set(map(type, part))
        if not kinds <= ordinary:
            if not all(map(is_plain_module, kinds)):
                return None
            ordinary |= kinds
        states = list(map(module_state, part))
        digests += own_structure.digests(part, states, first)
        try:
            slots: list[dict[str, nn.Module]] = list(map(_slots, states))
        except KeyError:  # a module that has not run nn.Module.__init__
            return None
        if set(map(type, slots)) != {dict} or own_structure.has_remarks:
            return None
        containers += compress(count(first), slots)
        inside = list(filter(None, slots))
        contents += inside
        met.update(map(id, inside))
        if len(met) < len(contents):
            return None
        modules += chain.from_iterable(each.values() for each in inside)
    return _combine(digests, containers, contents)


def _combine(digests: list[bytes], containers: list[int], contents: list[dict[str, nn.Module]]) -> bytes | None:
    """Returns the digest of the first module from the digests of all modules alone, breadth first."""
    known: dict[tuple[Any, ...], bytes] = {}
    end = len(digests)
    for index, slots in zip(reversed(containers), reversed(contents), strict=True):
        start = end - len(slots)
        names = tuple(slots)
        key = (digests[index], names, *digests[start:end])
        whole = known.get(key)
        if whole is None:
            if set(map(type, names)) != {str}:
                return None
            whole = known[key] = tree_digest(key[0], names, key[2:])
        digests[index] = whole
        end = start
    return digests[0]


# ----------------------------------------


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for modules of the same structure; compares and hashes by its digest.

    Parameters
    ----------
    hexdigest : str
        16 bytes in hexadecimal digits; of scheme "seed" as many as ModuleKG has.
    display_name : str
        The class name with the last three decimal digits of the digest, such as `ReLU854`; not compared.
    opaque_paths : tuple of str
        The attributes that could not be seen into, by dotted path: they count by their type alone; not compared.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> a, b = (mk.fingerprint(nn.Linear(4, 2)) for _ in range(2))
    >>> a == b, len(a.hexdigest), a.opaque_paths
    (True, 32, ())
    """

    hexdigest: str
    display_name: str = field(compare=False)
    opaque_paths: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return self.display_name


def display_name(class_name: str, hexdigest: str, digits: int = 3) -> str:
    """The class name with the last decimal digits of the digest, such as `ReLU854`."""
    return f"{class_name}{int(hexdigest, 16) % 10**digits:0{digits}d}"


class Identities:
    """Structural digests of all modules of one walk."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._module_digester = ModuleDigester()
        self._tree_digests: dict[tuple[Any, ...], bytes] = {}
        self.digests: list[bytes] = [b""] * len(walk.modules)
        with without_subclass_code():
            own = self._module_digests()
            for index in walk.bottom_up:
                container = index in walk.children or index in walk.irregular
                self.digests[index] = self._tree_digest(index, own[index]) if container else own[index]

    def _module_digests(self) -> list[bytes]:
        modules, states = self._walk.modules, self._walk.states
        digests: list[bytes] = []
        for start in range(0, len(modules), BATCH_SIZE):
            digests += self._module_digester.digests(
                modules[start : start + BATCH_SIZE], states[start : start + BATCH_SIZE], start
            )
        for index in self._module_digester.badly_named:
            path = printable(self._walk.path(index)) or "(root)"
            raise BrokenModuleError(f"a parameter or buffer of {path!r} is not named by a text: names are text")
        return digests

    @property
    def uninitialised(self) -> list[tuple[int, str]]:
        """The parameters and buffers without a shape yet: (index of the module, name)."""
        return self._module_digester.uninitialised

    def fingerprint(self, index: int) -> Fingerprint:
        """The fingerprint of module `index`; raises `UninitializedModuleError` for one that holds a lazy module."""
        for lazy, name in sorted(self.uninitialised, key=itemgetter(0)):
            if self._contained(index, [lazy]):
                path = self._attribute_path(lazy, name)
                raise UninitializedModuleError(
                    f"{printable(path)!r} of {printable(self._class_name(lazy))} has no shape yet, so its structure "
                    "is not "
                    "settled: run one forward pass first"
                )
        hexdigest = self.digests[index].hex()
        prefix = self._walk.path(index) + "." if index else ""
        inside = self._contained(index, self.opaque_indices)
        paths = (self._attribute_path(i, a) for i in inside for a in self._module_digester.opaque[i])
        opaque = tuple("" if path + "." == prefix else path.removeprefix(prefix) for path in paths)
        return Fingerprint(hexdigest, display_name(self._class_name(index), hexdigest), opaque)

    def _contained(self, index: int, others: Sequence[int]) -> Sequence[int]:
        """Returns those of the sorted indices `others` that module `index` contains or is, shared ones included."""
        if not others:
            return others
        if self._walk.irregular:
            reached = self._walk.reachable(index)
            return [other for other in others if other in reached]
        return others[bisect_left(others, index) : bisect_left(others, self._walk.subtree_ends[index])]

    @cached_property
    def opaque_indices(self) -> list[int]:
        """The modules with attributes that cannot be inspected."""
        return sorted(self._module_digester.opaque)

    def opaque_attributes(self, index: int) -> list[str]:
        """The attributes of a module that cannot be inspected."""
        return self._module_digester.opaque.get(index, [])

    def _class_name(self, index: int) -> str:
        return class_name(self._walk.modules[index])

    def _attribute_path(self, index: int, attribute: str) -> str:
        return ".".join(filter(None, (self._walk.path(index), attribute)))

    def _tree_digest(self, index: int, own: bytes) -> bytes:
        walk, digests = self._walk, self.digests
        if index in walk.irregular:
            contents = [self._slot_digest(index, child) for _, child in walk.irregular[index]]
        else:
            contents = [digests[child] for child in walk.children[index]]
        names = tuple(walk.states[index][MODULES])
        key = (own, names, *contents)
        if key not in self._tree_digests:
            self._tree_digests[key] = tree_digest(own, names, contents)
        return self._tree_digests[key]

    def _slot_digest(self, index: int, child: int | None) -> bytes:
        if child is None:
            return digest(b"N")
        if not self.digests[child]:  # not finished yet, so it contains this slot
            up = self._walk.depths[index] - self._walk.depths[child]
            return digest(b"^", up.to_bytes(4, "big"))
        return self.digests[child]


def fingerprint(module: ModelLike, scheme: str = "structure") -> Fingerprint:
    """The identity of a module: equal for the same class, hyper-parameters, tensor names and shapes, and children.

    Weights, training flag, device, precision and hooks do not count.

    Parameters
    ----------
    module : nn.Module or ModelFile
        Any module; none of its code runs.
    scheme : str
        "structure", or "seed" for the digests that ModuleKG published.

    Returns
    -------
    Fingerprint
        With `.hexdigest`, `.display_name` and `.opaque_paths`.

    Raises
    ------
    FingerprintError
        Where there is no settled structure, naming the attribute path: `UninitializedModuleError` for a lazy module.
    NotAModuleError, BrokenModuleError
        For anything that is not a module, or a broken one in it.
    UnknownNameError
        For a scheme that does not exist.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.fingerprint(nn.Linear(4, 2)) == mk.fingerprint(nn.Linear(4, 2).half())
    True
    >>> mk.fingerprint(nn.Linear(4, 2)) == mk.fingerprint(nn.Linear(4, 2, bias=False))
    False
    >>> str(mk.fingerprint(nn.ReLU(), scheme="seed"))
    'ReLU071'
    """
    module = as_module(module)
    if scheme == "structure":
        with without_subclass_code():
            whole = fast_tree_digest(module)
        if whole is None:
            return Identities(walk(module)).fingerprint(0)
        return Fingerprint(whole.hex(), display_name(class_name(module), whole.hex()))
    if scheme == "seed":
        return seed_fingerprints(walk(module))[0]
    raise UnknownNameError(
        f"there is no scheme {printable(str(scheme))!r}: {closest_match_hint(str(scheme), ('structure', 'seed'))}"
    )


def seed_fingerprints(walk: Walk) -> list[Fingerprint]:
    """The seed's fingerprint of every module of the walk; raises `FingerprintError` for a cycle."""
    digests = [f"{value:x}" for value in seed_hashes(walk)]
    named = zip(walk.modules, digests, strict=True)
    return [Fingerprint(digest, display_name(type(module).__name__, digest)) for module, digest in named]
