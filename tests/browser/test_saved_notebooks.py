"""A notebook that was run and saved, in a new server without the kernel: pictures of the widgets, and how to go on."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser

from browser.hostile import assert_harmless
from browser.lab import JupyterServer, code_notebook
from browser.page import KERNEL_IDLE, NOTEBOOK_READY, NotebookPage, WatchedPage
from cases.payloads import PAYLOADS

SETUP = """
import ipywidgets, torch
from torch import nn
import modulekg_widgets as mk
x = torch.zeros(1, 2)
model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
kg = mk.KnowledgeGraph()
kg.add_model(model, name="net")
mk.trace(model, x)  # which imports what it needs: on a slow machine a later one would show its progress
monitor = mk.Monitor(model, {{nn.Linear: ["WeightNorm"]}})
with monitor:
    for step in range(3):
        model(x).sum().backward()
        monitor.track(step)
payloads = {payloads!r}
hostile = type(payloads[0], (nn.Sequential,), {{}})()
for text in payloads:
    hostile._modules[text] = type(text, (nn.Linear,), {{}})(2, 2)
"""
SHOWN = [
    "mk.ModelGraph(model, x)",
    "mk.MaskEditor(model, x)",
    "mk.MetricPanel(monitor)",
    "mk.ForwardPlayer(model, x)",
    "mk.KnowledgeExplorer(kg)",
    "mk.Workbench(model, x, monitor=monitor)",
    "mk.ModelGraph(hostile)",
    "ipywidgets.HBox([mk.ModelGraph(model, x), ipywidgets.VBox([mk.MaskEditor(model, x), ipywidgets.IntSlider()])])",
    "ipywidgets.Tab([mk.MetricPanel(monitor), mk.ModelGraph(hostile)], titles=payloads[:2])",
    "ipywidgets.interactive(lambda n: display(mk.ModelGraph(model)), n=3)",
    "output = ipywidgets.Output()\nwith output:\n    display(mk.ForwardPlayer(model, x))\noutput",
]
OTHER = "ipywidgets.HBox([ipywidgets.IntSlider(7)])"  # has no picture, and is none of our business
CELLS = [SETUP.format(payloads=PAYLOADS), *SHOWN, OTHER]
WORDS = "Static preview. Run the cell for the interactive view."
FAILURES = ("Error displaying widget", "could not be displayed", "Loading widget", "Javascript Error")
LIVE = "() => document.querySelector('.mkg-model-graph[data-mkg-ready=true]') !== null"

# of each output: whether its picture is seen, what kind it is, and the words that are seen with it
LOOK = """selector => Array.from(document.querySelectorAll(selector), output => {
  const image = output.querySelector('img');
  const box = image?.getBoundingClientRect();
  const isLarge = box?.width > 50 && box?.height > 50;
  return {
    isSeen: Boolean(image?.complete && image.naturalWidth > 0 && isLarge && image.checkVisibility()),
    kind: image?.src.split(/[;,]/)[0] ?? '',
    text: output.innerText,
  };
})"""


@dataclass(frozen=True)
class Host:
    """A server's page of a notebook, and where the outputs are in it."""

    application: str
    address: str
    outputs: str
    is_ready: str
    run: str


OPEN = "options => window.jupyterapp.commands.execute('docmanager:open', options).then(() => {})"
LAB_RUN = """index => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  void window.jupyterapp.commands.execute('notebook:run-cell');
}"""
HOSTS = [
    Host("jupyterlab", "lab/tree", ".jp-OutputArea-output", KERNEL_IDLE, LAB_RUN),
    Host("notebook", "notebooks", ".jp-OutputArea-output", KERNEL_IDLE, LAB_RUN),
    Host(
        "nbclassic",
        "nbclassic/notebooks",
        ".output_subarea",
        "() => window.Jupyter?.notebook?.kernel?.info_reply?.status === 'ok'",
        "index => Jupyter.notebook.execute_cells([index])",
    ),
]


@pytest.fixture(scope="module")
def folder(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where a server, which has ended, has run and saved a notebook of all widgets; and a copy that nobody trusts."""
    place = tmp_path_factory.mktemp("saved")
    server = JupyterServer(place)
    page = NotebookPage(browser, server)
    try:
        page.open(content=code_notebook(CELLS))
        page.command("notebook:run-all-cells")
        page.assert_no_error_outputs()
        page.wait_for(LIVE)
        page.command("docmanager:save")
        name = page.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
    finally:
        page.close()
        server.stop()
    file = server.notebooks / name
    content = nbformat.read(file, nbformat.NO_CONVERT)
    assert "widgets" not in content.metadata  # the state is not saved, and need not be
    shutil.copy(file, server.notebooks / "alone.ipynb")  # trusted for what is in it
    file.rename(server.notebooks / "saved.ipynb")
    nbformat.write(tampered(content), server.notebooks / "untrusted.ipynb")
    return place


def tampered(content: Any) -> Any:
    """The notebook with scripts in its pictures."""
    changed = copy.deepcopy(content)
    for cell in changed.cells[1:]:
        for output in cell.outputs:
            if "image/svg+xml" in output.data:
                script = f"<script>window.__xss = 1</script>{PAYLOADS[0]}</svg>"
                output.data["image/svg+xml"] = "".join(output.data["image/svg+xml"]).replace("</svg>", script)
    return changed


@pytest.fixture(
    scope="module",
    params=[HOSTS[0], *(pytest.param(host, marks=pytest.mark.nightly) for host in HOSTS[1:])],
    ids=[host.application for host in HOSTS],
)
def opened(
    request: pytest.FixtureRequest, browser: Browser, folder: Any, require: Callable[..., None]
) -> Iterator[Callable[[str], tuple[Host, WatchedPage]]]:
    """Opens a notebook of the folder in a new server."""
    host: Host = request.param
    require(host.application)
    server = JupyterServer(folder, host.application)
    pages: list[WatchedPage] = []

    def open_notebook(name: str) -> tuple[Host, WatchedPage]:
        page = WatchedPage(browser, server, viewport={"width": 1280, "height": 6000})  # all cells at once
        pages.append(page)
        page.page.goto(f"{server.url}/{host.address}/{name}?reset")
        page.wait_for(host.is_ready)
        return host, page

    try:
        yield open_notebook
    finally:
        for page in pages:
            page.close()
        server.stop()


def wait_for_words(page: WatchedPage, host: Host, count: int) -> None:
    page.wait_for(
        """([selector, words, count]) => [...document.querySelectorAll(selector)]
          .filter(output => output.innerText.includes(words)).length === count""",
        [host.outputs, WORDS, count],
    )


def run_the_first(page: WatchedPage, host: Host) -> None:
    """Runs the cell of the first widget, and what it needs."""
    page.page.evaluate(host.run, 0)
    page.page.evaluate(host.run, 1)
    page.wait_for(LIVE, timeout=60_000)  # where the kernel is no fork it has torch to import


@pytest.mark.gate
def test_the_pictures_are_there_and_a_run_makes_them_live(opened: Any) -> None:
    host, page = opened("saved.ipynb")
    wait_for_words(page, host, len(SHOWN))
    page.wait_for(
        "([selector, count]) => document.querySelectorAll(selector).length === count", [host.outputs, len(SHOWN) + 1]
    )
    *ours, other = page.page.evaluate(LOOK, host.outputs)
    page.screenshot(f"saved-notebook-{host.application}")
    assert [look["isSeen"] for look in ours] == [True] * len(SHOWN)
    assert {look["kind"] for look in ours} == {"data:image/svg+xml"}
    assert {look["text"].strip() for look in ours} == {WORDS}
    assert other["kind"] == ""
    assert WORDS not in other["text"]
    assert page.page.evaluate("() => window.__xss ?? null") is None

    run_the_first(page, host)
    wait_for_words(page, host, len(SHOWN) - 1)  # the others have not been run
    page.screenshot(f"saved-notebook-{host.application}-live")
    assert page.trouble.dialogs == []
    assert [text for text in page.trouble.page_errors if "mkg" in text or "modulekg" in text] == []


def test_an_untrusted_copy_shows_pictures_that_run_nothing(opened: Any) -> None:
    host, page = opened("untrusted.ipynb")
    page.wait_for(
        "([selector, count]) => document.querySelectorAll(`${selector} img`).length === count",
        [host.outputs, len(SHOWN)],
    )
    page.pause(1000)
    looks = page.page.evaluate(LOOK, host.outputs)
    page.screenshot(f"untrusted-notebook-{host.application}")
    assert [look["isSeen"] for look in looks[: len(SHOWN)]] == [True] * len(SHOWN)
    assert {look["kind"] for look in looks[: len(SHOWN)]} == {"data:image/png"}
    assert not [look["text"] for look in looks if any(failure in look["text"] for failure in FAILURES)]
    assert_harmless(page.page, host.outputs, page.page.url)
    assert page.traffic.sent("execute_request") == []
    assert {message.content["target_name"] for message in page.traffic.sent("comm_open")} <= {"jupyter.widget.control"}
    run_the_first(page, host)
    assert page.page.locator(f"{host.outputs} img").count() == len(SHOWN) - 1


@pytest.mark.nightly
@pytest.mark.parametrize("opened", HOSTS[:1], ids=["jupyterlab"], indirect=True)
def test_without_any_kernel_the_pictures_are_there(opened: Any) -> None:
    """The widget manager waits for a kernel; the reader does not."""
    host, page = opened("untrusted.ipynb")
    none = {"shouldStart": False, "canStart": False, "autoStartDefault": False}
    page.page.evaluate(OPEN, {"path": "alone.ipynb", "kernelPreference": none})
    page.wait_for(NOTEBOOK_READY, "alone.ipynb")
    wait_for_words(page, host, len(SHOWN))
    assert page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session === null")
    page.screenshot("saved-notebook-no-kernel")
