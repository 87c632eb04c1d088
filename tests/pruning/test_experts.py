"""Experts as an axis: a cut model equals the one whose router cannot choose what went; what counts them follows."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import expert_models
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.errors import CutError

pytest.importorskip("transformers")
IN_SINGLE = ("deepseek_v2", "deepseek_v3", "deepseek_v3 in one group")  # their routers compute in float32


def axes_of_experts(graph: Any) -> list[Axis]:
    return [axis for axis in graph.axes.free if axis.role in ("experts", "expert_groups")]


def traced(name: str, implementation: str = "grouped_mm") -> tuple[nn.Module, dict[str, torch.Tensor], Any, list[Axis]]:
    model, inputs = expert_models.build(name, implementation)
    graph = mk.trace(model, (), inputs)
    return model, inputs, graph, axes_of_experts(graph)


def logits(model: nn.Module, inputs: dict[str, torch.Tensor], implementation: str = "eager") -> torch.Tensor:
    model.set_experts_implementation(implementation)
    with torch.no_grad():
        return model(**inputs).logits


def in_double(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).double()


@pytest.mark.parametrize("name", expert_models.CASES)
def test_experts_are_a_free_axis_with_a_name(name: str) -> None:
    model, _, graph, found = traced(name)
    assert len(found) == (1 if name.endswith("one group") else 2)  # per layer, or in one layer groups and their experts
    for axis in found:
        assert "expert" in axis.name
        members = {(member.name.rpartition(".")[2], member.dim) for member in axis.members}
        assert {("weight", 0), ("gate_up_proj", 0), ("down_proj", 0)} <= members
        held = {n.rpartition(".")[2] for n, t in (*model.named_parameters(), *model.named_buffers()) if "layers.1" in n}
        assert {("e_score_correction_bias", 0), ("gate_up_proj_bias", 0)} & {(n, 0) for n in held} <= members
    report = graph.axes.verify(only=found, bipartitions=4)
    assert report.ok
    assert len(report.proved) == len(found)
    assert report.bipartitions == 4


@pytest.mark.parametrize(
    ("name", "implementation", "at"),
    [*((name, "grouped_mm", -1) for name in expert_models.CASES), ("deepseek_v3", "grouped_mm", 0),
     *((name, "eager", -1) for name in ("mixtral", "gpt_oss", "deepseek_v3")), ("olmoe", "batched_mm", 0)],
)  # fmt: skip
def test_a_cut_equals_a_router_that_cannot_choose_the_experts(name: str, implementation: str, at: int) -> None:
    model, inputs, graph, found = traced(name, implementation)
    axis = found[at]
    router = axis.name.rpartition(".")[0]
    dropped = [0, axis.size - 1][: axis.size - (axis.least.count if axis.least else 1)]
    gone = axis.indices(f"{router}.weight", 0)[dropped].reshape(-1).tolist()
    plan = mk.plan(graph, per_axis={axis.name: dropped})
    before = copy.deepcopy(model.state_dict())
    whole, double = logits(in_double(model), inputs), in_double(model)
    with expert_models.never_chosen(double.get_submodule(router), gone):
        expected = logits(double, inputs)
    receipt = plan.cut(model)
    found_logits = logits(in_double(model), inputs)
    tolerance = 1e-6 if name in IN_SINGLE else 1e-9
    assert (found_logits - expected).abs().max() <= tolerance * expected.abs().max()
    assert (found_logits - whole).abs().max() > 1e-3 * expected.abs().max()  # these experts had been chosen
    receipt.undo()
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "gpt_oss", "deepseek_v3"])
@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
def test_all_ways_to_run_the_experts_follow_a_cut(name: str, implementation: str) -> None:
    model, inputs, graph, found = traced(name, implementation)
    plan = mk.plan(graph, per_axis={axis.name: [1] for axis in found})
    plan.cut(model)
    expected = logits(model, inputs)
    for other in ("grouped_mm", "batched_mm"):
        assert torch.allclose(logits(model, inputs, other), expected, atol=1e-5)
    for axis in found:
        router = model.get_submodule(axis.name.rpartition(".")[0])
        count = router.weight.shape[0]
        assert count % (axis.size - 1) == 0
        assert router.num_experts == count
        assert model.get_submodule(f"{axis.name.rpartition('.mlp.')[0]}.mlp.experts").num_experts == count


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "olmoe", "gpt_oss"])
def test_the_loss_of_the_router_counts_those_that_are_left(name: str) -> None:
    """No pass that is traced without it reads the number by which the whole model computes it."""
    model, kwargs = expert_models.build(name, "grouped_mm")
    graph = mk.trace(model.eval(), (), kwargs)
    mk.plan(graph, ratio=0.5, only="*expert*", granularity="expert").cut(model)
    labels = {"labels": kwargs["input_ids"], "output_router_logits": True}
    loss = model(**kwargs, **labels)
    assert torch.isfinite(loss.loss)
    left = loss.router_logits[0].shape[-1]
    assert model.num_experts == left < 6


def test_the_model_stays_alone_and_a_saved_plan_cuts_the_same(tmp_path: Path) -> None:
    model, inputs, graph, found = traced("mixtral")
    before = copy.deepcopy(model.state_dict())
    plan = mk.plan(graph, ratio=0.5, only=found)
    assert [cut.left for cut in plan.axes] == [3, 3]
    plan.save(tmp_path / "plan.json")
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert model.model.layers[0].mlp.experts.num_experts == 6
    other = copy.deepcopy(model)
    plan.cut(model)
    mk.load_plan(tmp_path / "plan.json").cut(other)
    assert torch.equal(logits(model, inputs), logits(other, inputs))
    assert model.model.layers[1].mlp.gate.weight.shape == (3, 16)


def test_as_many_experts_stay_as_are_chosen_at_once() -> None:
    _, _, graph, found = traced("qwen3_moe")
    assert {axis.least.count for axis in found if axis.least} == {2}
    plan = mk.plan(graph, ratio=0.95, only=found)
    assert [cut.left for cut in plan.axes] == [2, 2]
    with pytest.raises(CutError, match=r"at least 2 must be kept: 2 indices are taken at once: aten::topk in model"):
        mk.plan(graph, per_axis={found[0].name: [0, 1, 2, 3, 4]})
    with pytest.raises(CutError, match=r"at least 2 must be kept .*aten::topk.* and ceiling is 1"):
        mk.plan(graph, ratio=0.5, only=found, ceiling=1)


@pytest.mark.slow
def test_grouped_routing_loses_groups_and_keeps_those_that_are_chosen() -> None:
    model, inputs, graph, (axis, inside) = traced("deepseek_v3")
    assert (axis.name, axis.size) == ("model.layers.1.mlp.gate.expert_groups", 4)
    assert (inside.name, inside.size, inside.least and inside.least.count) == ("model.layers.1.mlp.gate.experts", 3, 2)
    with pytest.raises(CutError, match="at least 2 must be kept"):
        mk.plan(graph, per_axis={axis.name: [0, 1, 2]})
    mk.plan(graph, per_axis={axis.name: [0, 2]}).cut(model)
    gate = model.model.layers[1].mlp.gate
    assert (gate.num_group, gate.num_experts, len(gate.e_score_correction_bias)) == (2, 6, 6)
    assert logits(model, inputs).isfinite().all()


def test_a_target_of_parameters_is_met_by_experts() -> None:
    _, _, graph, found = traced("olmoe")
    plan = mk.plan(graph, target={"params": 0.8}, only=found)
    before, after = plan.params
    assert 0.6 < after / before < 0.81
    assert plan.flops[1] > 0.9 * plan.flops[0]  # each token goes through as many experts as before


@pytest.mark.slow
def test_whole_experts_go_and_nothing_inside_of_them() -> None:
    _, _, graph, found = traced("mixtral")
    plan = mk.plan(graph, ratio=0.5, only="*experts*", granularity="expert")
    assert [cut.name for cut in plan.axes] == [axis.name for axis in found]
    every = {cut.name for cut in mk.plan(graph, ratio=0.5, granularity="expert").axes}
    assert every > {axis.name for axis in found}
    assert not any("experts.down_proj" in name or "experts.gate_up" in name for name in every)
    inside = {cut.name for cut in mk.plan(graph, ratio=0.5, only="*experts*").axes}
    assert inside > {axis.name for axis in found}  # by default an expert loses width as well


def usage_by_hand(model: nn.Module, inputs: dict[str, torch.Tensor], layer: int) -> torch.Tensor:
    """Per expert of a Mixtral layer the sum of the lengths of what it adds to its tokens."""
    block, heard = model.model.layers[layer].mlp, []
    hook = block.experts.register_forward_hook(lambda module, args, output: heard.append(args))
    model(**inputs)
    hook.remove()
    ((x, chosen, shares),) = heard
    sums = torch.zeros(len(block.gate.weight))
    for token, experts, weights in zip(x, chosen, shares, strict=True):
        for expert, weight in zip(experts, weights, strict=True):
            gate, up = (block.experts.gate_up_proj[expert] @ token).chunk(2)
            sums[expert] += (weight * (block.experts.down_proj[expert] @ (nn.functional.silu(gate) * up))).norm()
    return sums


@torch.no_grad()
def test_usage_is_how_often_and_how_much() -> None:
    model, _, graph, found = traced("mixtral")
    batches = [
        {"input_ids": torch.randint(0, 60, (3, 5), generator=torch.Generator().manual_seed(at))} for at in (1, 2)
    ]
    expected = sum(usage_by_hand(model, batch, 1) for batch in batches)
    before = copy.deepcopy(model.state_dict())
    hooks = [len(module._forward_hooks) for module in model.modules()]
    scores = mk.pruning.ExpertUsage(batches).scores(graph.axes, [axis.term for axis in graph.axes.free])
    assert set(scores) == {axis.term for axis in graph.axes.free}
    assert torch.allclose(torch.from_numpy(scores[found[1].term]).float(), expected, rtol=1e-4)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    plan = mk.plan(graph, per_axis={found[1].name: 0.5}, importance=mk.pruning.ExpertUsage(batches))
    assert set(plan.axes[0].dropped) == set(expected.argsort()[:3].tolist())
    assert mk.plan(graph, per_axis={found[1].name: 0.5}, importance="expert_usage").axes[0].left == 3


@torch.no_grad()
def test_usage_of_experts_in_groups_is_that_of_all_groups() -> None:
    _, _, graph, (groups, inside) = traced("deepseek_v3")
    scores = mk.pruning.ExpertUsage().scores(graph.axes, [groups.term, inside.term])
    assert scores[groups.term].shape == (4,)
    assert scores[inside.term].shape == (3,)
    assert scores[groups.term].sum() == pytest.approx(scores[inside.term].sum())


class Choosing(nn.Module):
    """Mixes matrices that the data choose, by `way`."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.experts = 5
        self.gate = nn.Linear(4, 5)
        self.weight = nn.Parameter(torch.randn(5, 4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = self.gate(x).softmax(-1)
        if self.way == "best":
            return torch.bmm(x[:, None], self.weight[chances.argmax(-1)])[:, 0] * chances.amax(-1, keepdim=True)
        top = chances.topk(2, -1)
        if self.way == "one after the other":
            first = chances.argmax(-1, keepdim=True)
            second = chances.scatter(-1, first, -1.0).argmax(-1, keepdim=True)
            both = torch.cat([first, second], -1)
            return torch.einsum("nd,nkdf,nk->nf", x, self.weight[both], chances.gather(-1, both))
        if self.way == "index_select":
            chosen = self.weight.index_select(0, top.indices.reshape(-1)).unflatten(0, (-1, 2))
            return torch.einsum("nd,nkdf,nk->nf", x, chosen, top.values)
        if self.way == "mask":
            share = torch.zeros_like(chances).scatter(-1, top.indices, top.values)
            return torch.einsum("nd,edf,ne->nf", x, self.weight, share)
        if self.way == "one_hot":
            share = (nn.functional.one_hot(top.indices, self.experts) * top.values[..., None]).sum(1)
            return torch.einsum("nd,edf,ne->nf", x, self.weight, share)
        if self.way == "embedding":
            flat = nn.functional.embedding(top.indices[:, 0], self.weight.flatten(1)).view(-1, 4, 6)
            return torch.bmm(x[:, None], flat)[:, 0]
        if self.way == "arithmetic":  # the neighbour of what was chosen
            return torch.bmm(x[:, None], self.weight[(chances.argmax(-1) + 1) % 5])[:, 0]
        assert self.way == "returned"
        return top.indices + 0 * x[:, :2]


@pytest.mark.parametrize("way", ["best", "one after the other", "index_select", "mask", "one_hot", "embedding"])
def test_hand_made_choices(way: str) -> None:
    torch.manual_seed(0)
    model, x = Choosing(way).double(), torch.randn(7, 4).double()
    graph = mk.trace(model, x)
    axis = graph.axes["gate.weight", 0]
    assert axis.frozen is None
    members = {(member.name, member.dim) for member in axis.members}
    assert members >= {("gate.weight", 0), ("gate.bias", 0), ("weight", 0)}
    assert graph.axes.verify().ok
    uncut = copy.deepcopy(model)
    with torch.no_grad():
        uncut.gate.bias[[1, 4]] = -torch.inf
    mk.plan(graph, per_axis={axis.name: [1, 4]}).cut(model)
    assert (model(x) - uncut(x)).abs().max() < 1e-12


@pytest.mark.parametrize(("way", "why"), [("arithmetic", "does not support"), ("returned", "output|does not support")])
def test_indices_that_go_elsewhere_freeze_the_axis(way: str, why: str) -> None:
    graph = mk.trace(Choosing(way), torch.randn(7, 4))
    frozen = graph.axes["gate.weight", 0].frozen
    assert frozen is not None
    assert re.search(why, frozen)
