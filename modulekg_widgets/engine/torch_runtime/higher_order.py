"""Operators that take functions, such as cond, scan and flex_attention, as the operators that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import (
    HigherOrderOperator,
    TorchDispatchMode,
    count_compiled_frames,
    kernel_in_parts,
    scan_in_parts,
)
from modulekg_widgets.engine.torch_runtime.structure import tensors, with_tensors

Branch = Callable[..., Any]


class OperatorMode(TorchDispatchMode):
    """A mode that sees every operator that runs, also those inside of what takes functions.

    `tries_branches`: both branches of a choice run, and the result is chosen between theirs; else the one that is
    chosen runs.
    """

    supports_higher_order_operators = True
    tries_branches = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "__torch_dispatch__" in vars(cls):
            cls.__torch_dispatch__ = _operators_alone(cls.__torch_dispatch__)
        super().__init_subclass__(**kwargs)  # torch keeps the compiler out of what stands there

    def __init__(self) -> None:
        super().__init__()
        self._counts: list[int] = []

    def entered_operator(self, name: str) -> None:
        """An operator that takes functions is about to run."""

    def __enter__(self) -> Any:
        # a mode keeps torch from compiling; that would end a call that has to be compiled as a whole
        self._counts.append(count_compiled_frames(0))
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        count_compiled_frames(self._counts.pop())
        return super().__exit__(*error)


def _operators_alone(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    def answer(self: OperatorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            self.entered_operator(func.name())
            with self:
                return in_parts(func, args, kwargs or {}, self.tries_branches)
        return dispatch(self, func, types, args, kwargs)

    return answer


def in_parts(func: Any, args: Sequence[Any], kwargs: dict[str, Any], tries_branches: bool) -> Any:
    """What a call gives, by the operators that it is made of; raises `NotImplementedError` where they are not known."""
    name = func.name()
    if name == "cond":
        return _chosen(*args, **kwargs) if tries_branches else _taken(*args, **kwargs)
    if name == "scan":
        return scan_in_parts(*args, **kwargs)
    kernel = kernel_in_parts(func)
    if kernel is None:
        raise NotImplementedError(f"the operators that {name} is made of are not known")
    return kernel(*args, **kwargs)


def _taken(pred: Any, true_fn: Branch, false_fn: Branch, operands: Sequence[Any]) -> Any:
    return true_fn(*operands) if pred else false_fn(*operands)


def _chosen(pred: Any, true_fn: Branch, false_fn: Branch, operands: Sequence[Any]) -> Any:
    """The results of both branches, of which a tensor says which one counts."""
    if not isinstance(pred, torch.Tensor):
        return _taken(pred, true_fn, false_fn, operands)
    yes, no = true_fn(*operands), false_fn(*operands)
    others = [tensor for _, tensor in tensors(no)]
    given = [tensor for _, tensor in tensors(yes)]
    if [(t.shape, t.dtype) for t in given] != [(t.shape, t.dtype) for t in others]:
        shapes = " and ".join(str([list(t.shape) for t in each]) for each in (given, others))
        raise RuntimeError(f"the branches of torch.cond give tensors of other shapes or types: {shapes}")
    first, rest = pred.reshape(()), iter(others)
    return with_tensors(yes, lambda tensor: torch.where(first, tensor, next(rest)))
