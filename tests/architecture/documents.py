"""What the documents name: files, names in files, dotted names, links and commands, and whether it exists."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from architecture.python_sources import tree_of

ROOT = Path(__file__).resolve().parents[2]
# a path is written from one of these
BASES = [ROOT, ROOT / "modulekg_widgets", ROOT / "modulekg_widgets" / "engine", ROOT / "js", ROOT / "js" / "src"]
CODE_FILES = (".py", ".pyi", ".ts", ".mjs", ".mts", ".md", ".css", ".cff", ".ipynb", ".toml")
FOLDERS = {"docs", "engine", "js", "modulekg_widgets", "notebooks", "tests", "widgets"}
BUILT = (
    "dist/",
    "docs/_build",
    "modulekg_widgets/static",
    "modulekg_widgets/labextension",
    "modulekg_widgets/nbextension",
)
FENCE = re.compile(r"( *)(`{3,}|~{3,})([^`\n]*)")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.*<>{}-]+(?:/[\w.*<>{}-]+)*/?")
# beside the files of a repository, a code host has pages of it
HOST = re.compile(r"\.\./\.\./(?:actions(?:/workflows/([\w.-]+\.yml)(?:/badge\.svg)?)?|issues|releases|security)\b.*")
DOTTED = re.compile(r"(?<![\w./])@?((?:mk|modulekg_widgets|engine|widgets)(?:\.[A-Za-z_]\w*)+)")


def documents() -> list[Path]:
    """All documents: those in the top folder, and those of the site; what a build of it writes begins with `_`."""
    site = sorted(path for path in (ROOT / "docs").rglob("*.md") if "/_" not in path.relative_to(ROOT).as_posix())
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *site]


@dataclass(frozen=True)
class Fenced:
    """A block of code: what stands behind the opening fence, its lines without their indentation, where it begins."""

    info: str
    body: str
    line: int  # of the opening fence, from 1
    end: int  # of the closing one


def fenced(text: str) -> Iterator[Fenced]:
    """The blocks between fences, as CommonMark pairs them: those that close have as many signs, and nothing behind."""
    lines = text.splitlines(keepends=True)
    found = [FENCE.fullmatch(line.rstrip()) for line in lines]
    at = 0
    while at < len(lines):
        if begin := found[at]:
            closing = (
                n for n, end in enumerate(found) if n > at and end and end[2].startswith(begin[2]) and not end[3]
            )
            end = next(closing, len(lines))  # one that nothing closes goes on to the end
            body = (line.removeprefix(begin[1]) for line in lines[at + 1 : end])
            yield Fenced(begin[3].strip(), "".join(body), at + 1, end + 1)
            at = end
        at += 1


def prose(text: str) -> str:
    """A document without its blocks of code."""
    lines = text.splitlines(keepends=True)
    for block in fenced(text):
        lines[block.line - 1 : block.end] = [""] * (block.end - block.line + 1)
    return "".join(lines)


def blocks(text: str, *languages: str) -> list[str]:
    """The blocks of code in one of the languages; "" is a block that names none."""
    return [block.body for block in fenced(text) if block.info in languages]


def spans(text: str) -> list[str]:
    """What stands in backticks outside of blocks."""
    return SPAN.findall(prose(text))


# -------------------------------------------------------------------- paths


def paths_in(code: str) -> Iterator[str]:
    """The paths in a piece of code or a command: `folder/`, `folder/file.py`, `file.py`, each perhaps with `::name`."""
    for word in re.split(r"[\s=,;()'\"\[\]]+", code):
        path = word.partition("::")[0].removeprefix("./")
        if not PATH.fullmatch(path) or path.startswith(BUILT) or "<" in path:
            continue
        first, slash, _ = path.partition("/")
        if path.endswith((*CODE_FILES, "/")) or (slash and first in FOLDERS):
            yield word.removeprefix("./")


def tree_paths(block: str) -> Iterator[str]:
    """The paths of a drawn tree of folders: by indentation, and the `part/`s that a line tells of its folder."""
    above: list[tuple[int, str]] = []
    for line in filter(str.strip, block.splitlines()):
        name, *words = line.split()
        indent = len(line) - len(line.lstrip())
        above = [(at, path) for at, path in above if at < indent]
        path = "".join(part for _, part in above) + name
        yield path
        if name.endswith("/"):
            above.append((indent, name))
            yield from (path + word.rstrip(",;") for word in words if word.rstrip(",;").endswith("/"))


def missing_path(written: str) -> str | None:
    """Why there is no such file or folder, or no such name in the file; None where there is."""
    path, _, name = written.partition("::")
    found = [one for base in BASES for one in base.glob(path.rstrip("/")) if not _is_foreign(one)]
    if not found and "/" not in path:
        found = [one for folder in ("modulekg_widgets", "js/src", "tests") for one in (ROOT / folder).rglob(path)]
    if not found:
        return f"there is no {path}"
    if path.endswith("/") and not found[0].is_dir():
        return f"{path} is not a folder"
    return f"{path} does not define {name}" if name and name not in names_defined(found[0]) else None


def _is_foreign(path: Path) -> bool:
    return "node_modules" in path.parts


@cache
def names_defined(path: Path) -> frozenset[str]:
    """The names that a file defines: functions, classes, `Class.method`, variables; in TypeScript what it declares."""
    if path.suffix not in (".py", ".pyi"):
        declared = r"\b(?:function|class|const|let|interface|type)\s+(\w+)"
        return frozenset(re.findall(declared, path.read_text("utf-8")))
    found: set[str] = set()
    for node in tree_of(path).body:
        found |= _names_of(node, "")
    return frozenset(found)


def _names_of(node: ast.stmt, prefix: str) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {prefix + node.name}
    if isinstance(node, ast.ClassDef):
        inner = [_names_of(each, f"{node.name}.") for each in node.body]
        return {prefix + node.name}.union(*inner)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {prefix + each.id for each in targets if isinstance(each, ast.Name)}


# ------------------------------------------------------------- dotted names


def dotted_in(code: str) -> list[str]:
    """The dotted names of ours in a piece of code: `mk.plan`, `engine.errors`, `@mk.metric("Name")`."""
    return DOTTED.findall(code)


def missing_name(written: str) -> str | None:
    """Why a dotted name leads nowhere; None where it leads to something."""
    first, *rest = written.split(".")
    home = {"engine": ["engine"], "widgets": ["widgets"]}.get(first, [])
    value: Any = import_module("modulekg_widgets")
    for at, name in enumerate([*home, *rest]):
        found = _part(value, name)
        if found is None:
            return f"{written}: there is no {name!r}" if at or not home else f"{written} leads nowhere"
        value = found[0]
        if value is None:  # an annotated attribute: what lies behind it is not known
            return None
    return None


def _part(value: Any, name: str) -> tuple[Any] | None:
    if hasattr(value, name):
        return (getattr(value, name),)
    if isinstance(value, type) and any(name in vars(cls).get("__annotations__", {}) for cls in value.__mro__):
        return (None,)
    package = getattr(value, "__name__", "") if hasattr(value, "__path__") else ""
    try:
        return (import_module(f"{package}.{name}"),) if package else None
    except ModuleNotFoundError:
        return None


# -------------------------------------------------------- links and commands


def anchors(text: str) -> set[str]:
    """The anchors that a code host makes of the headings."""
    titles = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def missing_link(document: Path, target: str) -> str | None:
    """Why a link leads nowhere; addresses of other hosts are not asked."""
    if re.match(r"[a-z]+:", target):
        return None
    if on_host := HOST.fullmatch(target):
        workflow = on_host[1]
        return None if not workflow or (ROOT / ".github/workflows" / workflow).exists() else f"there is no {target}"
    file, _, anchor = target.partition("#")
    path = (document.parent / file).resolve() if file else document
    if not path.exists():
        return f"there is no {target}"
    if anchor and path.suffix == ".md" and anchor not in anchors(path.read_text("utf-8")):
        return f"{path.name} has no heading #{anchor}"
    return None


def missing_script(command: str) -> Iterator[str]:
    """The scripts that `npm run` is told to run and package.json does not have."""
    scripts = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))["scripts"]
    yield from (name for name in re.findall(r"\bnpm .*?run ([\w:-]+)", command) if name not in scripts)
