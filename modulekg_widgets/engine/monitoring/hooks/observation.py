"""Observation of a module call: its tensors by need, with derived values computed once; state of the step."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.adapters import channel_dim
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import STEP, NoValueError
from modulekg_widgets.engine.torch_runtime.modules import main_weight, module_state
from modulekg_widgets.engine.torch_runtime.private import (
    MODULES,
    PARAMETERS,
    PARAMETRIZATIONS,
    SHARDED_FLAT,
    FakeTensor,
    is_functorch_wrapped_tensor,
    tracing_state,
    transforms,
    version_of,
)
from modulekg_widgets.engine.torch_runtime.pytree import Args

if TYPE_CHECKING:
    from modulekg_widgets.engine.torch_runtime.parallel import FlatPart


# -------------------- Tensors of modules and calls that can be measured, and detection of calls without real data


_is_compiling = torch.compiler.is_compiling
_Tensor = torch.Tensor
PLAIN_TYPES = (torch.Tensor, nn.Parameter)


def weight_of(module: nn.Module) -> nn.Parameter | None:
    """Returns the parameter `weight`, or the only one whose name ends so, as `in_proj_weight`.

    None where it has none, several, or computes it from others.
    """
    own = module_state(module).get(PARAMETERS)
    if not isinstance(own, dict):
        return None  # TorchScript keeps its own
    parameter = main_weight(own)
    return None if parameter is None or torch.nn.parameter.is_lazy(parameter) else parameter


def is_computed(module: nn.Module) -> bool:
    """True if the weight is computed from other parameters, as by parametrize, prune or weight_norm."""
    state = module_state(module)
    made = (state.get(MODULES) or {}).get(PARAMETRIZATIONS)
    if made is not None and main_weight(module_state(made)[MODULES]) is not None:
        return True
    return isinstance(state.get("weight"), torch.Tensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the local shard of a tensor, None if it is empty; an ordinary tensor as it is."""
    if type(tensor) in PLAIN_TYPES or not hasattr(tensor, "to_local"):
        return tensor
    own = tensor.to_local()  # type: ignore[attr-defined]
    return own if own.numel() else None


def first_tensor(values: object, depth: int = 4) -> torch.Tensor | None:
    """Returns the first measurable tensor in nested lists, tuples, dicts and dataclasses; None if there is none."""
    x = values[0] if type(values) is tuple and values else values
    if type(x) is _Tensor and x.dtype is torch.float32 and x.is_cpu and x.layout is torch.strided:
        return x  # mostly: between two layers the cache is cold, and what counts is how much is looked at
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
    """True for a floating or complex tensor with data of its own: not fake, batched or sparse."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return False
    if tensor.is_meta or is_functorch_wrapped_tensor(tensor):
        return False
    return type(tensor) in PLAIN_TYPES or not _is_fake(tensor)


def is_symbolic_call(args: Args) -> bool:
    """True for a symbolic call: under a compiler, tracer or vmap, or on meta or fake tensors."""
    if transforms() is not None or tracing_state() is not None or _is_compiling():
        return True
    x = args[0] if args else None
    if type(x) is _Tensor:
        return x.is_meta
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.is_meta or (type(value) not in PLAIN_TYPES and _is_fake(value))
    return False


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


# ----------------------------------------


log = logging.getLogger("modulekg_widgets")
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


STEP_NEEDS = frozenset(STEP)  # what is there without a call of the module


def stage_of(needs: tuple[str, ...]) -> int:
    """Returns the earliest stage at which all needs are met; weights alone are read at `track`."""
    return TRACK if set(needs) <= {"Weight"} else max(STAGES[need] for need in needs)


class Observation:
    """One call of one module: its tensors and values derived from them."""

    __slots__ = ("by_need", "call", "edge", "epoch", "flat", "module", "phase", "versions", "watch", "weight")

    def __init__(self, module: nn.Module, call: int, phase: str, epoch: int) -> None:
        self.module = module
        self.call = call
        self.phase = phase
        self.epoch = epoch  # the step that it belongs to, as the module hooks count
        self.by_need: dict[str, Any] = {}
        self.versions: dict[str, tuple[torch.Tensor, int]] = {}
        self.weight = 1.0
        self.flat: FlatPart | None = None  # the module's weight, where that is a part of a flat one
        self.edge: Any = None  # where the gradient of the input leaves the module
        self.watch: Any = None  # what listens to the attention of this call

    @classmethod
    def of(cls, source: str, tensor: torch.Tensor, module: nn.Module, call: int, phase: str) -> Observation:
        """Returns an observation of a single detached tensor."""
        own = cls(module, call, phase, 0)
        own.by_need[source] = tensor
        own.weight = float(tensor.numel())
        return own

    def record(self, need: str, tensor: torch.Tensor) -> None:
        """Record a tensor of the training, detached, with its version."""
        own = tensor.detach()
        self.by_need[need] = own
        if not own.is_inference():  # such tensors count no versions
            self.versions[need] = (own, version_of(own))
        self.weight = float(own.numel())

    def get(self, need: str) -> Any:
        """Returns the value of a need, computed on first access; None if it is missing."""
        if need in self.by_need:
            return self.by_need[need]
        make = _DERIVED.get(need)
        made = make(self) if make is not None else None
        self.by_need[need] = made
        return made

    def is_stale(self, need: str) -> bool:
        """True if the tensor of a need was modified in place since it was recorded."""
        seen = self.versions.get(need)
        return seen is not None and version_of(seen[0]) != seen[1]

    def subset(self, needs: set[str]) -> Observation:
        """Returns a copy with the needs of a later stage alone."""
        kept = Observation(self.module, self.call, self.phase, self.epoch)
        kept.by_need = {need: value for need, value in self.by_need.items() if need in needs}
        kept.versions = {need: value for need, value in self.versions.items() if need in needs}
        kept.weight = self.weight
        return kept

    def drop(self) -> None:
        """Release the tensors and derived values."""
        self.by_need.clear()
        self.versions.clear()

    @property
    def device_type(self) -> str:
        """The device type of the first tensor."""
        return next((value.device.type for value in self.by_need.values() if isinstance(value, torch.Tensor)), "cpu")


Derive: TypeAlias = Callable[[Observation], object]  # the value of a need; None where there is none

channel_dim_of = lru_cache(maxsize=4096)(channel_dim)


def _moments(need: str) -> Derive:
    def make(observation: Observation) -> Moments | None:
        tensor = observation.get(need)
        if tensor is None:
            return None
        return Moments(tensor, channel_dim_of(type(observation.module), tensor.dim()))

    return make


def _eigenvalues(need: str) -> Derive:
    def make(observation: Observation) -> torch.Tensor | None:
        moments = observation.get(need)
        return None if moments is None else moments.eigenvalues

    return make


COMPUTED_WEIGHT = (
    "its weight is computed from other parameters, as by parametrize, prune or weight_norm: it has "
    "no weight that can be read"
)
SHARDED_WEIGHT = (
    "FullyShardedDataParallel keeps only a part of the weight in each process: monitor the FullyShardedDataParallel "
    "itself in all of them, with distributed=True"
)
GRADIENT_NOT_REDUCED = (
    "FullyShardedDataParallel has not reduced the gradient over the processes, as inside of no_sync()"
)


def _weight(observation: Observation) -> torch.Tensor | None:
    flat = observation.flat
    if flat is not None:
        return flat.weight()
    parameter = _own_weight(observation.module)
    return None if parameter is None else local_part(parameter.detach())


def _weight_grad(observation: Observation) -> torch.Tensor | None:
    flat = observation.flat
    if flat is not None:
        try:
            return flat.grad()
        except LookupError:
            raise NoValueError(GRADIENT_NOT_REDUCED) from None
    parameter = _own_weight(observation.module)
    return None if parameter is None or parameter.grad is None else local_part(parameter.grad.detach())


def _own_weight(module: nn.Module) -> nn.Parameter | None:
    """Returns the weight; raises `NoValueError` for a computed or sharded one."""
    parameter = weight_of(module)
    if parameter is None and is_computed(module):
        raise NoValueError(COMPUTED_WEIGHT)
    if parameter is not None and getattr(parameter, SHARDED_FLAT, False) is True:
        raise NoValueError(SHARDED_WEIGHT)
    return parameter


_DERIVED: dict[str, Derive] = {
    "ForwardInputMoments": _moments("ForwardInput"),
    "ForwardOutputMoments": _moments("ForwardOutput"),
    "BackwardOutputMoments": _moments("BackwardOutput"),
    "ForwardInputEigOfCov": _eigenvalues("ForwardInputMoments"),
    "ForwardOutputEigOfCov": _eigenvalues("ForwardOutputMoments"),
    "BackwardOutputEigOfCov": _eigenvalues("BackwardOutputMoments"),
    "Weight": _weight,
    "WeightGrad": _weight_grad,
}
GRADIENTS = ("BackwardInput", "BackwardOutput")
# what a need is made of, down to the tensors of the call
SOURCES = {
    need: need.replace("Moments", "").replace("EigOfCov", "") for need in STAGES if need not in ("Attention", "Loss")
}
IMMEDIATE_SOURCES = ("ForwardInput", "ForwardOutput", "BackwardOutput")  # what is read as soon as it is seen
IMMEDIATE_NEEDS = frozenset(need for need, source in SOURCES.items() if source in IMMEDIATE_SOURCES)


def gradients_of(needs: tuple[str, ...]) -> set[str]:
    """Returns the gradients that these needs are derived from."""
    return {SOURCES[need] for need in needs if need.startswith("Backward")}


class StepState:
    """State of the step that all hooks share: tensors of other steps are ignored."""

    __slots__ = ("epoch", "handles", "is_paused", "passes", "step", "unfinished", "unscaled")

    def __init__(self, unscaled: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        self.epoch = 0  # counts the steps that were prepared
        self.step = 0
        self.is_paused = False  # backward passes are not those of the training
        self.unscaled = unscaled  # takes a loss scale out of a gradient
        self.handles: list[RemovableHandle] = []  # of hooks on tensors that no graph takes with it when it goes
        self.passes: dict[int, int] = {}  # the backward passes of this step, as `gradients.pass_kind` judges them
        self.unfinished: list[Callable[[], None]] = []  # what has to be done at `track`

    def begin(self) -> None:
        """Begin another step."""
        self.epoch += 1
        self.passes.clear()
        self.unfinished.clear()
        self.drop_handles()

    def accepts(self, epoch: int) -> bool:
        """True if a gradient of a call in that epoch is still read."""
        return epoch == self.epoch and not self.is_paused

    def without_scale(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the gradient divided by the loss scale."""
        return gradient if self.unscaled is None else self.unscaled(gradient)

    def drop_handles(self) -> None:
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


def log_failure() -> None:
    """Log the exception that was kept from the training."""
    log.warning("a call of a module could not be watched", exc_info=True)
