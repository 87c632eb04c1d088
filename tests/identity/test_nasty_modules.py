"""Modules that lie, raise and repeat themselves: the contract that each states holds, and none is touched."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from models.nasty import forget_built, nasty_module

pytestmark = pytest.mark.usefixtures("built_once")
SLOW = 20.0  # seconds for the entries that say so; 5 for all others
read_dict = nn.Module.__dict__["__dict__"].__get__


@pytest.fixture(scope="module")
def built_once() -> Iterator[None]:
    """A hundred thousand modules that live on would slow each garbage collection of the tests behind these."""
    yield
    forget_built()


def snapshot(root: nn.Module) -> list[Any]:
    """What must not change, read without asking the modules."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [root]
    while waiting:
        module = waiting.pop()
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        state = read_dict(module)
        tensors = [t for role in ("_parameters", "_buffers") for t in state.get(role, {}).values()]
        seen[id(module)] = (
            type(module),
            [(name, id(value)) for name, value in state.items()],
            [(id(t), t._version, t.requires_grad) for t in tensors if isinstance(t, torch.Tensor) and is_plain(t)],
            [len(value) for name, value in state.items() if name.endswith("_hooks")],
        )
        waiting.extend(child for child in state.get("_modules", {}).values() if child is not None)
    return [*seen.values(), torch.get_rng_state().tolist()]


def is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, nn.Parameter)


CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "fingerprint": mk.fingerprint,
    "seed": lambda module: mk.fingerprint(module, scheme="seed"),
    "hierarchy": mk.hierarchy,
    "fold": lambda module: str(mk.hierarchy(module).fold()),
    "weights": mk.weight_fingerprint,
    "diff": lambda module: str(mk.diff(module, module)),
    "graph": lambda module: mk.KnowledgeGraph().add_model(module, name="nasty"),
    "ModelGraph": lambda module: mk.ModelGraph(module)._repr_mimebundle_(),
}


def every_call() -> list[Any]:
    """All calls on all modules; of the one that takes as long as all others together, most are for the night."""
    by_night = {("wide_100k", call) for call in CALLS} - {("wide_100k", "fingerprint")}
    pairs = [(name, call) for name in sorted(NASTY) for call in sorted(CALLS)]
    return [pytest.param(*pair, marks=[pytest.mark.nightly] if pair in by_night else []) for pair in pairs]


@pytest.mark.parametrize(("name", "call"), every_call())
def test_untouched_in_time_and_only_own_errors(name: str, call: str) -> None:
    module = nasty_module(name)
    before = snapshot(module)
    start = time.process_time()
    with contextlib.suppress(mk.ModuleKGError):  # any other error fails the test
        CALLS[call](module)
    assert time.process_time() - start < (SLOW if NASTY[name]["slow"] else 5)
    assert snapshot(module) == before
    unwind(module)


@pytest.mark.parametrize("name", sorted(NASTY))
def test_the_fingerprint_keeps_its_contract(name: str) -> None:
    contract = NASTY[name]["hash_"]
    if contract == "refuse":
        with pytest.raises(mk.ModuleKGError, match="weight"):
            mk.fingerprint(NASTY[name]["make"]())
        return
    first, second = mk.fingerprint(nasty_module(name)), mk.fingerprint(NASTY[name]["make"]())
    assert first == second
    assert bool(first.opaque_paths) == (contract == "opaque")


@pytest.mark.parametrize("name", sorted(NASTY))
def test_every_module_can_be_looked_at(name: str) -> None:
    """A hierarchy needs no settled structure: what has no fingerprint is shown all the same."""
    module = nasty_module(name)
    assert len(mk.hierarchy(module)) == len(mk.ModelGraph(module).payload["nodes"]["name"])
    unwind(module)


def unwind(module: nn.Module) -> None:
    # torch deletes nested modules one within the other, which overflows the stack
    while len(children := read_dict(module).get("_modules", {})) == 1 and not isinstance(
        module, torch.jit.ScriptModule
    ):
        module = next(iter(children.values()))
        children.clear()
