"""Colab and VS Code imitated: their loaders, in frames of another origin, before a real kernel.

host_pages/notebook.js is the notebook's page, which talks to the kernel; host_pages/manager.js shows outputs, with what
host_pages/colab.js or host_pages/vscode.js has for a loader.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from browser import graph as graphs
from browser import masks, metrics
from browser.graph import GraphPage
from browser.masks import MasksPage
from browser.metrics import MetricsPage
from browser.page import TIMEOUT, KernelError, NotebookPage
from modulekg_widgets.widgets.hosts.colab import installed_front_end

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page, Request, WebSocket

    from browser.lab import JupyterServer

PAGES = Path(__file__).parent / "host_pages"
REPOSITORY = Path(__file__).parents[2]
JAVASCRIPT, MARKUP = "text/javascript", "text/html; charset=utf-8"
NOTEBOOK = "/notebook-of-another-host"  # on the Jupyter server, whose websockets hear no other origin

# ipywidgets has @jupyter-widgets/base within its module for classic notebooks, beside what hosts need not have
EXPORTED = """
DOMWidgetModel DOMWidgetView WidgetModel WidgetView LayoutModel LayoutView StyleModel StyleView ViewList
JupyterLuminoWidget JupyterLuminoPanelWidget PROTOCOL_VERSION JUPYTER_WIDGETS_VERSION unpack_models pack_models
put_buffers remove_buffers resolvePromisesDict reject uuid assign difference isEqual isObject isSerializable shims
"""
BEFORE_BASE = f"""
window.Jupyter = {{ version: "6.5.0" }};
window.requirejs = Object.assign(() => {{}}, {{ config: () => {{}} }});
window.define = (_, factory) => {{
  const all = factory({{ id: "base", uri: location.href }});
  window.base = Object.fromEntries({EXPORTED.split()}.map(name => [name, all[name]]));
}};
"""
AFTER_BASE = "delete window.Jupyter; delete window.define; delete window.requirejs;"

SETUP = """
import torch
from torch import nn
from IPython.display import display
import modulekg_widgets as mk
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
x = torch.zeros(1, 4)
graph = mk.ModelGraph(model, x)
monitor = mk.Monitor(model, {nn.Linear: ["OutputSndNorm"]})
panel = mk.MetricPanel(monitor, modules=["0", "2"])
editor = mk.MaskEditor(model, x)

def train(steps):
    with monitor:
        for step in range(steps):
            model(torch.randn(8, 4)).sum().backward()
            monitor.track(step)
"""
PARAMETERS = 4 * 8 + 8 + 8 * 2 + 2
PER_UNIT = 4 + 1 + 2  # of the hidden units


def bundle() -> bytes:
    """The AMD module of all widgets, as the network has it once it is published."""
    published = REPOSITORY / "js" / "dist" / "index.js"
    return published.read_bytes() if published.is_file() else installed_front_end()


class FileServer:
    """A server on loopback of exactly these files; it remembers what was asked for, and what of it in vain."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, bytes]] = {"/favicon.ico": ("image/x-icon", b"")}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                kind, content = outer.files.get(self.path, ("text/plain", b""))
                self.send_response(200 if self.path in outer.files else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Access-Control-Allow-Origin", "*")  # as content delivery networks do
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """pytest's output is no log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def put(self, path: str, content: bytes | str, kind: str = JAVASCRIPT) -> str:
        """Serve a file; its address."""
        self.files[path] = (kind, content.encode() if isinstance(content, str) else content)
        return self.url + path

    @property
    def missed(self) -> list[str]:
        return [path for path in self.asked if path not in self.files]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass(frozen=True)
class Host:
    """What an imitated host does in a way of its own."""

    script: str  # its file in host_pages
    sandbox: str  # of the frames with outputs
    policy: str = ""  # of their content
    libraries: tuple[bytes, ...] = ()
    is_frame_per_output: bool = False
    manager: str | None = None  # what an output has to say manages its widget


class HostPage(NotebookPage):
    """A notebook in a host: `cell` runs code and shows its outputs, `execute` runs it beside all cells."""

    def __init__(self, browser: Browser, server: JupyterServer, network: FileServer, host: Host) -> None:
        super().__init__(browser, server)
        self.network, self.host = network, host
        self.requests: list[str] = []
        self.kernel = server.request("POST", "/api/kernels")["id"]
        self.sources: Callable[[str, str], str | None] = lambda module, version: None
        self.page.expose_function("widgetSource", lambda module, version: self.sources(module, version))
        notebook = self._notebook()
        self.page.route(server.url + NOTEBOOK, lambda route: route.fulfill(body=notebook, content_type=MARKUP))
        network.put("/frame.html", self._frame(), MARKUP)
        self.context.grant_permissions(["local-network-access"])  # which a page that no server has sent lacks
        self.page.goto(server.url + NOTEBOOK)
        self.page.evaluate("() => window.host.opened")

    def _on_websocket(self, socket: WebSocket) -> None:
        """Its messages are in a format of their own, and are not counted."""

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if request.url.startswith(self.network.url):
            return
        super()._on_request(request)

    def _notebook(self) -> str:
        config = {
            "kernel": self.kernel,
            "frame": f"{self.network.url}/frame.html",
            "sandbox": self.host.sandbox,
            "isFramePerOutput": self.host.is_frame_per_output,
            "manager": self.host.manager,
        }
        style = "iframe { display: block; width: 100%; border: 0; margin: 8px 0 }"
        script = f"const config = {json.dumps(config)};\n" + (PAGES / "notebook.js").read_text("utf-8")
        return f"<!doctype html><style>{style}</style><body><script>{script}</script>"

    def _frame(self) -> str:
        """The page of outputs: base, what the host has of libraries, and the loader."""
        base = files("widgetsnbextension") / "static" / "extension.js"
        network = f"const cdn = '{self.network.url}/npm';"
        own = [(PAGES / name).read_bytes() for name in ("manager.js", self.host.script)]
        scripts = [BEFORE_BASE, base.read_bytes(), AFTER_BASE, *self.host.libraries, network, *own]
        names = [f"/host/{number}.js" for number in range(len(scripts))]
        for name, script in zip(names, scripts, strict=True):
            self.network.put(name, script)
        policy = f'<meta http-equiv="Content-Security-Policy" content="{self.host.policy}">' if self.host.policy else ""
        elements = "".join(f'<script src="{name}"></script>' for name in names)
        return f'<!doctype html><meta charset="utf-8">{policy}<title>outputs</title><body>{elements}</body>'

    def cell(self, code: str) -> dict[str, Any]:
        """Run a cell, whose outputs are shown below those of the others; what it printed."""
        done = self.page.evaluate("code => window.host.run(code, true)", code)
        if done["error"] is not None:
            raise KernelError(done["error"])
        return done

    def execute(self, code: str) -> str:
        done = self.page.evaluate("code => window.host.run(code, false)", code)
        if done["error"] is not None:
            raise KernelError(done["error"])
        return done["stdout"]

    def asked_of_network(self) -> list[str]:
        """What the loader asked for, without the host's own files."""
        own = ("/frame.html", "/host/", "/favicon.ico")
        return [path for path in self.network.asked if not path.startswith(own)]

    def output(self, number: int) -> Output:
        """The frame of an output, once it is there."""
        element = self.page.locator("iframe").nth(number).element_handle()
        frame = element.content_frame()
        assert frame is not None
        return Output(self, frame)

    def close(self) -> None:
        super().close()
        self.server.request("DELETE", f"/api/kernels/{self.kernel}")


class FrameView:
    """A frame, for the helpers that drive a widget in a page."""

    def __init__(self, page: Page, frame: Frame) -> None:
        self.frame = frame
        of_page = {name: getattr(page, name) for name in ("mouse", "keyboard", "expect_download")}
        self.page = SimpleNamespace(locator=frame.locator, evaluate=frame.evaluate, **of_page)

    def wait_for(self, predicate: str, argument: Any = None, timeout: float = TIMEOUT) -> None:
        # Chromium draws no frame of another origin that is out of sight
        self.frame.frame_element().scroll_into_view_if_needed()
        self.frame.wait_for_function(predicate, arg=argument, timeout=timeout)

    def at_rest(self, script: str, argument: object) -> tuple[float, float]:
        """A point in the frame that a script finds, as a point of the page."""
        found = SimpleNamespace(page=self.frame)
        x, y = NotebookPage.at_rest(found, script, argument)  # type: ignore[arg-type]
        box = self.frame.frame_element().bounding_box()
        assert box is not None
        return box["x"] + x, box["y"] + y


class Output(FrameView):
    """A frame with outputs of a notebook."""

    def __init__(self, notebook: HostPage, frame: Frame) -> None:
        super().__init__(notebook.page, frame)
        self.notebook = notebook
        self.value, self.wait_for_value = notebook.value, notebook.wait_for_value


def use(graph: Output, panel: Output, editor: Output) -> None:
    """Click on the widgets of `SETUP`: Python has it; and what Python sets is seen."""
    notebook = graph.notebook
    shown = GraphPage(graph)  # type: ignore[arg-type]
    graph.wait_for(graphs.READY)
    shown.click("2")
    shown.wait_for_selection("2")
    notebook.execute("graph.selected = '0'")
    shown.wait_for_selected_node("0")

    values = MetricsPage(panel)  # type: ignore[arg-type]
    panel.wait_for(metrics.READY)
    values.find(".mkg-metric-stage").scroll_into_view_if_needed()  # what is not seen is not drawn
    notebook.execute("train(20)")
    values.wait_for_points(40)
    values.row("2").locator("input").click()
    notebook.wait_for_value("panel.modules", ["0"])
    notebook.execute("panel.modules = ['2']")
    values.wait_for_ticked(["2"])

    mask = MasksPage(editor)  # type: ignore[arg-type]
    editor.wait_for(masks.READY)
    mask.find(".mkg-mask-rows").scroll_into_view_if_needed()
    notebook.execute("editor.plan = mk.plan(editor.graph, per_axis={'0': [1, 5]})")
    mask.wait_for_after("params", PARAMETERS - 2 * PER_UNIT)
    mask.click("0.out", 5)
    notebook.wait_for_value(masks.DROPPED, {"0.out": [1]})
    mask.button("cut").click()
    mask.button("confirm").click()
    notebook.wait_for_value("[model[0].out_features, model(x).shape[1]]", [7, 2])


@contextmanager
def opened(browser: Browser, server: JupyterServer, host: Host) -> Iterator[HostPage]:
    """A notebook in `host`, and a network for it; in the end all must have been well."""
    network = FileServer()
    try:
        page = HostPage(browser, server, network, host)
        try:
            yield page
            page.assert_healthy()
            assert network.missed == []
        finally:
            page.close()
    finally:
        network.close()
