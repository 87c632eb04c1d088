"""Modules of an ONNX file, from metadata that `torch.onnx` writes on nodes, or from the names of nodes.

The exporter by `torch.export` writes where a node comes from, with classes; the older one by TorchScript names nodes
after the calls, as "/layer1/layer1.0/conv1/Conv". Files of others tell of none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from modulekg_widgets.engine.files.graph_building import NO_MODULE, NamedModules, ReadBudget
from modulekg_widgets.engine.files.records import FileModuleRecord, OperatorRecord, TensorRecord
from modulekg_widgets.engine.files.tensor_owners import PathPrefixes, is_buffer, split_name

SCOPES, CLASSES, TRACE = (f"pkg.torch.onnx.{key}" for key in ("name_scopes", "class_hierarchy", "stack_trace"))
_STRINGS = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_MAX_LIST = 20_000  # characters of a list in the metadata
MAX_CALL_DEPTH = 64  # calls within calls
_REPEATED_CALL = re.compile(r"_\d{1,6}\Z")


class ModuleSource(Enum):
    """Source of an operator's module: explicit in the file, unknown, or the enclosing subgraph or function."""

    EXPLICIT, UNKNOWN, ENCLOSING = range(3)


class OnnxModules:
    """Modules of one file, collected while its nodes are read."""

    def __init__(self, allowance: ReadBudget) -> None:
        self._allowance = allowance
        self._modules = NamedModules(allowance)
        self._with_tensors: set[str] = set()
        self._called: dict[tuple[str, ...], str] = {}
        self._paths: set[str] = set()  # of what was called
        self._stacks: dict[tuple[str, str], str | None] = {}

    def parts(
        self, tensors: Iterable[TensorRecord], operators: Iterable[OperatorRecord]
    ) -> tuple[FileModuleRecord, ...]:
        """Returns the modules that have operators or tensors, themselves or in descendants.

        A body may be empty, and a module whose operators were folded into another's weights has none left.
        """
        paths = {each.module for each in operators} | {split_name(each.name)[0] for each in tensors}
        known = PathPrefixes(paths)
        return tuple(part for part in self._modules.parts() if not part.path or part.path in known)

    def add_owners(self, tensors: Iterable[str]) -> None:
        """Add the owners of tensors as known modules, by the names of the tensors."""
        for tensor in tensors:
            path = tensor.rpartition(".")[0]
            while path and path not in self._with_tensors:
                self._allowance.charge(len(path) + 80)
                self._with_tensors.add(path)
                path = path.rpartition(".")[0]

    def add(self, path: str, class_name: str = "") -> str:
        """Add a module, if it is new."""
        return self._modules.add(path, class_name)

    def path_from_metadata(self, metadata: Mapping[str, str]) -> str | None:
        """Returns the path of a node's module from the exporter's metadata; None if there is none."""
        if SCOPES not in metadata or CLASSES not in metadata:
            return None
        stack = (metadata[SCOPES].rpartition(", ")[0], metadata[CLASSES].rpartition(", ")[0])  # those around it
        if stack not in self._stacks:
            self._allowance.charge(len(stack[0]) + len(stack[1]) + 200)
            self._stacks[stack] = self._innermost(metadata)
        return self._stacks[stack]

    def _innermost(self, metadata: Mapping[str, str]) -> str | None:
        paths, classes = _listed(metadata[SCOPES]), _listed(metadata[CLASSES])
        self._allowance.charge(15 * (len(paths) + len(classes)))
        if len(paths) != len(classes) or len(paths) < 2:  # what comes last is the operator itself
            return None
        if paths[-2] == NO_MODULE:
            return None
        for path, class_name in zip(paths[:-1], classes[:-1], strict=True):
            self.add(path, class_name)
        return self._allowance.name(paths[-2])

    def path_from_name(self, name: str) -> str | None:
        """Returns the path of a node's module from a name such as "/layer1/layer1.0/conv1/Conv"."""
        if not name.startswith("/") or len(name) > _MAX_LIST:
            return None
        calls = tuple(name[1:].split("/")[:-1])
        path = self._path_of(calls) if len(calls) <= MAX_CALL_DEPTH else ""
        return self.add(path) if path else None

    def _path_of(self, calls: tuple[str, ...]) -> str:
        if not calls or calls in self._called:
            return self._called.get(calls, "")
        outer = self._path_of(calls[:-1])
        path = self._first_call(outer, _call_name(calls))
        self._allowance.charge(sum(map(len, calls)) + 60 * len(calls) + 300)
        self._called[calls] = path
        self._paths.add(path)
        return path

    def _first_call(self, outer: str, own: str) -> str:
        """Returns the path of a module; a repeated call, as "relu_1", has the path of the first one."""
        path = f"{outer}.{own}" if outer else own
        first = _REPEATED_CALL.sub("", path)
        is_call = path not in self._with_tensors and (first in self._paths or first in self._with_tensors)
        return first if first != path and is_call else path


def _call_name(calls: tuple[str, ...]) -> str:
    """Returns the attribute name of a module in its caller; a child of a container repeats the name of that."""
    *outer, own = calls
    for container in (outer[-1], _REPEATED_CALL.sub("", outer[-1])) if outer else ():
        if own.startswith(f"{container}."):
            return own[len(container) + 1 :]
    return own


def _listed(text: str) -> list[str]:
    """Returns the strings in the repr of a Python list."""
    return [single or double for single, double in _STRINGS.findall(text[:_MAX_LIST])]


def assign_modules_by_weights(
    operators: Sequence[OperatorRecord],
    module_sources: Sequence[ModuleSource],
    tensors: Iterable[TensorRecord],
    outputs: Iterable[str],
) -> tuple[OperatorRecord, ...]:
    """Returns the operators, each with the module whose weights it reads, against the metadata if need be.

    Who folds a normalisation into the convolution before it leaves one operator in the module of the former, with the
    weights of the latter. A weight in whose own module nothing reads weights draws those that read it there, but out of
    one other module at most: weights that several share are of none of them. What no module is told of, and stands
    between operators that were drawn into one, goes with them.
    """
    drawn = _modules_by_weights(operators, module_sources, tensors)
    if not drawn:
        return tuple(operators)
    drawn |= _modules_between(
        operators, module_sources, drawn, frozenset(outputs), frozenset(each.name for each in tensors)
    )
    return tuple(replace(each, module=drawn[at]) if at in drawn else each for at, each in enumerate(operators))


def _modules_by_weights(
    operators: Sequence[OperatorRecord], standings: Sequence[ModuleSource], tensors: Iterable[TensorRecord]
) -> dict[int, str]:
    """Returns the modules that weights assign to operators, by index of the operator."""
    owned = {each.name: (split_name(each.name)[0], each.nbytes) for each in tensors if each.role != "constant"}
    numbers = {each.name for each in tensors if not is_buffer("", each)}
    called = PathPrefixes(
        each.module for each in operators if not numbers.isdisjoint(each.inputs)
    )  # with weights of their own
    readers: dict[str, list[int]] = defaultdict(list)
    for at, operator in enumerate(operators):
        for name in dict.fromkeys(operator.inputs):
            if owned.get(name, ("",))[0]:
                readers[name].append(at)
    weights: dict[int, dict[str, int]] = defaultdict(dict)  # bytes by module, of each operator
    for name, places in readers.items():
        path, nbytes = owned[name]
        others = {operators[at].module for at in places if not _is_in(path, operators[at].module)}
        if path in called or len(others) > 1 or any(standings[at] is ModuleSource.ENCLOSING for at in places):
            continue
        for at in places:
            weights[at][path] = weights[at].get(path, 0) + nbytes
    return {
        at: max(found, key=found.__getitem__)
        for at, found in weights.items()
        if not any(owned.get(name, ("",))[0] == operators[at].module != "" for name in operators[at].inputs)
    }


def _is_in(path: str, outer: str) -> bool:
    return not outer or path == outer or path.startswith(f"{outer}.")


def _modules_between(
    operators: Sequence[OperatorRecord],
    standings: Sequence[ModuleSource],
    drawn: Mapping[int, str],
    outputs: frozenset[str],
    tensors: frozenset[str],
) -> dict[int, str]:
    """Operators without a module whose inputs and readers are all assigned to one module."""
    made_by = {name: at for at, operator in enumerate(operators) for name in operator.outputs}
    reads = [[made_by.get(name) for name in each.inputs if name not in tensors] for each in operators]
    read_by: list[list[int | None]] = [[] for _ in operators]
    for at, sources in enumerate(reads):
        for source in sources:
            if source is not None:
                read_by[source].append(at)
    for name in outputs & made_by.keys():
        read_by[made_by[name]].append(None)
    before, after = dict(drawn), dict(drawn)
    for found, beside, order in ((before, reads, range(len(reads))), (after, read_by, reversed(range(len(reads))))):
        for at in order:
            if standings[at] is ModuleSource.UNKNOWN and at not in drawn:
                modules = {"" if other is None else found.get(other, "") for other in beside[at]}
                if len(modules) == 1:
                    found[at] = modules.pop()
    return {at: module for at, module in before.items() if module and module == after.get(at)}
