"""Random numbers: generators of isolated runs, and saved states of the process's generators."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.decompose import OperatorMode
from modulekg_widgets.engine.torch_runtime.private import Overload, address_of, overload_name_of, packet_of, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs
from modulekg_widgets.engine.torch_runtime.threads import ThreadActivity, other_threads_compute

State = tuple[Callable[[], Any], Callable[[Any], object]]  # how to read it, and how to write it
Seed = int | dict[torch.device, torch.Tensor] | None
SEED_STRIDE = 1_000_003  # between the seeds of one pass and those of the next


class ReproducibleDraws(OperatorMode):
    """A mode that gives every random operator a generator of this run: from `seed`, or copied from the process.

    `seed` may also be what `process_states` gave. With a number what is drawn goes by how many draws came before it,
    not by their sizes: a model that leaves layers out at random would else go another way once its tensors are smaller.
    `check` is told of every tensor that an operator gets.
    """

    def __init__(self, seed: Seed = None, check: Callable[[torch.Tensor], None] | None = None) -> None:
        super().__init__()
        self.seed = seed if isinstance(seed, int) else None
        self.states = seed if isinstance(seed, dict) else {}
        self.count = 0
        self._check = check
        self._process = os.getpid()
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if self._check is not None:
            for argument in tensors_in((*args, *kwargs.values())):
                self._check(argument)
        if not is_random(func) or os.getpid() != self._process:  # a fork, as a worker of a loader, has seeds of its own
            return func(*args, **kwargs)
        self.count += 1
        device = _device(args, kwargs)
        if device.type == "meta" or _has_no_dropout(func, args, kwargs):
            return func(*args, **kwargs)
        if _is_other_generator(kwargs.get("generator"), process_generator(device)):
            return func(*args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        return self._draw(func, args, kwargs, self._generator(device))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            new = torch.Generator(device)
            if self.seed is None:
                new.set_state(self.states.get(device, process_generator(device).get_state()))
            self._generators[device] = new
        generator = self._generators[device]
        if self.seed is not None:
            generator.manual_seed(self.seed * SEED_STRIDE + self.count)
        return generator

    def _draw(self, func: Overload, args: Args, kwargs: Kwargs, generator: torch.Generator) -> Any:
        if schema_of(func).name == "aten::native_dropout":
            return _dropout(*args, **kwargs, generator=generator)
        with_generator = _generator_overload(func)
        if with_generator is not None:
            return with_generator(*args, **kwargs, generator=generator)
        # a kernel that knows the process's generator alone
        process = process_generator(generator.device)
        before = process.get_state()
        process.set_state(generator.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            generator.set_state(process.get_state())
            process.set_state(before)


def process_states() -> dict[torch.device, torch.Tensor]:
    """Returns the states of the process's random generators, to repeat a run."""
    states = {torch.device("cpu"): torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states |= {torch.device("cuda", i): state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def is_random(overload: Overload) -> bool:
    """True if the operator returns random numbers."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def process_generator(device: torch.device) -> torch.Generator:
    """The generator that operators on a device draw from by default."""
    if device.type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator


def _is_other_generator(given: object, process: Any) -> bool:
    """True if a call passes a generator other than the process's default one."""
    return given is not None and address_of(given) != address_of(process)


def _has_no_dropout(func: Overload, args: Args, kwargs: Kwargs) -> bool:
    """True if a dropout operator is called with p=0, and so draws nothing."""
    for at, argument in enumerate(schema_of(func).arguments):
        if argument.name in ("dropout_p", "dropout"):
            return (args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)) == 0
    return False


def _generator_overload(func: Overload) -> Any:
    """The overload of an operator that takes a generator; None where there is none."""
    if any(argument.name == "generator" for argument in schema_of(func).arguments):
        return func
    packet = packet_of(func)
    own = "" if overload_name_of(func) == "default" else f"{overload_name_of(func)}_"
    return getattr(packet, f"{own}generator", None)


def _dropout(x: torch.Tensor, p: float, train: bool | None, *, generator: torch.Generator) -> Any:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    stays = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return x * stays * (1 / (1 - p)), stays


def _device(args: Args, kwargs: Kwargs) -> torch.device:
    """Returns the device that an operator draws random numbers on."""
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
    else:
        found = next(tensors_in((*args, *kwargs.values())), None)
        device = torch.device("cpu") if found is None else found.device
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


# ------------------------------------------------------------------------------------------- states of the process


def seeded_generator(seed: int) -> torch.Generator:
    """Returns a new CPU generator with a seed."""
    return torch.Generator().manual_seed(seed)


def python_generators() -> list[State]:
    """Returns getters and setters for the random states of Python and NumPy."""
    states: list[State] = [(random.getstate, random.setstate)]
    if numpy := sys.modules.get("numpy"):
        states.append((numpy.random.get_state, numpy.random.set_state))
    return states


def process_generators() -> list[State]:
    """The same for all generators of the process."""
    states = [(torch.get_rng_state, torch.set_rng_state), *python_generators()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append((torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all))
    return states


def cpu_generators() -> list[State]:
    """The same for the generators that are no device's."""
    return [(torch.get_rng_state, torch.set_rng_state), *python_generators()]


def advance_rng(count: int) -> None:
    """Advances the random generators of Python and NumPy by `count` numbers.

    No seed is set: where other threads compute meanwhile the generators are not put back, and must not begin anew.
    """
    for _ in range(count):
        random.random()
        if numpy := sys.modules.get("numpy"):
            numpy.random.random_sample()


def restore_states(states: list[tuple[State, Any]], others: ThreadActivity | None = None) -> None:
    """Write the states that have changed, unless others may have changed them."""
    for (read, write), before in states:
        if not equal_states(read(), before) and not others:
            write(before)


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Within it random numbers may be drawn; after it the generators, but for those of devices, are as they were.

    Where other threads compute meanwhile they are left alone: what these have drawn must not come once more.
    """
    others = ThreadActivity()
    before = [(state, state[0]()) for state in cpu_generators()]
    try:
        yield
    finally:
        restore_states(before, others)


class PythonGenerators:
    """A snapshot of the random states of Python and NumPy, to repeat a run."""

    def __init__(self) -> None:
        self._states = [(state, state[0]()) for state in python_generators()]
        self.were_used = False  # whether a pass draws from them; else they are left alone

    def set(self) -> None:
        """Put these states in place of the present ones, if passes draw from them."""
        if self.were_used:
            for (_, write), before in self._states:
                write(before)

    def record_use(self) -> None:
        """Notes after a run whether it changed the random states."""
        self.were_used |= any(not equal_states(read(), before) for (read, _), before in self._states)


def equal_states(one: Any, other: Any) -> bool:
    """True if two random states are equal: numbers, tensors, arrays, or sequences of these."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list | tuple):
        try:
            return one == other
        except (ValueError, RuntimeError):  # arrays or tensors among them
            return len(one) == len(other) and all(map(equal_states, one, other))
    same = one == other
    return same if isinstance(same, bool) else bool(same.all())


# -------------------- Data loaders whose random numbers leave the process's generators unchanged


T = TypeVar("T")
CPU = torch.device("cpu")
States = list[tuple[State, Any]]
_END: Any = object()


def with_isolated_rng(items: Iterable[T]) -> Iterator[T]:
    """The items, as of a loader that shuffles: what is drawn to make them leaves the process's generators as they were.

    They are those that would come now; each goes on where the one before has come to, whatever was drawn in between.
    Beside threads that compute, torch draws from copies of its generators; Python and NumPy have no such.
    """
    draws = _LoaderRng()
    every = draws.run(lambda: iter(items))
    while (item := draws.run(lambda: next(every, _END))) is not _END:
        yield item


class _LoaderRng:
    """The random states of one loader iteration."""

    def __init__(self) -> None:
        self._activity = ThreadActivity()
        self._copies = ReproducibleDraws() if other_threads_compute() else None  # in the place of torch's generators
        self._states: States = []

    def run(self, make: Any) -> Any:
        """Runs `make` with the random states that the previous item ended with."""
        if self._copies is None and self._activity:
            reached = [state for (read, _), state in self._states if read is torch.get_rng_state]
            self._copies = ReproducibleDraws({CPU: reached[0]} if reached else None)
        states = cpu_generators() if self._copies is None else python_generators()
        others = ThreadActivity()
        before = [(state, state[0]()) for state in cpu_generators()]
        restore_states([(state, own) for state, own in self._states if state in states])
        try:
            with self._copies or nullcontext():
                return make()
        finally:
            now = [(state, state[0]()) for state in states]
            self._states = [] if others else now
            restore_states(before, others)
