"""What a model may be called with, and what it may return."""

import re
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda

Tensor = torch.Tensor
Pair = namedtuple("Pair", "left right")


@dataclass
class Batch:
    image: Tensor
    extra: list[Any] = field(default_factory=list)
    label: str = "cat"


@dataclass(frozen=True)
class Frozen:
    mask: Tensor


class TakesAll(nn.Module):
    def forward(self, batch: Batch, pair: Pair, *more: Any, flag: bool, table: dict[Any, Any], **rest: Any) -> Any:
        assert isinstance(batch, Batch)
        assert isinstance(pair, Pair)
        assert flag is True
        y = batch.image + batch.extra[0]["x"] + pair.left * more[0][0] + table["a"]["b"][1] + rest["frozen"].mask
        return OrderedDict(
            first=Batch(y, [None, (y + 1,)]), second=Pair(y * 2, None), third=[y, {"z": y - 1}], none=None
        )


def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
    t = [torch.randn(3) for _ in range(8)]
    args = (Batch(t[0], [{"x": t[1]}]), Pair(t[2], None), (t[3], None, "text"), [3, t[4]])
    return args, {"flag": True, "frozen": Frozen(t[5]), "table": {"a": {"b": (t[6], t[7])}, 3: None}}


def test_nested_inputs_have_names() -> None:
    args, kwargs = arguments()
    model = TakesAll()
    with unchanged(model, args, kwargs):
        graph = mk.trace(model, args, kwargs)
    assert [node.name for node in graph.inputs] == [
        "batch.image", "batch.extra[0].x", "pair.left", "more[0][0]", "more[1][1]", "table.a.b[0]", "table.a.b[1]",
        "rest.frozen.mask",
    ]  # fmt: skip
    unread = {node.name for node in graph.inputs if not node.consumers}
    assert unread == {"more[1][1]", "table.a.b[0]"}
    assert all(node.shape == (3,) for node in graph.inputs)


def test_nested_outputs_are_found() -> None:
    args, kwargs = arguments()
    graph = mk.trace(TakesAll(), args, kwargs)
    names = [node.producer.name if node.producer else node.name for node in graph.outputs]
    assert names == ["aten::add", "aten::add", "aten::mul", "aten::sub"]
    assert graph.result["first"].image is graph.outputs[0]
    assert graph.result["third"][0] is graph.outputs[0]
    got, expected = graph.forward(*args, **kwargs), TakesAll()(*args, **kwargs)
    assert torch.equal(got["second"].left, expected["second"].left)
    assert torch.equal(got["first"].extra[1][0], expected["first"].extra[1][0])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (torch.ones(2, 4), None),
        ((torch.ones(2, 4),), None),
        ([torch.ones(2, 4)], {}),
        ({"input": torch.ones(2, 4)}, None),
        ((), {"input": torch.ones(2, 4)}),
        (None, {"input": torch.ones(2, 4)}),
    ],
    ids=["tensor", "tuple", "list", "dict", "keywords", "None"],
)
def test_one_input_in_any_way(args: Any, kwargs: Any) -> None:
    graph = mk.trace(nn.Linear(4, 3), args, kwargs)
    assert [node.name for node in graph.inputs] == ["input"]
    assert graph.outputs[0].shape == (2, 3)


def test_a_list_that_holds_itself() -> None:
    given: list[Any] = [torch.ones(3)]
    given.append(given)
    graph = mk.trace(Lambda(lambda module, x: (x[0] * 2, x)), (given,))
    assert [node.name for node in graph.inputs] == ["args[0][0]"]
    doubled, returned = graph.forward(given)
    assert torch.equal(doubled, torch.full((3,), 2.0))
    assert returned[1] is returned


def test_inputs_without_tensors() -> None:
    graph = mk.trace(Lambda(lambda module, n: module.weight * n, weight=nn.Parameter(torch.ones(3))), (4,))
    assert graph.inputs == []
    assert torch.equal(graph.forward(4), torch.full((3,), 4.0))


def test_a_parameter_as_input_is_the_parameter() -> None:
    model = nn.Linear(4, 4)
    graph = mk.trace(model, model.weight)
    assert graph.inputs == []
    assert [operator.name for operator in graph.state["weight"].consumers] == ["aten::t", "aten::addmm"]


def test_integer_and_empty_and_scalar_tensors() -> None:
    graph = mk.trace(
        Lambda(lambda module, i, e, s: (i.float() * s, e.sum())),
        (torch.arange(3), torch.empty(0, 3), torch.tensor(2.0)),
    )
    assert [(node.shape, node.dtype) for node in graph.inputs] == [
        ((3,), torch.int64), ((0, 3), torch.float32), ((), torch.float32)
    ]  # fmt: skip
    assert [node.shape for node in graph.outputs] == [(3,), ()]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), None, r"do not fit forward\(input: .*\).* of Linear: missing a required argument: 'input'"),
        ((torch.ones(2, 4), torch.ones(2, 4)), None, r"too many positional arguments"),
        (torch.ones(2, 4), {"scale": 3}, r"unexpected keyword argument 'scale'"),
        (torch.ones(2, 4), [3], r"kwargs is a list: pass a dict of keyword arguments"),
        (torch.ones(2, 5), None, r"the forward pass of Linear stopped.*RuntimeError.*Its inputs were input \[2, 5\]"),
        ("text", None, r"the forward pass of Linear stopped.*TypeError.*Its inputs were no tensors"),
    ],
    ids=["none", "two", "keyword", "kwargs", "shape", "text"],
)
def test_inputs_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    model = nn.Linear(4, 3)
    with unchanged(model, args), pytest.raises(mk.ModuleKGError, match=message):
        mk.trace(model, args, kwargs)


@pytest.mark.parametrize("model", [nn.ModuleList([nn.Linear(2, 2)]), nn.ModuleDict(), nn.Module()])
def test_a_model_without_a_forward(model: nn.Module) -> None:
    with pytest.raises(mk.ModuleKGError, match="has no forward: trace a model that can be called"):
        mk.trace(model, torch.ones(2))


@pytest.mark.parametrize("model", [None, nn.Linear, "resnet18", lambda x: x])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(mk.ModuleKGError):
        mk.trace(model, torch.ones(2))


class TakesList(nn.Module):
    """As a detector, takes a list of images."""

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        if not isinstance(images, list):
            raise ValueError("images is expected to be a list")
        return images[0] * 2


class TakesTwo(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such luck")


def test_a_list_that_was_meant_as_one_argument_is_told_first() -> None:
    image = torch.zeros(3)
    advice = "If forward takes the list as one argument, write `args=([x],)`. The "
    with pytest.raises(mk.ModuleKGError, match=f"^{re.escape(advice)}forward pass of TakesList stopped"):
        mk.trace(TakesList(), [image])
    several = re.escape(advice.replace("[x]", "[x, …]"))
    with pytest.raises(mk.ModuleKGError, match=f"^{several}inputs do not fit forward"):
        mk.trace(TakesList(), [image, image])  # that fits no signature
    with (
        pytest.raises(mk.ModuleKGError, match=f"^{re.escape(advice)}"),
        mk.rewrite.function_modules(TakesList(), [image]),
    ):
        pass
    assert (mk.ForwardPlayer(TakesList(), [image]).error or "").startswith(advice.removesuffix("The "))
    assert (mk.ModelGraph(TakesList(), [image]).error or "").startswith(advice)
    assert mk.trace(TakesList(), ([image],)).operators
    assert mk.trace(nn.Linear(3, 2), [image]).operators


def test_a_list_that_forward_cannot_take_whole_is_not_to_blame() -> None:
    with pytest.raises(mk.ModuleKGError, match=r"^the forward pass of TakesTwo stopped"):
        mk.trace(TakesTwo(), [torch.zeros(3), torch.zeros(3)])


def test_a_list_with_which_forward_fails_too_is_not_to_blame() -> None:
    with pytest.raises(mk.ModuleKGError, match=r"^the forward pass of Linear stopped"):
        mk.trace(nn.Linear(3, 2), [torch.zeros(1, 4)])


def test_what_fails_for_another_reason_says_nothing_of_lists() -> None:
    with pytest.raises(mk.ModuleKGError) as caught:
        mk.trace(TakesList(), (torch.zeros(3),))
    assert "takes the list" not in str(caught.value)
