"""Examples of operators: what is called, and the terms that the rules shall find.

The terms are written in a notation like that of einops: `"a b, b c -> a c"` reads: the first tensor has the free axes
a and b, the second b and c, the result a and c. `.` is a frozen axis, `1` a dimension of one index, `~a` a filler,
`(a b)` a product, `(a+b)` a sum, `()` a tensor without dimensions, `none` a result that is no tensor.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from modulekg_widgets.engine.torch_runtime.pytree import tensors, with_tensors

_generators: dict[str, torch.Generator] = defaultdict(lambda: torch.Generator().manual_seed(0))


def _generator() -> torch.Generator:
    """One for each file of examples, so that its numbers do not depend on which others are there."""
    return _generators[sys._getframe(2).f_globals["__name__"]]


def x(*shape: int) -> torch.Tensor:
    """A tensor of random numbers, none of them alike."""
    return torch.randn(shape, generator=_generator(), dtype=torch.float64)


def z(*shape: int) -> torch.Tensor:
    """Random complex numbers."""
    return torch.randn(shape, generator=_generator(), dtype=torch.complex128)


def positive(*shape: int) -> torch.Tensor:
    """Random numbers between 0.1 and 0.9."""
    return 0.1 + 0.8 * torch.rand(shape, generator=_generator(), dtype=torch.float64)


def ints(high: int, *shape: int) -> torch.Tensor:
    """Random indices below `high`, as different as can be."""
    count = int(np.prod(shape))
    order = torch.randperm(max(high, count), generator=_generator()) % high
    return order[:count].reshape(shape)


def mask(*shape: int) -> torch.Tensor:
    """Random truths, both kinds among them."""
    out = torch.rand(shape, generator=_generator()) < 0.5
    out.view(-1)[0], out.view(-1)[-1] = True, False
    return out


@dataclass(frozen=True, slots=True)
class Example:
    """A call of one overload, or of a function made of several, and the terms that the rules shall find."""

    overload: Any
    terms: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: int | None = None  # how many results are compared; None: all
    idle: bool = False  # a coupling between its inputs that no value shows
    run: Callable[..., Any] | None = None  # computes the same where the operator itself cannot run here

    title: str = ""  # of a function

    @property
    def name(self) -> str:
        return self.title or self.overload._schema.name

    @property
    def id(self) -> str:
        return f"{self.title or self.overload}-{self.terms}"

    @property
    def inputs(self) -> list[torch.Tensor]:
        return list(dict.fromkeys(t for _, t in tensors((self.args, self.kwargs))))

    def result(self, inputs: Sequence[torch.Tensor]) -> Any:
        """What the operator makes of other inputs in the places of its own; these stay as they are."""
        return self.run_on([tensor.clone() for tensor in inputs])

    def run_on(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The same, and the operator may write into its inputs."""
        torch.default_generator.manual_seed(0)
        given = {id(own): other for own, other in zip(self.inputs, inputs, strict=True)}
        args, kwargs = with_tensors((self.args, self.kwargs), lambda t: given[id(t)])
        with torch.no_grad():
            return (self.run or self.overload)(*args, **kwargs)


def example(name: str, terms: str, *args: Any, **kwargs: Any) -> Example:
    """`example("aten::mm", "a b, b c -> a c", x(2, 3), x(3, 5))`; an overload follows a dot."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator)
    return Example(getattr(packet, overload or "default"), terms, args, kwargs)


def function(title: str, terms: str, of: Callable[..., Any], *args: Any) -> Example:
    """A function that torch takes apart into operators."""
    return Example(of, terms, args, {}, title=title)


def shapes_only(of: Example, results: int = 0) -> Example:
    """Of this example only the first `results` results have values that can be compared: the others are random,
    not written, or kept for the backward pass in a form of their own."""
    return replace(of, values=results)


def idle(of: Example) -> Example:
    """An input that is overwritten, or only lends its shape: nothing depends on its order."""
    return replace(of, idle=True)


def as_if(of: Example, run: Callable[..., Any]) -> Example:
    """The operator runs on other devices only; `run` computes the same."""
    return replace(of, run=run)


def of_module(title: str, terms: str, module: nn.Module, *args: Any) -> Example:
    """A module as a function of its inputs and, after them, its parameters and statistics."""
    state = {name: tensor for name, tensor in module.double().state_dict().items() if tensor.is_floating_point()}
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in state.values()]
    values = [value.abs() + 0.1 if "var" in name else value for name, value in zip(state, values, strict=True)]

    def call(*given: Tensor) -> Any:
        own = dict(zip(state, given[len(args) :], strict=True))
        return torch.func.functional_call(module, own, given[: len(args)])

    return function(title, terms, call, *args, *values)
