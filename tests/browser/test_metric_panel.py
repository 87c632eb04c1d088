"""MetricPanel in JupyterLab: values come while the kernel trains, and what is chosen there reaches Python."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from browser.fixtures import in_shared_page
from browser.graph import ITEMS, GraphPage
from browser.graph import ROOT as GRAPH
from browser.hostile import assert_harmless
from browser.metrics import DISCONNECTED, FLOOD, KERNEL, READY, ROOT, MetricsPage, assert_final_state
from browser.page import NotebookPage
from cases.payloads import PAYLOADS

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
@pytest.mark.gate
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
    panel.wait_for_state("Running")
    panel.wait_until_painted(".mkg-metric-card canvas")
    cards = panel.cards()
    assert cards[0] == "loss"
    assert {"OutputSndNorm", "WeightNorm"} < set(cards)
    notebook.screenshot("metric-panel-first-view")

    panel.find('[data-mkg-metric="OutputSndNorm"] .mkg-metric-card-stage').click()
    panel.find(".mkg-metric-back").wait_for()
    assert panel.find(".mkg-metric-title").inner_text() == "OutputSndNorm"
    panel.find(".mkg-metric-back").click()
    panel.wait_until_painted(".mkg-metric-card canvas")
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
    panel.wait_for_state("Ended")


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


@pytest.mark.nightly
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


LESSON = Path(__file__).parents[2] / "notebooks" / "05_training_dynamics.ipynb"

# the colors of the heat map's rows at a share of its width; each run has a heading
COLUMN = f"""([share, rows, headings]) => {{
  const canvas = document.querySelector('{ROOT} .mkg-metric-heatmap canvas');
  const [top, foot, heading] = [6, 34, 20];
  const height = (canvas.clientHeight - top - foot - headings * heading) / rows;
  const {{ data, width }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({{ length: rows }}, (_, row) => {{
    const above = heading * Math.ceil((row + 1) / rows * headings);
    const y = Math.floor((top + above + (row + 0.5) * height) * canvas.width / canvas.clientWidth);
    const at = 4 * (y * width + Math.round(share * width));
    return [...data.slice(at, at + 3)];
  }});
}}"""

BROKEN = """
import numpy as np
from IPython.display import display
import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.readings import Slot
from modulekg_widgets.engine.monitoring.run import Run

rng, run = np.random.default_rng(0), Run("one broken layer")
run.history.append(0, [run.history.slot_number(Slot("", "loss", 0, "train"))], np.array([1.0]))
slots = [run.history.slot_number(Slot(f"blocks.{number}", "OutputMean", 0, "train")) for number in range(61)]
for step in range(2000):
    values = np.linspace(-1, 1, 61) + 0.02 * rng.normal(size=61)
    values[37] = 400 + step
    run.history.append(step, slots, values)
panel = mk.MetricPanel(run, view="heatmap")
"""


@in_shared_page
def test_one_broken_layer_of_many_is_seen_at_once(notebook: NotebookPage) -> None:
    notebook.open([BROKEN, "display(panel)"])
    notebook.run(0)
    notebook.run(1, until=READY)
    panel = MetricsPage(notebook)
    panel.wait_for_points(61 * 1000)
    panel.wait_until_painted(".mkg-metric-stage canvas")
    assert panel.find(".mkg-metric-title").inner_text() == "OutputMean"  # a loss would be one stripe
    assert panel.find(".mkg-metric-module-count").inner_text() == "61 of 61 modules shown"
    assert len(panel.ticked()) == 61
    words = panel.find(".mkg-metric-legend-words").inner_text()
    assert words.startswith("Linear color scale, up to the 98th percentile; ")
    assert words.endswith(" values outside")
    assert panel.find(".mkg-legend-key").filter(has_text="above the colors").is_visible()
    # the other layers have colors of their own
    colors = notebook.page.evaluate(COLUMN, [0.5, 61, 0])
    assert len({tuple(color) for color in colors}) >= 30

    panel.choose("metric-select", "OutputMean")
    panel.choose("metric-view", "lines")
    panel.wait_until_painted(".mkg-metric-stage canvas")
    ticked = panel.ticked()
    assert len(ticked) == 8
    assert "blocks.37" in ticked
    assert panel.find(".mkg-metric-module-count").inner_text() == "8 of 61 modules shown"
    item = panel.find(".mkg-metric-legend-item").filter(has_text="blocks.37").inner_text()
    assert "(+2,400)" in item  # the reason
    head = panel.find(".mkg-metric-legend-head").inner_text()
    assert head == "8 most unusual of 61 modules (difference from the median)"

    panel.choose("metric-view", "histogram")
    code = panel.find(".mkg-metric-waiting code").filter(has_text="Histogram").inner_text()
    training = "with monitor:\n    model(torch.ones(2, 2)).sum().backward()\n    monitor.track(0)"
    notebook.execute(f"import torch\nmodel = torch.nn.Linear(2, 2)\n{code}\n{training}")
    assert notebook.value("sorted({name for names in monitor.get_output().values() for name in names})") == [
        "OutputHistogram",
        "WeightHistogram",
    ]


@in_shared_page
def test_the_lesson_of_the_notebook_is_on_the_screen_when_it_has_run(notebook: NotebookPage) -> None:
    """Vanishing gradients, in the notebook on training: nothing is clicked."""
    cells = [cell.source for cell in nbformat.read(LESSON, as_version=4).cells if cell.cell_type == "code"]
    shown = next(number for number, cell in enumerate(cells) if "monitors, view=" in cell)
    needed = [cell for cell in cells[: shown + 2] if not re.search(r"\bnet\b|frame\(", cell)]  # section 1 goes
    notebook.open(needed)
    for cell in range(len(needed)):
        notebook.run(cell)
    panel = MetricsPage(notebook)
    panel.find(".mkg-metric-stage").scroll_into_view_if_needed()
    panel.wait_until_painted(".mkg-metric-stage canvas")
    panel.wait_for_points(60 * 40)
    assert panel.find(".mkg-metric-title").inner_text() == "OutputGradSndNorm"
    assert panel.find(".mkg-metric-module-count").inner_text() == "30 of 30 modules shown"
    assert panel.find(".mkg-metric-legend-words").inner_text().startswith("Log color scale")
    assert panel.find(".mkg-metric-log").is_checked()
    bright = [sum(color) for color in notebook.page.evaluate(COLUMN, [0.9, 60, 2])]
    plain, residual = bright[:30], bright[30:]
    assert plain[0] < 0.5 * plain[-1]  # dark at the first layer
    assert plain[0] < 0.5 * min(residual)


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
    panel.wait_for_points(2 * 3 * min(8, len(PAYLOADS)))  # no more lines than colors
    for view in ("grid", "lines", "heatmap", "histogram"):
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


OPENING = """
import torch
from torch import nn
import modulekg_widgets as mk
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()  # frozen, and trained in eval mode

def trained(metrics):
    monitor = mk.Monitor(model, {"Linear": metrics})
    panel = mk.MetricPanel(monitor)
    with monitor:
        for step in range(5):
            model(torch.randn(3, 4)).sum().backward()
            monitor.track(step)
    return panel
"""


@in_shared_page
def test_a_panel_opens_on_what_has_values(notebook: NotebookPage) -> None:
    notebook.open([OPENING, "panel = trained(['WeightHistogram'])\ndisplay(panel)"])
    notebook.run(0)
    notebook.run(1, until=READY)
    panel = MetricsPage(notebook)
    panel.wait_until_painted(".mkg-metric-stage canvas")
    assert panel.find(".mkg-metric-title").inner_text() == "WeightHistogram"
    assert panel.find(".mkg-metric-view").input_value() == "histogram"
    assert not panel.find(".mkg-metric-waiting").is_visible()


@in_shared_page
def test_a_panel_draws_the_phase_that_has_values(notebook: NotebookPage) -> None:
    notebook.open([OPENING, "panel = trained(['OutputSndNorm', 'WeightNorm'])\ndisplay(panel)"])
    notebook.run(0)
    notebook.run(1, until=READY)
    panel = MetricsPage(notebook)
    for metric, phase in (("OutputSndNorm", "eval"), ("WeightNorm", "train"), ("OutputSndNorm", "eval")):
        panel.choose("metric-select", metric)
        panel.wait_for_points(10)
        assert {(row["metric"], row["phase"]) for row in panel.drawn()} == {(metric, phase)}
    panel.choose("metric-phase", "train")
    assert {row["phase"] for row in panel.drawn()} == {"eval"}  # there is no other, and its name says so
    assert "eval" in panel.find(".mkg-metric-legend").inner_text()
