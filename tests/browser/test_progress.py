"""Long work in JupyterLab: its progress stands below the cell from one second on, and a click cancels it."""

from __future__ import annotations

from browser.page import NotebookPage
from modulekg_widgets.widgets.shared.progress import BLANK

SLOW = """
import time, torch, modulekg_widgets as mk

class Slow(torch.nn.Module):
    seconds = 0.03

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        for _ in range(1000):
            x = x + 1
            time.sleep(self.seconds)
        return self.head(x)

model, x = Slow(), torch.zeros(1, 4)
"""
START = "window.jupyterapp.commands.execute('notebook:run-cell')"
SELECT = "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }"


def start(notebook: NotebookPage, index: int) -> None:
    """Run a cell without waiting for its end."""
    notebook.page.evaluate(SELECT, index)
    notebook.page.evaluate(f"() => {{ {START}; }}")


def test_a_trace_shows_its_progress_and_is_cancelled(notebook: NotebookPage) -> None:
    notebook.open([SLOW, "graph = mk.ModelGraph(model, x)\ndisplay(graph)"])
    notebook.run(0)
    start(notebook, 1)
    output = notebook.output_area(1)
    output.get_by_text("operators traced").wait_for()
    notebook.screenshot("progress")
    output.get_by_role("button", name="Cancel").click()
    output.locator(".mkg-model-graph").wait_for()
    assert output.get_by_text("operators traced").count() == 0
    assert output.get_by_role("button", name="Cancel", exact=True).count() == 0
    assert "was cancelled" in notebook.value("graph.error")
    line, shown = notebook.outputs(1)
    assert line["data"] == BLANK  # an empty output, which takes no room
    assert "image/svg+xml" in shown["data"]
    # traced without haste, it has its data flow
    notebook.execute("Slow.seconds = 0; graph.refresh(model, x)")
    assert notebook.value("graph.error") is None


def test_a_trace_without_a_widget_shows_its_progress_below_the_cell(notebook: NotebookPage) -> None:
    notebook.open([SLOW, "try:\n    mk.trace(model, x)\nexcept mk.ModuleKGError as error:\n    print(error)"])
    notebook.run(0)
    start(notebook, 1)
    output = notebook.output_area(1)
    output.get_by_text("Trace of Slow: ").wait_for()
    output.get_by_role("button", name="Cancel").click()
    output.get_by_text("Trace of Slow was cancelled. Run it again to start over.").first.wait_for()


def test_a_cut_from_the_page_shows_its_progress_in_the_editor_alone(notebook: NotebookPage) -> None:
    notebook.open(
        [
            SLOW,
            """Slow.seconds = 0
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4), model)
graph, editor = mk.ModelGraph(model, x), mk.MaskEditor(model, x)
mk.link(editor, graph)
editor.plan = mk.plan(editor.graph, per_axis={"0.out": [1, 5]})
display(graph, editor)""",
            "print('last cell')",
        ]
    )
    for cell in range(3):
        notebook.run(cell)
    before = [notebook.outputs(cell) for cell in (1, 2)]
    notebook.execute("Slow.seconds = 0.003")
    editor = notebook.output_area(1).locator(".mkg-mask-editor")
    editor.locator(".mkg-mask-cut").click()
    notebook.page.get_by_role("dialog").get_by_role("button", name="Cut", exact=True).click()
    editor.get_by_text("Cut: ").first.wait_for()
    notebook.screenshot("progress_of_cut")
    editor.get_by_text("operators traced").wait_for(state="detached", timeout=60_000)
    assert notebook.value("(model[0].out_features, graph.outdated, editor.outdated)") == [6, "", ""]
    assert len(notebook.outputs(2)) == len(before[1]) == 1
    assert len(notebook.outputs(1)) == len(before[0])


def test_a_refresh_shows_its_progress_in_the_widget(notebook: NotebookPage) -> None:
    notebook.open([SLOW, "Slow.seconds = 0\ngraph = mk.ModelGraph(model, x)\ndisplay(graph)"])
    notebook.run(0)
    notebook.run(1)
    notebook.execute("Slow.seconds = 0.03; model.head = torch.nn.Linear(4, 3)")
    output = notebook.output_area(1)
    output.get_by_role("button", name="Refresh").click()
    output.get_by_text("operators traced").wait_for()
    output.get_by_role("button", name="Cancel").click()
    output.get_by_text("Refresh was cancelled").wait_for()
    assert notebook.value("graph.progress") == ""
