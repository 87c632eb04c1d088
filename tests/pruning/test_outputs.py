"""Which outputs keep their shape: all, but what serves the next call or the inside of the model, or those named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from models import transformers_models


class Several(nn.Module):
    """Gives what it is told to give, of a hidden value and two results."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make
        self.into, self.out, self.side = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.into(x).relu()
        return self.make(hidden, self.out(hidden), self.side(hidden))


def as_mapping(hidden: torch.Tensor, out: torch.Tensor, side: torch.Tensor) -> dict[str, Any]:
    return {"logits": out, "hidden_states": (hidden,), "scores": side, "past_key_values": [(hidden, hidden)]}


def as_tuple(hidden: torch.Tensor, out: torch.Tensor, side: torch.Tensor) -> tuple[Any, ...]:
    return out, (hidden, side)


def widths(value: Any) -> dict[str, int]:
    from modulekg_widgets.engine.torch_runtime.pytree import tensors

    return {name: tensor.shape[-1] for name, tensor in tensors(value)}


def after_cut(make: Any, outputs: Any = None) -> dict[str, int]:
    torch.manual_seed(0)
    model, x = Several(make), torch.randn(2, 4)
    graph = mk.trace(model, x, outputs=outputs)
    plan = mk.plan(graph, ratio=0.5)
    plan.cut(model)
    listed = [change for change in plan.changes if change.kind == "output"]
    assert bool(listed) == bool(graph.notes)
    assert all(change.what in str(plan) for change in listed)
    return widths(model(x))


def test_beside_logits_the_inside_follows_the_cut() -> None:
    left = {".logits": 3, ".hidden_states[0]": 4, ".scores": 5}
    assert after_cut(as_mapping) == {**left, ".past_key_values[0][0]": 4, ".past_key_values[0][1]": 4}


def test_without_logits_hidden_states_count() -> None:
    with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
        after_cut(lambda hidden, out, side: {"out": out, "hidden_states": hidden})


def test_a_mapping_of_nothing_else_counts() -> None:
    with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
        after_cut(lambda hidden, out, side: {"past_key_values": hidden})


@pytest.mark.parametrize("outputs", [["logits"], "logits", [0], 0, ["logits", "scores"], [-4]])
def test_named_outputs_keep_their_shape(outputs: Any) -> None:
    assert after_cut(as_mapping, outputs)[".logits"] == 3
    assert after_cut(as_mapping, outputs)[".hidden_states[0]"] == 4


@pytest.mark.parametrize("outputs", [["hidden_states"], ["past_key_values[0][1]"], [1]])
def test_a_named_output_of_the_inside_keeps_it_too(outputs: Any) -> None:
    assert after_cut(as_mapping, outputs)[".hidden_states[0]"] == 8


def test_outputs_of_a_tuple_go_by_their_places() -> None:
    assert after_cut(as_tuple, [0]) == {"[0]": 3, "[1][0]": 4, "[1][1]": 3}
    assert after_cut(as_tuple, ["[1][1]", "[0]"]) == {"[0]": 3, "[1][0]": 4, "[1][1]": 5}
    with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
        after_cut(as_tuple)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["logit"], "logits"),
        ([7], "there is no output 7"),
        (["hidden_states[1]"], "hidden_states"),
        ({}, "names or indices"),
        ([1.5], "names or indices"),
        ([True], "names or indices"),
    ],
)
def test_an_unknown_output_is_named_with_the_nearest(outputs: Any, message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        mk.trace(Several(as_mapping), torch.randn(2, 4), outputs=outputs)
    with pytest.raises(mk.ModuleKGError, match="outputs"):
        mk.trace(nn.Linear(4, 2), torch.randn(2, 4), outputs=["logits"])


def test_a_followed_output_is_proved_in_its_new_order() -> None:
    graph = mk.trace(Several(as_mapping), torch.randn(2, 4))
    (axis,) = graph.axes.free
    assert graph.axes.verify()[axis.name].status == "proved"


class TwoModes(Several):
    """Gives more in train mode, and reads a layer there that it does not read else."""

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.into(x).relu()
        found = {"result": self.out(hidden), "inner": hidden}
        return {**found, "aux": self.side(hidden)} if self.training else found


def test_the_named_outputs_are_those_of_the_pass_in_train_mode_too() -> None:
    model, x = TwoModes(None).eval(), torch.randn(2, 4)
    plan = mk.plan(mk.trace(model, x, outputs=["result"]), ratio=0.5)
    plan.cut(model)
    assert widths(model(x)) == {".result": 3, ".inner": 4}
    assert widths(model.train()(x)) == {".result": 3, ".inner": 4, ".aux": 5}


def share_left(name: str) -> float:
    model, kwargs = transformers_models.build(name)
    plan = mk.plan(mk.trace(model, (), kwargs), ratio=0.5)
    plan.cut(model)
    found: Mapping[str, Any] = model(**kwargs)
    assert found["logits"].shape[-1] == 100
    return plan.params[1] / plan.params[0]


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_that_is_given_for_looking_at_is_cut(name: str) -> None:
    pytest.importorskip("transformers")
    assert share_left(name) < 0.45


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_a_cut_decoder_still_generates(name: str) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    plan = mk.plan(mk.trace(model, (), kwargs), ratio=0.5)
    plan.cut(model)
    with torch.no_grad():
        tokens = model.generate(input_ids=kwargs["input_ids"], max_new_tokens=5, do_sample=False, pad_token_id=0)
        again = model.generate(
            input_ids=kwargs["input_ids"], max_new_tokens=5, do_sample=False, pad_token_id=0, use_cache=False
        )
    assert tokens.shape[1] > 1
    assert torch.equal(tokens, again)


# ------------------------------------------------------ no output that counts


def test_without_outputs_that_count_the_last_layer_goes_too() -> None:
    """The loop over all convolutions of a net, each cut by itself."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3)).eval()
    x = torch.randn(2, 3, 8, 8)
    graph = mk.trace(model, x, outputs=[])
    assert graph.notes == ["With outputs=[], a cut may change the shape of the output."]
    assert graph.axes.verify().ok
    whole = model(x)
    cuts = [
        graph.cut_analysis(f"{name}.weight", [0, 2])
        for name, layer in model.named_children() if isinstance(layer, nn.Conv2d)
    ]  # fmt: skip
    plan = mk.plan(graph, cuts=cuts[1:])
    assert next(str(change) for change in plan.changes if change.kind == "output").startswith(
        "the output becomes [2, 4, 4, 4], was [2, 6, 4, 4]"
    )
    receipt = plan.cut(model)
    torch.testing.assert_close(model(x), whole[:, [1, 3, 4, 5]])
    receipt.undo()
    mk.plan(graph, cuts=cuts).cut(model)
    assert [model[at].out_channels for at in (0, 2)] == [6, 4]


@pytest.mark.parametrize("make", [as_mapping, as_tuple])
def test_all_outputs_follow_where_none_counts(make: Any) -> None:
    left = after_cut(make, [])
    assert sorted(left.values())[:3] == [2, 3, 4]  # of 3, 5 and 8
    assert set(left.values()) == {2, 3, 4}


def test_classes_go_by_name() -> None:
    model = torchvision.models.resnet18().eval()
    x = torch.randn(1, 3, 64, 64)
    stays = [0, 7, 999]
    gone = [at for at in range(1000) if at not in stays]
    whole = model(x)
    mk.plan(mk.trace(model, x, outputs=[]), per_axis={"fc": gone}).cut(model)
    torch.testing.assert_close(model(x), whole[:, stays])
    assert model.fc.out_features == 3


def test_without_outputs_that_count_the_blocks_are_the_same() -> None:
    model = torchvision.models.resnet18().eval()
    x = torch.zeros(1, 3, 64, 64)
    assert mk.trace(model, x, outputs=[]).blocks().equals(mk.trace(model, x).blocks())


def test_without_outputs_that_count_none_of_another_mode_does() -> None:
    model, x = TwoModes(None).eval(), torch.randn(2, 4)
    mk.plan(mk.trace(model, x, outputs=[]), ratio=0.5).cut(model)
    assert widths(model(x)) == {".result": 2, ".inner": 4}
    assert widths(model.train()(x)) == {".result": 2, ".inner": 4, ".aux": 3}
