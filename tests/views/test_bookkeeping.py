"""Operators by which torch keeps its books, as detach: they are no steps of a data flow."""

import torch
from torch import nn

import modulekg_widgets as mk
from views.test_dataflow import check


class Books(nn.Module):
    """Constants of the code, a module that only detaches, and detaching between modules."""

    class Stop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.detach()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.stop, self.last = nn.Linear(4, 4), self.Stop(), nn.Linear(4, 4)
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * torch.tensor(2.0)
        x = self.stop(x.detach()) * self.gain.detach()
        return self.last(x).detach()


def test_bookkeeping_of_torch_is_no_step_and_its_result_is_what_went_in() -> None:
    payload = mk.ModelGraph(Books(), (torch.zeros(1, 4),)).payload
    check(payload)
    flow, path = payload["flow"], payload["nodes"]["name"]
    steps, calls = flow["steps"], flow["calls"]
    names = [flow["names"][name] if name >= 0 else "" for name in steps["name"]]
    assert [name for name, inputs in zip(names, steps["inputs"], strict=True) if inputs] == [
        "aten::addmm", "aten::mul", "", "aten::mul", "aten::addmm",
    ]  # fmt: skip
    passing = names.index("")
    assert path[calls["node"][steps["call"][passing]]] == "stop"  # the module has its place on the way
    before, after = names.index("aten::mul"), len(names) - 1 - names[::-1].index("aten::mul")
    maker = flow["values"]["step"]
    assert [maker[value] for value in steps["inputs"][passing]] == [before]
    assert [maker[value] for value in steps["inputs"][after] if maker[value] >= 0] == [passing, after - 1]
    (output,) = flow["outputs"]
    assert names[maker[output]] == "aten::addmm"


def test_a_model_that_only_keeps_books_hands_its_input_on() -> None:
    payload = mk.ModelGraph(Books.Stop(), (torch.zeros(1, 4),)).payload
    check(payload)
    assert payload["flow"]["steps"]["name"] == [-1]
