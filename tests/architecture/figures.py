"""Lines, files, classes, circles and names that stand twice: `python tests/architecture/figures.py [ROOT …]`.

Each ROOT is a checkout and becomes a column, so that two of them are compared side by side.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture.python_sources import (
    circles,
    circles_of_folders,
    classes,
    functions,
    import_graph,
    modules_of,
    operator_lists,
    private_torch_names,
)

MANY = 3  # a function name that more files than these define
LARGEST = 5
GENERATED = {"node_modules", "generated", "lib", "static", "labextension", "nbextension"}
ORIGIN = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']*)["']""")
TYPESCRIPT_CLASS = re.compile(r"^\s*(?:export\s+)?(?:default\s+)?(?:abstract\s+)?class\s+(\w+)", re.MULTILINE)
TYPESCRIPT_FUNCTION = re.compile(r"^(?:export\s+)?(?:async\s+)?function\s+(\w+)", re.MULTILINE)
Operators = frozenset[str]
Figures = dict[str, str]


def sources(folder: Path, ending: str) -> list[Path]:
    """The files below a folder that people have written."""
    return [path for path in sorted(folder.rglob(f"*{ending}")) if not GENERATED & set(path.relative_to(folder).parts)]


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def typescript_graph(paths: Iterable[Path]) -> dict[str, set[str]]:
    """File → the files that it imports, types alone and lazy imports included."""
    files = {path.resolve().as_posix() for path in paths}
    graph: dict[str, set[str]] = {}
    for file in files:
        graph[file] = set()
        for origin in ORIGIN.findall(Path(file).read_text("utf-8")):
            stem = (Path(file).parent / re.sub(r"\.js$", "", origin)).resolve().as_posix()
            graph[file] |= {stem + end for end in ("", ".ts", "/index.ts") if stem + end in files} - {file}
    return graph


def _twice(found: dict[str, list[Path]]) -> str:
    names = sorted(name for name, paths in found.items() if len(paths) > 1)
    return _counted(names)


def _counted(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{len(listed)}" + (f": {', '.join(listed)}" if listed else "")


def _largest(root: Path, paths: Iterable[Path]) -> str:
    first = sorted(((lines(path), path) for path in paths), reverse=True)[:LARGEST]
    return ", ".join(f"{PurePosixPath(path.relative_to(root)).name} {count}" for count, path in first)


def _sizes(title: str, paths: list[Path], class_count: int) -> Figures:
    return {
        f"{title}: lines": str(sum(map(lines, paths))),
        f"{title}: files": str(len(paths)),
        f"{title}: classes": str(class_count),
    }


def python_figures(root: Path, known: Operators) -> Figures:
    """Rows on the engine, the widgets and the tests of a checkout."""
    package = root / "modulekg_widgets"
    engine = sorted(modules_of(package / "engine").values())
    parts = {"engine": engine, "widgets": sources(package / "widgets", ".py"), "tests": sources(root / "tests", ".py")}
    found: Figures = {}
    for title, paths in parts.items():
        found |= _sizes(f"Python, {title}", paths, sum(map(len, classes(paths).values())))
    rings = circles(import_graph(package))
    folders = circles_of_folders(package)
    lists = {path: at for path in engine if (at := operator_lists(path, known))}
    outside = [path for path in engine if path.name != "private.py"]
    private = Counter(name for path in outside for name in private_torch_names(path))
    return found | {
        "Python: circles of files": _counted(f"{len(ring)} files" for ring in rings),
        "Python: circles of folders": _counted(sorted(folders)),
        "engine: class names defined twice": _twice(classes(engine)),
        f"engine: function names in more than {MANY} files": _counted(
            f"{name} {len(paths)}" for name, paths in sorted(functions(engine).items()) if len(paths) > MANY
        ),
        "engine: lists of operators": f"{sum(map(len, lists.values()))} in "
        + _counted(path.relative_to(package / "engine").as_posix() for path in lists),
        "engine: private names of torch outside private.py": f"{len(private)}, used {private.total()} times",
        "engine: largest files": _largest(root, engine),
        "widgets: largest files": _largest(root, parts["widgets"]),
    }


def typescript_figures(root: Path) -> Figures:
    """Rows on js/src of a checkout, its tests counted apart."""
    every = sources(root / "js" / "src", ".ts")
    tests = [path for path in every if path.name.endswith(".test.ts")]
    code = [path for path in every if path not in set(tests)]
    defined = {kind: _defined(code, kind) for kind in (TYPESCRIPT_CLASS, TYPESCRIPT_FUNCTION)}
    rings = circles(typescript_graph(code))
    many = {name: paths for name, paths in defined[TYPESCRIPT_FUNCTION].items() if len(paths) > MANY}
    return {
        **_sizes("TypeScript", code, sum(map(len, defined[TYPESCRIPT_CLASS].values()))),
        "TypeScript, tests: lines": str(sum(map(lines, tests))),
        "TypeScript, tests: files": str(len(tests)),
        "TypeScript: circles of files": _counted(f"{len(ring)} files" for ring in rings),
        "TypeScript: class names defined twice": _twice(defined[TYPESCRIPT_CLASS]),
        f"TypeScript: function names in more than {MANY} files": _counted(
            f"{name} {len(paths)}" for name, paths in sorted(many.items())
        ),
        "TypeScript: largest files": _largest(root, code),
    }


def _defined(paths: Iterable[Path], pattern: re.Pattern[str]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for name in pattern.findall(path.read_text("utf-8")):
            found[name].append(path)
    return found


def figures(root: Path, known: Operators = frozenset()) -> Figures:
    """All rows of a checkout; `known` are names of operators, without which some lists of them are not seen."""
    return python_figures(root, known) | typescript_figures(root)


def table(roots: list[Path], measure: Callable[[Path], Figures]) -> str:
    """The rows as a table of Markdown, a column for each checkout."""
    columns = [measure(root) for root in roots]
    head = ["", *(root.resolve().name for root in roots)]
    rows = [head, ["---"] * len(head), *([name, *(column[name] for column in columns)] for name in columns[0])]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def operators_of_torch() -> Operators:
    """The names of all operators of ATen, without `aten::` and without the underscore of what works in place."""
    import torch

    schemas = torch._C._jit_get_all_schemas()
    return frozenset(one.name.removeprefix("aten::").rstrip("_") for one in schemas if one.name.startswith("aten::"))


if __name__ == "__main__":
    known_operators = operators_of_torch()
    print(table(list(map(Path, sys.argv[1:])) or [Path.cwd()], lambda root: figures(root, known_operators)))
