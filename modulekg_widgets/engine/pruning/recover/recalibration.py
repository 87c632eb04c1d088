"""Recalibration of running statistics: the mean over batches, weighted by their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.operators.arguments import Arguments
from modulekg_widgets.engine.operators.signature import plain_name
from modulekg_widgets.engine.operators.traits import CHANNELS, traits_of
from modulekg_widgets.engine.pruning.cut.edits import NewValue
from modulekg_widgets.engine.pruning.recover.sandbox_runs import Batches, CutSandbox, run_each
from modulekg_widgets.engine.torch_runtime.decompose import OperatorMode
from modulekg_widgets.engine.torch_runtime.private import OpOverload, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Call, Kwargs

Tensor = torch.Tensor
BATCH_COUNTER = "num_batches_tracked"  # where torch's batch normalisations count, beside their statistics


@dataclass(slots=True)
class _WeightedSums:
    """Weighted sums of the statistics of one normalization."""

    mean: Tensor
    var: Tensor
    weight: int = 0
    calls: int = 0

    def add(self, mean: Tensor, var: Tensor, weight: int) -> None:
        self.mean += mean.to(self.mean.dtype) * weight
        self.var += var.to(self.var.dtype) * weight
        self.weight += weight
        self.calls += 1


class RecalibrationMode(OperatorMode):
    """Runs normalizations on batch statistics, and sums these up.

    The formula is that of `torch.optim.swa_utils.update_bn`: the mean over calls, of variances without bias. Calls
    count by the number of values behind a mean, so that a last batch of fewer samples has no more say than is due.
    """

    def __init__(self, sandbox: CutSandbox) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._sums: dict[tuple[str, str], _WeightedSums] = {}  # by the names of mean and variance
        self._counted: set[tuple[str, str]] = set()
        self._repeated_tensors: dict[
            int, tuple[Tensor, str]
        ] = {}  # instance normalisations repeat theirs for each sample

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if traits_of(func).normalizes == CHANNELS:
            call = Arguments(func, args, kwargs)
            mean, var = call.get("running_mean"), call.get("running_var")
            names = self._name(mean), self._name(var)
            if names[0] and names[1]:
                return self._normalised(func, call, names)
        out = func(*args, **kwargs)
        if args and id(args[0]) in self._sandbox.names and plain_name(schema_of(func).name) == "repeat":
            self._repeated_tensors[id(out)] = out, self._sandbox.names[id(args[0])]
        return out

    def _name(self, tensor: object) -> str:
        known = self._sandbox.names.get(id(tensor), "")
        return known or self._repeated_tensors.get(id(tensor), (None, ""))[1]

    def _normalised(self, func: OpOverload, call: Arguments, names: tuple[str, str]) -> object:
        x, running_mean = call["input"], call["running_mean"]
        weight = x.numel() // max(x.shape[1], 1)
        if weight < 2:
            raise CutError(
                f"a batch gives {printable(names[0])} one value per channel, which has no variance: pass larger "
                "batches, "
                "as a DataLoader with drop_last=True does"
            )
        mean, var = torch.zeros_like(running_mean), torch.zeros_like(call["running_var"])
        eps = call.get("eps", call.get("epsilon"))
        results = torch.native_batch_norm(x, call.get("weight"), call.get("bias"), mean, var, True, 1.0, eps)
        own = self._sandbox.tensors[names[0]]
        samples = len(mean) // max(len(own), 1)
        if samples > 1:
            mean, var = (each.reshape(samples, -1).mean(0) for each in (mean, var))
        if not bool((mean.isfinite() & var.isfinite()).all()):
            raise CutError(
                f"what reaches the statistics {printable(names[0])} is not finite: look for NaN in the batches"
            )
        if names not in self._sums:
            kind = torch.float32 if mean.device.type == "mps" else torch.float64
            self._sums[names] = _WeightedSums(torch.zeros_like(mean, dtype=kind), torch.zeros_like(var, dtype=kind))
        self._sums[names].add(mean, var, weight * samples)
        if self._sandbox.names.get(id(running_mean)) == names[0]:
            self._counted.add(names)
        count = len(schema_of(func).returns)
        return results[0] if count == 1 else (*results, *[x.new_empty(0)] * (count - len(results)))

    def clear(self) -> None:
        """Clear the tensors that are known by identity, after each forward pass."""
        self._repeated_tensors.clear()

    def __exit__(self, *error: object) -> None:
        self.clear()
        super().__exit__(*error)

    def values(self) -> dict[str, NewValue]:
        """The new statistics and batch counters, by name."""
        values: dict[str, Tensor] = {}
        for (mean, var), sums in self._sums.items():
            for name, total in ((mean, sums.mean), (var, sums.var)):
                old = self._sandbox.tensors[name]
                values[name] = (total / sums.weight).to(old.dtype).reshape(old.shape)
                if not bool(values[name].isfinite().all()):
                    raise CutError(f"the statistics {printable(name)} are too large for {old.dtype}")
            counter = f"{mean.rpartition('.')[0]}.{BATCH_COUNTER}".removeprefix(".")
            count = self._sandbox.tensors.get(counter)
            if count is not None and (mean, var) in self._counted:
                values[counter] = torch.full_like(count, sums.calls)
        return {name: NewValue(tensor, is_sum=False) for name, tensor in values.items()}


def recalibrated_statistics(
    sandbox: CutSandbox, batches: Batches, calls: Iterable[Call] | None = None
) -> dict[str, NewValue]:
    """The recalibrated statistics from these calls, by default all batches."""
    renewal = RecalibrationMode(sandbox)
    for _ in run_each(batches, batches if calls is None else calls, sandbox.model, lambda: renewal):
        pass  # what the model gives is not looked at
    return renewal.values()
