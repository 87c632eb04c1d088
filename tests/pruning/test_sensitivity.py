"""Sensitivity is the true loss increase: compared with models from which each index is really cut."""

from __future__ import annotations

import copy
import io
import math
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from models.recurrent import SequenceClassifier
from modulekg_widgets.engine.errors import CutError, UnknownAxisError
from modulekg_widgets.engine.torch_runtime.rng import equal_states
from sampling import sampled


class InPlace(nn.Module):
    """Writes into values that others read: a view, a sum, an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 7, 3, padding=1), nn.Conv2d(7, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x[:, :, 1].add_(1.0)
        x = self.first(x).relu_()
        skip = x
        x = self.norm(self.second(x))
        x += skip
        x[:, :, 0].mul_(0.5)
        return self.head(F.relu(x, inplace=True).mean((2, 3)))


class Attention(nn.Module):
    """Two pre-norm blocks: a layer norm goes by all indices of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 8) * 0.3)
        self.into = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 12, 0.1, batch_first=True, norm_first=True)
                                    for _ in range(2))  # fmt: skip
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x) + self.table
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "writes in place": (InPlace, lambda: torch.randn(5, 3, 6, 6)),
    "attention": (Attention, lambda: torch.randn(5, 5, 4)),
    "recurrent": (
        lambda: SequenceClassifier(nn.Embedding(9, 6), nn.GRU(6, 7, batch_first=True), 4),
        lambda: torch.randint(0, 9, (5, 6)),
    ),
}


def made(name: str) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    make, sample = MODELS[name]
    model = make().eval()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return model, [(sample(), torch.randint(0, 4, (5,))) for _ in range(2)]


def mean_loss(model: nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    with torch.no_grad():
        return float(np.mean([float(F.cross_entropy(model(x), y)) for x, y in batches]))


@pytest.mark.parametrize("name", sampled(MODELS, set(MODELS) - {"attention"}))
def test_the_rise_is_that_of_a_model_without_the_index(name: str) -> None:
    model, batches = made(name)
    graph = mk.trace(model, batches[0][0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    table = mk.pruning.sensitivity(graph, batches, F.cross_entropy)
    assert list(table.columns) == ["axis", "index", "increase"]
    assert len(table) == sum(axis.size for axis in graph.axes.free) > 10
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    whole = mean_loss(model, batches)
    compared = 0
    for _, (axis, index, increase) in table.iterrows():
        try:
            plan = mk.plan(graph, per_axis={axis: [index]})
        except CutError:
            continue  # the code demands that more goes with it
        cut = copy.deepcopy(model)
        plan.cut(cut)
        if [len(each.dropped) for each in plan.axes] == [1]:
            compared += 1
            assert mean_loss(cut, batches) - whole == pytest.approx(increase, abs=2e-6), (axis, index)
    assert compared > len(table) / 3


def test_what_is_not_needed_costs_nothing_and_comes_last() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[2].weight[:, [2, 5]] = 0
    table = mk.pruning.sensitivity(
        mk.trace(model, torch.randn(6, 4)), [(torch.randn(6, 4), torch.randint(0, 3, (6,)))], F.cross_entropy
    ).set_index("index")["increase"]
    assert table[2] == table[5] == 0
    assert (table.drop([2, 5]) != 0).all()


def test_batches_of_other_sizes_and_a_loss_without_target() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 3)).train()
    graph = mk.trace(model, torch.randn(2, 4))
    batches = [torch.randn(3, 4), torch.randn(7, 4)]
    table = mk.pruning.sensitivity(graph, batches, lambda output: output.square().mean(), axes=["0.out"])
    single = [mk.pruning.sensitivity(graph, [batch], lambda output: output.square().mean())["increase"]
              for batch in batches]  # fmt: skip
    assert table["increase"].to_numpy() == pytest.approx((single[0] + single[1]).to_numpy() / 2)
    assert model.training


def test_the_model_runs_in_eval_mode_whatever_mode_it_was_traced_in() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 3)).train()
    model(torch.randn(9, 4) * 3 + 1)  # so that the statistics are not those of the batches
    batches = [(torch.randn(5, 4), torch.randint(0, 3, (5,)))]
    in_train_mode = mk.pruning.sensitivity(mk.trace(model, torch.randn(5, 4)), batches, F.cross_entropy)
    model.eval()
    in_eval_mode = mk.pruning.sensitivity(mk.trace(model, torch.randn(5, 4)), batches, F.cross_entropy)
    pd.testing.assert_frame_equal(in_train_mode, in_eval_mode)
    zeroed = copy.deepcopy(model)
    with torch.no_grad():
        zeroed[4].weight[:, 2] = 0
    expected = mean_loss(zeroed, batches) - mean_loss(model, batches)
    assert in_eval_mode["increase"][2] == pytest.approx(expected, abs=2e-6)


def test_bad_input_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    graph = mk.trace(model, torch.randn(2, 4))
    good = [(torch.randn(2, 4), torch.zeros(2, dtype=torch.long))]
    for batches, loss, words in [
        ([], F.cross_entropy, "empty"),
        ([(torch.randn(2, 5), good[0][1])], F.cross_entropy, "does not go through"),
        (good, lambda output, target: math.nan, "the loss of batch 0 is nan: look for"),
        ([*good, (good[0][0] * math.nan, good[0][1])], F.cross_entropy, "the loss of batch 1 is nan: look for"),
        ([*good, (good[0][0][:0], good[0][1][:0])], F.cross_entropy, "batch 1 has no samples"),
        (good, lambda output, target: output, r"the shape \[2, 3\]: return one number"),
        (good, lambda output, target: "one", "returned a str: return one number"),
        (good, lambda output, target: output.no_such_thing, r"the loss stopped on the output of batch 0.*target\)"),
        (good[0][0], lambda output: output.mean(), "a tensor, whose items"),
        (5, F.cross_entropy, "batches= is an int"),
        (None, F.cross_entropy, "batches= is None"),
        ([({"no_such_input": 1}, good[0][1])], F.cross_entropy, "does not fit forward"),
    ]:
        with pytest.raises(CutError, match=words):
            mk.pruning.sensitivity(graph, batches, loss)
    with pytest.raises(UnknownAxisError):
        mk.pruning.sensitivity(graph, good, F.cross_entropy, axes=["no.such.axis"])
    with pytest.raises(CutError, match="traced graph"):
        mk.pruning.sensitivity(model, good, F.cross_entropy)  # type: ignore[arg-type]


def test_a_loader_that_shuffles_leaves_the_random_numbers_of_the_process_alone() -> None:
    """A training that somebody looks at goes on with the same batches; the look sees those that would come now."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x, y = torch.randn(12, 4), torch.randint(0, 3, (12,))
    seen: list[torch.Tensor] = []

    class Noted(torch.utils.data.TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            seen.append(x[index] + random.random() + float(np.random.rand()))  # as an augmentation draws
            return super().__getitem__(index)

    graph, loader = mk.trace(model, x), torch.utils.data.DataLoader(Noted(x, y), batch_size=4, shuffle=True)
    plan = mk.plan(graph, ratio=0.5)
    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()]
    looks: list[tuple[Callable[[], Any], bool]] = [
        (lambda: mk.pruning.sensitivity(graph, loader, F.cross_entropy, axes=["0.out"]), True),
        (lambda: plan.cut(model, recalibrate=loader, compensate=True).undo(), True),
        (
            lambda: mk.plan(graph, ratio=0.5, importance=mk.pruning.Taylor(loader, F.cross_entropy)),
            False,
        ),  # its own seed
    ]
    for look, sees_the_next in looks:
        seen.clear()
        look()
        first = torch.stack(seen[:12])
        assert all(map(equal_states, [torch.get_rng_state(), random.getstate(), np.random.get_state()], states))
        seen.clear()
        list(loader)
        assert torch.equal(first, torch.stack(seen)) == sees_the_next
        for write, state in zip([torch.set_rng_state, random.setstate, np.random.set_state], states, strict=True):
            write(state)


def test_a_loader_over_a_stream_has_no_length() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            draws = torch.Generator().manual_seed(0)
            return ((torch.randn(4, generator=draws), torch.tensor(at % 3)) for at in range(8))

    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    graph, loader = mk.trace(model, torch.randn(2, 4)), torch.utils.data.DataLoader(Stream(), batch_size=4)
    found, expected = (mk.pruning.sensitivity(graph, batches, F.cross_entropy) for batches in (loader, list(loader)))
    pd.testing.assert_frame_equal(found, expected)
    editor = mk.MaskEditor(model, torch.randn(2, 4), batches=loader, loss=F.cross_entropy)
    editor.importance = "sensitivity"
    assert (len(editor.sensitivity), editor.offers["batches"]) == (6, None)
    importance = mk.pruning.Taylor(loader, F.cross_entropy)
    mk.plan(graph, ratio=0.5, importance=importance).cut(model, recalibrate=loader, compensate=True).undo()


def test_the_plot_has_a_line_for_each_axis() -> None:
    table = pd.DataFrame({"axis": ["a", "a", "b"], "index": [0, 1, 0], "increase": [0.3, 0.1, 0.2]})
    ax = mk.pruning.plot_sensitivity(table)
    lines = {line.get_label(): line.get_xydata().tolist() for line in ax.get_lines()}
    assert lines["a"] == [[0, 0], [0.5, 0.1], [1, pytest.approx(0.4)]]
    assert lines["b"] == [[0, 0], [1, 0.2]]
    assert plt.gcf() is ax.figure  # so that a notebook shows it
    plt.close(ax.figure)
    own = Figure().add_subplot()
    any_text = table.replace({"a": "_stem.out", "b": r"$\frac$.out"})
    assert mk.pruning.plot_sensitivity(any_text, own) is own
    own.figure.savefig(io.BytesIO())
    assert [text.get_text() for text in own.get_legend().get_texts()] == ["_stem.out", r"$\frac$.out"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not mk.pruning.plot_sensitivity(table[:0], Figure().add_subplot()).get_lines()
    with pytest.raises(CutError, match="increase"):
        mk.pruning.plot_sensitivity(table.drop(columns="increase"))
    assert not plt.get_fignums()


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.first(x)
        return hidden, self.head(self.second(hidden).relu())


def test_a_loss_may_write_into_what_it_gets() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    graph, kept = mk.trace(TwoOutputs(), x), y.clone()

    def loss(output: Any, target: torch.Tensor) -> torch.Tensor:
        hidden, logits = output
        return F.cross_entropy(logits, target) + (hidden - hidden.mean()).square().mean()

    def writing(output: Any, target: torch.Tensor) -> torch.Tensor:
        hidden, logits = output
        value = F.cross_entropy(logits, target)
        target.zero_()
        return value + hidden.sub_(hidden.mean()).square().mean()

    tables = [mk.pruning.sensitivity(graph, [(x, y)], each) for each in (loss, writing)]
    pd.testing.assert_frame_equal(*tables)
    assert torch.equal(y, kept)
