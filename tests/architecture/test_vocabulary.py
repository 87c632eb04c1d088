"""Files, classes and public functions are named in the words of the field; vocabulary.py has the words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from architecture.vocabulary import (
    DENIED,
    DENIED_CONSTANTS,
    JUPYTER,
    PLAIN,
    TEXTBOOK,
    TORCH,
    Name,
    denied,
    glossary,
    known_words,
    normal,
    public_words,
    python_names,
    split,
    typescript_names,
    unknown,
)

ROOT = Path(__file__).resolve().parents[2]
PYTHON = list(python_names(ROOT / "modulekg_widgets"))
TYPESCRIPT = list(typescript_names(ROOT / "js" / "src"))
USED = {normal(word) for name in PYTHON if name.kind != "constant" for word in split(name.text)}
GLOSSARY_ROWS = 45

# names that have a word that is denied, and why they keep it
EXCEPTIONS = {
    "LEAST_SQUARES": "the method of least squares",
    "NothingShownError": "JavaScript recognizes this error by its name",
}
# names that are no words of the field, but that fingerprints and stores of before hold
FINGERPRINTED = {"stand_ins", "Untold", "UntoldModule"}


def listed(problems: Mapping[Any, str]) -> str:
    return "\n" + "\n".join(sorted(f"{what} {problem}" for what, problem in problems.items()))


def test_names_are_made_of_the_words_of_the_field() -> None:
    problems = unknown(name for name in PYTHON if name.text not in FINGERPRINTED)
    assert not problems, listed(problems)


def test_every_name_that_fingerprints_hold_is_there() -> None:
    assert {name.text for name in PYTHON} >= FINGERPRINTED


@pytest.mark.parametrize("names", [PYTHON, TYPESCRIPT], ids=["Python", "TypeScript"])
def test_no_name_has_a_word_that_is_denied(names: list[Name]) -> None:
    problems = {name: problem for name, problem in denied(names).items() if name.text not in EXCEPTIONS}
    assert not problems, listed(problems)


def test_every_exception_is_needed() -> None:
    assert set(EXCEPTIONS) - {name.text for name in denied([*PYTHON, *TYPESCRIPT])} == set()


@pytest.mark.parametrize("words", [TORCH, JUPYTER, TEXTBOOK, PLAIN], ids=["TORCH", "JUPYTER", "TEXTBOOK", "PLAIN"])
def test_every_word_of_a_list_is_used(words: list[str]) -> None:
    unused = [word for word in words if normal(word) not in USED]
    assert not unused, f"no name has these words any more: {' '.join(unused)}"


def test_every_word_stands_once_and_in_order() -> None:
    lists = [TORCH, JUPYTER, TEXTBOOK, PLAIN]
    for words in [*lists, list(DENIED), list(DENIED_CONSTANTS)]:
        assert words == sorted(words)
    every = [normal(word) for words in lists for word in words]
    assert sorted({word for word in every if every.count(word) > 1}) == []


def test_no_word_is_both_known_and_denied() -> None:
    assert [word for word in DENIED if normal(word) in known_words()] == []


def test_the_glossary_is_short() -> None:
    assert 0 < len(glossary()) <= GLOSSARY_ROWS


def test_every_noun_of_the_glossary_is_part_of_a_name() -> None:
    assert {noun: word for noun in glossary() for word in split(noun) if normal(word) not in USED} == {}


# ----------------------------------------------------- the checks, on what is made up


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dry_run", ["dry", "run"]),
        ("_ONNXGraphReader", ["onnx", "graph", "reader"]),
        ("BatchNorm2d", ["batch", "norm"]),
        ("modulekg_v1_hash", ["modulekg", "hash"]),
        ("MLflowRun", ["mlflow", "run"]),
        ("auto-selection", ["auto", "selection"]),
    ],
)
def test_names_are_split_into_words(name: str, words: list[str]) -> None:
    assert split(name) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("axes", "axis"),
        ("families", "Family"),
        ("batches", "batch"),
        ("caches", "cache"),
        ("sizes", "size"),
        ("classes", "class"),
        ("normalised", "normalized"),
        ("quantisation", "quantization"),
        ("colours", "color"),
        ("neighbours", "neighbor"),
        ("catalogue", "catalog"),
    ],
)
def test_words_are_compared_in_the_singular_and_in_one_spelling(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize("word", ["bias", "class", "axis", "status", "is", "loss"])
def test_a_singular_with_an_s_stays(word: str) -> None:
    assert normal(word) == word


def test_a_denied_word_comes_with_a_better_one() -> None:
    names = [
        Name("class", "HeldTensors", "a.py"),
        Name("function", "find_heir", "a.py"),
        Name("constant", "_MOST_STEPS", "a.py"),
        Name("constant", "AT_MOST", "a.py"),
        Name("constant", "LEFT", "a.py"),
        Name("function", "most_used", "a.py"),
        Name("file", "shared_modules", "a.py"),
    ]
    assert {str(name): better for name, better in denied(names).items()} == {
        "HeldTensors (class in a.py)": "held: say preserved or unregistered",
        "find_heir (function in a.py)": "heir: say shared modules",
        "_MOST_STEPS (constant in a.py)": "most: say MAX_…",
    }


def test_an_unknown_word_comes_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("architecture.vocabulary.torch_words", frozenset)  # without importing torch
    found = unknown(
        [Name("class", "GraphZorp", "b.py"), Name("constant", "ZIRP", "b.py"), Name("file", "axes", "b.py")]
    )
    assert set(found) == {"zorp"}
    assert "GraphZorp (class in b.py)" in found["zorp"]


def test_public_names_give_words() -> None:
    class Space:
        nanmedian_values = RMSNorms = _private = None

    assert public_words(Space) == {"nanmedian", "value", "rms", "norm"}


def test_names_of_python_are_found(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "folder").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "folder" / "__init__.py").write_text("class _Inside: ...\n")
    (package / "folder" / "file.py").write_text(
        "A_B: int = 1\nsmall = 2\nC, _D = 3, 4\n"
        "def f():\n    class Deep: ...\n    def g(): ...\ndef _h(): ...\nasync def k(): ...\n"
    )
    assert [name.text for name in python_names(package)] == [
        "folder",
        "_Inside",
        "file",
        "Deep",
        "A_B",
        "C",
        "_D",
        "f",
        "k",
    ]


def test_names_of_typescript_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "room"
    folder.mkdir()
    (folder / "made_up.test.ts").write_text(
        "export abstract class A<T> {}\nclass B extends A {}\nfunction inner() {}\n"
        "export async function f() {}\nexport function* g() {}\nexport const h = 1;\n// the class of f\n"
    )
    (tmp_path / "generated").mkdir()
    (tmp_path / "generated" / "kinds.ts").write_text("export class C {}\n")
    assert [(name.kind, name.text) for name in typescript_names(tmp_path)] == [
        ("file", "made_up"), ("class", "A"), ("class", "B"), ("function", "f"), ("function", "g"), ("folder", "room"),
    ]  # fmt: skip
