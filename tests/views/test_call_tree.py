"""Which call ran within which, for modules that are called in every way."""

from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.views.flow_tables import CallTree


def tree(model: nn.Module, *args: Any) -> list[str]:
    """The calls in order, each as its path, indented by how deep it ran."""
    modules = hierarchy(model)
    calls = CallTree(mk.trace(model, args), modules.walk)
    lines = []
    for call in calls.calls:
        depth, above = 0, call.parent
        while above >= 0:
            depth, above = depth + 1, calls.calls[above].parent
        lines.append("  " * depth + (modules.walk.path(call.node) or "(root)"))
    return lines


X = torch.zeros(1, 2)


def test_containers_that_do_nothing_but_call_stand_around_what_they_call() -> None:
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.ReLU())))
    assert tree(model, X) == ["(root)", "  0", "    0.0", "      0.0.0"]


def test_modules_in_which_no_operator_runs_have_their_place() -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Dropout(), nn.ReLU(), nn.Dropout()), nn.Identity()).eval()
    assert tree(model, X) == ["(root)", "  0", "  1", "    1.0", "    1.1", "    1.2", "  2"]
    idle = nn.Sequential(nn.Identity(), nn.Identity())
    assert tree(nn.Sequential(idle), X) == ["(root)", "  0", "    0.0", "    0.1"]


def test_every_call_of_a_module_is_one() -> None:
    act = nn.ReLU()
    assert tree(nn.Sequential(act, nn.Linear(2, 2), act, act), X) == ["(root)", "  0", "  1", "  0", "  0"]


def test_a_shared_container_is_called_from_both_places() -> None:
    inner = nn.Sequential(nn.ReLU())
    model = nn.Sequential(nn.Sequential(inner), nn.Sequential(inner))
    assert tree(model, X) == ["(root)", "  0", "    0.0", "      0.0.0", "  1", "    0.0", "      0.0.0"]


def test_a_module_made_in_forward_is_part_of_what_made_it() -> None:
    class Making(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x) + 1

    assert tree(nn.Sequential(Making()), X) == ["(root)", "  0"]


def test_events_are_all_operators_once_and_in_order() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Identity()), nn.Linear(2, 2))
    graph = mk.trace(model, (X,))
    events = list(CallTree(graph, hierarchy(model).walk).events())
    assert [at for kind, _, at in events if kind == "operator"] == list(range(len(graph.operators)))
    assert sum(kind == "enter" for kind, _, _ in events) == sum(kind == "leave" for kind, _, _ in events) == 6
