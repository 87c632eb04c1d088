"""Small graphs of models with jobs, for the tests of the knowledge explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from modulekg_widgets.engine.knowledge.analysis.similarity import superfamilies
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.views.knowledge_payload import RankFit, analyse_contents, knowledge_payload
from widgets.golden_models import Block, Holder


@dataclass
class Graph:
    """The part of a `KnowledgeGraph` that an explorer uses."""

    held: Contents

    def contents(self) -> Contents:
        return self.held


def contents_of(models: dict[str, nn.Module], **others: Any) -> Contents:
    records = [model_record(model, name, levels="depth") for name, model in models.items()]
    modules = {key: node for record in records for key, node in record.nodes.items()}
    return Contents(modules=modules, models={record.model.name: record.model for record in records}, **others)


def small() -> nn.Module:
    return nn.Sequential(Block(4), Block(4), nn.ReLU(), nn.Linear(4, 2))


def wide() -> nn.Module:
    return nn.Sequential(*(Block(width) for width in (4, 8, 8, 16)), nn.Linear(16, 2))


def awkward() -> nn.Module:
    """Names and values that a page, JSON or JavaScript would trip over."""
    model = nn.Sequential()
    for name in ("<b>bold</b>", "__proto__", "\ud800"):
        model.add_module(name, Holder(nan=float("nan"), large=2**60, text="\udfff", name=name))
    return model


def trained() -> dict[str, Any]:
    """Two people, a data set and their jobs."""
    plain: dict[str, Any] = {"convergence": None, "history": {}, "ended": None, "properties": {}}
    jobs = [
        JobNode("first", "ada", "digits", "small", 0.91, 120.0, {"loss": [(0.0, 2.0), (1.0, 1.0)]}, 1e9, 1e9 + 60, {}),
        JobNode("second", "<i>bo</i>", "digits", "wide", accuracy=float("nan"), started=1.1e9, **plain),
        JobNode("third", None, None, None, accuracy=None, started=1.2e9, **plain),
    ]
    return {
        "jobs": {job.name: job for job in jobs},
        "users": {name: UserNode(name, {}) for name in ("ada", "<i>bo</i>")},
        "datasets": {"digits": DataSetNode("digits", {"classes": 10, "odd": "\ud800"})},
    }


def sample_contents(jobs: bool = True) -> Contents:
    models = {"small": small(), "wide": wide(), "twin": small(), "<img src=x onerror=alert(1)>": awkward()}
    return contents_of(models, **(trained() if jobs else {}))


def payload_of(contents: Contents, **other: Any) -> dict[str, Any]:
    """The payload, with `other` findings in place of the engine's."""
    return knowledge_payload(contents, superfamilies(contents), replace(analyse_contents(contents), **other))


def golden_knowledge() -> dict[str, dict[str, Any]]:
    """The payload of a graph with jobs, and that of a graph without models; digits of a fit are the library's."""
    lines = {"power law": [(1.0, 16.0), (2.0, 6.5), (10.0, 0.25)], "log-normal": [(1.0, 16.0), (10.0, float("nan"))]}
    fit = RankFit("Power law with exponent 1.98.", 1.98, 1.0, [("log-normal", -1.5, 0.32)], lines)
    return {"sample": payload_of(sample_contents(), fit=fit), "empty": payload_of(Contents())}
