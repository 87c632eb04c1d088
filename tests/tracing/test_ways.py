"""Meta tensors where that goes, then fake ones, then real ones; custom operators; threads."""

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import surroundings, unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.operators.user_operators import UserOperator, user_operators

Tensor = torch.Tensor


def plain(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x)


def constants(module: nn.Module, x: Tensor) -> Tensor:
    table = torch.arange(4.0) + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.zeros(4, device=x.device)
    return module.linear(x) * table.to(x.device) + torch.from_numpy(np.ones(4, dtype=np.float32))


def looks_at_the_device(module: nn.Module, x: Tensor) -> Tensor:
    y = module.linear(x)
    if y.device.type != "cpu":
        raise RuntimeError(f"this kernel is not written for {y.device.type}")
    return y


def takes_an_item(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x) * (2 if x.sum().item() > 0 else 3)


def goes_through_numpy(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x) + torch.from_numpy(np.tanh(module.linear(x).detach().numpy()))


def makes_a_list(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x) * max(module.linear(x)[0].tolist())


def reads_a_buffer(module: nn.Module, x: Tensor) -> Tensor:
    parts = x.split(module.sizes.tolist(), 1)
    return module.linear(torch.cat(parts[::-1], 1))


def selects_by_value(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x)[x.sum(1) > -1e9]


def counts_unique(module: nn.Module, x: Tensor) -> Tensor:
    return module.linear(x) * len(x.unique())


WAYS: list[tuple[Callable[..., Any], str, set[str]]] = [
    (plain, "meta", set()),
    (constants, "meta", set()),
    (looks_at_the_device, "fake", set()),
    (takes_an_item, "real", {"aten::_local_scalar_dense"}),
    (selects_by_value, "real", {"aten::index"}),
    (counts_unique, "real", {"aten::_unique2"}),
    (goes_through_numpy, "real", {"Tensor.numpy"}),
    (makes_a_list, "real", {"Tensor.tolist"}),
    (reads_a_buffer, "meta", set()),
]


@pytest.mark.parametrize(("forward", "on", "dependent"), WAYS, ids=[way[0].__name__ for way in WAYS])
def test_the_way_that_goes(forward: Callable[..., Any], on: str, dependent: set[str]) -> None:
    torch.manual_seed(0)
    model, x = Lambda(forward, linear=nn.Linear(4, 4)), torch.rand(2, 4)
    model.register_buffer("sizes", torch.tensor([1, 3]))
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert graph.traced_on == on
    assert {entry.operator for entry in graph.data_dependent} == dependent
    assert "aten::addmm" in {operator.name for operator in graph.operators}
    assert torch.equal(graph.forward(x), model(x))


@pytest.mark.parametrize("forward", [goes_through_numpy, makes_a_list], ids=lambda forward: forward.__name__)
def test_what_python_read_holds_for_these_data_alone(forward: Callable[..., Any]) -> None:
    graph = mk.trace(Lambda(forward, linear=nn.Linear(4, 4)), torch.rand(2, 4))
    assert graph.data_dependent[0].source.startswith("tracing/test_ways.py:")
    with pytest.raises(mk.ModuleKGError, match=r"took data out of a tensor by Tensor\..* at tracing/test_ways.py:"):
        graph.forward(torch.rand(2, 4))


def test_constants_made_on_the_device_of_another_tensor() -> None:
    """`torch.tensor` on the meta device keeps no data, so that the next kind of tensors is tried."""

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        y = module.linear(x)
        empty = torch.tensor([], device=y.device)
        return torch.cat([y[0] * torch.tensor([1.0, 2.0, 3.0, 4.0][: module.count], device=y.device), empty])

    model, x = Lambda(forward, linear=nn.Linear(4, 4), count=4), torch.rand(2, 4)
    for count, on in ((4, "fake"), (0, "meta")):
        model.count = count
        model.linear = nn.Linear(4, max(count, 1))
        graph = mk.trace(model, x)
        assert graph.traced_on == on
        with unchanged(model, x):
            assert torch.equal(graph.forward(x), model(x))


def test_a_model_on_the_meta_device_has_one_way() -> None:
    with torch.device("meta"):
        model = Lambda(takes_an_item, linear=nn.Linear(4, 4))
    with pytest.raises(TraceError, match="meta"):
        mk.trace(model, torch.randn(2, 4))
    assert mk.trace(model.linear, torch.randn(2, 4)).traced_on == "meta"


def test_what_another_thread_computes_is_a_constant() -> None:
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        found = []
        thread = threading.Thread(target=lambda: found.append(module.linear(torch.ones(2, 4))))
        thread.start()
        thread.join()
        return x * found[0]

    model, x = Lambda(forward, linear=nn.Linear(4, 4)), torch.rand(2, 4)
    graph = mk.trace(model, x)
    assert [operator.name for operator in graph.operators] == ["aten::mul"]
    assert torch.equal(graph.forward(x), model(x))


def test_plain_tensors_are_state_and_no_operators() -> None:
    inner = Lambda(lambda module, x, table: x @ table)
    model = Lambda(lambda module, x: module.inner(x, module.table), inner=inner, table=torch.rand(4, 4))
    x = torch.rand(2, 4)
    graph = mk.trace(model, x)
    (product,) = graph.operators
    assert [(node.kind, node.shape) for node in product.inputs] == [("input", (2, 4)), ("attribute", (4, 4))]
    assert graph.state["table"] is product.inputs[1]
    assert graph.modules["inner"].inputs == product.inputs
    assert torch.equal(graph.forward(x), model(x))


# ------------------------------------------------------------ custom operators


@torch.library.custom_op("mkgways::scaled", mutates_args=())
def scaled(x: Tensor, by: float) -> Tensor:
    return x * by


@torch.library.custom_op("mkgways::bare", mutates_args=())
def bare(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@torch.library.custom_op("mkgways::fill", mutates_args=("x",))
def fill(x: Tensor, value: float) -> None:
    x.fill_(value)


@scaled.register_fake
def _(x: Tensor, by: float) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(user_operators, "entries", user_operators.entries)
    return lambda name, **facts: user_operators.replace(UserOperator(**facts), [name])


def test_a_custom_operator_with_a_fake_kernel() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Lambda(lambda module, x: scaled(x, 2.0)))
    x = torch.randn(2, 4)
    graph = mk.trace(model, x)
    assert graph.traced_on == "meta"
    last = graph.operators[-1]
    assert (last.name, last.module, last.args[1]) == ("mkgways::scaled", "1", 2.0)
    assert last.source.file == __file__
    assert torch.equal(graph.forward(x), model(x))


def test_a_custom_operator_without_one_runs_on_real_tensors() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Lambda(lambda module, x: bare(x))), torch.randn(2, 4)
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert graph.traced_on == "real"
    assert [operator.name for operator in graph.operators][-1] == "mkgways::bare"
    assert torch.equal(graph.forward(x), model(x))


def test_the_shape_that_a_user_tells(tell: Callable[..., None]) -> None:
    tell("mkgways::bare", shape=lambda x: tuple(x.shape))
    model, x = Lambda(lambda module, x: bare(x) * 2), torch.randn(2, 4)
    graph = mk.trace(model, x)
    assert graph.traced_on == "meta"
    assert torch.equal(graph.forward(x), model(x))


@torch.library.custom_op("mkgways::made", mutates_args=())
def made(size: int) -> Tensor:
    return torch.from_numpy(np.ones(size, dtype=np.float32))


def test_the_shape_of_what_is_made_of_no_tensor(tell: Callable[..., None]) -> None:
    tell("mkgways::made", shape=lambda size: (size,))
    model, x = Lambda(lambda module, x: made(4) + x), torch.randn(2, 4)
    graph = mk.trace(model, x)
    assert graph.traced_on == "meta"
    assert torch.equal(graph.forward(x), x + 1)


def test_the_value_that_a_user_tells(tell: Callable[..., None]) -> None:
    tell("mkgways::bare", shape=lambda x: x.new_empty(x.shape), value=lambda x: x.cos())
    x = torch.randn(2, 4)
    graph = mk.trace(Lambda(lambda module, x: bare(x)), x)
    assert torch.equal(graph.forward(x), x.cos())


def test_a_custom_operator_that_writes() -> None:
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        y = x * 1
        part = y[0]
        fill(y, 3.0)
        return part + y

    model, x = Lambda(forward), torch.randn(2, 4)
    graph = mk.trace(model, x)
    (filling,) = [operator for operator in graph.operators if operator.name == "mkgways::fill"]
    assert [node.shape for node in filling.outputs] == [(2, 4), (4,)]
    assert torch.equal(graph.forward(x), torch.full((2, 4), 6.0))


# ----------------------------------------------------------- inside other modes


def test_in_inference_mode() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    expected = [operator.name for operator in mk.trace(model, x).operators]
    with torch.inference_mode():
        before = surroundings()
        graph = mk.trace(model, x)
        assert surroundings() == before
    assert [operator.name for operator in graph.operators] == expected


@pytest.mark.parametrize("inside", [True, False])
def test_under_autocast(inside: bool) -> None:
    """Tensors without data are passed by, those that pretend to have some are not."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            return module.layers(x)

    model = Lambda(forward, layers=layers) if inside else layers
    x = torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=not inside), torch.no_grad():
        graph = mk.trace(model, x)
        expected = model(x)
    assert graph.traced_on == "fake"
    assert graph.outputs[0].dtype is expected.dtype is torch.bfloat16
    assert torch.equal(graph.forward(x), expected)


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_on_or_off_make_no_difference(grad: bool) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)
    with torch.set_grad_enabled(grad), unchanged(model, x):
        graph = mk.trace(model, x.clone().requires_grad_(grad))
    assert [operator.name for operator in graph.operators if operator.inputs] == [
        "aten::convolution", "aten::add_", "aten::native_batch_norm", "aten::relu"
    ]  # fmt: skip


def test_under_a_default_device() -> None:
    with torch.device("meta"):
        graph = mk.trace(nn.Linear(4, 4), torch.randn(2, 4))
    assert graph.traced_on == "meta"
    assert [operator.name for operator in graph.operators] == ["aten::t", "aten::addmm"]


# -------------------------------------------------------------------- threads


def deep(width: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(20)))


def test_two_threads_trace_at_the_same_time() -> None:
    models = [deep(3), deep(5), deep(7), deep(9)]
    before = surroundings()
    start, found = threading.Barrier(len(models)), {}

    def trace(index: int, width: int) -> None:
        start.wait()
        for _ in range(5):
            found.setdefault(index, []).append(mk.trace(models[index], torch.zeros(2, width)))

    threads = [threading.Thread(target=trace, args=(i, width)) for i, width in enumerate((3, 5, 7, 9))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, model in enumerate(models):
        for graph in found[index]:
            names = ["aten::t", "aten::addmm", "aten::relu"] * 20
            assert [operator.name for operator in graph.operators] == names
            assert [len(node.calls) for node in graph.modules.values()] == [1] * 61
            assert graph.model is model
    assert surroundings() == before


def test_a_model_that_runs_in_another_thread_is_not_recorded() -> None:
    model, other, x = deep(3), deep(5), torch.zeros(2, 3)
    stop, results = threading.Event(), []

    def run() -> None:
        with torch.no_grad():
            while not stop.is_set():
                results.append(other(torch.ones(2, 5)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        graphs = [mk.trace(model, x) for _ in range(10)]
    finally:
        stop.set()
        thread.join()
    assert {len(graph.operators) for graph in graphs} == {60}
    assert all(type(result) is Tensor and not result.is_meta for result in results)


@contextmanager
def interrupts(every: float = 1.0) -> Iterator[None]:
    """Interrupts the main thread until the block ends, as a user does who presses the key again.

    One interrupt is not enough: Python drops an exception raised in a weak reference's callback.
    """
    ended = threading.Event()

    def press() -> None:
        while not ended.wait(every):
            _thread.interrupt_main()

    # a shell's background job ignores the signal, and then nothing would be interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        yield
    finally:
        ended.set()
        presser.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_an_endless_forward_can_be_interrupted() -> None:
    def endless(module: nn.Module, x: Tensor) -> Tensor:
        while True:
            x = module.linear(x)

    model, x = Lambda(endless, linear=nn.Linear(4, 4)), torch.randn(2, 4)
    mk.trace(model.linear, x)  # an interrupt while torch still imports parts of itself would leave it broken
    with unchanged(model, x), pytest.raises(KeyboardInterrupt), interrupts():
        mk.trace(model, x)
    assert len(mk.trace(model.linear, x).operators) == 2


class Inferring(nn.Module):
    """Turns inference mode on by itself, as deployed models do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 2), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.head(self.conv(x).flatten(1))


def test_inference_mode_inside_forward_is_taken_apart_as_well() -> None:
    graph = mk.trace(Inferring(), torch.randn(2, 3, 3, 3))
    assert graph.unknown == []
    assert graph.cut_analysis("conv.weight", index=[1]).parameters["head.weight"] == {1: [4, 5, 6, 7]}
