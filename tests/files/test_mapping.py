"""Tensors of files in memory: as they were written, without what is not looked at, and never a crash."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModelFileError

ITEMS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U8": 1, "C64": 8}


def written(path: Path, entries: Mapping[str, tuple[str, list[int]]], shift: int = 0, sparse: bool = False) -> Path:
    """A safetensors file whose tensors begin `shift` bytes behind a multiple of 8, with 1, 2, 3, … as its bytes."""
    header, at = {}, 0
    for name, (dtype, shape) in entries.items():
        end = at + ITEMS[dtype] * torch.Size(shape).numel()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * ((shift - len(text)) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + at)
        else:
            file.write(bytes(i % 100 for i in range(at)))
    return path


@pytest.mark.parametrize("shift", range(8))
def test_tensors_may_begin_at_any_byte(shift: int, tmp_path: Path) -> None:
    entries = {dtype: (dtype, [3, 5]) for dtype in ITEMS}
    file = mk.open_file(written(tmp_path / "odd.safetensors", entries, shift))
    whole = (tmp_path / "odd.safetensors").read_bytes()
    for name in entries:
        tensor, record = file.tensor(name), file.record(name)
        expected = torch.frombuffer(bytearray(whole[record.offset : record.offset + record.nbytes]), dtype=tensor.dtype)
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), expected.view(torch.uint8))
        assert torch.equal(tensor[1:, 2:].clone(), expected.reshape(3, 5)[1:, 2:])


PEAK = """
import resource, sys, torch
import modulekg_widgets as mk
file = mk.open_file(sys.argv[1])
file.tensor("small").sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert file.tensor("large")[5:7].sum() == 0
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.slow
def test_of_a_tensor_larger_than_memory_only_what_is_looked_at_is_read(shift: int, tmp_path: Path) -> None:
    entries = {"small": ("F32", [4]), "large": ("F32", [25_000_000_000])}
    path = written(tmp_path / "large.safetensors", entries, shift, sparse=True)
    ended = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 20  # MB, of 100 GB


def quantized() -> dict[str, torch.Tensor]:
    scale = torch.rand(3, 4)
    return {
        "by_tensor": torch.quantize_per_tensor(scale, 0.1, 3, torch.qint8),
        "by_channel": torch.quantize_per_channel(scale, torch.ones(3), torch.zeros(3), 0, torch.quint8),
        "plain": scale,
    }


def test_quantized_tensors_are_told_and_not_mapped(tmp_path: Path) -> None:
    torch.save(quantized(), tmp_path / "q.pth")
    file = mk.open_file(tmp_path / "q.pth")
    shapes = {row.name: row.shape for row in file.tensors().itertuples(index=False)}
    assert shapes == dict.fromkeys(quantized(), (3, 4))
    for name in ("by_tensor", "by_channel"):
        with pytest.raises(ModelFileError, match="no plain values"):
            file.tensor(name)
    assert mk.diff(file, file, weights=True).identical
    again = quantized()
    torch.save(again, tmp_path / "again.pth")
    changed = mk.diff(file, mk.open_file(tmp_path / "again.pth"), weights=True)
    assert {pair.left.name for pair in changed.differences} == set(again)


def test_half_bytes_are_told_and_not_mapped(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    weight = helper.make_tensor("w", types.INT4, [8], bytes(range(4)), raw=True)
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", types.INT4, [8])], [weight])
    onnx.save(helper.make_model(graph), tmp_path / "half.onnx")
    file = mk.open_file(tmp_path / "half.onnx")
    assert file.tensors().iloc[0].to_dict() == {"name": "w", "shape": (8,), "dtype": "int4", "bytes": 4}
    with pytest.raises(ModelFileError):
        file.tensor("w")
    assert file.stored_values("w").tolist() == [0, 1, 2, 3]
    assert mk.diff(file, file, weights=True).identical


def test_an_empty_tensor_of_sizes_beyond_numbers_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "empty.safetensors", {"x": ("F32", [0, 2**59, 2**59])})
    with pytest.raises(ModelFileError, match="shape"):
        mk.open_file(path)


def test_views_are_mapped_by_their_strides(tmp_path: Path) -> None:
    base = torch.rand(6, 8)
    views = {"t": base.t(), "slice": base[1:4, 2::2], "expanded": base[:1].expand(5, 8), "whole": base}
    torch.save(views, tmp_path / "views.pth")
    file = mk.open_file(tmp_path / "views.pth")
    assert all(torch.equal(file.tensor(name), view) for name, view in views.items())
    net = nn.ParameterDict({name: nn.Parameter(view.contiguous()) for name, view in views.items()})
    assert mk.diff(file, net, weights=True).identical
    with torch.no_grad():
        net["t"][7, 5] += 1
    assert mk.diff(file, net, weights=True).counts == {"changed": 1}


def test_views_that_repeat_themselves_without_end_are_compared_at_once(tmp_path: Path) -> None:
    base = torch.arange(65_536.0)
    torch.save({"rows": base.expand(65_536, 65_536), "one": base[:1].expand(1 << 40)}, tmp_path / "wide.pth")
    torch.save({"rows": base[:, None].expand(65_536, 65_536), "one": base[1:2].expand(1 << 40)}, tmp_path / "tall.pth")
    wide, tall = mk.open_file(tmp_path / "wide.pth"), mk.open_file(tmp_path / "tall.pth")
    assert mk.diff(wide, wide, weights=True).identical
    assert mk.diff(wide, tall, weights=True).counts == {"changed": 1, "unread": 1}


def test_names_of_any_characters_stand_in_the_table(tmp_path: Path) -> None:
    names = ["\ud800", "a\nb", "\0", "<img src=x>", "", "..", "a..b", "__proto__", "☃" * 3]
    torch.save({name: torch.zeros(2) for name in names}, tmp_path / "names.pth")
    file = mk.open_file(tmp_path / "names.pth")
    assert len(file.tensors()) == len(names)
    repr(file.tensors())
    assert len(str(file.hierarchy().fold()).splitlines()) > 3
    mk.ModelGraph(file)
