"""Access to names, bases, slots and source locations of classes that runs none of their code.

Nothing of a user's class runs; the place is told from its code objects, since `inspect` would parse whole files.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, cast

from modulekg_widgets.engine.torch_runtime.modules import Attributes

# a spawned process imports the main script under another name
MAIN_MODULES = {"__main__": "__main__", "__mp_main__": "__main__"}

# the descriptors of `type` itself: a metaclass may define attributes of the same names
class_mro = type.__dict__["__mro__"].__get__
class_dict = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_flags = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9


def is_heap_type(cls: type) -> bool:
    """True if the class was made at run time; others are built into the interpreter or an extension."""
    return bool(_flags(cls) & _HEAP_TYPE)


def class_names(cls: type) -> tuple[str, str]:
    """Module and qualified name of a class, empty text where the class holds something else there."""
    module = class_dict(cls).get("__module__") if is_heap_type(cls) else type.__getattribute__(cls, "__module__")
    return (MAIN_MODULES.get(module, module) if type(module) is str else ""), _qualname(cls)


WRAPPED_FUNCTIONS: tuple[type[Any], ...] = (staticmethod, classmethod)
# of a dict by itself, whatever a subclass defines
dict_items: Callable[[dict[Any, Any]], Iterable[tuple[Any, Any]]] = vars(dict)["items"]


def is_text(value: object) -> bool:
    """True for text, by the type itself: what an object calls its class may be anything."""
    return issubclass(type(value), str)


def is_importable(module: str, qualified: str, value: object) -> bool:
    """True if importing this name gives `value`, so that the name alone identifies it."""
    if module in MAIN_MODULES or "<" in qualified:
        return False
    found: object = sys.modules.get(module)
    for name in qualified.split("."):
        if issubclass(type(found), types.ModuleType):
            found = vars(found).get(name)
        elif issubclass(type(found), type):
            found = class_dict(cast("type", found)).get(name)
        else:
            return False
    inner: Any = found
    return found is value or (type(found) in WRAPPED_FUNCTIONS and inner.__func__ is value)


def slot_members(cls: type) -> list[tuple[str, types.MemberDescriptorType]]:
    """The descriptors of the slots that a Python class itself defines."""
    if not is_heap_type(cls):
        return []
    members = class_dict(cls).items()
    return [(n, m) for n, m in members if type(m) is types.MemberDescriptorType and n != "__weakref__"]


def instance_state(value: object) -> dict[str, Any]:
    """The values in an object's `__dict__` and in the slots of its classes, read through the descriptors themselves."""
    state: Attributes = {}
    for cls in reversed(class_mro(type(value))):
        if not is_heap_type(cls):
            continue
        descriptor = class_dict(cls).get("__dict__")
        if type(descriptor) is types.GetSetDescriptorType:
            state.update(descriptor.__get__(value))
        for name, member in slot_members(cls):
            try:
                state[name] = member.__get__(value)
            except AttributeError:  # a slot that is not set
                continue
    return state


def source_location(cls: type) -> str | None:
    """File and line of the first method of `cls`, such as `torch/nn/modules/conv.py:337`; None where there is none.

    The file is named from its top-level package down, so that it reads the same on every machine.
    """
    for base in class_mro(cls):
        if not is_heap_type(base):
            continue
        codes = [v.__code__ for v in class_dict(base).values() if type(v) is types.FunctionType]
        if codes:
            first = min(codes, key=lambda code: code.co_firstlineno)
            file = notebook_cell(first.co_filename) or _short_file(first.co_filename, class_names(base)[0])
            return f"{file}:{first.co_firstlineno}"
    return None


def notebook_cell(file: str) -> str | None:
    """The cell of a notebook that Python knows as `file`, such as `In[3]`; None for any other file.

    The file of a cell has a number for a name, which no reader can find; IPython has counted it.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = name_of(file) if name_of is not None else None
    return None if found is None else found[1]


def _short_file(file: str, module: str) -> str:
    parts = PurePath(file).parts
    if parts and parts[-1].removesuffix(".py") == "__init__":
        return "/".join(parts[-1 - module.count(".") - 1 :])
    return "/".join(parts[-1 - module.count(".") :]) if parts else file
