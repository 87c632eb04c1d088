"""MetricPanel in JupyterLab: values come while the kernel trains, and what is chosen there reaches Python."""

import json

from browser.fixtures import in_shared_page
from browser.graph import ITEMS, GraphPage
from browser.graph import ROOT as GRAPH
from browser.hostile import PAYLOADS, assert_harmless
from browser.metrics import DISCONNECTED, FLOOD, KERNEL, READY, ROOT, MetricsPage, assert_final_state
from browser.page import NotebookPage

SETUP = """
%matplotlib inline
import pathlib, time
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())], nn.Linear(16, 1))
monitor = mk.Monitor(model)
panel, graph = mk.MetricPanel(monitor), mk.ModelGraph(model)
panel.link(graph)
panel.color(graph, "OutputSndNorm")
stop = pathlib.Path("stop")
"""

# the panel is shown by the cell that trains: the kernel hears nothing from the page until the cell has ended
TRAIN = """
display(panel, graph)
plt.plot([1, 2, 3])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step, end = 0, time.time() + 120
with monitor:
    while not stop.exists() and time.time() < end:
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log({"loss": loss.item()})
        monitor.track(step)
        step += 1
        time.sleep(0.02)
        if step % 10 == 0:
            print(step)
plt.title("trained")
"""
FIGURE = "image/png"
WIDGET = "application/vnd.jupyter.widget-view+json"
THREADS = "[thread.name for thread in __import__('threading').enumerate()].count('modulekg-metrics')"
COMMS = "len(__import__('comm').get_comm_manager().comms)"
LINEARS = ["0", "2", "4", "6", "8"]
OUTPUT = f"Object.fromEntries({ITEMS}.map(item => [item.id, item.fill]))"


@in_shared_page
def test_a_training_is_watched_and_questioned_while_its_cell_runs(notebook: NotebookPage) -> None:
    stop = notebook.server.notebooks / "stop"
    stop.unlink(missing_ok=True)
    notebook.open([SETUP, TRAIN])
    notebook.run(0)
    notebook.traffic.clear()
    panel, graph = MetricsPage(notebook), GraphPage(notebook)
    panel.start(1)
    panel.wait_for_points(1)
    first = panel.points()
    panel.wait_for_points(first + 20)

    panel.choose("metric-select", "OutputSndNorm")
    panel.wait_for_ticked(LINEARS)
    panel.row("2").locator("input").click()
    panel.wait_for_ticked(["0", "4", "6", "8"])
    panel.choose("metric-view", "heatmap")
    panel.wait_until_painted(".mkg-metric-stage canvas")
    panel.choose("metric-view", "lines")
    panel.wait_until_painted(".mkg-metric-stage canvas")

    panel.find(".mkg-metric-legend-item").first.click()
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath === '0'")
    graph.find('[role=treeitem][data-mkg-path="6"]').click()
    panel.wait_for_selected("6")
    notebook.wait_for(f"() => new Set({LINEARS}.map(path => {OUTPUT}[path])).size >= 4")
    assert panel.is_busy

    notebook.screenshot("metric-panel-busy")
    stop.touch()
    notebook.wait_for_kernel()
    check_what_python_has(notebook, panel)
    check_the_outputs(notebook)
    seqs = [update["seq"] for update in panel.updates()]
    assert seqs == list(range(1, len(seqs) + 1))
    notebook.screenshot("metric-panel")


def check_what_python_has(notebook: NotebookPage, panel: MetricsPage) -> None:
    """The choices that were made while the kernel was busy, and all values as they are on the page."""
    notebook.wait_for_value("panel.metric", "OutputSndNorm")
    notebook.wait_for_value("[panel.selected, graph.selected]", ["6", "6"])
    notebook.wait_for_value("[panel.modules, panel.view]", [["0", "4", "6", "8"], "lines"])
    steps = notebook.value("step")
    panel.wait_for_points(4 * steps)
    values = "{m: v['OutputSndNorm'] for m, v in monitor.get_output().items() if m in '0468' and m}"
    drawn: dict[str, dict[str, float]] = {}
    for row in panel.drawn():
        drawn.setdefault(row["module"], {})[row["step"]] = float(row["value"])
    assert drawn == notebook.value(values)
    assert set(drawn["6"]) == {str(step) for step in range(steps)}
    notebook.wait_for_value(
        "graph.overlay == {m: v['OutputSndNorm'][step - 1] for m, v in monitor.get_output().items() if m}", True
    )
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-metric-status').textContent.includes('ended')")


def check_the_outputs(notebook: NotebookPage) -> None:
    """The cell has its own outputs, and no others: what it printed, and its figure once."""
    outputs = notebook.outputs(1)
    printed = "".join(out["text"] for out in outputs if out["output_type"] == "stream")
    assert printed.split() == [str(step) for step in range(10, notebook.value("step") + 1, 10)]
    assert [out["output_type"] for out in outputs if out["output_type"] not in ("stream", "display_data")] == [
        "execute_result"
    ]
    # a widget brings a picture of itself along
    figures = [out for out in outputs if FIGURE in out.get("data", {}) and WIDGET not in out["data"]]
    assert len(figures) == 1


def test_a_flood_a_reload_and_a_restart(notebook: NotebookPage) -> None:
    notebook.open([FLOOD, "display(panel)\ncount = count or flood(5)"])
    notebook.run(0)
    panel = MetricsPage(notebook)
    notebook.traffic.clear()
    panel.start(1)
    notebook.wait_for_kernel()
    assert_final_state(panel, seconds=5)
    assert len(panel.updates()) <= 20 * 7
    assert sum(update["reset"] for update in panel.updates()) == 1

    # the page has lost everything, and asks for it
    notebook.command("docmanager:save")
    notebook.page.reload()
    notebook.wait_for(READY)
    notebook.wait_for_kernel()
    assert_final_state(panel, seconds=15)

    # a second run replaces the panel, with its thread and its comms
    comms = notebook.value(COMMS)
    notebook.execute("panel = mk.MetricPanel(run)")
    notebook.run(1, until=READY)
    assert notebook.value(THREADS) == 1
    assert notebook.value(COMMS) == comms
    assert notebook.page.locator(ROOT).count() == 1

    notebook.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    notebook.wait_for(DISCONNECTED, timeout=2000)
    assert "disconnected" in panel.find(".mkg-status").inner_text().lower()
    panel.choose("metric-view", "heatmap")
    panel.wait_until_painted(".mkg-metric-stage canvas")


HOSTILE = """
import numpy as np
from IPython.display import display
import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.readings import Slot, flat
from modulekg_widgets.engine.monitoring.run import Alert, Run

payloads = {payloads!r}
run = Run(payloads[0])
for step in range(3):
    for text in payloads:
        for module, metric, value in (
            (text, "Norm", 1.0 + step),
            ("module", text, 2.0),
            (text, "Histogram", dict(low=0.0, high=1.0, total=3.0, sampled=3.0, counts=np.array([1.0, 2.0]))),
        ):
            form, numbers = flat(value)
            slot = run.history.slot_number(Slot(module, metric, 0, "train", form))
            run.history.append(step, [slot], np.array(numbers))
run.alerts = [Alert(text, text, 1, 2.0, text) for text in payloads]
panel = mk.MetricPanel([run, run], metric="Norm", modules=payloads)
"""


# chooses every metric, and gives the titles that are shown then
EVERY_METRIC = f"""async texts => {{
  const select = document.querySelector('{ROOT} .mkg-metric-select');
  const title = document.querySelector('{ROOT} .mkg-metric-title');
  const seen = [];
  for (const text of texts) {{
    select.value = text;
    select.dispatchEvent(new Event('change'));
    for (let frame = 0; frame < 100 && title.textContent !== text; frame += 1) {{
      await new Promise(resolve => requestAnimationFrame(resolve));
    }}
    seen.push(title.textContent);
  }}
  return seen;
}}"""


@in_shared_page
def test_hostile_names_are_shown_as_they_are(notebook: NotebookPage) -> None:
    notebook.open([HOSTILE.format(payloads=PAYLOADS), "display(panel)"])
    notebook.run(0)
    notebook.run(1, until=READY)
    panel = MetricsPage(notebook)
    address = notebook.page.url
    panel.wait_for_points(2 * 3 * len(PAYLOADS))
    for view in ("lines", "heatmap", "histogram"):
        notebook.execute(f"panel.metric, panel.view = {'Histogram' if view == 'histogram' else 'Norm'!r}, {view!r}")
        notebook.wait_for(f"view => document.querySelector('{ROOT} .mkg-metric-view').value === view", view)
        panel.wait_until_painted(".mkg-metric-stage canvas")
        listed = panel.find(".mkg-metric-modules li").all_inner_texts()
        assert {text.strip() for text in PAYLOADS} <= {text.strip() for text in listed}, view
        box = panel.find(".mkg-metric-stage").bounding_box()
        assert box is not None
        notebook.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        notebook.pause(100)
        assert_harmless(notebook.page, ROOT, address)
    options = panel.find(".mkg-metric-select option").evaluate_all("all => all.map(one => one.value)")
    assert set(PAYLOADS) <= set(options)
    alerts = json.dumps(panel.find(".mkg-metric-alerts").all_text_contents())
    assert [text for text in PAYLOADS if json.dumps(text)[1:-1] not in alerts] == []
    notebook.execute("panel.view, panel.selected = 'lines', payloads[-1]")
    panel.wait_for_selected(PAYLOADS[-1])
    assert notebook.page.evaluate(EVERY_METRIC, PAYLOADS) == PAYLOADS
    assert_harmless(notebook.page, ROOT, address)
    assert_harmless(notebook.page, ".jp-OutputArea-output, .mkg-tooltip, .mkg-menu", address)
    notebook.screenshot("metric-panel-hostile")
