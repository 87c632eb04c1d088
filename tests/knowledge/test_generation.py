"""Generating models from known ones: what comes out is new, keeps to the budget, and builds and runs."""

import random
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from knowledge.zoo_contents import SMALL, contents_of, small_contents, small_predictor
from models.zoo import zoo_model
from modulekg_widgets.engine.errors import PredictionError
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.suggestion.candidates import ForwardPass, Ranking, first_working_call, meta_call
from modulekg_widgets.engine.knowledge.suggestion.generation import Generated, generate
from modulekg_widgets.engine.knowledge.suggestion.mutations import (
    BlockSwap,
    DepthChange,
    LayerSwap,
    block_swaps,
    depth_changes,
    donor_blocks,
    layer_swaps,
)
from modulekg_widgets.engine.knowledge.suggestion.resizing import resize_model, runs_forward
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from sampling import sampled

IMAGE = (1, 3, 64, 64)
BUDGET = {"max_params": 3e6, "max_flops": 6e8}


def generated(objective: Any = "acc@1", budget: Any = None, **options: Any) -> Ranking[Generated]:
    given = {"models": SMALL, "generations": 2, "population": 6, "n": 3, "predictor": small_predictor(), **options}
    return generate(small_contents(), objective, BUDGET if budget is None else budget, **given)


@cache
def found() -> Ranking[Generated]:
    return generated()


def run(name: str) -> ForwardPass:
    seen = first_working_call(zoo_model(name), [meta_call((IMAGE,))])
    assert seen is not None
    return seen


def outputs(model: nn.Module, shape: tuple[int, ...] = IMAGE) -> torch.Size:
    with torch.no_grad():
        return model.eval()(torch.rand(shape)).shape


@pytest.mark.slow
def test_where_nothing_keeps_to_the_budget_the_reason_is_told() -> None:
    none = generated(budget={"max_params": 100, "max_flops": 1e6})
    assert len(none) == 0
    assert "is within max_params=100 (the nearest has" in none.reason
    assert "max_flops=1" in none.reason
    assert none.reason in repr(none)
    assert "max_params=100" in none._repr_html_()


def test_where_nothing_can_be_changed_the_reason_is_told() -> None:
    none = generated(generations=0)
    assert len(none) == 0
    assert "no change of" in none.reason
    assert SMALL[0] in none.reason


@pytest.mark.slow
def test_candidates_need_no_reason() -> None:
    assert found().reason == ""


def test_candidates_are_new_and_keep_to_the_budget() -> None:
    assert len(found()) == 3
    assert len({each.fingerprint for each in found()}) == 3
    for each in found():
        assert each.recipe
        assert each.fingerprint not in small_contents().modules
        assert each.parameters <= 3e6
        assert each.flops <= 6e8
        assert each.std > 0
        assert 0 < each.value < 100
    assert [each.value - each.std for each in found()] == sorted((e.value - e.std for e in found()), reverse=True)


def test_candidates_build_into_what_was_predicted_and_run() -> None:
    for each in found():
        model = each.build()
        assert mk.fingerprint(model).hexdigest == each.fingerprint
        assert sum(parameter.numel() for parameter in model.parameters()) == each.parameters
        assert all(parameter.device.type == "cpu" and parameter.isfinite().all() for parameter in model.parameters())
        assert outputs(model, each.inputs[0]) == (1, 1000)


def test_recipes_can_be_read() -> None:
    table = found().frame()
    assert list(table.columns) == ["name", "base", "recipe", "value", "std", "parameters", "flops"]
    assert repr(found()).startswith("Generated for ImageNet-1K, at most 3.0 M parameters, at most 600.0 M FLOPs\n")
    assert table["recipe"].iloc[0] == " · ".join(map(str, found()[0].recipe))


def test_a_seed_gives_the_same_again() -> None:
    options = {"generations": 1, "population": 4, "models": ["squeezenet1_1"], "budget": 5e6}
    one, again, other = (generated(seed=seed, **options).frame() for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    generated(generations=1, population=2, models=["squeezenet1_1"])
    assert torch.equal(before[0], torch.get_rng_state())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


@pytest.mark.slow
def test_an_objective_can_be_a_function_of_the_record() -> None:
    def cheapness(record: ModelRecord) -> float:
        assert record.model.flops is not None
        return -record.model.flops

    best = generated(cheapness, 2e6, models=["squeezenet1_1"], generations=3)[0]
    assert best.value == -best.flops
    assert best.std == 0
    assert best.flops < 0.6 * zoo_record_flops("squeezenet1_1")


def zoo_record_flops(name: str) -> int:
    seen = first_working_call(zoo_model(name), [meta_call(((1, 3, 224, 224),))])
    assert seen is not None
    return seen.flops


def test_the_data_set_gives_the_number_of_classes() -> None:
    best = generated(dataset="CIFAR-10", models=["squeezenet1_1"], generations=1)[0]
    assert best.inputs == ((1, 3, 32, 32),)
    assert outputs(best.build(), (2, 3, 32, 32)) == (2, 10)


def test_a_builder_that_changes_is_found_out() -> None:
    kernel = 3

    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).append(nn.Identity())

    def settled() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, kernel), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    record = model_record(settled(), "mine")
    options = {"models": ["mine"], "generations": 2, "population": 6, "predictor": small_predictor()}
    rows = generate(contents_of(record), "acc@1", 1e6, builders={"mine": settled}, **options)
    kernel = 5
    with pytest.raises(PredictionError, match="no longer"):
        rows[0].build()
    with pytest.raises(PredictionError, match="builders="):
        generate(contents_of(record), "acc@1", 1e6, builders={"mine": build}, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"budget": {"max_param": 3}}, "'max_params'"),
        ({"budget": -1}, "above zero"),
        ({"budget": float("nan")}, "above zero"),
        ({"models": ["squeezenet"]}, "'squeezenet1_1'"),
        ({"dataset": "CIFAR"}, "'CIFAR-10'"),
    ],
)
def test_what_is_not_understood_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=named):
        generated(**options)


# --------------------------------------------------------------------- width

WIDE = [
    "alexnet", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v3_small", "regnet_y_400mf",
    "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "vgg11_bn",
]  # fmt: skip
LARGE = ["convnext_tiny", "maxvit_t", "resnext50_32x4d", "swin_t", "vit_b_16", "inception_v3"]


@pytest.mark.parametrize("name", sampled(WIDE, set(WIDE) - {"googlenet", "densenet121"}))
def test_widths_scale_without_weights(name: str) -> None:
    check_widths(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_widths_of_large_models_scale_without_weights(name: str) -> None:
    check_widths(name)


def check_widths(name: str) -> None:
    image = (1, 3, 299, 299) if name == "inception_v3" else (1, 3, 224, 224)
    model = deepcopy(zoo_model(name))
    before = first_working_call(model, [meta_call((image,))])
    assert before is not None
    assert resize_model(model, meta_call([image]), 0.75)
    after = first_working_call(model, [meta_call((image,))])
    assert after is not None
    assert after.output_shapes[""] == before.output_shapes[""] == ((1, 1000),)
    assert 0.5 < after.flops / before.flops < 0.7
    assert runs_forward(model, meta_call([image]), training=True)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert convolutions[0].in_channels == 3
    was = dict(zoo_model(name).named_modules())
    for path, module in model.named_modules():
        old = was[path]
        if isinstance(module, nn.Conv2d) and isinstance(old, nn.Conv2d):
            assert module.out_channels % 8 == 0 or module.out_channels == old.out_channels in (4, 6, 1000)
            assert module.groups == module.in_channels or old.groups != old.in_channels or old.groups == 1


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "squeezenet1_1"])
def test_widths_scale_with_weights(name: str) -> None:
    changes = resize_model(deepcopy(zoo_model(name)), meta_call([IMAGE]), 1.25)
    assert changes is not None
    model = torchvision_builders()[name]()
    for change in changes:
        change.apply(model)
    assert outputs(model) == (1, 1000)
    assert all(parameter.isfinite().all() and parameter.requires_grad for parameter in model.parameters())


def test_own_parameters_and_attention_scale_too() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.full((1, 1, 32), 0.5))
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.embed, self.norm, self.head = nn.Linear(6, 32), nn.LayerNorm(32), nn.Linear(32, 5)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            values = self.norm(self.embed(values) + self.start)
            return self.head(self.attention(values, values, values)[0].mean(1))

    model = Tokens()
    changes = resize_model(deepcopy(model).to("meta"), meta_call([(1, 7, 6)]), 0.5)
    assert changes is not None
    for change in changes:
        change.apply(model)
    assert model(torch.rand(2, 7, 6)).shape == (2, 5)
    assert model.start.shape == (1, 1, 16)
    assert (model.start == 0.5).all()
    assert model.attention.out_proj.weight.shape == (16, 16)


@pytest.mark.parametrize("factor", [0.5, 0.625, 0.75, 1.25, 1.5])
def test_widths_of_shuffled_channels_scale(factor: float) -> None:
    """Which channel goes where cannot be followed through every shuffle, but how many they are."""
    model = deepcopy(zoo_model("shufflenet_v2_x1_0"))
    assert resize_model(model, meta_call([IMAGE]), factor)
    assert runs_forward(model, meta_call([IMAGE]), training=True)


@pytest.mark.parametrize("factor", [0.75, 1.25])
def test_heads_of_queries_and_values_stay_of_one_width(factor: float) -> None:
    class Together(nn.Module):
        """Attention that projects all three at once and has the width of a head as a number."""

        def __init__(self) -> None:
            super().__init__()
            self.width = 32
            self.project, self.merge, self.head = nn.Linear(64, 192), nn.Linear(64, 64), nn.Linear(64, 5)
            self.embed = nn.Linear(6, 64)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            parts = self.project(self.embed(values)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (2, self.width)).transpose(1, 2) for part in parts)
            found = (q @ k.transpose(-1, -2)).softmax(-1) @ v
            return self.head(self.merge(found.transpose(1, 2).flatten(2)).mean(1))

    model = Together().to("meta")
    assert resize_model(model, meta_call([(1, 7, 6)]), factor)
    assert (model.width, model.project.out_features) == (32 * factor, 192 * factor)


def test_widths_that_do_not_fit_are_refused() -> None:
    class Fixed(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self[1](self[0](images) + torch.ones(1, 16, 1, 1, device=images.device))

    model = Fixed(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1))
    assert resize_model(model.to("meta"), meta_call([IMAGE]), 0.5) is None
    assert model[0].out_channels == 16


def test_what_the_model_gives_keeps_its_size() -> None:
    class FixedResult(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images) + torch.ones(1, 16, 1, 1, device=images.device)

    model = FixedResult(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1))
    assert resize_model(model.to("meta"), meta_call([IMAGE]), 0.5)
    assert [layer.out_channels for layer in model] == [8, 16]


# ----------------------------------------------------- depth, blocks and kinds


def test_siblings_are_repeated_and_dropped() -> None:
    model = torchvision_builders()["resnet18"]()
    assert DepthChange("layer1", 1, 1, True) in depth_changes(model, run("resnet18"))
    assert DepthChange("layer2", 0, 1, False) not in depth_changes(model, run("resnet18"))  # it halves the image
    DepthChange("layer1", 1, 1, True).apply(model, {})
    assert [name for name, _ in model.layer1.named_children()] == ["0", "1", "2"]
    assert mk.fingerprint(model.layer1[1]) == mk.fingerprint(model.layer1[2])
    assert not torch.equal(model.layer1[1].conv1.weight, model.layer1[2].conv1.weight)
    DepthChange("layer1", 0, 2, False).apply(model, {})
    assert len(model.layer1) == 1
    assert outputs(model) == (1, 1000)


def test_named_siblings_keep_names_apart() -> None:
    model = nn.Sequential()
    for name in ("layer_0", "layer_1"):
        model.add_module(name, nn.Linear(4, 4))
    DepthChange("", 0, 1, True).apply(model, {})
    assert [name for name, _ in model.named_children()] == ["layer_0", "layer_1", "layer_2"]


def test_blocks_of_other_models_with_as_many_channels_take_their_place() -> None:
    library = donor_blocks("shufflenet_v2_x0_5", zoo_model("shufflenet_v2_x0_5"), run("shufflenet_v2_x0_5"))
    options = block_swaps("mnasnet0_5", zoo_model("mnasnet0_5"), run("mnasnet0_5"), library)
    assert all(isinstance(option, BlockSwap) and option.donor == "shufflenet_v2_x0_5" for option in options)
    assert options
    model = torchvision_builders()["mnasnet0_5"]()
    before = sum(parameter.numel() for parameter in model.parameters())
    options[0].apply(model, torchvision_builders())
    assert sum(parameter.numel() for parameter in model.parameters()) != before
    assert outputs(model) == (1, 1000)


def test_activations_and_norms_are_exchanged() -> None:
    options = layer_swaps(zoo_model("resnet18"))
    assert LayerSwap("ReLU", "SiLU") in options
    assert LayerSwap("BatchNorm2d", "GroupNorm") in options
    model = torchvision_builders()["resnet18"]()
    LayerSwap("ReLU", "SiLU").apply(model, {})
    LayerSwap("BatchNorm2d", "GroupNorm").apply(model, {})
    kinds = {type(module) for module in model.modules()}
    assert {nn.SiLU, nn.GroupNorm} <= kinds
    assert not {nn.ReLU, nn.BatchNorm2d} & kinds
    assert model.relu.inplace
    assert outputs(model) == (1, 1000)
