"""The habits of the repository: the review of scientific Python's guide, hooks, issue forms, conduct."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from project_file import PROJECT, ROOT

GITHUB = ROOT / ".github"
FORMS = [path for path in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if path.stem != "config"]


def test_the_review_fails_where_a_reason_is_given_and_nowhere_else(require: Callable[..., None]) -> None:
    """An exception that would pass by now is no exception."""
    require("repo_review", "sp_repo_review")
    from repo_review.processor import process

    reasons = PROJECT["tool"]["repo-review"]["ignore"]
    reviewed = process(ROOT, ignore={"nothing"}).results
    assert len(reviewed) > 40, "the checks of sp-repo-review are not found"
    failed = {check.name: check.err_msg for check in reviewed if check.result is False}
    assert set(failed) == set(reasons), failed
    assert [name for name, reason in reasons.items() if len(reason) < 20] == []


def test_the_review_itself_passes(require: Callable[..., None]) -> None:
    require("repo_review", "sp_repo_review")
    done = subprocess.run(
        [sys.executable, "-m", "repo_review", "."], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


SCHEMAS = {
    "github-workflows": GITHUB.glob("workflows/*.yml"),
    "dependabot": GITHUB.glob("dependabot.yml"),
    "github-issue-config": GITHUB.glob("ISSUE_TEMPLATE/config.yml"),
    "github-issue-forms": FORMS,
}


@pytest.mark.parametrize(("schema", "files"), [(schema, list(files)) for schema, files in SCHEMAS.items()], ids=SCHEMAS)
def test_files_for_the_code_host_are_valid(schema: str, files: list[Path], require: Callable[..., None]) -> None:
    require("check_jsonschema")
    assert files
    from check_jsonschema import main
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", *map(str, files)])
    assert done.exit_code == 0, done.output


# ------------------------------------------------------------------ what is asked of those who report


def fields(form: Path) -> Iterator[dict[str, Any]]:
    yield from (part for part in yaml.safe_load(form.read_text("utf-8"))["body"] if part["type"] != "markdown")


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_something(form: Path) -> None:
    names = [field["id"] for field in fields(form)]
    assert len(names) == len(set(names))
    assert any(field.get("validations", {}).get("required") for field in fields(form))


def test_there_is_a_form_for_each_kind_of_issue() -> None:
    assert [form.stem for form in FORMS] == ["bug", "feature", "question"]


def test_a_bug_comes_with_its_versions() -> None:
    """By a command that exists."""
    import modulekg_widgets as mk

    (versions,) = [field for field in fields(GITHUB / "ISSUE_TEMPLATE" / "bug.yml") if field["id"] == "versions"]
    assert versions["validations"]["required"]
    names = re.findall(r"mk\.(\w+)\(\)", versions["attributes"]["label"])
    assert names == ["show_versions"]
    assert callable(getattr(mk, names[0]))


def test_conduct_and_security_are_told_in_one_way() -> None:
    conduct = (ROOT / "CODE_OF_CONDUCT.md").read_text("utf-8")
    assert "(SECURITY.md)" in conduct
    for document in ("CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md"):
        assert re.search(r"[\w.]+@[\w-]+\.\w+", (ROOT / document).read_text("utf-8")) is None, "an address of a person"


# ------------------------------------------------------------------ hooks


def hooks() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Each hook by its name, with the repository it comes from."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    return {hook["id"]: (repo, hook) for repo in config["repos"] for hook in repo["hooks"]}


def test_hooks_are_of_a_fixed_version() -> None:
    remote = {repo["repo"]: repo["rev"] for repo, _ in hooks().values() if repo["repo"] != "local"}
    assert [rev for rev in remote.values() if not re.fullmatch(r"v\d+\.\d+\.\d+", rev)] == []


@pytest.mark.parametrize("name", ["eslint", "prettier"])
def test_a_local_hook_runs_a_tool_of_the_front_end_on_its_files(name: str) -> None:
    package = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))
    repo, hook = hooks()[name]
    assert repo["repo"] == "local"
    assert name in package["devDependencies"]
    words = hook["entry"].split()
    assert name in {Path(word).name for word in words}
    assert [word for word in words if "/" in word and "node_modules" not in word and not (ROOT / word).exists()] == []
    assert re.search(hook["files"], "js/src/widgets/all.ts")
    assert re.search(hook["files"], "js/scripts/bundle.mjs")
    assert not re.search(hook["files"], "js/package.json")
