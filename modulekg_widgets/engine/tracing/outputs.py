"""Which outputs of a forward pass count, and keep their shape when axes are cut; the others follow the cut."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.operators.recorded import Value
from modulekg_widgets.engine.torch_runtime.structure import entries, leaves

Wanted = Sequence[str | int]
NEXT_CALL = {"past_key_values", "past_buckets_states", "cache_params", "mems"}  # what serves the next call
RESULT = "logits"  # beside it, what a model gives of its inside is for looking at
_INSIDE = re.compile(r"encoder_.*|(.*_)?(hidden_states?|attentions)")


def wanted_outputs(outputs: Any) -> Wanted | None:
    """What the user passed as `outputs`, as a list of names and indices; raises `UnknownNameError`.

    An empty list is of no output: all of them may be cut.
    """
    if outputs is None:
        return None
    every = [outputs] if isinstance(outputs, str | int) else outputs
    if not isinstance(every, Sequence) or not all(type(one) in (str, int) for one in every):
        wrong = f"outputs={shown(repr(outputs))}"
        raise UnknownNameError(f"{wrong}: give names or indices of outputs, as ['logits'] or [0], or [] for none")
    return every


def following_outputs(result: Any, wanted: Wanted | None) -> dict[str, Any]:
    """The outputs that do not count, by name: what is not wanted, by default what serves the next call or the inside.

    Raises `UnknownNameError` for a name or an index that the outputs do not have.
    """
    named = [(_bare(name), node) for name, node in leaves(result, Value)]
    counts = set(output_names(result))
    if wanted is not None:
        counts = set().union(*(_meant(one, result, list(counts)) for one in wanted))
    elif (inside := _inside(result)) != set(counts):
        counts -= inside
    kept = {node for name, node in named if name in counts}
    return {name: node for name, node in named if node not in kept}


def output_names(result: Any) -> list[str]:
    """The names of all tensors in what forward returned."""
    return [_bare(name) for name, _ in leaves(result, Value)]


def _bare(name: str) -> str:
    return name.removeprefix(".")


def _inside(result: Any) -> set[str]:
    """The names of what serves the next call, and beside `logits` of hidden states and attentions."""
    if not isinstance(result, Mapping):
        return set()
    keys = [key for key in result if isinstance(key, str)]
    gone = [key for key in keys if key in NEXT_CALL or (RESULT in keys and _INSIDE.fullmatch(key))]
    return {name for key in gone for name in _below(key, result[key])}


def _below(name: str, value: Any) -> list[str]:
    return [_bare(place) for place, _ in leaves(value, Value, name)]


def _meant(one: str | int, result: Any, names: list[str]) -> list[str]:
    """The names of the tensors that a name or an index means."""
    top = [(_bare(step), value) for step, value in entries(result)] or [("", result)]
    if isinstance(one, int):
        if not -len(top) <= one < len(top):
            raise UnknownNameError(f"outputs: there is no output {one}; forward gives {len(top)}: {_listed(top)}")
        return _below(*top[one])
    found = [name for name in names if name == one or name.startswith((f"{one}.", f"{one}["))]
    if not found:
        known = [*dict.fromkeys([*(step for step, _ in top if step), *names])]
        near = nearest(one, known) if any(known) else "forward gives one tensor, outputs=[0]"
        raise UnknownNameError(f"outputs: there is no output {shown(repr(one))}: {near}")
    return found


def _listed(top: list[tuple[str, Any]]) -> str:
    return ", ".join(shown(step) or "a tensor" for step, _ in top[:8])
