"""Every command in the documents names what is there, TOML can be read, and all say alike how to install.

Blocks of `modulekg` commands alone are run, by test_blocks.py.
"""

import re
import shlex
from pathlib import Path

import pytest

from architecture.documents import ROOT, blocks, documents, spans
from docs.commands import commands, complaint, of_modulekg, unknown_extras
from modulekg_widgets.engine.plugins import ENTRY_POINT_GROUP
from project_file import tomllib

DOCUMENTS = {path.relative_to(ROOT).as_posix(): path for path in documents()}
INSTALLING = ["README.md", "docs/index.md", "docs/start.md"]

each_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


def wrong_commands(text: str) -> list[str]:
    """What is wrong with the commands of a document: those in blocks, and those of ours in its sentences."""
    called = [command for block in blocks(text, "bash") for command in commands(block)]
    found = [complaint(words, folder) for folder, words in called]
    found += [of_modulekg(shlex.split(span)[1:]) for span in spans(text) if re.match(r"modulekg [^…]+$", span)]
    return [text for text in found if text] + [f"there is no extra {name}" for name in unknown_extras(text)]


@each_document
def test_commands_name_what_is_there(document: Path) -> None:
    assert wrong_commands(document.read_text("utf-8")) == []


@each_document
def test_toml_can_be_read(document: Path) -> None:
    """And names the group of plugins that is looked for."""
    for block in blocks(document.read_text("utf-8"), "toml"):
        read = tomllib.loads(block)
        assert set(read) == {"project"}
        assert set(read["project"]["entry-points"]) == {ENTRY_POINT_GROUP}


def test_every_page_that_installs_says_the_same() -> None:
    told = {name: installing(DOCUMENTS[name].read_text("utf-8")) for name in INSTALLING}
    assert len(set(told.values())) == 1, told


def installing(text: str) -> str:
    """The first command of a document that installs this package."""
    words = [words for block in blocks(text, "bash") for _, words in commands(block) if words[:2] == ["pip", "install"]]
    return " ".join(words[0])


def test_every_page_that_installs_says_what_building_needs() -> None:
    (least,) = re.findall(r"^NODE_MINIMUM = (\d+)$", (ROOT / "js" / "build_hook.py").read_text("utf-8"), re.MULTILINE)
    texts = {name: " ".join(DOCUMENTS[name].read_text("utf-8").split()) for name in INSTALLING}
    assert [name for name, text in texts.items() if f"Node ≥ {least} with npm" not in text] == []


# ------------------------------------------------ the checks, on what is made up

GOOD = """
```bash
pip install '.[lab,files]' && modulekg demo  # opens it
MODULEKG_SITE=docs/_build pytest -n 4 tests/packaging -k 'a and b' --ignore=tests/docs
(cd tests && python -m benchmarks.research.quality --write ../docs/quality.md)
modulekg show a.pt --tensors
ls *.py | xargs ruff
npm --prefix js run lint && npm --prefix js test -- src/core/shared/stage/color.test.ts
```
`modulekg diff a b`, `modulekg … --store`, `pip install 'modulekg-widgets[lab]'`
"""


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ("lab,files", "lab,nothing", ["there is no extra [nothing]"] * 2),
        ("modulekg-widgets[lab]", "modulekg-widgets[labs]", ["there is no extra [labs]"]),
        ("&& modulekg demo", "&& modulekg demos", ["modulekg: error: "]),
        ("--tensors", "--no-such", ["modulekg: error: unrecognized arguments: --no-such"]),
        ("diff a b", "differ a b", ["modulekg: error: "]),
        ("tests/packaging", "tests/gone", ["there is no tests/gone"]),
        ("=tests/docs", "=tests/gone", ["there is no tests/gone"]),
        ("benchmarks.research.quality", "benchmarks.gone", ["there is no module benchmarks.gone"]),
        ("(cd tests && ", "(", ["there is no module benchmarks.research.quality"]),
        ("run lint", "run lints", ["there is no script 'lints'"]),
        ("color.test.ts", "gone.test.ts", ["there is no src/core/shared/stage/gone.test.ts"]),
        ("ls *.py", "curl x", ["curl is not known to the tests"]),
        ("# opens it", "", []),
    ],
)
def test_a_command_that_would_fail_is_told(there: str, instead: str, told: list[str]) -> None:
    assert there in GOOD
    found = wrong_commands(GOOD.replace(there, instead))
    assert len(found) == len(told)
    assert all(map(str.startswith, found, told)), found
