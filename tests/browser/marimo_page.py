"""A notebook in a real marimo: its server, and the page in which its widgets stand in frames of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from browser.lab import START_SECONDS, free_port
from browser.page import TIMEOUT, WatchedPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Locator

FRAME = "iframe[title=modulekg-widgets]"
STILL = 4  # looks at all frames that must agree
HEAD = "import marimo\n\napp = marimo.App(width='full')\n"


def marimo_notebook(cells: list[tuple[str, str, str]]) -> str:
    """The file of a notebook: for each cell what it takes, its source, and what it gives to others."""
    parts = [HEAD]
    for takes, source, gives in cells:
        body = "\n".join(f"    {line}".rstrip() for line in source.strip().splitlines())
        parts.append(f"\n\n@app.cell\ndef _({takes}):\n{body}\n    return {f'({gives},)' if gives else ''}\n")
    return "".join(parts) + '\n\nif __name__ == "__main__":\n    app.run()\n'


class MarimoServer:
    """`marimo run` or `marimo edit` on one notebook, with settings of its own; stop() ends it and its kernels."""

    def __init__(self, folder: Path, notebook: str, command: str = "run") -> None:
        self.folder, self.command = folder, command
        (folder / "notebook.py").write_text(notebook, encoding="utf-8")
        # the editor, too, runs all cells when it opens
        (folder / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n", encoding="utf-8")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        own = {name: str(folder / "home") for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
        with (folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "marimo", command, "notebook.py", *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, "MARIMO_SKIP_UPDATE_CHECK": "1"},
                cwd=folder,
            )
        self._wait_until_up(port)

    def _wait_until_up(self, port: int) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        log = self.log
        self.stop()
        raise RuntimeError(f"marimo has not started: {log}")

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text("utf-8", "replace")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class MarimoPage(WatchedPage):
    """The notebook in a page; `state.json` is what its kernel writes, `count` how many widgets are shown."""

    def __init__(self, browser: Browser, server: MarimoServer, count: int, **context: Any) -> None:
        super().__init__(browser, SimpleNamespace(url=server.url), **context)  # type: ignore[arg-type]
        self.marimo, self.count = server, count
        self.page.goto(server.url)

    def frame(self, kind: str, place: int = 0) -> Frame:
        """The frame in which a widget is, as "model-graph", once all frames are drawn; it is in sight and at rest."""
        end = time.monotonic() + 4 * TIMEOUT / 1000  # the kernel imports torch first
        while (waiting := self._next_to_draw()) and time.monotonic() < end and "Traceback" not in self.marimo.log:
            self.pause(100)
        assert not waiting, f"{waiting}: {self.marimo.log}"
        found = [frame for frame in self._frames() if frame.locator(f".mkg-{kind}").count()]
        found[place].frame_element().scroll_into_view_if_needed()
        self._rest()
        return found[place]

    def _next_to_draw(self) -> str:
        """What is still missing; the first frame that is not drawn is brought in sight, for elsewhere none paints."""
        frames = self._frames()
        for place, frame in enumerate(frames):
            if not frame.locator("[data-mkg-ready=true]").count():
                frame.frame_element().scroll_into_view_if_needed()
                return f"frame {place} is not drawn"
        return "" if len(frames) == self.count else f"{len(frames)} of {self.count} frames"

    def _frames(self) -> list[Frame]:
        """In the order of the page."""
        handles = self.page.locator(FRAME).element_handles()
        return [frame for handle in handles if (frame := handle.content_frame()) is not None]

    def press(self, name: str) -> None:
        """Click a button of marimo's own."""
        self._click(self.page.get_by_role("button", name=name))

    def click(self, frame: Frame, selector: str) -> None:
        """Click something in a frame."""
        frame.frame_element().scroll_into_view_if_needed()  # elsewhere nothing comes to rest
        self._click(frame.locator(selector))

    def _click(self, place: Locator) -> None:
        place.scroll_into_view_if_needed()
        self._rest()
        place.click()

    def _rest(self) -> None:
        """Wait until no frame moves any more: the browser gives a click just after that to what was there before."""
        looks: list[str] = []
        for _ in range(100):
            looks.append(str([handle.bounding_box() for handle in self.page.locator(FRAME).element_handles()]))
            if len(looks) >= STILL and len(set(looks[-STILL:])) == 1:
                return
            self.pause(100)
        raise AssertionError(f"frames still move: {looks[-STILL:]}")

    def wait_in(self, frame: Frame, script: str) -> None:
        """Wait until a script says true in a frame, which paints only while it is in sight."""
        end = time.monotonic() + TIMEOUT / 1000
        while not frame.evaluate(script):
            assert time.monotonic() < end, f"{script}: {frame.locator('body').inner_text()} {self.marimo.log}"
            self.pause(50)

    def state(self) -> dict[str, Any]:
        file = self.marimo.folder / "state.json"
        return json.loads(file.read_text("utf-8")) if file.exists() else {}

    def wait_for_state(self, **expected: Any) -> None:
        for _ in range(100):
            if expected.items() <= self.state().items():
                return
            self.pause(100)
        assert expected.items() <= self.state().items(), self.marimo.log
