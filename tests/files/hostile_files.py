"""Files that were tampered with, drawn from good ones: run as a program, it opens each and tells what happened.

    python hostile_files.py FILE COUNT SEED

It prints one JSON object: how often a file was read or refused, the longest time and the largest memory that one took,
what was raised that is none of the package's errors, and what the interpreter did meanwhile that no reader may do.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HUGE = [0xFF, 0x7F, 0x80, 0x00, 0xFE]
TEXTS = [
    b"../../etc/passwd",
    b"/etc/passwd",
    b"cos\nsystem\n(S'true'\ntR.",
    b"__import__",
    b"NaN",
    b"1e999",
    b"\x00" * 9,
]
# by the names of the interpreter's audit events
FORBIDDEN = (
    "import", "exec", "compile", "subprocess", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove",
    "os.rename", "socket", "ctypes", "pickle", "shutil",
)  # fmt: skip
STATUS = Path("/proc/self/status")  # of this process alone; `getrusage` counts in what it was forked from
Change = Callable[[bytearray, random.Random], None]


def flip(content: bytearray, draws: random.Random) -> None:
    for _ in range(draws.randrange(1, 9)):
        content[draws.randrange(len(content))] = draws.randrange(256)


def flip_in_header(content: bytearray, draws: random.Random) -> None:
    for _ in range(draws.randrange(1, 4)):
        content[draws.randrange(min(len(content), 400))] = draws.choice(HUGE)


def flip_at_end(content: bytearray, draws: random.Random) -> None:
    for _ in range(draws.randrange(1, 4)):
        content[-1 - draws.randrange(min(len(content), 400))] = draws.choice(HUGE)


def cut_off(content: bytearray, draws: random.Random) -> None:
    del content[draws.randrange(len(content)) :]


def take_out(content: bytearray, draws: random.Random) -> None:
    start = draws.randrange(len(content))
    del content[start : start + draws.randrange(1, 200)]


def repeat(content: bytearray, draws: random.Random) -> None:
    start = draws.randrange(len(content))
    part = bytes(content[start : start + draws.randrange(1, 300)])
    content[start:start] = part * draws.randrange(1, 40)


def enlarge_a_number(content: bytearray, draws: random.Random) -> None:
    width = draws.choice([2, 4, 8])
    start = draws.randrange(max(len(content) - width, 1))
    number = draws.choice([2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1, 2**16]) % 256**width
    content[start : start + width] = number.to_bytes(width, "little")


def enlarge_a_numeral(content: bytearray, draws: random.Random) -> None:
    digits = [at for at in range(min(len(content), 100_000)) if 48 <= content[at] < 58]
    if digits:
        at = draws.choice(digits)
        content[at : at + 1] = draws.choice([b"9" * 18, b"9" * 400, b"-1", b"1.5", b"NaN", b'"1"', b"[1]"])


def put_text_in(content: bytearray, draws: random.Random) -> None:
    start = draws.randrange(len(content))
    content[start:start] = draws.choice(TEXTS)


def nest(content: bytearray, draws: random.Random) -> None:
    start = draws.randrange(len(content))
    content[start:start] = draws.choice([b"[", b'{"a":', b"(", b"(l", b"\x0a\x7f", b"]q\x00"]) * draws.choice(
        [50, 5_000, 200_000]
    )


def exchange(content: bytearray, draws: random.Random) -> None:
    size = draws.randrange(1, 64)
    one, other = (draws.randrange(max(len(content) - size, 1)) for _ in range(2))
    content[one : one + size], content[other : other + size] = content[other : other + size], content[one : one + size]


CHANGES: list[Change] = [
    flip, flip_in_header, flip_at_end, cut_off, take_out, repeat, enlarge_a_number, enlarge_a_numeral, put_text_in,
    nest, exchange,
]  # fmt: skip


def tampered(content: bytes, draws: random.Random) -> bytes:
    """Another file, by one to three changes, most often by one: after more, few files are opened at all."""
    changed = bytearray(content)
    for _ in range(draws.choice([1, 1, 1, 2, 3])):
        if changed:
            draws.choice(CHANGES)(changed, draws)
    return bytes(changed)


class Watch:
    """What the interpreter does while a file is open: no import, no code, no process, no socket, no other file."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event == "open":
            path = arguments[0]
            if not isinstance(path, int) and os.path.dirname(os.path.abspath(os.fsdecode(path))) != self.folder:
                self.seen.append(f"open {path!r}")
        elif event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {arguments[:1]!r}")


def memory(kind: str) -> int:
    """What the process has in memory, "VmRSS", or has had at most, "VmHWM", in bytes; 0 where no system tells."""
    if not STATUS.exists():
        return 0
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{kind}:"))


def forget_peak() -> None:
    """Begin to measure the most memory anew; else a smaller peak after a larger one is not seen."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def main(file: str, count: int, seed: int) -> dict[str, Any]:
    # the standard library's own: of names in archives, of texts in pickles and in messages
    import encodings.ascii
    import encodings.cp437
    import encodings.latin_1
    import encodings.raw_unicode_escape
    import encodings.unicode_escape  # noqa: F401

    import modulekg_widgets as mk

    draws, watch = random.Random(seed), Watch()
    found: dict[str, Any] = {"read": 0, "refused": 0, "slowest": 0.0, "memory": 0, "wrong": [], "seen": []}
    with tempfile.TemporaryDirectory() as folder:
        for each in Path(file).parent.iterdir():  # the shards of an index, weights in a file of their own, a config
            if each.is_file():
                shutil.copy(each, folder)
        path = Path(folder) / Path(file).name
        others = [each for each in sorted(Path(folder).iterdir()) if each != path]
        looked_at(mk.open_file(path))  # what is imported at first use is imported
        for number in range(count):
            target = draws.choice(others) if others and number % 3 == 0 else path
            content = target.read_bytes()
            target.write_bytes(tampered(content, draws))
            forget_peak()
            before, start = memory("VmRSS"), time.process_time()
            watch.folder = os.path.abspath(folder)
            try:
                looked_at(mk.open_file(path))
                found["read"] += 1
            except mk.ModuleKGError:
                found["refused"] += 1
            except BaseException as error:  # noqa: BLE001 - that is what is looked for
                found["wrong"].append(f"{number}: {type(error).__name__}: {str(error)[:200]}")
            watch.folder = None
            found["slowest"] = max(found["slowest"], time.process_time() - start)
            found["memory"] = max(found["memory"], memory("VmHWM") - before)
            target.write_bytes(content)
    found["seen"] = sorted(set(watch.seen))[:20]
    return found


def looked_at(file: Any) -> None:
    """What a user would do with it first."""
    import modulekg_widgets as mk

    file.tensors()
    str(file.hierarchy().fold())
    repr(file)
    _ = file.graph
    for each in file.contents.tensors[:3]:
        summed(file, each.name)
    str(mk.diff(file, file, weights=True))
    mk.ModelGraph(file).close()
    graph = mk.KnowledgeGraph()
    graph.add_model(file, name="file")
    graph.close()


def summed(file: Any, name: str) -> None:
    """The sum of a tensor, where torch has one for its dtype."""
    import modulekg_widgets as mk

    try:
        tensor = file.tensor(name)
    except mk.ModuleKGError:
        return
    with contextlib.suppress(RuntimeError, NotImplementedError):
        tensor.sum()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
