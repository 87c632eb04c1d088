"""Imports in TypeScript run one way: no circle among files or folders, and core's folders stand in layers."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "js" / "src"

# folder of core → the folders that it may import; every one may import shared and words
ALLOWED = {
    "words": set(),
    "shared": set(),
    "export": set(),
    "tree": set(),
    "panel": {"tree"},
    "masks": set(),
    "metrics": {"export"},
    "files": set(),
    "forward": set(),
    "layout": set(),
    "graph": {"export", "layout", "panel", "tree"},
    "knowledge": {"metrics", "panel"},
}
FILES = 12  # of a folder, its tests not counted
# folder → its number of files, where it has more than FILES
CROWDED: dict[str, int] = {}
# import and export … from, import("…") and import "…", types included
IMPORT = re.compile(
    r"""^(?:import|export)\b[^;'"]*?\bfrom\s+["'](\.[^"']+)["']|\bimport\(\s*["'](\.[^"']+)["']|^import\s+["'](\.[^"']+)["']""",
    re.MULTILINE,
)


def imports(path: Path) -> set[Path]:
    """The TypeScript files that a file imports, whether it needs their code or their types alone."""
    found = set()
    for names in IMPORT.findall(path.read_text("utf-8")):
        target = path.parent / next(filter(None, names))
        candidates = (target.with_name(f"{target.name}.ts"), target / "index.ts")
        found.update(candidate.resolve() for candidate in candidates if candidate.is_file())
    return found


def graph_of(folder: Path) -> dict[Path, set[Path]]:
    paths = [path.resolve() for path in folder.rglob("*.ts") if "generated" not in path.parts]
    known = set(paths)
    return {path: imports(path) & known for path in sorted(paths)}


def circles(graph: Mapping[Path, Iterable[Path]]) -> list[list[Path]]:
    """Groups of files that import each other, directly or through others; a file that imports itself too."""
    around = {}
    for start in graph:
        seen: set[Path] = set()
        pending = list(graph[start])
        while pending:
            at = pending.pop()
            if at not in seen:
                seen.add(at)
                pending.extend(graph[at])
        around[start] = seen
    groups = {
        tuple(sorted(other for other in graph if other in around[path] and path in around[other]))
        for path in graph
        if path in around[path]
    }
    return [list(group) for group in sorted(groups)]


def circles_of_entries(graph: Mapping[Path, Iterable[Path]], source: Path) -> dict[str, list[list[str]]]:
    """By folder: groups of what lies directly in it, files and folders, that import each other."""
    entries: dict[Path, dict[Path, set[Path]]] = {}
    for path, used in graph.items():
        for other in used:
            folder = next(above for above in path.parents if above in other.parents)
            below = [folder / one.relative_to(folder).parts[0] for one in (path, other)]
            siblings = entries.setdefault(folder, {})
            siblings.setdefault(below[1], set())
            if below[0] != below[1]:
                siblings.setdefault(below[0], set()).add(below[1])
    return {
        folder.relative_to(source).as_posix(): [[one.name for one in circle] for circle in around]
        for folder, siblings in sorted(entries.items())
        if (around := circles(siblings))
    }


def folder_of(path: Path, source: Path) -> str | None:
    """The folder of core that a file is in."""
    parts = path.relative_to(source).parts
    return parts[1] if parts[0] == "core" and len(parts) > 2 else None


GRAPH = graph_of(SOURCE)
CODE = [path for path in GRAPH if not path.name.endswith(".test.ts")]
FOLDERS = sorted({path.parent.relative_to(SOURCE).as_posix() for path in CODE} - {"testing"})


def test_no_file_imports_itself_around_a_circle() -> None:
    assert [[path.relative_to(SOURCE).as_posix() for path in circle] for circle in circles(GRAPH)] == []


def test_no_folders_import_one_another_in_a_circle() -> None:
    code = {path: GRAPH[path] & set(CODE) for path in CODE}
    assert circles_of_entries(code, SOURCE) == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_few_files(folder: str) -> None:
    files = [path for path in CODE if path.parent == SOURCE / folder]
    assert len(files) <= FILES or len(files) == CROWDED.get(folder)


def test_the_crowded_folders_are_crowded() -> None:
    assert set(CROWDED) <= set(FOLDERS)
    assert all(count > FILES for count in CROWDED.values())


@pytest.mark.parametrize("folder", sorted({folder_of(path, SOURCE) for path in CODE} - {None}, key=str))
def test_folders_of_core_import_only_what_lies_below(folder: str) -> None:
    assert folder in ALLOWED, f"core/{folder} is new: give it its place in this table"
    used = {
        f"{path.name} imports {other.relative_to(SOURCE).as_posix()}"
        for path in CODE
        if folder_of(path, SOURCE) == folder
        for other in GRAPH[path]
        if folder_of(other, SOURCE) not in {folder, "shared", "words", None, *ALLOWED[folder]}
    }
    assert used == set()


def test_core_stands_on_its_own() -> None:
    used = {
        f"{path.name} imports {other.relative_to(SOURCE).as_posix()}"
        for path in CODE
        if folder_of(path, SOURCE) is not None
        for other in GRAPH[path]
        if folder_of(other, SOURCE) is None
    }
    assert used == set()


def test_the_table_of_folders_has_no_circle() -> None:
    graph = {Path(folder): [Path(other) for other in below] for folder, below in ALLOWED.items()}
    assert circles(graph) == []


def test_the_checks_see_what_they_forbid(tmp_path: Path) -> None:
    for name, text in {
        "a": 'import {\n  type B,\n  c\n} from "./b";\n',
        "b": 'import type { C } from "./folder/c";\n',
        "folder/c": 'export { a } from "../a";\nconst later = () => import("../d");\n',
        "d": 'import "./d";\n// import { a } from "./a"\n',
        "e": 'import { a } from "./a";\n',
    }.items():
        path = tmp_path / f"{name}.ts"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    graph = graph_of(tmp_path)
    found = [[path.relative_to(tmp_path.resolve()).as_posix() for path in circle] for circle in circles(graph)]
    assert found == [["a.ts", "b.ts", "folder/c.ts"], ["d.ts"]]


def test_a_circle_of_folders_without_one_of_files_is_found(tmp_path: Path) -> None:
    for name, text in {
        "a/low": "",
        "a/high": 'import { b } from "../b/high";\n',
        "b/low": 'import { a } from "../a/low";\n',
        "b/high": 'import { c } from "./inner/c";\n',
        "b/inner/c": "",
        "b/inner/d": 'import { a } from "../../a/low";\nimport { low } from "../low";\n',
        "e": 'import { a } from "./a/high";\n',
    }.items():
        path = tmp_path / f"{name}.ts"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = graph_of(tmp_path)
    assert circles(graph) == []
    assert circles_of_entries(graph, tmp_path.resolve()) == {".": [["a", "b"]]}
