"""What a bug report says of the machine: every package that counts, and nothing of whoever sends it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import site
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import modulekg_widgets as mk
from modulekg_widgets.engine import versions as home


def reported(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert mk.show_versions(as_json=True) is None
    return json.loads(capsys.readouterr().out)


def test_every_requirement_has_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    found = reported(capsys)
    for name in ("torch", "torchvision", "ipywidgets", "ipycytoscape", "networkx", "traitlets", "sqlalchemy", "xxhash"):
        assert found[name] == metadata.version(name)
    assert found["jupyterlab"] == metadata.version("jupyterlab")  # of an extra, and there
    assert found["modulekg-widgets"] == mk.__version__
    assert found["Python"].startswith(platform.python_version())


def test_the_text_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    names = reported(capsys)
    mk.show_versions()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(names)
    assert all(line.startswith(name) for line, name in zip(lines, names, strict=True))


def test_what_is_missing_or_old_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def version(name: str) -> str:
        if name in ("traitlets", "jupyterlab"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(home, "version", version)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(site, "USER_BASE", str(tmp_path / "own"))
    monkeypatch.setattr(home, "SHARE_FOLDERS", [tmp_path / "local"])
    found = reported(capsys)
    assert found["traitlets"] == "not installed"
    assert "jupyterlab" not in found  # nobody has to have what an extra brings
    assert found["front end"] == "not installed"
    # the first of them counts, as to Jupyter
    for number, share in enumerate(["local", "own/share", "share"]):
        package = tmp_path / share / "jupyter" / "labextensions" / "modulekg-widgets" / "package.json"
        package.parent.mkdir(parents=True)
        package.write_text(f'{{"version": "0.0.{number}"}}')
        assert reported(capsys)["front end"] == f"0.0.{number}"


def test_nothing_tells_who_sends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MODULEKG_TOKEN", "https://example.org/?secret=1")
    monkeypatch.setenv("MODULEKG_STORE", str(Path.home() / "zoo.db"))
    monkeypatch.setenv("MODULEKG_API_KEY", "swordfish")
    monkeypatch.setenv("MODULEKG_COLAB", "swordfish")
    monkeypatch.setenv("MODULEKG_PLUGINS", "0")
    found = reported(capsys)
    assert {name: value for name, value in found.items() if name.startswith("MODULEKG_")} == {"MODULEKG_PLUGINS": "0"}
    text = json.dumps(found)
    private = {"secret", "swordfish", str(Path.home()), platform.node(), sys.prefix}
    assert [each for each in private if len(each) > 2 and each in text] == []
    assert getpass.getuser() == "root" or getpass.getuser() not in text


def test_a_torch_that_cannot_be_imported_is_part_of_the_report() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import modulekg_widgets as mk; mk.show_versions()"
    )  # fmt: skip
    environment = {**os.environ, "MODULEKG_PLUGINS": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert "torch cannot be imported" in done.stdout


def test_the_command_says_its_version() -> None:
    command = [sys.executable, "-m", "modulekg_widgets.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(mk.__version__)
