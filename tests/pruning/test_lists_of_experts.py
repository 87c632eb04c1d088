"""Experts in lists of modules: an axis of the router that the modules go with, cut like any other."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from models.lists_of_experts import OF_ALL, OTHERS, SHARED_OUT, Expert, Mixture, MixtureDecoder
from modulekg_widgets.engine.axes.cut_analysis import Cut
from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.pruning.importance.criteria import L2
from sampling import sampled

WAYS = (*SHARED_OUT, *OF_ALL)
each_way = pytest.mark.parametrize("way", sampled(WAYS, ["counted", "stacked", "rows_that_were_marked"]))
WORDS = torch.arange(18).view(2, 9) * 7 % 40
GATE = "layers.0.mixture.gate.experts"


def net(way: str, layers: int = 2, experts: int = 6) -> MixtureDecoder:
    torch.manual_seed(0)
    return MixtureDecoder(way, layers, experts).eval()


def without(model: MixtureDecoder, layer: int, gone: list[int]) -> torch.Tensor:
    """What a model gives when a router cannot choose some experts."""
    hook = model.layers[layer].mixture.gate.register_forward_hook(
        lambda module, args, out: out.index_fill(-1, torch.tensor(gone), -torch.inf)
    )
    try:
        return model(WORDS)
    finally:
        hook.remove()


@each_way
def test_it_is_a_free_axis_and_is_proved(way: str) -> None:
    graph = mk.trace(net(way), WORDS)
    axis = graph.axes[GATE]
    assert (axis.size, axis.role, axis.frozen, axis.lists) == (6, "experts", None, ("layers.0.mixture.experts",))
    proof = graph.axes.verify()
    assert proof.ok
    assert {GATE, "layers.1.mixture.gate.experts"} <= set(proof.proved)


@each_way
@torch.no_grad()
@pytest.mark.slow
def test_a_cut_equals_a_router_that_cannot_choose_the_experts(way: str) -> None:
    model = net(way).double()
    uncut, before = copy.deepcopy(model), model(WORDS)
    gone = [1, 4]
    expected = without(uncut, 0, gone)
    plan = mk.plan(mk.trace(model, WORDS), per_axis={GATE: gone})
    receipt = plan.cut(model)
    mixture = model.layers[0].mixture
    assert [cut.name for cut in plan.axes] == [GATE]
    assert (len(mixture.experts), mixture.num_experts, tuple(mixture.gate.weight.shape)) == (4, 4, (4, 16))
    assert plan.params[1] == sum(parameter.numel() for parameter in model.parameters())
    assert (model(WORDS) - expected).abs().max() < 1e-12
    assert (expected - before).abs().max() > 1e-4  # they had been chosen
    receipt.undo()
    assert torch.equal(model(WORDS), before)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), uncut.state_dict().values(), strict=True))
    assert list(model.state_dict()) == list(uncut.state_dict())


@each_way
@torch.no_grad()
@pytest.mark.slow
def test_widths_and_blocks_go_beside_them(way: str) -> None:
    model = net(way, layers=3)
    graph = mk.trace(model, WORDS)
    plan = mk.plan(graph, ratio=0.5, blocks=1)
    plan.cut(model)
    assert len(model.layers) == 2
    assert [len(layer.mixture.experts) for layer in model.layers] == [3, 3]
    assert model.layers[0].mixture.experts[0].up.out_features < 24
    assert model(WORDS).shape == (2, 9, 40)
    assert plan.params[1] == sum(parameter.numel() for parameter in model.parameters())
    names = {cut.name for cut in mk.plan(mk.trace(net(way), WORDS), ratio=0.5, granularity="expert").axes}
    assert {GATE, "words.hidden"} <= names
    assert not any(".experts." in name for name in names)  # nothing inside of them


@pytest.mark.parametrize("way", ["counted", "stacked"])
@pytest.mark.parametrize("unit", ["params", "flops"])
@pytest.mark.slow
def test_targets_are_met(way: str, unit: str) -> None:
    model = net(way)
    graph = mk.trace(model, WORDS)
    plan = mk.plan(graph, target={unit: 0.6})
    before, after = getattr(plan, unit)
    assert after / before == pytest.approx(0.6, abs=0.01)
    draft = mk.plan(graph, ratio=0.5, only="*.experts", granularity="expert")
    if unit == "flops":  # rows that are shared out go to those that are left
        assert (draft.flops[1] > 0.9 * draft.flops[0]) == (way == "counted")
    draft.cut(model)
    assert draft.params[1] == sum(parameter.numel() for parameter in model.parameters())


def test_what_a_mask_editor_counts() -> None:
    editor = mk.MaskEditor(net("counted"), WORDS)
    editor._draft.set_indices({GATE: [0, 5]})
    before, after = editor._draft.sizes()
    one = sum(parameter.numel() for parameter in Expert(16, 24).parameters()) + 16
    assert before.params - after.params == 2 * one


def test_what_goes_with_a_row_of_the_router() -> None:
    found: Cut = mk.trace(net("counted"), WORDS).cut_analysis("layers.0.mixture.gate.weight", [2])
    assert found.indices == {GATE: [2]}
    assert found.modules == ("layers.0.mixture.experts.2",)


@pytest.mark.slow
def test_a_saved_plan_and_a_saved_model(tmp_path: Path) -> None:
    model = net("rows_that_were_marked")
    plan = mk.plan(mk.trace(model, WORDS), ratio=0.5, granularity="expert")
    plan.save(tmp_path / "plan.json")
    other = copy.deepcopy(model)
    mk.load_plan(tmp_path / "plan.json").cut(other)
    plan.cut(model)
    assert torch.equal(model(WORDS), other(WORDS))


@torch.no_grad()
@pytest.mark.slow
def test_as_many_stay_as_are_chosen_at_once() -> None:
    model = net("counted")
    plan = mk.plan(mk.trace(model, WORDS), ratio=0.9, only="*.experts", granularity="expert")
    assert {cut.left for cut in plan.axes} == {2}
    plan.cut(model)
    assert model(WORDS).isfinite().all()


# ---------------------------------------------------------------- importances


def test_a_criterion_on_weights_counts_those_of_the_modules() -> None:
    model = net("stacked")
    axes = mk.trace(model, WORDS).axes
    found = L2().scores(axes, [axes[GATE].term])[axes[GATE].term]
    mixture = model.layers[0].mixture
    own = [(mixture.gate.weight[at], expert.up.weight, expert.down.weight) for at, expert in enumerate(mixture.experts)]
    by_hand = [
        (sum(float(w.detach().square().sum()) for w in each) / sum(w.numel() for w in each)) ** 0.5 for each in own
    ]
    assert found.tolist() == pytest.approx(by_hand, rel=1e-5)


@torch.no_grad()
def test_usage_is_the_sum_of_lengths_over_the_tokens_of_each() -> None:
    model = net("counted")
    axes = mk.trace(model, WORDS).axes
    heard = np.zeros(6)
    for at, expert in enumerate(model.layers[0].mixture.experts):
        expert.register_forward_hook(
            lambda module, args, out, at=at: heard.__setitem__(at, heard[at] + float(out.double().norm(dim=-1).sum()))
        )
    model(WORDS)
    found = mk.pruning.ExpertUsage([WORDS]).scores(axes, [axes[GATE].term])[axes[GATE].term]
    assert heard.min() == 0 < heard.max()  # one has no tokens
    assert found.tolist() == pytest.approx(heard.tolist(), rel=1e-5)


@torch.no_grad()
@pytest.mark.slow
def test_sensitivity_is_what_a_cut_costs_where_data_decide_the_way() -> None:
    model = net("sorted_by_number", layers=1, experts=4)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    names = [GATE, "layers.0.mixture.experts.1.up.out", "words.hidden"]
    graph = mk.trace(model, WORDS)
    table = mk.pruning.sensitivity(graph, [(WORDS, WORDS)], loss, axes=names)
    whole = float(loss(model(WORDS), WORDS))
    for name in names:
        cut = copy.deepcopy(model)
        mk.plan(graph, per_axis={name: [1]}).cut(cut, undo=False)
        row = table[(table["axis"] == name) & (table["index"] == 1)]
        assert row["increase"].item() == pytest.approx(float(loss(cut(WORDS), WORDS)) - whole, abs=1e-6)


# ------------------------------------------------------------- what is none


@pytest.mark.parametrize("way", OTHERS)
def test_what_does_not_go_together_stays(way: str) -> None:
    graph = mk.trace(net(way), WORDS)
    assert not any(axis.lists for axis in graph.axes)
    assert graph.axes["layers.0.mixture.gate.weight", 0].frozen is not None
    with pytest.raises(CutError, match="no experts can be removed"):
        mk.plan(graph, ratio=0.5, granularity="expert")


class Beside(Mixture):
    """A list as long as that of the experts, which no router chooses from."""

    def __init__(self) -> None:
        super().__init__("counted")
        self.always = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.stack([layer(x) for layer in self.always]).sum(0)


class Elsewhere(Mixture):
    """The experts are called by what else holds them."""

    def __init__(self) -> None:
        super().__init__("counted")
        self.fast = tuple(self.experts)

    def _counted(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        out = torch.zeros_like(x)
        for number in range(len(self.experts)):
            rows, slots = torch.where(chosen == number)
            out[rows] += self.fast[number](x[rows]) * weights[rows, slots, None]
        return out


class Ranked(Mixture):
    """Each expert knows its number, which begins with 1."""

    def __init__(self) -> None:
        super().__init__("counted")
        for at, expert in enumerate(self.experts):
            expert.rank = at + 1  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]

    def _counted(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        out = torch.zeros_like(x)
        for expert in self.experts:
            rows, slots = torch.where(chosen + 1 == expert.rank)
            out[rows] += expert(x[rows]) * weights[rows, slots, None]
        return out


class Shared(Mixture):
    """What comes out is divided by how many experts there are."""

    def __init__(self) -> None:
        super().__init__("counted")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / len(self.experts)


class WithLoss(Mixture):
    """Beside the output it gives a loss that counts the experts."""

    def __init__(self) -> None:
        super().__init__("counted")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), self.num_experts * self.gate(x).softmax(-1).mean(0).square().sum()


class Exceptional(Mixture):
    """The first expert counts for nothing, which few tokens show."""

    def __init__(self) -> None:
        super().__init__("counted", experts=8, top_k=1)
        self.weigh = [0.0, *[1.0] * 7]

    def _counted(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        out = torch.zeros_like(x)
        for number in range(len(self.experts)):
            rows, slots = torch.where(chosen == number)
            if len(rows):
                out[rows] += self.weigh[number] * self.experts[number](x[rows]) * weights[rows, slots, None]
        return out


def test_a_list_that_no_router_chooses_from_stays() -> None:
    torch.manual_seed(0)
    model = Beside().eval()
    graph = mk.trace(model, torch.randn(20, 8))
    assert graph.axes["gate.experts"].lists == ("experts",)
    mk.plan(graph, per_axis={"gate.experts": [1, 4]}).cut(model)
    assert (len(model.experts), len(model.always)) == (4, 6)


@pytest.mark.parametrize("make", [Elsewhere, Ranked, Shared])
def test_a_cut_that_gives_something_else_is_refused(make: type[Mixture]) -> None:
    torch.manual_seed(0)
    graph = mk.trace(make().eval(), torch.randn(20, 8))
    with pytest.raises(CutError, match="differs from the one whose router cannot choose what is removed"):
        mk.plan(graph, per_axis={"gate.experts": [1, 4]})


def test_a_loss_may_count_the_experts() -> None:
    torch.manual_seed(0)
    model = WithLoss().eval()
    mk.plan(mk.trace(model, torch.randn(20, 8)), per_axis={"gate.experts": [1, 4]}).cut(model)
    assert len(model.experts) == 4


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_every_expert_is_reached_for_the_proof(tokens: int) -> None:
    torch.manual_seed(0)
    graph = mk.trace(Exceptional().eval(), torch.randn(tokens, 8))
    assert not any(axis.lists for axis in graph.axes)


@pytest.mark.parametrize("keep", ["experts", "experts.1"])
def test_what_is_kept_is_kept(keep: str) -> None:
    graph = mk.trace(Mixture("counted").eval(), torch.randn(20, 8))
    with pytest.raises(CutError, match="keep"):
        mk.plan(graph, ratio=0.5, only="gate", keep=[keep])


def test_two_lists_of_one_length_have_a_router_each() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            one, other = Mixture("counted"), Mixture("stacked")
            self.gate_a, self.experts_a, self.gate_b, self.experts_b = one.gate, one.experts, other.gate, other.experts

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for gate, experts in ((self.gate_a, self.experts_a), (self.gate_b, self.experts_b)):
                weights = gate(x).softmax(-1)
                x = x + torch.stack([weights[:, at, None] * expert(x) for at, expert in enumerate(experts)]).sum(0)
            return x

    axes = mk.trace(Two().eval(), torch.randn(20, 8)).axes
    assert [(axis.name, axis.lists) for axis in axes if axis.lists] == [
        ("gate_a.experts", ("experts_a",)), ("gate_b.experts", ("experts_b",)),
    ]  # fmt: skip


def test_blocks_of_a_model_that_reads_its_layers() -> None:
    """Something in the place of a layer has none of what a layer holds."""

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = net("counted", layers=3).layers
            for layer in self.layers:
                layer.kinds = ("a",)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                assert layer.kinds == ("a",)
                x = layer(x)
            return x

    assert "layers.0" in list(mk.trace(Reading().eval(), torch.randn(2, 9, 16)).blocks()["path"])


def test_experts_that_share_a_weight_stay() -> None:
    model = net("stacked")
    experts = model.layers[0].mixture.experts
    experts[1].up.weight = experts[0].up.weight
    assert mk.trace(model, WORDS).axes["layers.0.mixture.gate.weight", 0].frozen is not None


def test_logits_that_are_given_out_keep_the_router() -> None:
    class Telling(Mixture):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x), self.gate(x)

    graph = mk.trace(Telling("stacked"), torch.randn(5, 8))
    assert not any(axis.lists for axis in graph.axes)


def test_layers_one_after_the_other_are_no_experts() -> None:
    """As many layers as heads, which are frozen: nothing is run for a proof."""

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x * self.scale

    assert not any(axis.lists for axis in mk.trace(Stack(), torch.randn(5, 4)).axes)


@pytest.mark.slow
def test_a_dictionary_of_numbered_experts_is_numbered_anew() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(
        vocab_size=40, d_model=16, d_kv=4, d_ff=24, num_heads=4, num_experts=4, num_layers=2, num_decoder_layers=2,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
    )  # fmt: skip
    model = transformers.SwitchTransformersForConditionalGeneration(config).eval()
    graph = mk.trace(model, (), {"input_ids": WORDS, "decoder_input_ids": WORDS})
    mk.plan(graph, ratio=0.5, only="*.experts", granularity="expert").cut(model)
    assert list(model.encoder.block[1].layer[1].mlp.experts) == ["expert_0", "expert_1"]
    assert model(input_ids=WORDS, decoder_input_ids=WORDS).logits.isfinite().all()
