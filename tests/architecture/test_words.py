"""The words that users read, on the screen and in the documents, are those of the field: a list of what is not said."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from architecture.documents import ROOT, documents, fenced
from architecture.python_sources import tree_of

LONGEST = 25  # words of a sentence


class Denied(NamedTuple):
    """What is not said, and what is."""

    pattern: str
    better: str


# everywhere
DENIED = [
    Denied(r"\bgoes\b(?! (?:to|through|on|into)\b)", "is removed, runs"),
    Denied(r"\b(?:may|must|can|will|what|that|which|indices|channels) go\b(?! (?:to|through|on)\b)", "is removed"),
    Denied(r"\bstays?\b", "is kept, remains"),
    Denied(r"\b(?:is|are|was|were) told\b", "shows, says, is passed"),
    Denied(r"\bof it\b", "its, from it"),
    Denied(r"\bof (?:its|their) own\b|\bof them its own\b", "own"),
    Denied(r"\bbeside\b", "next to, with, also"),
    Denied(r"\bas well\b", "also, too"),
    Denied(r"\bhangs? together\b", "depends on each other"),
    Denied(r"\bnobody\b", "automatically, no one"),
    Denied(r"\bnothing said about\b", "without model-specific settings"),
    Denied(r"\bsorts? of class\b", "class type"),
    Denied(r"\bmore is better\b", "higher is better"),
    Denied(r"\bthe kernel is gone\b", "kernel disconnected"),
    Denied(r"\bone set of indices\b", "channels that must be pruned together"),
    Denied(r"\bby the plan of\b", "architecture"),
    Denied(r"\b[Aa] look never\b", "viewing never modifies"),
    Denied(r"\bwhat (?:is|are) lit\b|\blights? up\b|\blit\b", "highlight"),
    Denied(r"\bwhat you click is what\b", "clicks set `graph.selected`"),
    Denied(r"\bhereafter\b|\btherein\b|\bthereof\b|\bwhereupon\b", "plain words"),
]
# on the screen alone: the documents explain the API, where these are words of it
ON_SCREEN = [
    Denied(r"\bgo\b(?! (?:to|through|on|back)\b)", "removed"),
    Denied(r"\bgone\b", "removed, disconnected"),
    Denied(r"\b(?:free|frozen) ax[ie]s\b", "prunable, fixed"),
    Denied(r"(?<![XYxy]-)(?<![XYxy] )(?<!group \()(?<!groups \()\b[Aa]x[ie]s\b", "channel group; X axis, Y axis"),
    Denied(r"\bind(?:ex|ices)\b", "channel"),
    Denied(r"\btakes / gives\b|\bgives\b", "input, output, returns"),
    Denied(r"\bgreatest\b|\bleast\b", "highest, lowest, least important"),
    Denied(r"\bcells?\b", "square, channel"),
    Denied(r"\bas it was\b", "restored"),
]
ON_SCREEN_KEPT = (
    "notebook cell",
    "running cell",
    "run the cell",
    "Run the cell",
    "least important",
    "at least",
    "index of",
)


def found(text: str, rules: Iterable[Denied]) -> list[str]:
    """What a text says that it should not, with what is said instead."""
    for kept in ON_SCREEN_KEPT:
        text = text.replace(kept, "")
    return [
        f"“{match.group()}” in “{text[max(0, match.start() - 30) : match.end() + 30]}”: {rule.better}"
        for rule in rules
        for match in re.finditer(rule.pattern, text)
    ]


WORD_FILES = sorted((ROOT / "js" / "src" / "core" / "words").glob("*.ts"))
SCREEN_FILES = [path for path in WORD_FILES if not path.name.endswith(".test.ts")]
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')


@pytest.mark.parametrize("path", SCREEN_FILES, ids=lambda path: path.stem)
def test_texts_on_the_screen(path: Path) -> None:
    code = re.sub(r"^\s*//.*|^import .*", "", path.read_text("utf-8"), flags=re.MULTILINE)
    assert [fault for text in TEXT.findall(code) for fault in found(text, [*DENIED, *ON_SCREEN])] == []


TRANSLATED = re.compile(r"\.(?:__|_n)\(\s*(" + TEXT.pattern + r"(?:,\s*" + TEXT.pattern + r")?)")


def test_texts_that_jupyterlab_translates() -> None:
    """They stand in the code, where its extraction finds them: `trans.__("…")`."""
    texts = {
        (path.relative_to(ROOT).as_posix(), text)
        for path in (ROOT / "js" / "src").rglob("*.ts")
        if "generated" not in path.parts and not path.name.endswith(".test.ts")
        for text in TRANSLATED.findall(path.read_text("utf-8"))
    }
    assert len(texts) > 60
    assert [f"{name}: {fault}" for name, text in texts for fault in found(text, [*DENIED, *ON_SCREEN])] == []


def texts_of_python(tree: ast.AST) -> Iterator[str]:
    """Strings in Python: errors, reasons, notes, labels. Docstrings are read with the reference."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


PACKAGE = ROOT / "modulekg_widgets"
KEYS = {"beside "}  # begins keys of slots, which files of recordings hold


def is_text(string: str) -> bool:
    """True for what users read: more than one word, as keys and names have."""
    return " " in string and string not in KEYS


PARTS = {path: DENIED for path in (PACKAGE, PACKAGE / "widgets", *(PACKAGE / "engine").iterdir()) if path.is_dir()}
PARTS[PACKAGE / "engine" / "views"] = [*DENIED, *ON_SCREEN]  # labels of static pictures and of payloads


@pytest.mark.parametrize("part", PARTS, ids=lambda path: path.name)
def test_texts_of_the_package(part: Path) -> None:
    """Errors of the engine and the widgets, reasons, notes and labels."""
    paths = part.glob("*.py") if part == PACKAGE else part.rglob("*.py")
    texts = [(path.name, text) for path in paths for text in texts_of_python(tree_of(path)) if is_text(text)]
    assert [f"{name}: {fault}" for name, text in texts for fault in found(text, PARTS[part])] == []


COMMENT = re.compile(r"^\s*(?://|/?\*).*|[ \t]//[ \t].*", re.MULTILINE)
READERS = [path for path in (ROOT / "js/src/core/files").rglob("*.ts") if not path.name.endswith(".test.ts")]


def texts_of_typescript(code: str) -> list[str]:
    return TEXT.findall(COMMENT.sub("", code))


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_refusals_of_the_page(path: Path) -> None:
    """What the page says of a file that it cannot read stands where that is found."""
    texts = texts_of_typescript(path.read_text("utf-8"))
    assert [fault for text in texts for fault in found(text, DENIED)] == []


def test_a_denied_word_is_found_in_code() -> None:
    python = 'def f(x):\n    """It goes."""\n    raise ValueError(f"{x} goes: pass a part" f" of it")\n'
    assert [fault for text in texts_of_python(ast.parse(python)) for fault in found(text, DENIED)] == [
        "“goes” in “ goes: pass a part of it”: is removed, runs",
        "“of it” in “ goes: pass a part of it”: its, from it",
    ]
    typescript = "// what goes\nthrow malformed(`a tensor goes beyond`); // as well\n"
    assert [fault for text in texts_of_typescript(typescript) for fault in found(text, DENIED)] == [
        "“goes” in “`a tensor goes beyond`”: is removed, runs"
    ]
    assert [text for text in ("axes", "beside ", "what goes") if is_text(text)] == ["what goes"]
    assert len(PARTS) > 15
    assert len(READERS) > 20


def prose(text: str) -> str:
    """A document without its code, tables of figures and addresses."""
    lines = text.splitlines()
    for block in fenced(text):
        lines[block.line - 1 : block.end] = [""] * (block.end - block.line + 1)
    return re.sub(r"`[^`\n]+`|\]\([^)\s]+\)|<!--.*?-->", "`x`", "\n".join(lines), flags=re.DOTALL)


def notebook_prose(path: Path) -> str:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def text_of(path: Path) -> str:
    return notebook_prose(path) if path.suffix == ".ipynb" else path.read_text("utf-8")


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FURTHER = [ROOT / name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "notebooks/README.md")]
PAGES = [*documents(), *FURTHER, *NOTEBOOKS]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_words_of_the_documents(path: Path) -> None:
    assert found(prose(text_of(path)), DENIED) == []


def sentences(text: str) -> Iterator[str]:
    """The sentences of a document: not its headings and tables."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose(text)):
        if paragraph.lstrip().startswith(("#", "|", "![", ":::", "```")):
            continue
        words = [line for line in paragraph.splitlines() if not line.lstrip().startswith("|")]  # without its table
        yield from re.split(r"(?<=[.!?:;])[)*_”\"]*\s+", " ".join(" ".join(words).split()))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_are_short(path: Path) -> None:
    assert [one for one in sentences(text_of(path)) if len(one.split()) > LONGEST] == []


def test_the_checks_see_what_they_forbid() -> None:
    assert len(found("Nothing goes of it yet", DENIED)) == 2
    assert len(found("One cell = one index of the axis", [*DENIED, *ON_SCREEN])) >= 1
    assert found("Click a channel group (axis). Y axis", [*DENIED, *ON_SCREEN]) == []
    assert prose("a `goes` b\n```python\nstays\n```\n[c](beside.md)").split() == ["a", "`x`", "b", "[c`x`"]
