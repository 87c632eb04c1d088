"""One of two processes that train together; runs scenarios and leaves what it found: see test_distributed.py."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.merge import distributed

STEPS = 3
SHARES = (5, 3)  # examples of each rank
BATCH = sum(SHARES)
METRICS = [
    "InputSndNorm",
    "OutputSndNorm",
    "OutputGradSndNorm",
    "InputGradSndNorm",
    "WeightNorm",
    "WeightGradNorm",
    "InputStd",
    "WeightStatistic",
    "UpdateRatio",
    "WeightParamJump",
    "ActivationMax",
    "Sparsity",
    "OutputHistogram",
    "OutputGradHistogram",
    "WeightHistogram",
]
COLLECTIVES = [name for name in distributed_c10d.__all__ if name.startswith(("all_", "broadcast", "reduce", "gather"))]
COLLECTIVES += ["barrier", "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv", "monitored_barrier"]


@mk.metric("Loss alone", needs="Loss")
def loss_alone(loss: float) -> float:
    return loss


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = Block()
        self.hidden = nn.Linear(5, 7)
        self.head = nn.Linear(7, 1)  # one row: a shard of it is empty

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(self.layer1(x).mean((2, 3))).tanh())


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(2, 2)
        self.right = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor, is_left: bool) -> torch.Tensor:
        return (self.left if is_left else self.right)(x)


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batch(step: int) -> torch.Tensor:
    return torch.randn(BATCH, 3, 6, 6, generator=torch.Generator().manual_seed(step))


def config(prefix: str = "") -> dict[str, Any]:
    both = [*METRICS, "InputMean"]
    return {"layer1.conv": METRICS, f"{prefix}hidden": [[name, "linear(2)"] for name in both], f"{prefix}head": both}


def trained(model: nn.Module, inputs: Callable[[int], list[torch.Tensor]], **options: Any) -> mk.Monitor:
    """The monitor of a short training; the loss is the mean over the lists of inputs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    prefix = "module." if isinstance(model, nn.parallel.DistributedDataParallel) else ""
    with mk.Monitor(model, config(prefix), **options) as monitor:
        for step in range(STEPS):
            optimizer.zero_grad()
            parts = inputs(step)
            output = model(torch.cat(parts))
            losses = [part.square().mean() for part in output.split([len(part) for part in parts])]
            torch.stack(losses).mean().backward()
            optimizer.step()
            monitor.track(step)
    return monitor


def own_inputs(step: int) -> list[torch.Tensor]:
    return [batch(step).split(SHARES)[dist.get_rank()]]


# -------------------------------------------------------------- scenarios


def ddp(folder: Path) -> Any:
    model = nn.parallel.DistributedDataParallel(net())
    sink = folder / f"ddp{dist.get_rank()}.jsonl"
    monitor = trained(model, own_inputs, sinks=[sink])
    return {"output": monitor.get_output(), "name": monitor.name, "has_file": sink.exists()}


def fsdp(folder: Path) -> Any:
    from torch.distributed.fsdp import fully_shard

    model = net()
    for part in (model.layer1.conv, model.hidden, model.head, model):
        fully_shard(part)
    monitor = trained(model, own_inputs)
    return {"output": monitor.get_output(), "rows": model.head.weight.to_local().shape[0]}  # type: ignore[operator]


def flat_parameters(folder: Path) -> Any:
    """FullyShardedDataParallel, which keeps parameters in flat ones, in all its ways."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    ways: dict[str, dict[str, Any]] = {
        "views": {"use_orig_params": True},
        "flat": {"use_orig_params": False},
        "nested views": {"use_orig_params": True, "auto_wrap_policy": ModuleWrapPolicy({nn.Linear})},
        "nested flat": {"use_orig_params": False, "auto_wrap_policy": ModuleWrapPolicy({nn.Linear, Block})},
        "unsharded in between": {"use_orig_params": False, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
        "whole": {"use_orig_params": True, "sharding_strategy": ShardingStrategy.NO_SHARD},
        "whole flat": {"use_orig_params": False, "sharding_strategy": ShardingStrategy.NO_SHARD},
        "half": {"use_orig_params": True, "mixed_precision": MixedPrecision(torch.bfloat16, torch.float32)},
    }
    found: dict[str, Any] = {"output": {}, "reasons": {}}
    for name, options in ways.items():
        model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), **options)
        found["output"][name], found["reasons"][name] = _wrapped(model)
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
    found["output"]["apart"], found["reasons"]["apart"] = _wrapped(model, distributed=False)
    with model.no_sync():
        found["output"]["not reduced"], found["reasons"]["not reduced"] = _wrapped(model, rate=None)
    return found


def _wrapped(model: nn.Module, rate: float | None = 0.3, **options: Any) -> Any:
    """Values and reasons of a wrapped model, by the names of the modules inside."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate or 0.0)
    watched = {kind: [*METRICS, "InputMean"] for kind in ("Conv2d", "Linear")}
    with warnings.catch_warnings(), mk.Monitor(model, watched, **options) as monitor:
        warnings.simplefilter("ignore")
        for step in range(STEPS):
            optimizer.zero_grad()
            model(*own_inputs(step)).square().mean().backward()
            if rate is not None:
                optimizer.step()
            monitor.track(step)
    output = {
        f"{path}.".replace("_fsdp_wrapped_module.", "").strip("."): own for path, own in monitor.get_output().items()
    }
    return output, {name: reason for (_, name), reason in monitor.reasons.items()}


def hybrid(folder: Path) -> Any:
    """Every process has all: a mesh of two copies of one shard."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = net()
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards"))
    for part in (model.layer1.conv, model.hidden, model.head, model):
        fully_shard(part, mesh=mesh)
    return {"output": trained(model, own_inputs).get_output()}


def own_values(folder: Path) -> Any:
    with counted() as calls:
        monitor = trained(net(), own_inputs, distributed=False)
    return {"output": monitor.get_output(), "collectives": dict(calls)}


def counts(folder: Path) -> Any:
    """The collectives of each step and of what comes after them."""
    model = nn.Linear(2, 2)
    found: dict[Any, dict[str, int]] = {}
    metrics = [[name, "linear(2)"] for name in ("OutputSndNorm", "InputStd", "WeightNorm")]
    with mk.Monitor(model, {"": metrics}) as monitor:
        for step in range(6):
            model(torch.ones(1, 2)).sum().backward()
            with counted() as calls:
                monitor.track(step)
            found[step] = dict(calls)
        with counted() as calls:
            monitor.get_output()
            monitor.frame()
            list(monitor.readings())
    with counted() as ends:
        monitor.stop()
    return {"steps": found, "reading": dict(calls), "stop": dict(ends)}


def branches(folder: Path) -> Any:
    torch.manual_seed(0)
    model = Forked()
    with mk.Monitor(model, {"left": ["OutputSndNorm"], "right": ["OutputSndNorm", "InputStd"]}) as monitor:
        for step, lefts in enumerate([(True, False), (False, True), (True, True), (True, True)]):
            x = torch.full((dist.get_rank() + 1, 2), float(step + 1))
            model(x, lefts[dist.get_rank()])
            monitor.track(step)
    return {"output": monitor.get_output(), "order": [reading[:3] for reading in monitor.readings()]}


def events(folder: Path) -> Any:
    """What one rank alone has seen makes both of them look."""
    model = nn.Linear(2, 2)
    with mk.Monitor(model, {"": ["Loss alone", ["WeightNorm", "on(Loss alone, above, 5)"]]}) as monitor:
        for step in range(5):
            model(torch.ones(1, 2))
            monitor.log({"loss": 9.0 if dist.get_rank() == 1 and step == 2 else 1.0})
            monitor.track(step)
    return {"steps": list(monitor.get_output()[""].get("WeightNorm", {}))}


def other_steps(folder: Path) -> Any:
    return _norms(lambda rank, step: step + 10 * rank * (step > 0))


def other_configuration(folder: Path) -> Any:
    metrics = ["OutputSndNorm", "Sparsity"][: dist.get_rank() + 1]
    return _norms(lambda rank, step: step, metrics, meeting=1)


def one_monitor(folder: Path) -> Any:
    if dist.get_rank() == 1:
        return {"output": {}, "warnings": []}
    return _norms(lambda rank, step: step, meeting=1)


def raises(folder: Path) -> Any:
    """One rank leaves after a step; the other one goes on."""

    def step_of(rank: int, step: int) -> int:
        if rank == 1 and step == 1:
            raise ZeroDivisionError("in the user's code")
        return step

    return _norms(step_of)


def destroyed(folder: Path) -> Any:
    """The user ends all process groups while the monitor runs."""

    def step_of(rank: int, step: int) -> int:
        if step == 1:
            dist.barrier()
            dist.destroy_process_group()
        return step

    rank = dist.get_rank()
    found = _norms(step_of)
    begin(rank, folder / "second_store")
    return found


def dies(folder: Path) -> Any:
    """The last scenario: one process ends without a word."""

    def step_of(rank: int, step: int) -> int:
        if rank == 1 and step == 1:
            os._exit(0)
        return step

    return _norms(step_of)


def _norms(step_of: Callable[[int, int], int], metrics: list[str] | None = None, meeting: int = 60) -> Any:
    """The norms of outputs that are [1] or [2] by rank, over three steps; ranks meet within so many seconds."""
    distributed.MEETING_TIMEOUT = timedelta(seconds=meeting)
    model = nn.Identity()
    rank = dist.get_rank()
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with (
            contextlib.suppress(ZeroDivisionError),
            mk.Monitor(model, {"": metrics or ["OutputSndNorm"]}) as monitor,
        ):
            for step in range(3):
                model(torch.tensor([[rank + 1.0]]))
                monitor.track(step_of(rank, step))
    output = monitor.get_output().get("", {}).get("OutputSndNorm", {})
    said = [str(warning.message) for warning in caught if "monitor" in str(warning.message)]
    return {"output": output, "warnings": said, "seconds": time.monotonic() - start}


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the calls of torch.distributed's collectives, without those that they make of each other."""
    calls: Counter[str] = Counter()
    inside: list[str] = []
    kept = [(space, name, getattr(space, name)) for space in (dist, distributed_c10d) for name in COLLECTIVES]

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += not inside
            inside.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                inside.pop()

        return call

    for space, name, function in kept:
        setattr(space, name, counting(name, function))
    try:
        yield calls
    finally:
        for space, name, function in kept:
            setattr(space, name, function)
        for name in [name for name, count in calls.items() if not count]:
            del calls[name]  # a call inside of another one alone


def begin(rank: int, store: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(store), 2), rank=rank, world_size=2)


def main(rank: int, folder: Path, scenarios: list[str]) -> None:
    begin(rank, folder / "store")
    found = {}
    for name in scenarios:
        start = time.monotonic()
        found[name] = globals()[name](folder)
        found[name]["took"] = time.monotonic() - start
        (folder / f"found{rank}").write_bytes(pickle.dumps(found))
        if name != "dies":
            dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
