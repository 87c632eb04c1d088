"""One metric of one module: its instances, slots in the history, and failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring.config import Measurement
from modulekg_widgets.engine.monitoring.hooks.observation import (
    IMMEDIATE_NEEDS,
    SHARDED_WEIGHT,
    SOURCES,
    STAGES,
    STEP_NEEDS,
    Observation,
    is_computed,
    is_measurable,
    stage_of,
    weight_of,
)
from modulekg_widgets.engine.monitoring.hooks.value_writer import Put, ValueWriter, packable
from modulekg_widgets.engine.monitoring.metric import MetricInstance, NoDataError, NoValueError
from modulekg_widgets.engine.monitoring.readings import SCALAR, TRAIN, Form, Parts, Slot
from modulekg_widgets.engine.torch_runtime.private import is_any_autocast_enabled, set_grad_enabled

if TYPE_CHECKING:
    from torch import nn


WEIGHT_NEEDS = {"Weight", "WeightGrad"}
LINALG_ERROR: type[Exception] = vars(torch.linalg)["LinAlgError"]  # the stubs do not know it
log = logging.getLogger("modulekg_widgets")
TensorReader: TypeAlias = (
    "Callable[[torch.Tensor, int, str], None]"  # a detached tensor, the number of its call, and the phase
)


class ModuleMetric:
    """A metric of a module: computes values from observations and stores them in slots."""

    def __init__(self, measurement: Measurement, writer: ValueWriter, rank: int) -> None:
        kind = measurement.metric.kind
        self._measurement = measurement
        self.path = measurement.path
        self.module = measurement.module
        self.is_absent = False  # whether its module was removed
        self.configured = measurement.metric
        self.schedule = measurement.schedule
        self.needs = kind.needs
        self.stage = stage_of(kind.needs)
        self.name = kind.name
        # tensors that were seen some time before they are used: something may have overwritten them meanwhile
        self._earlier = [SOURCES[need] for need in kind.needs if STAGES[need] < self.stage and need in SOURCES]
        self.kind = kind
        self.rank = rank  # its place in the configuration
        self.is_stopped = False
        self._writer = writer
        self._module_argument = {"module": measurement.module} if kind.wants_module else {}
        self._instances: dict[tuple[int, str], MetricInstance] = {}
        self._slots: dict[tuple[int, str, Parts], int] = {}
        self.is_quick = kind.quick is not None and not measurement.metric.settings
        # whether it looks at one tensor alone, as soon as that is seen
        self.sees_one = len(kind.needs) == 1 and kind.needs[0] in IMMEDIATE_NEEDS
        self._shared = None if kind.keeps_state else measurement.metric.instance()
        self.sees_calls = not STEP_NEEDS.issuperset(kind.needs)
        self._reads_weight = not WEIGHT_NEEDS.isdisjoint(kind.needs)
        self._had_weight = self._reads_weight and weight_of(measurement.module) is not None
        self.shards_are_merged = True

    def follow(self, module: nn.Module | None) -> None:
        """Switch to another module at the same path, or to none."""
        self.is_absent = module is None
        self._instances.clear()
        if module is None:
            return
        self.module = self._measurement.module = module
        self._measurement.flat = None
        self._module_argument = {"module": module} if self.kind.wants_module else {}
        self._had_weight = self._had_weight or (self._reads_weight and weight_of(module) is not None)

    def has_value(self) -> bool:
        """True if the current step has a value of this metric."""
        return any(self._writer.holds(number) for number in self._slots.values())

    def measure(self, observation: Observation, step: int, put: Put | None = None) -> None:
        """Measure an observation of a scheduled step; failures are recorded and never raised.

        Values go to the step that is being collected, or to `put`.
        """
        if self.is_stopped or self.is_absent:
            return
        put = put or self._writer.put
        try:
            if self._reads_weight:
                self._check_weight(observation)
            needed = [observation.get(need) for need in self.needs]
            for each in needed:
                if each is None:
                    return
                if isinstance(each, torch.Tensor) and each.is_meta:
                    raise NoDataError
            if self._earlier:
                self._check_fresh(observation)
            value = self._value(needed, observation, step)
            if value is not None:
                form, numbers = packable(value, observation)
                put(self._slot(observation.call, observation.phase, form), numbers, observation.weight)
        except NoDataError as error:
            self._fail(observation, _first_line(error), put, "meta")
        except (NoValueError, LINALG_ERROR) as error:
            self._fail(observation, _first_line(error), put)
        except Exception as error:  # noqa: BLE001 - a metric never stops the training
            self._stop(observation, error, put)

    def reader(self) -> TensorReader:
        """Returns a function that measures a detached tensor directly, for a metric that `is_quick`."""
        put, quick = self._writer.put, self.kind.quick

        def read(tensor: torch.Tensor, call: int, phase: str) -> None:
            try:
                put(self._slot(call, phase, SCALAR), quick(tensor), tensor.numel())  # type: ignore[misc]
            except Exception:  # noqa: BLE001 - `measure` meets it again, and knows what to say
                if is_measurable(tensor):
                    self.measure(Observation.of(SOURCES[self.needs[0]], tensor, self.module, call, phase), 0)

        return read

    def observe(self, observation: Observation) -> None:
        """Pass the step before a scheduled one to a metric that compares steps."""
        if self.is_stopped or self.is_absent:
            return
        try:
            if self._reads_weight:
                self._check_weight(observation)
            needed = [observation.get(need) for need in self.needs]
            if all(value is not None for value in needed):
                self._instance(observation).observe(*needed)
        except NoValueError:
            pass  # the scheduled step says it
        except Exception as error:  # noqa: BLE001
            self._stop(observation, error, self._writer.put)

    def miss(self, reason: str, call: int = 0, phase: str = TRAIN, about: str = "") -> None:
        """Record NaN and a reason for a call; `about` is the key of the one warning.

        What this step has for it already is NaN, too.
        """
        for (of_call, of_phase, parts), number in self._slots.items():
            if (of_call, of_phase) == (call, phase) and parts != SCALAR.parts and self._writer.holds(number):
                self._writer.put(number, np.full(Form(parts).size, np.nan), 0.0)
        self._fail(Observation(self.module, call, phase, 0), reason, self._writer.put, about)

    def release(self) -> None:
        """Release all instances, with the copies that they hold."""
        self._instances.clear()

    def _value(self, needed: list[object], observation: Observation, step: int) -> object:
        if self._shared is not None:
            return self._shared.compute(*needed, **self._module_argument)
        if self.kind.multi_step and self.schedule.begins(step) and not self.kind.keeps:
            self._instances.pop((observation.call, observation.phase), None)
        instance = self._instance(observation)
        if not self.kind.multi_step:
            return instance.compute(*needed, **self._module_argument)
        instance.update(*needed, **self._module_argument)
        return instance.compute() if self.schedule.due(step) else None

    def _instance(self, observation: Observation) -> MetricInstance:
        key = (observation.call, observation.phase)
        if key not in self._instances:
            self._instances[key] = self.configured.instance()
        return self._instances[key]

    def _check_weight(self, observation: Observation) -> None:
        """Raise `NoValueError` if the weight was removed, or is a shard that is not merged."""
        observation.flat = flat = self._measurement.flat
        if flat is not None:
            if not (self.shards_are_merged or flat.is_whole):
                raise NoValueError(SHARDED_WEIGHT)
            return
        if self._had_weight and weight_of(self.module) is None and not is_computed(self.module):
            raise NoValueError("the module has no weight any more")

    def _check_fresh(self, observation: Observation) -> None:
        for source in self._earlier:
            if observation.is_stale(source):
                raise NoValueError(f"{source} was overwritten in place before it could be read")

    def _slot(self, call: int, phase: str, form: Form) -> int:
        key = (call, phase, form.parts)  # tuples are hashed far faster than what holds them
        number = self._slots.get(key)
        if number is None:
            number = self._slots[key] = self._writer.number(Slot(self.path, self.name, call, phase, form), self.rank)
        return number

    def _fail(self, observation: Observation, reason: str, put: Put, about: str = "") -> None:
        where = f" of {printable(self.path)!r}" if self.path else ""
        self._writer.note(self.path, self.name, reason)
        put(self._slot(observation.call, observation.phase, SCALAR), float("nan"), 0.0)
        self._writer.warn(
            about or self.name, f"the metric {self.name}{where} has no value: {reason}; training continues"
        )

    def _stop(self, observation: Observation, error: Exception, put: Put) -> None:
        self.is_stopped = True
        self._instances.clear()
        log.debug("the metric %s failed", self.name, exc_info=error)
        self._fail(observation, f"{type(error).__name__}: {_first_line(error)}; it is not measured here any more", put)


def measure(metrics: Sequence[ModuleMetric], observation: Observation, step: int) -> None:
    """Measure a call outside of autograd and autocast."""
    grad_mode = torch.is_grad_enabled()
    set_grad_enabled(False)
    try:
        if is_any_autocast_enabled():
            with torch.autocast(observation.device_type, enabled=False):
                _measure(metrics, observation, step)
        else:
            _measure(metrics, observation, step)
    finally:
        set_grad_enabled(grad_mode)


def miss(metrics: Sequence[ModuleMetric], reason: str, call: int, phase: str) -> None:
    """Record a reason for the missing values of a call."""
    for metric in metrics:
        if not metric.is_stopped:
            metric.miss(reason, call, phase)


def _measure(metrics: Sequence[ModuleMetric], observation: Observation, step: int) -> None:
    for metric in metrics:
        metric.measure(observation, step)


def _first_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of the user's class may fail to print
        text = "(no message)"
    return printable(text.strip().partition("\n")[0], 300)


# -------------------- Metrics that are active at a step; a schedule that several metrics share is evaluated once


class ActiveMetrics:
    """Selects the metrics that are active at a step."""

    def __init__(self, metrics: Sequence[ModuleMetric]) -> None:
        self.metrics = metrics
        places: dict[object, int] = {}
        self._asked: list[Callable[[int], bool]] = []
        self._answer_of: list[int] = []  # for each metric, which answer counts
        for metric in metrics:
            place = places.setdefault((_value_or_identity(metric.schedule), metric.kind.multi_step), len(places))
            if place == len(self._asked):
                self._asked.append(metric.schedule.watches if metric.kind.multi_step else metric.schedule.due)
            self._answer_of.append(place)
        self._answers: tuple[list[bool], int] | None = None
        self._active: list[ModuleMetric] = []

    def at(self, step: int) -> list[ModuleMetric]:
        """Returns the active metrics; the same list object as before while they do not change."""
        stopped = [metric.is_stopped for metric in self.metrics].count(True)
        answers = [watches(step) for watches in self._asked], stopped
        if answers != self._answers:
            self._answers = answers
            self._active = [
                metric
                for metric, place in zip(self.metrics, self._answer_of, strict=True)
                if answers[0][place] and not metric.is_stopped
            ]
        return self._active


def _value_or_identity(schedule: object) -> object:
    try:
        hash(schedule)
    except TypeError:
        return id(schedule)  # a schedule of the user's that cannot be compared
    return schedule
