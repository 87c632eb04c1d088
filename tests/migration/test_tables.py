"""The mechanism itself: wrong tables and functions that do not do what their row shows are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import modulekg_widgets as mk
from migration.tables import MIGRATION, Table, TableError, done_by, rows_under, shown_in

HEAD = "# Title\n\n## Coming from Elsewhere\n\n| there | here |\n|---|---|\n"
END = "\n\nSome text.\n\n## Next\n\n| not | ours |\n|---|---|\n| `x()` | `y()` |\n"


def table_of(*rows: str) -> Table:
    return Table("Coming from Elsewhere", text=HEAD + "\n".join(rows) + END)


def planned() -> None:
    """It names `mk.speedup(model)` in its text alone."""
    plan = mk.plan  # nothing of what follows is called here: the source is what is read
    receipt = plan(None, ratio=0.5, scope="global", only=["conv1"])  # type: ignore[arg-type]
    receipt.cut(None)  # type: ignore[arg-type]


SHOWN = '`mk.plan` with `ratio=0.5`, `scope="global"`, `only=…`, then `.cut(model)` of "conv1"'


def test_a_function_that_does_what_its_row_shows_passes() -> None:
    table = table_of(f"| old | {SHOWN} |")
    table("old")(planned)
    assert table.check(table.rows[0]) is planned
    assert table.without_row() == []


@pytest.mark.parametrize(
    ("cell", "missing"),
    [
        ("`mk.trace(model)`", "mk.trace"),
        ("`mk.pruning.plan`", "mk.pruning.plan"),
        ("`receipt.restore()`", ".restore"),
        ("`speedup(model)`", "speedup()"),
        ("`mk.speedup(model)`", "mk.speedup"),
        ("`ratio=0.4`", "ratio=0.4"),
        ('`scope="local"`', "scope='local'"),
        ("`keep=…`", "keep="),
        ('`plan("conv2")`', "the string 'conv2'"),
        ("`plan(only=True)`", "only=True"),
    ],
)
def test_what_a_function_does_not_do_is_told(cell: str, missing: str) -> None:
    table = table_of(f"| old | {cell} |")
    table("old")(planned)
    with pytest.raises(TableError, match=re.escape(missing)):
        table.check(table.rows[0])


def test_a_row_without_a_function_fails() -> None:
    table = table_of("| `old()` | nothing |")
    with pytest.raises(TableError, match=r"no function for the row `old\(\)`"):
        table.check(table.rows[0])


def test_a_function_without_a_row_is_listed() -> None:
    table = table_of("| `old()` | nothing |")
    table("`older()`")(planned)
    assert table.without_row() == ["`older()`"]


def test_two_functions_for_one_row_are_refused() -> None:
    table = table_of("| old | new |")
    table("old")(planned)
    with pytest.raises(TableError, match="two functions"):
        table("old")(planned)
    with pytest.raises(TableError, match="two functions"):
        Table("Coming from Elsewhere", table, table, text=HEAD + "| old | new |" + END)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD + "| a | b |\n| a | c |\n", "two rows begin alike"),
        (HEAD + "| a | b | c |\n", "two cells"),
        (HEAD + "| a | |\n", "two cells"),
        ("## Coming from Elsewhere\n\nNo table.\n", "there is no table"),
        ("## Coming from Nowhere\n", "there is no heading"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TableError, match=reason):
        rows_under("Coming from Elsewhere", text)


def test_a_table_ends_with_its_section_and_a_section_may_have_several() -> None:
    second = "\n\n| module | here |\n|---|---|\n| c | d |\n"
    assert rows_under("Coming from Elsewhere", HEAD + "| a | b |\n" + second + END) == [("a", "b"), ("c", "d")]


def test_a_failure_of_a_function_is_one_of_its_row() -> None:
    def wrong(tmp_path: Path) -> None:
        raise ValueError(tmp_path.name)

    table = table_of("| old | new |")
    table("old")(wrong)
    with pytest.raises(ValueError, match="here"):
        table.run(table.rows[0], tmp_path=Path("here"), monkeypatch=None)


def test_names_in_code_alone_count() -> None:
    assert shown_in('call `kg.most_used(10, level="block")`, not mk.plan(…) or "this"') == {
        ".most_used",
        "level='block'",
        "the string 'block'",
    }
    assert shown_in('`a, b`, `{dim: index}`, `0.5`, `@mk.axis_rule("mylib::…")`') == {"mk.axis_rule", ".axis_rule"}


def test_the_text_of_a_function_is_no_call() -> None:
    def described() -> None:
        """mk.plan(graph, ratio=0.5)"""

    functions: list[Callable[..., None]] = [described]
    assert [done_by(function) for function in functions] == [set()]


def test_every_section_of_the_document_has_its_tests() -> None:
    headings = re.findall(r"^## (Coming from .+)$", MIGRATION.read_text("utf-8"), re.MULTILINE)
    sources = [
        path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_tables.py"
    ]
    tested = [found for text in sources for found in re.findall(r'^\w+ = Table\("([^"]+)"', text, re.MULTILINE)]
    assert sorted(tested) == sorted(headings)
    assert len(headings) == 5
