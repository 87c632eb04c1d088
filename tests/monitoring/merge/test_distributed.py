"""Two local processes train together: values are those of one process, by one collective at each read."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from monitoring.merge.ranks_run import METRICS, SHARES, STEPS, Forked, batch, net, trained

RUN = Path(__file__).with_name("ranks_run.py")
SCENARIOS = [
    "ddp",
    "fsdp",
    "flat_parameters",
    "hybrid",
    "own_values",
    "counts",
    "branches",
    "events",
    "other_steps",
    "other_configuration",
    "one_monitor",
    "raises",
    "destroyed",
    "dies",
]
SECONDS = 240  # for all scenarios, on a machine that has much else to do


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes found in each scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(RUN), str(rank), str(folder), *SCENARIOS],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return [pickle.loads((folder / f"found{rank}").read_bytes()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What one process reads that trains on all examples with the same loss."""
    return trained(net(), lambda step: list(batch(step).split(SHARES))).get_output()


def numbers(output: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
    """All numbers of an output, by module, metric, step and key."""
    for module, metrics in output.items():
        for metric, steps in metrics.items():
            for step, value in steps.items():
                for key, part in value.items() if isinstance(value, dict) else [("", value)]:
                    yield (module, metric, step, key), np.asarray(part)


def check_same(output: dict[str, Any], expected: dict[str, Any]) -> None:
    """All numbers agree but for rounding; elements of histograms stay within a bin of their place."""
    own, wanted = dict(numbers(output)), dict(numbers(expected))
    assert own.keys() == wanted.keys()
    assert {metric for _, metric, _, _ in own} == {*METRICS, "InputMean"}
    for name, value in wanted.items():
        _, metric, _, key = name
        if key == "counts":
            upto, bounds = np.cumsum(own[name]), np.cumsum(value)
            assert upto[-1] == pytest.approx(bounds[-1])
            assert (upto[1:] >= bounds[:-1] - 1).all(), name  # rounding may move one element over an edge
            assert (upto[:-1] <= bounds[1:] + 1).all(), name
        else:
            np.testing.assert_allclose(own[name], value, rtol=2e-4 if metric == "UpdateRatio" else 2e-5, atol=1e-7)


@pytest.mark.slow
def test_ddp_reads_what_one_process_reads(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    check_same(found[0]["ddp"]["output"], alone)


def test_all_ranks_hold_the_same_values(found: list[dict[str, Any]]) -> None:
    for scenario in ("ddp", "fsdp", "branches"):
        own, other = (dict(numbers(ranks[scenario]["output"])) for ranks in found)
        assert own.keys() == other.keys()
        assert all(np.array_equal(own[name], other[name]) for name in own)


def test_fsdp_reads_what_one_process_reads(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    assert [ranks["fsdp"]["rows"] for ranks in found] == [1, 0]  # the second shard of the head is empty
    check_same(found[0]["fsdp"]["output"], alone)


FLAT = ["views", "flat", "nested views", "nested flat", "unsharded in between", "whole", "whole flat"]


@pytest.mark.parametrize("way", FLAT)
def test_flat_parameters_read_what_one_process_reads(
    found: list[dict[str, Any]], alone: dict[str, Any], way: str
) -> None:
    wanted = dict(numbers(alone))
    for ranks in found:
        own = dict(numbers(ranks["flat_parameters"]["output"][way]))
        assert ranks["flat_parameters"]["reasons"][way] == {}
        check_same(_nested({name: own[name] for name in wanted}), alone)


def test_flat_parameters_of_mixed_precision_are_those_that_are_trained(
    found: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    own = found[1]["flat_parameters"]["output"]["half"]
    for path, metrics in alone.items():
        for name in ("WeightNorm", "WeightGradNorm", "UpdateRatio"):
            assert own[path][name][0] == pytest.approx(metrics[name][0], rel=0.05), (path, name)


@pytest.mark.parametrize(("way", "reason"), [("apart", "a part of the weight"), ("not reduced", "not reduced")])
def test_parts_of_flat_parameters_never_pass_for_the_whole(found: list[dict[str, Any]], way: str, reason: str) -> None:
    for ranks in found:
        own = ranks["flat_parameters"]["output"][way]
        assert np.isnan([value for metrics in own.values() for value in metrics["WeightGradNorm"].values()]).all()
        assert reason in ranks["flat_parameters"]["reasons"][way]["WeightGradNorm"]
        if way == "apart":
            assert np.isnan([value for metrics in own.values() for value in metrics["WeightNorm"].values()]).all()


def _nested(flat: dict[tuple[Any, ...], np.ndarray]) -> dict[str, Any]:
    """What `numbers` took apart."""
    found: dict[str, Any] = {}
    for (module, metric, step, key), part in flat.items():
        steps = found.setdefault(module, {}).setdefault(metric, {})
        if key == "":
            steps[step] = part
        else:
            steps.setdefault(step, {})[key] = part
    return found


def test_copies_of_shards_count_once(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    own, wanted = dict(numbers(found[0]["hybrid"]["output"])), dict(numbers(alone))
    for name in own:
        if name[1] in ("WeightNorm", "WeightGradNorm", "WeightStatistic"):
            np.testing.assert_allclose(own[name], wanted[name], rtol=2e-5, atol=1e-7)
    assert own.keys() == wanted.keys()


def test_names_are_those_of_the_model_inside(found: list[dict[str, Any]]) -> None:
    assert found[0]["ddp"]["name"] == "Net"
    assert list(found[0]["ddp"]["output"]) == ["layer1.conv", "hidden", "head"]


def test_first_rank_alone_feeds_the_sinks(found: list[dict[str, Any]]) -> None:
    assert [ranks["ddp"]["has_file"] for ranks in found] == [True, False]


def test_switched_off_each_rank_has_its_own(found: list[dict[str, Any]]) -> None:
    for rank, ranks in enumerate(found):
        own = ranks["own_values"]
        x = batch(0).split(SHARES)[rank].double()
        assert own["collectives"] == {}
        assert own["output"]["layer1.conv"]["InputSndNorm"][0] == pytest.approx(float(x.norm()), rel=1e-6)


def test_one_collective_at_each_read(found: list[dict[str, Any]]) -> None:
    for ranks in found:
        steps = ranks["counts"]["steps"]
        assert steps[0]["all_gather_object"] == 1  # the first read tells all ranks which values there are
        assert steps[0]["all_gather"] == 1
        assert [steps[step] for step in range(1, 6)] == [{}, {"all_gather": 1}, {}, {"all_gather": 1}, {}]
        assert ranks["counts"]["reading"] == ranks["counts"]["stop"] == {}


def test_ranks_that_take_other_branches(found: list[dict[str, Any]]) -> None:
    """Step 0: left on rank 0, right on rank 1; step 1 the other way round; then left on both."""
    branches = found[0]["branches"]
    left, right = branches["output"]["left"]["OutputSndNorm"], branches["output"]["right"]["OutputSndNorm"]
    assert (sorted(left), sorted(right)) == ([0, 1, 2, 3], [0, 1])
    torch.manual_seed(0)
    model = Forked()
    with torch.no_grad():  # one row on rank 0, two rows on rank 1
        norms = {
            name: [float(model.get_submodule(name)(torch.full((1, 2), s + 1.0)).norm()) for s in range(4)]
            for name in ("left", "right")
        }
    assert left == pytest.approx(
        {0: norms["left"][0], 1: 2**0.5 * norms["left"][1], 2: 3**0.5 * norms["left"][2], 3: 3**0.5 * norms["left"][3]}
    )
    assert right == pytest.approx({0: 2**0.5 * norms["right"][0], 1: norms["right"][1]})
    assert branches["order"][:3] == [
        ("left", "OutputSndNorm", 0),
        ("right", "OutputSndNorm", 0),
        ("right", "InputStd", 0),
    ]


def test_event_on_one_rank_is_heeded_by_all(found: list[dict[str, Any]]) -> None:
    assert [ranks["events"]["steps"] for ranks in found] == [[3], [3]]  # the loss was high at step 2 on rank 1


def test_other_steps_are_told_apart(found: list[dict[str, Any]]) -> None:
    own, other = (ranks["other_steps"] for ranks in found)
    assert own["output"] == {0: pytest.approx(5**0.5), 1: 1.0, 2: 1.0}
    assert other["output"] == {0: pytest.approx(5**0.5), 11: 2.0, 12: 2.0}
    for ranks in (own, other):
        assert len(ranks["warnings"]) == 1
        assert "rank 0 step 1, rank 1 step 11" in ranks["warnings"][0]


def test_other_configuration_is_told_apart(found: list[dict[str, Any]]) -> None:
    for rank, ranks in enumerate(found):
        assert ranks["other_configuration"]["output"] == dict.fromkeys(range(3), rank + 1.0)
        assert len(ranks["other_configuration"]["warnings"]) == 1
        assert f"rank {1 - rank} came late" in ranks["other_configuration"]["warnings"][0]


def test_monitor_of_one_rank_alone(found: list[dict[str, Any]]) -> None:
    assert found[0]["one_monitor"]["output"] == {0: 1.0, 1: 1.0, 2: 1.0}
    assert len(found[0]["one_monitor"]["warnings"]) == 1


@pytest.mark.parametrize("scenario", ["raises", "dies"])
def test_rank_that_goes_does_not_hold_the_other_one(found: list[dict[str, Any]], scenario: str) -> None:
    own = found[0][scenario]
    assert own["output"] == {0: pytest.approx(5**0.5), 1: 1.0, 2: 1.0}
    assert len(own["warnings"]) == 1
    assert "has stopped" in own["warnings"][0]
    assert own["seconds"] < 30  # nobody waited for the 300 seconds of patience


def test_process_groups_may_end_before_the_monitor(found: list[dict[str, Any]]) -> None:
    for rank, ranks in enumerate(found):
        values = ranks["destroyed"]["output"]
        assert list(values) == [0, 1, 2]
        assert values[0] == pytest.approx(5**0.5)
        assert all(values[step] in (values[0], rank + 1.0) for step in (1, 2))  # as long as torch keeps our group


def test_rank_that_raised_stops_without_waiting(found: list[dict[str, Any]]) -> None:
    assert found[1]["raises"]["output"] == {0: pytest.approx(5**0.5)}
    assert found[1]["raises"]["warnings"] == []


def test_single_process_has_nothing_of_it() -> None:
    monitor = trained(net(), lambda step: [batch(step)])
    assert monitor._ranks is None
    assert len(monitor.get_output()["head"]["WeightNorm"]) == STEPS
