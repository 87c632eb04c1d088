"""TorchScript modules, seen from outside: one opaque module with a program, its constants and its tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

# compilations of one class differ by this part of the name only
_MANGLED = re.compile(r"___torch_mangle_\d+\.")
_ATTRIBUTE = re.compile(r'prim::GetAttr\[name="([^"]+)"\]')


def native_script(state: dict[str, Any]) -> Any:
    """The compiled module behind a scripted or traced one, given its `__dict__`; None for every other module."""
    inner = state.get("_actual_script_module")  # what tracing returns is a wrapper
    native = state.get("_c") if inner is None else torch.nn.Module.__dict__["__dict__"].__get__(inner).get("_c")
    return native if type(native) is torch._C.ScriptModule else None


def script_tensors(state: dict[str, Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The name, role and content of every parameter and buffer of a TorchScript module and of those within."""
    for prefix, native in _natives(state):
        for role, registry in (("parameter", torch._C.ParameterDict), ("buffer", torch._C.BufferDict)):
            for name, tensor in registry(native).items():  # type: ignore[attr-defined]
                yield prefix + name, role, tensor


def script_programs(state: dict[str, Any]) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """For each compiled module its prefix, its class and methods as text, and the attributes that these read."""
    for prefix, native in _natives(state):
        inside = dict(torch._C.ModuleDict(native).items())  # type: ignore[attr-defined]
        methods = [native._get_method(name).graph.str(False) for name in sorted(native._method_names())]
        read = {name for method in methods for name in _ATTRIBUTE.findall(method)} - inside.keys() - {"training"}
        attributes = {name: native.getattr(name) for name in sorted(read) if native.hasattr(name)}
        yield prefix, [_MANGLED.sub("", program) for program in (native._type().name(), *methods)], attributes


def _natives(state: dict[str, Any]) -> list[tuple[str, Any]]:
    found, waiting = [], [("", native_script(state))]
    while waiting:
        prefix, part = waiting.pop()
        found.append((prefix, part))
        waiting += [(f"{prefix}{name}.", child) for name, child in torch._C.ModuleDict(part).items()]  # type: ignore[attr-defined]
    return sorted(found, key=lambda entry: entry[0])
