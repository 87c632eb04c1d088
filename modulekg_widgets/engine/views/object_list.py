"""List of the models, plans and runs in a kernel namespace: names, classes and sizes."""

from __future__ import annotations

import keyword
import logging
import sys
import weakref
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.views.schema import Payload

if TYPE_CHECKING:
    from torch import nn

SCHEMA_VERSION = 1
MAX_OBJECTS = 200
MAX_NAME = 100
MAX_CLASS_NAME = 80
SLOW_SECONDS = 0.02  # seconds; a model that takes longer to count is counted again only on request

# what is listed, by the module that defines it: a class that nobody has loaded has no instances
KINDS = {
    "model": ("torch.nn", "Module"),
    "plan": ("modulekg_widgets.engine.pruning.plan.saved.pruning_plan", "PruningPlan"),
    "monitor": ("modulekg_widgets.engine.monitoring.monitor", "Monitor"),
    "recording": ("modulekg_widgets.engine.monitoring.sinks.recording", "Recording"),
    "graph": ("modulekg_widgets.engine.axes.graph", "DataflowGraph"),
}

logger = logging.getLogger("modulekg_widgets")
_class_name = type.__dict__["__name__"].__get__  # a metaclass may define another one


class ObjectList:
    """Objects in the namespace of an IPython shell; holds no reference to them."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self._counted: dict[str, tuple[weakref.ref[object], int | None]] = {}  # of the slow ones, by name

    def forget(self) -> None:
        """Clear the cached counts."""
        self._counted.clear()

    def payload(self) -> Payload:
        """Returns the entries in namespace order, and the count of omitted ones."""
        classes = _loaded_classes()
        found = list(self._found(classes)) if classes else []
        return {
            "schema_version": SCHEMA_VERSION,
            "objects": [self._entry(name, kind, value) for name, kind, value in found[:MAX_OBJECTS]],
            "left_out": max(0, len(found) - MAX_OBJECTS),
        }

    def _found(self, classes: dict[str, type]) -> Iterator[tuple[str, str, object]]:
        hidden = self.shell.user_ns_hidden
        for name, value in list(self.shell.user_ns.items()):
            kind = _kind(value, classes)
            if kind is not None and _is_plain(name) and name not in hidden:
                yield name, kind, value

    def _entry(self, name: str, kind: str, value: object) -> Payload:
        return {
            "name": name,
            "kind": kind,
            "class": printable(_class_name(type(value)), MAX_CLASS_NAME),
            "size": self._size(name, kind, value),
        }

    def _size(self, name: str, kind: str, value: Any) -> list[int | str] | None:
        """Parameters of a model or plan, series of a run, operators of a graph; None if unknown."""
        try:
            if kind == "model":
                count = self._parameters(name, value)
                return None if count is None else [_number(count)]
            if kind == "plan":
                return [_number(count) for count in value.params]
            return [len(value.operators if kind == "graph" else value.history.slots)]
        except Exception:
            logger.debug("the size of %s is not known", printable(name), exc_info=True)
            return None

    def _parameters(self, name: str, model: nn.Module) -> int | None:
        from modulekg_widgets.engine.identity.hierarchy import hierarchy

        kept = self._counted.get(name)
        if kept is not None and kept[0]() is model:
            return kept[1]
        begin, count = perf_counter(), None
        try:
            count = hierarchy(model).sizes.params[0]
        finally:
            if perf_counter() - begin > SLOW_SECONDS:
                self._counted[name] = (weakref.ref(model), count)
            else:
                self._counted.pop(name, None)
        return count


def _loaded_classes() -> dict[str, type]:
    found = {kind: getattr(sys.modules.get(home), name, None) for kind, (home, name) in KINDS.items()}
    return {kind: cls for kind, cls in found.items() if isinstance(cls, type)}


def _kind(value: object, classes: dict[str, type]) -> str | None:
    """The kind of an object by its type alone, as attribute access could run its code."""
    cls = type(value)
    return next((kind for kind, known in classes.items() if issubclass(cls, known)), None)


def _is_plain(name: object) -> bool:
    """True if the name is a valid Python identifier of moderate length."""
    if type(name) is not str or len(name) > MAX_NAME or name.startswith("_"):
        return False
    return name.isidentifier() and not keyword.iskeyword(name)


def _number(count: int) -> int | str:
    # as payload.number, which needs torch: this module is loaded with the package
    return count if abs(count) <= 2**53 else str(count)
