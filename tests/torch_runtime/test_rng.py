"""Random numbers of a look come from generators of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.rng import ReproducibleDraws, process_states, with_isolated_rng

X = torch.full((3, 4), 0.5)
DRAWS: dict[str, Any] = {
    "dropout": lambda: F.dropout(X, 0.5),
    "alpha dropout": lambda: F.alpha_dropout(X, 0.5, training=True),
    "feature dropout": lambda: F.dropout2d(X[None, :, :, None], 0.5),
    "rrelu": lambda: F.rrelu(-X, training=True),
    "gumbel": lambda: F.gumbel_softmax(X),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(2, 3),
    "randint": lambda: torch.randint(100, (4,)),
    "randint from": lambda: torch.randint(5, 100, (4,)),
    "randperm": lambda: torch.randperm(9),
    "normal": lambda: torch.normal(X, 1.0),
    "normal of a size": lambda: torch.normal(0.0, 1.0, (3,)),
    "bernoulli": lambda: torch.bernoulli(X),
    "poisson": lambda: torch.poisson(X),
    "multinomial": lambda: torch.multinomial(X, 2),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 9),
    "in place": lambda: torch.empty(3).uniform_().normal_().exponential_(),
    "random_": lambda: torch.empty(3).random_(),
    "gamma": lambda: torch._standard_gamma(X),
    "native dropout": lambda: torch.native_dropout(X, 0.5, True)[0],
    "a layer": lambda: nn.TransformerEncoderLayer(4, 2, 8)(X[None]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_those_that_the_process_would_draw(name: str) -> None:
    torch.manual_seed(7)
    expected = DRAWS[name]()
    torch.manual_seed(7)
    start = torch.get_rng_state()
    with ReproducibleDraws():
        found = DRAWS[name]()
    assert torch.equal(torch.get_rng_state(), start)
    assert torch.equal(found, expected)
    torch.manual_seed(8)
    states = process_states()
    torch.manual_seed(9)
    with ReproducibleDraws(states):
        other = DRAWS[name]()
    torch.manual_seed(8)
    assert torch.equal(other, DRAWS[name]())


def test_a_seed_gives_the_same_again() -> None:
    found = []
    for _ in range(2):
        with ReproducibleDraws(3):
            found.append([torch.rand(2), F.dropout(X, 0.5), torch.rand(2)])
    assert all(map(torch.equal, *found))
    assert not torch.equal(found[0][0], found[0][2])


def test_generators_of_python_are_put_back_where_nobody_else_works() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return x * random.random() * float(np.random.random()) * x.sum().item()

    model, x = Lambda(forward), torch.ones(2)
    with unchanged(model, x):
        for _ in range(2):
            run_isolated(list(model.modules()), (x,), lambda sandbox: sandbox.model(*sandbox.held), ALL)
        assert mk.trace(model, x).operators


def test_the_generator_of_the_process_given_by_name_stays() -> None:
    before = torch.get_rng_state()
    with ReproducibleDraws(1):
        drawn = torch.rand(2, generator=torch.default_generator)
    assert torch.equal(torch.get_rng_state(), before)
    with ReproducibleDraws(1):
        assert torch.equal(torch.rand(2), drawn)


class Noise(Dataset[torch.Tensor]):
    """Each item is drawn."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.rand(2)


@contextmanager
def a_thread_that_computes() -> Iterator[None]:
    ends = threading.Event()

    def compute() -> None:
        while not ends.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "beside a thread that computes"])
@pytest.mark.slow
def test_what_a_loader_draws_is_what_would_come_and_leaves_the_process_as_it_was(workers: int, busy: bool) -> None:
    loader = DataLoader(Noise(), batch_size=2, shuffle=True, num_workers=workers)
    torch.manual_seed(3)
    expected = [batch.tolist() for batch in loader]
    assert len({number for batch in expected for row in batch for number in row}) == 12
    torch.manual_seed(3)
    start = torch.get_rng_state()
    with a_thread_that_computes() if busy else nullcontext():
        found = [batch.tolist() for batch in with_isolated_rng(loader)]
    assert found == expected
    assert torch.equal(torch.get_rng_state(), start)


def test_what_other_threads_draw_meanwhile_does_not_come_once_more() -> None:
    drawn: list[float] = []

    def slowly() -> Iterator[int]:
        for at in range(3):
            before = len(drawn)
            while len(drawn) < before + 50:
                time.sleep(0.001)
            yield at

    ends = threading.Event()

    def draw() -> None:
        while not ends.is_set():
            drawn.append(torch.rand(()).item())

    torch.manual_seed(4)
    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert list(with_isolated_rng(slowly())) == [0, 1, 2]
    finally:
        ends.set()
        thread.join()
    torch.manual_seed(4)
    assert drawn == [torch.rand(()).item() for _ in drawn]
