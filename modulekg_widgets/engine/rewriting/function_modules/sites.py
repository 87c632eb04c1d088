"""FunctionCall sites: the places in a forward that call functions, each with one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from modulekg_widgets.engine.rewriting.function_modules.function_module import CallSite
from modulekg_widgets.engine.rewriting.function_modules.functions import function_name
from modulekg_widgets.engine.rewriting.function_modules.recording import FunctionCall
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, MODULES, PARAMETERS
from modulekg_widgets.engine.torch_runtime.state import module_state
from modulekg_widgets.engine.tracing.source import Source

HOLDER = "function_modules"  # the child under which a module lists those of its functions
Key = tuple[Source, Any, int]  # line, function, and how often that line has called it before


class Sites:
    """The call sites of one forward, and the ways in which its runs passed them."""

    def __init__(self, runs: list[list[FunctionCall]]) -> None:
        self.by_key: dict[Key, CallSite] = {}
        counts: dict[str, int] = {}
        ways: dict[tuple[str, ...], list[CallSite]] = {}
        for calls in runs:
            way = []
            for key, call in zip(_keys(calls), calls, strict=True):
                if key not in self.by_key:
                    plain = "".join(c if c.isalnum() else "_" for c in function_name(call.function))
                    at = counts[plain] = counts.get(plain, -1) + 1
                    self.by_key[key] = _site(f"{plain}_{at}", key[2], call)
                way.append(self.by_key[key])
            ways.setdefault(tuple(site.name for site in way), way)
        self.ways = list(ways.values())

    def of(self, calls: list[FunctionCall]) -> list[CallSite | None]:
        """The sites of the calls of a further run; None for one that no run of before has made."""
        return [self.by_key.get(key) for key in _keys(calls)]


def holder_name(owner: nn.Module) -> str:
    """The name under which a module lists its function modules: one that it does not have yet."""
    state = module_state(owner)
    taken = {*dir(type(owner)), *state, *state[MODULES], *state[PARAMETERS], *state[BUFFERS]}
    name = HOLDER
    while name in taken:
        name += "_"
    return name


def when_active(path: str) -> str:
    """What to add to an error for a name that only exists while function modules are in use; empty for others."""
    return f"; a name in {HOLDER} exists while function_modules is active" if HOLDER in path.split(".") else ""


def _keys(calls: list[FunctionCall]) -> Iterator[Key]:
    counts: dict[tuple[Source, Any], int] = {}
    for call in calls:
        place = call.source, call.function
        counts[place] = counts.get(place, -1) + 1
        yield *place, counts[place]


def _site(name: str, index: int, call: FunctionCall) -> CallSite:
    return CallSite(name, call.function, call.source, index, call.args, call.kwargs, call.result, call.by_writing)
