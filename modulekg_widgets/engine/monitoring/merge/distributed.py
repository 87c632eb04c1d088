"""Distributed monitoring: the values of all ranks are merged to those of one process on the whole batch.

Under `torch.distributed` with more than one process, a value is that of the whole batch, the loss being the mean over
processes, as DistributedDataParallel and `fully_shard` make it:

- norms of activations are the root of the sum of squares over processes; norms of gradients at modules the same divided
  by the count of processes, for each has the gradient of its own mean loss;
- `InputMean` and all means are weighted by the amount of data; `InputStd` comes from the means and deviations of all
  (Chan's formula); `ActivationMax` and `AttentionMaxLogit` are the largest, `NonFiniteOrigin` is 1 where one process
  saw it; the fraction of dead channels is the least of all, an upper bound;
- weights that every process has count once, those of the first process; of sharded ones (DTensor, or those of
  FullyShardedDataParallel) each process measures its own part: norms are roots of sums of squares, counts add up,
  least and greatest are those of all, `UpdateRatio` comes from the two norms;
- histograms stand over the range of all; the counts of a bin spread evenly over the bins that it falls into, and may be
  fractions;
- what cannot be merged is the mean over processes, weighted by the amount of data: spectra, `RankMe`, `MeanTID`,
  `VarTID`, `GradientNoiseScale`, `OutlierRatio`, metrics of your own. `@mk.metric(…, ranks="norm")` says another rule:
  norm, sum, min, max, mean or histogram.

`mk.monitoring.metrics()` lists the rules. All processes hold the merged values; sinks are fed by the first one alone.
Numbers that are logged, and metrics of the loss, stay with the process that logged them. The data must be split over
all processes: with other layouts, such as pipelines, pass `distributed=False`.

At `track` of a scheduled step all values go through one all_gather of float64 on the CPU, in a gloo group of our own,
so that it never meets the training's collectives. Slots that the others do not know yet, as of a branch that one
process took, are sent to all at once, by a second exchange at that step only. Nothing else communicates; a process that
stops closes its group, which wakes whoever waits for it. Where the processes do not agree on configuration or step, or
one stays away for five minutes, each goes on with its own values after one warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring import schedule as schedules
from modulekg_widgets.engine.monitoring.config import Measurement
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric
from modulekg_widgets.engine.monitoring.hooks.observation import local_part, weight_of
from modulekg_widgets.engine.monitoring.hooks.value_writer import ValueWriter
from modulekg_widgets.engine.monitoring.merge.rules import (
    COMPANIONS,
    MergedValues,
    RankValues,
    SharedLayout,
    companion_name,
    is_companion,
)
from modulekg_widgets.engine.monitoring.metric import MetricKind
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.transfer_ring import PackedRow, TransferRing
from modulekg_widgets.engine.torch_runtime.parallel import FlatPart
from modulekg_widgets.engine.torch_runtime.private import default_store

MEETING_TIMEOUT = timedelta(
    seconds=10
)  # for all to start their monitors: before a first read the training has synchronised
CONNECT_TIMEOUT = timedelta(seconds=60)
READ_TIMEOUT = timedelta(seconds=300)  # for one process at a read: less than the 10 minutes after which NCCL gives up

UnknownSlots = list[tuple[Slot, float, list[float]]]  # slot, amount, numbers


def is_distributed() -> bool:
    """True if this is one of several processes of a torch.distributed training."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class Ranks:
    """The ranks of a training that run the same monitor: exchanges and merges their values."""

    def __init__(
        self, planned: Sequence[Measurement], events: Sequence[schedules.OnEvent], history: History, ring: TransferRing
    ) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self._planned = planned
        self._events = events
        self._history = history
        self._hidden: list[Slot] = []  # what is measured for the sake of other values: its slot numbers are below 0
        self._raised = np.zeros(len(events))  # events that only this process has seen
        awaited = {event.metric for event in events}
        self._schedules = [m.schedule for m in planned if m.metric.kind.needs != ("Loss",) or m.metric.name in awaited]
        self._measured = {(m.path, m.metric.name): m for m in planned}
        companions = _companions(planned)
        self._measured |= {(m.path, companion_name(m.metric.name)): m for m in companions}
        self._order = {name: at for at, name in enumerate(self._measured)}
        writer = ValueWriter(ring.put, self._hidden_number, ring.has_value)
        self.metrics = [ModuleMetric(m, writer, len(planned)) for m in companions]
        self._layout = SharedLayout(self.world, self._kind_of)
        self._places: dict[int, int] = {}  # slot number -> place in the layout
        self._numbers: list[int] = []  # place -> slot number, below 0 for what is not shown
        self._weighed: list[Measurement | None] = []  # place -> the measurement of a weight
        self._visible_places: list[int] = []  # places in the order of the configuration
        self._store: Any = None
        self._session = 0
        self._group: Any = None
        self._is_alone = True

    @property
    def numbers(self) -> set[int]:
        """The slot numbers of companions, which are measured for merging alone."""
        return {-1 - at for at in range(len(self._hidden))}

    def announce(self) -> None:
        """Announce this rank in the store, without waiting."""
        if not dist.is_initialized():  # destroyed since the monitor was made
            return
        name = f"modulekg/{_digest(self._planned)}"
        self._store = distributed_c10d.PrefixStore(name, default_store())
        self._session = self._store.add("session", 0)
        self._store.set(self._key(self.rank), "here")
        self._is_alone = False

    def leave(self) -> None:
        """Close the connection, which wakes the ranks that wait for this one."""
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # the process that serves the store may be gone
                if store.check([self._key("verdict")]):
                    store.compare_set("session", str(self._session), str(self._session + 1))
                else:
                    store.delete_key(self._key(self.rank))
        self._is_alone = True
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(Exception):  # it may have gone with the user's groups
                dist.destroy_process_group(group)

    def share_event(self, event: schedules.OnEvent) -> bool:
        """Send an event of this rank to the others at the next read; False if the rank is alone."""
        if not self._is_alone:
            self._raised[self._events.index(event)] = 1.0
        return not self._is_alone

    def merged(self, rows: list[PackedRow], ended: int | None, upcoming: int) -> list[PackedRow]:
        """Returns the rows that have arrived, the one of step `ended` merged with those of other ranks.

        Events that others have seen fall due at the `upcoming` step.
        """
        if ended is not None and not self._is_alone and any(each.due(ended) for each in self._schedules):
            own = rows[-1] if rows and rows[-1].step == ended else _packed(ended, [], [], [])
            row = self._exchanged(own, upcoming)
            if row is not None:
                rows = [*(row for row in rows if row is not own), row]
        return [visible for row in rows if (visible := _visible(row)).slots]

    # -------------------------------------------------------------- meeting

    def _exchanged(self, own: PackedRow, upcoming: int) -> PackedRow | None:
        """The merged row; None if the ranks have separated."""
        try:
            if self._group is None and not self._rendezvous(own.step):
                return None
            table = self._gathered(own, upcoming)
            return None if table is None else self._row(own, self._layout.merge(table))
        except Exception as error:  # noqa: BLE001 - a monitor never stops the training
            reason = printable(str(error).strip().partition("\n")[0].rpartition("] ")[2].partition(". ")[0])
            self._disconnect(own.step, f"a rank has stopped, or cannot be reached ({reason})")
            return None
        except BaseException:
            self.leave()
            raise

    def _rendezvous(self, step: int) -> bool:
        """Rendezvous in the store: True if all ranks are there; the first one that knows decides for all."""
        here = [self._key(rank) for rank in range(self.world)]
        self._layout = SharedLayout(self.world, self._kind_of)
        self._places = {}
        self._extend([])
        verdict = "together"
        try:
            self._store.wait(here, MEETING_TIMEOUT)
        except RuntimeError:
            verdict = "apart"
        if self._store.compare_set(self._key("verdict"), "", verdict) != b"together":
            absent = ", ".join(str(rank) for rank, key in enumerate(here) if not self._store.check([key]))
            self._disconnect(
                step, f"{f'rank {absent}' if absent else 'a rank'} came late, or runs no monitor configured so"
            )
            return False
        self._group = dist.new_group(backend="gloo", timeout=CONNECT_TIMEOUT, group_desc="modulekg monitor")
        self._group.set_timeout(READ_TIMEOUT)
        return True

    def _key(self, name: object) -> str:
        """A key in the store, for this session of the monitors."""
        return f"{self._session}/{name}"

    def _disconnect(self, step: int, reason: str) -> None:
        self.leave()
        warnings.warn(
            f"from step {step} on the monitor's values are those of rank {self.rank} alone: {reason}. Let all ranks "
            "run the monitor with one configuration and track the same steps, or pass distributed=False",
            RuntimeWarning,
            stacklevel=2,
        )

    # -------------------------------------------------------------- exchanging

    def _gathered(self, own: PackedRow, upcoming: int) -> RankValues | None:
        """The values of all ranks by slot; None if they are at different steps."""
        body, unknown = self._aligned(own)
        head = [own.step, len(unknown), *self._raised]
        self._raised[:] = 0.0
        sent = torch.from_numpy(np.concatenate([head, body]))
        received = torch.empty(self.world, len(sent), dtype=torch.float64, device="cpu")
        dist.all_gather(list(received.unbind(0)), sent, group=self._group)
        heads, bodies = np.split(received.numpy(), [len(head)], axis=1)
        raised = heads[:, 2:].sum(0).tolist()
        steps = heads[:, 0].astype(int).tolist()
        if len(set(steps)) > 1:
            listed = ", ".join(f"rank {rank} step {at}" for rank, at in enumerate(steps[:8]))
            self._disconnect(own.step, f"the ranks track different steps ({listed})")
            return None
        for event, count in zip(self._events, raised, strict=True):
            event.due_at = upcoming if count else event.due_at
        table = RankValues(*np.split(bodies, [len(self._layout.slots)], axis=1))
        return self._extended(table, unknown) if heads[:, 1].any() else table

    def _aligned(self, own: PackedRow) -> tuple[np.ndarray, UnknownSlots]:
        """The values of this rank in the shared layout, and those of slots that it lacks."""
        first = len(self._layout.slots)
        body = np.zeros(first + self._layout.width)
        body[:first] = np.nan
        unknown: UnknownSlots = []
        stop = 0
        for number, size, weight in zip(own.slots, own.sizes, own.weights, strict=True):
            start, stop = stop, stop + size
            place = self._place(number)
            if place is None:
                slot = self._slot(number)
                amount = _amount(self._of_weight(slot), weight)
                unknown.append((slot, amount, own.numbers[start:stop].tolist()))
                continue
            body[place] = _amount(self._weighed[place], weight)
            at = first + self._layout.columns[place].start
            body[at : at + size] = own.numbers[start:stop]
        return body, unknown

    def _extended(self, table: RankValues, unknown: UnknownSlots) -> RankValues:
        """The table with the slots that some ranks did not know, in the same order on all ranks."""
        messages: list[Any] = [None] * self.world
        dist.all_gather_object(messages, unknown, group=self._group)
        self._extend(slot for rows in messages for slot, _, _ in rows)
        wide = RankValues(
            np.full((self.world, len(self._layout.slots)), np.nan), np.zeros((self.world, self._layout.width))
        )
        wide.amounts[:, : table.amounts.shape[1]] = table.amounts
        wide.numbers[:, : table.numbers.shape[1]] = table.numbers
        for rank, rows in enumerate(messages):
            for slot, amount, values in rows:
                place = self._layout.places[slot]
                wide.amounts[rank, place] = amount
                wide.numbers[rank, self._layout.columns[place]] = values
        return wide

    def _row(self, own: PackedRow, merged: MergedValues) -> PackedRow:
        """The merged row in the order of the configuration; slots of other ranks alone come last."""
        arrival = {self._place(number): made for number, made in zip(own.slots, own.arrival, strict=True)}
        places = [place for place in self._visible_places if merged.has_value[place]]
        return _packed(
            own.step,
            [self._numbers[place] for place in places],
            [arrival.get(place, len(self._numbers) + place) for place in places],
            [merged.numbers[self._layout.columns[place]] for place in places],
        )

    # -------------------------------------------------------------- slots

    def _extend(self, slots: Iterable[Slot]) -> None:
        """Add slots to the shared layout."""
        self._layout.extend(slots)
        own = self._layout.slots
        self._weighed = [self._of_weight(slot) for slot in own]
        self._numbers = [-1 if is_companion(slot.metric) else self._history.slot_number(slot) for slot in own]
        self._places |= {number: place for place, number in enumerate(self._numbers) if number >= 0}
        shown = [place for place, number in enumerate(self._numbers) if number >= 0]
        self._visible_places = sorted(shown, key=lambda place: self._order[own[place][:2]])

    def _slot(self, number: int) -> Slot:
        return self._history.slots[number] if number >= 0 else self._hidden[-1 - number]

    def _place(self, number: int) -> int | None:
        """The index of a slot in the shared layout; None if it is unknown there."""
        place = self._places.get(number)
        if place is None and (place := self._layout.places.get(self._slot(number))) is not None:
            self._places[number] = place
        return place

    def _of_weight(self, slot: Slot) -> Measurement | None:
        """The measurement of a weight metric; None for metrics of calls."""
        measured = self._measured[slot.module, slot.metric]
        return measured if {"Weight", "WeightGrad"}.issuperset(measured.metric.kind.needs) else None

    def _hidden_number(self, slot: Slot, _: int) -> int:
        self._hidden.append(slot._replace(metric=companion_name(slot.metric)))
        return -len(self._hidden)

    def _kind_of(self, slot: Slot) -> MetricKind:
        return self._measured[slot.module, slot.metric].metric.kind


def _visible(row: PackedRow) -> PackedRow:
    """The row without the values of companions."""
    if not row.slots or min(row.slots) >= 0:
        return row
    parts = np.split(row.numbers, np.cumsum(row.sizes)[:-1])
    kept = [at for at, number in enumerate(row.slots) if number >= 0]
    return _packed(
        row.step, [row.slots[at] for at in kept], [row.arrival[at] for at in kept], [parts[at] for at in kept]
    )


def _packed(step: int, slots: list[int], arrival: list[int], parts: list[np.ndarray]) -> PackedRow:
    numbers = np.concatenate(parts or [np.empty(0)])
    return PackedRow(step, slots, arrival, [len(part) for part in parts], [1.0] * len(parts), numbers)


def _amount(of_weight: Measurement | None, weight: float) -> float:
    """Amount of data behind a value, as `RankValues` defines it; of weights, the elements that only this rank has."""
    if of_weight is None or not weight:
        return weight
    if of_weight.flat is not None:
        return _amount_of_flat(of_weight.flat)
    parameter = weight_of(of_weight.module)
    if parameter is None:
        return weight
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return -1.0
    coordinate = cast(Any, parameter).device_mesh.get_coordinate()
    if coordinate is None or any(
        at and placement.is_replicate() for at, placement in zip(coordinate, placements, strict=True)
    ):
        return 0.0  # another process that has the same part counts
    own = local_part(parameter)
    return 0.0 if own is None else float(own.numel())


def _amount_of_flat(flat: FlatPart) -> float:
    if flat.is_whole:
        return -1.0
    own = flat.weight()
    return float(own.numel()) if own is not None and flat.counts else 0.0


def _companions(planned: Sequence[Measurement]) -> list[Measurement]:
    """The measurements of companion metrics, which merging needs."""
    return [
        Measurement(m.path, m.module, METRICS[COMPANIONS[m.metric.name]](), m.schedule, m.flat)
        for m in planned
        if m.metric.name in COMPANIONS
    ]


def _digest(planned: Sequence[Measurement]) -> str:
    """A digest that is equal on all ranks that measure the same at the same steps."""
    lines = [f"{m.path} {m.metric.name} {_schedule_text(m.schedule)}" for m in planned]
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()[:16]


def _schedule_text(schedule: object) -> str:
    """A schedule as text; of a user's class the name alone, as its repr may differ between processes."""
    if isinstance(schedule, schedules.AnyOf):
        return " ".join(map(_schedule_text, schedule.schedules))
    own = type(schedule)
    return repr(schedule) if own.__module__ == schedules.__name__ else own.__qualname__
