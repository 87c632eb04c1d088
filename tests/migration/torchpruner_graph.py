"""The rows of "Coming from TorchPruner" on the graph, its modules, values and operators."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import modulekg_widgets as mk
from migration.models import IMAGE, Grouped, ResNet, new, run, traced
from migration.tables import Rows

graph_rows = Rows()
GONE = {"layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.bn1.running_mean"}


# ----------------------------------------------------------------------- graph


@graph_rows("`ONNXGraph(model)` · `build_graph(inputs)`")
def _graph() -> None:
    model, args = new(ResNet), (IMAGE,)
    graph = mk.trace(model, args)
    assert len(graph.operators) == 25
    assert [node.shape for node in graph.outputs] == [(2, 5)]


@graph_rows("`build_graph(inputs, training=True)`")
def _training() -> None:
    model, args = new(ResNet), (IMAGE,)
    graph = mk.trace(model, args, training=True)
    modes = [op.arguments["training"] for op in graph.operators if op.name == "aten::native_batch_norm"]
    assert modes == [True] * 5
    assert not any(module.training for module in model.modules())


@graph_rows("`build_graph(inputs, fill_value=True)` · `graph.forward(inputs)`")
def _forward() -> None:
    model, x = new(ResNet), IMAGE + 1
    graph = mk.trace(model, IMAGE)
    assert all(value.value is None for value in graph.values)
    torch.testing.assert_close(graph.forward(x), run(model, x))
    torch.testing.assert_close(graph.modules["conv1"].outputs[0].value, model.conv1(x).detach())


@graph_rows("`onnx_device` · `set_device(device)` · `get_device()`")
def _device() -> None:
    model, x = new(ResNet), IMAGE
    graph = mk.trace(model, x)
    graph.forward(x)
    assert _devices(graph) == {"cpu"}
    with torch.device("meta"):
        moving = ResNet().eval()
    graph = mk.trace(moving, torch.empty(IMAGE.shape, device="meta"))
    moving.to_empty(device="cpu").load_state_dict(model.state_dict())
    torch.testing.assert_close(graph.forward(x), run(model, x))  # traced elsewhere, it runs where the model is now
    assert _devices(graph) == {"cpu"}


def _devices(graph: mk.DataflowGraph) -> set[str]:
    return {value.value.device.type for value in graph.values if value.value is not None}


@graph_rows("`graph.flops()`, in millions")
def _flops() -> None:
    graph = mk.trace(nn.Linear(3, 8, bias=False), torch.zeros(5, 3))
    assert graph.flops() == 2 * 5 * 3 * 8
    assert graph.flops().macs == 5 * 3 * 8


@graph_rows('`graph.modules["self.conv1"]`')
def _modules() -> None:
    graph = traced(ResNet)
    assert graph.modules["conv1"].path == "conv1"
    assert list(graph.modules) == [name for name, _ in new(ResNet).named_modules()]


@graph_rows('`graph.nodes["self.conv1.weight"]` · `graph.nodes["110"]`')
def _nodes() -> None:
    graph = traced(ResNet)
    assert graph.values["conv1.weight"].shape == (8, 3, 3, 3)
    value = graph.values[50]
    assert value.index == 50
    assert graph.values[value.name] is value


@graph_rows("`graph.operators`")
def _operators() -> None:
    graph = traced(ResNet)
    assert [operator.index for operator in graph.operators] == list(range(len(graph.operators)))
    assert (graph.operators[0].module, graph.operators[-1].module) == ("conv1", "fc")


# ---------------------------------------------------------------------- module


@graph_rows("`module.nn_object`")
def _object() -> None:
    model = new(ResNet)
    graph = mk.trace(model, IMAGE)
    assert graph.modules["conv1"].module is model.conv1


@graph_rows('`module.sub_modules["conv1"]`')
def _children() -> None:
    graph = traced(ResNet)
    assert graph.modules["layer1.0"].sub_modules["conv1"] is graph.modules["layer1.0.conv1"]


@graph_rows('`module.sub_modules["weight"].terminal_node`')
def _own_tensors() -> None:
    graph = traced(ResNet)
    assert graph.modules["conv1"].params["weight"] is graph.values["conv1.weight"]


@graph_rows("`module.in_data` · `module.out_data` · `module.operators`")
def _around() -> None:
    graph = traced(ResNet)
    module = graph.modules["layer1.0.conv1"]
    (value,), (result,), (operator,) = module.inputs, module.outputs, module.operators
    assert value in operator.inputs
    assert (operator.name, result.producer) == ("aten::convolution", operator)


@graph_rows('`module.cut_analysis("weight", index, dim)`')
def _analysis() -> None:
    graph = traced(ResNet)
    cut = graph.cut_analysis("conv1.weight", index=[0, 1], dim=0)
    readers = {name: dims for name, dims in cut.parameters.items() if 1 in dims}
    assert cut.parameters["conv1.weight"] == cut.parameters["layer1.1.conv2.weight"] == {0: [0, 1]}
    assert readers == {name: {1: [0, 1]} for name in ("layer1.0.conv1.weight", "layer1.1.conv1.weight", "fc.weight")}


@graph_rows('its `"terminal"` · `"iner"` · `"operator"`')
def _parts() -> None:
    graph = traced(ResNet)
    cut = graph.cut_analysis("layer1.0.conv1.weight", index=[1, 4])
    assert cut.parameters.keys() > GONE
    assert cut.values[graph.modules["layer1.0.conv1"].outputs[0].name] == {1: [1, 4]}
    assert cut.attributes == {
        "layer1.0.conv1.out_channels": (6, 4),
        "layer1.0.bn1.num_features": (6, 4),
        "layer1.0.conv2.in_channels": (6, 4),
    }


# ----------------------------------------------------------------------- nodes


@graph_rows("`node.data`")
def _data() -> None:
    model, x = new(ResNet), IMAGE
    graph = mk.trace(model, x)
    graph.forward(x)
    value = graph.modules["conv1"].outputs[0]
    assert value.value is not None
    assert np.allclose(value.value.numpy(), model.conv1(x).detach().numpy(), atol=1e-6)
    value = traced(ResNet).values["conv1.weight"]
    assert value.tensor is not None
    assert torch.equal(value.tensor, model.conv1.weight)


@graph_rows("`node.graph`")
def _graph_of_node() -> None:
    graph = traced(ResNet)
    assert {id(value.graph) for value in graph.values} == {id(graph)}


@graph_rows("`node.in_operator` · `node.out_operators`")
def _neighbours() -> None:
    value = traced(ResNet).modules["bn1"].outputs[0]
    assert value.producer is not None
    assert value.producer.name == "aten::native_batch_norm"
    assert [operator.name for operator in value.consumers] == ["aten::relu"]


@graph_rows("`node.cut_analysis(index, dim)`")
def _analysis_of_node() -> None:
    graph, index, dim = traced(ResNet), [1, 4], 1
    value = graph.modules["layer1.0.conv1"].outputs[0]
    cut = value.cut_analysis(index, dim)
    assert cut.parameters == graph.cut_analysis("layer1.0.conv1.weight", index=index).parameters


@graph_rows("`node.size()` · `node.type()`")
def _size() -> None:
    value = traced(ResNet).modules["conv1"].outputs[0]
    assert value.shape == (2, 8, 4, 4)
    assert value.dtype is torch.float32


@graph_rows("`node.is_terminal()`")
def _terminal() -> None:
    values = traced(ResNet).values
    held = {name for value in values if value.is_parameter or value.is_buffer for name in value.names}
    assert held == set(new(ResNet).state_dict())


@graph_rows("`node.is_input()` · `node.is_output()`")
def _ends() -> None:
    graph = traced(ResNet)
    assert [value.shape for value in graph.values if value.is_input] == [(2, 3, 4, 4)]
    assert [value.shape for value in graph.values if value.is_output] == [(2, 5)]


@graph_rows("`operator.name`")
def _operator_name() -> None:
    operators = traced(ResNet).operators
    assert len({operator.index for operator in operators}) == len(operators)
    assert {operator.module for operator in operators} >= {"conv1", "layer1.0", "layer1.0.conv1", "fc"}


@graph_rows("`operator.type` · `operator.protocal`")
def _operator_type() -> None:
    operator = traced(ResNet).operators[0]
    assert operator.name == "aten::convolution"


@graph_rows('`operator.params["strides"]`')
def _operator_arguments() -> None:
    graph = mk.trace(nn.Conv2d(4, 8, 3, stride=2, groups=2), torch.zeros(1, 4, 9, 9))
    operator = graph.operators[0]
    assert operator.arguments["stride"] == [2, 2]
    assert (operator.arguments["groups"], operator.arguments["transposed"]) == (2, False)
    assert operator.arguments["weight"] is graph.values["weight"]


@graph_rows("`operator.in_data` · `operator.out_data`")
def _operator_data() -> None:
    graph = mk.trace(nn.Conv2d(3, 8, 1), IMAGE)
    operator = graph.operators[0]
    x, weight, bias = operator.inputs
    assert (x.is_input, weight.name, bias.name) == (True, "weight", "bias")
    assert operator.outputs == graph.outputs


@graph_rows("`operator.flops()`")
def _operator_flops() -> None:
    graph = traced(ResNet)
    operator = graph.operators[0]
    assert operator.flops() == 2 * (2 * 4 * 4) * 8 * 3 * 9
    assert sum(each.flops() or 0 for each in graph.operators) == graph.flops()


@graph_rows("`operator.analysis(node, mask)`")
def _operator_analysis() -> None:
    module = traced(ResNet).modules["layer1.0.conv1"]
    operator, value, mask = module.operators[0], module.outputs[0], {1: [1, 4]}
    found = {each.name: dims for each, dims in operator.analysis(value, mask).items()}
    assert found == {"layer1.0.conv1.weight": {0: [1, 4]}, value.name: {1: [1, 4]}}  # and nothing beyond it


@graph_rows("`Mask(shape)` · `create_mask(shape, indexs, dims)`")
def _mask() -> None:
    module = traced(ResNet).modules["layer1.0.conv1"]
    operator, value = module.operators[0], module.outputs[0]
    mask = np.ones(value.shape)
    mask[:, [1, 4]] = 0
    dim, index = 1, [1, 4]
    assert operator.analysis(value, mask) == operator.analysis(value, {dim: index})


@graph_rows("`operator.fill_shape()`")
def _fill_shape() -> None:
    for value in traced(Grouped).values:
        assert value.shape is not None
        assert value.value is None  # nothing was computed for them
    assert traced(Grouped).traced_on == "meta"


@graph_rows("`operator.fill_value()`")
def _fill_value() -> None:
    x = IMAGE
    graph = mk.trace(new(Grouped), x)
    graph.forward(x)
    assert all(value.value is not None for value in graph.values)
