"""Plans for many models and requests: what they print, and the file that they are saved in."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import modulekg_widgets as mk
from goldens.digests import Case
from goldens.nets import net_of

Request = dict[str, Any]


def _batches(args: tuple[Any, ...]) -> list[Any]:
    return [args[0], args[0].flip(0)]


def _loss(output: torch.Tensor, *_: Any) -> torch.Tensor:
    return output.square().mean()


REQUESTS: list[tuple[str, str, Request]] = [
    ("convolutions", "ratio", {"ratio": 0.5}),
    ("convolutions", "global", {"ratio": 0.3, "scope": "global"}),
    ("convolutions", "group", {"ratio": 0.5, "granularity": "group"}),
    ("convolutions", "per_axis", {"per_axis": {"0": 0.5}}),
    ("three", "indices", {"per_axis": {"0": [1, 3, 5], "3": [0]}}),
    ("three", "ratio", {"ratio": 0.25}),
    ("three", "l1", {"ratio": 0.5, "importance": "l1"}),
    ("three", "fpgm", {"ratio": 0.5, "importance": "fpgm"}),
    ("three", "bn_scale", {"ratio": 0.5, "importance": "bn_scale"}),
    ("three", "random", {"ratio": 0.5, "importance": "random"}),
    ("three", "round_to", {"ratio": 0.4, "round_to": 4}),
    ("three", "floor", {"ratio": 0.9, "floor": 0.5}),
    ("three", "floor_count", {"ratio": 0.9, "floor": 6}),
    ("three", "ceiling", {"ratio": 0.1, "ceiling": 0.5}),
    ("three", "limits_by_axis", {"ratio": 0.7, "scope": "global", "floor": {"0": 10}, "ceiling": {"3": 8}}),
    ("three", "keep", {"ratio": 0.5, "keep": ["0"]}),
    ("three", "only", {"ratio": 0.5, "only": ["3"]}),
    ("three", "params", {"target": {"params": 0.5}}),
    ("three", "flops", {"target": {"flops": 0.3}}),
    ("three", "macs", {"target": {"macs": 0.6}}),
    ("three", "bytes", {"target": {"bytes": 0.4}}),
    ("three", "two_targets", {"target": {"params": 0.5, "flops": 0.5}}),
    ("three", "global_flops", {"target": {"flops": 0.4}, "scope": "global"}),
    ("residual", "ratio", {"ratio": 0.5}),
    ("residual", "one_block", {"blocks": 1}),
    ("residual", "block_by_name", {"blocks": ["second"], "ratio": 0.5}),
    ("residual", "target", {"target": {"params": 0.6}, "importance": "l1"}),
    ("concatenated", "ratio", {"ratio": 0.5}),
    ("concatenated", "global", {"ratio": 0.4, "scope": "global"}),
    ("u_net", "ratio", {"ratio": 0.5}),
    ("lstm", "ratio", {"ratio": 0.5}),
    ("gru", "ratio", {"ratio": 0.5}),
    ("attending", "ratio", {"ratio": 0.5}),
    ("attending", "head", {"ratio": 0.5, "granularity": "head"}),
    ("tied", "ratio", {"ratio": 0.5}),
    ("tied", "flops", {"target": {"flops": 0.5}}),
    ("sized", "ratio", {"ratio": 0.5}),
    ("layered", "ratio", {"ratio": 0.5}),
    ("layered", "uniform", {"ratio": 0.5, "layers": "uniform"}),
    ("layered", "blocks", {"blocks": 0.5}),
    ("layered", "blocks_and_params", {"blocks": 1, "target": {"params": 0.5}}),
    ("torchvision/resnet18", "ratio", {"ratio": 0.5}),
    ("torchvision/resnet18", "flops", {"target": {"flops": 0.5}}),
    ("torchvision/mobilenet_v3_small", "ratio", {"ratio": 0.5, "round_to": 8}),
    ("torchvision/shufflenet_v2_x0_5", "ratio", {"ratio": 0.5}),
    ("torchvision/squeezenet1_1", "params", {"target": {"params": 0.5}, "scope": "global"}),
    ("timm/test_convnext", "flops", {"target": {"flops": 0.6}}),
    ("timm/test_efficientnet", "ratio", {"ratio": 0.3, "scope": "global"}),
    ("timm/test_resnet", "blocks", {"blocks": 1}),
    ("transformers/bert", "ratio", {"ratio": 0.5}),
    ("transformers/bert", "uniform", {"ratio": 0.5, "layers": "uniform"}),
    ("transformers/llama", "ratio", {"ratio": 0.5}),
    ("transformers/llama", "uniform", {"ratio": 0.25, "layers": "uniform"}),
    ("transformers/llama", "params", {"target": {"params": 0.6}, "importance": "l1"}),
    ("transformers/llama", "blocks", {"blocks": 1}),
    ("transformers/gpt2", "ratio", {"ratio": 0.5}),
    ("transformers/t5", "ratio", {"ratio": 0.5}),
    ("transformers/mixtral", "ratio", {"ratio": 0.5}),
    ("transformers/vit", "head", {"ratio": 0.5, "granularity": "head"}),
    ("transformers/swin", "ratio", {"ratio": 0.5}),
    ("transformers/mamba", "ratio", {"ratio": 0.5}),
    ("transformers/whisper", "ratio", {"ratio": 0.5}),
    ("transformers/clip", "ratio", {"ratio": 0.5}),
]
SLOW = {"layered uniform"}
# importances that look at data, by the name of their class in mk.pruning
BY_DATA: dict[str, Callable[[list[Any]], Any]] = {
    "taylor": lambda batches: mk.pruning.Taylor(batches, _loss),
    "hessian": lambda batches: mk.pruning.Hessian(batches, _loss, samples=4),
    "activation": lambda batches: mk.pruning.Activation(batches),
    "activation_max": lambda batches: mk.pruning.Activation(batches, "rms", weighted=False),
}
REFUSED: dict[str, tuple[str, Request]] = {
    "nothing asked": ("three", {}),
    "ratio above one": ("three", {"ratio": 1.5}),
    "unknown axis": ("three", {"per_axis": {"1.waight": 0.5}}),
    "unknown importance": ("three", {"ratio": 0.5, "importance": "l3"}),
    "unknown scope": ("three", {"ratio": 0.5, "scope": "globel"}),
    "unknown target": ("three", {"target": {"parms": 0.5}}),
    "out of reach": ("three", {"target": {"params": 0.0001}, "floor": 0.5}),
    "index out of range": ("three", {"per_axis": {"0": [99]}}),
    "frozen axis": ("fixed", {"per_axis": {"third": 0.5}}),
    "nothing free": ("fixed", {"ratio": 0.5}),
    "unknown block": ("residual", {"blocks": ["third"]}),
    "unknown layers": ("layered", {"ratio": 0.5, "layers": "unifrom"}),
    "crossed limits": ("three", {"ratio": 0.5, "floor": 0.9, "ceiling": 0.2}),
}


def planned(model: str, request: Request) -> dict[str, Any]:
    """The plan of a request, in all its outer forms."""
    net, args, kwargs = net_of(model)
    return outputs(mk.plan(mk.trace(net, args, kwargs), **request))


def outputs(plan: mk.PruningPlan) -> dict[str, Any]:
    """What a plan prints and saves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        plan.save(path)
        file = json.loads(path.read_text("utf-8"))
        again = str(mk.load_plan(path))
    sizes = {unit: getattr(plan, unit) for unit in ("params", "flops", "macs", "bytes")}
    shown = str(plan)
    return {
        "str": shown, "file": file, "sizes": sizes, "blocks": plan.blocks, "notes": plan.notes,
        "changes": [str(change) for change in plan.changes], "read again": again if again != shown else "the same",
    }  # fmt: skip


def by_cuts() -> dict[str, Any]:
    """Two replayed cuts."""
    net, args, _ = net_of("convolutions")
    graph = mk.trace(net, args)
    return outputs(mk.plan(graph, cuts=[graph.cut_analysis("0.weight", [1, 3]), graph.cut_analysis("3.weight", [2])]))


def by_data(name: str) -> dict[str, Any]:
    """A plan by what batches say."""
    net, args, _ = net_of("three")
    return outputs(mk.plan(mk.trace(net, args), ratio=0.5, importance=BY_DATA[name](_batches(args))))


def refused(name: str) -> str:
    """The words of a refusal."""
    model, request = REFUSED[name]
    net, args, kwargs = net_of(model)
    try:
        plan = mk.plan(mk.trace(net, args, kwargs), **request)
    except mk.ModuleKGError as error:
        return str(error)
    return f"not refused:\n{plan}"


def cases() -> dict[str, Case]:
    """All of this subject."""
    found = {
        f"{model} {name}": Case(partial(planned, model, request), slow=f"{model} {name}" in SLOW)
        for model, name, request in REQUESTS
    }
    found["convolutions cuts"] = Case(by_cuts)
    found |= {f"three {name}": Case(partial(by_data, name)) for name in BY_DATA}
    return found | {f"refused: {name}": Case(partial(refused, name)) for name in REFUSED}
