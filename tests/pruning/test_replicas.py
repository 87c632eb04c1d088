"""Two processes train one model: a cut before wrapping or sharding holds in all of them, a later one is refused."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
import torch
from torch import multiprocessing, nn

import modulekg_widgets as mk
from pruning.replicas_run import RANKS, SCENARIOS, batch, check_same, main, net, plan, seen

SECONDS = 240  # for all scenarios, on a machine that has much else to do


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """By scenario what went wrong in each of the two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "OMP_NUM_THREADS", "1")
        context = multiprocessing.start_processes(main, (folder,), RANKS, join=False, start_method="spawn")
    assert context is not None
    try:
        ended = context.join(SECONDS) or context.join(SECONDS)  # each returns once one of them has ended
    finally:
        for process in context.processes:
            process.kill()
    assert ended
    return [pickle.loads((folder / f"found{rank}").read_bytes()) for rank in range(RANKS)]


@pytest.mark.parametrize("scenario", [scenario.__name__ for scenario in SCENARIOS])
@pytest.mark.slow
def test_two_processes(found: list[dict[str, str]], scenario: str) -> None:
    for each in found:
        assert not each[scenario], each[scenario]


def test_what_data_parallel_wraps_is_cut_in_place_and_comes_back() -> None:
    model, alone = net(), net()
    wrapped, ema = nn.DataParallel(model), nn.DataParallel(copy.deepcopy(model))
    before = seen(model, ema)
    assert str(mk.plan(mk.trace(wrapped, batch()), ratio=0.5)) == str(plan())
    receipt = plan().cut(wrapped, copies=[ema], recalibrate=[batch()], compensate=True)
    plan().cut(alone, recalibrate=[batch()], compensate=True)
    check_same(model.state_dict(), alone.state_dict())
    assert torch.equal(wrapped(batch()), model(batch()))
    assert torch.equal(ema(batch()), model(batch()))
    receipt.undo()
    assert seen(model, ema) == before
    mask = plan().mask(wrapped)
    assert seen(model) != before
    mask.undo()
    assert seen(model, ema) == before


class OwnAverage(nn.Module):
    """An average as training libraries write it: a deepcopy that follows, beside settings of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval()
        self.decay, self.device = 0.9, None

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for own, new in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            own.copy_(self.decay * own + (1 - self.decay) * new)


def averages() -> list[Any]:
    from timm.utils import ModelEmaV2, ModelEmaV3

    swa = torch.optim.swa_utils.AveragedModel
    return [OwnAverage, swa, ModelEmaV2, ModelEmaV3]


@pytest.mark.parametrize("at", range(4), ids=["own", "AveragedModel", "ModelEmaV2", "ModelEmaV3"])
def test_an_average_goes_on_after_the_cut(at: int) -> None:
    model = net()
    ema = averages()[at](model)
    update = ema.update_parameters if hasattr(ema, "update_parameters") else ema.update
    receipt = plan().cut(model, copies=[ema])
    check_same(ema.module.state_dict(), model.state_dict())
    with torch.no_grad():
        model.head.weight.add_(1)
    update(model)
    assert ema.module(batch()).shape == (8, 2)
    receipt.undo()
    check_same(model.state_dict(), net().state_dict())
    check_same(ema.module.state_dict(), net().state_dict())
