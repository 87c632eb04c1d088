"""Isolated runs of a model: a shadow copy runs, so that the model itself is never touched.

`run_isolated(modules, inputs, run)` copies the model structurally (`shadow.py`), calls `run` with a `Sandbox` of the
copies, and discards them. Tensors share memory with the model unless `own_memory` says otherwise. Random numbers come
from generators of the run; settings of thread and process are restored. If forward reaches the model itself, past the
copy, the run is repeated on the model, whose state is then saved and restored (`state_guard.py`); that is refused with
`ModelInUseError` while another thread uses the model. Tracing, planning, proving, profiling and playback run this way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelInUseError, printable
from modulekg_widgets.engine.torch_runtime.hooks import HookRegistered, NoHooks
from modulekg_widgets.engine.torch_runtime.isolation.progress import count_progress
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, SHARED, UNREGISTERED, Shadow, can_swap_data
from modulekg_widgets.engine.torch_runtime.isolation.state_guard import preserved, preserved_classes, preserved_memory
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state, registry
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS, version_of
from modulekg_widgets.engine.torch_runtime.process_settings import preserved_process_settings
from modulekg_widgets.engine.torch_runtime.rng import ReproducibleDraws, Seed
from modulekg_widgets.engine.torch_runtime.threads import current_use

T = TypeVar("T")
MAX_NESTING = 4  # looks inside of each other
_nesting = threading.local()


@dataclass
class Sandbox:
    """The environment of an isolated run: copies of the modules, and of the inputs."""

    modules: list[nn.Module]
    held: Any
    shadow: Shadow | None  # None where the model itself had to serve
    replaces: bool = False  # whether what runs puts other tensors in the place of the modules' own
    notes: list[str] = field(default_factory=list)  # what is not as usual, as sentences

    @property
    def model(self) -> nn.Module:
        return self.modules[0]

    @property
    def copies(self) -> list[nn.Module] | None:
        """The modules where they are those of a shadow."""
        return None if self.shadow is None else self.modules

    @property
    def states(self) -> list[Attributes]:
        return [module_state(module) for module in self.modules]

    def of(self, value: object) -> Any:
        """Returns the copy of one of the user's objects."""
        return value if self.shadow is None else self.shadow.of(value)

    def original(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the user's tensor of a copy; other tensors are returned as they are."""
        return tensor if self.shadow is None else self.shadow.original(tensor)

    def hold(self, tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Gives a tensor of the copy a new value in place where possible, and returns the tensor that holds it.

        The value, where there is no shadow or the tensor is of a class that cannot take it.
        """
        if self.shadow is None or not can_swap_data(tensor, value):
            return value
        self.shadow.forget(tensor)
        tensor.data = value.detach()
        return tensor.requires_grad_(value.requires_grad)

    def check(self, value: object) -> None:
        """Ends the run if a module or tensor of the original model is met."""
        if self.shadow is not None and self.shadow.is_original(value):
            raise _ShadowEscape(value)


class _ShadowEscape(BaseException):
    """Forward reached the model itself; no `Exception`, so that the model's code does not catch it."""


def run_isolated(
    modules: Sequence[nn.Module], inputs: Any, run: Callable[[Sandbox], T], own_memory: int = SHARED, seed: Seed = None
) -> T:
    """Runs `run` on a shadow copy of the model (all its modules, root first) and of the `inputs`.

    `own_memory` says which tensors get memory of their own; with `SHARED` the run is on tensors without data. Random
    numbers
    are drawn from `seed`, or from a copy of the process's generators. Where forward leads past the shadow, `run` is
    called again on the model itself, after which all is put back. Raises `ModelInUseError` when another thread uses the
    model then.
    """
    with _limited_nesting(modules):
        result = _run_on_shadow(modules, inputs, run, own_memory, seed)
    count_progress("passes run")
    return result


@contextmanager
def _limited_nesting(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Raises `ModelInUseError` when isolated runs are nested too deeply, as by hooks that trace."""
    depth = getattr(_nesting, "depth", 0)
    if depth == MAX_NESTING:
        raise ModelInUseError(
            f"{printable(type(modules[0]).__name__)} is viewed inside of {depth} other views of this thread: a "
            "hook or the "
            "forward of a model views it on each run. Do not view the model there"
        )
    _nesting.depth = depth + 1
    try:
        yield
    finally:
        _nesting.depth = depth


def _run_on_shadow(
    modules: Sequence[nn.Module], held: Any, run: Callable[[Sandbox], T], own: int, seed: Seed, hooks_come: bool = False
) -> T:
    no_hooks = NoHooks()
    try:
        shadow = Shadow(modules[0], held, own, None if hooks_come else no_hooks)
    except Exception as error:  # noqa: BLE001 - of the classes of what is in the model, or nested too deeply
        why = f"it cannot be copied ({type(error).__name__}: {printable(str(error), 100)})"
        return _run_on_model(modules, held, run, own, seed, why)
    sandbox = Sandbox([shadow.of(module) for module in modules], shadow.held, shadow)
    sandbox.notes += _sharing_notes(shadow)
    left = next(
        (f"{printable(type(each).__name__)} cannot be copied" for each in shadow.shared if is_module(each)), None
    )
    if left is None:
        try:
            with preserved_process_settings(), preserved_classes(modules), _random_context(own, seed, sandbox.check):
                result = run(sandbox)
            if not no_hooks.hooked:
                return result
        except _ShadowEscape as found:
            left = f"its code reaches {_description(found.args[0], modules)} past self"
        except (Exception, HookRegistered):  # the end of a forward that registers a hook, whatever its code made of it
            if not no_hooks.hooked:
                raise
        finally:
            shadow.release()
        if no_hooks.hooked:
            return _run_on_shadow(modules, held, run, own, seed, hooks_come=True)
    else:
        shadow.release()
    assert left is not None
    return _run_on_model(modules, held, run, own, seed, left)


def _random_context(own: int, seed: Seed, check: Callable[[Any], None] | None = None) -> AbstractContextManager[object]:
    """Returns the context that draws random numbers; none is needed for runs on meta tensors."""
    return nullcontext() if own == SHARED else ReproducibleDraws(seed, check)


def is_module(value: object) -> bool:
    return issubclass(type(value), nn.Module)


def _sharing_notes(shadow: Shadow) -> Iterator[str]:
    for each in shadow.shared:
        if not is_module(each):
            name = printable(type(each).__name__)
            yield (
                f"forward ran with the model's own {name}, an object that cannot be copied: what it left there is kept"
            )


def _description(value: object, modules: Sequence[nn.Module]) -> str:
    if is_module(value):
        return f"the module {printable(type(value).__name__)}"
    for module in modules:
        for kind in (PARAMETERS, BUFFERS):
            for name, tensor in registry(module_state(module), kind).items():
                if tensor is value:
                    return f"the tensor {printable(name)!r} of {printable(type(module).__name__)}"
    return "a tensor of the model"


# ------------------------------------------------------- without a shadow


def _run_on_model(
    modules: Sequence[nn.Module], held: Any, run: Callable[[Sandbox], T], own: int, seed: Seed, why: str
) -> T:
    """Runs on the model itself and restores it afterwards; refused while another thread uses it."""
    sandbox = Sandbox(list(modules), held, None, notes=[f"the model itself ran, and was put back: {why}"])
    with (
        preserved(modules, held) as kept,
        _exclusive_use(modules, sandbox, why),
        preserved_process_settings(),
        preserved_classes(modules),
        _random_context(own, seed),
    ):
        tensors = {SHARED: [], UNREGISTERED: kept.unregistered_tensors, ALL: kept.every_tensor}[own]
        with preserved_memory(tensors):
            return run(sandbox)


@contextmanager
def _exclusive_use(modules: Sequence[nn.Module], sandbox: Sandbox, why: str) -> Iterator[None]:
    """Raise where another thread uses the model before or after, or has replaced or trained its tensors meanwhile."""
    before, parameters = _tensors(modules), _parameters(modules)
    versions = [version_of(tensor) for tensor in parameters]
    if (user := current_use(modules)) is not None:
        raise _in_use_error(user, modules, why)
    yield
    user = current_use(modules)
    moved = not sandbox.replaces and list(map(id, before)) != list(map(id, _tensors(modules)))
    if user is None and moved:
        user = "its tensors were replaced meanwhile"
    if user is None and versions != [version_of(tensor) for tensor in parameters]:
        user = "its parameters were written meanwhile"
    if user is not None:
        raise _in_use_error(user, modules, why)


def _tensors(modules: Sequence[nn.Module]) -> list[Any]:
    states = map(module_state, modules)
    return [tensor for state in states for name in (PARAMETERS, BUFFERS) for tensor in registry(state, name).values()]


def _parameters(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """The parameters whose versions are counted."""
    every = [tensor for module in modules for tensor in registry(module_state(module), PARAMETERS).values()]
    return [tensor for tensor in every if tensor is not None and not tensor.is_inference()]


def _in_use_error(user: str, modules: Sequence[nn.Module], why: str) -> ModelInUseError:
    return ModelInUseError(
        f"{printable(type(modules[0]).__name__)} cannot be viewed now: {user}, and no copy can run instead: "
        f"{why}. Try again when that is done, or use self in the forward, so that a copy can run"
    )
