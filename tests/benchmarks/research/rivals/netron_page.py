"""Netron's page on a model file: served by its own package, and timed until its graph or its error is there."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 120  # seconds
# in a process of its own: it may read the whole of a large model into memory
SERVER = """
import resource, sys, netron
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
netron.start(sys.argv[1], ("127.0.0.1", int(sys.argv[2])), browse=False)
netron.wait()
"""
# Netron draws the nodes of its graph as groups of an SVG, and shows what fails in its message
SHOWN = "() => document.querySelector('#target .node, #message-text:not(:empty)') !== null"


class Seen(NamedTuple):
    """What the page made of a file: milliseconds until it was there, None for never, megabytes, and its text."""

    first_paint: float | None
    heap: float
    message: str


@contextmanager
def served(file: Path, port: int) -> Iterator[str]:
    """The address of Netron's server for a file."""
    command = [sys.executable, "-c", SERVER, str(file), str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def netron_on(browser: Browser, file: Path, port: int) -> Seen:
    """Open a file in Netron."""
    with served(file, port) as url:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        try:
            context.add_cookies([{"name": "consent", "value": "1", "url": url}])  # else it asks first
            # it counts its users over the network, which need not answer
            context.route(
                "**/*", lambda route: route.continue_() if route.request.url.startswith(url) else route.abort()
            )
            page = context.new_page()
            begin = time.monotonic()
            try:
                page.goto(url, wait_until="commit", timeout=PATIENCE * 1000)
                page.wait_for_function(SHOWN, timeout=PATIENCE * 1000)
            except Exception as error:  # noqa: BLE001 - of playwright, when the server or the page stands still
                return Seen(None, 0.0, f"{type(error).__name__} after {time.monotonic() - begin:.0f} s")
            taken = (time.monotonic() - begin) * 1000
            session = context.new_cdp_session(page)
            session.send("Performance.enable")
            metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
            message = page.locator("#message-text")
            said = message.inner_text() if message.is_visible() else ""
            return Seen(None if said else taken, metrics["JSHeapUsedSize"] / 2**20, said)
        finally:
            context.close()
