"""The views of a graph: values, operators and modules, who made what and who reads it."""

import pytest
import torch
from torch import nn
from torchvision import models

import modulekg_widgets as mk
from models.functional import Lambda
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.tracing.dataflow import DataNode, ModuleNode


@pytest.fixture(scope="module")
def graph() -> DataflowGraph:
    return mk.trace(models.resnet18().eval(), torch.randn(1, 3, 64, 64))


def test_a_module(graph: DataflowGraph) -> None:
    node = graph.modules["layer1.0.conv1"]
    assert isinstance(node, ModuleNode)
    assert node.module is graph.model.layer1[0].conv1
    (operator,) = node.operators
    assert operator.name == "aten::convolution"
    assert operator.module == "layer1.0.conv1"
    assert [x.shape for x in node.inputs] == [(1, 64, 16, 16)]
    assert node.outputs == operator.outputs
    assert node.outputs[0].producer is operator
    assert node.params == {"weight": graph.state["layer1.0.conv1.weight"]}
    assert operator.params == [graph.state["layer1.0.conv1.weight"]]
    assert operator.inputs == [*node.inputs, *operator.params]
    assert operator.args[:2] == (operator.inputs[0], operator.inputs[1])
    assert operator.result is node.outputs[0]


def test_a_container(graph: DataflowGraph) -> None:
    block = graph.modules["layer1.0"]
    assert list(block.sub_modules) == ["conv1", "bn1", "relu", "conv2", "bn2"]
    assert block.sub_modules["conv1"] is graph.modules["layer1.0.conv1"]
    names = [operator.name.removeprefix("aten::") for operator in block.operators if operator.inputs]
    half = ["convolution", "native_batch_norm"]
    assert names == [*half, "relu_", *half, "add_", "relu_"]
    assert len(graph.modules["layer1.0.relu"].calls) == 2
    assert len(graph.modules["layer1.0.relu"].operators) == 2
    assert graph.modules[""].operators == graph.operators
    assert graph.modules[""].inputs == graph.inputs
    assert graph.modules[""].outputs == graph.outputs
    assert set(graph.modules) == {name for name, _ in graph.model.named_modules()}


def test_the_shortcut_has_two_readers(graph: DataflowGraph) -> None:
    (entering,) = graph.modules["layer1.0"].inputs
    assert [operator.module for operator in entering.consumers] == ["layer1.0.conv1", "layer1.0"]
    assert entering.producer is graph.modules["maxpool"].operators[-1]
    (added,) = [operator for operator in entering.consumers if operator.name == "aten::add_"]
    assert added.inputs[1] is entering


def test_flags(graph: DataflowGraph) -> None:
    (image,), (logits,) = graph.inputs, graph.outputs
    assert (image.is_input, image.is_output, image.is_parameter, image.name) == (True, False, False, "x")
    assert (logits.is_input, logits.is_output, logits.shape) == (False, True, (1, 1000))
    weight, mean = graph.state["conv1.weight"], graph.state["bn1.running_mean"]
    assert (weight.is_parameter, weight.is_buffer, weight.is_input, weight.is_output) == (True, False, False, False)
    assert (mean.is_parameter, mean.is_buffer) == (False, True)
    assert weight.dtype is torch.float32
    assert (weight.dim(), weight.numel(), weight.nbytes) == (4, 9408, 37632)
    assert set(graph.state) == set(graph.model.state_dict())
    assert [node.name for node in graph.unread if not node.name.endswith("num_batches_tracked")] == []


def test_producers_and_consumers_agree(graph: DataflowGraph) -> None:
    for operator in graph.operators:
        assert graph.operators[operator.index] is operator
        assert all(node.producer is operator for node in operator.outputs)
        assert all(operator in node.consumers for node in operator.inputs)
    for node in graph.values:
        assert graph.values[node.index] is node
        assert node.producer is None or node in node.producer.outputs
        assert all(node in operator.inputs for operator in node.consumers)


def test_values_are_found_by_name_and_index(graph: DataflowGraph) -> None:
    assert graph.values["fc.weight"] is graph.state["fc.weight"]
    (convolved,) = graph.modules["layer1.0.conv1"].outputs
    assert convolved.name == f"layer1.0.conv1:convolution_{convolved.producer.index}"
    assert graph.values[convolved.name] is convolved
    assert graph.values[0] is graph.state["conv1.weight"]
    assert all(isinstance(node, DataNode) for node in graph.values[:3])
    with pytest.raises(mk.ModuleKGError, match=r"no value 'fc\.wait'.*fc\.weight"):
        graph.values["fc.wait"]
    with pytest.raises(mk.ModuleKGError, match=r"no module 'layer1\.0\.conv7'.*layer1\.0\.conv1"):
        graph.modules["layer1.0.conv7"]


def test_texts_say_what_a_thing_is(graph: DataflowGraph) -> None:
    counts = f"{len(graph.operators)} operators, {len(graph.values)} values, 68 modules"
    assert repr(graph) == f"<DataflowGraph of ResNet: {counts}, on meta>"
    assert repr(graph.state["fc.weight"]) == "<fc.weight: parameter [1000, 512] float32>"
    assert repr(graph.modules["fc"]) == "<fc: Linear, 1 calls, 2 operators>"
    assert graph.operators[0].where.startswith("aten::convolution in conv1, torchvision/models/resnet.py:")


def test_a_tied_parameter_is_one_value_with_two_names() -> None:
    embedding, head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
    head.weight = embedding.weight
    graph = mk.trace(nn.Sequential(embedding, head), torch.tensor([1, 2]))
    assert graph.state["0.weight"] is graph.state["1.weight"]
    assert graph.state["0.weight"].names == ("0.weight", "1.weight")
    assert graph.values["1.weight"] is graph.state["0.weight"]
    assert [operator.name for operator in graph.state["0.weight"].consumers] == ["aten::embedding", "aten::t"]
    assert sum(node.is_parameter for node in graph.values) == 1


def test_a_shared_module_is_found_under_each_path() -> None:
    shared = nn.Sequential(nn.Linear(4, 4))
    graph = mk.trace(nn.ModuleDict({"a": shared, "b": shared})["a"], torch.randn(2, 4))
    assert list(graph.state) == ["0.weight", "0.bias"]
    graph = mk.trace(nn.Sequential(shared, nn.ReLU(), shared), torch.randn(2, 4))
    assert graph.modules["2.0"] is graph.modules["0.0"]
    assert graph.state["2.0.weight"] is graph.state["0.0.weight"]
    assert graph.state["0.0.weight"].names == ("0.0.weight", "2.0.weight")
    assert len(graph.modules["0.0"].calls) == 2
    assert {operator.module for operator in graph.operators} == {"0.0", "1"}


def test_a_parameter_that_is_not_read() -> None:
    model = Lambda(lambda module, x: module.used(x), used=nn.Linear(4, 4), spare=nn.Linear(4, 4))
    graph = mk.trace(model, torch.randn(2, 4))
    assert {node.name for node in graph.unread} == {"spare.weight", "spare.bias"}


def test_a_module_that_is_nobodys_child() -> None:
    """Its operators are its caller's, and its parameters are constants to the model."""
    model = Lambda(lambda module, x: module.loose[0](x) + 1, loose=[nn.Linear(4, 4)], inside=nn.Identity())
    graph = mk.trace(nn.Sequential(model), torch.randn(2, 4))
    assert [operator.module for operator in graph.operators] == ["0", "0", "0"]
    assert len(graph.modules["0"].calls) == 1
    assert len(graph.modules["0"].operators) == 3
    assert graph.state == {}


def test_a_module_that_calls_itself() -> None:
    def forward(module: nn.Module, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        x = module.linear(x)
        return module(x, depth - 1) if depth else x + 1

    graph = mk.trace(nn.Sequential(Lambda(forward, linear=nn.Linear(4, 4))), torch.randn(2, 4))
    assert len(graph.modules["0"].calls) == 3
    assert graph.modules["0"].operators == graph.operators
    assert graph.modules["0"].flops().total == graph.flops().total == 3 * 2 * 2 * 4 * 4 + 8


def test_inputs_of_a_module_are_what_it_was_called_with() -> None:
    """By keyword too, and before the module wrote into them."""

    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return module.inner(x, scale=x * 2)

    inner = Lambda(lambda module, x, scale: scale.add_(x))
    graph = mk.trace(Lambda(forward, inner=inner), torch.randn(2, 4))
    (multiplied, added) = graph.operators
    assert graph.modules["inner"].inputs == [graph.inputs[0], multiplied.outputs[0]]
    assert graph.modules["inner"].outputs == added.outputs


@pytest.mark.parametrize("training", [True, False, None])
def test_the_mode_of_the_trace(training: bool | None) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    model[2].eval()
    graph = mk.trace(model, torch.randn(2, 4), training=training)
    names = [operator.name for operator in graph.operators]
    assert ("aten::bernoulli_" in names) == (training is not False)
    (norm,) = [operator for operator in graph.operators if operator.name == "aten::native_batch_norm"]
    assert norm.args[5] is (training is True)
    assert [module.training for module in model] == [True, True, False]


def test_data_dependent_ways_are_listed() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = module.linear(x)
        return x[x > 0]

    graph = mk.trace(Lambda(forward, linear=nn.Linear(4, 4)), torch.ones(2, 4))
    assert graph.traced_on == "real"
    assert "linear" in {operator.module for operator in graph.operators}
    assert {entry.operator for entry in graph.data_dependent} >= {"aten::_local_scalar_dense"}
    (first, *_) = graph.data_dependent
    assert first.source.startswith("tracing/test_graph.py:")
    negative = mk.trace(Lambda(forward, linear=nn.Linear(4, 4)), -torch.ones(2, 4))
    assert "linear" not in {operator.module for operator in negative.operators}


def test_what_no_data_decide_is_not_listed() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(3)
        return x * steps.sum().item() + int(torch.tensor(2))

    graph = mk.trace(Lambda(forward), torch.ones(2, 4))
    assert graph.traced_on == "meta"
    assert graph.data_dependent == []
