"""The peer: Torch-Pruning with its own importances and its defaults, its ratio bisected to a share of the FLOPs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_pruning as tp
from torch import nn

from benchmarks.research.quality.flops import flops
from benchmarks.research.quality.task import Batch, Task
from benchmarks.research.quality.training import call, recalibrate

IMPORTANCES: dict[str, Callable[[], Any]] = {
    "l1": lambda: tp.importance.MagnitudeImportance(p=1),
    "l2": tp.importance.MagnitudeImportance,
    "taylor": tp.importance.TaylorImportance,
    "hessian": tp.importance.HessianImportance,
    "activation": tp.importance.ActivationImportance,
    "bn_scale": tp.importance.BNScaleImportance,
    "lamp": tp.importance.LAMPImportance,
    "fpgm": tp.importance.FPGMImportance,
    "random": tp.importance.RandomImportance,
}
Tensor = torch.Tensor
DEFAULT = "l2"  # what MagnitudeImportance is when nothing is said
CLOSE = 0.005  # of the uncut FLOPs
FAR = 0.05  # that is no result
MOST_STEPS = 14


class PeerError(Exception):
    """The peer has left a net that does not run, or stopped itself."""


@dataclass
class Peer:
    """Cuts copies of nets; remembers ratios of scope "local", where sizes follow from nothing else."""

    ratios: dict[Any, float] = field(default_factory=dict)

    def cut(
        self, task: Task, model: nn.Module, batches: Sequence[Batch], importance: str, scope: str, left: float
    ) -> tuple[nn.Module, nn.Module]:
        """The net whose FLOPs are nearest to the share `left`, and the same with batch-norm statistics renewed."""
        source = copy.deepcopy(model)
        try:
            gradients = PREPARATIONS.get(importance, _nothing)(task, source, batches)
        except Exception as error:
            raise PeerError(f"{type(error).__name__}: {error}") from error
        whole = flops(model, task.example)
        best: tuple[float, float, nn.Module] | None = None
        failure: Exception | None = None
        low, high = 0.0, 1.0
        ratio = self.ratios.get((task.name, left), 0.5) if scope == "local" else 0.5
        for _ in range(MOST_STEPS):
            try:
                found = _pruned(task, source, gradients, importance, scope, ratio)
                share = flops(found, task.example) / whole
            except Exception as error:  # noqa: BLE001 – whatever the peer raises is its result
                failure, high = error, ratio
            else:
                if best is None or abs(share - left) < best[0]:
                    best = abs(share - left), ratio, found
                if best[0] <= CLOSE:
                    break
                low, high = (ratio, high) if share > left else (low, ratio)
            ratio = (low + high) / 2
        if best is None:
            raise PeerError(f"{type(failure).__name__}: {failure}") from failure
        if best[0] > FAR:
            raise PeerError(f"{failure}" if failure else f"no ratio leaves {left:g} of the FLOPs")
        if scope == "local":
            self.ratios[task.name, left] = best[1]
        return best[2], recalibrate(best[2], batches)


Gradients = dict[str, Tensor | None]  # by the names of parameters: what their .grad shall be


def _nothing(task: Task, model: nn.Module, batches: Sequence[Batch]) -> Gradients:
    return {}


def _gradients(task: Task, model: nn.Module, batches: Sequence[Batch]) -> Gradients:
    """Summed over the batches, as the peer's manual does."""
    for inputs, target in batches:
        task.loss(call(model, inputs), target).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _squares(task: Task, model: nn.Module, batches: Sequence[Batch]) -> Gradients:
    """The means of the squared gradients of single samples, which the peer's manual says its importance is of.

    Its `accumulate_grad` keeps those of the last sample alone; an importance that has accumulated nothing reads .grad.
    """
    found: Gradients = {}
    samples = [sample for batch in batches for sample in task.samples(batch)]
    parameters = dict(model.named_parameters())
    for inputs, target in samples:
        loss = task.loss(call(model, inputs), target)
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            square = None if gradient is None else gradient.square() / len(samples)
            before = found.get(name)
            found[name] = before if square is None else square if before is None else before + square
    return found


def _outputs(task: Task, model: nn.Module, batches: Sequence[Batch]) -> Gradients:
    """One pass over all batches: of several, the peer keeps the last alone. It leaves its sums at the modules."""
    inputs = [batch.inputs for batch in batches]
    whole = tuple(map(torch.cat, zip(*inputs, strict=True))) if isinstance(inputs[0], tuple) else torch.cat(inputs)
    with torch.no_grad(), tp.importance.ActivationImportance().compute_importance(model):
        call(model, whole)
    return {}


PREPARATIONS = {"taylor": _gradients, "hessian": _squares, "activation": _outputs}


def _pruned(task: Task, model: nn.Module, gradients: Gradients, importance: str, scope: str, ratio: float) -> nn.Module:
    found = copy.deepcopy(model)
    for name, gradient in gradients.items():
        found.get_parameter(name).grad = None if gradient is None else gradient.clone()
    setup = task.peer_setup(found)
    example: Any = task.example
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner = tp.pruner.BasePruner(
            found,
            example if len(example) > 1 else example[0],
            importance=IMPORTANCES[importance](),
            global_pruning=scope == "global",
            pruning_ratio=ratio,
            ignored_layers=setup.ignored,
            num_heads=dict(setup.heads),
            # its defaults are dicts that all pruners would share
            in_channel_groups={},
            out_channel_groups={},
        )
        pruner.step()
    task.after_peer(found, pruner.num_heads)
    found.zero_grad(set_to_none=True)
    return found
