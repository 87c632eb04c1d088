"""Whatever forward does, and however it ends: the model, the inputs and the process stay as they were."""

import random
import time
from collections import deque
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from checks.model_state import surroundings, unchanged
from models.functional import Lambda
from models.nasty import nasty_module
from modulekg_widgets.engine.torch_runtime.isolation.state_guard import preserved, preserved_memory

MODES = [None, True, False]


@pytest.mark.parametrize("training", MODES)
@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k"}))
def test_every_nasty_module(name: str, training: bool | None) -> None:
    model = nasty_module(name)
    given = (NASTY[name]["inp"] or tuple)() or ()
    with unchanged(model, given), suppress(mk.ModuleKGError):  # any other error fails the test
        graph = mk.trace(model, given, training=training)
        assert graph.operators or name == "hostile_names"
        assert not any("the model itself ran" in note for note in graph.notes)


@pytest.mark.nightly
def test_a_hundred_thousand_modules_without_a_forward() -> None:
    model, x = nasty_module("wide_100k"), torch.randn(2, 4)
    before = surroundings()
    start = time.process_time()
    with pytest.raises(mk.ModuleKGError, match="Module has no forward"):
        mk.trace(model, x)
    assert time.process_time() - start < 5
    assert surroundings() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, RecursionError])
@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k", "lazy", "script_module", "zero_width"}))
def test_forward_that_raises_at_its_end(name: str, error: type[BaseException]) -> None:
    model = nasty_module(name)
    inner = model.__class__.forward
    state = nn.Module.__dict__["__dict__"].__get__(model)

    def forward(*args: Any) -> Any:
        inner(model, *args)
        raise error("from the test")

    state["forward"] = forward
    given = NASTY[name]["inp"]()
    with unchanged(model, given), pytest.raises((mk.ModuleKGError, error)) as caught:
        mk.trace(model, given)
    assert isinstance(caught.value, mk.ModuleKGError) == issubclass(error, Exception)


def test_an_interrupt_inside_a_module_leaves_no_hook() -> None:
    def interrupt(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        module.cache = module.linear(x)
        raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(4, 4), Lambda(interrupt, linear=nn.Linear(4, 4)))
    x = torch.randn(2, 4)
    with unchanged(model, x), pytest.raises(KeyboardInterrupt):
        mk.trace(model, x)
    assert mk.trace(model[0], x).operators


class Plain:
    """An object that is no module and holds what forward puts on it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


class Slotted:
    __slots__ = ("empty", "value")

    def __init__(self) -> None:
        self.value = 1


class Caching(nn.Module):
    """Keeps tensors wherever a module can keep them, and uses what it kept."""

    def __init__(self, on_the_way: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.loose = [nn.Linear(4, 4)]  # a module that is nobody's child
        self.cached: torch.Tensor | None = None
        self.by_name: dict[str, Any] = {"nested": {}, "list": []}
        self.listed = [torch.ones(2, 4)]
        self.queue: deque[Any] = deque(maxlen=3)
        self.chosen = {"a"}
        self.plain, self.slotted, self.space = Plain(), Slotted(), SimpleNamespace(n=0)
        self.array = np.zeros(3)
        self.numbers, self.python, self.generator = np.random.default_rng(0), random.Random(0), torch.Generator()
        self.register_buffer("counter", torch.zeros((), dtype=torch.long))
        self.held = torch.zeros(2, 4)
        self.on_the_way = on_the_way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.on_the_way == "fake" and y.device.type == "meta":
            raise NotImplementedError("there is no kernel for meta tensors")
        if self.on_the_way == "real" and y.sum().item() > 1e9:
            return y
        bias = self.cached if self.cached is not None else self.listed[-1]
        self.cached = y
        self.by_name["nested"][len(self.by_name["nested"])] = y
        self.by_name["list"].append(y)
        self.listed.append(y.detach())
        self.queue.append(y)
        self.chosen.add("b")
        self.plain.seen.append(y)
        self.plain.extra = y
        self.slotted.value, self.slotted.empty = y, y
        self.space.n += 1
        self.array += 1
        self.loose[0].kept = y
        self.numbers.random(), self.python.random(), torch.rand(2, generator=self.generator)
        torch.rand(2), random.random(), np.random.random()
        self.counter += 1
        self.held.add_(y)
        self.linear.weight.requires_grad_(False)
        self.linear.bias.data.add_(1)
        self.linear.weight.grad = None
        self.new_attribute = y
        self.training = not self.training
        return torch.nn.functional.dropout(y + bias + self.held, 0.5, training=True)


def caching(on_the_way: str) -> Caching:
    model = Caching(on_the_way)
    model.linear(torch.randn(2, 4)).sum().backward()
    return model


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("on", ["meta", "fake", "real"])
@pytest.mark.slow
def test_what_forward_keeps_is_put_back(on: str, fails: bool) -> None:
    model, x = caching(on), torch.randn(2, 4)
    if fails:
        model.register_forward_hook(lambda *_: 1 / 0)
    with unchanged(model, x):
        if fails:
            with pytest.raises(mk.ModuleKGError, match="ZeroDivisionError"):
                mk.trace(model, x)
        else:
            assert mk.trace(model, x).traced_on == on


@pytest.mark.parametrize("on", ["meta", "fake", "real"])
@pytest.mark.slow
def test_a_model_with_caches_computes_the_same_after_a_trace(on: str) -> None:
    results = []
    for traced in (False, True):
        torch.manual_seed(0)
        model, x = caching(on), torch.randn(2, 4)
        if traced:
            mk.trace(model, x)
        with torch.no_grad():
            results.append([model(x), model(x)])
    for expected, got in zip(*results, strict=True):
        assert type(got) is torch.Tensor
        assert torch.equal(expected, got)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_keeps_its_statistics_on_real_tensors(training: bool) -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return module.norm(x) * x.mean().item()

    model, x = Lambda(forward, norm=nn.BatchNorm1d(4)), torch.randn(8, 4)
    with unchanged(model, x):
        assert mk.trace(model, x, training=training).traced_on == "real"


def test_the_inputs_are_not_written() -> None:
    def forward(module: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        x = batch.pop("x")
        batch["more"].append(x)
        x += 1
        return x * x.sum().item()

    batch = {"x": torch.randn(3), "more": []}
    with unchanged(Lambda(forward), batch):
        assert mk.trace(Lambda(forward), (batch,)).traced_on == "real"


def test_forward_that_replaces_the_memory_of_a_parameter() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        module.linear.weight.data = module.linear.weight.data * 2 + x.sum().item()
        return module.linear(x)

    model, x = Lambda(forward, linear=nn.Linear(4, 4)), torch.randn(2, 4)
    with unchanged(model, x):
        mk.trace(model, x)


def test_a_trace_between_forward_and_backward() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(8, 4)
    loss = model(x).square().sum()
    mk.trace(model, x, training=True)
    loss.backward()  # raises when a saved tensor was written since
    assert model[0].weight.grad is not None


def test_plain_tensors_are_told_from_registered_ones() -> None:
    model = caching("meta")
    with preserved(list(model.modules())) as kept:
        assert {id(tensor) for tensor in kept.unregistered_tensors} == {id(model.listed[0]), id(model.held)}
        with preserved_memory(kept.unregistered_tensors):
            model.held.fill_(3)
            model.held.mul_(float("nan"))
            model.listed[0].zero_()
    assert torch.equal(model.held, torch.zeros(2, 4))
    assert torch.equal(model.listed[0], torch.ones(2, 4))
    assert model.held._version == 0


def test_settings_of_the_process() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(True)
        torch.manual_seed(3)
        return x * torch.ones(3)

    model, x = Lambda(forward), torch.randn(3)
    with unchanged(model, x):
        assert mk.trace(model, x).outputs[0].dtype is torch.float64


def test_a_lazy_module_is_refused_as_it_is() -> None:
    model, x = nasty_module("lazy"), torch.randn(2, 4)
    with unchanged(model), pytest.raises(mk.ModuleKGError, match=r"'0\.weight' has no shape yet"):
        mk.trace(model, x)


@pytest.mark.slow
def test_a_trace_inside_a_trace() -> None:
    inner, found, x = nn.Linear(4, 4), [], torch.randn(2, 4)

    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        found.append(mk.trace(inner, (torch.randn(2, 4),)))
        return module.linear(x)

    model = Lambda(forward, linear=nn.Linear(4, 4))
    before = surroundings()
    graph = mk.trace(model, x)
    assert surroundings() == before
    assert [operator.module for operator in found[-1].operators] == ["", ""]
    assert "linear" in {operator.module for operator in graph.operators}
