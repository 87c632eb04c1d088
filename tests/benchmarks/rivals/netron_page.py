"""Netron's page on a model file: served by its own package, and timed until its graph or its error is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 120  # seconds
# Netron draws the nodes of its graph as groups of an SVG, and shows what fails in its message
SHOWN = "() => document.querySelector('#target .node, #message-text:not(:empty)') !== null"


class Seen(NamedTuple):
    """What the page made of a file: milliseconds until it was there, None for never, megabytes, and its text."""

    first_paint: float | None
    heap: float
    message: str


def netron_on(browser: Browser, file: Path, port: int) -> Seen:
    """Open a file in Netron."""
    import netron

    address = netron.start(str(file), ("127.0.0.1", port), browse=False)
    url = f"http://{address[0]}:{address[1]}"
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_cookies([{"name": "consent", "value": "1", "url": url}])  # else it asks first
    # it counts its users over the network, which need not answer
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith(url) else route.abort())
    page = context.new_page()
    try:
        begin = time.monotonic()
        page.goto(url, wait_until="commit")
        try:
            page.wait_for_function(SHOWN, timeout=PATIENCE * 1000)
        except Exception as error:  # noqa: BLE001 - of playwright, when the page stands still
            return Seen(None, 0.0, f"{type(error).__name__} after {PATIENCE} s")
        taken = (time.monotonic() - begin) * 1000
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        message = page.locator("#message-text")
        said = message.inner_text() if message.is_visible() else ""
        return Seen(None if said else taken, metrics["JSHeapUsedSize"] / 2**20, said)
    finally:
        context.close()
        netron.stop(address)
