"""GGUF: what the reader tells is what llama.cpp's own package wrote and reads, whatever the types and the order."""

from __future__ import annotations

import math
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.file_formats.format_tables import GGML_TYPES
from modulekg_widgets.engine.files.formats import gguf as reader
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source

U8, U32, F32, BOOL, TEXT, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10


def contents(path: Path) -> FileContents:
    with open_source(path) as source:
        return read_contents(source)


def read_bytes(folder: Path, content: bytes) -> FileContents:
    path = folder / "x.gguf"
    path.write_bytes(content)
    return contents(path)


def text(value: str | bytes, width: str = "<Q") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(width, len(raw)) + raw


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, start: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, start)


def gguf_of(keys: list[bytes], tensors: list[bytes], data: int = 64, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_what_the_package_writes(tmp_path: Path, order: str) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=getattr(gguf.GGUFEndian, order))
    writer.add_name("Tiny")
    writer.add_custom_alignment(64)
    writer.add_context_length(2048)
    writer.add_layer_norm_rms_eps(0.5)
    writer.add_bool("flag", True)
    writer.add_array("tokenizer.ggml.tokens", [f"word{number}" for number in range(1200)])
    writer.add_array("tokenizer.ggml.scores", [0.5] * 1200)
    writer.add_array("few", [1, 2, 3])
    generator = np.random.default_rng(0)
    dense = {
        np.float32: (2, 3), np.float16: (5,), np.float64: (2, 2, 2), np.int8: (7, 1), np.int16: (3,),
        np.int32: (4,), np.int64: (2, 1, 1, 3),
    }  # fmt: skip
    arrays = {f"blk.0.{kind.__name__}": generator.integers(0, 9, shape).astype(kind) for kind, shape in dense.items()}
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    kinds = gguf.GGMLQuantizationType
    packed = {
        kinds.Q4_0: (2, 64),
        kinds.Q4_K: (3, 512),
        kinds.Q6_K: (1, 256),
        kinds.IQ2_XXS: (2, 256),
        kinds.BF16: (3, 5),
    }
    for kind, shape in packed.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        rows = generator.integers(0, 255, (*shape[:-1], shape[-1] // block * size)).astype(np.uint8)
        writer.add_tensor(f"blk.1.{kind.name}", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    found = contents(path)
    records = {record.name: record for record in found.tensors}
    assert found.title == "Tiny"
    assert found.format == "gguf"
    assert found.metadata["llama.context_length"] == 2048
    assert found.metadata["llama.attention.layer_norm_rms_epsilon"] == 0.5
    assert found.metadata["flag"] is True
    assert found.metadata["tokenizer.ggml.tokens"] == "1,200 strings"
    assert found.metadata["tokenizer.ggml.scores"] == "1,200 × float32"
    assert found.metadata["few"] == "[1, 2, 3]"
    file, big = path.read_bytes(), order == "BIG"
    for name, array in arrays.items():
        record = records[name]
        assert (record.shape, record.dtype, record.nbytes) == (array.shape, str(array.dtype), array.nbytes)
        assert record.offset is not None
        assert file[record.offset : record.offset + record.nbytes] == (array.byteswap() if big else array).tobytes()
    for kind, shape in packed.items():
        assert records[f"blk.1.{kind.name}"].shape == shape
        assert records[f"blk.1.{kind.name}"].dtype == {"BF16": "bfloat16"}.get(kind.name, kind.name)
    theirs = {own.name: (own.data_offset, own.n_bytes) for own in gguf.GGUFReader(path).tensors}
    assert {name: (record.offset, record.nbytes) for name, record in records.items()} == theirs
    elements = sum(math.prod(record.shape) for record in found.tensors)
    bits = found.metadata["bits per weight"]
    assert bits == pytest.approx(8 * sum(record.nbytes for record in found.tensors) / elements, abs=1e-3)


def test_the_sizes_of_every_type_are_those_of_the_package() -> None:
    gguf = pytest.importorskip("gguf")
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        assert GGML_TYPES[kind][1:] == (block, size), kind
        assert GGML_TYPES[kind].name in (
            kind.name,
            f"bfloat{kind.name[2:]}",
            f"float{kind.name[1:]}",
            f"int{kind.name[1:]}",
        )


def test_version_1_counts_in_32_bits(tmp_path: Path) -> None:
    width = "<I"
    head = b"GGUF" + struct.pack("<III", 1, 1, 1)
    head += text("general.name", width) + struct.pack("<I", TEXT) + text("old", width)
    head += text("w", width) + struct.pack("<IIIIQ", 2, 3, 2, 0, 0)
    found = read_bytes(tmp_path, head + bytes(-len(head) % 32) + bytes(24))
    assert found.title == "old"
    assert [(record.shape, record.nbytes) for record in found.tensors] == [((2, 3), 24)]


def test_a_type_that_is_not_known_takes_all_up_to_the_next(tmp_path: Path) -> None:
    found = read_bytes(tmp_path, gguf_of([], [tensor("a", (3, 4), 99), tensor("b", (4,), 0, 32)], 48))
    assert [(record.dtype, record.nbytes) for record in found.tensors] == [("ggml type 99", 32), ("float32", 16)]
    assert "99" in found.warnings[0]


def test_arrays_of_arrays_and_long_texts_are_told_in_short(tmp_path: Path) -> None:
    numbers = struct.pack("<IQ", U32, 2) + struct.pack("<II", 1, 2)
    keys = [
        key("nested", ARRAY, struct.pack("<IQ", ARRAY, 2) + numbers * 2),
        key("many", ARRAY, struct.pack("<IQ", ARRAY, 20) + numbers * 20),
        key("long", TEXT, text("x" * 200_000)),
        key("broken", TEXT, text(b"\xff\xfe")),
    ]
    found = read_bytes(tmp_path, gguf_of(keys, []))
    assert found.metadata["nested"] == "[[1, 2], [1, 2]]"
    assert found.metadata["many"] == "20 arrays"
    assert len(str(found.metadata["long"])) == reader.MAX_TEXT_BYTES + 1
    assert found.metadata["broken"] == "��"
    assert "bits per weight" not in found.metadata


def test_a_part_of_a_model_says_so(tmp_path: Path) -> None:
    def told(*keys: bytes) -> tuple[str, ...]:
        return read_bytes(tmp_path, gguf_of(list(keys), [tensor("a", (4,))], 16)).warnings

    second = key("split.no", U32, struct.pack("<I", 1))
    assert told(second, key("split.count", U32, struct.pack("<I", 3))) == (
        "this is part 2 of 3: tensors of the other parts are not shown",
    )
    assert told(second, key("split.count", U32, struct.pack("<I", 1))) == ()
    assert told(second) == told(second, key("split.count", TEXT, text("3"))) == ()


HOSTILE = {
    "another version": (gguf_of([], [], version=4), "version 4"),
    "tensors beyond any": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims"),
    "keys beyond any": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "claims"),
    "a name beyond any": (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "name of"),
    "a name twice": (gguf_of([], [tensor("a", (2,)), tensor("a", (2,), 0, 32)]), "twice"),
    "a key twice": (gguf_of([key("k", U8, b"\1")] * 2, []), "twice"),
    "one over the other": (gguf_of([], [tensor("a", (9,)), tensor("b", (2,), 0, 32)]), "takes 36 bytes"),
    "the same bytes": (gguf_of([], [tensor("a", (2,)), tensor("b", (2,))]), "takes 8 bytes"),
    "beyond the end": (gguf_of([], [tensor("a", (2,), 0, 64)]), "takes 8 bytes"),
    "far beyond the end": (gguf_of([], [tensor("a", (2,), 0, (1 << 64) - 1)]), "takes 8 bytes"),
    "too many elements": (gguf_of([], [tensor("a", ((1 << 63),) * 4)]), "more elements"),
    "a row in no blocks": (gguf_of([], [tensor("a", (100, 256), 12)]), "blocks of 256"),
    "dimensions beyond any": (gguf_of([], [text("a") + struct.pack("<I", 1 << 31)]), "dimensions of a"),
    "an unknown value": (gguf_of([key("k", 77, b"")], []), "type 77"),
    "an array that is longer than the file": (
        gguf_of([key("k", ARRAY, struct.pack("<IQ", U64, 1 << 61))], []),
        "ends within",
    ),
    "texts beyond any": (gguf_of([key("k", ARRAY, struct.pack("<IQ", TEXT, 1 << 61))], []), "more than"),
    "arrays without end": (gguf_of([key("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 40)], []), "type 9"),
    "alignment 0": (
        gguf_of([key("general.alignment", U32, struct.pack("<I", 0))], [tensor("a", (2,))]),
        "power of two",
    ),
    "alignment that is a text": (
        gguf_of([key("general.alignment", TEXT, text("32"))], [tensor("a", (2,))]),
        "power of two",
    ),
    "a name that is not text": (gguf_of([], [text(b"\xff") + struct.pack("<I", 0)]), "malformed"),
    "nothing more": (b"GGUF", "cut off"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_have_named_errors(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    with pytest.raises(ModelFileError, match=message):
        read_bytes(tmp_path, content)


def test_many_arrays_cannot_take_for_ever(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", ARRAY, 0) * 300_000
    keys = [key(name, ARRAY, struct.pack("<IQ", ARRAY, 300_000) + inner) for name in "ab"]
    with pytest.raises(ModelFileError, match="elements in its metadata"):
        read_bytes(tmp_path, gguf_of(keys, []))


def test_short_arrays_within_arrays_cannot_take_for_ever(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 0, 8) + bytes(8)
    middle = struct.pack("<IQ", ARRAY, 8) + inner * 8
    seconds = []
    for count in (30_000, 120_000):
        content = gguf_of([key("k", ARRAY, struct.pack("<IQ", ARRAY, count) + middle * count)], [])
        started = time.process_time()
        with pytest.raises(ModelFileError, match="elements in its metadata"):
            read_bytes(tmp_path, content)
        seconds.append(time.process_time() - started)
    assert seconds[1] < 3 * seconds[0]  # where all were read, four times as many would take four times as long


def test_more_tensors_than_are_read_in_time(tmp_path: Path) -> None:
    many = [tensor(f"{at:x}.w", (0,)) for at in range(reader.MAX_TENSORS)]
    seconds = []
    for count in (reader.MAX_TENSORS // 4, reader.MAX_TENSORS):
        content = gguf_of([], many[:count])
        started = time.process_time()
        assert len(read_bytes(tmp_path, content).tensors) == count
        seconds.append(time.process_time() - started)
    assert seconds[1] < 8 * seconds[0]  # each by comparing it with all before would take 16 times as long
    with pytest.raises(ModelFileError, match="50,001 tensors"):
        read_bytes(tmp_path, gguf_of([], [*many, tensor("x", (0,))]))


def test_any_change_gives_records_within_the_file_or_a_named_error(tmp_path: Path) -> None:
    tensors = [
        tensor("token_embd.weight", (8, 6), 0, 0),
        tensor("blk.0.attn_q.weight", (256, 2), 12, 192),
        tensor("output.weight", (4, 3), 1, 480),
    ]
    keys = [
        key("general.architecture", TEXT, text("llama")),
        key("n", F32, struct.pack("<f", 1)),
        key("b", BOOL, b"\1"),
    ]
    whole = gguf_of(keys, tensors, 1024)
    assert len(read_bytes(tmp_path, whole).tensors) == 3
    chooser = random.Random(0)
    failed = 0
    for _ in range(400):
        content = bytearray(whole[: chooser.randrange(4, len(whole))] if chooser.random() < 0.2 else whole)
        for _ in range(chooser.randrange(1, 5)):
            content[chooser.randrange(4, min(len(content), 330)) if len(content) > 4 else 0] = chooser.randrange(256)
        try:
            found = read_bytes(tmp_path, bytes(content))
        except ModelFileError:
            failed += 1
            continue
        for record in found.tensors:
            assert record.offset is not None
            assert 0 <= record.offset <= record.offset + record.nbytes <= len(content)
    assert 100 < failed < 400


def test_numbers_are_those_of_the_other_order(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    draws = np.random.default_rng(0)
    kinds = (np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64)
    arrays = {kind.__name__: draws.integers(-90, 90, (3, 4)).astype(kind) for kind in kinds}
    for order in ("LITTLE", "BIG"):
        writer = package.GGUFWriter(tmp_path / f"{order}.gguf", "llama", endianess=package.GGUFEndian[order])
        for name, array in arrays.items():
            writer.add_tensor(name, array)
        blocks = draws.integers(0, 255, (2, 36)).astype(np.uint8)
        writer.add_tensor("packed", blocks, raw_dtype=package.GGMLQuantizationType.Q4_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    little, big = (mk.open_file(tmp_path / f"{order}.gguf") for order in ("LITTLE", "BIG"))
    assert all(torch.equal(big.tensor(name), torch.from_numpy(array)) for name, array in arrays.items())
    assert mk.diff(big, little, weights=True).counts == {"unread": 1}  # blocks hold numbers in their order
    assert mk.diff(big, mk.open_file(tmp_path / "BIG.gguf"), weights=True).identical
    with pytest.raises(mk.ModelFileError, match="big-endian"):
        big.tensor("packed")


@pytest.mark.parametrize(
    ("kind", "size", "nbytes", "dtype", "warns"),
    [
        (36, 64, 16 + 32, "ggml type 36", True),  # I2_S: two bits each, and a scale
        (36, 64, 36, "ggml type 36", True),  # IQ4_NL_4_4
        (37, 32, 32, "ggml type 37", True),
        (39, 64, 34, "MXFP4", False),
        (39, 64, 80, "ggml type 39", True),  # more than the blocks of MXFP4 take, beyond what aligns
        (39, 48, 64, "ggml type 39", True),  # which cannot be cut into its blocks
        (40, 64, 20, "ggml type 40", True),
        (41, 128, 18, "Q1_0", False),
    ],
)
def test_numbers_of_types_that_readers_use_differently(
    tmp_path: Path, kind: int, size: int, nbytes: int, dtype: str, warns: bool
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_of([], [tensor("w", (size,), kind)], data=nbytes))
    file = mk.open_file(path)
    assert file.record("w").dtype == dtype
    assert bool(file.warnings) == warns
    if warns:
        assert f"the type {kind}, which readers use differently" in file.warnings[0]
        assert file.record("w").nbytes == nbytes
