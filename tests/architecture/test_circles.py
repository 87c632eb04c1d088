"""No circle of imports, neither of files nor of folders, and no long chain of them; lazy imports count."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from architecture.python_sources import circles, circles_of_folders, floors, import_graph

PACKAGE = Path(__file__).resolve().parents[2] / "modulekg_widgets"
MAX_FLOORS = {"modulekg_widgets.engine.pruning.plan": 8}  # package → files in its longest chain of imports


def test_no_files_import_one_another_in_a_circle() -> None:
    assert circles(import_graph(PACKAGE)) == []


def test_no_folders_import_one_another_in_a_circle() -> None:
    assert circles_of_folders(PACKAGE) == {}


@pytest.mark.parametrize("package", MAX_FLOORS)
def test_a_package_has_few_floors(package: str) -> None:
    found = floors(import_graph(PACKAGE), package)
    too_high = {module: floor for module, floor in found.items() if floor > MAX_FLOORS[package]}
    assert found
    assert too_high == {}


# ------------------------------------------------ the checks, on packages that are made up


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package without a circle, in which `engine.low` lies below `engine.high` and `tools`."""
    package = tmp_path / "house"
    files = {
        "__init__": "",
        "tools": "from house.engine.high import top",
        "engine/__init__": '"""Nothing is imported here."""',
        "engine/low/__init__": "",
        "engine/low/ground": "import os",
        "engine/low/walls": "from . import ground",
        "engine/high/__init__": "",
        "engine/high/roof": "from house.engine.low.walls import wall\nimport house.engine.low.ground",
        "engine/high/top": "from house.engine.high import roof",
    }
    return written(package, files)


def written(package: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def test_a_package_without_circles_has_none(house: Path) -> None:
    assert circles(import_graph(house)) == []
    assert circles_of_folders(house) == {}


@pytest.mark.parametrize(
    "text",
    [
        "from house.engine.high.top import x",
        "import house.engine.high.top",
        "from ..high import top",
        "def f():\n    from house.engine.high.top import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.engine.high.top import x",
    ],
)
def test_a_circle_of_files_is_found_however_it_is_imported(tmp_path: Path, house: Path, text: str) -> None:
    # through a file that was not read before: sources are parsed once
    written(
        house,
        {"engine/low/cellar": text, "engine/high/stairs": "", "engine/low/attic": "import house.engine.low.cellar"},
    )
    written(house, {"engine/high/top": "from house.engine.low import cellar"})
    assert circles(import_graph(house)) == [["house.engine.high.top", "house.engine.low.cellar"]]
    assert circles_of_folders(house) == {"house.engine": [["house.engine.high/", "house.engine.low/"]]}


def test_a_circle_of_folders_without_one_of_files_is_found(house: Path) -> None:
    written(house, {"engine/low/lift": "from house.engine.high.roof import x"})
    assert circles(import_graph(house)) == []
    assert circles_of_folders(house) == {"house.engine": [["house.engine.high/", "house.engine.low/"]]}


def test_a_file_beside_folders_is_a_node_of_its_own(house: Path) -> None:
    written(
        house,
        {"engine/plan": "from house.engine.high import roof", "engine/high/flag": "from house.engine import plan"},
    )
    assert circles(import_graph(house)) == []
    assert circles_of_folders(house) == {"house.engine": [["house.engine.high/", "house.engine.plan"]]}


def test_a_package_that_its_own_parts_import_is_in_a_circle(house: Path) -> None:
    written(
        house, {"garden/__init__": "from house.garden.tree import oak", "garden/tree": "from house.garden import hut"}
    )
    assert circles(import_graph(house)) == [["house.garden", "house.garden.tree"]]
    assert circles_of_folders(house) == {"house.garden": [["house.garden.__init__", "house.garden.tree"]]}


def test_two_circles_that_touch_are_one_and_others_are_not() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}, "d": {"e"}, "e": {"d", "a"}, "f": {"a", "d"}}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]


def test_floors_are_the_longest_chain_of_imports_within_a_package(house: Path) -> None:
    graph = import_graph(house)
    assert floors(graph, "house.engine.high") == {
        "house.engine.high": 1,
        "house.engine.high.roof": 1,  # what it imports lies outside
        "house.engine.high.top": 2,
    }
    assert max(floors(graph, "house").values()) == 5
    assert floors(graph, "house")["house.engine.low.ground"] == 1


def test_an_import_for_types_alone_is_a_floor(tmp_path: Path, house: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.engine.high.top import x"
    written(house, {"engine/high/flag": text})
    assert floors(import_graph(house), "house.engine.high")["house.engine.high.flag"] == 3


def test_a_long_chain_is_no_matter_of_depth() -> None:
    chain = {str(at): {str(at + 1)} for at in range(5_000)}
    assert circles(chain) == []
    assert len(circles(chain | {"5000": {"0"}})[0]) == 5_001
