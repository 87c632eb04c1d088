"""Published and own results as jobs: what is taken, what is left out and why, and that nothing is written by halves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import GraphFileError, PropertyError, UnknownNameError
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.facts.results import RESULTS, Result, results_of


@pytest.fixture
def kg() -> mk.KnowledgeGraph:
    found = mk.KnowledgeGraph()
    for width, name in enumerate(("resnet18", "resnet50", "vit.small"), 2):
        found.add_model(nn.Linear(2, width), name=name)
    return found


def results(kg: mk.KnowledgeGraph) -> dict[tuple[str | None, str | None], dict[str, Result]]:
    return {(job.model, job.dataset): results_of(job) for job in kg.contents().jobs.values()}


class TestPublished:
    def test_what_is_shipped_has_a_source_and_units(self) -> None:
        found = mk.published_results("timm")
        assert list(found) == ["model", "tag", "dataset", "target", "value", "image_size", "device"]
        assert "pytorch-image-models" in found.attrs["source"]
        assert set(found["target"]) == set(found.attrs["units"])
        assert found["value"].notna().all()
        assert not found.duplicated(["model", "tag", "dataset", "target", "image_size", "device"]).any()
        with pytest.raises(UnknownNameError, match="'timm'"):
            mk.published_results("tim")

    def test_one_figure_of_each_kind_is_as_published(self) -> None:
        found = mk.published_results("timm").set_index(["model", "target", "dataset", "device"]).sort_index()
        accuracy = found.loc[("eva02_large_patch14_448", "acc@1", "ImageNet-1K")]
        assert accuracy[accuracy["tag"] == "mim_m38m_ft_in22k_in1k"]["value"].item() == 90.056
        device = mk.published_results("timm").query("model == 'test_vit' and target == 'latency'").set_index("device")
        assert device.loc["i9-10940X", "value"] == 1.405  # ms for one image
        assert device.loc["RTX 4090", "value"] == pytest.approx(1000 / 188343.61, rel=1e-4)

    @pytest.mark.slow
    def test_every_figure_has_its_place(self) -> None:
        """Also the one that is below one percent: its unit is said."""
        table = mk.published_results("timm")
        kg = mk.KnowledgeGraph()
        kg.add_records(replace(record, model=replace(record.model, name=name)) for name in table["model"].unique()
                       for record in [model_record(nn.Linear(2, 2))])  # fmt: skip
        report = kg.add_results(table)
        assert (report.added, report.left_out) == (len(table), {})

    def test_they_go_into_a_graph_once(self, kg: mk.KnowledgeGraph) -> None:
        table = mk.published_results("timm").query("model == 'resnet18'")
        report = kg.add_results(table)
        assert (report.added, report.left_out) == (len(table), {})
        again = kg.add_results(table)
        assert (again.added, again.jobs, len(kg.jobs())) == (report.added, report.jobs, report.jobs)
        job = next(job for job in kg.contents().jobs.values() if job.properties.get("tag") == "a1_in1k")
        assert job.properties["image_size"] in (224, 288)
        assert results_of(job)["acc@1"].unit == "%"
        assert job.accuracy == pytest.approx(results_of(job)["acc@1"].value / 100)


class TestOwn:
    def test_a_wide_table_of_other_names(self, kg: mk.KnowledgeGraph) -> None:
        table = pd.DataFrame({"arch": ["resnet18"], "top1": [81.5], "ms": [3.25], "epochs": [90]})
        report = kg.add_results(
            table, dataset="mine", columns={"arch": "model", "top1": "acc@1", "ms": "latency"}, training=["epochs"],
            unit={"acc@1": "%", "latency": "ms"}, device="this machine",
        )  # fmt: skip
        assert report.notes == ()
        assert results(kg) == {("resnet18", "mine"): {"acc@1": Result(81.5, "%"), "latency": Result(3.25, "ms")}}
        (job,) = kg.contents().jobs.values()
        assert (job.properties["epochs"], job.properties["device"]) == (90, "this machine")
        assert kg.datasets == ["mine"]

    def test_a_file_and_names_with_tags(self, kg: mk.KnowledgeGraph, tmp_path: Path) -> None:
        file = tmp_path / "own.csv"
        file.write_text("model,value\nresnet50.mine,30.5\nvit.small,31\n", "utf-8")
        report = kg.add_results(file, dataset="text", target="perplexity")
        assert report.added == 2
        assert "no unit is known of perplexity" in str(report)
        tags = {job.model: job.properties.get("tag") for job in kg.contents().jobs.values()}
        assert tags == {"resnet50": "mine", "vit.small": None}

    def test_another_target_joins_the_job_and_a_new_value_replaces_the_old(self, kg: mk.KnowledgeGraph) -> None:
        for target, value in (("acc@1", 80.0), ("latency", 4.0), ("acc@1", 81.0)):
            kg.add_results(pd.DataFrame({"model": ["resnet18"], "value": [value]}), dataset="mine", target=target)
        (found,) = results(kg).values()
        assert {target: result.value for target, result in found.items()} == {"acc@1": 81.0, "latency": 4.0}


@pytest.mark.parametrize(
    ("rows", "added", "reasons"),
    [
        ([("resnet18", 81.0), ("large", 80.0)], 1, {1: "no model is called 'large'"}),
        ([("resnet18", 81.0), ("resnet18", 81.0)], 1, {1: "of the same as row 0"}),
        ([("resnet18", 81.0), ("resnet18", 79.0)], 1, {1: "of the same as row 0, which says 81"}),
        ([("resnet18", 81.0), ("resnet50", 0.83), ("vit.small", 80.0)], 2, {1: "0.83 among percents"}),
        ([("resnet18", 0.81), ("resnet50", 83.0), ("vit.small", 0.8)], 2, {1: "83 among fractions"}),
        ([("resnet18", float("nan")), ("resnet50", "n/a"), ("vit.small", float("inf"))], 0,
         {0: "not a finite number", 1: "not a finite number", 2: "not a finite number"}),
        ([(None, 81.0), ("", 80.0)], 0, {0: "names no model", 1: "names no model"}),
    ],
)  # fmt: skip
def test_rows_that_are_left_out_say_why(
    kg: mk.KnowledgeGraph, rows: list[tuple[object, object]], added: int, reasons: dict[int, str]
) -> None:
    table = pd.DataFrame(rows, columns=["model", "value"])
    report = kg.add_results(table, dataset="mine", target="acc@1")
    assert report.added == added
    assert len(kg.jobs()) == added
    assert report.left_out.keys() == reasons.keys()
    assert all(reason in report.left_out[row] for row, reason in reasons.items())


@pytest.mark.parametrize(
    ("table", "how", "message"),
    [
        ({"model": ["resnet18"], "value": [1.0]}, {}, "pass target="),
        ({"model": ["resnet18"], "acc": [1.0]}, {"target": "acc@1"}, "no column 'value'"),
        ({"arch": ["resnet18"], "value": [1.0]}, {"target": "acc@1"}, "no column 'model'"),
        ({"model": ["resnet18"], "a": [1.0], "b": [1.0]}, {"columns": {"a": "x", "b": "x"}}, "one name"),
    ],
)
def test_a_table_of_other_columns_is_refused_and_nothing_is_written(
    kg: mk.KnowledgeGraph, table: dict[str, list[object]], how: dict[str, object], message: str
) -> None:
    with pytest.raises(PropertyError, match=message):
        kg.add_results(pd.DataFrame(table), **how)
    assert kg.jobs().empty
    assert kg.datasets == []


def test_what_is_no_table_is_refused(kg: mk.KnowledgeGraph, tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match="pass a DataFrame"):
        kg.add_results([1, 2])
    with pytest.raises(GraphFileError):
        kg.add_results(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(PropertyError, match="not a table"):
        kg.add_results(tmp_path / "empty.csv")


def test_a_property_of_that_name_that_holds_something_else_is_no_result(kg: mk.KnowledgeGraph) -> None:
    kg.add_job(model="resnet18", results={"acc@1": "high", "loss": [float("nan"), None], "steps": [True, None]})
    (job,) = kg.contents().jobs.values()
    assert RESULTS in job.properties
    assert results_of(job) == {}


def test_a_table_is_written_in_few_statements(kg: mk.KnowledgeGraph) -> None:
    """However many rows it has: nothing is asked of the store for each."""
    statements: list[str] = []

    def counted(rows: int) -> int:
        values = range(rows)
        table = pd.DataFrame({
            "model": ["resnet18"] * rows, "value": [50.0 + value / rows for value in values],
            "tag": [f"run {value}" for value in values],
        })  # fmt: skip
        statements.clear()
        assert kg.add_results(table, dataset="own", target="acc@1", training=("tag",)).added == rows
        return len(statements)

    sqlalchemy.event.listen(
        kg.repository.store.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    few = counted(10)
    assert counted(900) <= few + 10  # names are looked up 500 at a time
    assert len(kg.contents().jobs) == 900  # the ten runs before have the same names
