"""What one call of a module shows to the metrics: each need is made once, whoever asks for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from modulekg_widgets.engine.monitoring.measures.channels import channel_dim
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.torch_runtime.private import (
    PARAMETERS,
    FakeTensor,
    is_functorch_wrapped_tensor,
    tracing_state,
    transforms,
    version_of,
)
from modulekg_widgets.engine.torch_runtime.state import module_state

if TYPE_CHECKING:
    from torch import nn

PLAIN = (torch.Tensor, torch.nn.Parameter)
# when a need can be met: before the forward, after it, in the backward pass, at `track`
BEFORE, AFTER, BACKWARD, TRACK = range(4)
STAGES = {
    "ForwardInput": BEFORE,
    "ForwardInputMoments": BEFORE,
    "ForwardInputEigOfCov": BEFORE,
    "Weight": BEFORE,
    "ForwardOutput": AFTER,
    "ForwardOutputMoments": AFTER,
    "ForwardOutputEigOfCov": AFTER,
    "Attention": AFTER,
    "BackwardOutput": BACKWARD,
    "BackwardOutputMoments": BACKWARD,
    "BackwardOutputEigOfCov": BACKWARD,
    "BackwardInput": BACKWARD,
    "WeightGrad": TRACK,
    "Loss": TRACK,
}


def stage_of(needs: tuple[str, ...]) -> int:
    """The earliest moment at which all needs are met; what reads the weight alone is read at `track`."""
    return TRACK if set(needs) <= {"Weight"} else max(STAGES[need] for need in needs)


class Observation:
    """One call of one module: its tensors, and what was made of them."""

    __slots__ = ("call", "edge", "epoch", "found", "module", "phase", "versions", "watch", "weight")

    def __init__(self, module: nn.Module, call: int, phase: str, epoch: int) -> None:
        self.module = module
        self.call = call
        self.phase = phase
        self.epoch = epoch  # the step that it belongs to, as the watcher counts
        self.found: dict[str, Any] = {}
        self.versions: dict[str, tuple[torch.Tensor, int]] = {}
        self.weight = 1.0
        self.edge: Any = None  # where the gradient of the input leaves the module
        self.watch: Any = None  # follows the attention of this call

    def see(self, need: str, tensor: torch.Tensor) -> None:
        """Take in a tensor of the training, detached."""
        own = tensor.detach()
        self.found[need] = own
        if not own.is_inference():  # such tensors count no versions
            self.versions[need] = (own, version_of(own))
        self.weight = float(own.numel())

    def get(self, need: str) -> Any:
        """What `need` stands for in this call; None when it cannot be had."""
        if need in self.found:
            return self.found[need]
        make = _MADE.get(need)
        made = make(self) if make is not None else None
        self.found[need] = made
        return made

    def is_stale(self, need: str) -> bool:
        """Whether the tensor behind a need was overwritten in place since it was seen."""
        seen = self.versions.get(need)
        return seen is not None and version_of(seen[0]) != seen[1]

    def later(self, needs: set[str]) -> Observation:
        """The part of this call that a later stage asks for."""
        kept = Observation(self.module, self.call, self.phase, self.epoch)
        kept.found = {need: value for need, value in self.found.items() if need in needs}
        kept.versions = {need: value for need, value in self.versions.items() if need in needs}
        kept.weight = self.weight
        return kept

    def drop(self) -> None:
        """Let go of the tensors, and of what was made of them."""
        self.found.clear()
        self.versions.clear()

    @property
    def device_type(self) -> str:
        """That of the first tensor."""
        return next((value.device.type for value in self.found.values() if isinstance(value, torch.Tensor)), "cpu")


channel_dim_of = lru_cache(maxsize=4096)(channel_dim)


def _moments(need: str) -> Callable[[Observation], Any]:
    def make(observation: Observation) -> Any:
        tensor = observation.get(need)
        if tensor is None:
            return None
        return Moments(tensor, channel_dim_of(type(observation.module), tensor.dim()))

    return make


def _eigenvalues(need: str) -> Callable[[Observation], Any]:
    def make(observation: Observation) -> Any:
        moments = observation.get(need)
        return None if moments is None else moments.eigenvalues

    return make


def _weight(module: nn.Module) -> torch.Tensor | None:
    parameter = weight_of(module)
    return None if parameter is None else local(parameter.detach())


def _weight_grad(module: nn.Module) -> torch.Tensor | None:
    parameter = weight_of(module)
    return None if parameter is None or parameter.grad is None else local(parameter.grad.detach())


# what needs no call of the module
WEIGHTS: dict[str, Callable[[nn.Module], torch.Tensor | None]] = {"Weight": _weight, "WeightGrad": _weight_grad}
_MADE: dict[str, Callable[[Observation], Any]] = {
    "ForwardInputMoments": _moments("ForwardInput"),
    "ForwardOutputMoments": _moments("ForwardOutput"),
    "BackwardOutputMoments": _moments("BackwardOutput"),
    "ForwardInputEigOfCov": _eigenvalues("ForwardInputMoments"),
    "ForwardOutputEigOfCov": _eigenvalues("ForwardOutputMoments"),
    "BackwardOutputEigOfCov": _eigenvalues("BackwardOutputMoments"),
    "Weight": lambda observation: _weight(observation.module),
    "WeightGrad": lambda observation: _weight_grad(observation.module),
}
GRADIENTS = ("BackwardInput", "BackwardOutput")
# what a need is made of, down to the tensors of the call
SOURCES = {
    need: need.replace("Moments", "").replace("EigOfCov", "") for need in STAGES if need not in ("Attention", "Loss")
}


SEEN_AT_ONCE = frozenset(
    need for need, source in SOURCES.items() if source in ("ForwardInput", "ForwardOutput", "BackwardOutput")
)


def gradients_of(needs: tuple[str, ...]) -> set[str]:
    """The gradients that these needs are made of."""
    return {SOURCES[need] for need in needs if need.startswith("Backward")}


def weight_of(module: nn.Module) -> torch.nn.Parameter | None:
    """The module's own parameter `weight`, or the only one whose name ends so, as `in_proj_weight` of attention.

    None where it has none, several, or computes it from others.
    """
    own = module_state(module).get(PARAMETERS)
    if not isinstance(own, dict):
        return None  # TorchScript keeps its own
    parameter = own.get("weight")
    if parameter is None:
        named = [value for name, value in own.items() if name.endswith("weight") and value is not None]
        parameter = named[0] if len(named) == 1 else None
    return None if parameter is None or torch.nn.parameter.is_lazy(parameter) else parameter


def local(tensor: torch.Tensor) -> torch.Tensor | None:
    """The part of a tensor that lies on this rank, None where that is empty; of an ordinary tensor all of it."""
    if type(tensor) in PLAIN or not hasattr(tensor, "to_local"):
        return tensor
    own = tensor.to_local()  # type: ignore[attr-defined]
    return own if own.numel() else None


def first_tensor(values: Any, depth: int = 4) -> torch.Tensor | None:
    """The first tensor in nested lists, tuples, dicts and data classes; None without one that can be measured."""
    if isinstance(values, torch.Tensor):
        return values if is_measurable(values) else None
    if dataclasses.is_dataclass(values) and not isinstance(values, dict):
        values = vars(values) if hasattr(values, "__dict__") else None
    if depth and isinstance(values, tuple | list | dict):
        for value in values.values() if isinstance(values, dict) else values:
            if isinstance(value, torch.Tensor):
                return value if is_measurable(value) else None
            found = first_tensor(value, depth - 1)
            if found is not None:
                return found
    return None


def is_measurable(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds floating or complex data of its own: no fake, batched or sparse one."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return False
    if tensor.is_meta or is_functorch_wrapped_tensor(tensor):
        return False
    return type(tensor) in PLAIN or not _is_fake(tensor)


def is_rehearsal(args: tuple[Any, ...]) -> bool:
    """Whether a call only tries the module out: under a compiler, a tracer, vmap, or on tensors without data."""
    if torch.compiler.is_compiling() or tracing_state() is not None or transforms() is not None:
        return True
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.is_meta or (type(value) not in PLAIN and _is_fake(value))
    return False


def _is_fake(tensor: torch.Tensor) -> bool:

    return isinstance(tensor, FakeTensor)
