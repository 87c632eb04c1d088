"""`modulekg demo`: the notebooks, opened and checked."""

import importlib.util
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from browser.lab import code_notebook, free_port
from modulekg_widgets import cli

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def good_and_bad(tmp_path: Path) -> list[Path]:
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    nbformat.write(code_notebook(["x = 1", "assert x == 1"]), good)
    nbformat.write(code_notebook(["raise ValueError('first line\\nsecond line')"]), bad)
    return [good, bad]


@pytest.mark.slow
def test_check_prints_one_line_a_notebook(good_and_bad: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.check_notebooks(good_and_bad) == 1
    printed = capfd.readouterr()  # what the kernels print too
    good, bad = printed.out.splitlines()
    assert printed.err == ""
    assert good.startswith("good.ipynb")
    assert good.endswith(" s  ok")
    assert bad.endswith(" s  FAILED  ValueError: first line second line")
    assert cli.check_notebooks(good_and_bad[:1]) == 0


@pytest.mark.slow
def test_check_reports_and_leaves_no_folder(
    good_and_bad: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    monkeypatch.setattr(cli.tempfile, "mkdtemp", lambda prefix: str(folder))
    monkeypatch.setattr(cli, "copy_notebooks", lambda _: (good_and_bad, []))
    assert cli.main(["demo", "--check"]) == 1
    assert not folder.exists()
    assert cli.main(["demo", "--check", "--folder", str(tmp_path)]) == 2
    assert "remove --folder" in capsys.readouterr().err


def test_check_takes_single_notebooks_by_name(
    good_and_bad: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "copy_notebooks", lambda _: (good_and_bad, []))
    assert cli.main(["demo", "--check", "good.ipynb"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["good.ipynb"]
    assert cli.main(["demo", "--check", "good.ipynb", "gone.ipynb"]) == 2
    assert "no notebook gone.ipynb" in capsys.readouterr().err
    assert cli.main(["demo", "good.ipynb"]) == 2
    assert "--check" in capsys.readouterr().err


def test_a_notebook_that_is_no_notebook_is_one_failed_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{")
    assert cli.check_notebooks([broken]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_the_notebooks_are_copied_in_order(tmp_path: Path) -> None:
    copies, changed = cli.copy_notebooks(tmp_path / "new" / "folder")
    assert copies == sorted((tmp_path / "new" / "folder").glob("*.ipynb"))
    assert (copies[0].name, len(copies), changed) == ("00_quickstart.ipynb", 10, [])
    assert (copies[0].parent / "README.md").is_file()
    assert (copies[0].parent / "images" / "model_graph.png").is_file()
    assert not list(tmp_path.rglob(".*"))


def test_what_was_saved_in_the_folder_stays(tmp_path: Path) -> None:
    copies, _ = cli.copy_notebooks(tmp_path)
    copies[0].write_text("mine", "utf-8")
    copies[1].unlink()
    (tmp_path / "own.ipynb").write_text("own", "utf-8")
    again, changed = cli.copy_notebooks(tmp_path)
    assert (again, changed) == (copies, ["00_quickstart.ipynb"])
    assert copies[0].read_text("utf-8") == "mine"
    assert copies[1].is_file()
    assert (tmp_path / "own.ipynb").read_text("utf-8") == "own"


@pytest.mark.parametrize("given", [None, "my lessons"])
def test_the_folder_is_named_kept_and_said(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(cli, "start_lab", lambda folder, notebook, arguments: opened.append(notebook))
    monkeypatch.chdir(tmp_path)
    command = ["demo", *(["--folder", given] if given else [])]
    folder = tmp_path / (given or "modulekg-notebooks")
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"The notebooks are in {folder}\nYour changes in this folder are kept. ")
    assert "overwritten" not in printed
    (folder / "01_hierarchy_and_identity.ipynb").write_text("mine", "utf-8")
    assert cli.main(command) == 0
    assert "Not overwritten: 01_hierarchy_and_identity.ipynb\n" in capsys.readouterr().out
    assert opened == 2 * [folder / "00_quickstart.ipynb"]


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert cli.main(["demo", "--folder", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    text = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # a line may end at a hyphen
    assert "are not overwritten" in text
    assert "folder of the notebooks (default: ./modulekg-notebooks)" in text


@pytest.mark.parametrize("package", ["jupyterlab", "nbclient"])
def test_without_the_lab_extra_there_is_one_sentence(
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find_spec(name))
    assert cli.main(["demo"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'modulekg-widgets[lab]'" in error


@pytest.mark.nightly
def test_the_printed_address_opens_the_quickstart(tmp_path: Path, browser: "Browser") -> None:
    port = free_port()
    command = [sys.executable, "-m", "modulekg_widgets.cli", "demo", "--no-browser", f"--port={port}"]
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    settings = {f"JUPYTERLAB_{name}_DIR": str(tmp_path / name) for name in ("SETTINGS", "WORKSPACES")}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **own, **settings},
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            folder = Path(next(lines).partition("are in ")[2].strip())
            assert folder == tmp_path / "modulekg-notebooks"
            assert (folder / "00_quickstart.ipynb").is_file()
            address = next(found[0] for line in lines if (found := re.search(r"http://\S+token=\w+", line)))
            wait_for_server(process, f"http://127.0.0.1:{port}/api")
            page = browser.new_page()
            page.goto(address)
            page.get_by_role("heading", name="Quickstart: five minutes with an unknown model").wait_for(timeout=60_000)
            page.close()
        finally:
            process.terminate()
            try:
                process.communicate(timeout=20)  # what it says at the end must have a reader
            except subprocess.TimeoutExpired:  # it waits for a kernel that is just starting
                process.kill()


def wait_for_server(process: subprocess.Popen[str], url: str) -> None:
    for _ in range(600):
        assert process.poll() is None, process.communicate()[0]
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")
