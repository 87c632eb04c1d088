"""The conda recipe asks for what pyproject.toml asks for, and is made from the sdist of a release."""

import json
import re
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from project_file import PROJECT, ROOT

# where conda-forge has another name than PyPI
CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base", "xxhash": "python-xxhash"}
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text("utf-8"))
PYTHON = "python"


def of_pypi(requirements: list[str]) -> dict[str, SpecifierSet]:
    found = [(canonicalize_name(one.name), one.specifier) for one in map(Requirement, requirements)]
    return {CONDA.get(name, name): specifier for name, specifier in found}


def of_conda(requirements: list[str]) -> dict[str, SpecifierSet]:
    split = [line.partition(" ")[::2] for line in requirements]
    return {name: SpecifierSet(bounds) for name, bounds in split if name != PYTHON}


@pytest.mark.parametrize(
    ("part", "needed"),
    [("run", PROJECT["project"]["dependencies"]), ("host", [*PROJECT["build-system"]["requires"], "pip"])],
)
def test_the_requirements_are_those_of_the_project(part: str, needed: list[str]) -> None:
    assert of_conda(RECIPE["requirements"][part]) == of_pypi(needed)


def test_the_recipe_has_the_project_s_command_and_words() -> None:
    project = PROJECT["project"]
    made = [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == made
    assert RECIPE["about"]["summary"] == project["description"]
    assert RECIPE["about"]["license"] == project["license"]
    assert (ROOT / RECIPE["about"]["license_file"]).is_file()
    assert RECIPE["context"]["name"] == project["name"]


def test_it_is_made_from_the_sdist_without_asking_pip_for_anything() -> None:
    folder, _, file = RECIPE["source"]["path"].rpartition("/")
    assert (ROOT / ".ci" / "conda" / folder).resolve() == ROOT / "dist"
    assert file == f"{PROJECT['project']['name'].replace('-', '_')}-${{{{ version }}}}.tar.gz"
    assert {"--no-deps", "--no-build-isolation"} <= set(RECIPE["build"]["script"].split())
    assert RECIPE["build"]["noarch"] == PYTHON


def test_what_it_says_of_a_version_it_has_itself() -> None:
    """So that it is built without the settings of conda-forge."""
    used = set(re.findall(r"\$\{\{ (\w+) \}\}", json.dumps({**RECIPE, "context": {}})))
    assert used == set(RECIPE["context"])
    assert PROJECT["project"]["requires-python"] == f">={RECIPE['context']['python_min']}"


def test_the_package_is_tried_as_the_wheel_is() -> None:
    imported, commands = RECIPE["tests"]
    assert imported["python"]["imports"] == ["modulekg_widgets"]
    assert commands["script"] == ["modulekg --version", "jupyter labextension list"]
