"""Every row of "Coming from Torch-Pruning", beside the package itself where both can be asked the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_pruning as tp  # pyright: ignore[reportMissingTypeStubs]
from torch import nn

import modulekg_widgets as mk
from migration.models import IMAGE, WORDS, Encoder, Grouped, ResNet, new, run, shapes, state, traced
from migration.operators import Uses
from migration.tables import Row, Table

torch_pruning = Table("Coming from Torch-Pruning")


def pruned_there(**options: Any) -> nn.Module:
    """What Torch-Pruning makes of the small ResNet."""
    model = new(ResNet)
    given = {"importance": tp.importance.MagnitudeImportance(), "ignored_layers": [model.fc], **options}
    tp.pruner.MagnitudePruner(model, IMAGE, **given).step()
    return model


# ---------------------------------------------------------- dependency graph


@torch_pruning("`DependencyGraph().build_dependency(model, x)`")
def _graph() -> None:
    model, x = new(ResNet), IMAGE
    graph = mk.trace(model, x)
    assert [operator.module for operator in graph.operators if operator.name == "aten::addmm"] == ["fc"]
    assert graph.unknown == []


@torch_pruning("`DG.get_pruning_group(layer, fn, idxs)`")
def _group() -> None:
    model, graph, idxs = new(ResNet), traced(ResNet), [1, 4]
    there = tp.DependencyGraph().build_dependency(model, IMAGE)
    group = there.get_pruning_group(model.layer1[0].conv1, tp.prune_conv_out_channels, idxs=idxs)
    cut = graph.cut_analysis("layer1.0.conv1.weight", index=idxs)
    names = {module: name for name, module in model.named_modules()}
    touched = {names[item.dep.target.module] for item in group if item.dep.target.module in names}
    assert {name.rpartition(".")[0] for name in cut.parameters} == touched
    assert cut.parameters["layer1.0.conv2.weight"] == {1: idxs}


@torch_pruning("`group.prune()`")
def _prune() -> None:
    there, model, graph = new(ResNet), new(ResNet), traced(ResNet)
    before = state(model)
    dependency = tp.DependencyGraph().build_dependency(there, IMAGE)
    dependency.get_pruning_group(there.layer1[0].conv1, tp.prune_conv_out_channels, idxs=[1, 4]).prune()
    cut = graph.cut_analysis("layer1.0.conv1.weight", index=[1, 4])
    receipt = mk.plan(graph, cuts=[cut]).cut(model)
    assert shapes(model) == shapes(there)
    torch.testing.assert_close(run(model), run(there))
    receipt.undo()
    assert state(model) == before


@torch_pruning("`DG.check_pruning_group(group)`")
def _check() -> None:
    graph = traced(ResNet)
    with pytest.raises(mk.ModuleKGError, match="all of its 6 indices"):
        graph.cut_analysis("layer1.0.conv1.weight", index=range(6))


@torch_pruning("`DG.get_all_groups()`")
def _groups() -> None:
    model, graph = new(ResNet), traced(ResNet)
    there = tp.DependencyGraph().build_dependency(model, IMAGE)
    groups = list(there.get_all_groups(ignored_layers=[model.fc]))
    assert len(graph.axes.free) == len(groups)
    members = {member.name for member in graph.axes.free[0].members}
    assert {"conv1.weight", "bn1.weight", "layer1.0.conv2.weight", "layer1.1.bn2.running_var", "fc.weight"} <= members


# -------------------------------------------------------------------- pruner


@torch_pruning("`MagnitudePruner(model, x, pruning_ratio=0.5).step()`")
def _pruner() -> None:
    model, x = new(ResNet), IMAGE
    mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    assert shapes(model) == shapes(pruned_there(pruning_ratio=0.5))
    assert run(model).shape == (2, 5)


@torch_pruning("`pruner.step(interactive=True)`")
def _interactive(capsys: pytest.CaptureFixture[str]) -> None:
    model = new(ResNet)
    before = state(model)
    plan = mk.plan(mk.trace(model, IMAGE), ratio=0.5)
    print(plan)
    assert "layer1.0.conv1.out" in capsys.readouterr().out
    assert state(model) == before
    plan.cut(model)
    assert shapes(model)["layer1.0.conv1.weight"] == (3, 4, 3, 3)


@torch_pruning("`ignored_layers=[model.fc]`")
def _ignored() -> None:
    model = new(ResNet)
    mk.plan(mk.trace(model, IMAGE), ratio=0.5).cut(model)
    assert shapes(model)["fc.weight"] == (5, 4)
    model = new(ResNet)
    with pytest.raises(mk.ModuleKGError, match="leave no axis"):
        mk.plan(mk.trace(model, IMAGE), ratio=0.5, keep=[model.layer1])
    mk.plan(mk.trace(model, IMAGE), ratio=0.5, keep=[model.layer1[0]]).cut(model)
    assert shapes(model)["layer1.0.conv1.weight"] == (6, 8, 3, 3)
    assert shapes(model)["layer1.1.conv1.weight"] == (2, 8, 3, 3)


@torch_pruning("`num_heads={…}` · `prune_num_heads=True`")
def _heads() -> None:
    model, graph = new(Encoder), traced(Encoder)
    mk.plan(graph, ratio=0.5, granularity="head", only=["attention"], keep=["attention.out"]).cut(model)
    assert shapes(model)["attention.q.weight"] == (8, 16)
    assert model.attention.heads == 2
    assert run(model, WORDS).shape == (2, 5, 2)


@torch_pruning("`in_channel_groups={…}` · `out_channel_groups={…}`")
def _channel_groups() -> None:
    model, graph = new(Grouped), traced(Grouped)
    mk.plan(graph, ratio=0.5).cut(model)
    assert (model.conv2.groups, model.conv2.out_channels) == (2, 4)
    model = new(Grouped)
    mk.plan(graph, ratio=0.5, granularity="group").cut(model)
    assert (model.conv2.groups, model.conv2.in_channels) == (1, 4)


@torch_pruning("`global_pruning=True` · `isomorphic=True`")
def _scopes() -> None:
    graph = traced(ResNet)
    for plan in (mk.plan(graph, ratio=0.4, scope="global"), mk.plan(graph, ratio=0.4, scope="isomorphic")):
        gone = {axis.name: len(axis.dropped) / axis.size for axis in plan.axes}
        assert len(set(gone.values())) > 1  # one ranking for all: some lose more than others
    kinds = mk.plan(graph, ratio=0.5, scope="isomorphic")
    inner = [axis for axis in kinds.axes if axis.name.startswith("layer1")]
    assert sum(len(axis.dropped) for axis in inner) == 5  # half of the ten that are alike


@torch_pruning("`max_pruning_ratio=0.9`")
def _largest_ratio() -> None:
    model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2))
    with torch.no_grad():
        model[0].weight[0] = 1e6  # beside it the other 39 count for nothing
    graph = mk.trace(model, torch.randn(2, 3))
    usual = mk.plan(graph, ratio=0.6, scope="global", importance="l2")
    same = mk.plan(graph, ratio=0.6, scope="global", importance="l2", floor=0.1)
    more = mk.plan(graph, ratio=0.6, scope="global", importance="l2", floor={"0": 0.2})
    stay = [axis.left for plan in (usual, same, more) for axis in plan.axes if axis.name == "0.out"]
    assert stay == [4, 4, 8]


@torch_pruning("`pruning_ratio_dict={layer: 0.3}`")
def _by_layer() -> None:
    there = new(ResNet)
    ratios = {there.layer1[0].conv1: 0.5}
    tp.pruner.MagnitudePruner(
        there,
        IMAGE,
        importance=tp.importance.MagnitudeImportance(),
        pruning_ratio=0.0,
        pruning_ratio_dict=ratios,
        ignored_layers=[there.fc],
    ).step()
    model, graph = new(ResNet), traced(ResNet)
    mk.plan(graph, per_axis={"layer1.0.conv1": 0.5}).cut(model)
    assert shapes(model) == shapes(there)
    assert mk.plan(graph, per_axis={"layer1.0.conv1": 0.3}).axes[0].left == 5


@torch_pruning("`round_to=8`")
def _rounded() -> None:
    model = nn.Sequential(nn.Conv2d(3, 30, 1), nn.ReLU(), nn.Conv2d(30, 2, 1))
    mk.plan(mk.trace(model, IMAGE), ratio=0.5, round_to=8).cut(model)
    assert shapes(model)["0.weight"] == (16, 3, 1, 1)


@torch_pruning("`iterative_steps=5` · `iterative_pruning_ratio_scheduler`")
def _steps() -> None:
    model = nn.Sequential(nn.Conv2d(3, 40, 1), nn.ReLU(), nn.Conv2d(40, 2, 1))
    schedule = mk.PruningSchedule(steps=5, end=0.5, shape="linear")
    sizes = []
    for step in range(5):
        if schedule.due(step):
            schedule.cut(model, IMAGE, step)
        sizes.append(len(model[0].weight))
    assert sizes == [40, 35, 30, 25, 20]


# ---------------------------------------------------------------- importance


@torch_pruning("`MagnitudeImportance(p=1)`, `BNScaleImportance()`, `FPGMImportance()`")
def _importances() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 1))
    with torch.no_grad():
        model[0].weight[2].mul_(1e-3), model[3].weight[:, 2].mul_(1e-3)
        model[1].weight.copy_(torch.tensor([1.0, 2.0, 0.1, 3.0, 0.05, 4.0]))
    graph = mk.trace(model, IMAGE)
    least = {}
    for plan in (
        mk.plan(graph, ratio=0.2, importance="l2"),
        mk.plan(graph, ratio=0.2, importance="l1"),
        mk.plan(graph, ratio=0.2, importance="bn_scale"),
        mk.plan(graph, ratio=0.2, importance="fpgm"),
        mk.plan(graph, ratio=0.2, importance="random"),
    ):
        (least[repr(plan)],) = plan.axes[0].dropped
    by_l2, by_l1, by_scale, _, _ = least.values()
    assert (by_l2, by_l1, by_scale) == (2, 2, 4)


@torch_pruning("`TaylorImportance()` · `HessianImportance()`")
def _with_data() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1, bias=False), nn.ReLU(), nn.Conv2d(6, 2, 1))
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].weight[3] = -100.0  # large, and dead on these batches: the loss does not feel it
    graph, batches = mk.trace(model, IMAGE), [IMAGE.abs()]
    loss: Callable[[torch.Tensor], torch.Tensor] = lambda output: output.square().mean()  # noqa: E731
    assert mk.plan(graph, ratio=0.2, importance="l2").axes[0].dropped != (3,)
    assert mk.plan(graph, ratio=0.2, importance=mk.pruning.Taylor(batches, loss)).axes[0].dropped == (3,)
    assert mk.plan(graph, ratio=0.2, importance=mk.pruning.Hessian(batches, loss)).axes[0].dropped == (3,)


@torch_pruning("`pruner.regularize(model)`")
def _regularise() -> None:
    model = new(ResNet)
    graph = mk.trace(model, IMAGE)
    penalty = mk.pruning.GroupLasso(graph)
    before = penalty().item()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (0.0 * model(IMAGE).sum() + 10 * penalty()).backward()
        optimizer.step()
    assert penalty().item() < before


# ------------------------------------------------------------------- beside it


@torch_pruning("`unwrapped_parameters` · `root_module_types`")
def _own_parameters() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.randn(8, 3))
            self.position = nn.Parameter(torch.randn(1, 8))
            self.out = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(x @ self.own.T + self.position)

    model = Net()
    mk.plan(mk.trace(model, torch.randn(2, 3)), ratio=0.5).cut(model)
    assert shapes(model) == {"own": (4, 3), "position": (1, 4), "out.weight": (2, 4), "out.bias": (2,)}


@torch_pruning("`customized_pruners`")
def _own_operator() -> None:
    @mk.axis_rule("mylib::my_op")
    def as_it_came(call):  # type: ignore[no-untyped-def]
        return call.axes(call.inputs[0])

    model = Uses("my_op")
    mk.plan(mk.trace(model, IMAGE), ratio=0.5).cut(model)
    assert shapes(model)["1.weight"] == (2, 4, 1, 1)


@torch_pruning("`forward_fn` · `output_transform`")
def _calls() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, *, words: torch.Tensor, scale: float) -> dict[str, list[torch.Tensor]]:
            return {"scores": [self.b(self.a(words) * scale)]}

    model, args, kwargs = Net(), (), {"words": torch.randn(2, 3), "scale": 2.0}
    mk.plan(mk.trace(model, args, kwargs), ratio=0.5).cut(model)
    assert model(**kwargs)["scores"][0].shape == (2, 2)
    assert model.a.out_features == 4


@torch_pruning("`tp.utils.count_ops_and_params(model, x)`")
def _costs() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.Conv2d(8, 2, 1, bias=False))
    graph = mk.trace(model, IMAGE[:1])
    there = tp.utils.count_ops_and_params(model, IMAGE[:1])
    assert (graph.flops().macs, sum(parameter.numel() for parameter in model.parameters())) == there
    plan = mk.plan(graph, ratio=0.5)
    plan.cut(model)
    assert (plan.macs[0], plan.params[0]) == there
    assert (plan.macs[1], plan.params[1]) == tp.utils.count_ops_and_params(model, IMAGE[:1])


@torch_pruning("`pruner.pruning_history()` · `load_pruning_history(…)`")
def _history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, model = new(ResNet), new(ResNet)
    plan = mk.plan(traced(ResNet), ratio=0.5)
    plan.cut(first)
    plan.save("plan.json")
    mk.load_plan("plan.json").cut(model)
    assert state(model) == state(first)


@pytest.mark.parametrize("row", torch_pruning.rows, ids=[row.old for row in torch_pruning.rows])
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch_pruning.run(row, tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)


def test_every_function_has_its_row() -> None:
    assert torch_pruning.without_row() == []
