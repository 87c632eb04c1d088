"""Forged files of torch: nothing in them runs, nothing else is opened, and they take neither long nor much memory."""

from __future__ import annotations

import json
import pickle
import random
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.formats.pickle import torch_checkpoint  # noqa: F401
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
LEGACY = {"_use_new_zipfile_serialization": False}


def contents(path: Path) -> FileContents:
    with open_source(path) as source:
        return read_contents(source)


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def storage(key: str = "0", kind: str = "FloatStorage", count: bytes = b"K\x04") -> bytes:
    return b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + count + b"tQ"


def tensor(
    size: bytes = b"K\x02\x85", strides: bytes = b"K\x01\x85", start: bytes = b"K\x00", stored: bytes = storage()
) -> bytes:
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + start + size + strides + b"\x89}tR"


def archive(path: Path, content: bytes, **others: bytes) -> Path:
    """A file as torch.save writes it, with a pickle of our own and a storage of 16 bytes."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", content)
        file.writestr("x/data/0", b"\0\0\x80\x3f" * 4)
        for name, other in others.items():
            file.writestr(f"x/{name}", other)
    return path


def runs(command: str) -> dict[str, bytes]:
    """Pickles that call something, by every opcode that imports or calls."""
    argument = text(command)
    line = b"V" + command.encode() + b"\n"
    return {
        "reduce": b"\x80\x02cposix\nsystem\n" + argument + b"\x85R.",
        "os": b"\x80\x02cos\nsystem\n" + argument + b"\x85R.",
        "stack global": b"\x80\x04" + text("posix") + text("system") + b"\x93" + argument + b"\x85R.",
        "inst": b"(" + line + b"iposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + line + b"o.",
        "newobj": b"\x80\x02cposix\nsystem\n" + argument + b"\x85\x81.",
        "newobj_ex": b"\x80\x04cposix\nsystem\n" + argument + b"\x85}\x92.",
        "build": b"\x80\x02cposix\nsystem\n)R" + argument + b"b.",
        "eval": b"\x80\x02cbuiltins\neval\n" + text(f"__import__('os').system({command!r})") + b"\x85R.",
        "python 2": b"\x80\x02c__builtin__\nexec\n" + text("import this") + b"\x85R.",
        "getattr": b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\n" + argument + b"\x86R.",
        "dotted": b"\x80\x04" + text("os") + text("path.os.system") + b"\x93" + argument + b"\x85R.",
        "extension": b"\x80\x02\x82\x01" + argument + b"\x85R.",
        "in a tensor": b"\x80\x02}"
        + text("w")
        + tensor()
        + b"s"
        + text("y")
        + b"cos\nsystem\n"
        + argument
        + b"\x85Rs.",
    }


@pytest.mark.parametrize("container", ["zip", "bare", "legacy"])
@pytest.mark.parametrize("how", runs(""))
def test_what_would_run_is_named_and_does_not_run(tmp_path: Path, how: str, container: str) -> None:
    marker = tmp_path / "ran"
    content = runs(f"touch {marker}")[how]
    path = tmp_path / ("x.pth" if container == "zip" else "x.pkl")
    if container == "zip":
        archive(path, content)
    elif container == "bare":
        path.write_bytes(content)
    else:
        start = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        path.write_bytes(start + content + pickle.dumps(["0"] if how == "in a tensor" else [], 2) + b"\4" + bytes(23))
    if how == "in a tensor" and container == "bare":
        with pytest.raises(ModelFileError, match="outside of the pickle"):
            contents(path)
        return
    found = contents(path)
    dangerous = {name for name in found.classes if not name.startswith(("torch", "collections"))}
    assert dangerous
    assert any(name in found.warnings[0].split(": ", 1)[1][:40] for name in dangerous)
    assert "do not load it" in found.warnings[0]
    assert not marker.exists()


def test_the_dangerous_is_named_first(tmp_path: Path) -> None:
    classes = b"".join(f"caaa{number}\nClass\n0".encode() for number in range(30))
    found = contents(archive(tmp_path / "x.pt", b"\x80\x02" + classes + b"cos\nsystem\n."))
    assert "code: os.system, aaa0.Class" in found.warnings[0]
    assert len(found.warnings[0]) < 1_000
    assert len(found.classes) == 31


AUDIT = """
import json, sys, time
import modulekg_widgets.engine.files.formats.pickle.torch_checkpoint as torch_zip
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files import readers, source
paths, seen, times, peaks = sys.argv[1:], [], {}, {}
def memory(kind):
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(kind)), 0)
def read(path):
    started = time.process_time()
    try:
        with source.open_source(path) as opened:
            readers.read_contents(opened)
    except ModelFileError:
        pass
    times[path] = time.process_time() - started
read(paths[0])
for codec in ("cp437", "raw-unicode-escape", "unicode-escape"):  # Python imports its own when they are first used
    "".encode(codec)
before, watched = set(sys.modules), [False]
sys.addaudithook(lambda event, args: watched[0] and seen.append((event, str(args[0]) if args else "")))
for path in paths:
    with open("/proc/self/clear_refs", "w") as file:  # so that the peak counts from here
        file.write("5")
    resident = memory("VmRSS")
    watched[0] = True
    read(path)
    watched[0] = False
    peaks[path] = memory("VmHWM") - resident
watched[0], done = True, list(seen)
exec("pass")
assert len(seen) > len(done), "the hook sees nothing"
print(json.dumps({"events": done, "modules": sorted(set(sys.modules) - before), "times": times, "peaks": peaks}))
"""


def bombs() -> dict[str, bytes]:
    put, references = b"q\x01", bytes([104, 1]) * 1_000
    shape = b"(" + b"K\x01" * 16 + b"t"
    return {
        "empties": b"\x80\x02" + b"}" * 3_200_000 + b".",
        "entries": b"\x80\x02(" + b"}NNs" * 800_000 + b"t.",
        "deep tuples": b"\x80\x02)" + b"\x85" * 1_000_000 + b".",
        "deep states": b"\x80\x02" + b"cx\ny\n)R" * 100_000 + b"b" * 99_999 + b".",
        "laughs": b"\x80\x02]" + put + (b"](" + references + b"e" + put) * 200 + b".",
        "one list often": b"\x80\x02(" + b"K\x01" * 300_000 + b"l" + put + b"(" + references * 90 + b"t.",
        "wide texts": b"\x80\x02(" + (b"X\0\0\x10\0" + b"x" * ((1 << 20) - 4) + "😀".encode()) * 40 + b"t.",
        "many dimensions": b"\x80\x02" + tensor(shape, shape) + put + b"(" + references * 99 + b"t.",
    }


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What reading good, dangerous and huge files did in a process of its own."""
    folder = tmp_path_factory.mktemp("audited")
    torch.save({"w": torch.ones(2)}, folder / "good.pt")
    torch.save(nn.Linear(2, 2), folder / "module.pt")
    torch.save(nn.Linear(2, 2), folder / "legacy.pt", **LEGACY)
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(folder / "script.pt"))
    for name, content in runs("touch ran").items():
        archive(folder / f"{name}.pt", content)
        (folder / f"{name}.pkl").write_bytes(content)
    (folder / "modules.pkl").write_bytes(b"\x80\x02cthis\ns\ncantigravity\nfly\n\x86.")
    for name, content in bombs().items():
        archive(folder / f"{name}.pt", content)
    paths = [folder / "good.pt", *sorted(folder.glob("*.pt")), *sorted(folder.glob("*.pkl"))]
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *map(str, paths)], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is told by Linux")
@pytest.mark.slow
def test_nothing_is_imported_called_or_opened(audited: dict[str, Any]) -> None:
    assert audited["modules"] == []
    for event, argument in audited["events"]:
        assert event in ("open", "builtins.id"), (event, argument)
        assert event != "open" or argument in audited["times"] or argument.isdigit(), (
            argument
        )  # a number is the same file, opened before
    assert {argument for _, argument in audited["events"]} >= audited["times"].keys()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is told by Linux")
def test_bombs_take_neither_long_nor_much_memory(audited: dict[str, Any]) -> None:
    assert max(audited["peaks"].values()) < 500_000, audited["peaks"]  # KiB
    assert max(audited["peaks"].values()) > 20_000, "the peak is not measured"
    assert max(audited["times"].values()) < 5, audited["times"]  # 2 on a machine that does nothing else


def inline(opcodes: bytes) -> bytes:
    """A storage in the bytes of another pickle, remembered by 5."""
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
    body = magic + b"\x80\x02" + opcodes + b"N.N." + storage() + b"."
    return b"ctorch.storage\n_load_from_bytes\n(B" + struct.pack("<I", len(body)) + body + b"tRq\x050"


def module_of(member: bytes) -> bytes:
    """A module with a hundred thousand settings, all of them what is remembered by 6."""
    names = b"".join(text(f"{at:06x}") + b"h\x06" for at in range(100_000))
    return member + b"q\x060cm\nNet\n)R}(" + text("_parameters") + b"}" + text("_modules") + b"}" + names + b"ub"


def often(member: bytes, times: int = 20_000) -> bytes:
    return b"](" + member + b"q\x06" + b"h\x06" * times + b"e"


MARKS = b"}(" + b"".join(struct.pack("<ci", b"J", at) + b"\x89" for at in range(300_000)) + b"u"
SCALAR = b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n" + text("f8") + b"\x85R" + text("a" * (1 << 20)) + b"tR"
CHARGED = {
    "doubled lists": b"]q\0N0" + b"".join(b"](h%ch%ceq%c" % (at, at, at + 1) for at in range(200)),
    "an inner pickle": inline(b"N0" * 500_000) + often(tensor(stored=b"h\x05"), 100),
    "inner pickles": b"(" + (inline(b"N0" * 20_000) + tensor(stored=b"h\x05")) * 120 + b"t",
    "marks of a tensor": often(tensor()[:-3] + MARKS + b"tR"),
    "pairs that are none": b"](" + b"N" * 1_000_000 + b"eq\x050" + often(b"ccollections\nOrderedDict\n(h\x05tR"),
    "a size of many": module_of(b"ctorch\nSize\n((" + b"K\x01" * 500_000 + b"ttR"),
    "a long number": module_of(SCALAR),
    "a key of a storage": often(tensor(stored=storage()[:-2] + b"N" * 1_000_000 + b"tQ")),
    "a key of a dict": b"(" + b"K\x01" * 500_000 + b"tq\x050" + often(b"}h\x05]Nas", 50_000),
}


@pytest.mark.parametrize("name", CHARGED)
@pytest.mark.slow
def test_what_is_referred_to_often_is_not_looked_at_each_time(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "x.pt", b"\x80\x03" + CHARGED[name] + b".")
    started = time.process_time()
    try:
        contents(path)
    except ModelFileError:
        assert name != "an inner pickle"
    else:
        assert name in ("an inner pickle", "marks of a tensor", "a key of a dict")
    assert time.process_time() - started < 4  # 2 on a machine that does nothing else


FORGED = {
    "a path that leads out": (tensor(stored=storage("../../x")), "has no data/../../x"),
    "a path from the root": (tensor(stored=storage("/etc/passwd")), "has no data//etc/passwd"),
    "a storage that is not there": (tensor(stored=storage("1")), "has no data/1"),
    "a storage of something else": (tensor(stored=storage(kind="Size")), "torch.Size"),
    "a storage by no key": (tensor(stored=b"N"), "no storage"),
    "a key that is a list": (tensor(stored=b"(" + text("storage") + b"NNNNtQ"), "no storage"),
    "more than the storage": (tensor(size=b"K\x05\x85"), "after its storage"),
    "beyond by the offset": (tensor(start=b"K\x03"), "after its storage"),
    "beyond by the strides": (tensor(strides=b"K\x04\x85"), "after its storage"),
    "before the storage": (tensor(start=b"J\xff\xff\xff\xff"), "after its storage"),
    "a negative size": (tensor(size=b"J\xfe\xff\xff\xff\x85"), "size or stride of -2"),
    "a negative stride": (tensor(strides=b"J\xfe\xff\xff\xff\x85"), "strides that do not fit"),
    "a size that is a float": (tensor(size=b"G\x7f\xf8\0\0\0\0\0\0\x85"), "size or stride of float"),
    "a size that is huge": (tensor(size=b"\x8a\x09" + b"\xff" * 8 + b"\x7f\x85"), "size or stride"),
    "too many elements": (tensor(b"J\xff\xff\xff\x7f" * 3 + b"\x87", b"K\x00K\x00K\x00\x87"), "more elements"),
    "strides of another length": (tensor(strides=b")"), "strides that do not fit"),
    "dimensions beyond any": (tensor(b"(" + b"K\x01" * 99 + b"t", b"(" + b"K\x01" * 99 + b"t"), "no shape"),
    "an offset that is a text": (tensor(start=text("0")), "makes no tensor"),
    "no arguments": (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "makes no tensor"),
    "arguments that are none": (b"ctorch._utils\n_rebuild_tensor_v2\nNR", "makes no tensor"),
    "a type that is none": (b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(cos\nsystem\n))\x89tR", "os.system"),
    "wrapped without end": (
        b"ctorch._utils\n_rebuild_parameter\nq\x05K\x01" + b"\x85q\x06h\x05h\x06R" * 20, "wrapped in too many"
    ),
    "sparse in sparse": (
        b"ctorch._utils\n_rebuild_sparse_tensor\nq\x05K\x01" + b"q\x06h\x05N(h\x06h\x06h\x06)t\x86R" * 20,
        "wrapped in too many",
    ),
    "sparse without a size": (
        b"ctorch._utils\n_rebuild_sparse_tensor\n(N(" + tensor() + b"ttR", "makes no tensor"
    ),
    "an array without bytes": (
        b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x09\x85cnumpy\ndtype\n" + text("f8") + b"\x85R\x89C\x01xtb",
        "fewer bytes",
    ),
    "a name beyond any": (b"}" + text("n" * 1_001) + tensor() + b"s", "a name of more"),
    "a module of nothing": (b"}" + text("w") + b"ctorch._utils\n_rebuild_tensor\n(NNNNtRs", "no storage"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_tensors_have_named_errors(tmp_path: Path, name: str) -> None:
    content, message = FORGED[name]
    path = archive(tmp_path / "x.pt", b"\x80\x03" + content + b".")
    with pytest.raises(ModelFileError, match=message):
        contents(path)


def test_a_module_that_is_in_itself_is_listed_once(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    net.add_module("again", net)
    torch.save(net, tmp_path / "x.pt")
    found = contents(tmp_path / "x.pt")
    assert [module.path for module in found.modules] == ["", "0"]
    assert [record.name for record in found.tensors] == ["0.weight", "0.bias"]


def test_code_that_is_forged_tells_nothing(tmp_path: Path) -> None:
    state = b"}" + text("w") + tensor() + b"s"
    content = b"\x80\x02c__torch__.a.b\nNet\n)\x81" + state + b"b."
    code = (
        b"class Net(Module):\n  __parameters__ = ["
        + b'"w", ' * 100_000
        + b"\n  k : Final[int] = 9"
        + b"9" * 5_000
        + b"\n"
    )
    path = archive(tmp_path / "x.pt", content, **{"constants.pkl": b"\x80\x02).", "code/__torch__/a/b.py": code})
    started = time.process_time()
    found = contents(path)
    assert time.process_time() - started < 1
    assert [(module.class_name, module.settings) for module in found.modules] == [("a.b.Net", {})]
    assert [(record.name, record.role) for record in found.tensors] == [("w", None)]


def rezipped(path: Path, change: Any) -> None:
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, change(content) if name.endswith("data.pkl") else content)


@pytest.mark.parametrize("kind", ["pickle in a zip", "zip", "legacy", "script"])
def test_any_change_gives_records_within_the_file_or_a_named_error(tmp_path: Path, kind: str) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    path = tmp_path / "x.pt"
    if kind == "script":
        torch.jit.save(torch.jit.script(net), str(path))
    else:
        torch.save({"net": net.state_dict(), "whole": net, "epoch": 1}, path, **(LEGACY if kind == "legacy" else {}))
    whole = path.read_bytes()
    chooser = random.Random(0)

    def changed(content: bytes) -> bytes:
        forged = bytearray(content)
        for _ in range(chooser.randrange(1, 5)):
            forged[chooser.randrange(len(forged))] = chooser.randrange(256)
        return bytes(forged[: chooser.randrange(len(forged))] if chooser.random() < 0.15 else forged)

    messages: list[str] = []
    for _ in range(250):
        path.write_bytes(whole if kind == "pickle in a zip" else changed(whole))
        if kind == "pickle in a zip":
            rezipped(path, changed)
        started = time.process_time()
        try:
            found = contents(path)
        except ModelFileError as error:
            messages.append(str(error))
            found = None
        assert time.process_time() - started < 2
        for record in found.tensors if found else ():
            assert record.nbytes >= 0
            assert record.offset is None or 0 <= record.offset <= record.offset + record.nbytes <= path.stat().st_size
    assert 20 < len(messages) < 250
    assert all(message.isprintable() for message in messages)
