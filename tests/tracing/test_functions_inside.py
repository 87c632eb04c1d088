"""Operators that take functions, tensors inside of vmap, and nested tensors: recorded as the operators inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import modulekg_widgets as mk
from models.functional import Lambda
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.torch_runtime.private import HigherOrderOperator
from modulekg_widgets.engine.torch_runtime.pytree import nested_rows

Forward = Callable[..., Tensor]
OFFSETS = torch.tensor([0, 2, 3, 6])


def _seeded(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.5
    return model.eval().requires_grad_(False)


def _cut_and_back(model: nn.Module, given: tuple[Any, ...], per_axis: dict[str, float], *, proved: bool = True) -> Any:
    """A cut by half: the graph, its plan and the output of the cut model; undone, the model gives what it gave."""
    before = model(*given)
    graph = mk.trace(model, given)
    if proved:
        names = {proof.axis for proof in graph.axes.verify().proofs if proof.status == "proved"}
        assert set(per_axis) <= names
    plan = mk.plan(graph, per_axis=per_axis)
    receipt = plan.cut(model)
    after = model(*given)
    receipt.undo()
    again = model(*given)
    assert torch.equal(before, again)
    return graph, plan, after


# ------------------------------------------------------------------------- vmap


def _member() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def _ensemble(model: Any, x: Tensor) -> Tensor:
    state = stack_module_state(list(model.members))
    call = vmap(lambda state, x: functional_call(model.members[0], state, (x,)), in_dims=(0, None))
    return call(state, x).mean(0)


def test_an_ensemble_by_vmap_is_one_batch_of_products() -> None:
    model = _seeded(Lambda(_ensemble, members=nn.ModuleList(_member() for _ in range(3))))
    x = torch.randn(4, 6)
    axis = "members.0.0.weight.dim0"
    graph, _, after = _cut_and_back(model, (x,), {axis: 0.5})
    assert after.shape == (4, 3)
    assert graph.unknown == graph.flops().unknown == []
    assert graph.flops().macs == 3 * 4 * (6 * 8 + 8 * 3)
    # every weight of the three members that the hidden units meet
    assert len(graph.axes[axis].members) == 9
    assert mk.ForwardPlayer(model, x).steps[0].outputs[0].sizes == (4, 3)
    assert mk.ModelGraph(model, x) is not None


def test_weights_that_are_stacked_once_run_through_a_skeleton() -> None:
    skeleton = _member().to("meta")

    def forward(model: Any, x: Tensor) -> Tensor:
        weights = {name.replace("_", "."): weight for name, weight in model.weights.items()}
        return vmap(lambda own, x: functional_call(skeleton, own, (x,)), in_dims=(0, None))(weights, x).mean(0)

    state, _ = stack_module_state([_member() for _ in range(3)])
    stacked = {name.replace(".", "_"): nn.Parameter(value.detach()) for name, value in state.items()}
    model = _seeded(Lambda(forward, weights=nn.ParameterDict(stacked)))
    _, plan, after = _cut_and_back(model, (torch.randn(4, 6),), {"weights.0_weight.out": 0.5})
    assert after.shape == (4, 3)
    assert plan.params[1] == 3 * (4 * 6 + 4 + 3 * 4 + 3)


def test_samples_one_by_one_are_a_batch() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return vmap(lambda row: model.b(torch.relu(model.a(row))))(x)

    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    graph, _, after = _cut_and_back(model, (torch.randn(4, 6),), {"a.out": 0.5})
    assert after.shape == (4, 3)
    assert graph.flops().macs == 4 * (6 * 8 + 8 * 3)


def test_vmap_inside_of_vmap() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return vmap(vmap(lambda row: model.b(model.a(row).tanh())), in_dims=1, out_dims=1)(x)

    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    _, _, after = _cut_and_back(model, (torch.randn(2, 4, 6),), {"a.out": 0.5})
    assert after.shape == (2, 4, 3)


# ---------------------------------------------------------------- flex_attention


def _attention(attend: Forward) -> nn.Module:
    def forward(model: Any, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (model.q, model.k, model.v)
        )  # fmt: skip
        return model.out(attend(model, q, k, v).transpose(1, 2).flatten(2))

    # a bias of keys is the same for all of them, and softmax drops it: nothing proves it
    layers = {name: nn.Linear(32, 32, bias=name != "k") for name in ("q", "k", "v", "out")}
    return _seeded(Lambda(forward, **layers))


def _causal(length: int) -> Any:
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cpu")


@pytest.mark.parametrize(
    "attend",
    [
        lambda model, q, k, v: flex_attention(q, k, v),
        lambda model, q, k, v: torch.compile(flex_attention)(q, k, v),
        lambda model, q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - 0.1 * (i - j).abs()),
        lambda model, q, k, v: flex_attention(q, k, v, block_mask=_causal(q.shape[2])),
    ],
    ids=["plain", "compiled", "score_mod", "block_mask"],
)
@pytest.mark.slow
def test_flex_attention_is_attention(attend: Forward) -> None:
    model, x = _attention(attend), torch.randn(2, 16, 32)
    graph, plan, after = _cut_and_back(model, (x,), {"heads": 0.5})
    assert after.shape == (2, 16, 32)
    assert plan.params[1] == 3 * 16 * 32 + 2 * 16 + 32 * 16 + 32
    assert graph.unknown == graph.flops().unknown == []
    products = 4 * 2 * 16 * 32 * 32 + 2 * 2 * 16 * 16 * 32  # the layers; scores and sums of values of all heads
    assert graph.flops().macs == products
    assert [step.path for step in mk.ForwardPlayer(model, x).steps] == ["", "q", "k", "v", "out"]


def test_a_bias_per_head_that_a_score_function_looks_up_keeps_the_heads() -> None:
    def attend(model: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + model.bias.weight[h, 0])

    model = _attention(attend)
    model.bias = nn.Linear(1, 4).requires_grad_(False)
    graph = mk.trace(model.eval(), torch.randn(2, 16, 32))
    (axis,) = [axis for axis in graph.axes if any(member.name == "bias.weight" for member in axis.members)]
    assert axis.frozen
    assert "looked up by index" in str(axis.frozen)


# ------------------------------------------------------ cond, scan, while_loop, map


def test_both_branches_of_cond_are_cut() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        h = model.a(x).relu()
        return model.out(torch.cond(h.sum() > 0, lambda h: model.yes(h), lambda h: model.no(h).tanh(), (h,)))

    layers = {"a": nn.Linear(6, 8), "yes": nn.Linear(8, 10), "no": nn.Linear(8, 10), "out": nn.Linear(10, 3)}
    model = _seeded(Lambda(forward, **layers))
    graph, plan, after = _cut_and_back(model, (torch.randn(4, 6),), {"a.out": 0.5, "yes.out": 0.5}, proved=False)
    assert after.shape == (4, 3)
    assert plan.params[1] == 4 * 7 + 2 * 5 * 5 + 3 * 6
    assert {member.name for member in graph.axes["yes.out"].members} >= {"yes.weight", "no.weight", "out.weight"}
    assert graph.flops().macs == 4 * (6 * 8 + 2 * 8 * 10 + 10 * 3)
    assert "both branches of torch.cond" in graph.notes[0]
    # the other branch runs after the cut as well
    receipt = plan.cut(model)
    model.a.bias -= 100
    assert model(torch.randn(4, 6)).shape == (4, 3)
    receipt.undo()


def test_branches_of_other_shapes_are_refused() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x[:1], lambda x: x[:2], (x,))

    with pytest.raises(TraceError, match=r"the branches of torch\.cond give tensors of other shapes"):
        mk.trace(Lambda(forward), torch.randn(4, 6))


def _scanned(model: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops import scan

    h = model.a(x)

    def step(carry: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        new = (model.w(carry) + frame).tanh()
        return new, new.clone()

    return model.out(scan(step, torch.zeros_like(h[0]), h, dim=0)[1])


def _looped(model: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops import while_loop

    done = torch.tensor(0)
    return model.out(while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, model.w(h).tanh()), (done, model.a(x)))[1])


def _looped_by_data(model: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops import while_loop

    (h,) = while_loop(lambda h: h.abs().sum() > 1, lambda h: (model.w(h * 0.01),), (model.a(x),))
    return model.out(h)


def _associative(model: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops import associative_scan

    return model.out(associative_scan(lambda a, b: a * 0.5 + b, model.w(model.a(x)), 0, combine_mode="generic"))


def _mapped(model: Any, x: Tensor) -> Tensor:
    from torch._higher_order_ops.map import map as over_rows

    return model.out(over_rows(lambda row: model.w(row).relu(), model.a(x)))


@pytest.mark.parametrize("forward", [_scanned, _looped, _associative, _mapped])
def test_loops_are_recorded_step_by_step(forward: Forward) -> None:
    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), w=nn.Linear(8, 8), out=nn.Linear(8, 3)))
    x = torch.randn(4, 6)
    graph = mk.trace(model, x)
    half = dict.fromkeys((axis.name for axis in graph.axes.free), 0.5)
    graph, _, after = _cut_and_back(model, (x,), half)
    assert after.shape == (4, 3)
    assert graph.unknown == graph.flops().unknown == []
    assert mk.ForwardPlayer(model, x).steps[-1].path == "out"
    assert mk.ModelGraph(model, x) is not None


def test_a_loop_that_data_end_is_recorded_as_it_ran() -> None:
    model = _seeded(Lambda(_looped_by_data, a=nn.Linear(6, 8), w=nn.Linear(8, 8, bias=False), out=nn.Linear(8, 3)))
    graph = mk.trace(model, torch.randn(4, 6))
    assert graph.traced_on == "real"
    assert graph.data_dependent
    assert graph.modules["w"].calls


def test_importances_hear_the_layers_inside_of_a_branch() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        h = model.a(x)
        return model.out(torch.cond(h.sum() > -1e9, lambda h: model.yes(h).relu(), lambda h: model.no(h), (h,)))

    layers = {"a": nn.Linear(6, 8), "yes": nn.Linear(8, 10), "no": nn.Linear(8, 10), "out": nn.Linear(10, 3)}
    model, x = _seeded(Lambda(forward, **layers)), torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), per_axis={"yes.out": 0.5}, importance="activation")
    assert plan.params[1] < plan.params[0]


# ------------------------------------------------------------------ nested tensors


def _by_lengths(model: Any, x: Tensor, offsets: Tensor) -> Tensor:
    rows = torch.nested.nested_tensor_from_jagged(model.first(x).relu(), offsets)
    return model.out(F.gelu(model.norm(model.a(rows)))).sum(dim=1)


def _padded(model: Any, x: Tensor, offsets: Tensor) -> Tensor:
    rows = torch.nested.nested_tensor_from_jagged(model.first(x).relu(), offsets)
    return model.out(model.norm(model.a(rows)).to_padded_tensor(0.0))


def _given_nested(model: Any, rows: Tensor) -> Tensor:
    return model.out(model.norm(model.a(model.first(rows).relu()))).to_padded_tensor(0.0)


_ROWS = [torch.randn(2, 4), torch.randn(1, 4), torch.randn(3, 4)]


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        (_by_lengths, (torch.randn(6, 4), OFFSETS)),
        (_padded, (torch.randn(6, 4), OFFSETS)),
        (_given_nested, (torch.nested.nested_tensor(_ROWS, layout=torch.jagged),)),
    ],
)  # fmt: skip
def test_a_jagged_tensor_is_all_of_its_rows(forward: Forward, given: tuple[Any, ...]) -> None:
    layers = {"first": nn.Linear(4, 10), "a": nn.Linear(10, 8), "norm": nn.LayerNorm(8), "out": nn.Linear(8, 4)}
    model = _seeded(Lambda(forward, **layers))
    graph, plan, after = _cut_and_back(model, given, {"first.out": 0.5, "a.out": 0.5})
    assert after.shape[-1] == 4
    assert plan.params[1] == 5 * 5 + 4 * 6 + 8 + 4 * 5
    assert graph.unknown == graph.flops().unknown == []
    # the padded ones run through the last layer as well; without a maximum, torch pads three samples to six rows each
    rows = 18 if forward is _padded else 6
    assert graph.flops().macs == 6 * (4 * 10 + 10 * 8) + rows * 8 * 4
    assert mk.ForwardPlayer(model, given).steps[0].path == ""
    assert torch.allclose(graph.forward(*given), model(*given), atol=1e-6)


def test_a_nested_tensor_without_jagged_layout_keeps_its_layers_and_no_others() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        h = model.b(model.a(x).relu())
        rows = model.inner(torch.nested.as_nested_tensor([h[:2], h[:1]]))
        return model.out(model.c(torch.nested.to_padded_tensor(rows, 0.0)).relu())

    layers = {name: nn.Linear(8, 8) for name in ("b", "inner", "c")}
    model = _seeded(Lambda(forward, a=nn.Linear(4, 8), out=nn.Linear(8, 3), **layers))
    x = torch.randn(3, 4)
    graph, plan, after = _cut_and_back(model, (x,), {"a.out": 0.5, "c.out": 0.5})
    assert after.shape == (2, 2, 3)
    assert [axis.name for axis in graph.axes.free] == ["a.out", "c.out"]
    assert "rows of several lengths" in str(graph.axes["inner.out"].frozen)
    assert {"aten::linear"} <= {entry.operator for entry in graph.flops().unknown}
    assert plan.params[1] == plan.params[0] - 4 * (4 + 1 + 8) - 4 * (8 + 1 + 3)
    assert [step.path for step in mk.ForwardPlayer(model, x).steps] == ["", "a", "b", "inner", "c", "out"]
    assert torch.allclose(graph.forward(x), model(x), atol=1e-6)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_inputs_are_all_of_their_rows_wherever_they_are_shown(layout: torch.layout) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    rows = torch.nested.nested_tensor(_ROWS, layout=layout)
    graph = mk.trace(model, rows)
    assert graph.axes.verify().ok
    assert torch.equal(nested_rows(graph.forward(rows)), model(rows).values())
    step = mk.ForwardPlayer(model, rows).steps[1]
    assert step.inputs[0].sizes == tuple(rows.values().shape)
    assert step.statistics is not None
    assert step.statistics.count == 6 * 8
    for widget in (mk.ForwardPlayer(model, rows), mk.MaskEditor(model, rows), mk.ModelGraph(model, rows)):
        json.dumps(widget.get_state(), default=lambda value: memoryview(value).nbytes)


def test_attention_over_nested_tensors_keeps_its_layers() -> None:
    def forward(model: Any, x: Tensor, offsets: Tensor) -> Tensor:
        rows = torch.nested.nested_tensor_from_jagged(model.first(x).relu(), offsets)
        q, k, v = (layer(rows).unflatten(-1, [2, 4]).transpose(1, 2) for layer in (model.q, model.k, model.v))
        return model.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)).values()

    layers = {name: nn.Linear(8, 8) for name in ("q", "k", "v")}
    model = _seeded(Lambda(forward, first=nn.Linear(4, 8), out=nn.Linear(8, 4), **layers))
    _, plan, after = _cut_and_back(model, (torch.randn(6, 4), OFFSETS), {"first.out": 0.5})
    assert after.shape == (6, 4)
    assert plan.params[1] == plan.params[0] - 4 * (4 + 1 + 3 * 8)


# ------------------------------------------------- sparse matrices, halves as complex numbers, derivatives by jvp

_PATH = torch.eye(5) + torch.diag(torch.ones(4), 1)  # nine edges


def _sparse(model: Any, x: Tensor) -> Tensor:
    return model.b(torch.sparse.mm(model.A, model.a(x)).relu())


def _with_at(model: Any, x: Tensor) -> Tensor:
    return model.b((model.A @ model.a(x)).relu())


def _from_left(model: Any, x: Tensor) -> Tensor:
    return model.b((model.a(x).T @ model.A).T.relu())


def _twice(model: Any, x: Tensor) -> Tensor:
    return model.b(torch.sparse.mm(model.A, torch.sparse.mm(model.A, model.a(x))).relu())


@pytest.mark.parametrize("stored", [Tensor.to_sparse, Tensor.to_sparse_csr])
@pytest.mark.parametrize(("forward", "products"), [(_sparse, 1), (_with_at, 1), (_from_left, 1), (_twice, 2)])
def test_a_sparse_adjacency_meets_the_nodes_alone(
    stored: Callable[[Tensor], Tensor], forward: Forward, products: int
) -> None:
    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    model.register_buffer("A", stored(_PATH))
    graph, plan, after = _cut_and_back(model, (torch.randn(5, 6),), {"a.out": 0.5})
    assert after.shape == (5, 3)
    assert graph.unknown == graph.flops().unknown == []
    # what is stored is multiplied, and nothing else
    assert graph.flops().macs == 5 * 6 * 8 + products * 9 * 8 + 5 * 8 * 3
    assert plan.params == (83, 43)
    assert [axis.name for axis in graph.axes.free] == ["a.out"]


def test_a_sparse_matrix_that_is_given_or_made_of_edges() -> None:
    def forward(model: Any, x: Tensor, adjacency: Tensor, edges: Tensor) -> Tensor:
        made = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (5, 5))
        return model.b((torch.sparse.mm(made, model.a(x)) + adjacency @ model.a(x)).relu())

    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    given = (torch.randn(5, 6), _PATH.to_sparse(), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    graph, _, after = _cut_and_back(model, given, {"a.out": 0.5})
    assert after.shape == (5, 3)
    assert [entry.operator for entry in graph.flops().unknown] == ["aten::_sparse_addmm"]


def test_a_sparse_weight_keeps_its_dimensions() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return model.b(torch.sparse.mm(model.W, model.a(x).T).T.relu())

    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(7, 3)))
    model.register_buffer("W", torch.randn(7, 8).relu().to_sparse())
    graph = mk.trace(model, torch.randn(5, 6))
    assert list(graph.axes.free) == []
    assert "the buffer W is sparse" in str(graph.axes["a.out"].frozen)


def test_the_values_of_a_sparse_matrix_are_as_many_as_it_stores() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return model.b(model.a(x).relu()) * model.A.coalesce().values().sum()

    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    model.register_buffer("A", _PATH.to_sparse())
    graph, _, _ = _cut_and_back(model, (torch.randn(5, 6),), {"a.out": 0.5})
    assert next(op for op in graph.operators if op.name == "aten::values").outputs[0].shape == (9,)


def _complex(model: Any, h: Tensor) -> Tensor:
    half = h.shape[-1] // 2
    z = torch.complex(h[..., :half], h[..., half:])
    return torch.cat([(z * z.conj()).real, torch.fft.fft(z, dim=0).imag], -1)


@pytest.mark.parametrize(
    "inside",
    [
        _complex,
        lambda model, h: torch.complex(*h.half().chunk(2, -1)).real.float().repeat(1, 2),
        lambda model, h: torch.view_as_real(torch.complex(*h.chunk(2, -1)) * model.phase).flatten(-2),
    ],
)
def test_halves_as_complex_numbers(inside: Forward) -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return model.b(inside(model, model.a(x)))

    model = _seeded(Lambda(forward, a=nn.Linear(6, 16), b=nn.Linear(16, 3)))
    model.register_buffer("phase", torch.polar(torch.ones(8), torch.arange(8.0)))
    graph, _, after = _cut_and_back(model, (torch.randn(5, 6),), {"a.out": 0.5})
    assert after.shape == (5, 3)
    assert graph.unknown == graph.flops().unknown == []


def _with_derivative(model: Any, x: Tensor) -> Tensor:
    value, slope = torch.func.jvp(lambda x: model.b(model.a(x).tanh()), (x,), (torch.ones_like(x),))
    return value + slope


def _slope_of_weights(model: Any, x: Tensor) -> Tensor:
    inner = torch.func.jvp(lambda h: model.b(F.gelu(h)), (model.a(x),), (model.a(2 * x),))
    return inner[1]


@pytest.mark.parametrize("forward", [_with_derivative, _slope_of_weights])
def test_a_derivative_by_jvp(forward: Forward) -> None:
    model = _seeded(Lambda(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 3)))
    graph, plan, after = _cut_and_back(model, (torch.randn(5, 6),), {"a.out": 0.5})
    assert after.shape == (5, 3)
    assert graph.unknown == graph.flops().unknown == []
    assert plan.params == (83, 43)
    assert mk.ForwardPlayer(model, torch.randn(5, 6)).steps[0].path == ""


# --------------------------------------------------------------- what cannot be recorded


class _Doubled(HigherOrderOperator):
    """An operator of a user's that takes a function, and that nobody knows the parts of."""

    def __init__(self) -> None:
        super().__init__("doubled_by_a_user")

    def __call__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return super().__call__(function, x)


_doubled = _Doubled()
_doubled.py_impl(torch._C.DispatchKey.CPU)(lambda function, x: 2 * function(x))


@_doubled.py_impl(torch._C.DispatchKey.Autograd)
def _without_gradients(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return _doubled(function, x)


def test_a_model_that_runs_is_not_said_to_raise() -> None:
    def forward(model: Any, x: Tensor) -> Tensor:
        return _doubled(model.a, x)

    model, x = _seeded(Lambda(forward, a=nn.Linear(6, 8))), torch.randn(4, 6)
    assert torch.equal(model(x), 2 * model.a(x))
    with pytest.raises(TraceError, match="the operators that doubled_by_a_user is made of are not known") as caught:
        mk.trace(model, x)
    assert "the model itself runs with them" in str(caught.value)
    assert "same error" not in str(caught.value)
    with pytest.raises(TraceError, match="run model") as caught:
        mk.trace(Lambda(lambda model, x: model.a(x).view(5, 5), a=nn.Linear(6, 8)), x)
    assert "the model itself runs" not in str(caught.value)
