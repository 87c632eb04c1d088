"""Settings of thread and process that forward may change: saved before a run and restored after it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import (
    PRINT_OPTIONS,
    default_device,
    disable_current_modes,
    function_modes,
    pop_function_mode,
    push_function_mode,
)
from modulekg_widgets.engine.torch_runtime.rng import State, process_generators, restore_states
from modulekg_widgets.engine.torch_runtime.threads import ThreadActivity


@contextmanager
def preserved_process_settings() -> Iterator[None]:
    """Restores settings of thread and process when the context ends; unchanged ones are not written.

    What belongs to this thread is put back in any case. What belongs to the process is left as it is where other
    threads compute meanwhile: they may have changed it, and read it now. A look draws from generators of its own, so
    those of the process change by what forward does with them itself, or by other threads.
    """
    others = ThreadActivity()  # before any state is read: what they do from here on tells on their clocks
    own = [(state, state[0]()) for state in _thread_settings()]
    settings = [(state, state[0]()) for state in _process_settings()]
    with disable_current_modes():  # the caller's own, under which states may be tensors without data
        generators = [(state, state[0]()) for state in process_generators()]
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # which would keep weights without data for the next real pass
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)
        restore_states(own)
        restore_states(settings, others)
        with disable_current_modes():
            restore_states(generators, others)


def _thread_settings() -> list[State]:
    states: list[State] = [
        (torch.is_grad_enabled, torch.set_grad_enabled),
        *(state for device in ("cpu", "cuda") for state in _autocast(device)),
        (default_device, torch.set_default_device),
        (function_modes, _set_function_modes),
    ]
    if numpy := sys.modules.get("numpy"):
        states.append((numpy.geterr, lambda before: numpy.seterr(**before)))
    return states


def _process_settings() -> list[State]:
    """Flags; the printing of tensors is one of torch's objects."""
    cuda, deterministic = torch.backends.cuda, torch.are_deterministic_algorithms_enabled
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (
            lambda: (deterministic(), torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
        ),
        (torch.is_warn_always_enabled, torch.set_warn_always),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        (cuda.math_sdp_enabled, cuda.enable_math_sdp),
        (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
        _attribute(torch.backends.mkldnn, "enabled"),
        _attribute(torch.backends.opt_einsum, "enabled"),
        _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
        (lambda: dict(vars(PRINT_OPTIONS)), lambda before: vars(PRINT_OPTIONS).update(before)),
        (lambda: list(warnings.filters), _set_warning_filters),
    ]


def _set_function_modes(before: list[Any]) -> None:
    while function_modes():
        pop_function_mode()
    for mode in before:
        push_function_mode(mode)


def _set_warning_filters(before: list[Any]) -> None:
    warnings.filters[:] = before  # type: ignore[index]
    getattr(warnings, "_filters_mutated", lambda: None)()  # what was shown once counts anew, as after any change


def _attribute(owner: object, name: str) -> State:
    return partial(getattr, owner, name), partial(setattr, owner, name)


def _autocast(device: str) -> Iterator[State]:
    yield partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)
    yield partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)
