"""A notebook in a browser page: run cells, ask the kernel, look at the page and at what it sent."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from browser.frames import Traffic
from browser.hostile import WATCH
from browser.lab import JupyterServer, code_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Request, WebSocket
    from playwright.sync_api import Error as PlaywrightError

TIMEOUT = 30_000  # milliseconds
VIEWPORT = {"width": 1280, "height": 900}
AT_REST = 4  # looks at a point that must agree

# what JupyterLab itself writes to the console of a healthy page
LAB_NOISE = re.compile(
    r"Failed to load resource: the server responded with a status of 404"  # optional files of Lab
    r"|\.well-known"
    r"|Download the React DevTools"
    r"|ResizeObserver loop"  # the browser's own remark that a resize was handled one frame later
    r"|Could not restore the debugger state: Canceled future"  # its debugger had asked the kernel that was restarted
)

# A splash that JupyterLab shows twice at a time (of its theme, of its layout) it removes twice: in a timer of its own,
# so the error is one frame deep. What a widget throws passes the extension's frames, or several of Lumino.
LAB_SPLASH = re.compile(r"\A[^\n]*Failed to execute 'removeChild'[^\n]*\n\s*at \S*/\w+_core\.\S*\s*\Z")

_numbers = itertools.count()

# the notebook in front, or the first where another tab is: a tab may take the focus late, once it has loaded
NOTEBOOK = """(() => {
  const shell = window.jupyterapp?.shell;
  const isNotebook = widget => Boolean(widget?.sessionContext && widget.content?.widgets);
  return isNotebook(shell?.currentWidget) ? shell.currentWidget : [...(shell?.widgets('main') ?? [])].find(isNotebook);
})()"""

KERNEL_IDLE = f"""() => {{
  const kernel = {NOTEBOOK}?.sessionContext.session?.kernel;
  return kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}}"""

NOTEBOOK_READY = """name => {
  const context = window.jupyterapp?.shell.currentWidget?.context;
  return context?.path === name && context.isReady;
}"""

# what JupyterLab itself still asks the kernel when the notebook goes, such as the debugger's state, becomes an error
CLOSED = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const isDone = 4;
  for (const future of panel.sessionContext.session.kernel._futures.values()) {
    if (!(future._status & isDone)) { return false; }
  }
  panel.dispose();
  return true;
}"""

EXECUTE = """async code => {
  const kernel = NOTEBOOK.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code, store_history: false, stop_on_error: false });
  const result = { text: '', error: null };
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream') { result.text += message.content.text; }
    if (message.header.msg_type === 'error') { result.error = message.content.traceback.join('\\n'); }
  };
  await future.done;
  return result;
}""".replace("NOTEBOOK", NOTEBOOK)

RUN_CELL = """async ([index, until, limit]) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const holds = until ? eval(until) : () => true;
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
  const begin = performance.now();
  let done = null, painted = null;
  const run = window.jupyterapp.commands.execute('notebook:run-cell').then(() => { done = performance.now() - begin; });
  while (done === null || painted === null) {
    await frame();
    if (painted === null && holds()) { painted = performance.now() - begin; }
    if (performance.now() - begin > limit) { return { done, painted, late: true }; }
  }
  await run;
  return { done, painted, late: false };
}"""


ALL_OUTPUTS = """() => Array.from(
  window.jupyterapp?.shell.currentWidget?.content.widgets ?? [], cell => cell.model.outputs?.toJSON() ?? []
)"""


class KernelError(AssertionError):
    """Code that a test ran in the notebook's kernel has failed there."""


@dataclass
class Trouble:
    """What no page may show."""

    page_errors: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    foreign_requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def clear(self) -> None:
        for texts in vars(self).values():
            texts.clear()


class WatchedPage:
    """A page in a browser context of its own that keeps all websocket traffic and all trouble."""

    def __init__(self, browser: Browser, server: JupyterServer, **context: Any) -> None:
        self.browser = browser
        self.server = server
        self.traffic = Traffic()
        self.trouble = Trouble()
        self.context = browser.new_context(**{"viewport": VIEWPORT, **context})
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self.page.add_init_script(f"({WATCH})()")
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_page_error)
        self.page.on("dialog", self._on_dialog)
        self.page.on("websocket", self._on_websocket)
        self.context.on("request", self._on_request)

    def _on_page_error(self, error: PlaywrightError) -> None:
        if not LAB_SPLASH.match(error.stack or ""):
            self.trouble.page_errors.append(str(error))
        print(f"error in the page: {error}\n{error.stack}")  # pytest shows it of a test that fails: who has thrown

    def _on_console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} {message.location.get('url', '')}"
        if message.type == "error" and not LAB_NOISE.search(text):
            self.trouble.console.append(text)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.trouble.dialogs.append(dialog.message)
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != urlsplit(self.server.url).netloc:
            self.trouble.foreign_requests.append(request.url)

    def _on_websocket(self, socket: WebSocket) -> None:
        if socket.url.partition("?")[0].endswith("/channels"):
            socket.on("framereceived", lambda frame: self.traffic.record("received", frame))
            socket.on("framesent", lambda frame: self.traffic.record("sent", frame))

    def wait_for(self, predicate: str, argument: Any = None, timeout: float = TIMEOUT) -> None:
        """Wait until the JavaScript function returns something true."""
        self.page.wait_for_function(predicate, arg=argument, timeout=timeout)

    def pause(self, milliseconds: float) -> None:
        """Let the page run on; for showing that something does not happen."""
        self.page.wait_for_timeout(milliseconds)

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the page in $MODULEKG_SCREENSHOTS or a temporary folder."""
        folder = Path(os.environ.get("MODULEKG_SCREENSHOTS") or Path(tempfile.gettempdir()) / "modulekg-screenshots")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    def at_rest(self, script: str, argument: object) -> tuple[float, float]:
        """A point that a script finds, once several looks at it agree, each a frame and more after the one before.

        JupyterLab scrolls to a cell some time after it was clicked, and on a busy machine a frame comes late.
        """
        seen = [self.page.evaluate(script, argument)]
        while len(seen) < AT_REST or any(point != seen[-1] for point in seen[-AT_REST:]):
            self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 80)))")
            seen.append(self.page.evaluate(script, argument))
        return seen[-1][0], seen[-1][1]

    def assert_healthy(self) -> None:
        """No error in the page, no dialog, no request to another host."""
        assert self.trouble == Trouble()

    def close(self) -> None:
        self.context.close()


class NotebookPage(WatchedPage):
    """A notebook open in JupyterLab; one page may show several, one after the other."""

    def __init__(self, browser: Browser, server: JupyterServer, **context: Any) -> None:
        super().__init__(browser, server, **context)
        self.has_lab = False
        self.workspace = ""  # of its own where the layout counts: pages that share one save theirs over it

    def open(self, cells: Sequence[str] = (), content: Any = None) -> NotebookPage:
        """Write a notebook of these code cells (or this content), open it and wait for its kernel."""
        name = f"notebook{next(_numbers)}.ipynb"
        self.server.write(name, code_notebook(cells) if content is None else content)
        if self.has_lab:
            self.command("docmanager:open", path=name)
        else:
            workspace = self.workspace and f"workspaces/{self.workspace}/"
            self.page.goto(f"{self.server.url}/lab/{workspace}tree/{name}?reset")
        self.wait_for(NOTEBOOK_READY, name)
        self.has_lab = True
        self.wait_for_kernel()
        return self

    def close_notebook(self) -> None:
        """Close the notebook's tab; the page stays, for the next notebook."""
        self.page.mouse.move(0, 0)
        self.wait_for(CLOSED)
        self.wait_for("() => document.querySelector('.jp-Notebook') === null")
        self.traffic.clear()

    def wait_for_kernel(self) -> None:
        self.wait_for(KERNEL_IDLE)

    def command(self, name: str, **arguments: Any) -> None:
        """Run one of JupyterLab's commands."""
        self.page.evaluate(
            "([name, a]) => window.jupyterapp.commands.execute(name, a).then(() => {})", [name, arguments]
        )

    def run(self, index: int, until: str | None = None, timeout: float = TIMEOUT) -> dict[str, float]:
        """Run cell `index`; milliseconds until it was `done` and until the JavaScript predicate held (`painted`)."""
        times = self.page.evaluate(RUN_CELL, [index, until, timeout])
        assert not times["late"], f"cell {index} is not done after {timeout:.0f} ms: {times}"
        self.assert_no_error_outputs()
        return times

    def outputs(self, index: int) -> list[dict[str, Any]]:
        return self.page.evaluate(
            "i => window.jupyterapp.shell.currentWidget.content.widgets[i].model.outputs.toJSON()", index
        )

    def output_area(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputArea")

    def execute(self, code: str) -> str:
        """Run code in the notebook's kernel, outside of any cell, and return what it printed."""
        result = self.page.evaluate(EXECUTE, code)
        if result["error"] is not None:
            raise KernelError(result["error"])
        return result["text"]

    def value(self, expression: str) -> Any:
        """The value of a Python expression in the notebook's kernel, by way of JSON."""
        return json.loads(self.execute(f"import json as _json; print(_json.dumps({expression}))"))

    def wait_for_value(self, expression: str, expected: Any, timeout: float = 5_000) -> None:
        """Wait until the Python expression has the expected value in the kernel."""
        found = self.value(expression)
        for _ in range(int(timeout / 50)):
            if found == expected:
                return
            self.pause(50)
            found = self.value(expression)
        assert found == expected

    def assert_no_error_outputs(self) -> None:
        cells = self.page.evaluate(ALL_OUTPUTS)
        errors = ["\n".join(out["traceback"]) for cell in cells for out in cell if out["output_type"] == "error"]
        assert not errors, "\n".join(errors)

    def assert_healthy(self) -> None:
        self.assert_no_error_outputs()
        super().assert_healthy()
