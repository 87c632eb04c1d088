"""Masks that disagree: what each conflict says, and the masks that are left of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.nni.conflicts import Conflict, conflicts, fix_conflicts
from modulekg_widgets.engine.pruning.nni.mask_inference import infer_masks
from pruning.mask_samples import Dense, Depthwise, Grouped, Masks, Residual, channels, image, rows, trained


def traced(build: type[nn.Module]) -> tuple[nn.Module, mk.DataflowGraph]:
    model = trained(build)
    return model, mk.trace(model, image())


def fixed_once(graph: mk.DataflowGraph, masks: Masks, dim: int | None = 0) -> Masks:
    """The fixed masks; the given ones are as they were, and there is nothing left to fix that could be told."""
    before = copy.deepcopy(masks)
    fixed = fix_conflicts(graph, masks, dim)
    for name, targets in masks.items():
        assert list(fixed[name]) == list(targets)
        for target, mask in targets.items():
            after = fixed[name][target]
            assert (mask is None) is (after is None)
            if mask is not None and after is not None:
                assert torch.equal(mask, before[name][target])  # type: ignore[arg-type]
                assert (after.shape, after.dtype) == (mask.shape, mask.dtype)
                assert bool((after >= mask).all()) or target == "bias"
    assert conflicts(graph, fixed, dim) == []
    assert infer_masks(graph, fixed, dim).parameters == infer_masks(graph, masks, dim).parameters
    return fixed


# ----------------------------------------------------------------- channels


def test_layers_that_are_added_lose_what_all_of_them_mask() -> None:
    model, graph = traced(Residual)
    masks = channels(model, {"conv1": [0, 1, 2], "conv2": [1, 2, 3], "conv3": [4], "conv4": [1, 2, 7]})
    (conflict,) = conflicts(graph, masks)
    assert (conflict.kind, conflict.axis, conflict.agreed) == ("channel", "conv1.out", [1, 2])
    assert conflict.asked == {"conv1": [0, 1, 2], "conv2": [1, 2, 3], "conv4": [1, 2, 7]}
    assert conflict.given_up == {"conv1": [0], "conv2": [3], "conv4": [7]}
    assert "conv4 asks for 1, 2, 7. 1, 2 can be removed" in str(conflict)
    fixed = fixed_once(graph, masks)
    assert [rows(fixed, name) for name in ("conv1", "conv2", "conv3", "conv4")] == [[1, 2], [1, 2], [4], [1, 2]]
    # the bias follows the weight
    assert fixed["conv4"]["bias"].tolist() == [1, 0, 0, 1, 1, 1, 1, 1]  # type: ignore[union-attr]


def test_a_layer_without_a_mask_loses_nothing() -> None:
    model, graph = traced(Residual)
    masks = channels(model, {"conv1": [0, 1], "conv4": [0, 1]})
    (conflict,) = conflicts(graph, masks)
    assert (conflict.asked, conflict.agreed) == ({"conv1": [0, 1], "conv2": [], "conv4": [0, 1]}, [])
    assert rows(fixed_once(graph, masks), "conv1") == []


def test_zeros_beside_the_channels_stay() -> None:
    model, graph = traced(Residual)
    masks = channels(model, {"conv1": [0, 1], "conv2": [1], "conv4": [1, 5]})
    weight = masks["conv2"]["weight"]
    assert weight is not None
    weight[6, 0] = 0
    fixed = fixed_once(graph, masks)
    assert torch.equal(fixed["conv2"]["weight"], weight)  # type: ignore[arg-type]


def test_the_short_form_stays_short() -> None:
    model, graph = traced(Residual)
    masks: Masks = {}
    for name, targets in channels(model, {"conv1": [0, 1], "conv2": [1], "conv4": [1, 5]}).items():
        masks[name] = {"weight": targets["weight"][:, 0, 0, 0].bool()}  # type: ignore[index]
    fixed = fixed_once(graph, masks)
    assert all(rows(fixed, name) == [1] for name in masks)


def test_input_channels_go_when_all_that_read_them_mask_them() -> None:
    model, graph = traced(Residual)
    # the stem is read by conv2, and together with what is added to it by conv3 and fc
    masks = channels(model, {"conv2": [0, 1, 2], "conv3": [1, 2, 3], "fc": [2, 1, 5]}, dim=1)
    (conflict,) = conflicts(graph, masks, 1)
    assert conflict.asked == {"conv2": [0, 1, 2], "conv3": [1, 2, 3], "fc": [1, 2, 5]}
    assert conflict.agreed == [1, 2]
    fixed = fixed_once(graph, masks, 1)
    assert [rows(fixed, name, 1) for name in masks] == [[1, 2]] * 3
    del masks["fc"]
    assert conflicts(graph, masks, 1)[0].asked == {"conv2": [0, 1, 2], "conv3": [1, 2, 3], "fc": []}
    assert rows(fixed_once(graph, masks, 1), "conv2", 1) == []


def test_both_sides_count_together() -> None:
    model, graph = traced(Depthwise)
    # conv1 is masked where it makes the channel, and what conv4 adds to it is kept from fc
    masks = channels(model, {"conv1": [1], "conv4": [1]}) | channels(model, {"fc": [2]}, dim=1)
    assert infer_masks(graph, masks, None).parameters["conv1.weight"] == {0: [1]}
    masks |= channels(model, {"conv2": [2]}, dim=1)
    assert infer_masks(graph, masks, None).parameters["conv1.weight"] == {0: [1, 2]}
    assert infer_masks(graph, masks, 0).parameters["conv1.weight"] == {0: [1]}
    assert infer_masks(graph, masks, 1).parameters["conv1.weight"] == {0: [2]}


def test_what_is_laid_end_to_end_hangs_together_in_its_own_part() -> None:
    model, graph = traced(Dense)
    masks = channels(model, {"conv1": [5], "conv2": [0, 3], "conv3": [1]})
    assert conflicts(graph, masks) == []
    found = infer_masks(graph, masks).parameters
    assert (found["conv3.weight"], found["fc.weight"]) == ({0: [1], 1: [5, 6, 9]}, {1: [5, 6, 9, 11]})


# ------------------------------------------------------------------- groups


def test_groups_lose_the_same_channels() -> None:
    model, graph = traced(Grouped)
    masks = channels(model, {"conv2": [0, 1, 4, 6]})
    (conflict,) = conflicts(graph, masks)
    assert (conflict.kind, conflict.asked, conflict.agreed) == ("group", {"conv2": [0, 1, 4, 6]}, [0, 4])
    assert conflict.axis == "(conv1.groups=2 conv2.out.1=4)"
    assert rows(fixed_once(graph, masks), "conv2") == [0, 4]


def test_dimensions_that_read_alike_are_told_apart() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), *(nn.Conv2d(8, 8, 1, groups=2) for _ in range(2)), nn.Conv2d(8, 2, 1))
    graph = mk.trace(model, torch.randn(1, 3, 4, 4))
    found = conflicts(graph, channels(model, {"1": [1], "2": [6]}))
    assert [(conflict.kind, conflict.asked) for conflict in found] == [("group", {"1": [1]}), ("group", {"2": [6]})]


def test_a_whole_group_goes_with_what_is_made_for_it() -> None:
    model, graph = traced(Grouped)
    masks = channels(model, {"conv2": [4, 5, 6, 7]})
    assert conflicts(graph, masks) == []
    found = infer_masks(graph, masks)
    assert found.cut.attributes["conv2.groups"] == (2, 1)
    assert found.parameters["conv1.weight"] == found.parameters["conv2.weight"] == {0: [4, 5, 6, 7]}
    # and the other way round: nothing goes into the group
    assert infer_masks(graph, channels(model, {"conv1": [4, 5, 6, 7]})).parameters == found.parameters
    # one channel more is given up
    assert rows(fixed_once(graph, channels(model, {"conv2": [1, 4, 5, 6, 7]})), "conv2") == [1, 4, 5, 6, 7]
    assert rows(fixed_once(graph, channels(model, {"conv2": [1, 4, 6, 7]})), "conv2") == []


def test_inputs_of_groups() -> None:
    graph = traced(Grouped)[1]
    weight = torch.ones(8, 4, 3, 3)
    weight[:4, 1] = weight[4:, 1] = weight[4:, 2] = 0
    masks: Masks = {"conv2": {"weight": weight, "bias": None}}
    (conflict,) = conflicts(graph, masks, 1)
    assert (conflict.kind, conflict.asked, conflict.agreed) == ("group", {"conv2": [1, 5, 6]}, [1, 5])
    fixed = fixed_once(graph, masks, 1)
    assert fixed["conv2"]["weight"][4:, 2].all()  # type: ignore[index]
    assert infer_masks(graph, fixed, 1).parameters["conv1.weight"] == {0: [1, 5]}


def test_depthwise_channels_go_one_by_one() -> None:
    model, graph = traced(Depthwise)
    for masked in ("conv2", "conv3"):
        masks = channels(model, {masked: [0, 1, 5]})
        assert conflicts(graph, masks) == []
        found = infer_masks(graph, masks).parameters
        assert found["conv2.weight"] == found["conv3.weight"] == {0: [0, 1, 5]}
        assert found["conv4.weight"] == {1: [0, 1, 5]}


# ---------------------------------------------------------- frozen and empty


def test_outputs_of_the_model_stay() -> None:
    model, graph = traced(Residual)
    masks = channels(model, {"fc": [0, 3], "conv3": [2]})
    (conflict,) = conflicts(graph, masks)
    assert (conflict.kind, conflict.axis, conflict.asked) == ("frozen", "fc.out", {"fc": [0, 3]})
    assert "model output" in conflict.reason
    fixed = fixed_once(graph, masks)
    assert (rows(fixed, "fc"), rows(fixed, "conv3")) == ([], [2])
    assert fixed["fc"]["bias"].all()  # type: ignore[union-attr]


@pytest.mark.parametrize("give", [infer_masks, fix_conflicts])
def test_a_layer_that_would_lose_everything_is_refused(give: Any) -> None:
    model, graph = traced(Residual)
    masks = channels(model, {"conv3": range(6)})
    assert [(c.kind, c.axis) for c in conflicts(graph, masks)] == [("empty", "conv3.out")]
    with pytest.raises(mk.ModuleKGError, match=r"masks of conv3 zero all 6 indices of conv3\.out: keep at least one"):
        give(graph, masks)


def test_a_value_that_others_read_too_stays() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x)
            return self.c(self.b(y).relu()) + self.c(y)

    model = seeded(Twice)
    graph = mk.trace(model, torch.randn(2, 3))
    # c reads both, so the two hang together
    assert infer_masks(graph, channels(model, {"a": [1], "b": [1]})).parameters["c.weight"] == {1: [1]}
    assert [c.asked for c in conflicts(graph, channels(model, {"b": [1]}))] == [{"a": [], "b": [1]}]
    assert infer_masks(graph, channels(model, {"b": [0]}, 1), 1).parameters == {}


def test_what_multiplies_must_be_masked_too() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.gate, self.down = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * self.down(self.up(x) * self.gate(x).sigmoid())

    model = seeded(Gated)
    graph = mk.trace(model, torch.randn(2, 3))
    assert conflicts(graph, channels(model, {"up": [1]}))[0].asked == {"up": [1], "gate": []}
    assert infer_masks(graph, channels(model, {"up": [1], "gate": [1, 2]})).parameters["down.weight"] == {1: [1]}


def test_chunks_are_told_apart() -> None:
    class Chunked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 8), nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x)
            return self.b(y[:, :4]) + self.c(y[:, 4:])

    model = seeded(Chunked)
    graph = mk.trace(model, torch.randn(2, 3))
    found = infer_masks(graph, channels(model, {"a": [1, 6, 7]})).parameters
    assert (found["b.weight"], found["c.weight"]) == ({1: [1]}, {1: [2, 3]})
    assert infer_masks(graph, channels(model, {"c": [2]}, 1), 1).parameters["a.weight"] == {0: [6]}


def test_a_conflict_prints_itself_short() -> None:
    conflict = Conflict("channel", "a.out", {"a": list(range(100)), "b": []}, [], "so it is")
    assert str(conflict) == (
        "channel conflict on a.out: a asks for 0, 1, 2, 3, 4, 5, 6, 7, … (100); b asks for none. "
        "none can be removed: so it is"
    )  # fmt: skip


@pytest.mark.parametrize("build", [Residual, Grouped, Depthwise, Dense])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_random_masks_are_fixed_in_one_go(build: type[nn.Module], dim: int | None) -> None:
    model, graph = traced(build)
    generator = torch.Generator().manual_seed(3)
    for share in (0.3, 0.6, 0.8):
        masks: Masks = {}
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                weight = torch.ones_like(layer.weight, dtype=torch.float32)
                for side in (0, 1) if dim is None else (dim,):
                    gone = torch.rand(weight.shape[side], generator=generator) < share
                    gone[-1] = False
                    weight.index_fill_(side, gone.nonzero().flatten(), 0)
                masks[name] = {"weight": weight, "bias": None}
        fixed_once(graph, masks, dim)
