"""A model file in ModelGraph: its tree, its graph, what it says of itself, and comparison with a live model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).mean((2, 3)))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> mk.ModelFile:
    path = tmp_path_factory.mktemp("files") / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 3, 8, 8),)), path)
    return mk.open_file(path)


def test_a_graph_of_operators_is_shown(exported: mk.ModelFile) -> None:
    graph = mk.ModelGraph(exported, view="dataflow")
    flow = graph.payload["flow"]
    names = [flow["names"][name] for name in flow["steps"]["name"]]
    assert names[0] == "aten::conv2d"
    assert names[-1] == "aten::linear"
    called = {graph.payload["nodes"]["name"][node] for node in flow["calls"]["node"]}
    assert {"stem", "0", "1", "head"} <= called
    assert [2, 2] not in flow["shapes"]
    assert [1, 2] in flow["shapes"]
    graph.selected = "stem.0"
    assert graph.error is None


def test_what_the_file_says_of_itself_goes_to_the_page(exported: mk.ModelFile) -> None:
    about = mk.ModelGraph(exported).payload["file"]
    assert about["name"] == "net.pt2"
    assert about["format"] == "pt2"
    assert about["dtypes"] == ["float32"]
    assert sorted(about["tensors"]["name"]) == sorted(Net().state_dict())
    assert mk.ModelGraph(Net()).payload["file"] is None


def test_a_file_stands_beside_the_live_model(exported: mk.ModelFile) -> None:
    same = mk.ModelGraph(exported, compare=Net())
    assert same.view == "diff"
    assert set(same.payload["compare"]["left"]) == {"same"}
    other = Net()
    other.head = nn.Linear(4, 3)
    changed = mk.ModelGraph(other, compare=exported).payload["compare"]
    assert changed["left"].count("changed") == 2  # the head, and the whole


def test_a_view_that_a_file_has_not_is_refused(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "net.pth")
    file = mk.open_file(tmp_path / "net.pth")
    with pytest.raises(mk.ModuleKGError, match=r"dataflow.*the file has none"):
        mk.ModelGraph(file, view="dataflow")
    assert "neither code" in (mk.ModelGraph(file, torch.zeros(1, 3, 8, 8)).error or "")


def test_files_meet_models_in_the_knowledge_graph(exported: mk.ModelFile, tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "one.pth")
    torch.save(Net().state_dict(), tmp_path / "other.pth")
    graph = mk.KnowledgeGraph()
    roots = {graph.add_model(mk.open_file(tmp_path / name), name=name) for name in ("one.pth", "other.pth")}
    assert len(roots) == 1  # the name of a file is no structure
    assert graph.add_model(exported, name="exported") not in roots
    with pytest.raises(mk.ModuleKGError, match="neither code"):
        graph.add_model(exported, args=torch.zeros(1, 3, 8, 8))
    assert len(graph.models) == 3
