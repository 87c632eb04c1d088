"""Values as strict JSON, and validation of readings from files."""

from __future__ import annotations

import json
import math

import numpy as np

from modulekg_widgets.engine.errors import RecordingError, a_type, printable
from modulekg_widgets.engine.monitoring.readings import PHASES, Reading, Value
from modulekg_widgets.engine.safe_files import parse_json

# JSON has no such numbers, and readers disagree on the bare words
SPECIAL_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MIN_STEP, MAX_STEP = -(1 << 63), (1 << 63) - 1
MAX_CALL = 1_000_000
MAX_PARTS = 100_000  # lists and objects in a text

# ------------------------------------------------------------------ to text


def number_text(number: float) -> str:
    """Returns a number as text that parses back to it; NaN and infinities by name."""
    if math.isfinite(number):
        return repr(float(number))
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def value_text(value: Value) -> str:
    """Returns a value as JSON; NaN and infinities are strings."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(key))}:{value_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, np.ndarray | list | tuple):
        numbers = np.asarray(value, np.float64).reshape(-1)
        if np.isfinite(numbers).all():
            return json.dumps(numbers.tolist(), separators=(",", ":"))
        return "[" + ",".join(map(value_text, numbers.tolist())) + "]"
    text = number_text(value)
    return f'"{text}"' if text in SPECIAL_NUMBERS else text


# ---------------------------------------------------------------- from text


def parse_value(text: str) -> object:
    """Returns the value of a JSON text; raises `RecordingError` for invalid or oversized JSON."""
    try:
        return parse_json(text, RecordingError, MAX_PARTS, unique=True, doubles=True)
    except RecordingError:
        raise
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"no JSON ({printable(str(error))}): {printable(text)!r}") from error


def checked_reading(
    module: object, metric: object, step: object, value: object, call: object = 0, phase: object = "train"
) -> Reading:
    """Returns a reading from parsed parts; raises `RecordingError` for invalid ones."""
    if type(module) is not str or type(metric) is not str:
        raise RecordingError(f"the module and the metric are texts, not {described(module)} and {described(metric)}")
    if type(step) is not int or not MIN_STEP <= step <= MAX_STEP:
        raise RecordingError(f"a step is a whole number of 64 bits, not {described(step)}")
    if type(call) is not int or not 0 <= call <= MAX_CALL:
        raise RecordingError(f"a call is a number from 0 to {MAX_CALL:,}, not {described(call)}")
    if type(phase) is not str or phase not in PHASES:
        raise RecordingError(f"a phase is 'train' or 'eval', not {described(phase)}")
    return Reading(module, metric, step, _value(value), call, phase)


def described(found: object) -> str:
    """Returns a value from a file, for a message."""
    text = repr(found) if isinstance(found, str | int | float | bool | None) else a_type(found)
    return printable(text)


def _value(found: object) -> Value:
    if type(found) is float and math.isfinite(found):
        return found
    if isinstance(found, list):
        return _vector(found)
    if isinstance(found, dict):
        return {key: _vector(part) if isinstance(part, list) else _number(part) for key, part in found.items()}
    return _number(found)


def _vector(found: list[object]) -> np.ndarray:
    if not set(map(type, found)) <= {float}:
        found = [_number(number) for number in found]
    return np.array(found, np.float64)


def _number(found: object) -> float:
    if type(found) is str and found in SPECIAL_NUMBERS:
        return SPECIAL_NUMBERS[found]
    if type(found) is not float and type(found) is not int:
        raise RecordingError(f"a value is made of numbers, not {described(found)}")
    try:
        return float(found)
    except OverflowError as error:
        raise RecordingError(f"no double is as large as {described(found)}") from error
