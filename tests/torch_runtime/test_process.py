"""Settings of the process that a forward pass changes are what they were after a look."""

from __future__ import annotations

import queue
import random
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import _get_current_function_mode_stack

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda

SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Any]] = {
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=True),
        True,
    ),
    "flash attention": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, False),
    "cudnn": (
        lambda: torch.backends.cudnn.benchmark,
        lambda on: setattr(torch.backends.cudnn, "benchmark", on),
        True,
    ),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        True,
    ),
    "autocast's type": (
        lambda: torch.get_autocast_dtype("cpu"),
        lambda dtype: torch.set_autocast_dtype("cpu", dtype),
        torch.float16,
    ),
    "default device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        torch.device("meta"),
    ),
    "default type": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "warnings": (lambda: list(warnings.filters), lambda _: warnings.simplefilter("ignore"), []),
    "numpy": (lambda: np.geterr()["divide"], lambda how: np.seterr(divide=how), "raise"),
    "oneDNN": (
        lambda: torch.backends.mkldnn.enabled,
        lambda on: setattr(torch.backends.mkldnn, "enabled", on),
        False,
    ),
    "a mode": (
        lambda: len(_get_current_function_mode_stack()),
        lambda entered: torch.device("cpu").__enter__() if entered else None,
        1,
    ),
    "printing": (lambda: torch._tensor_str.PRINT_OPTS.precision, lambda n: torch.set_printoptions(precision=n), 2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_stay(name: str) -> None:
    read, write, other = SETTINGS[name]
    before = read()

    def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
        write(other)
        return module.linear(x)

    model, x = Lambda(forward, linear=nn.Linear(2, 2)), torch.randn(1, 2)
    try:
        for look in (mk.trace, mk.ForwardPlayer):
            look(model, x)
            assert read() == before != other
    finally:
        write(before)


@pytest.mark.parametrize("name", ["flash attention", "cudnn", "default type"])
def test_a_setting_that_another_thread_changes_meanwhile_is_its_own(name: str) -> None:
    """As training does that enters and leaves a context: a look that puts back would undo it."""
    read, write, other = SETTINGS[name]
    before = read()
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        assert inside.wait(60)
        write(other)
        sum(range(100_000))
        done.set()

    def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert done.wait(60)
        return x + 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        mk.trace(Lambda(forward), torch.ones(2))
        assert read() == other
    finally:
        thread.join()
        write(before)


def test_a_look_where_tensors_have_no_data() -> None:
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert mk.trace(model, x).operators


def test_threads_that_wait_or_stand_still_do_not_keep_generators_from_being_put_back() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return x * random.random()

    model, x = Lambda(forward), torch.ones(2)
    over = threading.Event()
    threads = [threading.Thread(target=wait) for wait in (over.wait, lambda: sleeps(over), lambda: polls(over))]
    for thread in threads:
        thread.start()
    time.sleep(0.1)  # until they are where they stay
    try:
        with unchanged(model, x):
            mk.trace(model, x)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def sleeps(over: threading.Event) -> None:
    while not over.is_set():
        time.sleep(2)


def polls(over: threading.Event) -> None:
    waiting: queue.Queue[None] = queue.Queue()
    while not over.is_set():
        with suppress(queue.Empty):
            waiting.get(timeout=0.05)


def test_generators_are_left_alone_while_another_thread_computes() -> None:
    over, drawn = threading.Event(), []

    def work() -> None:
        while not over.is_set():
            drawn.append(random.random())

    model, x = Lambda(lambda module, x: x + 1), torch.ones(2)
    thread = threading.Thread(target=work)
    random.seed(5)
    thread.start()
    try:
        for _ in range(20):
            mk.trace(model, x)
    finally:
        over.set()
        thread.join()
    random.seed(5)
    assert drawn == [random.random() for _ in drawn]
