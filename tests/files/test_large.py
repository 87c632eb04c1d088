"""Large files that are no forgeries are opened, and what is beyond a limit is told to be so, and not to be forged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.file_formats import safetensors_header
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401
from modulekg_widgets.engine.files import graph_building
from modulekg_widgets.engine.files.formats.pickle import pickle_contents
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source


def contents(path: Path) -> FileContents:
    with open_source(path) as source:
        return read_contents(source)


def not_opened(path: Path) -> str:
    with pytest.raises(ModelFileError, match="larger files are not opened") as error:
        contents(path)
    assert "forged" not in str(error.value)
    assert path.name in str(error.value)
    return str(error.value)


def safetensors(path: Path, count: int) -> Path:
    header: dict[str, Any] = {f"w{at}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for at in range(count)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


def test_safetensors_may_have_all_the_tensors_that_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = safetensors_header.MAX_PARTS // safetensors_header.MAX_TENSORS
    monkeypatch.setattr(safetensors_header, "MAX_TENSORS", 5_000)
    monkeypatch.setattr(safetensors_header, "MAX_PARTS", 5_000 * parts)
    assert len(contents(safetensors(tmp_path / "x.safetensors", 5_000)).tensors) == 5_000
    assert "more than 5,000 tensors" in not_opened(safetensors(tmp_path / "y.safetensors", 5_001))


@pytest.mark.nightly
def test_a_checkpoint_of_a_hundred_thousand_tensors(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    row = torch.zeros(3)
    torch.save({f"layers.{at // 9}.w{at % 9}": row[:2] for at in range(100_000)}, path)
    assert len(contents(path).tensors) == 100_000


@pytest.mark.slow
def test_a_checkpoint_of_millions_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"order": list(range(3_400_000)), "weight": torch.zeros(2)}, path)
    found = contents(path)
    assert found.metadata["order"] == "3,400,000 values"
    assert [each.name for each in found.tensors] == ["weight"]


@pytest.mark.slow
def test_a_checkpoint_of_more_numbers_than_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"order": list(range(4_100_000)), "weight": torch.zeros(2)}, path)
    assert "more than 4,000,000 opcodes" in not_opened(path)


def test_a_checkpoint_of_more_tensors_than_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_contents, "MAX_TENSORS", 5)
    path = tmp_path / "x.pt"
    torch.save({str(at): torch.zeros(1) for at in range(6)}, path)
    assert "more than 5 tensors" in not_opened(path)


def test_an_onnx_file_of_sixty_thousand_operators_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the metadata of torch's exporter: what a hundred of them take of what may be read, 600 times."""
    onnx = pytest.importorskip("onnx")
    frames = "\n".join(f'File "/lib/net.py", line {at}, in forward\n    x = self.layers(x)' for at in range(12))
    nodes, values = [], []
    for at in range(100):
        node = onnx.helper.make_node("Add", [f"add_{at}", "x"], [f"add_{at + 1}"], f"node_add_{at}")
        path = "model.layers.0.self_attn"
        for key, text in (
            ("name_scopes", f"['', 'model', 'model.layers.0', '{path}', 'add_{at}']"),
            ("class_hierarchy", "['net.Net', 'net.Model', 'net.Layer', 'net.Attention', 'aten.add.Tensor']"),
            ("stack_trace", frames), ("fx_node", f"%add_{at}" * 20), ("namespace", f"{path}/add_{at}" * 5),
        ):  # fmt: skip
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=text)
        nodes.append(node)
        values.append(onnx.helper.make_tensor_value_info(f"add_{at + 1}", onnx.TensorProto.FLOAT, ["batch", 8, 16]))
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[-1:], value_info=values[:-1])
    path = tmp_path / "x.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    monkeypatch.setattr(graph_building, "MAX_UNITS", graph_building.MAX_UNITS // 600)
    found = contents(path).graph
    assert found is not None
    assert len(found.operators) == 100
    monkeypatch.setattr(graph_building, "MAX_UNITS", graph_building.MAX_UNITS // 2)
    assert "operators" in not_opened(path)
