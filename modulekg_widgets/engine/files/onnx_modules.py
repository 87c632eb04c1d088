"""The modules that an ONNX file tells of: by metadata that `torch.onnx` writes on nodes, or by the names of nodes.

The exporter by `torch.export` writes where a node comes from, with classes; the older one by TorchScript names nodes
after the calls, as "/layer1/layer1.0/conv1/Conv". Files of others tell of none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from modulekg_widgets.engine.files.graph_parts import NO_MODULE, Allowance, NamedModules
from modulekg_widgets.engine.files.records import ModulePart

SCOPES, CLASSES, TRACE = (f"pkg.torch.onnx.{key}" for key in ("name_scopes", "class_hierarchy", "stack_trace"))
_STRINGS = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_LONGEST_LIST = 20_000  # characters of a list in the metadata
DEEPEST = 64  # calls within calls
_REPEATED = re.compile(r"_\d{1,6}\Z")


class OnnxModules:
    """The modules of one file, as its nodes come to tell of them."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._modules = NamedModules(allowance)
        self._with_tensors: set[str] = set()
        self._called: dict[tuple[str, ...], str] = {}
        self._paths: set[str] = set()  # of what was called
        self._stacks: dict[tuple[str, str], str | None] = {}

    def parts(self) -> tuple[ModulePart, ...]:
        """What was told until now."""
        return self._modules.parts()

    def hold(self, tensors: Iterable[str]) -> None:
        """Note modules that surely are there, by the names of their tensors."""
        for tensor in tensors:
            path = tensor.rpartition(".")[0]
            while path and path not in self._with_tensors:
                self._allowance.take(len(path) + 80)
                self._with_tensors.add(path)
                path = path.rpartition(".")[0]

    def add(self, path: str, class_name: str = "") -> str:
        """Note a module, if it is not known."""
        return self._modules.add(path, class_name)

    def of_metadata(self, metadata: Mapping[str, str]) -> str | None:
        """The path of the module that a node runs in, by what the exporter wrote on it; None where it did not."""
        if SCOPES not in metadata or CLASSES not in metadata:
            return None
        stack = (metadata[SCOPES].rpartition(", ")[0], metadata[CLASSES].rpartition(", ")[0])  # those around it
        if stack not in self._stacks:
            self._allowance.take(len(stack[0]) + len(stack[1]) + 200)
            self._stacks[stack] = self._innermost(metadata)
        return self._stacks[stack]

    def _innermost(self, metadata: Mapping[str, str]) -> str | None:
        paths, classes = _listed(metadata[SCOPES]), _listed(metadata[CLASSES])
        self._allowance.take(15 * (len(paths) + len(classes)))
        if len(paths) != len(classes) or len(paths) < 2:  # what comes last is the operator itself
            return None
        if paths[-2] == NO_MODULE:
            return None
        for path, class_name in zip(paths[:-1], classes[:-1], strict=True):
            self.add(path, class_name)
        return self._allowance.name(paths[-2])

    def of_name(self, name: str) -> str | None:
        """The path of the module that a node runs in, by a name as "/layer1/layer1.0/conv1/Conv"."""
        if not name.startswith("/") or len(name) > _LONGEST_LIST:
            return None
        calls = tuple(name[1:].split("/")[:-1])
        path = self._path_of(calls) if len(calls) <= DEEPEST else ""
        return self.add(path) if path else None

    def _path_of(self, calls: tuple[str, ...]) -> str:
        if not calls or calls in self._called:
            return self._called.get(calls, "")
        outer = self._path_of(calls[:-1])
        path = self._first_call(outer, _own_name(calls))
        self._allowance.take(sum(map(len, calls)) + 60 * len(calls) + 300)
        self._called[calls] = path
        self._paths.add(path)
        return path

    def _first_call(self, outer: str, own: str) -> str:
        """The path of a module in another; later calls of a module have numbers behind its name, as "relu_1"."""
        path = f"{outer}.{own}" if outer else own
        first = _REPEATED.sub("", path)
        is_call = path not in self._with_tensors and (first in self._paths or first in self._with_tensors)
        return first if first != path and is_call else path


def _own_name(calls: tuple[str, ...]) -> str:
    """The name that a module has in the one that calls it; a child of a container has the container's before it."""
    *outer, own = calls
    for container in (outer[-1], _REPEATED.sub("", outer[-1])) if outer else ():
        if own.startswith(f"{container}."):
            return own[len(container) + 1 :]
    return own


def _listed(text: str) -> list[str]:
    """The texts of a list as Python writes it."""
    return [single or double for single, double in _STRINGS.findall(text[:_LONGEST_LIST])]
