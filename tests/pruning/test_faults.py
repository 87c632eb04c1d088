"""A fault at every line of cut, mask, undo and restore: all is as before, or, where none was raised, as after."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets.engine.pruning as pruning
from modulekg_widgets.engine.pruning.cut.cut import cut
from modulekg_widgets.engine.pruning.cut.masking import mask
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.cut.tensor_cuts import cut_tensor, uncut_tensor, unzero_tensor, zero_tensor
from modulekg_widgets.engine.pruning.cut.transaction import Write, commit
from pruning.edits_of_cut import small_edits, state_of, step, trained

FOLDER = str(Path(pruning.__file__).parent)


class Fault(BaseException):
    """What no code of ours catches by its name."""


class Fuse:
    """A trace function that raises at line `at` of the code of this folder."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left, self.error = at, error

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(FOLDER) else None

    def line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.left -= 1
            if self.left < 0:
                raise self.error
        return self.line


def broken_off(action: Callable[[], object], at: int, error: type[BaseException] = Fault) -> bool:
    """Whether `action` was broken off at line `at`; False when it came to its end before."""
    previous = sys.gettrace()
    try:
        sys.settrace(Fuse(at, error))
        action()
    except error:
        return True
    finally:
        sys.settrace(previous)
    return False


def every_line(action: Callable[[], object], look: Callable[[], Any], least: int) -> int:
    """Break `action` off at each of its lines in turn; what `look` sees must not change before it comes to its end."""
    before = look()
    at = 0
    while broken_off(action, at):
        assert look() == before, f"line {at}"
        at += 1
    assert look() != before
    assert at >= least
    return at


def flags() -> tuple[bool, ...]:
    """What belongs to the thread and may be left behind by an interrupted `with`."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_torch_function_enabled()


@pytest.fixture
def world() -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], Any]]:
    model, optimizer = trained()
    return model, optimizer, lambda: (state_of(model, optimizer), flags())


@pytest.mark.slow
def test_cut(world: Any) -> None:
    model, optimizer, look = world
    every_line(partial(cut, model, small_edits(model), optimizer), look, least=200)
    step(model, optimizer)


@pytest.mark.parametrize("way", ["undo", "restore"])
@pytest.mark.slow
def test_the_way_back(world: Any, way: str) -> None:
    model, optimizer, look = world
    original = look()
    receipt = cut(model, small_edits(model), optimizer)
    step(model, optimizer)
    every_line(getattr(receipt, way), lambda: (look(), repr(receipt)), least=100)
    assert (look() == original) is (way == "undo")
    assert "spent" in repr(receipt)
    step(model, optimizer)


def test_mask_and_the_way_back(world: Any) -> None:
    model, optimizer, look = world
    edits = small_edits(model)
    original = look()
    every_line(partial(mask, model, edits), look, least=50)
    # the last call is the one that came to its end, and its receipt is lost
    receipt = mask(model, edits)
    step(model, optimizer)
    every_line(receipt.restore, lambda: (look(), repr(receipt)), least=30)
    receipt = mask(model, edits)
    masked = look()
    step(model, optimizer)
    every_line(receipt.undo, lambda: (look(), repr(receipt)), least=30)
    assert look() != masked != original


def test_tensors() -> None:
    tensor = nn.Parameter(torch.randn(5, 3))
    tensor.grad = torch.randn(5, 3)

    def look() -> Any:
        return tensor.tolist(), tensor.data_ptr(), tensor.grad.tolist()  # type: ignore[union-attr]

    every_line(lambda: cut_tensor(tensor, [1], 0), look, least=20)
    receipt = cut_tensor(tensor, [1], 0)
    every_line(lambda: uncut_tensor(tensor, receipt), lambda: (look(), receipt.spent), least=10)
    every_line(lambda: zero_tensor(tensor, [1], 1), look, least=10)
    zeroed = zero_tensor(tensor, [0], 1)
    every_line(lambda: unzero_tensor(tensor, zeroed), lambda: (look(), zeroed.spent), least=10)


@pytest.mark.nightly
def test_an_interrupt_and_an_error_of_a_thread_of_its_own(world: Any) -> None:
    model, optimizer, look = world
    edits, before = small_edits(model), look()
    seen: list[Any] = []

    def interrupt(at: int) -> tuple[bool, bool]:
        return broken_off(lambda: cut(model, edits, optimizer), at, KeyboardInterrupt), look() == before

    def work() -> None:
        seen.extend(interrupt(at) for at in range(0, 400, 7))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, True)] * 58


def test_writes_that_fail_do_not_keep_others_from_going_back() -> None:
    state: dict[str, Any] = {}

    def never(value: Any) -> None:
        raise OSError(value)

    def interrupted(value: Any) -> None:
        state["interrupts"] = state.get("interrupts", 0) + 1
        if state["interrupts"] == 2:  # the first of the way back
            raise KeyboardInterrupt
        state["interrupted"] = value

    writes = [
        Write(partial(state.__setitem__, "first"), "before", "after"),
        Write(interrupted, "before", "after"),
        Write(never, "before", "after"),
        Write(partial(state.__setitem__, "last"), "before", "after"),
    ]
    with pytest.raises(OSError, match="after"):
        commit(writes, None)
    assert state == {"first": "before", "interrupted": "before", "last": "before", "interrupts": 3}


def test_a_receipt_is_made_before_the_first_write(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, look = world
    edits, before = small_edits(model), look()

    def broken(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Receipt, "__init__", broken)
    with pytest.raises(MemoryError):
        cut(model, edits, optimizer)
    assert look() == before
