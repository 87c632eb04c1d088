"""Behaviour is what it was: outputs of many models, files and commands are those of the golden files.

A wanted change is written with `python tests/goldens/write.py`, which says how to see a whole output, too.
"""

from __future__ import annotations

import re

import pytest

from goldens import goldens
from goldens.digests import difference, stored

CASES = goldens.all_cases()
BYTES = 400_000  # of all golden files together
INSIDE = re.compile(r"modulekg_widgets[./\\](engine|widgets)\b")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        pytest.param(subject, name, marks=[pytest.mark.slow] * case.slow, id=f"{subject}/{name}")
        for (subject, name), case in CASES.items()
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_output_is_the_golden_one(subject: str, name: str) -> None:
    golden = goldens.read(subject).get(name)
    text = CASES[subject, name].text()
    if golden is None:
        pytest.fail(f"golden/{subject}.json has no output of {name!r}: python tests/goldens/write.py {subject}")
    if stored(text)["sha256"] != golden["sha256"]:
        lines = [f"{subject}/{name} differs from golden/{subject}.json", goldens.changed_versions()]
        pytest.fail("\n".join(filter(None, [*lines, *difference(golden, text)])), pytrace=False)


@pytest.mark.parametrize("subject", goldens.SUBJECTS)
def test_every_golden_output_has_its_case(subject: str) -> None:
    assert set(goldens.read(subject)) == set(goldens.cases_of(subject))


def test_golden_files_are_small_and_name_nothing_inside_the_package() -> None:
    texts = {path.name: path.read_text("utf-8") for path in goldens.FOLDER.glob("*.json")}
    assert sum(map(len, texts.values())) <= BYTES
    assert {name: found[0] for name, text in texts.items() if (found := INSIDE.search(text))} == {}
    assert set(texts) == {f"{subject}.json" for subject in (*goldens.SUBJECTS, "versions")}


# ------------------------------------------------ the comparison, on texts that are made up


def test_of_a_short_text_both_sides_are_shown() -> None:
    assert difference(stored("a\nb"), "a\nc")[2:] == ["@@ -1,2 +1,2 @@", " a", "-b", "+c"]


@pytest.mark.parametrize("lines", [100, 300])
def test_of_a_longer_text_the_new_lines_are_shown_whole(lines: int) -> None:
    before = [f"line {at} {'x' * 100}" for at in range(lines)]
    after = [*before[:50], "new " * 40, *before[51:]]
    shown = difference(stored("\n".join(before)), "\n".join(after))
    assert "+" + "new " * 40 in shown
    assert len(shown) < 12
    assert stored("\n".join(before))["sha256"] != stored("\n".join(after))["sha256"]


def test_other_versions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert goldens.changed_versions() in ("", goldens.changed_versions())
    monkeypatch.setattr(goldens, "versions", lambda: {**goldens.read("versions"), "torch": "9.9"})
    assert re.search(r"torch \S+ → 9\.9\.$", goldens.changed_versions())
