"""Zip archives that may be forged: directory checks, bounded reads of members, and offsets of raw bytes."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from itertools import pairwise

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.files.source import FileSource

MAX_DIRECTORY_BYTES = 20 << 20  # bytes; that of 100,000 tensors has 12 MB
MAX_MEMBERS = 125_000
MAX_EXTRA_BYTES = 1 << 10  # bytes that an entry of the directory has beside its name; torch writes up to 32
MAX_TOTAL_EXTRA_BYTES = 4 << 20  # of all entries: `zipfile` looks at every record of them
MAX_MEMBER_BYTES = 64 << 20  # bytes, of those that are read; weights are not
_ENTRY, _MEMBER, _END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"
_MIN_END_BYTES = 22  # bytes of the end of an archive
_MAX_END_BYTES = _MIN_END_BYTES + (1 << 16)  # with its comment
_LOCAL_HEADER = struct.Struct(
    "<4s2xHH14x2xHH"
)  # the header before a member: flags, method, lengths of its name and its extra
_DIRECTORY_ENTRY = struct.Struct(
    "<4s24x3H12x"
)  # an entry of the directory: lengths of its name, its extra and its comment
_ENCRYPTED_FLAGS = 0x1 | 0x40 | 0x2000  # flags of encrypted members and encrypted directories


class ZipArchive:
    """The members of a zip archive, by their names without the folder that all of them lie in.

    `prefix` is that folder, as "resnet18/", or "" where there is none. Raises `ModelFileError` for what is no archive,
    for one whose members overlap, are encrypted or have the same name, and for one that is larger than any model's.
    """

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._label = printable(source.name)
        entries, end = self._entries()
        self._members = self._by_name(entries)
        self._ends = self._checked_extents(entries, end)
        self.prefix = _common_folder(self._members)
        self.names = tuple(name[len(self.prefix) :] for name in self._members)  # in the order of the archive

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.prefix + name in self._members

    def size(self, name: str) -> int:
        """Returns the uncompressed bytes of a member, as declared in the directory."""
        return self._member(name).file_size

    def read(self, name: str, max_bytes: int = MAX_MEMBER_BYTES) -> bytes:
        """Returns the content of a member of at most `max_bytes` bytes."""
        member = self._member(name)
        if max(member.file_size, member.compress_size) > max_bytes:
            raise self._error(
                f"{printable(name)} has {max(member.file_size, member.compress_size):,} bytes there, and "
                f"{max_bytes:,} are "
                "the most that are read: larger files are not opened"
            )
        # not by zipfile: torch may write no checksums (torch.serialization.set_crc32_options)
        raw = self._source.read(self._start(name, member), member.compress_size)
        content = raw if member.compress_type == zipfile.ZIP_STORED else self._inflated(raw, name, member)
        if len(content) != member.file_size:
            raise self._error(
                f"{printable(name)} should have {member.file_size:,} bytes: it is cut off or forged, download or "
                "copy it "
                "again"
            )
        return content

    def data_offset(self, name: str) -> int | None:
        """Returns the offset in the file of an uncompressed member; None if it is compressed."""
        member = self._member(name)
        stored = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        return self._start(name, member) if stored else None

    def _entries(self) -> tuple[list[zipfile.ZipInfo], int]:
        try:
            with zipfile.ZipFile(_BoundedReader(self._source)) as archive:  # type: ignore[arg-type]
                return archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OSError, EOFError) as error:
            if isinstance(error, ModelFileError):
                raise
            reason = printable(str(error)) or type(error).__name__
            if self._is_without_end():
                raise self._error(
                    "it is cut off: an archive ends with a list of what is in it, and this one has none: download or "
                    "copy it again"
                ) from error
            raise self._error(
                f"it is not a zip archive that can be read ({reason}): it is cut off or forged, download or copy "
                "it again"
            ) from error

    def _is_without_end(self) -> bool:
        """True for an archive that is truncated: it has a first member and no end record."""
        begins = self._source.size >= len(_MEMBER) and self._source.read(0, len(_MEMBER)) == _MEMBER
        last = self._source.read(max(self._source.size - _MAX_END_BYTES, 0))
        return begins and not 0 <= last.rfind(_END) <= len(last) - _MIN_END_BYTES

    def _by_name(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.flag_bits & _ENCRYPTED_FLAGS:
                raise self._error(f"{printable(entry.filename)} is encrypted: no model's is, so decrypt it first")
            if entry.filename in members:
                raise self._error(
                    f"{printable(entry.filename)} stands twice in it: readers would disagree on which counts"
                )
            members[entry.filename] = entry
        return {name: entry for name, entry in members.items() if not name.endswith("/")}

    def _checked_extents(self, entries: list[zipfile.ZipInfo], end: int) -> dict[str, int]:
        """Returns the limit of the bytes of each member by name; raises for members that overlap."""
        ordered = sorted(entries, key=lambda entry: entry.header_offset)
        starts = [entry.header_offset for entry in ordered] + [end]
        self.begin = starts[0]  # of the first member in the file
        for entry, (start, following) in zip(ordered, pairwise(starts), strict=True):
            if start < 0 or start + _LOCAL_HEADER.size + len(_name_bytes(entry)) + entry.compress_size > following:
                raise self._error(f"{printable(entry.filename)} overlaps what comes after it: it is forged")
        return {entry.filename: following for entry, following in zip(ordered, starts[1:], strict=True)}

    def _member(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._members[self.prefix + name]
        except KeyError:
            raise self._error(f"it has no {printable(name)}: it is cut off, or of another kind") from None

    def _start(self, name: str, member: zipfile.ZipInfo) -> int:
        """Returns the offset of the bytes of a member, from its local header, which must match the directory."""
        header = self._source.read(member.header_offset, _LOCAL_HEADER.size)
        signature, flags, method, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start = member.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if (
            signature != b"PK\x03\x04"
            or flags & _ENCRYPTED_FLAGS
            or method != member.compress_type
            or start + member.compress_size > self._ends[member.filename]
        ):
            raise self._error(f"the header of {printable(name)} says other things than the directory: it is forged")
        if self._source.read(member.header_offset + _LOCAL_HEADER.size, name_length) != _name_bytes(member):
            raise self._error(f"{printable(name)} has another name before its bytes: it is forged")
        return start

    def _inflated(self, raw: bytes, name: str, member: zipfile.ZipInfo) -> bytes:
        if member.compress_type != zipfile.ZIP_DEFLATED:
            raise self._error(f"{printable(name)} is compressed by method {member.compress_type}, and models' are not")
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, member.file_size + 1)
        except zlib.error as error:
            raise self._error(
                f"{printable(name)} cannot be inflated: it is cut off or forged, download or copy it again"
            ) from error

    def _error(self, found: str) -> ModelFileError:
        return ModelFileError(f"{self._label}: {found}")


class _BoundedReader(io.RawIOBase):
    """Source as `zipfile` reads it: reads beyond the size of any directory of a model are refused."""

    def __init__(self, source: FileSource) -> None:
        super().__init__()
        self._source = source
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if target < 0:
            raise OSError("before the beginning")
        self._at = target
        return target

    def read(self, size: int = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        wanted = left if size < 0 else min(size, left)
        if wanted > MAX_DIRECTORY_BYTES:
            raise self._too_large(f"{wanted:,} bytes, and {MAX_DIRECTORY_BYTES:,} are the most")
        content = self._source.read(self._at, wanted) if wanted else b""
        if content.count(_ENTRY) > MAX_MEMBERS:
            raise self._too_large(f"{content.count(_ENTRY):,} members, and {MAX_MEMBERS:,} are the most")
        self._check_extras(content)
        self._at += wanted
        return content

    def _check_extras(self, content: bytes) -> None:
        """Raise `ModelFileError` for extra fields that `zipfile` would parse in quadratic time."""
        at = together = 0
        while len(content) - at >= _DIRECTORY_ENTRY.size:
            signature, name, extra, comment = _DIRECTORY_ENTRY.unpack_from(content, at)
            if signature != _ENTRY:
                return
            at += _DIRECTORY_ENTRY.size + name + extra + comment
            together += extra
            if extra > MAX_EXTRA_BYTES or together > MAX_TOTAL_EXTRA_BYTES:
                raise self._too_large(
                    f"more than {MAX_EXTRA_BYTES:,} bytes besides the name of a member, or {MAX_TOTAL_EXTRA_BYTES:,} "
                    "of all"
                )

    def _too_large(self, found: str) -> ModelFileError:
        return ModelFileError(
            f"{printable(self._source.name)}: the archive's directory has {found}: larger files are not opened"
        )


def _name_bytes(member: zipfile.ZipInfo) -> bytes:
    return member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")


def _common_folder(names: dict[str, zipfile.ZipInfo]) -> str:
    """Returns the first folder that all names share, with its slash; "" if there is none."""
    folders = {name.partition("/")[0] if "/" in name else "" for name in names}
    return f"{folders.pop()}/" if len(folders) == 1 and "" not in folders else ""
