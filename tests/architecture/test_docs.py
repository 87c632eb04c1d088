"""What the documents name exists, and their links lead somewhere; tests/docs/test_blocks.py runs their examples."""

import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from architecture import documents
from architecture.documents import ROOT, anchors, blocks, dotted_in, missing_link, missing_name, missing_path, paths_in
from architecture.python_sources import packages_of
from modulekg_widgets.engine.monitoring import metrics
from modulekg_widgets.engine.monitoring.metric import METRICS

_ = metrics  # importing them registers them
README = ROOT / "README.md"
DOCUMENTS = documents.documents()
README_LINES = 200
PACKAGES = packages_of(ROOT / "modulekg_widgets")
FEW = 4  # files that need no order

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= README_LINES


def test_every_document_is_linked_from_the_readme() -> None:
    """But those in folders of docs/, which the site's pages list."""
    links = {(ROOT / target).resolve() for target in documents.LINK.findall(README.read_text("utf-8"))}
    listed = [path for path in DOCUMENTS[1:] if path.parent in (ROOT, ROOT / "docs")]
    assert [path.name for path in listed if path not in links] == []


@each_document
def test_every_path_exists(document: Path) -> None:
    text = document.read_text("utf-8")
    paths = [path for code in [*documents.spans(text), *blocks(text, "", "bash")] for path in paths_in(code)]
    paths += [path for block in blocks(text, "text") if is_drawn(block) for path in documents.tree_paths(block)]
    missing = {reason for path in paths if (reason := missing_path(path))}
    assert missing == set()


def is_drawn(block: str) -> bool:
    """Whether a block of text is a tree of folders, and not what code prints."""
    return block.split()[0].endswith("/")


@each_document
def test_every_dotted_name_leads_somewhere(document: Path) -> None:
    text = document.read_text("utf-8")
    code = [*documents.spans(text), *blocks(text, "python", "pycon")]
    missing = {reason for one in code for name in dotted_in(one) if (reason := missing_name(name))}
    assert missing == set()


@each_document
def test_every_link_leads_somewhere(document: Path) -> None:
    links = [*documents.LINK.findall(documents.prose(document.read_text("utf-8")))]
    assert {reason for target in links if (reason := missing_link(document, target))} == set()


@each_document
def test_every_script_of_npm_exists(document: Path) -> None:
    assert list(documents.missing_script(document.read_text("utf-8"))) == []


@each_document
def test_code_is_python(document: Path) -> None:
    for block in blocks(document.read_text("utf-8"), "python"):
        ast.parse(block)


def test_the_citation_has_what_its_schema_requires() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = metadata.metadata("modulekg-widgets")
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["cff-version"] == "1.2.0"
    assert (cited["title"], cited["abstract"]) == (project["Name"], project["Summary"])
    assert cited["license"] == project["License-Expression"]
    assert cited["authors"] == [{"name": project["Author"]}]


def test_the_changes_of_this_version_are_told() -> None:
    version = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))["version"]
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_a_package_says_in_which_order_it_is_read(package: Path) -> None:
    """A package of several files names some of them in its docstring, and none that is not there."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    named = re.findall(r"(?<![\w/.])(?:\w+/)*\w+(?:\.py\b|/(?=[\s,;.:)]))", text)
    assert [name for name in named if not (package / name).exists()] == []
    files = {path.stem for path in package.glob("[!_]*.py")}
    mentioned = {name for name in re.findall(r"\w+", text) if name in files or (package / name).is_dir()}
    assert len(mentioned) > 1 or len(files) < FEW


# torchvision takes longest and is imported once; each program has a process of its own
START = """
import os, runpy, sys
import torchvision
sys.path.pop(0)
for program in sys.argv[1:]:
    if os.fork() == 0:
        runpy.run_path(program, run_name="started")
        os._exit(0)
    if os.wait()[1] != 0:
        sys.exit(program)
"""


def test_every_program_in_a_command_starts(tmp_path: Path) -> None:
    """Where it is run as the contributing guide and others say: as a file, with nothing of tests/ on the path."""
    commands = "\n".join(block for document in DOCUMENTS for block in blocks(document.read_text("utf-8"), "bash"))
    programs = sorted(set(re.findall(r"python (tests/\S+\.py)", commands)))
    assert programs
    command = [sys.executable, "-c", START, *(str(ROOT / program) for program in programs)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_every_metric_is_defined() -> None:
    named = set(documents.spans((ROOT / "docs" / "metrics.md").read_text("utf-8")))
    own = {name for name in METRICS if METRICS[name].function.__module__.startswith("modulekg_widgets.")}
    assert own - named == set()


def test_every_folder_of_the_engine_is_on_the_map() -> None:
    map_of_folders = filter(is_drawn, blocks((ROOT / "docs" / "architecture.md").read_text("utf-8"), "text"))
    drawn = {path for block in map_of_folders for path in documents.tree_paths(block)}
    engine = ROOT / "modulekg_widgets" / "engine"
    folders = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in engine.glob("*/__init__.py")}
    assert folders - drawn == set()


# ------------------------------------------------ the checks, on what is made up


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("pytest tests/axes/rules -k flip", ["tests/axes/rules"]),
        ("engine/axes/rules/", ["engine/axes/rules/"]),
        ("python tests/x.py --fast", ["tests/x.py"]),
        ("test_docs.py::README_LINES", ["test_docs.py::README_LINES"]),
        ("`zoo.db` and a/b, N/C, 1/2", []),
        ("dist/modulekg.py <name>.py", []),
    ],
)
def test_paths_are_found_in_code(written: str, found: list[str]) -> None:
    assert list(paths_in(written)) == found


def test_a_drawn_tree_is_read_by_its_indentation() -> None:
    drawn = "a/\n  b.py   a file\n  c/   d/, e/; and more\n    f.py\ng/\n"
    assert list(documents.tree_paths(drawn)) == ["a/", "a/b.py", "a/c/", "a/c/d/", "a/c/e/", "a/c/f.py", "g/"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("tests/architecture/", None),
        ("engine/errors.py", None),
        ("tests/architecture/test_*.py", None),
        ("test_docs.py::README_LINES", None),
        ("engine/errors.py::ModuleKGError", None),
        ("engine/nothing.py", "there is no engine/nothing.py"),
        ("nothing_of_that_name.py", "there is no nothing_of_that_name.py"),
        ("engine/errors.py::Nothing", "engine/errors.py does not define Nothing"),
        ("engine/errors.py/", "engine/errors.py/ is not a folder"),
    ],
)
def test_a_path_that_does_not_exist_is_told(path: str, reason: str | None) -> None:
    assert missing_path(path) == reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mk.plan", None),
        ("mk.PruningPlan.cut", None),
        ("engine.errors.ModuleKGError", None),
        ("modulekg_widgets.engine.errors", None),
        ("mk.plan_all", "mk.plan_all: there is no 'plan_all'"),
        ("mk.PruningPlan.cuts_all", "mk.PruningPlan.cuts_all: there is no 'cuts_all'"),
        ("engine.nowhere", "engine.nowhere: there is no 'nowhere'"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(name: str, reason: str | None) -> None:
    assert missing_name(name) == reason


def test_dotted_names_are_found_in_code() -> None:
    assert dotted_in('@mk.metric("mk.x"), a.mk.b, monkey.mk, engine/axes.py, graph.axes') == ["mk.metric", "mk.x"]


def test_links_and_anchors(tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# The *five* flows, drawn\n\n```\n# no heading\n```\n")
    assert anchors(other.read_text()) == {"the-five-flows-drawn"}
    document = tmp_path / "a.md"
    document.write_text("## Here\n")
    good = ["other.md", "other.md#the-five-flows-drawn", "#here", "https://example.org/x"]
    assert [missing_link(document, target) for target in good] == [None] * 4
    assert missing_link(document, "gone.md") == "there is no gone.md"
    assert missing_link(document, "../../issues/new") is None
    assert missing_link(document, "../../actions/workflows/gone.yml") == "there is no ../../actions/workflows/gone.yml"
    assert missing_link(document, "../../gone") == "there is no ../../gone"
    assert missing_link(document, "other.md#no-heading") == "other.md has no heading #no-heading"


def test_what_code_prints_is_no_drawn_tree() -> None:
    assert is_drawn("docs/\n  axes.md\n")
    assert not is_drawn("2 proved, 0 wrong\ndocs/ is a word of it\n")


def test_a_script_that_is_not_there_is_told() -> None:
    assert list(documents.missing_script("npm --prefix js run lint && npm run nonsense")) == ["nonsense"]
