"""What a monitor must leave as it found it: hooks, settings of the process, and modules, read without asking them."""

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch._dynamo.eval_frame  # as in a process that compiles: the monitor then has a stance to put back
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from modulekg_widgets.engine.monitoring.metrics import METRICS

read_dict = nn.Module.__dict__["__dict__"].__get__


def global_hooks() -> dict[str, list[Any]]:
    """torch's tables of hooks for all modules, by name: the ids in each."""
    tables = {name: value for name, value in vars(nn.modules.module).items() if name.startswith("_global_")}
    return {name: list(value) for name, value in tables.items() if isinstance(value, dict)}


def hook_count() -> int:
    return sum(map(len, global_hooks().values()))


def process_state() -> dict[str, Any]:
    """What belongs to the whole process, or to this thread."""
    return {
        "hooks": global_hooks(),
        "function modes": [id(mode) for mode in _get_current_function_mode_stack()],
        "dispatch modes": [id(mode) for mode in _get_current_dispatch_mode_stack()],
        "stance": torch._dynamo.eval_frame._stance.stance,
        "filters": list(warnings.filters),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "random": torch.get_rng_state().tolist(),
    }


def modules_of(root: nn.Module) -> list[nn.Module]:
    """Every module once; also where torch's own walk never ends."""
    seen: dict[int, nn.Module] = {}
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen[id(module)] = module
        if not isinstance(module, torch.jit.ScriptModule):
            waiting.extend(child for child in read_dict(module).get("_modules", {}).values() if child is not None)
    return list(seen.values())


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of one module."""
    if isinstance(module, torch.jit.ScriptModule):
        return dict(module.state_dict())
    state = read_dict(module)
    found = {**state.get("_parameters", {}), **state.get("_buffers", {})}
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}


def content(tensor: torch.Tensor | None) -> Any:
    """The bytes of a tensor, or what there is of it without them."""
    if tensor is None:
        return None
    if torch.nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_quantized:
        return str(tensor.layout)
    return tensor.detach().resolve_conj().resolve_neg().contiguous().numpy().tobytes()


def contents(root: nn.Module) -> list[Any]:
    """What two models of the same making that went through the same have in common."""
    found = []
    for module in modules_of(root):
        state = read_dict(module)
        own = tensors_of(module).items()
        found.append(
            (
                type(module).__name__,
                sorted(map(str, state)),
                {name: len(value) for name, value in state.items() if name.endswith("_hooks")},
                state.get("training"),
                [(name, content(tensor), tensor.requires_grad, content(tensor.grad)) for name, tensor in own],
                [len(tensor._backward_hooks or ()) for _, tensor in own],
            )
        )
    return found


def identities(root: nn.Module) -> list[Any]:
    """Which objects a model holds: its attributes, tensors, versions of their memory, and gradients."""
    return [
        (
            [(name, id(value)) for name, value in read_dict(module).items()],
            [
                (id(tensor), tensor.data_ptr(), tensor._version, id(tensor.grad))
                for tensor in read_dict(module).get("_parameters", {}).values()
                if isinstance(tensor, torch.Tensor) and not torch.nn.parameter.is_lazy(tensor)
            ],
        )
        for module in modules_of(root)
        if not isinstance(module, torch.jit.ScriptModule)
    ]


@contextlib.contextmanager
def own_metrics() -> Iterator[None]:
    """Metrics that are registered inside are gone after."""
    before = METRICS.entries
    try:
        yield
    finally:
        METRICS.entries = before


def tensors_alive() -> int:
    """The count of tensor objects in the process."""
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
