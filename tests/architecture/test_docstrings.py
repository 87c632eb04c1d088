"""Docstrings have a noun or a verb as their subject; those of `mk.…` are in numpydoc form, and their examples run."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from architecture import examples
from architecture.docstrings import complaints, fields, public, raised, sections
from architecture.python_sources import modules_of, tree_of

PUBLIC = public()
ROOT = Path(__file__).parents[2]
MODULES = modules_of(ROOT / "modulekg_widgets")
PATHS = [
    path.as_posix() for path in [*MODULES.values(), *(ROOT / "js/src").rglob("*.ts"), *(ROOT / "tests").rglob("*.py")]
]
CLAUSES = {"How", "If", "That", "Those", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whose", "Why"}
ELSEWHERE = re.compile(r"torch/|js/src/generated/")  # files of torch, and those that a build writes


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_docstring_says_all(name: str) -> None:
    assert complaints(name, PUBLIC[name]) == []


def test_the_examples_of_docstrings_give_what_they_show(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(examples.__file__))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert int(done.stdout.split()[0]) > 5  # of how many it is said that they have run


def without_a_noun(tree: ast.AST) -> list[tuple[str, str]]:
    """The docstrings whose subject is a clause, of private names too: the name and the first line of each."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [(getattr(node, "name", ""), ast.get_docstring(node)) for node in ast.walk(tree) if isinstance(node, kinds)]
    lines = [(name, text.partition("\n")[0]) for name, text in texts if text]
    return [(name, line) for name, line in lines if (word := re.match(r"\w+", line)) and word[0] in CLAUSES]


@pytest.mark.parametrize("module", MODULES)
def test_a_docstring_begins_with_a_noun_or_a_verb(module: str) -> None:
    assert without_a_noun(tree_of(MODULES[module])) == []


def missing_files(text: str) -> list[str]:
    """Names of files in a text that end no path of a source."""
    named = re.findall(r"(?:[\w.]+/)*\w+\.(?:py|ts)\b", text)
    return [
        name for name in named if not ELSEWHERE.match(name) and not any(path.endswith(f"/{name}") for path in PATHS)
    ]


@pytest.mark.parametrize("module", MODULES)
def test_files_that_a_docstring_names_are_there(module: str) -> None:
    assert missing_files(ast.get_docstring(tree_of(MODULES[module])) or "") == []


# ------------------------------------------------ the checks, on what is made up


def test_a_file_that_is_not_there_is_told() -> None:
    assert missing_files("see plan/planner.py, merkle.py and isolation/planner.py") == [
        "merkle.py",
        "isolation/planner.py",
    ]


def test_a_subject_that_is_no_noun_is_told() -> None:
    method = '    def _b(self):\n        """What there is.\n\n        More."""\n'
    tree = ast.parse(f'"""Whether it is so."""\nclass A:\n    """A thing."""\n{method}')
    assert without_a_noun(tree) == [("", "Whether it is so."), ("_b", "What there is.")]


def good(x: int, *rest: int, scale: float = 1.0, **more: Any) -> int:
    """Add numbers.

    Parameters
    ----------
    x : int
        The first: a text with
        two lines.
    *rest : int
        Others.
    scale, **more : float
        Factors.

    Returns
    -------
    int
        The sum.

    Raises
    ------
    ValueError
        For no reason.

    Examples
    --------
    >>> good(1)
    1
    """
    try:
        raise KeyError
    except KeyError:
        pass
    if x < 0:
        raise ValueError("negative")
    return x


def bad(x: int, y: int) -> int:
    """no sentence

    Parameters
    ----------
    y : int
        The second.

    Raises
    ------
    NoSuchError
        Never.
    """
    raise TypeError(x, y)


def test_a_good_docstring_has_no_complaints() -> None:
    assert complaints("mk.good", good) == []
    assert raised(good) == {"ValueError"}


def test_everything_that_is_missing_is_told() -> None:
    assert complaints("mk.bad", bad) == [
        "mk.bad does not begin with a sentence: 'no sentence'",
        "mk.bad has no example",
        "mk.bad lists the parameters ['y'], it takes ['x', 'y']",
        "mk.bad does not say what it returns",
        "mk.bad says that it raises NoSuchError, which does not exist",
        "mk.bad raises TypeError and does not say so",
    ]


def test_a_method_needs_no_example_of_its_own() -> None:
    assert "mk.Class.bad has no example" not in complaints("mk.Class.bad", bad)
    assert "mk.pruning.bad has no example" in complaints("mk.pruning.bad", bad)


def test_a_class_lists_what_its_constructor_takes_or_attributes() -> None:
    class Made:
        """A thing.

        Examples
        --------
        >>> 1
        1
        """

        def __init__(self, x: int) -> None: ...

    assert complaints("mk.Made", Made) == ["mk.Made lists the parameters [], it takes ['x']"]
    Made.__doc__ = f"{Made.__doc__}\n        Attributes\n        ----------\n        x : int\n            It.\n"
    assert complaints("mk.Made", Made) == []


def test_sections_and_fields() -> None:
    found = sections("A text.\n\nMore: a - b\n\nParameters\n----------\na, b : int\n    Both.\n\nNotes\n-----\nSo.\n")
    assert list(found) == ["", "Parameters", "Notes"]
    assert fields(found["Parameters"]) == ["a", "b"]


def test_an_example_that_gives_something_else_is_told() -> None:
    assert examples.failures(">>> 1 + 1\n2\n", "a") == ""
    assert "Expected:" in examples.failures(">>> 1 + 1\n3\n", "a")


def test_public_names_are_functions_classes_and_methods() -> None:
    assert {"mk.plan", "mk.pruning.L1", "mk.KnowledgeGraph.add_model", "mk.rewrite.find"} <= set(PUBLIC)
    assert not any(name.rpartition(".")[2].startswith("_") for name in PUBLIC)
