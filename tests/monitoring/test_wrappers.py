"""Models that torch has wrapped or changed the class of are named, and measured, like those that the user wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import modulekg_widgets as mk


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("key", ["Linear", nn.Linear, "0", "*"])
def test_classes_that_fsdp_made_go_by_their_own_names(key: object) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert type(model[0]) is not nn.Linear
    with mk.Monitor(model, {key: ["OutputSndNorm"]}) as monitor:
        seen: list[torch.Tensor] = []
        model[0].register_forward_hook(lambda module, args, output: seen.append(output))
        model(torch.ones(2, 4))
        monitor.track(0)
    assert monitor.get_output()["0"]["OutputSndNorm"][0] == pytest.approx(seen[0].norm().item())
    assert monitor.name == "Sequential"


@pytest.mark.usefixtures("one_rank")
def test_names_inside_data_parallel_wrappers_are_the_model_s_own() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    for key in ("0", "module.0"):
        with mk.Monitor(model, {key: ["WeightGradNorm"]}) as monitor:
            model(torch.ones(2, 4)).sum().backward()
            monitor.track(0)
        assert list(monitor.get_output()) == ["0"]
