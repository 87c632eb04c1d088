"""Rank and frequency: the table, the fitted power law and its rivals, and what can be said of them."""

import sys
import time

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special
from torch import nn

from knowledge.graphs import contents_of, made_up, zoo_contents
from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError
from modulekg_widgets.engine.knowledge.analysis.power_law import POWER_LAW, fit_power_law, truncated_sum
from modulekg_widgets.engine.knowledge.analysis.rank_frequency import RankFrequency, rank_frequency
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

LAWS = ["log-normal", "exponential", "stretched exponential", "truncated power law"]


def of_counts(counts: list[int]) -> RankFrequency:
    """The statistics of as many structures, used that often."""
    names = [f"S{index}" for index in range(len(counts))]
    uses = dict(zip(names, counts, strict=True))
    return rank_frequency(made_up({name: [] for name in names}, {"model": uses} if uses else {}))


def drawn_from_power_law(alpha: float, size: int) -> list[int]:
    return np.random.default_rng(0).zipf(alpha, size).tolist()


def test_the_table() -> None:
    contents = contents_of(
        one=nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Linear(1, 1), nn.Linear(2, 2)), two=nn.Sequential(nn.ReLU())
    )
    table = rank_frequency(contents).table
    assert list(table.columns) == ["rank", "count", "name"]
    assert table["rank"].tolist() == [1, 2, 3, 4, 5]
    assert table["count"].tolist() == [3, 1, 1, 1, 1]
    assert table["name"].tolist()[1:] == sorted(table["name"][1:])
    assert set(table["name"]) == set(contents.names.values())


def test_levels() -> None:
    contents = contents_of(one=nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU()))
    assert {level: rank_frequency(contents, level).table["count"].tolist() for level in ("model", "stage", "op")} == {
        "model": [1], "stage": [1], "op": [2],
    }  # fmt: skip
    assert len(rank_frequency(contents, "block").table) == 0
    with pytest.raises(UnknownNameError, match="did you mean 'block'"):
        rank_frequency(contents, "blocks")


def test_the_exponent_of_a_sample_is_found() -> None:
    counts = drawn_from_power_law(2.5, 2_000)
    found = of_counts(counts)
    assert abs(found.alpha - 2.5) < 4 * found.sigma
    assert 0 < found.sigma < 0.1
    tail = np.array([count for count in counts if count >= found.xmin], float)
    own = optimize.minimize_scalar(
        lambda a: len(tail) * np.log(special.zeta(a, found.xmin)) + a * np.log(tail).sum(), bounds=(1.1, 5)
    )
    assert found.alpha == pytest.approx(own.x, abs=2e-3)
    assert found.fit.tail == len(tail)


def test_the_expected_counts() -> None:
    found = of_counts(drawn_from_power_law(2.5, 500)).fit
    assert set(found.expected) == {POWER_LAW, *LAWS}
    for above in found.expected.values():
        assert above[0] == pytest.approx(found.tail)
        assert (np.diff(above) <= 0).all()
    shares = special.zeta(found.alpha, found.counts) / special.zeta(found.alpha, found.xmin)
    assert found.expected[POWER_LAW] == pytest.approx(found.tail * shares)


def test_what_falls_exponentially_is_no_power_law() -> None:
    counts = np.random.default_rng(0).geometric(0.05, 1_000)
    found = fit_power_law((counts + 20).tolist())
    row = found.comparisons.set_index("alternative").loc["exponential"]
    assert row["R"] < 0
    assert row["p"] < 0.1


def test_a_power_law_beats_an_exponential_and_the_verdict_says_so() -> None:
    found = of_counts(drawn_from_power_law(2.2, 1_000))
    assert list(found.comparisons.columns) == ["alternative", "R", "p", "reliable"]
    assert found.comparisons["alternative"].tolist() == LAWS
    row = found.comparisons.set_index("alternative").loc["exponential"]
    assert row["R"] > 0
    assert row["p"] < 1e-3
    assert f"{found.alpha:.2f}" in found.verdict
    assert "fits better than exponential" in found.verdict
    assert "cannot be told apart from" in found.verdict


def test_a_sample_of_a_log_normal_is_compared_reliably() -> None:
    counts = np.ceil(np.random.default_rng(0).lognormal(3, 0.6, 1_000)).astype(int)
    row = fit_power_law(counts.tolist()).comparisons.set_index("alternative").loc["log-normal"]
    assert row["reliable"]


@pytest.mark.parametrize("counts", [[], [1], [3, 3, 3], [1, 2, 3], [7] * 50], ids=str)
def test_too_little_for_a_fit(counts: list[int]) -> None:
    found = of_counts(counts)
    assert np.isnan([found.alpha, found.xmin, found.sigma]).all()
    assert len(found.comparisons) == 0
    assert found.verdict == "Too few different counts to fit a power law."
    found.plot()


@pytest.mark.parametrize("counts", [[1, 10, 100, 1_000], [1, 2, 3, 10**15]], ids=str)
def test_a_little_more_gives_numbers_or_none(counts: list[int]) -> None:
    found = of_counts(counts)
    assert np.isnan(found.alpha) or found.alpha > 1
    assert isinstance(found.verdict, str)
    found.plot()


def test_one_large_count_takes_no_longer() -> None:
    counts = [3, 5] * 20 + [*range(1, 10), 100_000]
    start = time.process_time()
    assert "exponent" in of_counts(counts).verdict
    assert time.process_time() - start < 2


@pytest.mark.parametrize("rate", [1e-15, 1e-8, 1e-3, 0.07, 0.5, 3.0, 50.0])
@pytest.mark.parametrize(("alpha", "xmin"), [(0.3, 1), (1.0, 1), (2.0, 7), (2.9, 30), (1.5, 1000)])
def test_the_sum_of_a_truncated_power_law(alpha: float, rate: float, xmin: int) -> None:
    with mpmath.workdps(40):
        exact = mpmath.lerchphi(mpmath.exp(-mpmath.mpf(rate)), alpha, xmin)
    assert truncated_sum(alpha, rate, xmin) == pytest.approx(float(exact), rel=1e-13)


@pytest.mark.filterwarnings("error")
def test_the_package_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    of_counts(drawn_from_power_law(2.2, 300)).plot()
    assert capfd.readouterr() == ("", "")


def test_without_the_package_there_is_a_table_and_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "powerlaw", None)
    found = of_counts([5, 4, 3, 2, 1])
    assert found.table["count"].tolist() == [5, 4, 3, 2, 1]
    for ask in (lambda: found.alpha, lambda: found.comparisons, lambda: found.verdict):
        with pytest.raises(MissingPackageError, match=r"modulekg-widgets\[analysis\]"):
            ask()
    assert "analysis" in found.plot().get_suptitle()


def test_nothing_at_all() -> None:
    found = rank_frequency(Contents())
    assert len(found.table) == 0
    assert repr(found) == "<RankFrequency of 0 structures>"


def test_a_few_models_of_torchvision() -> None:
    contents = zoo_contents()
    table = rank_frequency(contents).table
    assert table["count"].sum() == sum(sum(model.occurrences.values()) for model in contents.models.values())
    assert table["count"].is_monotonic_decreasing
    assert isinstance(table, pd.DataFrame)


@pytest.mark.nightly
def test_the_whole_of_torchvision() -> None:
    found = rank_frequency(zoo_contents(tuple(torchvision_builders())))
    assert (round(found.alpha, 2), found.xmin) == (2.26, 23)
    rivals = found.comparisons.set_index("alternative")
    assert rivals.loc["log-normal", "p"] == pytest.approx(0.32, abs=0.01)
    assert "cannot be told apart from log-normal" in found.verdict
