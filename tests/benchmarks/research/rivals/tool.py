"""What each tool is asked for, and a server for what it wrote."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias
from urllib.parse import quote

from torch import nn

from benchmarks.research.rivals.drawing import Drawing

Args: TypeAlias = tuple[Any, ...]
Served: TypeAlias = Callable[[Path], AbstractContextManager[str]]

# the boxes of an SVG, or of anything that has elements, once they can be seen
SEEN = "element => element.checkVisibility({ opacityProperty: true, visibilityProperty: true })"
ELEMENTS = f"""(selector, opening) => [...document.querySelectorAll(selector)].filter({SEEN}).map(element => {{
  const mark = opening ? element.querySelector(opening) : null;
  const {{ x, y, width, height }} = (mark ?? element).getBoundingClientRect();
  const id = element.__data__?.[0] ?? element.id; // d3 knows it, graphviz writes it
  return {{ id, x: x + width / 2, y: y + height / 2, opens: mark !== null }};
}})"""


@dataclass(frozen=True)
class Tool:
    """A way to see a model."""

    name: str
    package: str
    call: str  # as its documentation has it
    prepare: Callable[[], object]  # imports, which are not timed
    make: Callable[[nn.Module, Args, Path], Path]  # all that is done in the kernel, until a page could open the file
    served: Served
    drawn: Callable[[Path], Drawing]
    boxes: str  # JavaScript: the boxes on the page, as [{ id, x, y, opens }], the point where a click opens one
    clicks: int = 0  # that open a box; 0 where a picture stays as it is
    surface: str = "svg"  # the element that has to be under a click, or around what is


def elements(selector: str, opening: str = "") -> str:
    """JavaScript that lists the boxes of a page that has an element for each."""
    return f"() => ({ELEMENTS})({selector!r}, {opening!r})"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def folder(file: Path) -> Iterator[str]:
    """The address of a file that any server can give."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(file.parent)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{quote(file.name)}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def program(command: Sequence[str], port: int, patience: float = 300.0) -> Iterator[None]:
    """A server of the tool's own, until it answers on its port."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + patience
    try:
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()


def inline(svg: str, file: Path) -> Path:
    """An SVG as a notebook shows it: in a page of its own."""
    file.write_text(f"<!doctype html><meta charset='utf-8'><body>{svg[svg.index('<svg') :]}</body>", "utf-8")
    return file
