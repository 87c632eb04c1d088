"""A notebook from someone else, with saved widget state: its models are made without asking, so they are inert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from browser.fixtures import in_shared_page
from browser.hostile import assert_harmless, inspect
from browser.page import NotebookPage
from browser.untrusted import (
    KINDS,
    Kind,
    copies,
    messages_about,
    notebook_with,
    packed,
    saved_states,
    trust_and_reload,
)
from cases.payloads import PAYLOADS
from sampling import sampled

# a workbench has most others in it: alone they are for the night
NIGHTLY_PARTS = pytest.mark.parametrize(
    "kind",
    sampled(KINDS, [kind for kind in KINDS if kind.name == "Workbench"]),
    ids=lambda kind: kind.name,
)
HOSTILE = "<img src=x onerror=window.__xss=1>"
# all that a widget may say of data that it cannot show
FIXED = (
    "Made by another version of modulekg-widgets",
    "Widget data is damaged",
    "Nothing to show yet",
    "Widget data cannot be read. Run the cell again.",
)
# the parts of a widget that are there when it shows its data
READY = "[data-mkg-ready='true']"


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    return saved_states()


@in_shared_page
@NIGHTLY_PARTS
@pytest.mark.gate
def test_saved_state_sends_and_fetches_nothing(notebook: NotebookPage, saved: dict[str, Any], kind: Kind) -> None:
    state = saved[kind.name]
    models = state["state"]["state"]
    notebook.open(content=notebook_with(models, [state["model_id"]]))
    notebook.pause(1500)
    assert messages_about(notebook, models) == []
    # the widget manager asks the kernel for its models over a comm of its own; nothing else is opened or run
    opened = [message.content["target_name"] for message in notebook.traffic.sent("comm_open")]
    assert set(opened) <= {"jupyter.widget.control"}
    assert notebook.traffic.sent("execute_request") == []
    assert_harmless(notebook.page, ".jp-Notebook", notebook.page.url)


@NIGHTLY_PARTS
def test_trusted_saved_state_is_shown_disconnected(notebook: NotebookPage, saved: dict[str, Any], kind: Kind) -> None:
    """Once the reader trusts the notebook, the widget can be looked at; it knows that it has no kernel."""
    state = saved[kind.name]
    models = state["state"]["state"]
    notebook.open(content=notebook_with(models, [state["model_id"]]))
    trust_and_reload(notebook)
    parts = 4 if kind.name == "Workbench" else 1
    inside = f"{kind.root} " if kind.name == "Workbench" else kind.root
    shown = f"{inside}{READY}.mkg-is-disconnected"
    notebook.wait_for(f'count => document.querySelectorAll("{shown}").length === count', parts)
    notebook.wait_for_kernel()
    notebook.pause(500)
    controls = notebook.page.locator(f"{kind.root} [data-mkg-needs-kernel]")
    assert (controls.count() > 0) == kind.asks
    assert controls.evaluate_all(
        "all => all.every(one => one.disabled || one.getAttribute('aria-disabled') === 'true')"
    )
    assert messages_about(notebook, models) == []
    text = notebook.page.locator(kind.root).text_content() or ""
    assert PAYLOADS[0] in text
    seen = inspect(notebook.page, kind.root)
    assert (seen["found"], seen["ran"], seen["violations"]) == ([], None, [])
    notebook.screenshot(f"saved-state-{kind.name}")


Entry = dict[str, Any]  # a model of a saved state: its "state" and its "buffers"
Forgery = Callable[[Entry], None]


def sets(**traits: Any) -> Forgery:
    return lambda entry: entry["state"].update(traits)


def in_payload(*path: Any, value: Any) -> Forgery:
    """Sets one value deep in the payload."""

    def forge(entry: Entry) -> None:
        place = entry["state"]["payload"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return forge


def all_wrong(value: Any) -> Forgery:
    """Every trait of ours has this value."""

    def forge(entry: Entry) -> None:
        own = [
            name for name in entry["state"] if not name.startswith("_") and name not in ("layout", "comm", "tooltip")
        ]
        entry["state"].update(dict.fromkeys(own, value))
        entry["buffers"] = []

    return forge


def buffers(content: bytes) -> Forgery:
    return lambda entry: entry.update(buffers=[packed(name, content) for name in ("dropped", "scores")])


def nested(depth: int) -> Any:
    term: Any = 0
    for _ in range(depth):
        term = ["*", term]
    return term


COMMON: dict[str, Forgery] = {
    "another version": sets(payload={"schema_version": 99}),
    "nothing": sets(payload={}),
    "a text": sets(payload=HOSTILE),
    "no version": sets(payload={"kind": HOSTILE, "title": HOSTILE}),
    "all texts": all_wrong(HOSTILE),
    "all lists": all_wrong([HOSTILE, {"a": [HOSTILE]}]),
    "all objects": all_wrong({HOSTILE: HOSTILE, "schema_version": 1}),
    "all null": all_wrong(None),
    "all huge": all_wrong(1e300),
    "all negative": all_wrong(-1),
}
FORGED: dict[str, dict[str, Forgery]] = {
    "MaskEditor": {
        **COMMON,
        "2^53 indices": in_payload("axes", "size", 0, value=2**53),
        "2^32 indices": in_payload("axes", "size", 0, value=2**32),
        "2^30 indices": in_payload("axes", "size", 0, value=2**30),
        "negative size": in_payload("axes", "size", 0, value=-5),
        "names too few": in_payload("axes", "name", value=[HOSTILE]),
        "no such axis": in_payload("terms", 0, value=["*", 10**6]),
        "itself": in_payload("tensors", 0, value=[0, 1, 4, 1, [10**6]]),
        "deep": in_payload("terms", 0, value=nested(400)),
        "operator": in_payload("terms", 0, value=[HOSTILE, 0, 0]),
        "infinite": in_payload("flops", 0, 0, value=1e308),
        "reasons": in_payload("axes", "reasons", value=[]),
        "no bits": buffers(b""),
        "other bits": buffers(b"\xff" * 7),
        "all bits": buffers(b"\xff" * 42 * 2),
        "no such graph": sets(graphs=["IPY_MODEL_none", HOSTILE]),
        "report": sets(
            report={
                "revision": 0, "error": None, "params": [HOSTILE, {}], "flops": [1e300, -1], "bytes": [1],
                "changes": [HOSTILE, {"text": HOSTILE, "kind": 3, "axes": [10**9, -1]}, None],
                "kept": [[10**9, [0]], [0, [10**9]]], "taken": HOSTILE,
            }
        ),
    },
    "ForwardPlayer": {
        **COMMON,
        "no steps": in_payload("steps", "module", value=[]),
        "no such module": in_payload("steps", "module", 0, value=10**6),
        "negative size": in_payload("shapes", 0, 0, value=[HOSTILE, [-1], HOSTILE]),
        "huge sizes": in_payload("shapes", 0, 0, value=[HOSTILE, [10**15] * 50, HOSTILE]),
        "deep step": in_payload("steps", "depth", 1, value=10**9),
        "figures": in_payload("steps", "statistics", 1, value=[HOSTILE] * 7),
        "top": in_payload("steps", "top", 1, value=["class", [[[], HOSTILE, HOSTILE]]]),
        "far step": sets(step=10**9, sample=10**9, page=10**9, speed=1e-300, quiz={"asked": -1, "right": HOSTILE}),
    },
    "KnowledgeExplorer": {
        **COMMON,
        "so many communities": in_payload("communities", "count", value=10**9),
        "no such class": in_payload("entities", "class", 0, value=10**6),
        "no such child": in_payload("entities", "children", 0, value=[10**6, 1]),
        "contains itself": in_payload("entities", "children", 0, value=[0, 1]),
        "endless counts": in_payload("models", "members", 0, value=[0, 0, 2**1000]),
        "no such root": in_payload("models", "root", 0, value=-1),
        "digests": in_payload("entities", "digest", 0, value={"a": HOSTILE}),
        "measures": in_payload("entities", "importance", value={HOSTILE: []}),
        "fit": in_payload("fit", "lines", value=[[HOSTILE, [1e308, -1, "NaN", 0]]]),
        "overlap": in_payload("overlap", value=[HOSTILE] * 3),
        "times": in_payload("jobs", "started", value=[1e300] * 3),
        "graphs": sets(graphs=["IPY_MODEL_none", HOSTILE], view=HOSTILE, color_by=3, selected=HOSTILE),
    },
    "MetricPanel": COMMON,
    "Workbench": {
        "no parts": sets(graph=None, editor=None, panel=None, explorer=None),
        "no such parts": sets(graph="IPY_MODEL_none", editor="IPY_MODEL_none", panel="IPY_MODEL_x", explorer=HOSTILE),
        "texts as parts": sets(graph=HOSTILE, editor=[HOSTILE], panel={"a": HOSTILE}),
        "numbers as parts": sets(graph=1, editor=True, panel=-1),
        "split": sets(split={"rows": -5, "columns": HOSTILE}),
        "no split": sets(split=HOSTILE),
    },
    "ModelGraph": {
        **COMMON,
        "pruned": sets(selected=[HOSTILE], expanded=3, color_by=None, query={}, overlay=[], pruned=HOSTILE),
    },
}  # fmt: skip


def forged_models(saved: dict[str, Any], forgeries: dict[str, Forgery]) -> tuple[dict[str, Any], list[str]]:
    """A state with a copy of the widget for each forgery; and the ids of these copies."""
    models = copies(saved, len(forgeries))
    shown = [f"{number}-{saved['model_id']}" for number in range(len(forgeries))]
    for model_id, forge in zip(shown, forgeries.values(), strict=True):
        models[model_id] = json.loads(json.dumps(models[model_id]))
        forge(models[model_id])
    return models, shown


LOOK = """([root, ids]) => ids.map(id => {
  const views = [...document.querySelectorAll(root)].filter(view => view.dataset.mkgId === id);
  return views.map(view => [view.dataset.mkgReady === 'true', view.textContent]);
})"""


# whether each widget shows its data, or says in our words why it does not; a workbench has no word of its own
SETTLED = """([root, ids, words]) => ids.every(id => {
  const views = [...document.querySelectorAll(root)].filter(view => view.dataset.mkgId === id);
  const isSettled = ({ dataset, textContent }) =>
    words.length === 0 || dataset.mkgReady === 'true' || words.some(text => textContent.includes(text));
  return views.length === 1 && isSettled(views[0]);
})"""
LOAD = 60  # s for JupyterLab and all widgets, on a machine that is busy with other tests


@NIGHTLY_PARTS
def test_forged_state_is_refused_in_fixed_words(notebook: NotebookPage, saved: dict[str, Any], kind: Kind) -> None:
    """Saved state is not ours to trust: what cannot be shown is told in words of ours, nothing is thrown or runs."""
    forgeries = FORGED[kind.name]
    models, shown = forged_models(saved[kind.name], forgeries)
    notebook.open(content=notebook_with(models, shown))
    trust_and_reload(notebook)
    words = [] if kind.name == "Workbench" else list(FIXED)
    end = time.monotonic() + LOAD
    while not notebook.page.evaluate(SETTLED, [kind.root, shown, words]) and time.monotonic() < end:
        notebook.pause(100)  # what is not settled by then is named below
    notebook.wait_for_kernel()
    notebook.pause(1000)  # what may still be thrown or run
    found = dict(zip(forgeries, notebook.page.evaluate(LOOK, [kind.root, shown]), strict=True))
    for name, views in found.items():
        assert len(views) == 1, (name, views)
        is_shown, text = views[0]
        if kind.name != "Workbench":
            assert is_shown or any(words in text for words in FIXED), (name, text)
            assert is_shown or HOSTILE not in text, (name, text)
    if "another version" in found:
        assert FIXED[0] in found["another version"][0][1]
    seen = inspect(notebook.page, ".jp-Notebook")
    assert (seen["found"], seen["ran"], seen["violations"]) == ([], None, [])
    assert "Error displaying widget" not in notebook.page.locator(".jp-Notebook").inner_text()
    assert messages_about(notebook, models) == []
