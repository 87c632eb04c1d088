"""What each of two processes does that train one model together, by scenario: see test_replicas.py."""

from __future__ import annotations

import copy
import io
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, TraceError

Tensor = torch.Tensor
RANKS = 2
SHARE = 4  # examples of each process


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.middle, self.head = nn.Linear(6, 16), nn.Linear(16, 12), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(self.into(x).relu()).tanh())


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def batch() -> Tensor:
    return torch.randn(RANKS * SHARE, 6, generator=torch.Generator().manual_seed(5))


def own(rank: int) -> Tensor:
    return batch()[rank * SHARE : (rank + 1) * SHARE]


@cache
def plan() -> Any:
    return mk.plan(mk.trace(net(), batch()), ratio=0.5)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def seen(*things: Any) -> list[Any]:
    """All that a refusal must leave alone: names, identities, shapes, bytes, gradients, attributes of layers."""
    found: list[Any] = []
    for thing in things:
        if isinstance(thing, nn.Module):
            found += [(name, id(each), repr(each)) for name, each in thing.named_modules()]
            tensors = {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
            tensors |= {f"grad of {name}": each.grad for name, each in tensors.items() if each.grad is not None}
        elif isinstance(thing, torch.optim.Optimizer):
            found += [[id(each) for group in thing.param_groups for each in group["params"]]]
            states = enumerate(thing.state.values())
            tensors = {f"{at} {key}": each for at, state in states for key, each in state.items()}
        else:
            tensors = thing
        for name, each in tensors.items():
            local = each.to_local() if isinstance(each, DTensor) else each
            found.append((name, id(each), tuple(each.shape), local.detach().contiguous().numpy().tobytes()))
    return found


@contextmanager
def refused(*things: Any, error: type[Exception] = CutError, says: tuple[str, ...]) -> Iterator[None]:
    before = seen(*things)
    with pytest.raises(error) as caught:
        yield
    for word in says:
        assert word in str(caught.value)
    del caught  # and with it the frames that hold wrappers
    assert seen(*things) == before


def expected(steps: int = 1) -> Net:
    """The cut model after so many steps of one process on the whole batch, its last gradients too."""
    model = net()
    plan().cut(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        step(model, optimizer, batch())
    return model


def check_same(tensors: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert tensors.keys() == wanted.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, wanted[name], rtol=1e-5, atol=1e-7, msg=name)


def grads(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


UNWRAP = ("DistributedDataParallel", "before wrapping", ".module", "wrap it again")
GATHER = ("sharded", "cut before sharding", "state_dict")

# ---------------------------------------------------------------------------------------- DistributedDataParallel


def ddp_is_refused_while_it_lives(rank: int) -> None:
    model = net()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    ema = copy.deepcopy(model)
    step(ddp, optimizer, own(rank))
    for whole in (ddp, model, nn.Sequential(ddp), nn.DataParallel(ddp)):
        for more in ({}, {"recalibrate": [own(rank)], "compensate": True}, {"undo": False}):
            with refused(model, optimizer, ema, says=UNWRAP):
                plan().cut(whole, optimizer, copies=[ema], **more)
    step(ddp, optimizer, own(rank))  # and training continues
    assert model.into.weight.shape == (16, 6)


def ddp_is_unwrapped_cut_and_wrapped_again(rank: int) -> None:
    model = net()
    ddp = DistributedDataParallel(model)
    step(ddp, torch.optim.SGD(model.parameters(), 0.0), own(rank))
    model = ddp.module
    del ddp
    model.zero_grad()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    plan().cut(model, optimizer)
    ddp = DistributedDataParallel(model)
    for _ in range(3):
        step(ddp, optimizer, own(rank))
    check_same(grads(model), grads(expected(3)))
    check_same(model.state_dict(), expected(3).state_dict())


def ddp_stands_in_the_way_back_too(rank: int) -> None:
    model, ema = net(), net()
    whole = seen(model)
    receipt = plan().cut(model, copies=[ema])
    ddp = DistributedDataParallel(model)
    for way in (receipt.undo, receipt.restore):
        with refused(model, ema, says=UNWRAP):
            way()
    del ddp
    other = DistributedDataParallel(ema)
    with refused(model, ema, says=UNWRAP):
        receipt.undo()
    del other
    receipt.undo()
    assert seen(model) == whole


def ddp_is_masked(rank: int) -> None:
    model = net()
    ddp, wanted = DistributedDataParallel(model), net()
    plan().mask(wanted)
    before = seen(model)
    receipt = plan().mask(ddp)
    check_same(model.state_dict(), wanted.state_dict())
    ddp(own(rank)).square().mean().backward()
    wanted(batch()).square().mean().backward()
    check_same(grads(model), grads(wanted))
    model.zero_grad()
    receipt.undo()
    assert seen(model) == before


def ddp_is_traced_as_the_model_in_it(rank: int) -> None:
    class Normed(nn.Sequential):
        pass

    model = Normed(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    ddp = DistributedDataParallel(model)
    before = seen(model)
    if rank == 0:  # one process alone: nothing waits for the other
        graph = mk.trace(ddp, own(rank))
        assert graph.model is model
        assert {name for axis in graph.axes for name, *_ in axis.members} >= {"0.weight", "3.weight"}
        assert str(mk.plan(graph, ratio=0.5)) == str(mk.plan(mk.trace(model, own(rank)), ratio=0.5))
        widget = mk.ModelGraph(ddp, own(rank))
        assert widget.payload["error"] is None
        assert widget.payload["traced"]
        with refused(model, error=TraceError, says=("before that part is wrapped",)):
            mk.trace(nn.Sequential(ddp), own(rank))
    assert seen(model) == before


def copies_in_ddp_are_refused(rank: int) -> None:
    model, other = net(), net()
    ddp = DistributedDataParallel(other)
    for each in (ddp, other, AveragedModel(ddp)):
        with refused(model, other, says=("copies[0]", *UNWRAP)):
            plan().cut(model, copies=[each])
    del ddp, each
    average, state = AveragedModel(net()), net().state_dict()
    plan().cut(model, copies=[average, state, other])
    assert other.into.weight.shape == average.module.into.weight.shape == state["into.weight"].shape == (8, 6)


# ------------------------------------------------------------------------------------------------------- shards


def sharded(model: Net) -> Net:
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in (model.into, model.middle, model.head):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def check_refused(model: nn.Module, *others: Any) -> None:
    whole, graph_before = net(), mk.trace(net(), batch())
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    for act in (
        lambda: plan().cut(model),
        lambda: plan().cut(model, undo=False),
        lambda: plan().cut(model, recalibrate=[batch()], compensate=True),
        lambda: plan().mask(model),
        lambda: plan().cut(whole, optimizer, copies=[model]),
    ):
        with refused(model, whole, optimizer, *others, says=GATHER):
            act()
    graph_before.model = model
    with refused(model, *others, says=GATHER):
        mk.plan(graph_before, ratio=0.5)
    with refused(model, *others, error=TraceError, says=("sharded", "trace the model before")):
        mk.trace(model, batch())


def fsdp2_is_refused(rank: int) -> None:
    model = sharded(net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step(model, optimizer, own(rank))
    check_refused(model, optimizer)
    whole, values = net(), model.state_dict()
    with refused(whole, values, says=("copies[0]", "sharded", "full state_dict")):
        plan().cut(whole, copies=[values])
    step(model, optimizer, own(rank))


def fsdp2_is_sharded_after_the_cut(rank: int) -> None:
    model = net()
    receipt = plan().cut(model)
    sharded(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        step(model, optimizer, own(rank))
    check_same({name: each.full_tensor() for name, each in grads(model).items()}, grads(expected(3)))
    check_same({name: each.full_tensor() for name, each in model.state_dict().items()}, expected(3).state_dict())
    with refused(model, says=GATHER):
        receipt.undo()


def fsdp2_is_gathered_cut_and_sharded_again(rank: int) -> None:
    trained = sharded(net())
    step(trained, torch.optim.SGD(trained.parameters(), 0.1), own(rank))
    model = net()
    model.load_state_dict(get_model_state_dict(trained, options=StateDictOptions(full_state_dict=True)))
    alone = net()
    step(alone, torch.optim.SGD(alone.parameters(), 0.1), batch())
    for each in (model, alone):
        plan().cut(each)
    alone.zero_grad()
    sharded(model)
    model(own(rank)).square().mean().backward()
    alone(batch()).square().mean().backward()
    check_same({name: each.full_tensor() for name, each in grads(model).items()}, grads(alone))


def fsdp1_is_refused(rank: int) -> None:
    for keeps_parameters in (True, False):
        model = FullyShardedDataParallel(net(), use_orig_params=keeps_parameters, device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        step(model, optimizer, own(rank))
        check_refused(model, optimizer)
        check_refused(model.module, optimizer)
        step(model, optimizer, own(rank))


def tensor_parallel_is_refused(rank: int) -> None:
    mesh = init_device_mesh("cpu", (RANKS,))
    model = parallelize_module(net(), mesh, {"into": ColwiseParallel(), "middle": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    step(model, optimizer, batch())
    check_refused(model, optimizer)


SCENARIOS: list[Callable[[int], None]] = [
    ddp_is_refused_while_it_lives,
    ddp_is_unwrapped_cut_and_wrapped_again,
    ddp_stands_in_the_way_back_too,
    ddp_is_masked,
    ddp_is_traced_as_the_model_in_it,
    copies_in_ddp_are_refused,
    fsdp2_is_refused,
    fsdp2_is_sharded_after_the_cut,
    fsdp2_is_gathered_cut_and_sharded_again,
    fsdp1_is_refused,
    tensor_parallel_is_refused,
]


def main(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    found: dict[str, str] = {}
    for scenario in SCENARIOS:
        said = io.StringIO()
        try:
            scenario(rank)
        except Exception:  # noqa: BLE001 - the test shows it
            traceback.print_exc(file=said)
        found[scenario.__name__] = said.getvalue()
        (folder / f"found{rank}").write_bytes(pickle.dumps(found))
        dist.barrier()
    dist.destroy_process_group()
