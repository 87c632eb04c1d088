"""Half of each model cut off by ours, by Torch-Pruning with defaults and configured, and by NNI configured.

Configured: told which layers make the output.

NNI asks for older versions of packages that others here need: it is measured in an environment of its own.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from benchmarks.research.rivals import models
from benchmarks.research.rivals.alone import alone, cpu_seconds

RATIO = 0.5
SMALL = "two blocks"
# what a user of the others has to look up: the layers whose outputs are the model's
OUTPUTS: dict[str, tuple[str, ...]] = {
    SMALL: ("0.1.down",),
    "resnet18": ("fc",),
    "resnet152": ("fc",),
    "densenet201": ("classifier",),
    "vit_b_16": ("heads.head",),
    "swin_t": ("head",),
    "U-Net": ("head",),
    "Faster R-CNN": ("rpn.head.cls_logits", "rpn.head.bbox_pred", "roi_heads.box_predictor"),
    "Llama, 8 layers": ("lm_head",),
    "Mixtral, 4 layers": ("lm_head",),
}


def ours(model: nn.Module, args: tuple[Any, ...], name: str) -> Callable[[], object]:
    import modulekg_widgets as mk

    return mk.plan(mk.trace(model, args), ratio=RATIO).cut(model).undo


def peer(model: nn.Module, args: tuple[Any, ...], name: str, told: bool) -> None:
    import torch_pruning

    kept = [model.get_submodule(path) for path in OUTPUTS[name]] if told else []
    importance = torch_pruning.importance.MagnitudeImportance()
    # args as they are: it calls the model with a tuple as one input
    given = args[0] if len(args) == 1 else args
    torch_pruning.pruner.MagnitudePruner(
        model, given, importance=importance, pruning_ratio=RATIO, ignored_layers=kept
    ).step()


def masked(model: nn.Module, args: tuple[Any, ...], name: str) -> None:
    from nni.compression.pruning import L1NormPruner  # type: ignore[import-not-found]
    from nni.compression.speedup import ModelSpeedup  # type: ignore[import-not-found]

    kinds = {"op_types": ["Conv2d", "Linear"], "sparse_ratio": RATIO, "exclude_op_names": list(OUTPUTS[name])}
    pruner = L1NormPruner(model, [kinds])
    _, masks = pruner.compress()
    pruner.unwrap_model()
    ModelSpeedup(model, args, masks).speedup_model()


WAYS: dict[str, Callable[..., Callable[[], object] | None]] = {
    "modulekg-widgets": ours,
    "Torch-Pruning": partial(peer, told=False),
    "Torch-Pruning, configured": partial(peer, told=True),
    "NNI, configured": masked,
}
PACKAGES = {"modulekg-widgets": "modulekg_widgets", "Torch-Pruning": "torch_pruning", "NNI": "nni"}


def is_there(way: str) -> bool:
    """Whether what a way needs is installed; it is imported then, so that no measurement has to."""
    name = PACKAGES[way.partition(",")[0]]
    if find_spec(name):
        import_module(name)
    return name in sys.modules


def shapes(value: Any) -> Any:
    """The shapes in an output of any structure."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, dict):
        return {key: shapes(one) for key, one in value.items()}
    return [shapes(one) for one in value] if isinstance(value, list | tuple) else None


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def cut(way: str, name: str) -> dict[str, Any]:
    """What is left of a model, whether it runs, and whether it comes back."""
    model, args = models.build(name)
    whole, before = parameters(model), {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        told = shapes(model(*copy.deepcopy(args)))
    WAYS[way](*models.operators(2 * models.BLOCK), SMALL)  # by which is loaded what is imported late
    begin = cpu_seconds()
    undo = WAYS[way](model, args, name)
    found: dict[str, Any] = {"seconds": cpu_seconds() - begin, "left": parameters(model) / whole}
    with torch.no_grad():
        after = shapes(model(*copy.deepcopy(args)))
    # a detector finds another number of boxes
    found["same outputs"] = after == told or name == "Faster R-CNN"
    if undo is not None:
        undo()
        now = model.state_dict()
        found["undone"] = now.keys() == before.keys() and all(torch.equal(now[key], before[key]) for key in now)
    return found


def cut_alone(way: str, name: str) -> dict[str, Any]:
    return alone(lambda: cut(way, name))
