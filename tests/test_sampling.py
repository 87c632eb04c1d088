"""The gate of CI: parts that make up the whole, and a browser test for each widget and each host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import modulekg_widgets as mk
import sampling

TESTS = Path(__file__).resolve().parent
COMMITS = [f"{number:012x}" for number in range(sampling.SLOW_PARTS)]
WIDGETS = {"ForwardPlayer", "KnowledgeExplorer", "MaskEditor", "MetricPanel", "ModelGraph", "Workbench"}
# the page of each widget in JupyterLab, and each host beside it
GATES = {
    *("test" + re.sub("([A-Z])", r"_\1", widget).lower() for widget in WIDGETS),
    *("test_lab_plugin", "test_lab_files", "test_model_files", "test_saved_notebooks", "test_saved_pages"),
    *("test_classic", "test_colab", "test_marimo", "test_other_servers", "test_vscode"),
    *("test_hostile_texts", "test_untrusted"),
}


class Sample:
    """A test as the choice sees it."""

    def __init__(self, nodeid: str, *, fixtures: tuple[str, ...] = (), marks: tuple[str, ...] = ()) -> None:
        self.nodeid = nodeid
        self.path = TESTS / nodeid.partition("::")[0].removeprefix("tests/")
        self.fixturenames = fixtures
        self.marks = marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def samples() -> list[Sample]:
    return [
        *(Sample(f"tests/axes/test_x.py::test_battery[{case}]") for case in range(90)),
        *(Sample(f"tests/axes/test_x.py::test_table[{case}]") for case in range(11)),
        *(Sample(f"tests/axes/test_x.py::test_slow[{case}]", marks=("slow",)) for case in range(9)),
        *(Sample(f"tests/architecture/test_x.py::test_files[{case}]") for case in range(90)),
        Sample("tests/browser/test_x.py::test_page", fixtures=("notebook", "browser")),
        Sample("tests/browser/test_x.py::test_first_page", fixtures=("browser",), marks=("gate",)),
        Sample("tests/docs/test_x.py::test_links", fixtures=("site",)),
    ]


def run_of(commit: str) -> list[str]:
    every = samples()
    left_out = set(sampling.outside_the_gate(every, commit))  # pyright: ignore[reportArgumentType]
    return [sample.nodeid for sample in every if sample not in left_out]


def test_parts_are_the_whole_and_share_only_what_always_runs() -> None:
    times = Counter(nodeid for commit in COMMITS for nodeid in run_of(commit))
    for sample in samples():
        name = sample.nodeid.partition("::")[2].partition("[")[0]
        expected = {"test_battery": 2, "test_slow": 1, "test_page": 0, "test_links": 0}.get(name, len(COMMITS))
        assert times[sample.nodeid] == expected, sample.nodeid


@pytest.mark.parametrize("commit", COMMITS)
def test_a_part_is_about_a_third(commit: str) -> None:
    drawn = [nodeid for nodeid in run_of(commit) if "test_battery" in nodeid]
    assert 20 <= len(drawn) <= 40


def test_the_commit_draws_the_part() -> None:
    assert [sampling.drawn_part(commit, sampling.PARTS) for commit in COMMITS] == [0, 1, 2] * 2
    assert [sampling.drawn_part(commit, sampling.SLOW_PARTS) for commit in COMMITS] == [0, 1, 2, 3, 4, 5]
    assert run_of("7" * 40) == run_of("7" * 12)


@pytest.mark.slow
def test_pytest_leaves_out_what_is_not_drawn() -> None:
    """For real: the tests of this folder's conftest, for a battery that there is."""
    counts = []
    for commit in ("", *COMMITS[: sampling.PARTS]):
        options = ["--collect-only", "-q", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, "tests/test_public_names.py"]
        environment = {**os.environ, "MODULEKG_GATE": commit}
        done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, env=environment, check=False)
        assert done.returncode == 0, done.stdout
        counts.append(sum("::test_each_name_is_there[" in line for line in done.stdout.splitlines()))
    assert counts[0] == sum(counts[1:]) > sampling.BATTERY


def test_each_widget_and_each_host_has_a_browser_test_in_the_gate() -> None:
    assert all(hasattr(mk, widget) for widget in WIDGETS)
    marked = Counter(
        path.stem for path in (TESTS / "browser").glob("test_*.py")
        for _ in re.finditer(r"^@pytest\.mark\.gate$", path.read_text("utf-8"), re.MULTILINE)
    )  # fmt: skip
    assert marked == dict.fromkeys(GATES, 1)
