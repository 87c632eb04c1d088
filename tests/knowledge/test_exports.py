"""The graph as files for other tools."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from identity.samples import zoo_model


@pytest.fixture(scope="module")
def graph() -> mk.KnowledgeGraph:
    made = mk.KnowledgeGraph()
    for name in ("resnet18", "squeezenet1_0"):
        made.add_model(zoo_model(name), name=name)
    return made


@pytest.fixture(scope="module")
def hostile() -> mk.KnowledgeGraph:
    """Classes whose names are markup, quotes, escapes and blanks; children named by half a character."""
    made = mk.KnowledgeGraph()
    names = ['"', "\\", '\\"', "a\nb", "a b", "<b>x</b>", "\r", "\\N", "é", "]; evil [", "// x", "\u202e", ""]
    made.add_model(nn.Sequential(*(type(name, (nn.Module,), {})() for name in names)), name="hostile")
    made.add_model(NASTY["hostile_names"]["make"](), name="<script>")
    return made


def drawn(path: Path) -> str:
    done = subprocess.run(["dot", "-Tplain", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dot_is_accepted_and_complete(graph: mk.KnowledgeGraph, tmp_path: Path, require: Callable[..., None]) -> None:
    require("$dot")
    path = graph.export(tmp_path / "graph.dot")
    lines = drawn(path).splitlines()
    made = graph.to_networkx()
    assert sum(line.startswith("node ") for line in lines) == len(made)
    assert sum(line.startswith("edge ") for line in lines) == made.number_of_edges()


def test_hostile_names_stay_text_in_dot(
    hostile: mk.KnowledgeGraph, tmp_path: Path, require: Callable[..., None]
) -> None:
    require("$dot")
    lines = drawn(hostile.export(tmp_path / "hostile.dot")).splitlines()
    assert sum(line.startswith("node ") for line in lines) == hostile.unique_count


def test_dot_names_the_structures_and_their_uses(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    text = graph.export(tmp_path / "graph.dot").read_text()
    name = mk.fingerprint(nn.ReLU(inplace=True)).display_name
    assert f'[label="{name} ×35"];' in text
    assert text.startswith("digraph")


@pytest.mark.parametrize("which", ["graph", "hostile"])
def test_the_edge_list_has_a_line_per_edge(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    graph = request.getfixturevalue(which)
    made = graph.to_networkx()
    lines = graph.export(tmp_path / "graph.edges").read_text(encoding="utf-8").splitlines()
    words = [line.split(" ") for line in lines]
    assert all(len(line) in (1, 2) and all(line) for line in words)
    assert sum(len(line) == 2 for line in words) == made.number_of_edges()
    assert len({word for line in words for word in line}) == len(made)


def test_a_structure_without_edges_has_a_line_of_its_own(tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU())
    name = mk.fingerprint(nn.ReLU()).display_name
    assert graph.export(tmp_path / "graph.edges").read_text() == f"{name}\n"


@pytest.mark.parametrize("name", ["graph.xyz", "graph", "graph.dott"])
def test_an_unknown_format_is_refused_and_writes_nothing(graph: mk.KnowledgeGraph, name: str, tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match="there is no export format"):
        graph.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_files_appear_whole_or_not_at_all(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    path = tmp_path / "graph.DOT"
    path.write_text("old")
    assert graph.export(str(path)) == path
    assert path.read_text().startswith("digraph")
    assert [p.name for p in tmp_path.iterdir()] == ["graph.DOT"]
    with pytest.raises(mk.ModuleKGError, match="there is no folder"):
        graph.export(tmp_path / "missing" / "graph.dot")


def test_two_exports_are_the_same_bytes(graph: mk.KnowledgeGraph, tmp_path: Path) -> None:
    first, second = (graph.export(tmp_path / name).read_bytes() for name in ("a.dot", "b.dot"))
    assert first == second
