"""A notebook from someone else, with saved widget state: its models are made without asking, so they are inert."""

import json
import subprocess
import sys
from typing import Any

import nbformat
import pytest

from browser.graph import ROOT
from browser.hostile import assert_harmless, inspect, model_code
from browser.lab import code_notebook
from browser.page import NotebookPage

SAVE = """
import json
import ipywidgets
import modulekg_widgets as mk
graph = mk.ModelGraph(model)
state = ipywidgets.Widget.get_manager_state(widgets=[graph, graph.layout])
print(json.dumps({"state": state, "model_id": graph.model_id}))
"""


TRUST = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  for (const cell of panel.content.model.cells) { cell.trusted = true; }
  await panel.context.save();
}"""


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    """The saved state of a graph with hostile texts, and the id of its model."""
    done = subprocess.run([sys.executable, "-c", model_code() + SAVE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def notebook_with_state(saved: dict[str, Any]) -> Any:
    content = code_notebook(["graph"])
    content.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": saved["state"]}
    view = {"version_major": 2, "version_minor": 0, "model_id": saved["model_id"]}
    data = {"text/plain": "ModelGraph", "application/vnd.jupyter.widget-view+json": view}
    content.cells[0].outputs = [nbformat.v4.new_output("display_data", data)]
    return content


def messages_about(notebook: NotebookPage, model_id: str) -> list[str]:
    return [str(message) for message in notebook.traffic.messages if model_id in json.dumps(message.content)]


def trust_and_reload(notebook: NotebookPage) -> None:
    """What the user's "Trust Notebook" does."""
    notebook.page.evaluate(TRUST)
    notebook.page.reload()


def test_saved_state_sends_and_fetches_nothing(notebook: NotebookPage, saved: dict[str, Any]) -> None:
    notebook.open(content=notebook_with_state(saved))
    notebook.pause(1500)
    assert messages_about(notebook, saved["model_id"]) == []
    # the widget manager asks the kernel for its models over a comm of its own; nothing else is opened or run
    opened = [message.content["target_name"] for message in notebook.traffic.sent("comm_open")]
    assert set(opened) <= {"jupyter.widget.control"}
    assert notebook.traffic.sent("execute_request") == []
    assert_harmless(notebook.page, ".jp-Notebook", notebook.page.url)


def test_trusted_saved_state_is_shown_disconnected(notebook: NotebookPage, saved: dict[str, Any]) -> None:
    """Once the reader trusts the notebook, the graph can be looked at; it knows that it has no kernel."""
    notebook.open(content=notebook_with_state(saved))
    trust_and_reload(notebook)
    notebook.wait_for(f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"].mkg-is-disconnected') !== null")
    notebook.wait_for_kernel()
    notebook.pause(500)
    assert messages_about(notebook, saved["model_id"]) == []
    assert inspect(notebook.page, ROOT)["found"] == []
    assert inspect(notebook.page, ROOT)["ran"] is None
    notebook.screenshot("saved-state")


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"schema_version": 99}},
        {"payload": {}},
        {"payload": "<img src=x onerror=window.__xss=1>"},
        {"selected": ["<svg onload=window.__xss=3>"], "expanded": 3, "color_by": None, "query": {}, "overlay": []},
    ],
    ids=["another version", "nothing", "no object", "wrong types"],
)
def test_forged_state_is_refused_in_fixed_words(
    notebook: NotebookPage, saved: dict[str, Any], change: dict[str, Any]
) -> None:
    """Saved state is not ours to trust: no error carries its texts, nothing runs."""
    forged = json.loads(json.dumps(saved))
    forged["state"]["state"][saved["model_id"]]["state"].update(change)
    notebook.open(content=notebook_with_state(forged))
    trust_and_reload(notebook)
    notebook.wait_for(f"() => document.querySelector('{ROOT}') !== null")
    notebook.pause(500)
    if change.get("payload", {}) != {} and isinstance(change["payload"], dict):
        assert "made by another version of modulekg-widgets" in notebook.page.locator(ROOT).inner_text()
    assert inspect(notebook.page, ".jp-Notebook")["found"] == []
    assert inspect(notebook.page, ".jp-Notebook")["ran"] is None
