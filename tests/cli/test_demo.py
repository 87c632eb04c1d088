"""`modulekg demo`: the notebooks, opened and checked."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

from browser.lab import code_notebook, free_port
from modulekg_widgets import cli


@pytest.fixture
def good_and_bad(tmp_path: Path) -> list[Path]:
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    nbformat.write(code_notebook(["x = 1", "assert x == 1"]), good)
    nbformat.write(code_notebook(["raise ValueError('first line\\nsecond line')"]), bad)
    return [good, bad]


def test_check_prints_one_line_a_notebook(good_and_bad: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.check_notebooks(good_and_bad) == 1
    printed = capfd.readouterr()  # what the kernels print too
    good, bad = printed.out.splitlines()
    assert printed.err == ""
    assert good.startswith("good.ipynb")
    assert good.endswith(" s  ok")
    assert bad.endswith(" s  FAILED  ValueError: first line second line")
    assert cli.check_notebooks(good_and_bad[:1]) == 0


def test_check_reports_and_leaves_no_folder(
    good_and_bad: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    monkeypatch.setattr(cli.tempfile, "mkdtemp", lambda prefix: str(folder))
    monkeypatch.setattr(cli, "copy_notebooks", lambda _: good_and_bad)
    assert cli.main(["demo", "--check"]) == 1
    assert not folder.exists()


def test_a_notebook_that_is_no_notebook_is_one_failed_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{")
    assert cli.check_notebooks([broken]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_the_notebooks_are_copied_in_order(tmp_path: Path) -> None:
    copies = cli.copy_notebooks(tmp_path)
    assert copies == sorted(tmp_path.glob("*.ipynb"))
    assert copies[0].name == "00_quickstart.ipynb"
    assert not list(tmp_path.rglob(".*"))


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


def test_demo_serves_the_quickstart(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "modulekg_widgets.cli", "demo", "--no-browser", f"--port={port}"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # the copies of the notebooks shall go with the test
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().rpartition(" ")[2].strip())
            assert (folder / "00_quickstart.ipynb").is_file()
            wait_for_server(process, f"http://127.0.0.1:{port}/api")
        finally:
            process.terminate()


def wait_for_server(process: subprocess.Popen[str], url: str) -> None:
    for _ in range(600):
        assert process.poll() is None, process.communicate()[0]
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")
