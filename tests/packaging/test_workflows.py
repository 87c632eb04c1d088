"""The workflows: valid, with least rights and fixed actions, and each command in them is one that works here."""

import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from docs import commands as documented
from project_file import PROJECT, ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.yml"))}
ON = True  # the key `on`, as YAML 1.1 reads it
OLDEST = ROOT / ".ci" / "oldest.txt"
PUBLISHES = {"id-token": "write"}
RIGHTS = {"npm": PUBLISHES, "pypi": PUBLISHES, "github-pages": {"pages": "write", **PUBLISHES}}
MINUTES = 5  # that the site may take

each_workflow = pytest.mark.parametrize("name", WORKFLOWS)


def jobs(name: str) -> dict[str, dict[str, Any]]:
    return WORKFLOWS[name]["jobs"]


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in jobs(name).values():
        yield from job.get("steps", ())


def commands(name: str) -> Iterator[list[str]]:
    """The words of each command of each `run`, for each value of a matrix that stands in it."""
    for job in jobs(name).values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job.get("steps", ()):
            for line in filled(step.get("run", ""), matrix):
                yield from (words for _, words in documented.commands(line))


def filled(run: str, matrix: dict[str, list[str]]) -> Iterator[str]:
    """The lines of a `run` with the values of the matrix in their places."""
    for line in run.splitlines():
        names = re.findall(r"\$\{\{ matrix\.(\w+) \}\}", line)
        for values in itertools.product(*(matrix[name] for name in names)):
            pieces = re.split(r"\$\{\{ matrix\.\w+ \}\}", line)
            yield "".join(itertools.chain(*itertools.zip_longest(pieces, values, fillvalue="")))


# ------------------------------------------------------------------ form and rights


def test_updates_are_asked_for_in_one_go() -> None:
    entries = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text("utf-8"))["updates"]
    assert {entry["package-ecosystem"] for entry in entries} == {"github-actions", "npm", "pre-commit"}
    assert all(entry["groups"] for entry in entries)
    assert all((ROOT / entry["directory"].lstrip("/")).is_dir() for entry in entries)


@each_workflow
def test_a_workflow_may_only_read(name: str) -> None:
    """But for the jobs that publish: they prove who they are, behind an environment that asks a person."""
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job in jobs(name).values():
        rights, environment = job.get("permissions", {}), job.get("environment", "")
        place = environment if isinstance(environment, str) else environment["name"]
        assert rights == RIGHTS.get(place, {})
        assert not rights or not [step for step in job["steps"] if "checkout" in step.get("uses", "")]


@each_workflow
def test_actions_are_fixed_and_jobs_end(name: str) -> None:
    lines = re.findall(r"uses: (.*)", (FOLDER / f"{name}.yml").read_text("utf-8"))
    for line in lines:
        if line.startswith("./"):
            assert (ROOT / line).is_file(), line
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    assert [title for title, job in jobs(name).items() if "timeout-minutes" not in job and "uses" not in job] == []
    for step in steps(name):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
    assert "secrets." not in (FOLDER / f"{name}.yml").read_text("utf-8")


def test_one_action_has_one_version() -> None:
    text = "".join(path.read_text("utf-8") for path in FOLDER.glob("*.yml"))
    pairs = set(re.findall(r"uses: ([\w-]+/[\w-]+)@(\S+)", text))
    assert len(pairs) == len({action for action, _ in pairs})


# ------------------------------------------------------------------ what is run


@pytest.mark.parametrize(("name", "words"), [(name, words) for name in WORKFLOWS for words in commands(name)])
def test_a_command_is_one_that_works_here(name: str, words: list[str]) -> None:
    assert documented.complaint(words) is None, f"{name}.yml: {shlex.join(words)}"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("pip install '.[nothing]'", "there is no extra [nothing]"),
        ("pip install '.[test]' --constraint .ci/gone.txt", "there is no such file of constraints"),
        ("pip install leftpad", "leftpad is not among what the tests need"),
        ("npm --prefix js run nothing", "there is no script 'nothing'"),
        ("python .ci/gone.py build", "there is no .ci/gone.py"),
        ("pytest -n 4 tests --ignore=tests/gone", "there is no tests/gone"),
        ("curl x", "curl is not known to the tests"),
        ("pytest -n 4 --dist loadfile tests/packaging", None),
    ],
)
def test_a_command_that_would_fail_is_told(command: str, said: str | None) -> None:
    assert documented.complaint(shlex.split(command)) == said


@each_workflow
def test_the_scripts_of_a_release_know_their_options(name: str) -> None:
    """argparse refuses what it does not know, before anything is done."""
    for program, *words in commands(name):
        if program == "python":
            script, *options = words
            done = subprocess.run([sys.executable, ROOT / script, *options, "--help"], capture_output=True, check=False)
            assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ versions


def stated_pythons() -> list[str]:
    start = "Programming Language :: Python :: 3."
    return [line.removeprefix(start[:-2]) for line in PROJECT["project"]["classifiers"] if line.startswith(start)]


def test_every_supported_python_is_tried() -> None:
    pythons = stated_pythons()
    matrix = jobs("ci")["tests"]["strategy"]["matrix"]
    assert matrix["python"] == pythons
    assert matrix["stack"] == ["oldest", "newest"]
    accepted = SpecifierSet(PROJECT["project"]["requires-python"])
    assert all(accepted.contains(python) for python in pythons)
    first = pythons[0].split(".")
    assert not accepted.contains(f"{first[0]}.{int(first[1]) - 1}")
    packages = jobs("packages")["smoke"]["strategy"]["matrix"]["python"]
    assert packages == [pythons[0], pythons[-1]]


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """One of each name for every Python, and for the oldest Python the very bound."""
    lines = [line for line in OLDEST.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    oldest = [Requirement(line) for line in lines]
    bounds = {one.name: one.specifier for one in map(Requirement, PROJECT["project"]["dependencies"])}
    for python in stated_pythons():
        there = [one for one in oldest if one.marker is None or one.marker.evaluate({"python_version": python})]
        assert sorted(one.name for one in there) == ["ipywidgets", "torch", "torchvision"]
        for one in there:
            (version,) = {spec.version for spec in one.specifier}
            assert bounds[one.name].contains(version)
            if python == stated_pythons()[0]:
                assert lower_bound(bounds[one.name]) == Version(version)


def lower_bound(specifier: SpecifierSet) -> Version | None:
    return next((Version(spec.version) for spec in specifier if spec.operator == ">="), None)


# ------------------------------------------------------------------ the release


def before(job: str) -> set[str]:
    """All jobs of the release that have to be through before `job` begins."""
    needs = jobs("release")[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*map(before, direct))


def test_a_person_releases_what_was_built_tried_and_checked() -> None:
    assert set(WORKFLOWS["release"][ON]) == {"workflow_dispatch"}
    publishing = {title for title, job in jobs("release").items() if "id-token" in job.get("permissions", {})}
    assert publishing == {"npm", "pypi", "site"}
    assert all({"packages", "docs", "check"} <= before(title) for title in publishing)
    assert "npm" in before("pypi"), "a kernel would ask a network for a page that is not there yet"
    assert "pypi" in before("site"), "the pages would name what cannot be installed yet"
    assert ["python", ".ci/release.py", "check"] in list(commands("release"))
    assert "needs" in jobs("packages")["smoke"]


def test_the_site_that_is_published_is_the_one_that_changes_are_tried_with() -> None:
    assert {jobs(name)["docs"]["uses"] for name in ("ci", "release")} == {"./.github/workflows/docs.yml"}
    (publish,) = jobs("release")["site"]["steps"]
    assert publish["uses"].startswith("actions/deploy-pages@")
    built, asked = [words for words in commands("docs") if words[0] == "sphinx-build"]
    assert {"-W", "-n", "--keep-going"} <= set(built)
    assert asked[:3] == ["sphinx-build", "-b", "linkcheck"]
    (upload,) = [step for step in steps("docs") if "upload-pages-artifact" in step.get("uses", "")]
    assert upload["with"]["path"] == built[-1]


def test_the_site_takes_no_longer_than_it_may() -> None:
    """Its notebooks run before, beside each other; of their own they may take as long."""
    timed = {step["run"].split()[0]: step["timeout-minutes"] for step in steps("docs") if "timeout-minutes" in step}
    assert timed == {"ls": MINUTES, "sphinx-build": MINUTES}


def test_npm_is_told_where_a_package_was_built() -> None:
    (publish,) = [words for words in commands("release") if words[:2] == ["npm", "publish"]]
    assert "--provenance" in publish
    assert [words for name in WORKFLOWS for words in commands(name) if words[:2] == ["npm", "publish"]] == [publish]


# ------------------------------------------------------------------ the long battery


def test_every_test_runs_each_night() -> None:
    """Once: no part runs what another one runs. The gate of a change may leave out any that it draws."""
    (job,) = jobs("nightly").values()
    assert set(WORKFLOWS["nightly"][ON]) == {"schedule", "workflow_dispatch"}
    assert job["env"]["MODULEKG_REQUIRE_ALL"] == "1"
    parts = [words for words in commands("nightly") if words[0] == "pytest"]
    every = ["-m", "nightly or not nightly"]
    assert [words[1:3] for words in parts] == [every] * len(job["strategy"]["matrix"]["part"])
    for test in (*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "notebooks").glob("*.ipynb")):
        assert sum(runs(words[3:], test) for words in parts) == 1, test


def runs(words: list[str], test: Path) -> bool:
    """Whether pytest runs a file, as the folders say that it is given and those that it ignores."""
    ignored = [ROOT / word.partition("=")[2] for word in words if word.startswith("--ignore=")]
    given = [ROOT / word for word in words if not word.startswith("-")]
    return any(map(test.is_relative_to, given)) and not any(map(test.is_relative_to, ignored))


def test_pull_requests_stop_the_runs_before_them() -> None:
    assert WORKFLOWS["ci"]["concurrency"]["cancel-in-progress"] is True
    assert WORKFLOWS["release"]["concurrency"]["cancel-in-progress"] is False
    assert set(WORKFLOWS["ci"][ON]) == {"push", "pull_request", "workflow_dispatch"}
