"""What the command `modulekg` prints and writes: every subcommand, right and wrong."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from goldens.digests import Case
from goldens.nets import exact_net
from modulekg_widgets.cli import main

MODELS = """
from torch import nn

def small(): return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
def wide(): return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
def fails(): raise ValueError("first line\\nsecond line")
number = 3
"""
MODULE = "golden_commands"
INDEX = ["index", f"{MODULE}:small", f"{MODULE}:wide", "--store", "zoo.db"]
# each a run of commands in one folder
RUNS: dict[str, list[list[str]]] = {
    "show": [["show", "net.pth"], ["show", "net.pth", "--tensors"]],
    "show what is wrong": [["show", "broken.safetensors"], ["show", "absent.onnx"]],
    "diff of models": [["diff", f"{MODULE}:small", f"{MODULE}:small"], ["diff", f"{MODULE}:small", f"{MODULE}:wide"]],
    "diff of files": [["diff", "net.pth", "trained.pth"], ["diff", "net.pth", "trained.pth", "--weights"]],
    "diff of file and model": [["diff", "net.pth", f"{MODULE}:small"]],
    "diff of what is wrong": [
        ["diff", "resnet18", f"{MODULE}:small"], ["diff", f"{MODULE}:number", f"{MODULE}:small"],
        ["diff", f"{MODULE}:fails", f"{MODULE}:small"], ["diff", "no_such_module:model", f"{MODULE}:small"],
        ["diff", "model.safetensors", "net.pth"],
    ],
    "index": [INDEX, INDEX, [*INDEX, "--again"]],
    "index of what is wrong": [
        ["index", f"{MODULE}:fails", "--store", "zoo.db"], ["index", f"{MODULE}:small", "--store", "mysql://x/y"],
        ["index", f"{MODULE}:small", "--store", f"{MODULE}.py"],
    ],
    "export of a store": [INDEX, *(["export", "zoo.db", f"zoo.{end}"] for end in ("graphml", "csv", "dot", "edges"))],
    "export of a model": [["export", f"{MODULE}:small", f"model.{end}"] for end in ("json", "svg", "dot", "graphml")],
    "export of a file": [["export", "net.pth", f"file.{end}"] for end in ("json", "svg", "dot")],
    "export of what is wrong": [
        ["export", "missing.db", "zoo.graphml"], ["export", f"{MODULE}:small", "zoo.xyz"],
        ["export", "absent.pth", "net.html"],
    ],
    "demo of what is wrong": [["demo", "--check", "--folder", "."], ["demo", "00_quickstart.ipynb"],
                              ["demo", "--check", "gone.ipynb"]],
    "version": [["--version"]],
    "usage": [[], ["nothing"]],
    "help": [["--help"], *([name, "--help"] for name in ("demo", "show", "diff", "index", "export"))],
}  # fmt: skip


@contextlib.contextmanager
def folder_of_samples() -> Iterator[Path]:
    """A current folder with files and a module of models."""
    before, path, columns = Path.cwd(), list(sys.path), os.environ.get("COLUMNS")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        torch.save(exact_net().state_dict(), folder / "net.pth")
        other = exact_net()
        with torch.no_grad():
            other.get_parameter("2.bias").add_(1)
        torch.save(other.state_dict(), folder / "trained.pth")
        (folder / "broken.safetensors").write_bytes(b"\xff" * 40)
        (folder / f"{MODULE}.py").write_text(MODELS)
        os.chdir(folder)
        os.environ["COLUMNS"] = "100"
        try:
            yield folder
        finally:
            os.chdir(before)
            sys.path[:] = path
            sys.modules.pop(MODULE, None)
            if columns is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = columns


def called(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of one command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def run(name: str) -> dict[str, Any]:
    """All that a run of commands prints and writes."""
    found: dict[str, Any] = {}
    with folder_of_samples() as folder:
        before = set(folder.iterdir())
        for at, arguments in enumerate(RUNS[name]):
            code, out, err = called(arguments)
            lines = [f"exit {code}", *out.splitlines(), *(f"error: {line}" for line in err.splitlines())]
            found[f"{at} modulekg {' '.join(arguments)}"] = "\n".join(lines).replace(str(folder), "FOLDER") + "\n"
        for path in sorted(set(folder.iterdir()) - before):
            if path.suffix not in (".db", "") and path.name != "__pycache__":
                found[f"file {path.name}"] = path.read_text("utf-8").replace("><", ">\n<")
    return found


def cases() -> dict[str, Case]:
    """All of this subject."""
    return {name: Case(partial(run, name), 5) for name in RUNS}
