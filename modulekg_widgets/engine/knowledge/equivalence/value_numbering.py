"""What a value is computed of: operator, settings, shape and inputs, each such expression once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

INPUT, STATE, TABLE, MOVED, UNKNOWN = "input", "state", "table", "moved", "unknown"  # beside the names of operators
_serial = count()  # makes each unknown value another one


class FlowValue:
    """A value by what it is computed of; `label` tells it up to which weights of the same shape it reads."""

    __slots__ = ("commutes", "dtype", "index", "inputs", "label", "name", "node", "operator", "positions", "settings",
                 "shape")  # fmt: skip

    def __init__(
        self, index: int, name: str, settings: Mapping[str, str], inputs: tuple[FlowValue, ...],
        shape: tuple[int, ...], dtype: torch.dtype, commutes: bool,
    ) -> None:  # fmt: skip
        self.index = index
        self.name = name
        self.settings = settings
        self.inputs = inputs
        self.shape = shape
        self.dtype = dtype
        self.commutes = commutes
        self.label = self.digest([value.label for value in inputs])
        self.operator: OperatorNode | None = None  # that computes it, the first where several do
        self.node: DataNode | None = None  # of what the model holds
        self.positions: np.ndarray | None = None  # where each element comes from, if it was but moved

    def digest(self, inputs: Sequence[bytes], own: str = "") -> bytes:
        """A digest of the operation on inputs of these digests."""
        given = sorted(inputs) if self.commutes else inputs
        text = repr((self.name, sorted(self.settings.items()), self.shape, str(self.dtype), own))
        return blake2b(b"".join([text.encode("utf-8", "surrogatepass"), b"\0", *given]), digest_size=16).digest()

    @property
    def ordered_inputs(self) -> Sequence[FlowValue]:
        """The inputs in an order that does not depend on how it was written."""
        return sorted(self.inputs, key=lambda value: value.label) if self.commutes else self.inputs


class ValueTable:
    """The values of one pass in the order of their making: what is computed twice of the same is one value."""

    def __init__(self) -> None:
        self.values: list[FlowValue] = []
        self._known: dict[tuple[Any, ...], FlowValue] = {}

    def value(
        self, name: str, settings: Mapping[str, str], inputs: Sequence[FlowValue], shape: tuple[int, ...],
        dtype: torch.dtype, *, commutes: bool = False, own: DataNode | None = None,
    ) -> FlowValue:  # fmt: skip
        """The value of this expression; one that is `own` to a tensor of the model is no other tensor's."""
        given = tuple(sorted(inputs, key=lambda value: value.index) if commutes else inputs)
        places = tuple(value.index for value in given)
        key = (name, tuple(sorted(settings.items())), places, shape, dtype, None if own is None else own.index)
        if key not in self._known:
            made = FlowValue(len(self.values), name, settings, given, shape, dtype, commutes)
            made.node = own
            self._known[key] = made
            self.values.append(made)
        return self._known[key]

    def unknown(self, node: DataNode, reason: str) -> FlowValue:
        """A value that equals no other one, because it cannot be told."""
        made = self.value(UNKNOWN, {"reason": reason, "serial": str(next(_serial))}, (), node.shape, node.dtype)
        made.operator = node.producer
        return made


class FlowFunction:
    """Outputs as a function of inputs and weights; equal digests are equal functions, whatever weights are given."""

    def __init__(self, flow: ValueTable, outputs: Sequence[FlowValue]) -> None:
        self.flow = flow
        self.outputs = tuple(outputs)
        self.live_values = list(_topological_order(outputs))  # what the outputs depend on, inputs before results
        self.state = [
            value for value in self.live_values if value.name == STATE
        ]  # the weights in the order of their use
        self.exact_digests = _exact_digests(flow.values, self.state)
        self.digest = b"".join(self.exact_digests[value.index] for value in outputs)

    @property
    def unknown(self) -> FlowValue | None:
        """The first value that cannot be told."""
        return next((value for value in self.live_values if value.name == UNKNOWN), None)

    def digests(self, values: Iterable[FlowValue]) -> tuple[bytes, ...]:
        """What tells values from all others, with the weights by the order of their use."""
        return tuple(self.exact_digests[value.index] for value in values)


def _topological_order(outputs: Sequence[FlowValue]) -> Iterator[FlowValue]:
    """All that the outputs depend on, each once, in an order that how it was written has no part in."""
    seen: set[int] = set()
    waiting: list[tuple[FlowValue, bool]] = [(value, False) for value in reversed(outputs)]
    while waiting:
        value, ready = waiting.pop()
        if ready:
            yield value
        elif value.index not in seen:
            seen.add(value.index)
            waiting.append((value, True))
            waiting.extend((given, False) for given in reversed(value.ordered_inputs))


def _exact_digests(values: Sequence[FlowValue], state: Sequence[FlowValue]) -> list[bytes]:
    """A digest of each value in which weights have numbers, so that one that is read twice is told from two."""
    numbers = {value.index: str(at) for at, value in enumerate(state)}
    found: list[bytes] = []
    for value in values:
        found.append(value.digest([found[given.index] for given in value.inputs], numbers.get(value.index, "")))
    return found
