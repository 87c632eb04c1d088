"""Values that leave torch: indices that Python chooses by, numbers that only decide the way, and memory given anew."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError
from sampling import sampled

EXPERTS = 8
Rows = list[list[Any]]


def as_rows(values: Any) -> Rows:
    return [[int(each) for each in row] for row in values]


# from the weights of experts to those of the chosen ones and their indices
CHOICES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "topk": lambda p: p.topk(2, -1),
    "max": lambda p: (p.max(1).values[:, None], p.max(1).indices[:, None]),
    "argmax": lambda p: (p.amax(1, keepdim=True), p.argmax(1, keepdim=True)),
    "argsort": lambda p: (p.sort(1, descending=True).values[:, :2], p.argsort(1, descending=True)[:, :2]),
    "floats": lambda p: (p.topk(2, -1).values, p.topk(2, -1).indices.float()),
    "equal": lambda p: (p.amax(1, keepdim=True), (p == p.amax(1, keepdim=True)).long().argmax(1, keepdim=True)),
}
# how Python comes by the indices
READINGS: dict[str, Callable[[Tensor], Rows]] = {
    "tolist": lambda index: as_rows(index.tolist()),
    "on the cpu": lambda index: as_rows(index.cpu().tolist()),
    "rows": lambda index: as_rows([row.tolist() for row in index]),
    "numpy": lambda index: as_rows(index.numpy()),
    "array": lambda index: as_rows(np.asarray(index)),
    "int": lambda index: as_rows(index),
    "dlpack": lambda index: as_rows(np.from_dlpack(index)),
    "capsule": lambda index: as_rows(torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(index)).tolist()),
    "contains": lambda index: [[next(k for k in range(EXPERTS) if k in each) for each in row] for row in index],
    "pickle": lambda index: as_rows(pickle.loads(pickle.dumps(index)).tolist()),
    "copy": lambda index: as_rows(copy.deepcopy(index).tolist()),
    "text": lambda index: [[int(float(f"{each}")) for each in row] for row in index],
    "storage": lambda index: as_rows(
        torch.tensor(list(index.contiguous().untyped_storage()), dtype=torch.uint8).view(index.dtype).view(index.shape)
    ),
}


class Routed(nn.Module):
    """Each row goes to the experts that Python reads; `made` is what it makes of one expert's share."""

    def __init__(self, choose: str, read: str, made: Callable[[Routed, int, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.choose, self.read, self.made = choose, read, made
        self.gate, self.out = nn.Linear(6, EXPERTS), nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(EXPERTS))
        self.costs = [float(each) for each in range(EXPERTS)]

    def forward(self, x: Tensor) -> Any:
        weights, index = CHOICES[self.choose](self.gate(x).softmax(-1))
        rows = []
        for at, chosen in enumerate(READINGS[self.read](index)):
            shares = [self.made(self, e, x[at]) if self.made else self.experts[e](x[at]) for e in chosen]
            rows.append(sum(share * weights[at, place] for place, share in enumerate(shares)))
        return self.out(torch.stack(rows))


def routed(*args: Any) -> tuple[Routed, Tensor]:
    torch.manual_seed(0)
    return Routed(*args).eval(), torch.randn(16, 6)


WAYS = [(choose, "tolist") for choose in CHOICES] + [("topk", read) for read in READINGS if read != "tolist"]


@pytest.mark.parametrize("way", sampled(WAYS, [("topk", "tolist"), ("equal", "tolist"), ("topk", "capsule")]))
def test_experts_that_python_chooses_go_with_their_router(way: tuple[str, str]) -> None:
    """The cut model is the one whose router cannot choose those that went."""
    model, x = routed(*way)
    whole = copy.deepcopy(model)
    graph = mk.trace(model, x)
    (router,) = (axis for axis in graph.axes.free if axis.name.startswith("gate"))
    assert router.lists == ("experts",)
    report = graph.axes.verify()
    assert report.ok
    assert router.name in report.proved
    plan = mk.plan(graph, ratio=0.5, only="gate")
    plan.cut(model)
    assert (model.gate.out_features, len(model.experts)) == (4, 4)
    with torch.no_grad():
        whole.gate.bias[list(plan.axes[0].dropped)] = -1e9
        assert torch.allclose(model(x), whole(x), atol=1e-6)


def looked_up(model: Routed, expert: int, row: Tensor) -> Tensor:
    return model.experts[expert](row) * model.costs[expert]


def one_apart(model: Routed, expert: int, row: Tensor) -> Tensor:
    return row if expert == 3 else model.experts[expert](row)


@pytest.mark.parametrize("made", [looked_up, one_apart])
def test_a_router_stays_whose_numbers_mean_more_than_a_module(made: Callable[..., Tensor]) -> None:
    model, x = routed("topk", "tolist", made)
    (router,) = (axis for axis in mk.trace(model, x).axes if axis.name == "gate.out")
    assert router.frozen is not None
    assert "its indices are read by Python code: Tensor.tolist" in router.frozen
    assert "test_read_by_python.py:" in router.frozen


class Tells(Routed):
    """Returns which experts were chosen, as Python has them."""

    def forward(self, x: Tensor) -> Any:
        index = self.gate(x).topk(2, -1).indices
        return super().forward(x), (index.numpy() if self.read == "numpy" else index.tolist())


@pytest.mark.parametrize("read", ["tolist", "numpy"])
def test_a_router_stays_whose_choice_is_returned(read: str) -> None:
    torch.manual_seed(0)
    axes = mk.trace(Tells("topk", read).eval(), torch.randn(16, 6)).axes
    assert axes["gate.out"].frozen


# ---------------------------------------------------------------- decisions


class Early(nn.Module):
    """Leaves early where a head is sure; on the traced way it is not."""

    def __init__(self, decide: Callable[[Tensor], bool], hidden: bool = False) -> None:
        super().__init__()
        self.decide = decide
        self.body, self.then, self.last = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.exit = nn.Sequential(nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 10)) if hidden else nn.Linear(32, 10)
        self.threshold = 0.9

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).relu()
        logits = self.exit(h)
        if self.decide(logits.softmax(-1), self.threshold):  # type: ignore[call-arg]
            return logits
        return self.last(self.then(h).relu())


DECISIONS: dict[str, Callable[[Tensor, float], bool]] = {
    "compares": lambda p, t: bool(p.amax() > t),
    "item": lambda p, t: p.max().item() > t,
    "any": lambda p, t: bool((p > t).any()),
    "entropy": lambda p, t: float(-(p * p.log()).sum()) < 1 - t + 1e-6,
    "list": lambda p, t: max(p.amax(-1).tolist()) > t,
    "numpy": lambda p, t: p.max(-1).values.detach().numpy().max() > t,
    "contains": lambda p, t: True in (p > t),
}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("decide", sampled(list(DECISIONS), ["compares", "list"]))
def test_an_exit_that_was_not_taken_keeps_its_classes(decide: str, hidden: bool) -> None:
    torch.manual_seed(0)
    model, x = Early(DECISIONS[decide], hidden).eval(), torch.randn(1, 8)
    graph = mk.trace(model, x)
    assert {axis.name for axis in graph.axes.free} == {"body.out", "then.out"}
    plan = mk.plan(graph, ratio=0.5)
    plan.cut(model)
    assert (model.body.out_features, model.then.out_features) == (16, 16)
    assert model(x).shape == (1, 10)
    model.threshold = 0.0
    model.decide = DECISIONS["item"]
    assert model(x).shape == (1, 10)


class Scaled(nn.Module):
    """A number that Python reads goes on in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        if h.abs().max() > 3:
            h = h / h.abs().max()
        return self.b(h)


def test_what_goes_on_to_the_output_is_cut_though_it_decides_too() -> None:
    torch.manual_seed(0)
    graph = mk.trace(Scaled().eval(), torch.randn(5, 4))
    assert [axis.name for axis in graph.axes.free] == ["a.out"]
    assert graph.axes.verify().proved == ["a.out"]


# -------------------------------------------------------------- assignments


def give(tensor: Tensor, value: Tensor) -> None:
    tensor.data = value


def by_data(model: Momentum) -> None:
    for q, k in model.pairs():
        k.data = k.data * 0.9 + q.data * 0.1


def by_a_function(model: Momentum) -> None:
    for q, k in model.pairs():
        give(k, k.detach() * 0.9 + q.detach() * 0.1)


def in_place(model: Momentum) -> None:
    for q, k in model.pairs():
        k.data.mul_(0.9).add_(q.data, alpha=0.1)


def by_the_registry(model: Momentum) -> None:
    for a, b in zip(model.q, model.k, strict=True):
        for name, k in list(b._parameters.items()):
            b.__dict__["_parameters"][name] = nn.Parameter(k * 0.9 + a._parameters[name] * 0.1, requires_grad=False)


def by_a_plain_attribute(model: Momentum) -> None:
    for a, b in zip(model.q, model.k, strict=True):
        for name in list(b._parameters):
            value = getattr(b, name) * 0.9 + getattr(a, name) * 0.1
            delattr(b, name)
            b.__dict__[name] = value.detach()


def by_a_vector(model: Momentum) -> None:
    joined = [nn.utils.parameters_to_vector(part.parameters()) for part in (model.k, model.q)]
    nn.utils.vector_to_parameters(joined[0] * 0.9 + joined[1] * 0.1, model.k.parameters())


def by_set(model: Momentum) -> None:
    for q, k in model.pairs():
        k.set_(k * 0.9 + q * 0.1)  # type: ignore[call-overload]


def by_a_swap(model: Momentum) -> None:
    for q, k in model.pairs():
        torch.utils.swap_tensors(k, nn.Parameter(k * 0.9 + q * 0.1, requires_grad=False))


class Momentum(nn.Module):
    """A second encoder is the moving average of the first; `late`: after both have run."""

    def __init__(self, mix: Callable[[Momentum], None], late: bool) -> None:
        super().__init__()
        self.mix, self.late = mix, late
        self.q = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 16))
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        for k in self.k.parameters():
            k.data.add_(0.1 * torch.randn_like(k))

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.q.parameters(), self.k.parameters(), strict=True))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = (self.q(x), self.k(x)) if self.late else None
        with torch.no_grad():
            self.mix(self)
        return found or (self.q(x), self.k(x))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mix", [by_data, by_a_function, in_place, by_the_registry, by_a_plain_attribute, by_a_vector])
def test_two_encoders_that_forward_mixes_lose_the_same_neurons(mix: Callable[[Momentum], None], late: bool) -> None:
    """Over several calls the cut model is the masked one: what is mixed belongs to each other."""
    torch.manual_seed(0)
    model, x = Momentum(mix, late), torch.randn(8, 6)
    before = copy.deepcopy(model.state_dict())
    graph = mk.trace(model, x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    plan = mk.plan(graph, ratio=0.5)
    assert [(axis.name, axis.left) for axis in plan.axes] == [("q.0.out", 12)]
    masked = copy.deepcopy(model)
    plan.cut(model)
    plan.mask(masked)
    for _ in range(3):
        for got, wanted in zip(model(x), masked(x), strict=True):
            assert torch.allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("mix", [by_set, by_a_swap])
def test_encoders_stay_where_it_is_not_seen_what_is_mixed(mix: Callable[[Momentum], None], late: bool) -> None:
    torch.manual_seed(0)
    model, x = Momentum(mix, late), torch.randn(8, 6)
    graph = mk.trace(model, x)
    assert graph.axes["k.0.weight", 0].frozen
    with pytest.raises(CutError, match=r"could be cut|no axis of the model is free"):
        mk.plan(graph, ratio=0.5)


class Averaged(nn.Module):
    """A buffer that each call puts anew, or writes a part of."""

    def __init__(self, part: bool) -> None:
        super().__init__()
        self.part, self.a, self.b = part, nn.Linear(4, 16), nn.Linear(16, 3)
        self.register_buffer("mean", torch.rand(3, 16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        y = self.b(h - self.mean[0])
        if self.part:
            self.mean[1:] = h[:2].detach()
        else:
            self.mean = self.mean * 0.9 + h.detach()[:3] * 0.1
        return y


@pytest.mark.parametrize("part", [False, True])
def test_a_buffer_follows_what_the_next_call_finds_there(part: bool) -> None:
    torch.manual_seed(0)
    model, x = Averaged(part), torch.randn(5, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    plan.cut(model)
    assert model.mean.shape == (3, 8)
    model(x)
    assert model(x).shape == (5, 3)
    assert model.mean.shape == (3, 8)
