"""What comes of a trace and of a cut: axes, dependencies, masks, sensitivity, receipts, rewriting, schedules."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from goldens.digests import Case, cleaned
from goldens.nets import NETS, exact_net, local_net, net_of

LIBRARY = [
    "torchvision/resnet18", "torchvision/shufflenet_v2_x0_5", "timm/test_vit", "timm/test_resnet", "transformers/bert",
    "transformers/llama", "transformers/gpt2", "transformers/swin",
]  # fmt: skip
DEPENDENCIES = {
    "channel": lambda graph: graph.channel_dependency(),
    "batchnorm channel": lambda graph: graph.channel_dependency("batchnorm"),
    "input channel": lambda graph: graph.input_channel_dependency(),
    "group": lambda graph: graph.group_dependency(),
    "attention": lambda graph: graph.attention_dependency(),
    "reshape": lambda graph: graph.reshape_dependency(),
}
MASKED = {
    "convolutions": {"0": {"weight": [0, 1, 2, 3]}},
    "residual": {"first.0": {"weight": [0, 2]}, "stem": {"weight": [1]}},
    "three": {"0": {"weight": [1, 2]}, "3": {"weight": [5]}},
    "linears": {"0": {"weight": [0, 5]}},
}  # rows at zero


def graph_of(name: str) -> mk.DataflowGraph:
    """The trace of a model by name."""
    net, args, kwargs = net_of(name)
    return mk.trace(net, args, kwargs)


def traced(name: str) -> dict[str, Any]:
    """A trace: axes with members and reasons, notes, FLOPs, operators, blocks."""
    graph = graph_of(name)
    axes = {
        axis.name: [axis.size, cleaned(str(axis.frozen)), [list(member) for member in axis.members]]
        for axis in graph.axes
    }
    return {
        "axes": axes, "str": str(graph.axes), "graph": str(graph), "notes": graph.notes, "flops": str(graph.flops()),
        "matmul flops": str(graph.matmul_flops()), "unknown": [str(each) for each in graph.unknown],
        "operators": [f"{each.overload} in {each.module}" for each in graph.operators],
        "blocks": graph.blocks(), "unread": graph.unread,
    }  # fmt: skip


def dependencies(name: str) -> dict[str, str]:
    """The dependency tables of a trace."""
    graph = graph_of(name)
    return {kind: str(ask(graph)) for kind, ask in DEPENDENCIES.items()}


def proved(name: str) -> str:
    """A proof by permutation, without its error."""
    report = graph_of(name).axes.verify()
    text = re.sub(r"change \S+ in float64", "change of rounding errors in float64", str(report))
    return text if report.ok else f"wrong: {text}"


def analysed(name: str) -> dict[str, Any]:
    """What follows from a few indices of each first dimension."""
    graph = graph_of(name)
    found: dict[str, Any] = {}
    for path, parameter in local_net(name)[0].named_parameters():
        try:
            found[path] = str(graph.cut_analysis(path, index=[0, parameter.shape[0] - 1]))
        except mk.ModuleKGError as error:
            found[path] = f"refused: {error}"
    return found


def _masks(name: str) -> dict[str, dict[str, torch.Tensor]]:
    model = local_net(name)[0]
    found: dict[str, dict[str, torch.Tensor]] = {}
    for path, rows in MASKED[name].items():
        for parameter, index in rows.items():
            mask = torch.ones_like(model.get_submodule(path).get_parameter(parameter))
            mask[index] = 0
            found.setdefault(path, {})[parameter] = mask
    return found


def _summed(masks: Any) -> dict[str, Any]:
    return {
        f"{path}.{name}": [list(mask.shape), mask.reshape(mask.shape[0], -1).sum(1).int().tolist()]
        for path, own in masks.items()
        for name, mask in own.items()
        if mask is not None
    }  # fmt: skip


def masked(name: str) -> dict[str, Any]:
    """Masks read, inferred, mended, saved and made a cut."""
    graph, masks = graph_of(name), _masks(name)
    with tempfile.TemporaryDirectory() as folder:
        inferred = mk.pruning.infer_masks(graph, masks)
        inferred.save(Path(folder) / "masks.pth")
        read = _summed(mk.pruning.load_masks(Path(folder) / "masks.pth"))
    model, x = local_net(name)
    receipt = mk.speedup(model, masks, x)
    return {
        "reading": str(mk.pruning.read_masks(graph, masks)), "inferred": str(inferred), "file": read,
        "conflicts": [str(each) for each in mk.pruning.conflicts(graph, masks)],
        "fixed": _summed(mk.pruning.fix_conflicts(graph, masks)),
        "receipt": str(receipt), "model": str(model),
    }  # fmt: skip


def cut(name: str) -> dict[str, Any]:
    """A plan cut, masked and undone."""
    model, args, kwargs = net_of(name)
    plan = mk.plan(mk.trace(model, args, kwargs), ratio=0.5)
    before = mk.fingerprint(model)
    masks = {path: [list(mask.shape), int(mask.sum())] for path, mask in plan.masks().items()}
    receipt = plan.cut(model)
    shapes = {path: list(tensor.shape) for path, tensor in model.state_dict().items()}
    found = {"masks": masks, "receipt": str(receipt), "shapes": shapes, "cut": mk.fingerprint(model).hexdigest}
    receipt.undo()
    return {**found, "undone": mk.fingerprint(model) == before, "after": str(receipt)}


def recovered() -> dict[str, Any]:
    """Cuts with an optimizer, recalibration and compensation."""
    model, x = local_net("three")
    optimizer = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    receipt = plan.cut(model, optimizer, recalibrate=[x, x.flip(0)], compensate=True)
    state = [sorted(f"{key} {list(value.shape)}" for key, value in each.items()) for each in optimizer.state.values()]
    return {"receipt": str(receipt), "state": state, "output": model(x)}


def sensitivities() -> Any:
    """What each index costs."""
    net = exact_net()
    x = (torch.arange(48.0).reshape(12, 4) * 5 % 11 - 5) / 8
    return mk.pruning.sensitivity(mk.trace(net, x), [x, x.flip(0)], lambda output, *_: output.square().mean())


def schedule() -> dict[str, Any]:
    """A schedule of cuts."""
    made: dict[str, Any] = {}
    for name, settings in SCHEDULES.items():
        try:
            plan = mk.PruningSchedule(**settings)
            made[name] = [[plan.due(step), plan.ratio(step)] for step in range(12)]
            made[f"{name} state"] = str(plan.state_dict())
        except (mk.ModuleKGError, TypeError) as error:
            made[name] = str(error)
    return made


SCHEDULES: dict[str, dict[str, Any]] = {
    "cubic": {"steps": 8},
    "linear": {"steps": 6, "end": 0.75, "shape": "linear", "first": 2, "every": 2},
    "exponential": {"steps": 4, "shape": "exponential"},
    "target": {"steps": 4, "target": {"flops": 0.5}},
    "shape": {"steps": 4, "shape": "cubical"},
    "end": {"steps": 4, "end": 1.5},
}


REWRITES: dict[str, Callable[[], Any]] = {
    "find": lambda: mk.rewrite.find(local_net("residual")[0], nn.Conv2d),
    "find by super class": lambda: mk.rewrite.find(local_net("residual")[0], nn.Sequential, False),
    "chains": lambda: mk.rewrite.find_chains(graph_of("residual"), [nn.Conv2d, nn.BatchNorm2d]),
    "fold": lambda: _rewritten("residual", lambda model, x: mk.rewrite.fold_conv_bn(model, x)),
    "separate": lambda: _rewritten("residual", lambda model, x: mk.rewrite.depthwise_separable(model, args=x)),
    "low rank": lambda: _rewritten("attending", lambda model, x: mk.rewrite.low_rank(model, rank=2, args=x)),
    "fake quantisation": lambda: _rewritten("linears", lambda model, x: mk.rewrite.fake_quant(model, x)),
    "replace": lambda: _rewritten(
        "linears", lambda model, x: mk.rewrite.replace(model, ["1", "4"], lambda *_: nn.GELU(), args=x)
    ),
    "function modules": lambda: _rewritten("residual", lambda model, x: mk.rewrite.function_modules(model, x)),
}


def _rewritten(name: str, rewrite: Callable[[nn.Module, torch.Tensor], Any]) -> dict[str, str]:
    model, x = local_net(name)
    done = rewrite(model, x)
    text = str(model)
    for each in model.modules():
        if type(each).__module__.startswith("modulekg_widgets"):
            text = text.replace(f"{type(each).__name__}(", "CLASS(")
    return {"result": str(done), "model": text}


def rewritten(name: str) -> Any:
    """The result of a rewrite."""
    return REWRITES[name]()


def cases() -> dict[str, Case]:
    """All of this subject."""
    names = [*NETS, *LIBRARY]
    return {
        **{f"trace of {name}": Case(partial(traced, name)) for name in names},
        **{f"dependencies of {name}": Case(partial(dependencies, name)) for name in [*NETS, LIBRARY[0], LIBRARY[5]]},
        **{f"proof of {name}": Case(partial(proved, name), 1) for name in NETS},
        **{f"cut analysis of {name}": Case(partial(analysed, name)) for name in NETS},
        **{f"masks of {name}": Case(partial(masked, name)) for name in MASKED},
        **{
            f"cut of {name}": Case(partial(cut, name)) for name in (*NETS, LIBRARY[0], *LIBRARY[2:6]) if name != "fixed"
        },
        "recovery": Case(recovered, 3),
        "sensitivity": Case(sensitivities, 5),
        "schedule": Case(schedule),
        **{f"rewrite: {name}": Case(partial(rewritten, name), 4) for name in REWRITES},
    }
