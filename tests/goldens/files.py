"""Model files: everything that an opened file answers, for the samples of the readers' tests; differences of two."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

import modulekg_widgets as mk
from goldens.digests import Case
from goldens.nets import exact_net

SAMPLES = Path(__file__).resolve().parents[1] / "files" / "golden"
ENDINGS = (".pt", ".pth", ".pt2", ".onnx", ".gguf", ".safetensors")
FOLDERS = ("adapter", "checkpoints", "sharded")


def sample_names() -> list[str]:
    """The files and the folders of files."""
    single = [path.name for path in SAMPLES.iterdir() if path.suffix in ENDINGS]
    inside = [f"{folder}/{path.name}" for folder in FOLDERS for path in (SAMPLES / folder).glob("*.index.json")]
    return sorted([*single, *inside, "adapter/adapter_model.safetensors", *FOLDERS])


def opened(name: str) -> dict[str, Any]:
    """All answers of a file."""
    try:
        return answers(mk.open_file(SAMPLES / name))
    except mk.ModuleKGError as error:
        return {"refused": str(error).replace(str(SAMPLES), "SAMPLES")}


def answers(file: mk.ModelFile) -> dict[str, Any]:
    """The answers of an opened file."""
    graph = file.graph
    nodes = [] if graph is None else [[str(node), data] for node, data in graph.nodes(data=True)]
    edges = [] if graph is None else [[str(a), str(b), data] for a, b, data in graph.edges(data=True)]
    return {
        "format": file.format, "metadata": file.metadata, "tensors": file.tensors(), "nodes": nodes, "edges": edges,
        "hierarchy": str(file.hierarchy()), "str": str(file).replace(str(SAMPLES), "SAMPLES"), "values": values(file),
    }  # fmt: skip


def values(file: mk.ModelFile) -> dict[str, Any]:
    """The sum of each tensor that can be read."""
    found: dict[str, Any] = {}
    for name in list(file.tensors()["name"])[:12]:
        try:
            tensor = file.tensor(name)
            found[name] = [list(tensor.shape), str(tensor.dtype), str(tensor.to(torch.complex128).sum().item())]
        except mk.ModuleKGError as error:
            found[name] = str(error).replace(str(SAMPLES), "SAMPLES")
    return found


def compared() -> dict[str, str]:
    """A checkpoint beside a changed one and beside the model."""
    other = exact_net()
    with torch.no_grad():
        other.get_parameter("2.bias").add_(1)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(exact_net().state_dict(), f"{folder}/a.pth")
        torch.save(other.state_dict(), f"{folder}/b.pth")
        a, b = mk.open_file(f"{folder}/a.pth"), mk.open_file(f"{folder}/b.pth")
        found = {
            "structure": str(mk.diff(a, b)), "weights": str(mk.diff(a, b, weights=True)),
            "model": str(mk.diff(a, exact_net(), weights=True)),
        }  # fmt: skip
        return {name: text.replace(folder, "FOLDER") for name, text in found.items()}


REFUSED: dict[str, bytes] = {
    "empty.pt": b"", "text.safetensors": b"hello", "short.gguf": b"GGUF\3\0\0\0", "noise.onnx": b"\xff" * 64,
    "zip.pt2": b"PK\3\4", "unknown.xyz": b"?", "long.safetensors": b"\xff" * 40,
}  # fmt: skip


def refused(name: str) -> str:
    """The words about a broken file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(REFUSED[name])
        try:
            file = mk.open_file(path)
            return f"not refused: {file.format} {file.hierarchy()}"
        except mk.ModuleKGError as error:
            return str(error).replace(folder, "FOLDER")


def cases() -> dict[str, Case]:
    """All of this subject."""
    return {
        **{name: Case(partial(opened, name)) for name in sample_names()},
        "two checkpoints": Case(compared),
        **{f"refused: {name}": Case(partial(refused, name)) for name in REFUSED},
    }
