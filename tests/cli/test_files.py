"""`modulekg show`, `diff` and `export` on model files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.cli import main
from sampling import sampled


class RunsOnLoad:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch was_run",)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files and a module that builds the same model."""
    torch.save(net().state_dict(), tmp_path / "net.pth")
    other = net()
    with torch.no_grad():
        other.get_parameter("2.bias").add_(1)
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


@pytest.mark.parametrize(
    "arguments",
    sampled([["show", "ü.pth"], ["show", "ü.pth", "--tensors"], ["diff", "ü.pth", "net.pth"]], [["show", "ü.pth"]]),
)
@pytest.mark.slow
def test_a_console_of_few_characters_gets_the_others_as_escapes(folder: Path, arguments: list[str]) -> None:
    names = ("层.0.weight", "层.1.weight", "层.2.weight")
    torch.save({name: torch.zeros(3, 3) for name in names}, folder / "ü.pth")
    ended = subprocess.run(
        [sys.executable, "-m", "modulekg_widgets.cli", *arguments],
        env=os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        capture_output=True,
    )
    assert ended.stderr == b""
    assert ended.returncode == (1 if arguments[0] == "diff" else 0)
    assert r"\u5c42" in ended.stdout.decode("cp1252")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_model_file_of_another_ending_is_exported_by_what_is_in_it(folder: Path, legacy: bool) -> None:
    torch.save(net().state_dict(), folder / "weights.dat", _use_new_zipfile_serialization=not legacy)
    assert main(["export", "weights.dat", "net.html"]) == 0
    assert (folder / "net.html").stat().st_size > 100


def test_a_store_of_another_ending_is_exported_and_what_is_neither_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = mk.KnowledgeGraph(folder / "zoo.db")
    graph.add_model(net(), name="net")
    graph.close()
    (folder / "zoo.db").rename(folder / "zoo.kept")
    assert main(["export", "zoo.kept", "zoo.graphml"]) == 0
    (folder / "notes.txt").write_text("hello")
    assert main(["export", "notes.txt", "net.html"]) == 2
    assert "an unsupported format" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "./model.pt", "nowhere/model", r"C:\x\model.pt", r"C:\x\model", "C:model.pt", "Model.ONNX"],
)
def test_a_file_that_is_not_there_is_told_as_one(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for command in (["diff", "net.pth", name], ["diff", name, "net.pth"], ["export", name, "net.html"]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith(f"modulekg: there is no file {name!r}: ")
    assert main(["index", name, "--store", "zoo.db"]) == 2
    assert "write module:callable" in capsys.readouterr().err


def test_an_attribute_with_the_name_of_an_extension_is_one(folder: Path) -> None:
    (folder / "cli_files.py").write_text("from torch import nn\nclass zoo:\n    bin = nn.Linear(4, 8)\n")
    assert main(["diff", "cli_files:zoo.bin", "cli_files:zoo.bin"]) == 0
