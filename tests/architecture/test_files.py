"""The shape of the repository: its top level, the size of its files, and what may not stand in them."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "docs",
    "js",
    "modulekg_widgets",
    "notebooks",
    "pyproject.toml",
    "tests",
}
PARTS = [
    ".ci/run",
    "js/package-lock.json",
    "js/src/core",
    "js/src/lab",
    "js/src/widgets",
    "modulekg_widgets/__init__.py",
    "modulekg_widgets/cli.py",
    "modulekg_widgets/engine",
    "modulekg_widgets/widgets",
]
LINES = 600
FILES = 12  # of a folder, beside its `__init__.py`
CROWDED: dict[str, int] = {}  # folder → how many it has all the same, with the reason beside it
# given cases, kept as they are
GIVEN = {"tests/cases/nasty_modules.py"}

MARKUP_FROM_TEXT = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|setHTML(Unsafe)?|createContextualFragment|DOMParser|srcdoc)\b"
    r"|document\s*\.\s*write(ln)?\b|\beval\s*\(|\bnew\s+Function\s*\("
)
ANY = re.compile(r"(:|<|\bas)\s*any\b")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def sources(folder: str, ending: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob(f"*{ending}"))
    return [path for path in found if not {"generated", "node_modules"} & set(path.parts)]


def named(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[path.relative_to(ROOT).as_posix() for path in paths])


TYPESCRIPT = sources("js/src", ".ts")
PACKAGES = sorted({path.parent for path in sources("modulekg_widgets", ".py")})


def test_the_top_level_is_fixed() -> None:
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        found = {line.partition("/")[0] for line in listed if (ROOT / line).exists()}
        assert found == TOP_LEVEL
    assert {path.name for path in ROOT.iterdir()} >= TOP_LEVEL


@pytest.mark.parametrize("part", PARTS)
def test_the_house_has_its_rooms(part: str) -> None:
    assert (ROOT / part).exists()


@named([*sources("modulekg_widgets", ".py"), *sources("tests", ".py"), *TYPESCRIPT])
def test_a_file_has_one_subject(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() not in GIVEN:
        assert len(path.read_text("utf-8").splitlines()) <= LINES


@pytest.mark.parametrize("folder", PACKAGES, ids=[path.relative_to(ROOT).as_posix() for path in PACKAGES])
def test_a_folder_is_taken_in_at_a_glance(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= CROWDED.get(folder.relative_to(ROOT).as_posix(), FILES), sorted(files)


def test_every_exception_to_the_number_of_files_is_needed() -> None:
    counts = {name: len(list((ROOT / name).glob("*.py"))) - 1 for name in CROWDED}
    assert {name for name, count in counts.items() if count < CROWDED[name]} == set()


@named([path for path in TYPESCRIPT if not path.name.endswith(".test.ts")])
def test_text_reaches_the_page_as_text(path: Path) -> None:
    found = MARKUP_FROM_TEXT.search(COMMENT.sub("", path.read_text("utf-8")))
    assert found is None, found


@named(TYPESCRIPT)
def test_typescript_is_typed(path: Path) -> None:
    assert ANY.search(COMMENT.sub("", path.read_text("utf-8"))) is None


@named(sources("js/src/core", ".ts"))
def test_the_core_of_the_views_is_free_of_jupyter(path: Path) -> None:
    origins = re.findall(r"""(?:from|import)\s*\(?\s*["']([^"']+)["']""", path.read_text("utf-8"))
    assert [
        name for name in origins if name.startswith(("@jupyter", "@lumino")) or "/widgets/" in name or "/lab/" in name
    ] == []


@pytest.mark.parametrize(
    "text",
    ["a.innerHTML = b", "document.write(x)", "new Function('x')", "node.insertAdjacentHTML('a', b)", "f.srcdoc = x"],
)
def test_the_pattern_for_markup_finds_it(text: str) -> None:
    assert MARKUP_FROM_TEXT.search(text)
