"""Notebooks from someone else: the saved state of each widget with hostile texts, and forgeries of it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import nbformat

from browser.lab import code_notebook
from browser.page import NotebookPage
from cases.payloads import PAYLOADS

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"

MAKE = """
import json
import ipywidgets
import torch
from torch import nn
import modulekg_widgets as mk

payloads = {payloads!r}

def hostile(text):
    return type(text, (nn.Linear,), {{"__module__": text}})(2, 2)

model = type(payloads[0], (nn.Sequential,), {{}})()
for text in payloads:
    model._modules[text] = hostile(text)
x = torch.ones(1, 2)
monitor = mk.Monitor(model, {{nn.Linear: ["WeightNorm"]}})
with monitor:
    model(x).sum().backward()
    monitor.track(0)
    monitor.log({{text: 1.0 for text in payloads}})

kg = mk.KnowledgeGraph()
for text in payloads[:3]:
    kg.add_model(model, name=text)
    kg.add_user(text)
    kg.add_job(name=text, user=text, model=text, accuracy=0.5)

def bench():
    made = mk.Workbench(model, x, monitor=monitor, kg=kg)
    made.editor.plan = mk.plan(made.editor.graph, ratio=0.5)
    return made

makers = {{
    "ModelGraph": lambda: mk.ModelGraph(model),
    "MaskEditor": lambda: mk.MaskEditor(model, x, plan=mk.plan(mk.trace(model, x), ratio=0.5), selected=payloads[1]),
    "MetricPanel": lambda: mk.MetricPanel(monitor, modules=payloads[:3]),
    "ForwardPlayer": lambda: mk.ForwardPlayer(model, x, step=2, playing=True, selected=payloads[1]),
    "KnowledgeExplorer": lambda: mk.KnowledgeExplorer(kg, selected="Model:" + payloads[1]),
    "Workbench": bench,
}}
saved = {{}}
for name, make in makers.items():
    widget = make()
    state = ipywidgets.Widget.get_manager_state()
    saved[name] = {{"state": state, "model_id": widget.model_id}}
    ipywidgets.Widget.close_all()
print(json.dumps(saved))
"""


class Kind(NamedTuple):
    """A widget, where it is in the page, and whether it has controls that need the kernel."""

    name: str
    root: str
    asks: bool


KINDS = [
    Kind("ModelGraph", ".mkg-model-graph", False),
    Kind("MaskEditor", ".mkg-mask-editor", True),
    Kind("MetricPanel", ".mkg-metric-panel", False),
    Kind("ForwardPlayer", ".mkg-forward-player", True),
    Kind("KnowledgeExplorer", ".mkg-knowledge-explorer", False),
    Kind("Workbench", ".mkg-workbench", True),
]

# what a user does with "Trust Notebook"
TRUST = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  for (const cell of panel.content.model.cells) { cell.trusted = true; }
  await panel.context.save();
}"""


def saved_states() -> dict[str, Any]:
    """Of each kind its state with all parts and links, and the id of its model."""
    code = MAKE.format(payloads=PAYLOADS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def copies(saved: dict[str, Any], count: int) -> dict[str, Any]:
    """A state with as many copies of the widget, all with ids of their own."""
    models = {}
    for number in range(count):
        text = json.dumps(saved["state"]["state"])
        for model_id in saved["state"]["state"]:
            text = text.replace(model_id, f"{number}-{model_id}")
        models.update(json.loads(text))
    return models


def notebook_with(models: dict[str, Any], shown: Iterable[str]) -> Any:
    """A notebook whose outputs show these models."""
    shown = list(shown)
    content = code_notebook([f"widget {number}" for number in range(len(shown))])
    content.metadata["widgets"] = {STATE: {"state": models, "version_major": 2, "version_minor": 0}}
    for cell, model_id in zip(content.cells, shown, strict=True):
        view = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        cell.outputs = [nbformat.v4.new_output("display_data", {"text/plain": "Widget", VIEW: view})]
    return content


def messages_about(notebook: NotebookPage, models: Iterable[str]) -> list[str]:
    """The messages on the websocket that have the id of one of these models."""
    found = [str(message) for message in notebook.traffic.messages]
    return [text for text in found if any(model_id in text for model_id in models)]


def trust_and_reload(notebook: NotebookPage) -> None:
    """What the user's "Trust Notebook" does."""
    notebook.page.evaluate(TRUST)
    notebook.page.reload()


def packed(name: str, content: bytes) -> dict[str, Any]:
    """A buffer of a saved state."""
    return {"path": [name], "encoding": "base64", "data": base64.b64encode(content).decode("ascii")}
