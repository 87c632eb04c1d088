"""Ring of device buffers: values of a step are packed into one row and copied to the host asynchronously."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

Packable: TypeAlias = "float | np.ndarray | torch.Tensor"  # a number, or numbers in one dimension
Event: TypeAlias = "torch.cuda.Event | None"  # that says that a copy is there; None where nothing waits for it
Transfer: TypeAlias = "tuple[torch.Tensor, int, Event]"  # host memory, and the count of numbers
RingRow: TypeAlias = "tuple[torch.Tensor, torch.Tensor, Event]"  # on the device and on the host
HOST_TYPES = {float, np.ndarray}
RING_ROWS = 16  # steps that may be on their way before a step has to wait for the device


@dataclass
class PackedRow:
    """Packed values of one step: slot numbers, their numbers, and the amount of data behind each.

    The slots are in the order of the modules; `arrival` tells in which order their values were made.
    """

    step: int
    slots: Sequence[int]
    arrival: Sequence[int]
    sizes: Sequence[int]
    weights: Sequence[float]
    numbers: np.ndarray


class _Order(NamedTuple):
    """The slots of a step in module order, and the position at which each arrived."""

    slots: list[int]
    arrival: list[int]


@dataclass
class _PendingRow:
    """A row whose copy to the host may be under way."""

    row: PackedRow
    buffers: list[Transfer]


@dataclass
class _DeviceRing:
    """Ring of `RING_ROWS` rows on a device with pinned host memory; they grow with the layout."""

    device: torch.device
    capacity: int = 0
    at: int = 0
    rows: list[RingRow] = field(default_factory=list)

    def pack(self, parts: list[torch.Tensor], count: int) -> Transfer:
        """Copy vectors to the host, in one block; those of one dtype should be adjacent."""
        if count > self.capacity:
            self.capacity = 2 * count
            self.rows = [self._row() for _ in range(RING_ROWS)]
        on_device, on_host, event = self.rows[self.at]
        self.at = (self.at + 1) % RING_ROWS
        start = 0
        for _, alike in itertools.groupby(parts, key=_dtype):
            own = list(alike)  # of several types torch would copy one after the other
            stop = start + sum(part.numel() for part in own)
            place = on_device[start:stop]
            if own[0].dtype is place.dtype:
                torch.cat(own, out=place)
            else:
                place.copy_(torch.cat(own))
            start = stop
        on_host[:count].copy_(on_device[:count], non_blocking=True)
        if event is not None:
            # without a word it would be the stream of another device, where that one is the present one
            event.record(*([torch.cuda.current_stream(self.device)] if self.device.type == "cuda" else []))
        return on_host, count, event

    def _row(self) -> RingRow:
        kind = torch.float32 if self.device.type == "mps" else torch.float64  # Apple's devices have no float64
        is_cuda = self.device.type == "cuda"
        on_device = torch.empty(self.capacity, dtype=kind, device=self.device)
        on_host = torch.empty(self.capacity, dtype=kind, device="cpu", pin_memory=is_cuda)
        return on_device, on_host, torch.cuda.Event() if is_cuda else None


class TransferRing:
    """Collects the values of a step and transfers them to the host."""

    def __init__(self) -> None:
        # slot → value and weight; one assignment, so that threads may put at once
        self._collected: dict[int, tuple[Packable, float]] = {}
        self.ranks: dict[int, int] = {}  # slot → its place in the configuration, the order in which people read
        self._devices: dict[torch.device, _DeviceRing] = {}
        self._pending: deque[_PendingRow] = deque()
        self._reading = threading.RLock()
        self._arrived_last: tuple[int, ...] = ()
        self._order = _Order([], [])

    def put(self, slot: int, value: Packable, weight: float) -> None:
        """Add a value for `slot`; it must not change any more, and a tensor must be detached.

        `weight` is how much data it stands for.
        A second value for a slot in the same step takes the place of the first.
        """
        self._collected[slot] = (value, weight)

    def has_value(self, slot: int) -> bool:
        """True if the current step has a value for `slot`."""
        return slot in self._collected

    def clear(self) -> None:
        """Drop the values of the current step."""
        self._collected = {}

    def retain(self, wanted: set[int]) -> None:
        """Drop the values of other slots than these."""
        self._collected = {slot: held for slot, held in self._collected.items() if slot in wanted}

    def close(self, step: int) -> None:
        """End the step: start the copy of its values to the host, one block per device."""
        held, self._collected = self._collected, {}
        if not held:
            return
        with self._reading:
            if len(self._pending) >= RING_ROWS:
                self._is_complete(self._pending[-RING_ROWS], wait=True)  # its memory is the next to be written
        order = self._ordered(tuple(held))
        values, weights = zip(*[held[slot] for slot in order.slots], strict=True)
        if HOST_TYPES.issuperset(map(type, values)):
            sizes = [_size(value) for value in values]
            row = PackedRow(step, order.slots, order.arrival, sizes, weights, _joined(values, sum(sizes)))
            self._pending.append(_PendingRow(row, []))
        else:
            self._pending.append(self._scattered(step, order, values, weights))

    def _scattered(
        self, step: int, order: _Order, values: tuple[Packable, ...], weights: tuple[float, ...]
    ) -> _PendingRow:
        """A row with values on several devices, ordered by device."""
        by_device: dict[torch.device | None, dict[torch.dtype | None, list[int]]] = {}
        for at, value in enumerate(values):
            device, dtype = (value.device, value.dtype) if isinstance(value, torch.Tensor) else (None, None)
            by_device.setdefault(device, {}).setdefault(dtype, []).append(at)
        devices = {device: [at for own in by_type.values() for at in own] for device, by_type in by_device.items()}
        places = [at for own in devices.values() for at in own]
        row = PackedRow(
            step,
            [order.slots[at] for at in places],
            [order.arrival[at] for at in places],
            [_size(values[at]) for at in places],
            [weights[at] for at in places],
            np.empty(0),
        )
        return _PendingRow(row, [self._pack(device, [values[at] for at in own]) for device, own in devices.items()])

    def _ordered(self, slots: tuple[int, ...]) -> _Order:
        """The slots in module order, cached from the step before."""
        if slots != self._arrived_last:
            self._arrived_last = slots
            places = {slot: at for at, slot in enumerate(slots)}
            ordered = sorted(slots, key=lambda slot: self.ranks.get(slot, 0))
            self._order = _Order(ordered, [places[slot] for slot in ordered])
        return self._order

    def take(self, wait: bool = False) -> list[PackedRow]:
        """Returns the rows that have arrived, oldest first; with `wait`, all of them."""
        found = []
        with self._reading:
            while self._pending and self._is_complete(self._pending[0], wait):
                found.append(self._pending.popleft().row)
        return found

    def _pack(self, device: torch.device | None, values: list[Any]) -> Transfer:
        if device is None or device.type == "cpu":
            here = [
                value.double().reshape(-1).numpy() if isinstance(value, torch.Tensor) else value for value in values
            ]
            packed = torch.from_numpy(_joined(here, sum(map(_size, values))))
            return packed, len(packed), None
        parts = [value.reshape(-1) if value.is_floating_point() else value.reshape(-1).double() for value in values]
        ring = self._devices.setdefault(device, _DeviceRing(device))
        return ring.pack(parts, sum(part.numel() for part in parts))

    def _is_complete(self, leaving: _PendingRow, wait: bool) -> bool:
        if leaving.buffers:
            for _, _, event in leaving.buffers:
                if event is not None and wait:
                    event.synchronize()
                elif event is not None and not event.query():
                    return False
            leaving.row.numbers = np.concatenate([host[:count].double().numpy() for host, count, _ in leaving.buffers])
            leaving.buffers = []  # the memory of the ring is free for another step
        return True


def _dtype(part: torch.Tensor) -> torch.dtype:
    return part.dtype


def _joined(values: Sequence[float | np.ndarray], count: int) -> np.ndarray:
    """Concatenates all numbers."""
    if set(map(type, values)) == {float}:
        return np.array(values)
    found, at = np.empty(count), 0
    for value in values:
        stop = at + _size(value)
        found[at:stop] = value
        at = stop
    return found


def _size(value: Packable) -> int:
    if type(value) is float:
        return 1
    return value.numel() if isinstance(value, torch.Tensor) else np.size(value)
