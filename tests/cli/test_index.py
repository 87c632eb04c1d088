"""`modulekg index` and `modulekg export` of a stored graph."""

import sys
from pathlib import Path

import pytest

import modulekg_widgets as mk
from modulekg_widgets.cli import main

MODELS = """
from torch import nn

def small(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU())
def fails(): raise ValueError("no data")
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `indexed_models` in the current folder, which is an empty one otherwise."""
    (tmp_path / "indexed_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "indexed_models", raising=False)


def test_models_are_indexed_and_the_graph_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "indexed_models:small", "--store", "zoo.db"]) == 0
    assert "1 models, 3 modules" in capsys.readouterr().out
    for ending in ("graphml", "gexf", "cyjs", "dot", "edges", "jsonld", "csv"):
        assert main(["export", "zoo.db", f"zoo.{ending}"]) == 0
        assert capsys.readouterr().out.strip() == f"zoo.{ending}"
    stored = mk.KnowledgeGraph("zoo.db").contents()
    for ending in ("graphml", "cyjs", "jsonld"):
        assert mk.load_graph(f"zoo.{ending}").contents() == stored
    assert main(["export", "sqlite:///zoo.db", "again.graphml"]) == 0
    assert Path("again.graphml").read_bytes() == Path("zoo.graphml").read_bytes()


def test_torchvision_is_all_of_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    builders = mk.torchvision_builders()
    assert len(builders) == 121
    few = {"alexnet": builders["alexnet"]}
    monkeypatch.setitem(vars(mk), "torchvision_builders", lambda: few)
    assert main(["index", "torchvision", "--store", "zoo.db"]) == 0
    assert mk.KnowledgeGraph("zoo.db").models == ["alexnet"]


def test_libraries_by_pattern_and_names_that_two_of_them_have(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    few = mk.timm_builders(["resnet18", "resnet10t", "test_vit"])
    monkeypatch.setitem(vars(mk), "timm_builders", lambda: few)
    models = ["torchvision:resnet18", "timm:resnet*", "timm:resnet10*", "torchvision:resnet18"]
    assert main(["index", *models, "--store", "zoo.db"]) == 0
    assert sorted(mk.KnowledgeGraph("zoo.db").models) == ["resnet10t", "resnet18", "timm/resnet18"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["index", "indexed_models:fails", "--store", "zoo.db"], "1 of 1 models"),
        (["index", "indexed_models:small", "--store", "indexed_models.py"], "not a SQLite file"),
        (["index", "indexed_models:small", "--store", "mysql://x/y"], "not a kind of store"),
        (["export", "missing.db", "zoo.graphml"], "there is no store 'missing.db'"),
        (["export", "missing.db", "zoo.html"], "the file must end in one of"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    command: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    message = capsys.readouterr().err
    assert text in message
    assert message.count("\n") == 1 or "model" in message
    assert not Path("missing.db").exists()
    assert not Path("zoo.graphml").exists()
