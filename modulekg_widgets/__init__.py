"""See and question a PyTorch model without leaving the notebook."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modulekg_widgets._version import __version__
    from modulekg_widgets.engine.axes.attributes import adapter
    from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
    from modulekg_widgets.engine.axes.registration import axis_rule
    from modulekg_widgets.engine.errors import ModuleKGError
    from modulekg_widgets.engine.identity.diff import diff
    from modulekg_widgets.engine.identity.fingerprint import Fingerprint, fingerprint
    from modulekg_widgets.engine.identity.hierarchy import Hierarchy, hierarchy
    from modulekg_widgets.engine.identity.weights import weight_fingerprint
    from modulekg_widgets.engine.knowledge.exchange import exporter
    from modulekg_widgets.engine.knowledge.graph import KnowledgeGraph
    from modulekg_widgets.engine.knowledge.indexing import index_models
    from modulekg_widgets.engine.knowledge.loading import load_graph
    from modulekg_widgets.engine.knowledge.zoo import torchvision_builders
    from modulekg_widgets.engine.monitoring import tools as monitoring
    from modulekg_widgets.engine.monitoring.metric import metric
    from modulekg_widgets.engine.monitoring.monitor import Monitor
    from modulekg_widgets.engine.monitoring.sinks.recording import load_recording
    from modulekg_widgets.engine.plugins import plugins
    from modulekg_widgets.engine.pruning import tools as pruning
    from modulekg_widgets.engine.pruning.importance.importance import importance
    from modulekg_widgets.engine.pruning.nni.speedup import speedup
    from modulekg_widgets.engine.pruning.plan.plan import plan
    from modulekg_widgets.engine.pruning.plan.plan_file import load_plan
    from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan
    from modulekg_widgets.engine.pruning.plan.schedule import PruningSchedule
    from modulekg_widgets.engine.rewriting import tools as rewrite
    from modulekg_widgets.widgets.forward_player.forward_player import ForwardPlayer
    from modulekg_widgets.widgets.knowledge_explorer.knowledge_explorer import KnowledgeExplorer
    from modulekg_widgets.widgets.linking import link
    from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor
    from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph
    from modulekg_widgets.widgets.pages.pages import save_html
    from modulekg_widgets.widgets.workbench.workbench import Workbench

# loaded at first use: torch, pandas and the widgets take longer than a user should wait for an import
_HOMES = {
    "DataflowGraph": "engine.axes.graph",
    "Fingerprint": "engine.identity.fingerprint",
    "ForwardPlayer": "widgets.forward_player.forward_player",
    "Hierarchy": "engine.identity.hierarchy",
    "KnowledgeExplorer": "widgets.knowledge_explorer.knowledge_explorer",
    "KnowledgeGraph": "engine.knowledge.graph",
    "MaskEditor": "widgets.mask_editor.mask_editor",
    "MetricPanel": "widgets.metric_panel.metric_panel",
    "ModelGraph": "widgets.model_graph.model_graph",
    "ModuleKGError": "engine.errors",
    "Monitor": "engine.monitoring.monitor",
    "PruningPlan": "engine.pruning.plan.pruning_plan",
    "PruningSchedule": "engine.pruning.plan.schedule",
    "Workbench": "widgets.workbench.workbench",
    "__version__": "_version",
    "adapter": "engine.axes.attributes",
    "axis_rule": "engine.axes.registration",
    "diff": "engine.identity.diff",
    "exporter": "engine.knowledge.exchange",
    "fingerprint": "engine.identity.fingerprint",
    "hierarchy": "engine.identity.hierarchy",
    "importance": "engine.pruning.importance.importance",
    "index_models": "engine.knowledge.indexing",
    "link": "widgets.linking",
    "load_graph": "engine.knowledge.loading",
    "load_plan": "engine.pruning.plan.plan_file",
    "load_recording": "engine.monitoring.sinks.recording",
    "metric": "engine.monitoring.metric",
    "monitoring": "engine.monitoring.tools",
    "plan": "engine.pruning.plan.plan",
    "plugins": "engine.plugins",
    "pruning": "engine.pruning.tools",
    "rewrite": "engine.rewriting.tools",
    "save_html": "widgets.pages.pages",
    "speedup": "engine.pruning.nni.speedup",
    "torchvision_builders": "engine.knowledge.zoo",
    "trace": "engine.axes.graph",
    "weight_fingerprint": "engine.identity.weights",
}

_NAMESPACES = {"monitoring", "pruning", "rewrite"}  # names that are a module, not something in it

__all__ = [
    "DataflowGraph",
    "Fingerprint",
    "ForwardPlayer",
    "Hierarchy",
    "KnowledgeExplorer",
    "KnowledgeGraph",
    "MaskEditor",
    "MetricPanel",
    "ModelGraph",
    "ModuleKGError",
    "Monitor",
    "PruningPlan",
    "PruningSchedule",
    "Workbench",
    "__version__",
    "adapter",
    "axis_rule",
    "diff",
    "exporter",
    "fingerprint",
    "hierarchy",
    "importance",
    "index_models",
    "link",
    "load_graph",
    "load_plan",
    "load_recording",
    "metric",
    "monitoring",
    "plan",
    "plugins",
    "pruning",
    "rewrite",
    "save_html",
    "speedup",
    "torchvision_builders",
    "trace",
    "weight_fingerprint",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = name == "__version__" or import_module(f"{__name__}.engine.plugins").load()
    module = import_module(f"{__name__}.{home}")
    value = module if name in _NAMESPACES else getattr(module, name)
    if loaded:  # else the next use, in another thread, still has to wait for the plugins
        globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "ipykernel" in sys.modules:  # JupyterLab's side panel hears what the kernel has
    import_module(f"{__name__}.widgets.lab.kernel_objects").start()
