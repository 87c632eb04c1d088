"""Every row of "Coming from TorchPruner": its manual's order is that of the document's tables.

torchpruner_graph.py has the rows on the graph, torchpruner_rewriting.py those on function modules and model tools.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from migration.models import IMAGE, ResNet, new, run, shapes, state, traced, train
from migration.operators import Scaled as MyConv
from migration.operators import Uses, between
from migration.tables import Row, Table
from migration.torchpruner_graph import graph_rows
from migration.torchpruner_rewriting import rewriting

torchpruner = Table("Coming from TorchPruner", graph_rows, rewriting)


def cut_shapes(model: nn.Module) -> None:
    """Two of six channels inside the first block are gone."""
    assert shapes(model)["layer1.0.conv1.weight"] == (4, 8, 3, 3)
    assert shapes(model)["layer1.0.conv2.weight"] == (8, 4, 3, 3)
    assert (model.layer1[0].conv1.out_channels, model.layer1[0].bn1.num_features) == (4, 4)  # type: ignore[index,union-attr]


# ---------------------------------------------------------------- model pruner


@torchpruner("`set_cut(model, cut_dict)`")
def _cut() -> None:
    model, graph = new(ResNet), traced(ResNet)
    cut = graph.cut_analysis("layer1.0.conv1.weight", index=[1, 4])
    receipt = mk.plan(graph, cuts=[cut]).cut(model)
    cut_shapes(model)
    assert torch.equal(model.layer1[0].conv1.weight, new(ResNet).layer1[0].conv1.weight[[0, 2, 3, 5]])  # type: ignore
    assert run(model).shape == (2, 5)
    assert "cut" in repr(receipt)


@torchpruner("`set_cut` for one analysis after the other")
def _merged() -> None:
    model, graph = new(ResNet), traced(ResNet)
    first, second = (graph.cut_analysis("layer1.0.conv1.weight", index=index) for index in ([1], [4]))
    mk.plan(graph, cuts=[first, second]).cut(model)
    cut_shapes(model)


@torchpruner("`recovery_cut(model, cut_dict, param_context)`")
def _recovery() -> None:
    plan = mk.plan(traced(ResNet), cuts=[traced(ResNet).cut_analysis("layer1.0.conv1.weight", index=[1, 4])])
    model = new(ResNet)
    before = state(model)
    receipt = plan.cut(model)
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    receipt.undo()
    assert state(model) == before

    model = new(ResNet)
    receipt = plan.cut(model)
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    trained = model.layer1[0].get_parameter("conv1.weight").detach().clone()
    receipt.restore()
    restored = model.layer1[0].get_parameter("conv1.weight")
    assert torch.equal(restored[[0, 2, 3, 5]], trained)
    assert torch.equal(restored[[1, 4]], new(ResNet).layer1[0].get_parameter("conv1.weight")[[1, 4]])


@torchpruner("`set_cut_optimizer(model, optimizer, cut_dict)`")
def _optimizer() -> None:
    graph, model = traced(ResNet), new(ResNet)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(model, optimizer)
    plan = mk.plan(graph, cuts=[graph.cut_analysis("layer1.0.conv1.weight", index=[1, 4])])
    weight = model.layer1[0].get_parameter("conv1.weight")
    momentum = optimizer.state[weight]["momentum_buffer"].clone()
    plan.cut(model, optimizer)
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], momentum[[0, 2, 3, 5]])
    train(model, optimizer)


@torchpruner("`recovery_optimizer(…)`")
def _optimizer_back() -> None:
    graph, model = traced(ResNet), new(ResNet)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(model, optimizer)
    weight = model.layer1[0].get_parameter("conv1.weight")
    momentum = optimizer.state[weight]["momentum_buffer"].clone()
    receipt = mk.plan(graph, ratio=0.5).cut(model, optimizer)
    train(model, optimizer)
    receipt.undo()
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], momentum)


@torchpruner("`set_zero(model, cut_dict)`")
def _zero() -> None:
    graph, model = traced(ResNet), new(ResNet)
    plan = mk.plan(graph, cuts=[graph.cut_analysis("layer1.0.conv1.weight", index=[1, 4])])
    receipt = plan.mask(model)
    assert shapes(model) == shapes(new(ResNet))
    weight = model.layer1[0].get_parameter("conv1.weight")
    assert (weight.flatten(1).abs().sum(1) == 0).nonzero().flatten().tolist() == [1, 4]
    assert "masked" in repr(receipt)


@torchpruner("`recovery_zero(…)`")
def _zero_back() -> None:
    plan = mk.plan(traced(ResNet), cuts=[traced(ResNet).cut_analysis("layer1.0.conv1.weight", index=[1, 4])])
    model = new(ResNet)
    before = state(model)
    receipt = plan.mask(model)
    receipt.undo()
    assert state(model) == before
    receipt = plan.mask(model)
    with torch.no_grad():
        model.layer1[0].get_parameter("conv1.weight").add_(1.0)
    receipt.restore()
    weight, first = (each.layer1[0].get_parameter("conv1.weight").detach() for each in (model, new(ResNet)))
    assert torch.equal(weight[[1, 4]], first[[1, 4]])
    assert torch.equal(weight[[0, 2, 3, 5]], first[[0, 2, 3, 5]] + 1.0)


# ---------------------------------------------------------------- registration


@torchpruner("`set_cut_tensor` · `recovery_cut_tensor`")
def _cut_tensor() -> None:
    tensor, index, dim = nn.Parameter(torch.randn(4, 6)), [0, 5], 1
    before = tensor.detach().clone()
    receipt = mk.pruning.cut_tensor(tensor, index, dim)
    assert torch.equal(tensor, before[:, 1:5])
    mk.pruning.uncut_tensor(tensor, receipt)
    assert torch.equal(tensor, before)


@torchpruner("`set_zero_tensor` · `recovery_zero_tensor`")
def _zero_tensor() -> None:
    tensor, index, dim = nn.Parameter(torch.randn(4, 6)), [0, 5], 1
    before = tensor.detach().clone()
    receipt = mk.pruning.zero_tensor(tensor, index, dim)
    assert torch.equal(tensor[:, [0, 5]], torch.zeros(4, 2))
    assert torch.equal(tensor[:, 1:5], before[:, 1:5])
    mk.pruning.unzero_tensor(tensor, receipt)
    assert torch.equal(tensor, before)


@torchpruner("`BasePruner`, `module_pruner_reg.regist(MyConv, Pruner)`")
def _adapter() -> None:
    @mk.adapter(MyConv)
    def sizes_of(sizes):  # type: ignore[no-untyped-def]
        return {"channels": sizes.parameter("weight", 0)}

    model = between(MyConv(8))
    before = state(model)
    plan = mk.plan(mk.trace(model, IMAGE), per_axis={"0": [2, 5]})
    receipt = plan.cut(model)
    assert model[1].channels == len(model[1].get_parameter("weight")) == 6
    receipt.undo()
    assert (model[1].channels, state(model)) == (8, before)
    plan.mask(model).restore()
    assert state(model) == before


@torchpruner('`OperatorNode`, `operator_register.regist("Pool", Node)`')
def _rule() -> None:
    @mk.axis_rule("mylib::pool")
    def pool(call):  # type: ignore[no-untyped-def]
        n, c, *_ = call.axes(call.inputs[0])
        return [n, c, *call.frozen_all(call.output.shape[2:], "positions of the pool")]

    model = Uses("pool")
    assert mk.trace(model, IMAGE).unknown == []
    mk.plan(mk.trace(model, IMAGE), ratio=0.5).cut(model)
    assert shapes(model)["1.weight"] == (2, 4, 1, 1)


@torchpruner("its `fill_shape`, `fill_value`, `flops`")
def _rule_parts() -> None:
    mk.axis_rule(
        "mylib::pool",
        like="aten::avg_pool2d",
        shape=lambda x: (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2),
        value=lambda x: torch.full((2, 8, 2, 2), 7.0),
        flops=lambda x: x.numel(),
    )
    graph = mk.trace(Uses("pool"), IMAGE)
    assert graph.traced_on == "meta"  # the operator alone would have needed data
    operator = next(operator for operator in graph.operators if operator.name == "mylib::pool")
    assert operator.outputs[0].shape == (2, 8, 2, 2)
    assert operator.flops() == 2 * 8 * 4 * 4
    graph.forward(IMAGE)
    assert operator.outputs[0].value is not None
    assert operator.outputs[0].value.unique().tolist() == [7.0]


@torchpruner('`operator_register.regist("Pool", onnx_local_pool)`')
def _likeness() -> None:
    mk.axis_rule("mylib::pool", like="aten::avg_pool2d")
    model = Uses("pool")
    mk.plan(mk.trace(model, IMAGE), ratio=0.5).cut(model)
    assert shapes(model)["1.weight"] == (2, 4, 1, 1)


@pytest.mark.parametrize("row", torchpruner.rows, ids=[row.old for row in torchpruner.rows])
def test_row(row: Row) -> None:
    torchpruner.run(row)


def test_every_function_has_its_row() -> None:
    assert torchpruner.without_row() == []
