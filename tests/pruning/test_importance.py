"""Scores by name, by object and by function: their shape, what they leave alone, and what is said when they fail."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from axes.checks import seeded
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, DuplicateNameError, UnknownNameError
from modulekg_widgets.engine.pruning.activations import Activation
from modulekg_widgets.engine.pruning.criteria import L1, Criterion, Hessian, Taylor
from modulekg_widgets.engine.pruning.importance import Group, criteria, importance, normalised, score

Tensor = torch.Tensor


class Net(nn.Module):
    """A residual network in small, with a dropout, a concatenation and two heads of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Conv2d(8, 6, 1)
        self.back = nn.Conv2d(6, 8, 1, groups=2)
        self.dropout = nn.Dropout(0.5)
        self.project = nn.Linear(14, 12)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = F.relu(self.inner(x))
        x = torch.cat([x + self.back(y), y], 1).flatten(2).transpose(1, 2)
        x = self.project(self.dropout(x))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def labels(batch: int = 2) -> Tensor:
    return torch.arange(batch) % 3


def traced(mode: bool = False) -> tuple[Net, mk.DataflowGraph]:
    model = seeded(Net).train(mode)
    for name, tensor in model.named_parameters():
        if tensor.dim() == 1:  # no two entries alike
            values = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name)))
            tensor.data = values.abs() + 0.5 if "norm" in name else values
    return model, mk.trace(model, (image(),))


def terms(graph: mk.DataflowGraph) -> list[Any]:
    return [axis.term for axis in graph.axes.free]


def pairs() -> list[Any]:
    return [(image(), labels()), (2 * image(5), labels(5))]


CRITERIA: dict[str, Callable[[], Any]] = {
    "l1": lambda: "l1",
    "l2": lambda: "l2",
    "bn_scale": lambda: "bn_scale",
    "fpgm": lambda: "fpgm",
    "random": lambda: "random",
    "activation": lambda: "activation",
    "activation over batches": lambda: Activation(pairs(), "std"),
    "taylor": lambda: Taylor(pairs(), F.cross_entropy),
    "hessian": lambda: Hessian(pairs(), nn.CrossEntropyLoss()),
    "a function": lambda: lambda group: sum(member.tensor.abs().mean(1) for member in group.members),
}
each_criterion = pytest.mark.parametrize("make", CRITERIA.values(), ids=CRITERIA.keys())


@each_criterion
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_every_axis_has_a_finite_number_per_index(make: Any, dtype: torch.dtype) -> None:
    model, _ = traced()
    graph = mk.trace(model.to(dtype), (image().to(dtype),))
    batches = [(x.to(dtype), y) for x, y in pairs()]
    criterion = make()
    if hasattr(criterion, "batches") and criterion.batches:
        criterion.batches = batches
    found = score(graph.axes, terms(graph), criterion)
    assert list(found) == terms(graph)
    for term, values in found.items():
        assert values.shape == (term.size,)
        assert values.dtype == np.float64
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert len(set(values.tolist())) > 1 or term.size == 2


@pytest.mark.parametrize(
    "make", [make for name, make in CRITERIA.items() if name not in ("random", "hessian")],
    ids=[name for name in CRITERIA if name not in ("random", "hessian")],
)  # fmt: skip
def test_scores_move_with_the_indices(make: Any) -> None:
    model, _ = traced()
    model.double()
    x = image().double()
    graph = mk.trace(model, (x,))
    shuffled = copy.deepcopy(model)
    orders = {}
    state = dict(shuffled.state_dict())
    chance = np.random.default_rng(0)
    for axis in graph.axes.free:
        orders[axis.term] = order = chance.permutation(axis.size)
        for name, dim, _ in axis.members:
            positions = axis.indices(name, dim)
            tensor = state[name]
            moved = tensor.clone().movedim(dim, 0)
            moved[torch.from_numpy(positions.reshape(-1))] = tensor.movedim(dim, 0)[
                torch.from_numpy(positions[order].reshape(-1))
            ]
            tensor.copy_(moved.movedim(0, dim))
    torch.testing.assert_close(shuffled(x), model(x))
    criterion = make()
    if hasattr(criterion, "batches") and criterion.batches:
        criterion.batches = [(batch.double(), y) for batch, y in pairs()]
    found = score(graph.axes, terms(graph), criterion)
    other = mk.trace(shuffled, (x,))
    moved_scores = score(other.axes, terms(other), criterion)
    for mine, theirs in zip(found, moved_scores, strict=True):
        np.testing.assert_allclose(moved_scores[theirs], found[mine][orders[mine]], rtol=1e-9)


def test_global_ranking_is_over_scores_of_one_size() -> None:
    _, graph = traced()
    small, large, none, negative = terms(graph)[:4]
    found = normalised(
        {
            small: np.array([0.1, 0.3]),
            large: np.array([100.0, 300.0, 200.0]),
            none: np.zeros(3),
            negative: np.array([-3.0, 1.0]),
        }
    )
    np.testing.assert_allclose(found[small], [0.5, 1.5])
    np.testing.assert_allclose(found[large], [0.5, 1.5, 1.0])
    np.testing.assert_array_equal(found[none], np.zeros(3))
    np.testing.assert_allclose(found[negative], [-1.5, 0.5])  # the order stays


# ------------------------------------------------------- what is left alone


def snapshot(model: nn.Module) -> list[Any]:
    """All that a pass could change: bytes, identities, versions, gradients, flags, hooks, modes and random states."""
    tensors = [*model.parameters(), *model.buffers()]
    grads = [tensor.grad for tensor in model.parameters()]
    return [
        [tensor.detach().clone().numpy().tobytes() for tensor in tensors],
        [(id(tensor), tensor._version, tensor.requires_grad, tensor.data_ptr()) for tensor in tensors],
        [None if grad is None else (id(grad), grad._version, grad.numpy().tobytes()) for grad in grads],
        [
            (module.training, sorted(vars(module)), *(len(vars(module)[name]) for name in HOOKS))
            for module in model.modules()
        ],
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[index]
        (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    ]


HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]


@each_criterion
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_the_model_is_as_it_was(make: Any, mode: bool) -> None:
    model, graph = traced(mode)
    F.cross_entropy(model(image()), labels()).backward()
    model.stem.weight.requires_grad_(False)
    model.head.bias.grad = None
    before, kept = snapshot(model), {id(node): node.value for node in graph.values}
    with torch.inference_mode():
        score(graph.axes, terms(graph), make())
    assert snapshot(model) == before
    assert all(node.value is kept[id(node)] for node in graph.values)


def test_the_model_is_as_it_was_after_an_error() -> None:
    model, graph = traced(True)
    before = snapshot(model)

    def interrupted(output: Tensor, target: Tensor) -> Tensor:
        raise KeyboardInterrupt

    def wrong(output: Tensor, target: Tensor) -> Tensor:
        raise ValueError("no")

    for loss, error in ((interrupted, KeyboardInterrupt), (wrong, CutError)):
        with pytest.raises(error):
            score(graph.axes, terms(graph), Taylor(pairs(), loss))
        assert snapshot(model) == before
    batches = [image(), torch.randn(2, 4, 4, 4)]  # the second has a channel too many
    with pytest.raises(CutError, match="does not go through Net"):
        score(graph.axes, terms(graph), Activation(batches))
    assert snapshot(model) == before


def test_inputs_and_user_hooks_are_left_alone() -> None:
    class Rude(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 6)
            self.last = nn.Linear(6, 2)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            x.mul_(2)
            return self.last(F.relu(self.first(x)))

    model = Rude()
    hook = model.first.register_forward_hook(lambda module, args, output: None)
    x = torch.randn(3, 4)
    graph, before = mk.trace(model, (x,)), x.clone()
    for criterion in (Activation([x]), Taylor([x], lambda output: output.sum())):
        score(graph.axes, terms(graph), criterion)
    assert torch.equal(x, before)
    assert x._version == 0
    assert model.calls == 0
    assert list(model.first._forward_hooks) == [hook.id]


def test_passes_are_reproducible_in_training_mode() -> None:
    _, graph = traced(True)
    for criterion in (Activation([image()]), Taylor(pairs(), F.cross_entropy)):
        first = score(graph.axes, terms(graph), criterion)
        torch.manual_seed(99)
        again = score(graph.axes, terms(graph), criterion)
        assert all(np.array_equal(first[term], again[term]) for term in first)


def test_the_mode_of_the_passes_can_be_set() -> None:
    model, graph = traced(True)
    in_training = score(graph.axes, terms(graph), Activation([image()]))
    at_rest = score(graph.axes, terms(graph), Activation([image()], training=False))
    assert any(not np.allclose(in_training[term], at_rest[term]) for term in at_rest)
    own = mk.trace(model.eval(), (image(),))
    expected = score(own.axes, terms(own), Activation([image()]))
    assert all(np.array_equal(a, b) for a, b in zip(at_rest.values(), expected.values(), strict=True))


def test_parameters_that_need_no_gradient_count_all_the_same() -> None:
    model, graph = traced()
    expected = score(graph.axes, terms(graph), Taylor(pairs(), F.cross_entropy))
    model.requires_grad_(False)
    found = score(graph.axes, terms(graph), Taylor(pairs(), F.cross_entropy))
    assert all(np.array_equal(found[term], expected[term]) for term in expected)
    assert not any(tensor.requires_grad for tensor in model.parameters())


# ------------------------------------------------------------------ batches


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 5)
        self.right = nn.Linear(4, 5)
        self.last = nn.Linear(5, 2)

    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        return self.last(torch.tanh(self.left(a) + self.right(b))) * scale


def test_batches_come_as_arguments_keywords_or_pairs() -> None:
    model = seeded(TwoInputs)
    a, b, y = torch.randn(6, 3), torch.randn(6, 4), torch.zeros(6, 2)
    graph = mk.trace(model, (a[:2], b[:2]), {"scale": 2.0})
    readings = [
        score(graph.axes, terms(graph), Activation([batch]))
        for batch in ((a, b), [a, b, y], ((a, b), y), {"a": a, "b": b})
    ]
    gradients = [
        score(graph.axes, terms(graph), Taylor([batch], loss))
        for batch, loss in (
            (((a, b), y), F.mse_loss),
            (({"a": a, "b": b}, y), nn.MSELoss()),
            ((a, b), lambda output: F.mse_loss(output, y)),
            ({"a": a, "b": b, "scale": 2.0}, lambda output, weight=None: F.mse_loss(output, y)),
        )
    ]
    for several in (readings, gradients):
        for other in several[1:]:
            assert all(np.array_equal(other[term], several[0][term]) for term in other)


@pytest.mark.parametrize(
    ("batches", "loss", "message"),
    [
        ([], F.cross_entropy, "the batches are empty"),
        ([image()], F.cross_entropy, r"pairs \(inputs, target\), got a Tensor"),
        ([(image(), labels(), labels())], F.cross_entropy, "got 3 items"),
        ([(image(), labels())], lambda output, target: output, r"the shape \[2, 3\]: return one number"),
        ([(image(), labels())], lambda output, target: 3.0, "the loss gave a float"),
        ([(image(), labels())], lambda output, target: output.detach().sum(), "does not depend on the parameters"),
        ([(image(), labels(5))], F.cross_entropy, r"the loss stopped .* loss\(output, target\)"),
        ([(image().to("meta"), labels())], F.cross_entropy, "meta device has no data"),
        ([("text", labels())], F.cross_entropy, "does not go through Net"),
    ],
)
def test_what_is_wrong_with_batches_or_loss_is_said(batches: Any, loss: Any, message: str) -> None:
    _, graph = traced()
    for criterion in (Taylor, Hessian):
        with pytest.raises(CutError, match=message):
            score(graph.axes, terms(graph), criterion(batches, loss))


def test_a_generator_gives_its_batches_once() -> None:
    _, graph = traced()
    criterion = Taylor(iter(pairs()), F.cross_entropy)
    score(graph.axes, terms(graph), criterion)
    with pytest.raises(CutError, match="a generator gives its items once"):
        score(graph.axes, terms(graph), criterion)


# ----------------------------------------------------------- users' criteria


@pytest.fixture
def name() -> Iterator[str]:
    yield "loudest"
    criteria._entries.pop("loudest", None)


def test_a_function_is_registered_and_sees_both_sides(name: str) -> None:
    model, graph = traced()
    seen: list[Group] = []

    @importance(name)
    def loudest(group: Group) -> Tensor:
        seen.append(group)
        for member in group.members:
            member.tensor.abs_()  # a copy
        return torch.stack([member.tensor.amax(1) for member in group.members]).amax(0)

    before = snapshot(model)
    found = score(graph.axes, terms(graph), name)
    assert snapshot(model) == before
    assert [group.axis for group in seen] == graph.axes.free
    own = next(group for group in seen if group.axis.name == "inner.out")
    assert own.size == 6
    assert {(member.name, member.dim): tuple(member.tensor.shape) for member in own.members} == {
        ("inner.weight", 0): (6, 8),
        ("inner.bias", 0): (6, 1),
        ("project.weight", 1): (6, 12),
    } or own.size == 6
    with torch.no_grad():
        direct = score(graph.axes, terms(graph), loudest)
    assert all(np.array_equal(found[term], direct[term]) for term in found)
    with pytest.raises(DuplicateNameError):
        importance(name)(lambda group: None)


def test_a_criterion_is_registered_as_a_class(name: str) -> None:
    _, graph = traced()

    @importance(name)
    class Twice(Criterion):
        def scores(self, axes: Any, terms: Any) -> Any:
            return {term: 2 * values for term, values in L1().scores(axes, terms).items()}

    by_name, by_object = score(graph.axes, terms(graph), name), score(graph.axes, terms(graph), Twice())
    plain = score(graph.axes, terms(graph), "l1")
    for term in plain:
        np.testing.assert_array_equal(by_name[term], 2 * plain[term])
        np.testing.assert_array_equal(by_object[term], 2 * plain[term])


def test_only_the_axes_that_are_asked_for_are_scored() -> None:
    _, graph = traced()
    every = score(graph.axes, terms(graph), "l1")
    one = score(graph.axes, [graph.axes["inner.out"].axes[0].term], "l1")
    assert len(one) == 1
    for term, values in one.items():
        np.testing.assert_array_equal(values, every[term])
    assert score(graph.axes, [], "l1") == {}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda group: 1 / 0, r"'<lambda>' stopped on axis '[\w.]+': ZeroDivisionError"),
        (lambda group: [1.0], r"axis '[\w.]+' the shape \[1\]: return \[\d+\]"),
        (lambda group: torch.ones(group.size, 2), r"the shape \[\d+, 2\]"),
        (lambda group: [float("nan")] * group.size, "nan at index 0: scores are finite"),
        (lambda group: torch.full((group.size,), torch.inf), "inf at index 0"),
        (lambda group: "text", r"gave for axis '[\w.]+' 'text'"),
        (lambda group: None, r"the shape \[\]"),
    ],
)
def test_what_a_function_did_wrong_is_said(function: Any, message: str) -> None:
    _, graph = traced()
    with pytest.raises(CutError, match=message):
        score(graph.axes, terms(graph), function)


def test_what_cannot_score_is_refused() -> None:
    _, graph = traced()
    every = terms(graph)

    class Silent(Criterion):
        def scores(self, axes: Any, terms: Any) -> Any:
            return {}

    for wrong, kind, message in (
        ("L1", UnknownNameError, "did you mean"),
        (3, CutError, "pass a name"),
        (Silent(), CutError, "'Silent' gave nothing for axis"),
        ("taylor", CutError, r"loss.backward\(\) first, or pass importance=Taylor\(batches, loss\)"),
        ("hessian", CutError, r"importance=Hessian\(batches, loss\)"),
    ):
        with pytest.raises(kind, match=message):
            score(graph.axes, every, wrong)
    with pytest.raises(UnknownNameError, match="did you mean 'mean_abs'"):
        Activation(statistic="mean_abc")
    with pytest.raises(CutError, match="both batches and a loss"):
        Taylor(pairs())
    with pytest.raises(CutError, match="samples=0"):
        Hessian(pairs(), F.cross_entropy, samples=0)
    with pytest.raises(UnknownNameError, match="under a name"):
        importance(lambda group: None)  # type: ignore[arg-type]


def test_weights_that_are_no_numbers_are_named() -> None:
    model, graph = traced()
    with torch.no_grad():
        model.inner.weight[0, 0] = torch.nan
    for name in ("l1", "l2", "fpgm"):
        with pytest.raises(CutError, match="scores are finite; look for NaN or infinity in"):
            score(graph.axes, terms(graph), name)


# ----------------------------------------------------- the model as it is now


@each_criterion
def test_a_model_without_data_has_random_importance_only(make: Any) -> None:
    with torch.device("meta"):
        model = Net().eval()
    graph = mk.trace(model, (image().to("meta"),))
    criterion = make()
    if criterion == "random":
        assert len(score(graph.axes, terms(graph), criterion)) == len(terms(graph))
        return
    with pytest.raises(CutError, match="is on the meta device"):
        score(graph.axes, terms(graph), criterion)


def test_weights_are_read_as_they_are_now() -> None:
    model, graph = traced()
    with torch.no_grad():
        model.stem.weight[2] *= 100
    found = score(graph.axes, [graph.axes["stem.weight", 0].term], "l1")
    assert next(iter(found.values())).argmax() == 2
    model.inner.weight = nn.Parameter(torch.zeros(2, 8, 1, 1))
    with pytest.raises(CutError, match=r"'inner.weight' has shape \[2, 8, 1, 1\], at the trace it had \[6, 8, 1, 1\]"):
        score(graph.axes, terms(graph), "l1")


def test_a_tied_parameter_is_read_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 5)
            self.mix = nn.Linear(5, 5)
            self.out = nn.Linear(5, 7, bias=False)
            self.out.weight = self.table.weight

        def forward(self, x: Tensor) -> Tensor:
            x = self.table(x)
            return self.out(x + self.mix(x))

    model = seeded(Tied)
    graph = mk.trace(model, (torch.tensor([[1, 2, 3]]),))
    axis = graph.axes["table.weight", 1]
    squares = sum(
        tensor.detach().double().square().movedim(dim, 0).reshape(5, -1).sum(1)
        for tensor, dim in ((model.table.weight, 1), (model.mix.weight, 0), (model.mix.weight, 1), (model.mix.bias, 0))
    )
    assert isinstance(squares, Tensor)
    found = score(graph.axes, [axis.term], "l2")  # type: ignore[union-attr]
    np.testing.assert_allclose(next(iter(found.values())), (squares / (7 + 5 + 5 + 1)).sqrt().numpy(), rtol=1e-6)
