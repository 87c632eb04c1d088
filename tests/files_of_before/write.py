"""Writes this folder anew: `PYTHONPATH=<an earlier release> python tests/files_of_before/write.py FOLDER`.

The files are those of the release before; test_files_of_before.py reads them with the code of today. Facts about them
go to facts.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

FINGERPRINTED = [
    "alexnet", "convnext_small", "convnext_tiny", "densenet121", "densenet161", "efficientnet_b0", "efficientnet_v2_s",
    "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large",
    "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet34", "resnet50", "resnet101",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_1", "swin_t",
    "swin_v2_t", "vgg11", "vgg13", "vgg16_bn", "vit_b_16", "wide_resnet50_2",
]  # fmt: skip
EXCHANGED = ("graphml", "gexf", "cyjs", "dot", "edges", "jsonld", "csv")
RECORDED = ("jsonl", "csv", "parquet")


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.Flatten(), nn.Linear(6 * 16, 5)
    )


def linears() -> nn.Module:
    """With weights that are the same everywhere."""
    model = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))
    for parameter in model.parameters():
        parameter.data = torch.arange(parameter.numel(), dtype=torch.float32).reshape(parameter.shape) / 16
    return model


class Tagger(nn.Module):
    """Its axes had other names then: `lstm.hidden`, `lstm.hidden_2` and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


MODELS: dict[str, tuple[Any, torch.Tensor]] = {
    "convolutions": (convolutions, torch.zeros(1, 3, 8, 8)),
    "linears": (linears, torch.zeros(2, 4)),
    "tagger": (Tagger, torch.zeros(2, 5, 4)),
    "resnet18": (torchvision_builders()["resnet18"], torch.zeros(1, 3, 64, 64)),
}


def masked() -> dict[str, dict[str, torch.Tensor]]:
    mask = torch.ones(8, 3, 3, 3)
    mask[:4] = 0
    return {"0": {"weight": mask}}


def plans(folder: Path) -> dict[str, Any]:
    facts = {}
    for name, (make, args) in MODELS.items():
        torch.manual_seed(0)
        plan = mk.plan(mk.trace(make(), args), ratio=0.5)
        plan.save(folder / f"{name}.plan.json")
        facts[name] = plan_facts(plan)
    return facts


def plan_facts(plan: Any) -> dict[str, Any]:
    axes = [[axis.name, axis.size, list(axis.dropped), list(axis.members)] for axis in plan.axes]
    return {
        "params": list(plan.params), "flops": list(plan.flops), "macs": list(plan.macs), "changes": len(plan.changes),
        "axes": axes if len(axes) < 5 else len(axes), "attributes": len(plan.edits.attributes),
    }  # fmt: skip


def masks(folder: Path) -> dict[str, list[str]]:
    make, args = MODELS["convolutions"]
    found = mk.pruning.infer_masks(mk.trace(make(), args), masked())
    found.save(folder / "masks.pth")
    return mask_facts(mk.pruning.load_masks(folder / "masks.pth"))


def mask_facts(found: Any) -> dict[str, Any]:
    return {
        name: {tensor: int(mask.sum()) for tensor, mask in sorted(own.items()) if mask is not None}
        for name, own in sorted(found.items())
    }


def knowledge(folder: Path) -> dict[str, Any]:
    kg = mk.KnowledgeGraph(f"sqlite:///{folder / 'zoo.db'}")
    kg.add_model(linears(), name="linears", args=torch.zeros(2, 4))
    kg.add_model(convolutions(), name='convolutions "x" & ü')
    kg.add_dataset("data", classes=3, size=[1, 2], when=None, share=float("inf"), pair=(1, b"\0"))
    kg.add_user("user", admin=True)
    kg.add_job(user="user", dataset="data", model="linears", accuracy=0.5, history={"loss": [(0, 1.0), (1, 0.5)]})
    for ending in EXCHANGED:
        kg.export(folder / f"zoo.{ending}")
    return graph_facts(kg)


def graph_facts(kg: Any) -> dict[str, Any]:
    whole, most = kg.to_networkx(), kg.most_used(5)
    return {
        "nodes": sorted([data["type"], data["name"]] for _, data in whole.nodes(data=True)),
        "edges": whole.number_of_edges(),
        "modules": [kg.module_count, kg.unique_count],
        "most used": [[name, int(count)] for name, count in zip(most["name"], most["count"], strict=True)],
    }


def recordings(folder: Path) -> dict[str, Any]:
    for ending in RECORDED:
        model = linears()
        config = {"0": ["WeightNorm", "OutputHistogram"], "2": ["OutputGradSndNorm", "WeightStatistic"]}
        with mk.Monitor(model, config, name="run of before") as monitor:
            monitor.add_sink(folder / f"run.{ending}")
            for step in range(3):
                model(torch.ones(2, 4)).sum().backward()
                monitor.track(step)
    return recording_facts(mk.load_recording(folder / "run.jsonl"))


def recording_facts(recording: Any) -> dict[str, Any]:
    frame = recording.frame()
    rows = [f"{row.module} {row.metric} {row.step} {_text(row.value)}" for row in frame.itertuples()]
    return {"name": recording.name, "rows": sorted(rows)}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_text(part)}" for key, part in value.items())
    return f"{value:.5g}" if isinstance(value, float | int) else " ".join(map(_text, list(value)))


def page(folder: Path) -> dict[str, Any]:
    view = mk.ModelGraph(linears(), args=torch.zeros(2, 4))
    view.export(folder / "model.json")
    state = view.get_manager_state(widgets=[view])
    saved = {"metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": state}}, "cells": []}
    (folder / "saved_notebook.json").write_text(json.dumps({**saved, "nbformat": 4, "nbformat_minor": 5}, default=str))
    return {"names": view.payload["nodes"]["name"], "version": view.payload["schema_version"]}


def fingerprints() -> dict[str, list[str]]:
    found = {}
    for name in FINGERPRINTED:
        with meta_weights():
            model = torchvision_builders()[name]()
        structure, seed = mk.fingerprint(model), mk.fingerprint(model, scheme="seed")
        found[name] = [structure.hexdigest, structure.display_name, seed.display_name]
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "plans": plans(folder), "masks": masks(folder), "graph": knowledge(folder), "recording": recordings(folder),
        "page": page(folder), "fingerprints": fingerprints(), "weights": str(mk.weight_fingerprint(linears())),
    }  # fmt: skip
    (folder / "facts.json").write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
