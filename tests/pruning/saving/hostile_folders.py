"""Folders that somebody else wrote: each spoils one that was saved here, and is refused by name."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Spoil = Callable[[Path], None]
MARK = "modulekg-was-here"  # what code in a folder would leave behind


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def pickled(folder: Path) -> bytes:
    return pickle.dumps(Payload(folder.parent / MARK))


def write(name: str, content: bytes | str) -> Spoil:
    text = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(text) and None


def gone(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def link(name: str, target: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return spoil


def changed(name: str, *keys: str, to: Any) -> Spoil:
    """A document in which one value is another."""

    def spoil(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        at = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = to(at.get(keys[-1])) if callable(to) else to
        (folder / name).write_text(json.dumps(document))

    return spoil


def header(change: Callable[[dict[str, Any]], Any], name: str = "model.safetensors") -> Spoil:
    """A file of tensors with another header before the same bytes."""

    def spoil(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        document = json.loads(content[8 : 8 + length])
        document = change(document) or document
        text = json.dumps(document).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    return spoil


def entry(key: str, value: Any) -> Spoil:
    """The first tensor with another value in the header."""

    def change(document: dict[str, Any]) -> None:
        first = next(name for name in document if name != "__metadata__")
        document[first][key] = value

    return header(change)


def renamed(document: dict[str, Any]) -> None:
    first = next(name for name in document if name != "__metadata__")
    document["../../" + first] = document.pop(first)


def overlapping(document: dict[str, Any]) -> None:
    names = [name for name in document if name != "__metadata__"]
    same = [name for name in names if document[name]["shape"] == document[names[0]]["shape"]]
    document[same[-1]]["data_offsets"] = document[same[0]]["data_offsets"]


def cut_off(name: str, left: int) -> Spoil:
    return lambda folder: os.truncate(folder / name, left)


def longer(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"\0" * 64)


def as_pickle(name: str) -> Spoil:
    return lambda folder: (folder / name).write_bytes(pickled(folder)) and None


def beside(name: str) -> Spoil:
    """A file with a pickle, or code, beside the others."""

    def spoil(folder: Path) -> None:
        code = f"import os; os.mkdir({str(folder.parent / MARK)!r})\n".encode()
        (folder / name).write_bytes(code if name.endswith(".py") else pickled(folder))

    return spoil


def folder_instead(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def pipe_instead(name: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return spoil


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def deep_list(depth: int) -> Any:
    found: Any = "output"
    for _ in range(depth):
        found = ["tuple", found]
    return found


def deep(name: str) -> Spoil:
    return write(name, "[" * 100_000 + "]" * 100_000)


# of a model of any library
EVERY: dict[str, Spoil] = {
    "an empty folder": empty,
    "no folder": shutil.rmtree,
    "no manifest": gone("modulekg.json"),
    "no tensors": gone("model.safetensors"),
    "a manifest that is a link": link("modulekg.json", "/etc/hostname"),
    "tensors that are a link": link("model.safetensors", "/etc/hostname"),
    "a manifest that is a folder": folder_instead("modulekg.json"),
    "tensors that are a folder": folder_instead("model.safetensors"),
    "a manifest that is a pipe": pipe_instead("modulekg.json"),
    "tensors that are a pipe": pipe_instead("model.safetensors"),
    "a manifest of nothing": write("modulekg.json", b""),
    "a manifest of zeros": write("modulekg.json", bytes(1000)),
    "a manifest that is a pickle": as_pickle("modulekg.json"),
    "tensors that are a pickle": as_pickle("model.safetensors"),
    "a manifest too deep": deep("modulekg.json"),
    "a manifest that is a list": write("modulekg.json", "[]"),
    "a manifest of numbers": write("modulekg.json", "1e999"),
    "a manifest with a name twice": write("modulekg.json", '{"format": 1, "format": "modulekg-model"}'),
    "a manifest with NaN": write("modulekg.json", '{"format": NaN}'),
    "another format": changed("modulekg.json", "format", to="other"),
    "another version": changed("modulekg.json", "version", to=99),
    "a version that is true": changed("modulekg.json", "version", to=True),
    "no origin": changed("modulekg.json", "origin", to=None),
    "an unknown library": changed("modulekg.json", "origin", "library", to="os"),
    "a library that is a list": changed("modulekg.json", "origin", "library", to=["torch"]),
    "cuts below zero": changed("modulekg.json", "cuts", to=-1),
    "cuts without end": changed("modulekg.json", "cuts", to=10**9),
    "more cuts than plans": changed("modulekg.json", "cuts", to=5),
    "fewer cuts than plans": changed("modulekg.json", "cuts", to=0),
    "ties that are none": changed("modulekg.json", "tied", to={"a": "b"}),
    "ties to a number": changed("modulekg.json", "tied", to={"a": 1}),
    "files that are not names": changed("modulekg.json", "files", to=[{}]),
    "a file above the folder": changed("modulekg.json", "files", to=lambda files: [*files, "../outside.safetensors"]),
    "a file anywhere": changed("modulekg.json", "files", to=lambda files: [*files, "/etc/passwd"]),
    "tables that are not there": changed("modulekg.json", "files", to=lambda f: [*f, "modulekg.safetensors"]),
    "a plan that is gone": gone("plan-0.json"),
    "a plan that is a pickle": as_pickle("plan-0.json"),
    "a plan that is not a plan": write("plan-0.json", "{}"),
    "a plan that is a link": link("plan-0.json", "/etc/hostname"),
    "a plan too deep": deep("plan-0.json"),
    "a plan of other shapes": changed("plan-0.json", "tensors", to=lambda t: [{**t[0], "shape": [9999, 9999]}, *t[1:]]),
    "a plan of other names": changed("plan-0.json", "tensors", to=lambda t: [{**t[0], "names": ["x.y"]}, *t[1:]]),
    "a plan that keeps others": changed("plan-0.json", "positions", to=lambda p: [[*each[:-1]] or [0] for each in p]),
    "a plan of other attributes": changed("plan-0.json", "attributes", to={"__class__.x": [3, 2]}),
    "a plan of attributes that are not there": changed("plan-0.json", "attributes", to={"nothing.size": [3, 2]}),
    "a pickle beside": beside("pytorch_model.bin"),
    "a checkpoint beside": beside("model.pt"),
    "code beside": beside("modeling_mine.py"),
    "an adapter beside": write("adapter_config.json", "{}"),
    "other tensors beside": write("other.safetensors", b""),
    "an index beside": write("model.safetensors.index.json", '{"weight_map": {"a": "../../secret"}}'),
    "tensors of nothing": write("model.safetensors", b""),
    "tensors of seven bytes": write("model.safetensors", b"1234567"),
    "a header without end": write("model.safetensors", struct.pack("<Q", 1 << 62) + b"{}"),
    "a header of no JSON": write("model.safetensors", struct.pack("<Q", 4) + b"abcd"),
    "a header that is a list": write("model.safetensors", struct.pack("<Q", 2) + b"[]"),
    "a header too deep": write("model.safetensors", struct.pack("<Q", 20000) + b"[" * 10000 + b"]" * 10000),
    "tensors that end early": cut_off("model.safetensors", 600),
    "tensors that go on": longer,
    "an unknown dtype": entry("dtype", "PICKLE"),
    "a dtype that is a list": entry("dtype", ["F32"]),
    "a shape below zero": entry("shape", [-1, 4]),
    "a shape of true": entry("shape", [True]),
    "a shape without end": entry("shape", [1 << 40, 1 << 40]),
    "a shape of many dimensions": entry("shape", [1] * 100),
    "offsets behind the end": entry("data_offsets", [0, 1 << 50]),
    "offsets backwards": entry("data_offsets", [64, 0]),
    "one offset": entry("data_offsets", [0]),
    "an entry with more": header(lambda document: document[max(document)].update(extra=1)),
    "an entry that is text": header(lambda document: document.update({max(document): "x"})),
    "metadata of numbers": header(lambda document: document.update(__metadata__={"a": 1})),
    "tensors that overlap": header(overlapping),
    "a name that leads out": header(renamed),
    "one tensor more": header(lambda document: document.update(
        more={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})),
    "a file of no tensors": write("model.safetensors", struct.pack("<Q", 2) + b"{}"),
}  # fmt: skip

# of a model that has lost a block
WITHOUT_BLOCKS: dict[str, Spoil] = {
    "no module that goes": changed("plan-0.json", "removed", to=[]),
    "a module that is not there": changed("plan-0.json", "removed", to=[{"path": "99", "stand_in": None}]),
    "the model itself": changed("plan-0.json", "removed", to=[{"path": "", "stand_in": None}]),
    "a module that goes twice": changed("plan-0.json", "removed", to=lambda removed: [*removed, *removed]),
    "a path that is private": changed("plan-0.json", "removed", to=[{"path": "__class__", "stand_in": None}]),
    "a path that is a number": changed("plan-0.json", "removed", to=[{"path": 1, "stand_in": None}]),
    "modules that are text": changed("plan-0.json", "removed", to="0"),
    "code in the place of a module": changed("plan-0.json", "removed", to=[{"path": "1", "stand_in": "os.system"}]),
    "a stand-in with code": changed("plan-0.json", "removed", to=[{"path": "1", "stand_in": {
        "zeros": False, "argument": [0, None], "result": ["call", "os.system"]}}]),
    "a stand-in of an argument by code": changed("plan-0.json", "removed", to=[{"path": "1", "stand_in": {
        "zeros": False, "argument": [None, "__import__('os')"], "result": "output"}}]),
    "a result too deep": changed("plan-0.json", "removed", to=[{"path": "1", "stand_in": {
        "zeros": True, "argument": [0, None], "result": deep_list(200)}}]),
    "followers that are none": changed("plan-0.json", "followers", to=[]),
    "a follower that is private": changed("plan-0.json", "followers", to={"__class__": [3, 2]}),
    "a follower inside of a class": changed("plan-0.json", "followers", to={"0.__class__.x": [3, 2]}),
    "a follower that is not there": changed("plan-0.json", "followers", to={"nothing": [3, 2]}),
    "a follower of text": changed("plan-0.json", "followers", to={"0.norm.eps": ["3", "2"]}),
    "blocks that are numbers": changed("plan-0.json", "blocks", to=[1]),
}  # fmt: skip


# of a model of transformers
CONFIGURED: dict[str, Spoil] = {
    "no configuration": gone("config.json"),
    "a configuration that is a pickle": as_pickle("config.json"),
    "a configuration that is a list": write("config.json", "[]"),
    "a configuration too deep": deep("config.json"),
    "code of its own": changed("config.json", "auto_map", to={"AutoModel": "modeling_mine.Mine"}),
    "a class that is none": changed("modulekg.json", "origin", "class", to="AutoConfig"),
    "a class by a path": changed("modulekg.json", "origin", "class", to="os:system"),
    "a private class": changed("modulekg.json", "origin", "class", to="__loader__"),
    "another class": changed("modulekg.json", "origin", "class", to="GPT2LMHeadModel"),
    "a kernel from elsewhere": changed("config.json", "attn_implementation", to="kernels-community/evil"),
    "experts from elsewhere": changed("config.json", "experts_implementation", to="somebody/kernel"),
    "kernels in the manifest": changed("modulekg.json", "origin", "kernels", to={"_attn_implementation": "me/kernel"}),
    "attributes in the manifest": changed("modulekg.json", "origin", "kernels", to={"__class__": "eager"}),
    "weights from elsewhere": changed("config.json", "transformers_weights", to="../../secret.safetensors"),
    "another configuration file": changed("config.json", "configuration_files", to=["config.9.json"]),
    "quantised": changed("config.json", "quantization_config", to={"quant_method": "bitsandbytes"}),
    "layers without end": changed("config.json", "num_hidden_layers", to=10**9),
    "labels without end": changed("config.json", "num_labels", to=10**9),
    "words without end": changed("config.json", "vocab_size", to=10**12),
    "sizes without end": changed("config.json", "hidden_size", to=10**9),
    "other sizes": changed("config.json", "intermediate_size", to=96),
    "sizes that are text": changed("config.json", "hidden_size", to="32"),
    "sizes below zero": changed("config.json", "intermediate_size", to=-48),
    "a backbone from elsewhere": changed("config.json", "use_pretrained_backbone", to=True),
    "generation that is a list": write("generation_config.json", "[]"),
}
