"""Models that hold odd things, and looks under odd settings: all is right, or a named error."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.identity.folding import hyperparameters
from modulekg_widgets.engine.playback.player import Playback
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import UNREGISTERED


def net(**attributes: Any) -> nn.Module:
    layers = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 3)}
    return Lambda(lambda module, x: module.b(module.a(x).relu()), **layers, **attributes).eval()


# ------------------------------------------------------------------ sparse


def sparse(kind: str) -> nn.Module:
    matrix = torch.eye(5) * torch.arange(1.0, 6)
    held: Any = {"coo": matrix.to_sparse, "csr": matrix.to_sparse_csr, "parameter": matrix.to_sparse}[kind]()
    model = Lambda(
        lambda module, x: module.b((module.matrix @ module.a(x)).relu()), a=nn.Linear(4, 6), b=nn.Linear(6, 3)
    )
    if kind == "parameter":
        model.matrix = nn.Parameter(held)
    else:
        model.register_buffer("matrix", held)
    return model


@pytest.mark.parametrize("kind", ["coo", "csr", "parameter"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_proved_as_they_are(kind: str) -> None:
    model, x = sparse(kind), torch.randn(5, 4)
    graph = mk.trace(model, x)
    proof = graph.axes.verify()
    assert proof.ok
    assert proof.proved == ["a.out"]
    receipt = mk.plan(graph, ratio=0.5).cut(model)
    assert model(x).shape == (5, 3)
    receipt.undo()


# ----------------------------------------------- where tensors are made


LOOKS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "trace": lambda model, x: [operator.name for operator in mk.trace(model, x).operators],
    "plan": lambda model, x: mk.plan(mk.trace(model, x), ratio=0.5).axes,
    "verify": lambda model, x: str(mk.trace(model, x).axes.verify()),
    "taylor": lambda model, x: (
        mk.plan(
            mk.trace(model, x), ratio=0.5, importance=mk.pruning.Taylor([(x, x[:, :3])], nn.functional.mse_loss)
        ).axes
    ),
    "hessian": lambda model, x: (
        mk.plan(
            mk.trace(model, x), ratio=0.5, importance=mk.pruning.Hessian([(x, x[:, :3])], nn.functional.mse_loss)
        ).axes
    ),
    "player": lambda model, x: mk.ForwardPlayer(model, x).error,
    "graph": lambda model, x: mk.ModelGraph(model, x).error,
    "rewrite": lambda model, x: len(mk.rewrite.find_chains(mk.trace(model, x), [nn.Linear, torch.Tensor.relu])),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_default_device_is_no_matter_to_a_model_that_makes_no_tensors(name: str) -> None:
    model, x = net(), torch.randn(5, 4)
    expected = LOOKS[name](model, x)
    with torch.device("meta"), unchanged(model, x):
        assert LOOKS[name](model, x) == expected


# ------------------------------------------------ tensors as keys, circles


def keyed(**attributes: Any) -> nn.Module:
    def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
        weight = module.a.weight
        assert module.names[weight] == "first"
        assert weight in module.members
        assert module.alone[0] is weight
        return module.b(module.a(x).relu()) * module.scales[weight]

    layers = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 3)}
    model = Lambda(forward, **layers, **attributes).eval()
    model.names = {model.a.weight: "first", model.b.weight: "second"}
    model.members, model.alone = {model.a.weight}, (model.a.weight,)
    model.scales = {model.a.weight: torch.full((1,), 2.0)}
    return model


@pytest.mark.parametrize("name", sorted(set(LOOKS) - {"rewrite"}))
def test_a_models_tensors_as_keys_of_its_own_dictionaries(name: str) -> None:
    model, x = keyed(), torch.randn(5, 4)
    plain = net()
    plain.load_state_dict(model.state_dict())
    with unchanged(model, x):
        found = LOOKS[name](model, x)
    if name in ("plan", "verify"):
        assert found == LOOKS[name](plain, x)


def test_a_model_with_tensors_as_keys_is_cut_and_runs() -> None:
    model, x = keyed(), torch.randn(5, 4)
    expected = model(x)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    assert model(x).shape == (5, 3)
    assert model.names[model.a.weight] == "first"
    receipt.undo()
    assert torch.equal(model(x), expected)


def test_other_values_reach_all_that_leads_to_a_tensor() -> None:
    model = net()
    model.held = [model.a.weight]

    def run(sandbox: Sandbox) -> None:
        copy: Any = sandbox.model
        value = torch.zeros(2, 4, dtype=torch.float64)
        assert sandbox.hold(copy.a.weight, value) is copy.a.weight is copy.held[0]
        assert copy.held[0].shape == (2, 4)
        assert sandbox.original(copy.a.weight) is copy.a.weight

    with unchanged(model):
        run_isolated([model], (), run, UNREGISTERED)


def circle(kind: str) -> Any:
    inner: Any = {}
    held: Any = {"dictionary": inner, "list": [], "tuple": ([],)}[kind]
    if kind == "dictionary":
        held.update(me=held, more=[held])
    else:
        (held if kind == "list" else held[0]).extend([held, {"a": held}])
    return held


@pytest.mark.parametrize("kind", ["dictionary", "list", "tuple"])
def test_containers_that_hold_themselves(kind: str) -> None:
    model, x = net(), torch.randn(5, 4)
    model.held = circle(kind)
    assert mk.fingerprint(model) == mk.fingerprint(model)
    assert "…" in str(hyperparameters(model)["held"])
    assert mk.ModelGraph(model, x).selected is None
    assert mk.plan(mk.trace(model, x), ratio=0.5).axes


# ------------------------------------------------------ other kinds of tensors


def wrapped() -> nn.Parameter:
    return nn.Parameter(TwoTensor(torch.ones(3, 4), torch.full((3, 4), 2.0)))


def nested(layout: torch.layout) -> nn.Parameter:
    return nn.Parameter(torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(1, 4)], layout=layout))


KINDS: dict[str, tuple[Callable[[], nn.Parameter], Callable[[Any, torch.Tensor], torch.Tensor], list[int]]] = {
    "a wrapper subclass": (wrapped, lambda module, x: x @ module.held.t(), [5, 3]),
    "nested": (
        lambda: nested(torch.strided),
        lambda module, x: module.held.to_padded_tensor(0.0) + x.sum(),
        [2, 2, 4],
    ),
    "nested and jagged": (
        lambda: nested(torch.jagged),
        lambda module, x: module.held.to_padded_tensor(0.0) + x.sum(),
        [2, 2, 4],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_parameters_of_every_kind_are_played(kind: str) -> None:
    make, forward, sizes = KINDS[kind]
    held = make()
    model, x = Lambda(forward, held=held), torch.randn(5, 4)
    expected = model(x)
    version = held._version
    played = Playback(model, x)
    assert played.error is None
    assert played.steps[0].output is not None
    assert list(played.steps[0].output.sizes) == sizes
    assert model.held is held
    assert held._version == version
    again = model(x)
    assert type(again) is type(expected)
    assert torch.equal(again.a if isinstance(again, TwoTensor) else again, expected.a if kind[0] == "a" else expected)


# ------------------------------------------------------------- TorchScript


@pytest.mark.parametrize(
    "inner", [nn.ReLU(), nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))], ids=str
)
@pytest.mark.parametrize("importance", ["l1", "taylor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_children_in_a_plan(inner: nn.Module, importance: str) -> None:
    layers = (nn.Linear(4, 6), torch.jit.script(inner), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    model, x = nn.Sequential(*layers), torch.randn(7, 4)
    expected = model(x)
    graph = mk.trace(model, x)
    assert graph.modules["1"].params == graph.modules["1"].sub_modules == {}
    by = mk.pruning.Taylor([(x, x[:, :3])], nn.functional.mse_loss) if importance == "taylor" else importance
    receipt = mk.plan(graph, ratio=0.5, importance=by).cut(model)
    assert model(x).shape == (7, 3)
    receipt.undo()
    assert torch.equal(model(x), expected)
    assert mk.trace(model, x).forward(x).shape == (7, 3)


# --------------------------------------------------- what keeps what it gets


@pytest.mark.parametrize("held", [queue.Queue, lambda: ThreadPoolExecutor(1)], ids=["a queue", "a pool"])
def test_what_stands_outside_of_the_model_is_said_to_be_shared(held: Callable[[], Any]) -> None:
    def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
        if isinstance(module.outside, queue.Queue):
            module.outside.put(x.shape[0])
            return module.b(module.a(x).relu())
        return module.b(module.outside.submit(module.a, x).result().relu())

    model, x = Lambda(forward, a=nn.Linear(4, 6), b=nn.Linear(6, 3), outside=held()), torch.randn(5, 4)
    (note,) = mk.trace(model, x).notes
    assert f"forward ran with the model's own {type(model.outside).__name__}" in note
    assert model(x).shape == (5, 3)
