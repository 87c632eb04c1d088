"""Writing in place: every operator is recorded with what its inputs held when it ran."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.torch_runtime.pytree import leaves, tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode
from modulekg_widgets.engine.tracing.execution import fill_values, run_operator
from modulekg_widgets.engine.tracing.trace import trace_dataflow

Tensor = torch.Tensor


def write_through_a_view(module: Any, x: Tensor) -> Any:
    y = x * 2
    y[:, :2].zero_()
    return y + x


def write_under_a_view(module: Any, x: Tensor) -> Any:
    y = x + 1
    left = y[:, :2]
    y.zero_()
    return left + 1


def write_right_after_the_view(module: Any, x: Tensor) -> Any:
    y = x + 1
    transposed = y.t()
    transposed.mul_(3)
    return y, transposed


def write_a_part_of_a_split(module: Any, x: Tensor) -> Any:
    y = x + 1
    a, b = y.chunk(2, 1)
    a.zero_()
    return y * 2, b + 1, a


def write_what_unbind_gave(module: Any, x: Tensor) -> Any:
    y = x.sin()
    rows = y.unbind(0)
    rows[0].fill_(5)
    rows[1].add_(rows[0])
    return torch.stack(rows), y


def write_twice(module: Any, x: Tensor) -> Any:
    y = x.clone()
    view = y.view(-1)
    first = view * 1
    y += 1
    second = view * 1
    view[::2] = 7
    return first, second, y * view.view_as(y)


def write_and_read_the_view_of_a_view(module: Any, x: Tensor) -> Any:
    y = x.clone()
    inner = y[:, 1:][:, 1:]
    inner[0, 0] = 100
    return y.sum(1), inner.sum(1)


def write_the_input(module: Any, x: Tensor) -> Any:
    x.add_(1)
    return x * 2


def write_a_buffer(module: Any, x: Tensor) -> Any:
    module.counter += 1
    module.memory[0] = x[0]
    return module.memory + module.counter


def write_a_plain_tensor(module: Any, x: Tensor) -> Any:
    module.loose.copy_(x)
    module.loose[1] += 1
    return module.loose @ x.t()


def write_by_index(module: Any, x: Tensor) -> Any:
    y = torch.zeros(4, 4)
    y[torch.tensor([0, 2])] = x[:2]
    y[:, 0] += x[:, 0]
    y.scatter_add_(1, torch.zeros(4, 1, dtype=torch.long), x[:, :1])
    return y


def write_an_out(module: Any, x: Tensor) -> Any:
    out = torch.empty(4, 4)
    view = out[0]
    torch.mul(x, 2, out=out)
    return view + 1, out


def swap_halves(module: Any, x: Tensor) -> Any:
    y = x.clone()
    left = y[:, :2].clone()
    y[:, :2] = y[:, 2:]
    y[:, 2:] = left
    return y


def write_in_a_loop(module: Any, x: Tensor) -> Any:
    y = torch.zeros_like(x)
    for row in range(4):
        y[row] = x[: row + 1].sum(0)
        y[row].relu_()
    return y


def write_lists_of_tensors(module: Any, x: Tensor) -> Any:
    parts = [x.clone(), x.clone()[:2]]
    views = [part[0] for part in parts]
    torch._foreach_add_(parts, 1.0)
    torch._foreach_mul_(parts, [2.0, 3.0])
    return views, parts[0] + 1


def change_the_shape_in_place(module: Any, x: Tensor) -> Any:
    y = x[:, :2].clone()
    z = y.t_()
    return z @ x, y.unsqueeze_(0).squeeze_(0) + 1


def write_a_parameter_without_gradient(module: Any, x: Tensor) -> Any:
    with torch.no_grad():
        module.weight.clamp_(-0.5, 0.5)
    return x @ module.weight


def write_after_a_layer(module: Any, x: Tensor) -> Any:
    y = module.linear(x.unsqueeze(0))  # an unsafe view of what a matrix product gave
    y.relu_()
    return y + x


def one_tensor_written_under_two_names(module: Any, x: Tensor) -> Any:
    y = x.real
    z = y.detach()
    z += 1
    return x * 1, y * 1


WRITING: list[Callable[..., Any]] = [
    write_through_a_view, write_under_a_view, write_right_after_the_view, write_a_part_of_a_split,
    write_what_unbind_gave, write_twice, write_and_read_the_view_of_a_view, write_the_input, write_a_buffer,
    write_a_plain_tensor, write_by_index, write_an_out, swap_halves, write_in_a_loop, write_lists_of_tensors,
    change_the_shape_in_place, write_a_parameter_without_gradient, write_after_a_layer,
    one_tensor_written_under_two_names,
]  # fmt: skip


def model_of(forward: Callable[..., Any]) -> Lambda:
    torch.manual_seed(0)
    model = Lambda(forward, linear=nn.Linear(4, 4), weight=nn.Parameter(torch.randn(4, 4)), loose=torch.zeros(4, 4))
    model.register_buffer("counter", torch.zeros((), dtype=torch.long))
    model.register_buffer("memory", torch.ones(4, 4))
    return model


def on_real_tensors(forward: Callable[..., Any]) -> Callable[..., Any]:
    def changed(module: Any, x: Tensor) -> Any:
        return forward(module, x) if x.isfinite().all() else None

    return changed


def assert_consistent(graph: Dataflow) -> None:
    """What the values of its inputs give is what each operator gave."""
    for operator in graph.operators:
        if torch.Tag.nondeterministic_seeded in operator.overload.tags or not operator.inputs:
            continue
        with torch.no_grad():
            results = run_operator(operator, lambda node: node.value.clone())
        nodes = [node for _, node in leaves(operator.result, DataNode)]
        for node, result in zip(nodes, (tensor for _, tensor in tensors(results)), strict=True):
            if node.consumers or node.is_output:
                assert node.value is not None
                torch.testing.assert_close(node.value, result, rtol=1e-6, atol=1e-7, equal_nan=True, msg=operator.where)


@pytest.mark.parametrize("on", ["meta", "real"])
@pytest.mark.parametrize("forward", WRITING, ids=lambda forward: forward.__name__)
def test_values_are_those_of_the_model(forward: Callable[..., Any], on: str) -> None:
    model = model_of(forward if on == "meta" else on_real_tensors(forward))
    x, other = torch.randn(4, 4), torch.randn(4, 4)
    with unchanged(model, x, other):
        graph = mk.trace(model, x)
        got = graph.forward(other.clone())
    assert graph.traced_on == on
    assert_consistent(graph)
    with torch.no_grad():
        expected = model_of(forward)(other.clone())
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_version_knows_the_one_before() -> None:
    graph = mk.trace(model_of(write_under_a_view), torch.randn(4, 4))
    add, view, zero, last = graph.operators
    y, (left,) = add.outputs[0], view.outputs
    assert [node.previous for node in zero.outputs] == [y, left]
    assert zero.result is zero.outputs[0]
    assert last.inputs == [zero.outputs[1]]
    assert all(node.producer is zero for node in zero.outputs)
    assert y.previous is None
    assert left.consumers == []
    assert graph.outputs == last.outputs


def test_a_value_before_and_after() -> None:
    graph = mk.trace(model_of(write_the_input), torch.zeros(4, 4))
    given = torch.ones(4, 4)
    graph.forward(given)
    (add, mul) = graph.operators
    assert torch.equal(given, torch.ones(4, 4))
    assert torch.equal(add.inputs[0].value, torch.ones(4, 4))
    assert torch.equal(add.outputs[0].value, torch.full((4, 4), 2.0))
    assert mul.inputs == [add.result]
    assert graph.inputs == [add.inputs[0]]


def test_writing_a_parameter_is_no_new_parameter() -> None:
    model = model_of(write_a_parameter_without_gradient)
    graph = mk.trace(model, torch.randn(4, 4))
    (clamp, *_) = graph.operators
    assert graph.state["weight"] is clamp.inputs[0]
    assert not clamp.outputs[0].is_parameter
    assert clamp.outputs[0].previous is graph.state["weight"]


def write_the_same_buffer_in_and_out_of_inference_mode(module: Any, x: Tensor) -> Any:
    with torch.inference_mode():
        y = (x + module.total).clone()
    module.total.add_(1)
    return x * module.total, y


@pytest.mark.parametrize("way", ["meta", "fake", "real"])
def test_values_go_as_in_every_forward_pass(way: str) -> None:
    """Also where others come at their addresses: the graph stays that of the pass."""
    alive: list[bool] = []

    def forward(module: Any, x: Tensor) -> Tensor:
        for _ in range(50):
            y = x * 2
            seen = weakref.ref(y)
            x = y + 1
            del y
            alive.append(seen() is not None)
        return x

    model, x = Lambda(forward), torch.randn(2, 3)
    graph = trace_dataflow(model, x, modes=[way])
    assert graph.traced_on == way
    assert not any(alive)
    assert len(alive) == 50
    chain = [(operator.name, operator.inputs[0]) for operator in graph.operators]
    assert [name for name, _ in chain] == ["aten::mul", "aten::add"] * 50
    assert [node for _, node in chain] == [*graph.inputs, *(operator.outputs[0] for operator in graph.operators[:-1])]
    torch.testing.assert_close(fill_values(graph, (x,), {}), model(x))


def test_a_buffer_that_is_met_in_inference_mode_can_be_written_afterwards() -> None:
    model, x = Lambda(write_the_same_buffer_in_and_out_of_inference_mode), torch.randn(2, 3)
    model.register_buffer("total", torch.randn(2, 3))
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert (graph.traced_on, graph.notes) == ("meta", [])
