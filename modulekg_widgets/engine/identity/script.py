"""TorchScript modules, seen from outside: the program and the shapes, without the names that the compiler invents."""

from __future__ import annotations

import re
from typing import Any

import torch

from modulekg_widgets.engine.identity.encoding import digest, packed, text
from modulekg_widgets.engine.identity.torch_values import tensor_encoding

# two compilations of one class differ by this prefix only
_MANGLED = re.compile(r"___torch_mangle_\d+\.")


def script_name(module: torch.nn.Module) -> str:
    """The name of the class that was scripted."""
    native = _native(module)
    return native._type().name() if native is not None else "ScriptModule"


def encode_script(module: torch.nn.Module) -> bytes:
    """The methods' graphs and the tensors of a scripted module."""
    native = _native(module)
    if native is None:
        return packed(b"J")
    graphs = [_MANGLED.sub("", method.graph.str(False)) for method in native._get_methods()]
    parts = [text(script_name(module)), digest(*(text(g) for g in graphs))]
    for prefix, part in _natives(native):
        for registry in (torch._C.ParameterDict(part), torch._C.BufferDict(part)):
            for name, tensor in sorted(registry.items()):  # type: ignore[attr-defined]
                parts += [text(f"{prefix}{name}"), tensor_encoding(tensor)]
    return packed(b"J", *parts)


def _natives(native: Any) -> list[tuple[str, Any]]:
    found, waiting = [], [("", native)]
    while waiting:
        prefix, part = waiting.pop()
        found.append((prefix, part))
        waiting += [(f"{prefix}{name}.", child) for name, child in torch._C.ModuleDict(part).items()]
    return sorted(found, key=lambda entry: entry[0])


def _native(module: torch.nn.Module) -> Any:
    return torch.nn.Module.__dict__["__dict__"].__get__(module).get("_c")
