"""Value numbering of a trace: each distinct expression (operator, settings, shape, inputs) is one value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count

import numpy as np
import torch

from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

INPUT, STATE, TABLE, MOVED, UNKNOWN = "input", "state", "table", "moved", "unknown"  # beside the names of operators
_serial = count()  # makes each unknown value another one


class FlowValue:
    """A value as an expression; `label` identifies it up to the choice of weights of the same shape."""

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
        """The inputs in an order that is independent of how the operator was called."""
        return sorted(self.inputs, key=lambda value: value.label) if self.commutes else self.inputs


class ValueTable:
    """The values of one trace in order of creation; equal expressions are one value."""

    def __init__(self) -> None:
        self.values: list[FlowValue] = []
        self._known: dict[tuple[object, ...], FlowValue] = {}

    def value(
        self, name: str, settings: Mapping[str, str], inputs: Sequence[FlowValue], shape: tuple[int, ...],
        dtype: torch.dtype, *, commutes: bool = False, own: DataNode | None = None,
    ) -> FlowValue:  # fmt: skip
        """Returns the value of this expression; a value that is `own` to a tensor is not shared with others."""
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
        """Returns a value that equals no other."""
        made = self.value(UNKNOWN, {"reason": reason, "serial": str(next(_serial))}, (), node.shape, node.dtype)
        made.operator = node.producer
        return made


class FlowFunction:
    """Outputs as a function of inputs and weights; equal digests mean equal functions for any weights."""

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
        """The first unknown value, None if there is none."""
        return next((value for value in self.live_values if value.name == UNKNOWN), None)

    def digests(self, values: Iterable[FlowValue]) -> tuple[bytes, ...]:
        """Returns digests that identify values, with weights numbered in the order of their use."""
        return tuple(self.exact_digests[value.index] for value in values)


def _topological_order(outputs: Sequence[FlowValue]) -> Iterator[FlowValue]:
    """Yields everything that the outputs depend on, each once, in a canonical order."""
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
    """Returns a digest of each value in which weights are numbered, so that reuse of one differs from two."""
    numbers = {value.index: str(at) for at, value in enumerate(state)}
    found: list[bytes] = []
    for value in values:
        found.append(value.digest([found[given.index] for given in value.inputs], numbers.get(value.index, "")))
    return found
