"""Scores by name, by object and by function: their shape, what they leave alone, and what is said when they fail."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models import seeded
from models.shared_weights import TiedResidual
from modulekg_widgets.engine.errors import CutError, DuplicateNameError, UnknownNameError
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.criteria import L1
from modulekg_widgets.engine.pruning.importance.importance import Criterion, Group, criteria, importance
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from modulekg_widgets.engine.pruning.importance.members import weights_along
from modulekg_widgets.engine.pruning.importance.scoring import normalize_scores, score
from pruning.importance_samples import CRITERIA, ConvAttention, each_criterion, image, pairs, snapshot, terms, traced

Tensor = torch.Tensor


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
    rng = np.random.default_rng(0)
    for axis in graph.axes.free:
        orders[axis.term] = order = rng.permutation(axis.size)
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
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    graph = mk.trace(model, (torch.ones(1, 3),))
    small, large, none, negative = terms(graph)
    found = normalize_scores(
        graph.axes,
        {
            small: np.array([0.1, 0.3]),
            large: np.array([100.0, 300.0, 200.0]),
            none: np.zeros(3),
            negative: np.array([-3.0, 1.0]),
        },
    )
    # two weights have a part in each: the one that makes it, and the one that reads it
    np.testing.assert_allclose(found[small] / 2, [0.5, 1.5])
    np.testing.assert_allclose(found[large] / 2, [0.5, 1.5, 1.0])
    np.testing.assert_array_equal(found[none], np.zeros(3))
    np.testing.assert_allclose(found[negative] / 2, [-1.5, 0.5])  # the order stays


def test_what_many_weights_make_or_read_counts_for_more() -> None:
    _, graph = traced()
    found = weights_along(graph.axes)
    counts = {axis.name: found[axis.term] for axis in graph.axes.free}
    # the stem's output is added to, read by one convolution and the projection; the inner one is made, read twice
    assert counts["inner.out.1"] == 3
    assert found[graph.axes["stem.out.1"].term] == 4
    ones = normalize_scores(graph.axes, {axis.term: np.ones(axis.size) for axis in graph.axes.free})
    assert {name: ones[graph.axes[name].term].mean() for name in counts} == counts


# ----------------------------------------------------------- users' criteria


@pytest.fixture
def name() -> Iterator[str]:
    before = criteria.entries
    yield "loudest"
    criteria.entries = before


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
    own = next(group for group in seen if group.axis.name == "inner.out.1")
    assert own.size == 3
    assert {(member.name, member.dim): tuple(member.tensor.shape) for member in own.members} == {
        ("inner.weight", 0): (3, 2 * 8),
        ("inner.bias", 0): (3, 2),
        ("back.weight", 1): (3, 8),
        ("project.weight", 1): (3, 2 * 12),
    }
    weight = model.inner.weight.detach().reshape(2, 3, 8)[:, 1].reshape(-1).abs()
    torch.testing.assert_close(own.members[0].tensor[1], weight)
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
    one = score(graph.axes, [graph.axes["inner.out.1"].term], "l1")
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
    with pytest.raises(CutError, match="made of several axes"):
        score(graph.axes, [graph.axes.term("stem.weight", 0)], "l1")
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
        model = ConvAttention().eval()
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
    found = score(graph.axes, [graph.axes["stem.out.1"].term], "l1")
    assert next(iter(found.values())).argmax() == 2
    model.inner.weight = nn.Parameter(torch.zeros(2, 8, 1, 1))
    with pytest.raises(CutError, match=r"'inner.weight' has shape \[2, 8, 1, 1\], at the trace it had \[6, 8, 1, 1\]"):
        score(graph.axes, terms(graph), "l1")


def test_a_tied_parameter_is_read_once() -> None:
    model = seeded(lambda: TiedResidual(7, 5))
    graph = mk.trace(model, (torch.tensor([[1, 2, 3]]),))
    axis = graph.axes["embed.weight", 1]
    squares = sum(
        tensor.detach().double().square().movedim(dim, 0).reshape(5, -1).sum(1)
        for tensor, dim in ((model.embed.weight, 1), (model.mix.weight, 0), (model.mix.weight, 1))
    )
    assert isinstance(squares, Tensor)
    found = score(graph.axes, [axis.term], "l2")  # type: ignore[union-attr]
    np.testing.assert_allclose(next(iter(found.values())), (squares / (7 + 5 + 5)).sqrt().numpy(), rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "limit"), [("resnet152", 0.25), ("densenet201", 0.1)])
def test_magnitudes_of_large_models_take_no_time(name: str, limit: float) -> None:
    torchvision = pytest.importorskip("torchvision")
    graph = mk.trace(getattr(torchvision.models, name)(weights=None).eval(), (torch.randn(1, 3, 64, 64),))
    every, threads = terms(graph), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        taken = []
        for _ in range(3):
            start = time.process_time()
            score(graph.axes, every, "l1")
            taken.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    assert min(taken) < limit
