"""Batches, loss and evaluation function of the user for a pruning session."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import nn

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, a_type, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.importance.calibration import batch_count, check_batches
from modulekg_widgets.engine.pruning.sensitivity.sensitivity import sensitivity_steps
from modulekg_widgets.engine.torch_runtime.modules import set_mode

Progress = tuple[int, int | None]  # how much is done, and of how much, where that is known
MAX_VALUES = 20  # of one evaluation
UNNAMED = "value"
UNCUT, RECALIBRATED, LATER = "uncut", "recalibrated", "later"  # states of a model, with those of an operation


class Evaluation(NamedTuple):
    """The result of the user's evaluation function."""

    state: str  # what had been done to the model: "uncut", "masked", "cut", "recalibrated"; "later": trained since
    weights: str  # a digest of them
    values: dict[str, float]
    error: str  # why there are no values, or ""


@dataclass(frozen=True)
class UserData:
    """Batches, a loss and an evaluation function, each optional; raises `CutError` for contradictions."""

    batches: Iterable[object] | None = None
    loss: Callable[..., object] | None = None
    evaluate: Callable[[nn.Module], object] | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "evaluate"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise CutError(f"{name}= is a function: {a_type(function)} was passed")
        if self.batches is None:
            if self.loss is not None:
                raise CutError("loss= is computed on batches: pass batches= too, a list or a DataLoader")
            return
        check_batches(self.batches)
        if not isinstance(self.batches, Iterable):
            raise CutError(f"batches= is {a_type(self.batches)}: pass a list or a DataLoader")
        if isinstance(self.batches, Iterator):
            raise CutError(
                "batches= is read more than once, and a generator yields its items once: pass a list or a DataLoader"
            )
        if self.batch_count == 0:
            raise CutError("batches= is empty: pass a list of batches, or a DataLoader that has some")

    @property
    def has_sensitivity(self) -> bool:
        """True if the sensitivity can be computed."""
        return self.batches is not None and self.loss is not None

    @property
    def batch_count(self) -> int | None:
        """The number of batches; None if it is unknown."""
        return None if self.batches is None else batch_count(self.batches)

    def sensitivity(self, graph: DataflowGraph) -> Generator[Progress, None, pd.DataFrame]:
        """The steps that compute the table of `mk.pruning.sensitivity`."""
        if self.batches is None or self.loss is None:
            raise CutError("sensitivity is of a loss on batches: pass batches= and loss=")
        return sensitivity_steps(graph, self.batches, self.loss)

    def run_evaluation(self, model: nn.Module) -> tuple[dict[str, float], str]:
        """The values of the user's function on the model in eval mode, and "" or an error message."""
        if self.evaluate is None:
            raise CutError("there is nothing to evaluate by: pass evaluate=, a function of the model")
        try:
            with _in_eval_mode(model), torch.no_grad():
                return self._values(self.evaluate(model)), ""
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            return {}, _text(error)

    def _values(self, result: object) -> dict[str, float]:
        if not isinstance(result, Mapping):
            name = getattr(self.evaluate, "__name__", UNNAMED)
            result = {name if isinstance(name, str) and name.isidentifier() else UNNAMED: result}
        if len(result) > MAX_VALUES:
            raise CutError(f"evaluate returned {len(result)} values: at most {MAX_VALUES} are shown")
        return {str(name): _number(value) for name, value in result.items()}


@dataclass
class Evaluations:
    """The results of the user's function, from the original to the present model."""

    entries: list[Evaluation] = field(default_factory=list)

    def add(self, state: str, weights: str, values: dict[str, float], error: str) -> None:
        """Add a result; one of the same weights and state is replaced."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.state in (state, LATER):
            is_new = last.weights != weights and state != UNCUT
            state = LATER if is_new else last.state
            if last.state == state:
                self.entries.pop()
        self.entries.append(Evaluation(state, weights, values, error))

    def has_values_of(self, weights: str) -> bool:
        """True if the last result is of these weights and has values."""
        return bool(self.entries) and self.entries[-1].weights == weights and not self.entries[-1].error

    def truncate(self, count: int) -> None:
        """Remove all results but the first `count`."""
        del self.entries[count:]


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    states = walk(model).states
    modes = [state.get("training", True) for state in states]
    set_mode(states, False)
    try:
        yield
    finally:
        for state, mode in zip(states, modes, strict=True):
            state["training"] = mode


def _number(value: object) -> float:
    """A number, as of a tensor or an array of one element."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and value.nbytes == value.itemsize:
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise CutError(f"evaluate returned {a_type(value)}: return a number, or a dict of numbers by name")
    return float(value)


def _text(error: Exception) -> str:
    if isinstance(error, CutError):
        return str(error)
    try:
        message = printable(str(error).strip(), 300)
    except Exception:  # noqa: BLE001 - a class of the user's
        message = ""
    return f"evaluate stopped: {printable(type(error).__name__)}{message and f': {message}'}"
