"""Who has a say on an axis: found by what the data flow does with a parameter, whatever its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.deprecation import ModuleKGDeprecationWarning
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.pruning.importance.members import reading_dims, scoring_weights
from pruning.criterion_samples import Concatenated, Grouped, Heads, image, scores, tokens
from pruning.trained_nets import Convolutional, Recurrent, Transformer

Tensor = torch.Tensor


def having_a_say(model: nn.Module, *args: Tensor) -> set[str]:
    return {node.label for node in scoring_weights(mk.trace(model.eval(), args).axes)}


def names(model: nn.Module, *endings: str) -> set[str]:
    return {name for name, _ in model.named_parameters() if name.endswith(endings)}


class TokensAndPositions(nn.Module):
    """Words looked up by the input, positions by a range, types by a constant; a class token, and a query added."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(11, 8)  # no name tells
        self.weight = nn.Embedding(6, 8)
        self.kinds = nn.Embedding(2, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.shift = nn.Parameter(torch.randn(8))
        self.gain = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.bias(ids) + self.weight(places) + self.kinds(torch.zeros_like(places)) + self.shift
        x = torch.cat([self.first.expand(len(ids), -1, -1), x], 1) * self.gain
        return self.head(x.mean(1))


def test_what_is_only_added_or_joined_has_no_say() -> None:
    found = having_a_say(TokensAndPositions(), torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert found == {"bias.weight", "gain", "head.weight"}


def test_a_table_read_by_plain_indexing_is_told_alike() -> None:
    class Indexed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Parameter(torch.randn(11, 8))
            self.places = nn.Parameter(torch.randn(6, 8))
            self.head = nn.Linear(8, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.words[ids] + self.places[torch.arange(ids.shape[1])])

    assert having_a_say(Indexed(), torch.tensor([[1, 2, 3]])) == {"words", "head.weight"}


@pytest.mark.parametrize(
    ("build", "x"),
    [
        pytest.param(Convolutional, torch.zeros(2, 64), id="convolutions"),
        pytest.param(Recurrent, torch.zeros(2, 64), id="recurrence"),
        pytest.param(Grouped, image(), id="groups"),
        pytest.param(Heads, tokens(), id="attention"),
        pytest.param(Concatenated, image(), id="concatenation"),
    ],
)
def test_all_but_biases_have_a_say(build: Any, x: Tensor) -> None:
    model = seeded(build)
    own = {name for name, _ in model.named_parameters() if "bias" not in name}
    assert having_a_say(model, x) == own


def test_a_class_token_and_positions_of_a_transformer_have_none() -> None:
    model = seeded(Transformer)
    assert having_a_say(model, torch.zeros(2, 64)) == names(model, "weight")


def test_all_that_a_weight_is_computed_from_has_a_say() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 2))
    found = having_a_say(model, torch.zeros(2, 4))
    assert found == {"0.parametrizations.weight.original0", "0.parametrizations.weight.original1", "2.weight"}


def test_an_axis_without_a_voter_is_judged_by_all_its_members() -> None:
    class Shifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.tensor([1.0, -4.0, 2.0]))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + self.shift).sum(-1)

    graph = mk.trace(Shifts(), (torch.zeros(2, 1),))
    (found,) = scores(graph, "l2").values()
    np.testing.assert_allclose(found, [1, 4, 2])
    (found,) = scores(graph, "l1").values()
    np.testing.assert_allclose(found, np.array([1, 4, 2]) * 3 / 7)


def test_a_large_bias_no_longer_outvotes_the_weights() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    with torch.no_grad():
        model[0].weight[2] *= 0.01
        model[2].weight[:, 2] *= 0.01
        model[0].bias[2] = 100
    graph = mk.trace(model, (torch.zeros(1, 4),))
    for name in ("l1", "l2"):
        assert scores(graph, name)["0.out"].argmin() == 2
    assert scores(graph, mk.pruning.L2(members="all"))["0.out"].argmax() == 2


def test_another_choice_of_votes_is_refused() -> None:
    for criterion in (mk.pruning.L1, mk.pruning.L2):
        with pytest.raises(UnknownNameError, match="members='weight': did you mean 'weights'"):
            criterion(members="weight")
    assert repr(mk.pruning.L1()) == "L1()"
    assert repr(mk.pruning.L2("all")) == "L2(members='all')"


def test_distances_are_between_what_makes_an_index_alone() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(3, 4)
            self.mix = nn.Linear(4, 4, bias=False)
            self.places = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x) + self.places(torch.arange(x.shape[1]))
            return self.head(x + self.mix(x))

    model = seeded(Square)
    found = scores(mk.trace(model, (torch.zeros(1, 2, 3),)), "fpgm")
    points = torch.cat([model.stem.weight, model.mix.weight], 1).detach()
    (own,) = found.values()
    np.testing.assert_allclose(own, torch.cdist(points, points).sum(1), rtol=1e-5)


# ------------------------------------------------------------------- readers


def reading(model: nn.Module, *args: Tensor) -> set[tuple[str, int]]:
    return {(node.label, at) for node, at in reading_dims(mk.trace(model.eval(), args).axes)}


def test_what_reads_and_makes_one_axis_is_told_by_its_place() -> None:
    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.square = nn.Conv2d(8, 8, 3, padding=1)
            self.up = nn.ConvTranspose2d(8, 8, 1)
            self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.mix = nn.Linear(8, 8)
            self.table = nn.Parameter(torch.randn(8, 8))
            self.head = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            x = x + self.square(x) + self.up(x) + self.depthwise(x)
            x = x.mean((2, 3))
            x = x + self.mix(x) + x @ self.table
            return self.head(x)

    found = reading(seeded(Stream), image())
    expected = {("stem.weight", 1), ("square.weight", 1), ("up.weight", 0), ("mix.weight", 1), ("table", 0)}
    assert found == {*expected, ("head.weight", 1)}


def test_a_recurrent_state_is_read_by_the_next_step_and_behind_the_layer() -> None:
    found = reading(seeded(Recurrent), torch.zeros(2, 64))
    assert found == {("embed.weight", 1), ("rnn.weight_ih_l0", 1), ("rnn.weight_hh_l0", 1), ("head.weight", 1)}


def test_the_former_name_of_the_choice_warns_and_works() -> None:
    with pytest.warns(ModuleKGDeprecationWarning, match="votes= is deprecated .*: write members="):
        assert mk.pruning.L1(votes="all").members == "all"
