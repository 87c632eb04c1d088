"""The state that each widget shows before a page is there, by its public class alone; exports of pictures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import modulekg_widgets as mk
from goldens import knowledge, monitoring
from goldens.digests import Case
from goldens.nets import exact_net, local_net, net_of

# of every widget of ipywidgets, and what has names of its own in each process
NOT_OURS = {
    "layout", "tooltip", "tabbable", "_dom_classes", "_model_module_version", "_view_module_version", "_view_count",
}  # fmt: skip
GRAPHS = [
    "residual", "concatenated", "lstm", "attending", "tied", "fixed", "torchvision/resnet18", "timm/test_vit",
    "transformers/bert", "transformers/llama",
]  # fmt: skip
EDITORS = ["three", "residual", "attending", "layered", "transformers/llama"]


def state_of(widget: Any) -> dict[str, Any]:
    """What a page gets of a widget; the parts of the payload one by one."""
    try:
        state = {name: value for name, value in widget.get_state().items() if name not in NOT_OURS}
    finally:
        widget.close()
    payload = state.pop("payload", {})
    return {**state, **{f"payload {name}": part for name, part in payload.items()}}


def model_graph(name: str, traced: bool) -> dict[str, Any]:
    """A model graph, with the data flow or without."""
    model, args, kwargs = net_of(name)
    return state_of(mk.ModelGraph(model, args=args, kwargs=kwargs) if traced else mk.ModelGraph(model))


def compared() -> dict[str, Any]:
    """A model graph of two models."""
    return state_of(mk.ModelGraph(local_net("residual")[0], compare=local_net("concatenated")[0]))


def file_shown() -> dict[str, Any]:
    """A model graph of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.pth"
        torch.save(exact_net().state_dict(), path)
        return state_of(mk.ModelGraph(mk.open_file(path)))


def selected() -> dict[str, Any]:
    """A model graph with a selection."""
    model, args, kwargs = net_of("residual")
    graph = mk.ModelGraph(model, args=args, kwargs=kwargs, expanded=["first"], selected="first.0", query="conv")
    return state_of(graph)


def exported(ending: str) -> dict[str, Any]:
    """A picture of a model."""
    model, args, kwargs = net_of("residual")
    graph = mk.ModelGraph(model, args=args, kwargs=kwargs)
    with tempfile.TemporaryDirectory() as folder:
        text = graph.export(Path(folder) / f"model{ending}").read_text("utf-8")
    graph.close()
    return {"file": text.replace("><", ">\n<")}


def mask_editor(name: str) -> dict[str, Any]:
    """A mask editor before anything is drawn."""
    model, args, kwargs = net_of(name)
    return state_of(mk.MaskEditor(model, args, kwargs, importance="l1") if kwargs else mk.MaskEditor(model, args))


def mask_draft(name: str) -> dict[str, Any]:
    """A mask editor with a plan, its report, a cut and the way back."""
    model, args, kwargs = net_of(name)
    editor = mk.MaskEditor(model, args, kwargs)
    editor.plan = mk.plan(editor.graph, ratio=0.5)
    planned = _of_draft(editor)
    editor.cut()
    after = _of_draft(editor)
    editor.undo()
    undone = _of_draft(editor)
    found = {"planned": planned, "cut": after, "undone": undone, "plan": str(editor.plan)}
    editor.close()
    return found


def _of_draft(editor: Any) -> dict[str, Any]:
    return {"draft": editor.draft, "report": editor.report, "stage": editor.stage, "dropped": editor.dropped}


def forward_player() -> dict[str, Any]:
    """A forward pass in steps."""
    return state_of(mk.ForwardPlayer(exact_net(), (torch.arange(8.0).reshape(2, 4) - 4) / 4, step=2))


def images_player() -> dict[str, Any]:
    """A forward pass with maps."""
    model, x = local_net("residual")
    return {name: part for name, part in state_of(mk.ForwardPlayer(model, x)).items() if "pixels" not in name}


def metric_panel() -> dict[str, Any]:
    """A panel behind a short training."""
    panel = mk.MetricPanel(monitoring.trained(monitoring.CONFIG))
    panel.finish()
    return state_of(panel)


def explorer() -> dict[str, Any]:
    """An explorer of a small graph."""
    widget = mk.KnowledgeExplorer(knowledge.small_graph())
    widget.finish()
    return state_of(widget)


def workbench() -> dict[str, Any]:
    """A workbench with all four views."""
    model, x = local_net("residual")
    bench = mk.Workbench(model, x, monitor=mk.Monitor(model, {"stem": ["WeightNorm"]}, name="golden"))
    try:
        traits = {name: getattr(bench, name) for name in ("graph", "editor", "panel", "explorer")}
        own = {name: value for name, value in bench.get_state().items() if name not in NOT_OURS | set(traits)}
        return {**own, "views": {name: view is not None for name, view in traits.items()}}
    finally:
        bench.close()


OTHERS: dict[str, Callable[[], dict[str, Any]]] = {
    "compared models": compared, "checkpoint": file_shown, "selected": selected, "forward player": forward_player,
    "player of images": images_player, "metric panel": metric_panel, "explorer": explorer, "workbench": workbench,
}  # fmt: skip


def cases() -> dict[str, Case]:
    """All of this subject."""
    return {
        **{f"graph of {name}": Case(partial(model_graph, name, False), 5) for name in GRAPHS},
        **{f"data flow of {name}": Case(partial(model_graph, name, True), 5) for name in GRAPHS},
        **{f"editor of {name}": Case(partial(mask_editor, name), 4) for name in EDITORS},
        **{f"draft of {name}": Case(partial(mask_draft, name), 4) for name in EDITORS[:4]},
        **{f"export to {ending}": Case(partial(exported, ending), 5) for ending in (".json", ".svg", ".dot")},
        **{name: Case(make, 4) for name, make in OTHERS.items()},
    }
