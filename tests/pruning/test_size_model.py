"""The size of a model as a formula in the counts of its axes, against what a plan counts on real shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from models.recurrent import SequenceTagger
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.plan.sizes.size_model import SizeModel
from sampling import sampled

IMAGE = (1, 3, 64, 64)
MODELS: dict[str, tuple[int, ...]] = {
    "resnet18": IMAGE, "densenet121": IMAGE, "mobilenet_v3_small": IMAGE, "shufflenet_v2_x0_5": IMAGE,
    "vit_b_32": (1, 3, 224, 224), "swin_t": IMAGE, "convnext_tiny": IMAGE, "squeezenet1_0": IMAGE,
}  # fmt: skip


def traced(name: str) -> mk.DataflowGraph:
    model = getattr(torchvision.models, name)(weights=None).eval()
    return mk.trace(model, torch.zeros(MODELS[name]))


@pytest.mark.parametrize("name", sampled(sorted(MODELS), set(MODELS) - {"swin_t", "vit_b_32"}))
def test_params_and_flops_of_a_random_plan_are_those_that_the_plan_counts(name: str) -> None:
    graph = traced(name)
    draft = Draft(graph)
    random = np.random.default_rng(len(name))
    dropped = {
        draft.axes[number].name: random.choice(size, size // 3, replace=False).tolist()
        for number in sorted(draft.ratio_axes)
        if (size := draft.axes[number].size) > 2 and random.random() < 0.7
    }
    plan = mk.plan(graph, per_axis=dropped)
    draft.adopt_plan(plan)
    before, after = draft.sizes()
    assert draft.size_model.is_exact
    assert (before.params, after.params) == plan.params
    assert (before.flops, after.flops) == plan.flops
    draft.adopt_plan(None)
    assert draft.sizes()[1] == before


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("both", [True, False])
def test_first_states_of_zeros_have_the_size_of_what_they_meet(kind: type[nn.RNNBase], both: bool) -> None:
    rnn = kind(12, 20, num_layers=2, bidirectional=both, batch_first=True)  # type: ignore[call-arg]
    graph = mk.trace(SequenceTagger(None, rnn, 3).eval(), torch.zeros(2, 5, 12))
    draft = Draft(graph)
    plan = mk.plan(graph, ratio=0.3)
    draft.adopt_plan(plan)
    before, after = draft.sizes()
    assert (before.flops, after.flops) == plan.flops
    assert after.flops < before.flops


@pytest.mark.parametrize("name", ["resnet18", "vit_b_32"])
@pytest.mark.slow
def test_bytes_are_those_of_the_cut_model(name: str) -> None:
    graph = traced(name)
    draft = Draft(graph)
    plan = mk.plan(graph, ratio=0.25)
    draft.adopt_plan(plan)

    def nbytes() -> int:
        held = [*graph.model.parameters(), *graph.model.buffers()]
        return sum(tensor.nbytes for tensor in held)

    before, after = draft.sizes()
    assert before.bytes == nbytes()
    plan.cut(graph.model)
    assert after.bytes == nbytes()


@pytest.mark.slow
def test_the_flops_of_another_pass_go_by_the_axes_of_the_widest() -> None:
    model = torchvision.models.googlenet(weights=None, init_weights=False).eval()
    graph = mk.trace(model, torch.zeros(2, 3, 96, 96))
    draft = Draft(graph)
    assert len(draft.axes) != len(graph.axes)  # train mode reads the auxiliary classifiers too
    plan = mk.plan(graph, ratio=0.3)
    draft.adopt_plan(plan)
    before, after = draft.sizes()
    assert (before.flops, after.flops) == plan.flops
    assert (before.params, after.params) == plan.params


class Sorted(nn.Module):
    """Sorts along the channels: n log n of what may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 32)
        self.second = nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.first(x)
        return self.second(hidden), hidden.sum(1).sort(0).values


def test_a_cost_that_is_no_polynomial_is_kept_as_it_is_and_said() -> None:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 32)
            self.second = nn.Linear(32, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            return self.second(hidden) + torch.fft.fft(hidden).abs().mean()

    sizes = sizes_of(Spectrum(), torch.zeros(3, 4))
    assert not any(term.factor < 0 for term in sizes.costs["flops"])
    graph = mk.trace(Spectrum(), torch.zeros(3, 4))
    assert sizes.before == [graph.flops()]


def test_sorting_constant_dimensions_stays_exact() -> None:
    assert sizes_of(Sorted(), torch.zeros(3, 4)).is_exact


def test_a_square_of_one_axis_counts_twice() -> None:
    class Gram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            return (hidden.T @ hidden).sum()

    graph = mk.trace(Gram(), torch.zeros(5, 4))
    (axis,) = graph.axes.free
    sizes = SizeModel(graph.axes, ["flops"])
    for count in (1, 3, 8):
        expected = 2 * 5 * 4 * count + 2 * 5 * count * count + count * count
        counts = sizes.full.copy()
        counts[axis.number] = count
        assert sizes.sizes(counts) == [expected]


def sizes_of(model: nn.Module, x: torch.Tensor) -> SizeModel:
    return SizeModel(mk.trace(model, x).axes, ["flops"])
