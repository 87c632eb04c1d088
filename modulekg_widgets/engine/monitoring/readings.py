"""Readings: one value of one metric of one module, and the layout of values in rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

Value: TypeAlias = "float | np.ndarray | dict[str, float | np.ndarray]"
Parts: TypeAlias = "tuple[tuple[str, int | None], ...]"

TRAIN, EVAL = "train", "eval"
PHASES = (TRAIN, EVAL)


class Reading(NamedTuple):
    """One value: of a metric of a module, in one call of the module, at a step of the training.

    Attributes
    ----------
    module, metric : str
        The dotted path, "" for the root and for values of `monitor.log`; the name of the metric.
    step : int
        The step of the training, from 0.
    value : float, numpy.ndarray or dict
        What the metric gave; of several numbers by name, a dict.
    call : int
        Which call of a reused module within the step, from 0.
    phase : str
        "train" or "eval".

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> monitor = mk.Monitor(nn.Linear(2, 2), {})
    >>> monitor.log({"loss": 0.5})
    >>> next(monitor.readings())
    Reading(module='', metric='loss', step=0, value=0.5, call=0, phase='train')
    """

    module: str
    metric: str
    step: int
    value: Value
    call: int = 0
    phase: str = TRAIN


@dataclass(frozen=True, slots=True)
class Form:
    """Layout of a value: its parts as (key, length), with length None for a number, and key "" for a lone part.

    A number is `(("", None),)`, a vector of 64 `(("", 64),)`, a dict has one entry for each of its keys.
    """

    parts: Parts

    @property
    def size(self) -> int:
        """The count of numbers."""
        return sum(1 if length is None else length for _, length in self.parts)

    def value(self, numbers: np.ndarray) -> Value:
        """Returns the value with these `numbers`; vectors are copies."""
        found: dict[str, float | np.ndarray] = {}
        start = 0
        for key, length in self.parts:
            if length is None:
                found[key] = float(numbers[start])
            else:
                found[key] = np.array(numbers[start : start + length])
            start += 1 if length is None else length
        return found[""] if len(self.parts) == 1 and self.parts[0][0] == "" else found


SCALAR = Form((("", None),))


@lru_cache(maxsize=4096)
def vector(length: int) -> Form:
    """Returns the form of a vector of this length."""
    return Form((("", length),))


class Slot(NamedTuple):
    """Key of a value in rows: a metric of a module in one call and phase."""

    module: str
    metric: str
    call: int
    phase: str
    form: Form = SCALAR


@dataclass(frozen=True, slots=True)
class Row:
    """Values of one step: slots, and their numbers in sequence (float64)."""

    step: int
    slots: Sequence[Slot]
    numbers: np.ndarray

    def readings(self) -> list[Reading]:
        found = []
        start = 0
        for module, metric, call, phase, form in self.slots:
            if form is SCALAR:
                value: Value = float(self.numbers[start])
                start += 1
            else:
                value = form.value(self.numbers[start : start + form.size])
                start += form.size
            found.append(Reading(module, metric, self.step, value, call, phase))
        return found


def flat(value: Value) -> tuple[Form, list[float]]:
    """Returns the form of a value and its numbers, for values from files."""
    if isinstance(value, dict):
        parts: list[tuple[str, int | None]] = []
        numbers: list[float] = []
        for key, part in value.items():
            form, own = flat(part)
            parts.append((key, form.parts[0][1]))
            numbers += own
        return Form(tuple(parts)), numbers
    if isinstance(value, np.ndarray | list | tuple):
        vector = [float(number) for number in value]
        return Form((("", len(vector)),)), vector
    return SCALAR, [float(value)]
