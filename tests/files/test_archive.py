"""Zip archives: what is in a good one, and what is refused of one that was tampered with."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.source import open_source
from modulekg_widgets.engine.files.zip_archive import MAX_DIRECTORY_BYTES, MAX_MEMBERS, ZipArchive

DIRECTORY_ENTRY, LOCAL_HEADER = b"PK\x01\x02", b"PK\x03\x04"


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytearray:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return bytearray(written.getvalue())


def refused(
    tmp_path: Path, content: bytes | bytearray, look: Callable[[ZipArchive], object] = lambda archive: None
) -> str:
    """Why an archive is refused, when it is opened or looked at."""
    path = tmp_path / "forged.pt"
    path.write_bytes(content)
    with open_source(path) as source, pytest.raises(ModelFileError) as error:
        look(ZipArchive(source))
    assert "forged.pt" in str(error.value)
    return str(error.value)


def read_all(path: Path) -> dict[str, bytes]:
    with open_source(path) as source:
        archive = ZipArchive(source)
        return {name: archive.read(name) for name in archive}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_as_they_were_written(tmp_path: Path, method: int) -> None:
    members = {"net/data.pkl": b"\x80\x02.", "net/data/0": bytes(range(256)) * 9, "net/leer": b"", "net/ü/x": b"1"}
    path = tmp_path / "net.pt"
    path.write_bytes(zipped(members, method))
    with open_source(path) as source:
        archive = ZipArchive(source)
        assert archive.prefix == "net/"
        assert archive.names == ("data.pkl", "data/0", "leer", "ü/x")
        assert "data/0" in archive
        assert "net/data/0" not in archive
        assert archive.size("data/0") == 2304
        for name, content in members.items():
            assert archive.read(name.removeprefix("net/")) == content
        start = archive.data_offset("data/0")
        if method == zipfile.ZIP_STORED:
            assert start is not None
            assert source.read(start, 2304) == members["net/data/0"]
        else:
            assert start is None


@pytest.mark.parametrize(
    ("names", "prefix"),
    [(["a/x", "a/b/y"], "a/"), (["a/x", "b/y"], ""), (["x", "a/y"], ""), (["x"], ""), (["/x", "/y"], "")],
)
def test_prefix_is_the_folder_of_all(tmp_path: Path, names: list[str], prefix: str) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(zipped(dict.fromkeys(names, b"1")))
    with open_source(path) as source:
        archive = ZipArchive(source)
        assert archive.prefix == prefix
        assert archive.names == tuple(name.removeprefix(prefix) for name in names)


def test_weights_of_torch_are_found_in_place(tmp_path: Path) -> None:
    state = {"a": torch.rand(7, 3), "b": torch.arange(5)}
    path = tmp_path / "state.pth"
    torch.save(state, path)
    with open_source(path) as source:
        archive = ZipArchive(source)
        start = archive.data_offset("data/0")
        assert start is not None
        assert source.read(start, archive.size("data/0")) == state["a"].numpy().tobytes()


def test_archives_of_torch_without_checksums_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state.pth"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.rand(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_all(path)["data.pkl"].startswith(b"\x80\x02")


def test_what_stands_before_an_archive_moves_its_members(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"#!/bin/sh\n" + zipped({"n/x": b"12345678"}))
    with open_source(path) as source:
        archive = ZipArchive(source)
        start = archive.data_offset("x")
        assert start is not None
        assert source.read(start, 8) == b"12345678" == archive.read("x")


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06", bytes(range(256)) * 300])
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    assert "not a zip archive" in refused(tmp_path, content)


def test_an_empty_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(zipped({}))
    assert read_all(path) == {}


def test_missing_members_are_named(tmp_path: Path) -> None:
    content = bytes(zipped({"a/x": b"1"}))
    for look in (lambda a: a.read("y"), lambda a: a.size("y"), lambda a: a.data_offset("y")):
        assert "it has no y" in refused(tmp_path, content, look)


def test_two_members_of_one_name(tmp_path: Path) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x", b"2")
    assert "x stands twice" in refused(tmp_path, written.getvalue())


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2000])
def test_encrypted_members(tmp_path: Path, flag: int) -> None:
    content = zipped({"x": b"1"})
    at = content.index(DIRECTORY_ENTRY) + 8
    struct.pack_into("<H", content, at, struct.unpack_from("<H", content, at)[0] | flag)
    assert "encrypted" in refused(tmp_path, content)
    content = zipped({"x": b"1"})
    struct.pack_into("<H", content, 6, flag)  # in the header before the member alone
    assert "other things" in refused(tmp_path, content, lambda archive: archive.read("x"))


def test_overlapping_members(tmp_path: Path) -> None:
    content = zipped({"x": b"1" * 50, "y": b"2" * 50})
    entries = [content.index(DIRECTORY_ENTRY), content.rindex(DIRECTORY_ENTRY)]
    struct.pack_into("<I", content, entries[1] + 42, struct.unpack_from("<I", content, entries[0] + 42)[0])
    assert "overlaps" in refused(tmp_path, content)
    content = zipped({"x": b"1" * 50, "y": b"2" * 50})
    struct.pack_into("<II", content, content.index(DIRECTORY_ENTRY) + 20, 120, 120)  # reaches into the next
    assert "overlaps" in refused(tmp_path, content)


def test_a_member_that_reaches_into_the_directory(tmp_path: Path) -> None:
    content = zipped({"x": b"1" * 50})
    struct.pack_into("<II", content, content.index(DIRECTORY_ENTRY) + 20, 51, 51)
    assert "overlaps" in refused(tmp_path, content)


def test_a_longer_header_cannot_push_a_member_into_the_next(tmp_path: Path) -> None:
    content = zipped({"x": b"1" * 50, "y": b"2" * 50})
    struct.pack_into("<H", content, 28, 40)  # the extra of the header before the member
    assert "other things" in refused(tmp_path, content, lambda archive: archive.data_offset("x"))


def test_another_name_before_the_bytes(tmp_path: Path) -> None:
    content = zipped({"x": b"1" * 50})
    content[30:31] = b"z"
    assert "another name" in refused(tmp_path, content, lambda archive: archive.read("x"))


def test_bombs_are_not_inflated(tmp_path: Path) -> None:
    bomb = zipped({"x": bytes(40 << 20)}, zipfile.ZIP_DEFLATED)
    assert "the most that are read" in refused(tmp_path, bomb, lambda archive: archive.read("x", 1 << 20))
    lying = zipped({"x": bytes(40 << 20)}, zipfile.ZIP_DEFLATED)
    struct.pack_into("<I", lying, lying.index(DIRECTORY_ENTRY) + 24, 1000)  # says that it is small
    assert "should have 1,000 bytes" in refused(tmp_path, lying, lambda archive: archive.read("x"))


def test_methods_of_compression_that_torch_has_not(tmp_path: Path) -> None:
    content = zipped({"x": b"1" * 500}, zipfile.ZIP_BZIP2)
    assert "method 12" in refused(tmp_path, content, lambda archive: archive.read("x"))


def test_directories_larger_than_any_models(tmp_path: Path) -> None:
    start = time.process_time()
    many = DIRECTORY_ENTRY + bytes(42)
    directory = many * (MAX_MEMBERS + 1)
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0, 0, len(directory), 0, 0)
    assert "members" in refused(tmp_path, directory + end)
    directory = many * (MAX_DIRECTORY_BYTES // len(many) + 1)
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0, 0, len(directory), 0, 0)
    assert "bytes" in refused(tmp_path, directory + end)
    assert time.process_time() - start < 2


def with_extra(names: int, extra: bytes) -> bytes:
    """Empty members, of which the directory has more than the name."""
    members, entries = bytearray(), bytearray()
    for name in (b"a/%d" % at for at in range(names)):
        entries += struct.pack("<4s6H3I5H2I", DIRECTORY_ENTRY, 20, 20, *[0] * 7, len(name), len(extra), *[0] * 4,
                               len(members)) + name + extra  # fmt: skip
        members += struct.pack("<4s5H3I2H", LOCAL_HEADER, 20, *[0] * 7, len(name), 0) + name
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, names, names, len(entries), len(members), 0)
    return bytes(members + entries + end)


def test_what_entries_have_beside_names_cannot_take_for_ever(tmp_path: Path) -> None:
    record = struct.pack("<HH", 0x9999, 0)
    path = tmp_path / "good.pt"
    path.write_bytes(with_extra(3, record * 256))
    assert read_all(path) == {"0": b"", "1": b"", "2": b""}
    started = time.process_time()
    assert "besides the name of a member" in refused(tmp_path, with_extra(3, record * 257))
    assert "4,194,304 of all" in refused(tmp_path, with_extra(4097, record * 256))
    assert time.process_time() - started < 2


def test_what_is_cut_off_or_changed_is_refused_or_read(tmp_path: Path) -> None:
    good = bytes(zipped({"n/data.pkl": b"\x80\x02." * 9, "n/data/0": bytes(90)}, zipfile.ZIP_DEFLATED))
    draws = random.Random(0)
    changed = [good[: len(good) * part // 50] for part in range(50)]
    for _ in range(300):
        content = bytearray(good)
        for _ in range(draws.randrange(1, 5)):
            content[draws.randrange(len(content))] = draws.choice([0, 1, 0x7F, 0xFF, draws.randrange(256)])
        changed.append(bytes(content))
    path, outcomes = tmp_path / "forged.pt", set()
    for content in changed:
        path.write_bytes(content)
        try:
            read_all(path)
            outcomes.add("read")
        except ModelFileError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
