"""One metric of one module at work: its instances, its slots, and what happens when it fails."""

from __future__ import annotations

import functools
import logging
import operator
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.monitoring.config import Measurement
from modulekg_widgets.engine.monitoring.hooks.observation import (
    SEEN_AT_ONCE,
    SOURCES,
    STAGES,
    Observation,
    is_measurable,
    stage_of,
)
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import NoDataError, NoValueError
from modulekg_widgets.engine.monitoring.readings import SCALAR, TRAIN, Form, Slot, vector
from modulekg_widgets.engine.monitoring.ring import Value

LINALG_ERROR: type[Exception] = vars(torch.linalg)["LinAlgError"]  # the stubs do not know it
STEP_NEEDS = frozenset({"Weight", "WeightGrad", "Loss"})  # what is there without a call of the module
LOOKS: dict[str, Callable[[Moments], Any]] = {
    "": operator.attrgetter("tensor"),
    "Moments": lambda seen: seen,
    "EigOfCov": operator.attrgetter("eigenvalues"),
}
log = logging.getLogger("modulekg_widgets")
Read: TypeAlias = "Callable[[torch.Tensor, int, str], None]"  # a detached tensor, the number of its call, and the phase
Take: TypeAlias = "Callable[[Moments, int, str], None]"  # the same of what several metrics share
Put: TypeAlias = "Callable[[int, Value, float], None]"  # slot, value, how much data it stands for


class ValueWriter:
    """Where entries write: values to slots, reasons for what has no value."""

    def __init__(self, put: Put, number: Callable[[Slot, int], int]) -> None:
        self.put = put
        self.number = number
        self.reasons: dict[tuple[str, str], str] = {}
        self._warned: set[str] = set()

    def note(self, module: str, metric: str, reason: str) -> None:
        """Why a value of `metric` of `module` is NaN; the latest reason stays."""
        self.reasons[module, metric] = reason

    def warn(self, about: str, text: str) -> None:
        """One warning for each metric, or for what all of them lack."""
        if about not in self._warned:
            self._warned.add(about)
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:  # the user makes errors of warnings: not of this one, in the middle of a training
                log.warning(text)


class _Numbers(dict[Any, int]):
    """Slots by call, phase and what else tells them apart; made when they are first asked for."""

    def __init__(self, make: Callable[[Any], int]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> int:
        number = self[key] = self._make(key)
        return number


class Entry:
    """A metric of a module: computes values from observations and puts them into slots."""

    def __init__(self, measurement: Measurement, journal: ValueWriter, rank: int) -> None:
        kind = measurement.metric.kind
        self.path = measurement.path
        self.module = measurement.module
        self.metric = measurement.metric
        self.schedule = measurement.schedule
        self.needs = kind.needs
        self.stage = stage_of(kind.needs)
        self.name = kind.name
        # tensors that were seen some time before they are used: something may have overwritten them meanwhile
        self._earlier = [SOURCES[need] for need in kind.needs if STAGES[need] < self.stage and need in SOURCES]
        self.kind = kind
        self.rank = rank  # its place in the configuration
        self.is_stopped = False
        self._writer = journal
        self._given = {"module": measurement.module} if kind.wants_module else {}
        self._instances: dict[tuple[int, str], Any] = {}
        self._slots: dict[tuple[int, str, Form], int] = {}
        self.is_quick = kind.quick is not None and not measurement.metric.settings
        # whether it looks at one tensor alone, as soon as that is seen
        self.sees_one = len(kind.needs) == 1 and kind.needs[0] in SEEN_AT_ONCE
        self._shared = None if kind.keeps_state else measurement.metric.instance()
        self.sees_calls = not STEP_NEEDS.issuperset(kind.needs)
        self.is_plain = not (kind.keeps_state or kind.wants_module)

    def measure(self, observation: Observation, step: int, put: Put | None = None) -> None:
        """Take in a call that the schedule asks for; a failure is noted and never raised.

        Values go to the step that is being collected, or to `put`.
        """
        if self.is_stopped:
            return
        put = put or self._writer.put
        try:
            needed = [observation.get(need) for need in self.needs]
            for value in needed:
                if value is None:
                    return
                if isinstance(value, torch.Tensor) and value.is_meta:
                    raise NoDataError
            if self._earlier:
                self._check_fresh(observation)
            value = self._value(needed, observation, step)
            if value is not None:
                self._store(value, observation, put)
        except NoDataError as error:
            self._fail(observation, _line(error), put, "meta")
        except (NoValueError, LINALG_ERROR) as error:
            self._fail(observation, _line(error), put)
        except Exception as error:  # noqa: BLE001 - a metric never stops the training
            self._stop(observation, error, put)

    def reader(self) -> Read:
        """What `measure` does, in as few steps as can be, for a metric that `is_quick`: of a detached tensor."""
        put, quick = self._writer.put, self.kind.quick
        numbers = _Numbers(lambda key: self._slot(key[0], key[1], SCALAR))

        def read(tensor: torch.Tensor, call: int, phase: str) -> None:
            try:
                put(numbers[call, phase], quick(tensor), tensor.numel())  # type: ignore[misc]
                if tensor.is_meta:
                    self.miss(call, phase)
            except Exception:  # noqa: BLE001 - the long way meets it again, and knows what to say
                if is_measurable(tensor):
                    observation = Observation(self.module, call, phase, 0)
                    observation.see(SOURCES[self.needs[0]], tensor)
                    self.measure(observation, 0)

        return read

    def taker(self) -> Take:
        """What `measure` does, in few steps, of the moments of a tensor: for metrics that `sees_one` and `is_plain`."""
        put, made, settings = self._writer.put, self.kind.made, self.metric.settings
        compute = functools.partial(made, **settings) if settings else made
        source = SOURCES[self.needs[0]]
        look = LOOKS[self.needs[0].removeprefix(source)]
        numbers = _Numbers(lambda key: self._slot(key[0], key[1], SCALAR if key[2] < 0 else vector(key[2])))

        def take(seen: Moments, call: int, phase: str) -> None:
            if self.is_stopped:
                return
            try:
                value = compute(look(seen))
                if type(value) is torch.Tensor and value.is_cpu and value.is_floating_point() and value.dim() < 2:
                    if value.dim() == 0:
                        put(numbers[call, phase, -1], value.item(), seen.count)
                    else:
                        put(numbers[call, phase, value.numel()], host_copy(value), seen.count)
                elif value is not None:
                    self._store(value, observed(self.module, source, seen, call, phase), put)
            except (NoValueError, LINALG_ERROR) as error:
                self._fail(observed(self.module, source, seen, call, phase), _line(error), put)
            except Exception as error:  # noqa: BLE001 - a metric never stops the training
                self._stop(observed(self.module, source, seen, call, phase), error, put)

        return take

    def read_made(self, make: Callable[[torch.nn.Module], torch.Tensor | None], read: Read) -> None:
        """Let the `reader` read what is made of the module itself."""
        try:
            tensor = make(self.module)
        except Exception as error:  # noqa: BLE001 - a metric never stops the training
            self._stop(Observation(self.module, 0, TRAIN, 0), error, self._writer.put)
        else:
            if tensor is not None:
                read(tensor, 0, TRAIN)

    def observe(self, observation: Observation) -> None:
        """Show the step before a scheduled one to a metric that compares."""
        if self.is_stopped:
            return
        try:
            needed = [observation.get(need) for need in self.needs]
            if all(value is not None for value in needed):
                self._instance(observation).observe(*needed)
        except Exception as error:  # noqa: BLE001
            self._stop(observation, error, self._writer.put)

    def miss(self, call: int = 0, phase: str = TRAIN) -> None:
        """Note that a call has no value, for its tensors hold no data."""
        self._fail(Observation(self.module, call, phase, 0), str(NoDataError()), self._writer.put, "meta")

    def forget(self) -> None:
        """Let go of every copy that was kept."""
        self._instances.clear()

    def _value(self, needed: list[Any], observation: Observation, step: int) -> Any:
        if self._shared is not None:
            return self._shared.compute(*needed, **self._given)
        if self.kind.multi_step and self.schedule.begins(step) and not self.kind.keeps:
            self._instances.pop((observation.call, observation.phase), None)
        instance = self._instance(observation)
        if not self.kind.multi_step:
            return instance.compute(*needed, **self._given)
        instance.update(*needed, **self._given)
        return instance.compute() if self.schedule.due(step) else None

    def _instance(self, observation: Observation) -> Any:
        key = (observation.call, observation.phase)
        if key not in self._instances:
            self._instances[key] = self.metric.instance()
        return self._instances[key]

    def _check_fresh(self, observation: Observation) -> None:
        for source in self._earlier:
            if observation.is_stale(source):
                raise NoValueError(f"{source} was overwritten in place before it could be read")

    def _store(self, value: Any, observation: Observation, put: Put) -> None:
        if type(value) is torch.Tensor and value.dim() == 0 and value.is_cpu and value.is_floating_point():
            form, numbers = SCALAR, value.item()
        else:
            form, numbers = flat_tensor(value)
            if isinstance(numbers, torch.Tensor):
                numbers = _own(numbers, observation)
        put(self._slot(observation.call, observation.phase, form), numbers, observation.weight)

    def _slot(self, call: int, phase: str, form: Form) -> int:
        key = (call, phase, form)
        number = self._slots.get(key)
        if number is None:
            number = self._slots[key] = self._writer.number(Slot(self.path, self.name, call, phase, form), self.rank)
        return number

    def _fail(self, observation: Observation, reason: str, put: Put, about: str = "") -> None:
        where = f" of {shown(self.path)!r}" if self.path else ""
        self._writer.note(self.path, self.name, reason)
        put(self._slot(observation.call, observation.phase, SCALAR), float("nan"), 0.0)
        self._writer.warn(
            about or self.name, f"the metric {self.name}{where} has no value: {reason}; the training goes on"
        )

    def _stop(self, observation: Observation, error: Exception, put: Put) -> None:
        self.is_stopped = True
        self._instances.clear()
        log.debug("the metric %s failed", self.name, exc_info=error)
        self._fail(observation, f"{type(error).__name__}: {_line(error)}; it is not measured here any more", put)


def host_copy(value: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor on the host, apart from its memory."""
    wide = value if value.dtype in (torch.float32, torch.float64) else value.double()
    return wide.detach().reshape(-1).numpy().astype(np.float64)


def observed(module: torch.nn.Module, source: str, seen: Moments, call: int, phase: str) -> Observation:
    """The call as metrics see it that go the long way."""
    observation = Observation(module, call, phase, 0)
    observation.found = {source: seen.tensor, f"{source}Moments": seen}
    observation.weight = seen.count
    return observation


def _own(value: torch.Tensor, observation: Observation) -> np.ndarray | torch.Tensor:
    """A value that nothing changes before it is read: as numbers, or on its device apart from the training's data."""
    if value.is_cpu:
        return host_copy(value)
    storage = value.untyped_storage()
    is_part = storage.nbytes() != value.numel() * value.element_size()
    is_shared = is_part or any(
        isinstance(seen, torch.Tensor) and seen.untyped_storage().data_ptr() == storage.data_ptr()
        for seen in observation.found.values()
    )
    return value.clone() if is_shared else value


def _line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of the user's class may fail to print
        text = "(no message)"
    return shown(text.strip().partition("\n")[0], 300)


def flat_tensor(value: Any) -> tuple[Form, torch.Tensor | float]:
    """The form of what a metric returned and its numbers: a float, or one tensor of one dimension.

    Raises `TypeError` for what is no number, no real tensor of at most one dimension and no dict of these.
    """
    if isinstance(value, dict):
        parts: list[tuple[str, int | None]] = []
        numbers: list[Any] = []
        for key, part in value.items():
            if isinstance(part, dict):
                raise TypeError("it gave a dict in a dict: a value is a number, a vector, or a dict of these")
            form, own = flat_tensor(part)
            parts.append((str(key), form.parts[0][1]))
            numbers.append(own)
        return Form(tuple(parts)), _joined(numbers)
    if isinstance(value, torch.Tensor):
        return _flat(value.detach())
    if isinstance(value, list | tuple) or (hasattr(value, "__array__") and getattr(value, "ndim", 0)):
        return _flat(torch.as_tensor(value))
    if isinstance(value, str | bytes):
        raise TypeError("it gave a text: a value is a number, a vector, or a dict of these")
    return SCALAR, float(value)


def _flat(tensor: torch.Tensor) -> tuple[Form, torch.Tensor]:
    if tensor.dim() > 1 or tensor.is_complex() or tensor.layout is not torch.strided or tensor.device.type == "meta":
        shape, kind = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        raise TypeError(f"it gave a {kind} tensor of shape {shape}: a value is real, with at most one dimension")
    return (SCALAR, tensor) if tensor.dim() == 0 else (vector(tensor.numel()), tensor)


def _joined(numbers: list[Any]) -> torch.Tensor:
    """Numbers and tensors one after the other, on the device of the tensors."""
    tensors = [number for number in numbers if isinstance(number, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    wide = torch.float32 if device.type == "mps" else torch.float64
    parts = [
        number.reshape(-1) if isinstance(number, torch.Tensor) else torch.full((1,), number, dtype=wide, device=device)
        for number in numbers
    ]
    return torch.cat([part if part.is_floating_point() else part.to(wide) for part in parts])
