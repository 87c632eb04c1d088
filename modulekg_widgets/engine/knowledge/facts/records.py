"""Record of one model for the knowledge graph: plain values that travel between processes and into a store.

`model_record(model)` walks a model and returns a `ModelRecord`: a `ModelNode` (name, root, occurrences of structures
by level, sizes, and costs once it was traced) and a `StructureNode` for each fingerprint (class, bases,
hyper-parameters, tensor shapes, slots). Nothing of the model is referenced, so that it can be freed.

Fingerprints are of scheme "structure", or "seed" as the original ModuleKG had them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from modulekg_widgets.engine.errors import UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.classes import class_mro, class_names
from modulekg_widgets.engine.identity.fingerprint import seed_fingerprints
from modulekg_widgets.engine.identity.folding import hyperparameters
from modulekg_widgets.engine.identity.hierarchy import Hierarchy, hierarchy
from modulekg_widgets.engine.identity.skeleton_source import ModelLike
from modulekg_widgets.engine.identity.tensors import direct_tensors, shape_of
from modulekg_widgets.engine.identity.walk import class_name, nominal_class
from modulekg_widgets.engine.knowledge.facts.property_values import Properties

# what a fingerprint of each scheme looks like
FINGERPRINTS = {"structure": re.compile("[0-9a-f]{32}"), "seed": re.compile("[0-9a-f]{1,100000}")}
SCHEMES = tuple(FINGERPRINTS)
Occurrence = tuple[str, str]  # (fingerprint, level)


@dataclass(frozen=True, slots=True)
class StructureNode:
    """The record of one structure, shared by all of its occurrences."""

    fingerprint: str
    class_name: str
    qualified_class: str
    bases: tuple[str, ...]  # the qualified names of the classes above it, nearest first, up to torch's Module
    hyperparameters: Properties
    tensors: dict[str, tuple[int, ...] | None]
    slots: tuple[tuple[str, str | None], ...]  # (name, fingerprint of the child) in order; None for an empty slot
    parameters: int  # in and below it, each tensor once
    bytes: int  # the same with buffers, in the precision in which it was added first


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One model: its root and how often each structure occurs in it, per level."""

    name: str
    root: str
    occurrences: Counter[Occurrence] = field(repr=False)
    cyclic: bool = False  # whether a module contains itself
    parameters: int = 0
    bytes: int = 0
    # known once the model was traced, else None and empty
    flops: int | None = None
    inputs: tuple[tuple[int, ...], ...] | None = None  # the shapes of its tensor arguments
    module_flops: dict[str, int] = field(default_factory=dict, repr=False)  # fingerprint -> sum over its occurrences
    feeds: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)  # a value goes from module to module
    calls: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)  # (fingerprint, operator) -> calls
    # known where the pass was counted so, which older graphs were not; no part of what a model is
    launches: int | None = field(default=None, compare=False)  # operators that read tensors, views apart
    traffic: int | None = field(default=None, compare=False)  # elements that these read and write


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model with all the structures in it, by fingerprint."""

    model: ModelNode
    nodes: dict[str, StructureNode]


def model_record(
    model: ModelLike, name: str | None = None, scheme: str = "structure", levels: str = "repetition"
) -> ModelRecord:
    """Returns the record of `model`, which references nothing of the model itself.

    `name` defaults to the name of the class, `levels` are as of `Hierarchy.level`. Raises an error that names the path
    where it cannot be fingerprinted.
    """
    if name is not None and not isinstance(name, str):
        raise UnknownNameError(f"a model is named by a text, got {a_type(name)}")
    return record_from_hierarchy(hierarchy(model), name, scheme, levels)


def record_from_hierarchy(
    modules: Hierarchy, name: str | None = None, scheme: str = "structure", levels: str = "repetition"
) -> ModelRecord:
    """Returns the record of a hierarchy."""
    digests = hexdigests(modules, scheme)
    nodes = {digest: _node(modules, index, digest, digests) for index, digest in _first_occurrences(digests)}
    occurrences = Counter(zip(digests, modules.levels(levels), strict=True))
    cyclic = any(link.kind == "cycle" for link in modules.walk.links())
    root = nodes[digests[0]]
    name = modules.root.class_name if name is None else name
    return ModelRecord(ModelNode(name, root.fingerprint, occurrences, cyclic, root.parameters, root.bytes), nodes)


def with_traffic(model: ModelNode, each: Iterable[int]) -> ModelNode:
    """Returns the model with launches and memory traffic of a forward; views count as no launch."""
    counted = [elements for elements in each if elements]
    return replace(model, launches=len(counted), traffic=sum(counted))


def checked_scheme(scheme: str) -> str:
    """`scheme`, if it is one; raises `UnknownNameError`."""
    if scheme not in SCHEMES:
        raise UnknownNameError(
            f"there is no scheme {printable(str(scheme))!r}: {closest_match_hint(str(scheme), SCHEMES)}"
        )
    return scheme


def hexdigests(modules: Hierarchy, scheme: str) -> list[str]:
    """The fingerprint of each module of the walk, as hexdigest."""
    if checked_scheme(scheme) == "seed":
        return [fingerprint.hexdigest for fingerprint in seed_fingerprints(modules.walk)]
    _ = modules.root.fingerprint  # refuses what has no settled structure, by name
    return [digest.hex() for digest in modules.identities.digests]


def _first_occurrences(digests: list[str]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for index, digest in enumerate(digests):
        if digest not in seen:
            seen.add(digest)
            yield index, digest


def _node(modules: Hierarchy, index: int, digest: str, digests: list[str]) -> StructureNode:
    module = modules.walk.modules[index]
    cls = nominal_class(module)
    slots = tuple((name, None if child is None else digests[child]) for name, child in modules.walk.slots(index))
    tensors = {
        own.name: None if own.tensor is None else tuple(shape_of(own.tensor))
        for own in direct_tensors(modules.walk.states[index])
    }
    sizes = modules.sizes
    return StructureNode(
        digest, class_name(module), qualified_name(cls), _bases(cls), hyperparameters(module), tensors, slots,
        sizes.params[index], sizes.bytes[index],
    )  # fmt: skip


def _bases(cls: type) -> tuple[str, ...]:
    above = [base for base in class_mro(cls)[1:] if base is not object]
    return tuple(qualified_name(base) for base in above)


def qualified_name(cls: type) -> str:
    return ".".join(filter(None, class_names(cls)))
