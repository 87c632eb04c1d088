"""From the digests of own structures to those of whole modules, with all that they contain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, count
from operator import itemgetter

from torch import nn

from modulekg_widgets.engine.identity.own_structure import MANY, SCHEME, OwnStructure
from modulekg_widgets.engine.identity.packing import digest, sized, text
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.torch_runtime.state import is_ordinary, module_state

_slots = itemgetter(MODULES)


def whole_digest(own: bytes, names: tuple[str, ...], contents: Sequence[bytes]) -> bytes:
    """The digest of a container, from that of its own structure and the names and digests of its slots."""
    return digest(SCHEME, own, sized(b"".join([sized(text(name)) for name in names])), *contents)


def regular_digest(model: nn.Module) -> bytes | None:
    """The digest of a model in which nothing is unusual, in half the time of a `Walk`; None for any other model.

    Without it test_a_million_modules of tests/benchmarks/test_identity_speed.py needs 3.6 bare walks, and may need 2.5.

    A `Walk` keeps names and paths, and knows what to do with empty slots, containers in several places, cycles,
    wrappers, TorchScript and attributes that cannot be seen into.
    """
    own_structure = OwnStructure()
    modules: list[nn.Module] = [model]  # breadth first, so that what a container holds stands together
    digests: list[bytes] = []
    ordinary: set[type] = set()
    containers: list[int] = []
    contents: list[dict[str, nn.Module]] = []  # of the containers
    met: set[int] = set()
    while len(digests) < len(modules):
        first = len(digests)
        part = modules[first : first + MANY]
        kinds = set(map(type, part))
        if not kinds <= ordinary:
            if not all(map(is_ordinary, kinds)):
                return None
            ordinary |= kinds
        states = list(map(module_state, part))
        digests += own_structure.digests(part, states, first)
        try:
            slots = list(map(_slots, states))
        except KeyError:  # a module that has not run nn.Module.__init__
            return None
        if set(map(type, slots)) != {dict} or own_structure.remarks:
            return None
        containers += compress(count(first), slots)
        inside = list(filter(None, slots))
        contents += inside
        met.update(map(id, inside))
        if len(met) < len(contents):
            return None
        modules += chain.from_iterable(map(dict.values, inside))
    return _fold(digests, containers, contents)


def _fold(digests: list[bytes], containers: list[int], contents: list[dict[str, nn.Module]]) -> bytes | None:
    """The digest of the first module, given those of the own structures, breadth first."""
    known: dict[tuple, bytes] = {}
    end = len(digests)
    for index, slots in zip(reversed(containers), reversed(contents), strict=True):
        start = end - len(slots)
        names = tuple(slots)
        key = (digests[index], names, *digests[start:end])
        whole = known.get(key)
        if whole is None:
            if set(map(type, names)) != {str}:
                return None
            whole = known[key] = whole_digest(key[0], names, key[2:])
        digests[index] = whole
        end = start
    return digests[0]
