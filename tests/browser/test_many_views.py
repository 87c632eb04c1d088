"""Views opened and closed many times in one page: no node, canvas or listener of theirs is left."""

from __future__ import annotations

from typing import Any

import pytest

from browser.page import NotebookPage

SETUP = """
import torch
import ipywidgets
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
x = torch.ones(2, 3, 8, 8)
editor, player = mk.MaskEditor(model, x), mk.ForwardPlayer(model, x, step=1)
kg = mk.KnowledgeGraph()
kg.add_model(model, name="net")
explorer = mk.KnowledgeExplorer(kg)
box = ipywidgets.VBox([])
display(box)
"""
ROOTS = [".mkg-mask-editor", ".mkg-forward-player", ".mkg-knowledge-explorer"]
SHOWN = f"() => {ROOTS!r}.every(root => document.querySelector(root + '[data-mkg-ready=true]') !== null)"
GONE = f"() => {ROOTS!r}.every(root => document.querySelector(root) === null)"
CANVASES = "() => document.querySelectorAll('canvas').length"
FIRST = 10  # openings that fill caches
# ipywidgets' VBox keeps the root elements of its former children; a view of ours has 40 to 200 nodes below its own
KEPT = {"nodes": 6, "jsEventListeners": 4}  # by each three views
ONCE = 200  # JupyterLab opens a document of its own now and then


def counts(notebook: NotebookPage) -> dict[str, int]:
    """Documents, nodes and listeners that are alive after a collection, and the canvases in the page."""
    session: Any = notebook.context.new_cdp_session(notebook.page)
    try:
        for _ in range(3):
            session.send("HeapProfiler.collectGarbage")
        found = session.send("Memory.getDOMCounters")
    finally:
        session.detach()
    return {**found, "canvases": notebook.page.evaluate(CANVASES)}


def open_and_close(notebook: NotebookPage, times: int) -> None:
    for _ in range(times):
        notebook.execute("box.children = [editor, player, explorer]")
        notebook.wait_for(SHOWN)
        notebook.execute("box.children = []")
        notebook.wait_for(GONE)


def assert_views_leave_nothing(notebook: NotebookPage, times: int) -> None:
    notebook.open([SETUP])
    notebook.run(0)
    open_and_close(notebook, FIRST)
    notebook.pause(500)
    before = counts(notebook)
    open_and_close(notebook, times)
    notebook.pause(500)
    after = counts(notebook)
    assert after["canvases"] == 0
    for name, kept in KEPT.items():
        assert after[name] - before[name] <= ONCE + kept * times, (name, before, after)


@pytest.mark.nightly
def test_views_leave_nothing_in_the_page(notebook: NotebookPage) -> None:
    assert_views_leave_nothing(notebook, 15)


@pytest.mark.nightly
def test_a_hundred_views_leave_nothing_in_the_page(notebook: NotebookPage) -> None:
    assert_views_leave_nothing(notebook, 100)
