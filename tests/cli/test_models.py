"""`modulekg diff` and `modulekg export` on names of models, good ones and bad ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from modulekg_widgets.cli import main

RESNET = "torchvision.models:resnet18"

MODELS = """
from torch import nn

def small(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
def wide(): return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
def no_model(): return 3
def fails(): raise ValueError("first line\\nsecond line")
def needs(width): return nn.Linear(width, width)
class Zoo:
    @staticmethod
    def small(): return small()
ready = small()
number = 3
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `cli_models` in the current folder, which is an empty one otherwise."""
    (tmp_path / "cli_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_models", raising=False)


@pytest.mark.parametrize("other", ["cli_models:small", "cli_models:Zoo.small", "cli_models:ready"])
def test_same_structure_is_exit_code_0(other: str) -> None:
    assert main(["diff", "cli_models:small", other]) == 0


def test_different_structure_is_exit_code_1_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "cli_models:small", "cli_models:wide"]) == 1
    assert "Linear" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resnet18", "module:callable"),
        (":resnet18", "module:callable"),
        ("no_such_module:model", "ModuleNotFoundError"),
        ("cli_models:nowhere", "AttributeError"),
        ("cli_models:number", "int"),
        ("cli_models:no_model", "torch.nn.Module"),
        ("cli_models:needs", "width"),
        ("cli_models:fails", "ValueError: first line second line"),
    ],
)
def test_a_bad_name_is_one_line_and_exit_code_2(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", name, "cli_models:small"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("modulekg: ")
    assert error.count("\n") == 1
    assert text in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("ending", "begin"),
    [
        ("svg", b"<svg"),
        ("html", b"<!doctype html"),
        ("json", b"{"),
        ("png", b"\x89PNG"),
        ("dot", b"digraph"),
        ("edges", b""),
    ],
)
def test_export_writes_the_format_of_the_ending(ending: str, begin: bytes, tmp_path: Path) -> None:
    out = tmp_path / f"model.{ending}"
    assert main(["export", "cli_models:small", str(out)]) == 0
    content = out.read_bytes()
    assert len(content) > 10
    assert begin in content[:200].lower() or begin in content[:200]


@pytest.mark.parametrize("out", ["model.pdf", "model", "nowhere/model.svg"])
def test_a_bad_file_is_refused_before_the_model_is_built(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "cli_models:fails", out]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert out in error
    assert list(Path.cwd().glob("model*")) == []


@pytest.mark.slow
def test_the_installed_command(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("modulekg")
    done = subprocess.run([command, "diff", RESNET, "torchvision.models:resnet34"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "layer3" in done.stdout
    done = subprocess.run([command, "export", RESNET, tmp_path / "resnet.svg"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    usage = subprocess.run([command], capture_output=True, text=True)
    assert usage.returncode == 2


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m modulekg_widgets.cli diff cli_models:small cli_models:wide | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
