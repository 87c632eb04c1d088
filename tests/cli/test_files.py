"""`modulekg show`, `diff` and `export` on model files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from modulekg_widgets.cli import main


class RunsOnLoad:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch was_run",)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files and a module that builds the same model."""
    torch.save(net().state_dict(), tmp_path / "net.pth")
    other = net()
    with torch.no_grad():
        other[2].bias += 1
    torch.save(other.state_dict(), tmp_path / "trained.pth")
    torch.save({"net": net().state_dict(), "gift": RunsOnLoad()}, tmp_path / "gift.pth")
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 40)
    build = "from torch import nn\ndef net(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"
    (tmp_path / "cli_files.py").write_text(build)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_files", raising=False)
    return tmp_path


def test_a_file_is_shown_with_what_it_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "net.pth"]) == 0
    out = capsys.readouterr().out
    assert "checkpoint" in out
    assert "4 tensors" in out
    assert "matrix" in out
    assert main(["show", "net.pth", "--tensors"]) == 0
    assert "2.weight  [2, 8]  float32  64" in capsys.readouterr().out


def test_a_warning_is_shown_and_nothing_is_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["show", "gift.pth"]) == 0
    assert "warning:" in capsys.readouterr().out
    assert not (folder / "was_run").exists()


def test_files_and_models_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "net.pth", "cli_files:net"]) == 0
    assert main(["diff", "net.pth", "trained.pth"]) == 0
    assert main(["diff", "net.pth", "trained.pth", "--weights"]) == 1
    assert "1 changed" in capsys.readouterr().out


@pytest.mark.parametrize("out", ["net.html", "net.svg", "net.json", "net.dot"])
def test_a_file_is_exported_as_a_model_is(out: str, folder: Path) -> None:
    assert main(["export", "net.pth", out]) == 0
    assert (folder / out).stat().st_size > 100


def test_what_is_wrong_with_a_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "broken.safetensors"]) == 2
    assert main(["show", "absent.onnx"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "broken.safetensors" in lines[0]
    assert "absent.onnx" in lines[1]
