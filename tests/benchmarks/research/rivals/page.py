"""A tool's page in a fresh Chromium: what it loads, when its first box is there, and how long opening a box takes.

*First paint* is from the navigation to the first frame that follows one in which the page has a box of the graph; it is
the same for all, asked of the page once in a frame. CPU time is that of all processes of the browser.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.research.rivals.alone import LIMIT
from benchmarks.research.rivals.tool import Tool
from browser.fixtures import CHROMIUM_OPTIONS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

PATIENCE = 400  # seconds that the allowed CPU time may take on a busy machine
LOOK = 2_000  # milliseconds between two looks at that
GESTURES = 6
GESTURE_PATIENCE = 90  # seconds on the clock
LOOKS = 25  # until nothing moves
VIEWPORT = {"width": 1400, "height": 900}
# resolves in the frame after the one in which the condition holds; looking takes a fifth of the time at most
WHEN = """const when = (holds, begin) => new Promise(resolve => {
  const look = () => {
    const from = performance.now();
    if (holds()) { requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - begin()))); }
    else { setTimeout(() => requestAnimationFrame(look), 4 * (performance.now() - from)); }
  };
  requestAnimationFrame(look);
});"""
# Netron takes eval away, by which a page is asked
KEEP_EVAL = "const kept = window.eval; Object.defineProperty(window, 'eval', { get: () => kept, set: () => {} });"
FIRST = """(() => {{ {keep} {when}
  when(() => ({boxes})().length > 0, () => 0).then(taken => {{ window.__painted = taken; }});
}})()"""
# where a click would open a box: what lies on top there is the graph, also in elements that have trees of their own
TARGETS = """surface => {{
  const under = (root, x, y) => {{
    const top = root.elementFromPoint(x, y);
    return top?.shadowRoot && top !== root.host ? under(top.shadowRoot, x, y) ?? top : top;
  }};
  const around = element => element.parentElement ?? element.getRootNode().host;
  const hits = ({{ x, y }}) => {{
    let element = under(document, x, y);
    while (element && !element.matches(surface)) {{ element = around(element); }}
    return Boolean(element);
  }};
  const all = ({boxes})();
  return {{ ids: all.map(({{ id }}) => id), targets: all.filter(box => box.opens && hits(box)) }};
}}"""
GESTURE = """before => {{ {when}
  const known = new Set(before);
  let begin = performance.now();
  window.__opened = undefined;
  document.addEventListener('mouseup', () => {{ begin = performance.now(); }}, {{ capture: true }});
  when(() => ({boxes})().some(({{ id }}) => !known.has(id)), () => begin).then(taken => {{ window.__opened = taken; }});
}}"""


class Used:
    """What the processes of a browser have used."""

    def __init__(self, browser: Browser) -> None:
        self.session = browser.new_browser_cdp_session()

    def processes(self) -> list[dict[str, Any]]:
        return self.session.send("SystemInfo.getProcessInfo")["processInfo"]

    def cpu(self) -> float:
        return sum(process["cpuTime"] for process in self.processes())

    def megabytes(self) -> float:
        """Of the largest process of a page."""
        ids = [process["id"] for process in self.processes() if process["type"] == "renderer"]
        lines = [line for one in ids for line in Path(f"/proc/{one}/status").read_text("utf-8").splitlines()]
        return max(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
    try:
        yield browser
    finally:
        browser.close()


def fresh_page(browser: Browser, url: str) -> Page:
    """A page that may ask for nothing but what its server has."""
    context = browser.new_context(viewport=VIEWPORT)  # type: ignore[arg-type]
    home = url.partition("//")[2].partition("/")[0]
    context.add_cookies([{"name": "consent", "value": "1", "url": f"http://{home}"}])  # else Netron asks first
    allowed = (f"http://{home}/", "blob:", "data:")
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith(allowed) else route.abort())
    return context.new_page()


def opened(
    playwright: Playwright, tool: Tool, file: Path, gestures: bool, picture: Path | None = None
) -> dict[str, Any]:
    """What the page of a file took."""
    with tool.served(file) as url, chromium(playwright) as browser:
        page, used, loaded = fresh_page(browser, url), Used(browser), [0.0]
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.dataReceived", lambda event: loaded.append(event["dataLength"]))
        page.add_init_script(FIRST.format(keep=KEEP_EVAL, when=WHEN, boxes=tool.boxes))
        begin = used.cpu()
        page.goto(url, wait_until="commit", timeout=PATIENCE * 1000)
        if not is_there(page, "__painted", used, begin, PATIENCE):
            waited = used.cpu() - begin < LIMIT
            return {"error": f"no first paint after {PATIENCE} s on the clock" if waited else f"over {LIMIT} s"}
        found = {"cpu": used.cpu() - begin, "painted": page.evaluate("() => window.__painted")}
        page.wait_for_timeout(500)
        found |= {"loaded": sum(loaded), "megabytes": used.megabytes()}
        if picture is not None:
            page.wait_for_timeout(2_000)
            page.screenshot(path=picture)
        if gestures and tool.clicks:
            found["opening"] = list(openings(page, used, tool))
        return found


def is_there(page: Page, name: str, used: Used, begin: float, patience: float) -> bool:
    """Waits for what the page notes under a name, as long as the browser may work for it."""
    from playwright.sync_api import TimeoutError as NotYet

    end = time.monotonic() + patience
    while time.monotonic() < end and used.cpu() - begin < LIMIT:
        with suppress(NotYet):
            page.wait_for_function(f"() => window.{name}", timeout=LOOK)
            return True
    return False


def openings(page: Page, used: Used, tool: Tool) -> Iterator[dict[str, Any]]:
    """One box opened after the other: milliseconds from the click to the frame with a new box, and seconds of CPU."""
    tried: set[str] = set()
    for _ in range(GESTURES):
        seen = at_rest(page, tool)
        target = next((box for box in seen["targets"] if box["id"] not in tried), None)
        if target is None:
            return
        tried.add(target["id"])
        page.mouse.move(target["x"], target["y"])
        page.wait_for_timeout(200)  # some act on what the pointer has been over
        page.evaluate(GESTURE.format(when=WHEN, boxes=tool.boxes), seen["ids"])
        begin = used.cpu()
        page.mouse.click(target["x"], target["y"], click_count=tool.clicks)
        if is_there(page, "__opened", used, begin, GESTURE_PATIENCE):
            yield {"box": target["id"], "cpu": used.cpu() - begin, "clock": page.evaluate("() => window.__opened")}
        else:
            yield {"box": target["id"], "missed": True}


def at_rest(page: Page, tool: Tool) -> dict[str, Any]:
    """What can be clicked, once nothing moves any more."""
    seen: dict[str, Any] = {}
    for _ in range(LOOKS):
        before, seen = seen, page.evaluate(TARGETS.format(boxes=tool.boxes), tool.surface)
        if seen == before:
            break
        page.wait_for_timeout(400)
    return seen
