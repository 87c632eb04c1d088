"""Every block of code in the documents runs and prints what the document shows, or says why it is not run.

Of the shell those of `modulekg` commands; test_commands.py has the others, and TOML.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from architecture.documents import ROOT, documents, fenced
from docs import blocks

DOCUMENTS = {path.relative_to(ROOT).as_posix(): path for path in documents()}
RUN = [
    name
    for name, path in DOCUMENTS.items()
    if any(block.reason is None for block in blocks.runnable(path.read_text("utf-8")))
]
# what else stands in fences; `{…}` are directives of the site's generator
LANGUAGES = {"", "bash", "mermaid", "pycon", "python", "text", "toml"}
LOOKS_LIKE_PYTHON = re.compile(r"py|code-cell|code-block|doctest|testcode", re.IGNORECASE)

each_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_document_run(name: str) -> None:
    done = blocks.run(DOCUMENTS[name])
    assert done.code == 0, done.text[-4_000:]


@each_document
def test_what_is_not_run_says_why(document: Path) -> None:
    assert list(without_a_reason(document.read_text("utf-8"))) == []


@each_document
def test_no_block_of_python_is_overlooked(document: Path) -> None:
    assert list(overlooked(document.read_text("utf-8"))) == []


@each_document
def test_code_has_no_gaps(document: Path) -> None:
    found = blocks.runnable(document.read_text("utf-8"))
    assert [gap for block in found if block.language == "python" for gap in gaps(block.code)] == []


def test_a_job_of_the_readme_has_three_lines() -> None:
    """Behind the block that makes what all of them work on."""
    section = DOCUMENTS["README.md"].read_text("utf-8").partition("\n## Three jobs\n")[2].partition("\n## ")[0]
    _, *jobs = blocks.runnable(section)
    assert [len(job.code.splitlines()) for job in jobs] == [3, 3, 3]


def test_the_first_example_logs_a_loss() -> None:
    """Before it tracks the step, so that the panel of the third job has a loss to show first."""
    section = DOCUMENTS["README.md"].read_text("utf-8").partition("\n## Three jobs\n")[2]
    first, *_ = blocks.runnable(section)
    calls = [ast.unparse(node) for node in ast.walk(ast.parse(first.code)) if isinstance(node, ast.Call)]
    assert "monitor.log({'loss': loss})" in calls
    assert first.code.index("monitor.log(") < first.code.index("monitor.track(")


def without_a_reason(text: str) -> Iterator[str]:
    """The comments `not run` that give no reason, or stand above no block."""
    above = {block.line - 1 for block in blocks.runnable(text) if block.reason}
    for at, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*<!--\s*not[ -]run", line, re.IGNORECASE) and at not in above:
            yield f"line {at}: {line.strip()}"


def overlooked(text: str) -> Iterator[str]:
    """The fences that hold Python, or what nobody knows, and are not run."""
    for block in fenced(text):
        is_known = block.info in LANGUAGES or (block.info.startswith("{") and not LOOKS_LIKE_PYTHON.search(block.info))
        if not is_known:
            yield f"line {block.line}: {block.info}"
        if not block.info and ">>> " in block.body:
            yield f"line {block.line}: examples without a language"


def gaps(code: str) -> Iterator[str]:
    """The `...` that stand for something left out: not those of a type, or of a body that has nothing to do."""
    tree = ast.parse(code)
    bodies = [node.body[-1] for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    places = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    meant = {id(node) for place in [*bodies, *places] for node in (place, *ast.iter_child_nodes(place))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value is ... and id(node) not in meant:
            yield f"line {node.lineno}: {code.splitlines()[node.lineno - 1].strip()}"


# ------------------------------------------------ the checks, on what is made up


def failure_of(tmp_path: Path, text: str) -> str:
    document = tmp_path / "made_up.md"
    document.write_text(text, "utf-8")
    done = blocks.run(document)
    assert done.code == bool(done.text)
    return done.text


GOOD = """# Made up

```python
import os
x = 1
assert os.listdir() == []
open("left", "w").write("behind")
print(f"{x} + 1 is {x + 1}")
x + 1
```

```text
1 + 1 is ...
2
```

```pycon
>>> x + 1
2
>>> y = 3

```

- in a list

  ```python
  assert (x, y) == (1, 3), __name__
  ```

```bash
modulekg export torch.nn:Identity identity.json  # a file
modulekg diff torch.nn:Identity torch.nn:Identity
```

```text
identity.json
same structure: 1 modules
```

<!-- not run: it would never end -->
```python
while True:
    pass
```
"""


def test_blocks_share_names_and_print_what_is_shown(tmp_path: Path) -> None:
    assert failure_of(tmp_path, GOOD) == ""
    assert failure_of(tmp_path, GOOD) == ""  # and leave nothing behind


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ("x + 1\n```", "x + z\n```", "line 9, in <module>"),
        ("import os", "import no_such_module", "No module named 'no_such_module'"),
        ("x = 1", "raise SystemExit(0)", "SystemExit: 0"),
        ("1 + 1 is ...", "1 + 1 is 3", "Expected:"),
        ("2\n```\n\n```pycon", "3\n```\n\n```pycon", "Expected:"),
        (">>> x + 1\n2", ">>> x + 1\n3", "Expected:"),
        ("same structure: 1 modules", "same structure: 2 modules", "Expected:"),
        (
            "export torch.nn:Identity",
            "export torch.nn:NoSuch",
            "`modulekg export torch.nn:NoSuch identity.json` ends with 2",
        ),
        ("diff torch.nn:Identity", "differ torch.nn:Identity", "SystemExit: 2"),
        ("modulekg diff torch.nn:Identity torch.nn:Identity", "pip install gone", ""),
        ("(1, 3)", "(1, 4)", "AssertionError: __main__"),
        ("while True:\n    pass", "pass", ""),
    ],
)
def test_a_block_that_fails_is_told(tmp_path: Path, there: str, instead: str, told: str) -> None:
    assert there in GOOD
    failed = failure_of(tmp_path, GOOD.replace(there, instead))
    assert told in failed
    assert bool(failed) == bool(told)


@pytest.mark.parametrize(
    ("shown", "printed", "near"),
    [
        ("loss 2.00 → 0.5, 93% right", "loss 1.80 → 0.6, 95% right", True),
        ("loss 2.00", "loss 1.40", False),
        ("loss 2.00", "gain 2.00", False),
        ("10,000 left", "9,000 left", True),
        ("1e-3", "1e-4", False),
        ("layer3 of 2", "layer4 of 2", False),
        ("1 2", "1", False),
        ("-1", "1", False),
    ],
)
def test_about_is_the_same_words_and_near_numbers(tmp_path: Path, shown: str, printed: str, near: bool) -> None:
    text = f"```python\nprint({printed!r})\n```\n\n{blocks.ABOUT}\n```text\n{shown}\n```\n"
    assert (failure_of(tmp_path, text) == "") is near
    if near:
        assert "Expected:" in failure_of(tmp_path, text.replace(blocks.ABOUT, ""))


def test_a_widget_is_displayed(tmp_path: Path) -> None:
    shown = "```python\nclass W:\n    def _repr_mimebundle_(self):\n        raise ValueError('seen')\n\n\n{}\n```\n"
    assert failure_of(tmp_path, shown.format("w = W()")) == ""
    assert "ValueError: seen" in failure_of(tmp_path, shown.format("W()"))
    assert "ValueError: seen" in failure_of(tmp_path, shown.format("display(W())\nx = 1"))


@pytest.mark.parametrize(
    ("comment", "runs", "complaints"),
    [
        ("<!-- not run: no server -->\n", False, 0),
        ("<!-- not run: -->\n", False, 1),
        ("<!-- not run -->\n", True, 1),
        ("<!-- not-run: a slip -->\n", True, 1),
        ("<!-- not run: no server -->\n\n", True, 1),
        ("", True, 0),
    ],
)
def test_a_block_that_is_not_run_says_why_directly_above(comment: str, runs: bool, complaints: int) -> None:
    text = f"Words.\n\n{comment}```python\n1 / 0\n```\n"
    assert [block.reason is None for block in blocks.runnable(text)] == [runs]
    assert len(list(without_a_reason(text))) == complaints


def test_blocks_that_would_be_overlooked_are_told() -> None:
    names = ["py", "python3", "{code-cell} ipython3", "python title=x", "Python", "cobol", "{code-block} python"]
    for name in names:
        assert list(overlooked(f"```{name}\n1\n```\n")) == [f"line 1: {name}"]
    assert list(overlooked("```{toctree}\nstart\n```\n~~~~python\n```\n~~~~\n```text\n>>> 1\n```\n")) == []
    assert list(overlooked("\n```\n>>> 1\n```\n")) == ["line 2: examples without a language"]


def test_a_directive_does_not_hide_what_is_behind_it() -> None:
    text = "```{toctree}\nstart\n```\n\n```python\nx\n```\n\n~~~python\n```\ny\n~~~\n````python\n```\nz\n"
    assert [(block.code, block.line) for block in blocks.runnable(text)] == [
        ("x\n", 5),
        ("```\ny\n", 9),
        ("```\nz\n", 13),
    ]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("batches = ...", ["line 1: batches = ..."]),
        ("plan(model, ...)", ["line 1: plan(model, ...)"]),
        ("...", ["line 1: ..."]),
        ("for x in y:\n    ...", ["line 2: ..."]),
        ("def f(x: tuple[int, ...]): ...", []),
        ("x[..., 0]", []),
    ],
)
def test_gaps_are_told(code: str, found: list[str]) -> None:
    assert list(gaps(code)) == found
