"""Models that hold odd things, and looks under odd settings: all is right, or a named error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.identity.hyperparameters import hyperparameters
from modulekg_widgets.engine.torch_runtime.look import Stage, look
from modulekg_widgets.engine.torch_runtime.shadow import LOOSE
from tracing.samples import Calls, unchanged


def net(**attributes: Any) -> nn.Module:
    layers = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 3)}
    return Calls(lambda module, x: module.b(module.a(x).relu()), **layers, **attributes).eval()


# ------------------------------------------------------------------ sparse


def sparse(kind: str) -> nn.Module:
    matrix = torch.eye(5) * torch.arange(1.0, 6)
    held: Any = {"coo": matrix.to_sparse, "csr": matrix.to_sparse_csr, "parameter": matrix.to_sparse}[kind]()
    model = Calls(
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
    model = Calls(forward, **layers, **attributes).eval()
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

    def run(stage: Stage) -> None:
        copy: Any = stage.model
        value = torch.zeros(2, 4, dtype=torch.float64)
        assert stage.hold(copy.a.weight, value) is copy.a.weight is copy.held[0]
        assert copy.held[0].shape == (2, 4)
        assert stage.original(copy.a.weight) is copy.a.weight

    with unchanged(model):
        look([model], (), run, LOOSE)


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
