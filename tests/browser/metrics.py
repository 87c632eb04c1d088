"""What a test does with a MetricPanel in a notebook page: choose, read what is drawn, start cells without waiting."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from browser.page import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ROOT = ".mkg-metric-panel"
PATIENCE = 15_000  # milliseconds
READY = f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"]') !== null"
DISCONNECTED = f"() => document.querySelector('{ROOT}.mkg-is-disconnected') !== null"

KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"

START = """index => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.deselectAll();
  notebook.activeCellIndex = index;
  void window.jupyterapp.commands.execute('notebook:run-cell');
}"""


# a training that logs more than anybody can look at: 10,000 values a second of 50 series
FLOOD = """
import time
import numpy as np
from IPython.display import display
import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run

run = Run("flood")
run.is_running = True
slots = [run.history.slot_number(Slot(f"layer{number}", "Norm", 0, "train")) for number in range(50)]
panel = mk.MetricPanel(run, modules=["layer7"])
count = 0

def flood(seconds, rate=10_000):
    start, count = time.monotonic(), len(run.history)
    first = count
    while (elapsed := time.monotonic() - start) < seconds:
        while count < first + elapsed * rate:
            run.history.append(count // 50, [slots[count % 50]], np.array([float(count)]))
            count += 1
        time.sleep(0.001)
    return count
"""


def last_of_flood(count: int) -> int:
    """The last value of layer7."""
    return next(number for number in range(count - 50, count) if number % 50 == 7)


def assert_final_state(panel: MetricsPage, seconds: float) -> None:
    """Within so many seconds the page shows the last value of the flood, and has the last of all series."""
    last = last_of_flood(panel.notebook.value("count"))
    panel.wait_for_last(last, timeout=1000 * seconds)
    (row,) = [row for row in panel.drawn() if row["value"] == str(last)]
    assert row["step"] == str(last // 50)
    assert row["module"] == "layer7"


class MetricsPage:
    """The one MetricPanel of a notebook page."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook
        self.page = notebook.page

    def start(self, index: int) -> None:
        """Run cell `index`, and return as soon as its panel is there."""
        self.page.evaluate(START, index)
        self.notebook.wait_for(READY)
        self.find(".mkg-metric-stage").scroll_into_view_if_needed()

    @property
    def is_busy(self) -> bool:
        """Whether a cell runs; the status of the kernel says "idle" after each answer that it hears meanwhile."""
        return "[*]:" in self.page.locator(".jp-Notebook .jp-InputPrompt").all_inner_texts()

    def find(self, selector: str) -> Locator:
        return self.page.locator(f"{ROOT} {selector}")

    def points(self) -> int:
        """How many points the page holds of the drawn series."""
        return int(self.page.locator(ROOT).get_attribute("data-mkg-points") or 0)

    def wait_for_points(self, least: int, timeout: float = PATIENCE) -> None:
        script = f"least => Number(document.querySelector('{ROOT}').dataset.mkgPoints) >= least"
        self.notebook.wait_for(script, least, timeout=timeout)

    def wait_for_last(self, value: float, timeout: float = PATIENCE) -> None:
        """Wait until the first drawn series ends with this value."""
        self.notebook.wait_for(
            f"value => Number(document.querySelector('{ROOT}').dataset.mkgLast) === value", value, timeout=timeout
        )

    def choose(self, control: str, value: str) -> None:
        """Choose in one of the selects: "metric-select", "metric-view" or "metric-phase"."""
        self.find(f".mkg-{control}").select_option(value)

    def cards(self) -> list[str]:
        """The metrics of the small charts, in their order."""
        return self.find(".mkg-metric-card-title").all_inner_texts()

    def wait_for_state(self, text: str) -> None:
        """Wait until the head says this of the runs, such as "Running"."""
        script = f"text => document.querySelector('{ROOT} .mkg-metric-state').textContent === text"
        self.notebook.wait_for(script, text, timeout=PATIENCE)

    def row(self, path: str) -> Locator:
        """The module in the list."""
        return self.find(f'.mkg-metric-modules li[data-mkg-path="{path}"]')

    def ticked(self) -> list[str]:
        return self.find(".mkg-metric-modules li:has(input:checked)").evaluate_all(
            "all => all.map(li => li.dataset.mkgPath)"
        )

    def wait_for_ticked(self, paths: list[str]) -> None:
        self.notebook.wait_for(
            f"""paths => Array.from(document.querySelectorAll('{ROOT} .mkg-metric-modules li:has(input:checked)'),
              li => li.dataset.mkgPath).join('|') === paths.join('|')""",
            paths,
            timeout=PATIENCE,
        )

    def open_tools(self) -> None:
        """Open the menu of tools, where the cell has no room for all of them."""
        opener = self.find(".mkg-more-opener")
        if opener.is_visible() and opener.get_attribute("aria-expanded") == "false":
            opener.click()

    def drawn(self) -> list[dict[str, str]]:
        """The rows of the CSV file that the panel saves: everything that is drawn."""
        self.open_tools()
        with self.page.expect_download() as download:
            self.find(".mkg-metric-csv").click()
        return list(csv.DictReader(download.value.path().read_text("utf-8-sig").splitlines()))

    def wait_for_selected(self, path: str) -> None:
        """Wait until the list marks this module, and no other, as the selected one."""
        self.notebook.wait_for(
            f"""path => Array.from(document.querySelectorAll('{ROOT} .mkg-metric-modules li[aria-current=true]'),
              li => li.dataset.mkgPath).join('|') === path""",
            path,
            timeout=PATIENCE,
        )

    def wait_until_painted(self, canvas: str) -> None:
        """Wait until a canvas has several colors."""
        self.notebook.wait_for(
            """selector => {
              const canvas = document.querySelector(selector);
              if (!canvas || canvas.width * canvas.height === 0) { return false; }
              const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
              return new Set(new Uint32Array(data.buffer)).size > 3;
            }""",
            f"{ROOT} {canvas}",
            timeout=PATIENCE,
        )

    def updates(self) -> list[dict[str, Any]]:
        """The messages of values that have come over the websocket since its traffic was cleared."""
        contents = [
            m.content for m in self.notebook.traffic.messages if m.kind == "comm_msg" and m.direction == "received"
        ]
        found = [content["data"].get("content") or {} for content in contents]
        return [content for content in found if content.get("kind") == "update"]
