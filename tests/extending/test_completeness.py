"""Whatever this project registers has an example in a table that parametrises tests: a new entry without one fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from extending.attention_references import ATTENTION, logits_of
from extending.completeness import ALSO, EXAMPLE_TABLES, READABLE, WITHOUT_EXAMPLE, own
from knowledge.exchanged import everything
from modulekg_widgets.engine.errors import GraphFileError
from modulekg_widgets.engine.knowledge.exchange import export_contents, exporters, read_contents

each_registry = pytest.mark.parametrize("subject", WITHOUT_EXAMPLE)


@each_registry
def test_everything_that_is_registered_has_an_example(subject: str) -> None:
    assert WITHOUT_EXAMPLE[subject]() == set()


class New(nn.Module):
    pass


NEW: dict[str, tuple[Callable[[Any], Any], str]] = {
    "axis rule": (lambda made: mk.axis_rule("aten::_spdiags")(made), "aten::_spdiags"),
    "adapter": (lambda made: mk.adapter(New)(made), "New"),
    "importance": (lambda made: mk.importance("newest")(made), "newest"),
    "metric": (lambda made: mk.metric("Newest", needs="Attention")(made), "Newest"),
    "exporter": (lambda made: mk.exporter("newest")(made), "newest"),
}


@each_registry
@pytest.mark.usefixtures("open_registries")
def test_a_new_entry_without_an_example_is_found(subject: str) -> None:
    def made(given: Any) -> Any: ...

    register, name = NEW[subject]
    made.__module__ = "modulekg_widgets.engine.somewhere"
    register(made)
    assert WITHOUT_EXAMPLE[subject]() == {name}


@each_registry
@pytest.mark.usefixtures("open_registries")
def test_what_a_user_registers_needs_no_example(subject: str) -> None:
    def made(given: Any) -> Any: ...

    NEW[subject][0](made)
    assert WITHOUT_EXAMPLE[subject]() == set()


TAKEN: dict[str, tuple[set[str], str]] = {
    "axis rule": ({"aten::bmm"}, "aten::bmm"),
    "adapter": ({"Linear", "Linear_without_bias"}, "Linear"),
    "importance": ({"taylor"}, "taylor"),
    "metric": ({"RankMe"}, "RankMe"),
    "exporter": ({"gexf"}, "gexf"),
}


@each_registry
def test_an_example_that_is_taken_away_is_missed(subject: str) -> None:
    table, (gone, missed) = EXAMPLE_TABLES[subject], TAKEN[subject]
    assert gone < table
    assert WITHOUT_EXAMPLE[subject](table) == set()
    assert WITHOUT_EXAMPLE[subject](table - gone) == {missed}


# ------------------------------------------------------------------ those that had no table


@pytest.mark.parametrize("name", ATTENTION)
def test_a_metric_of_attention_is_its_definition(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    x = 3 * torch.randn(2, 5, 12)
    with mk.Monitor(layer, {"": [name]}) as monitor:
        layer(x, x, x, need_weights=False)[0].sum().backward()
        monitor.track(0)
    assert monitor.get_output()[""][name][0] == pytest.approx(ATTENTION[name](logits_of(layer, x)), rel=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.mark.parametrize("extension", sorted(own(exporters)))
def test_every_extension_is_written_and_read_back_where_it_can_be(extension: str, folder: Path) -> None:
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.ReLU()), name="net")
    graph.add_dataset("pictures")
    path = graph.export(folder / f"graph.{extension}")
    assert path.stat().st_size > 0
    if extension in READABLE:
        again = mk.load_graph(path)
        assert (again.unique_count, again.module_count) == (graph.unique_count, graph.module_count)
        assert again.tree("net").number_of_edges() == graph.tree("net").number_of_edges() == 4
        assert again.export(folder / f"again.{extension}").read_bytes() == path.read_bytes()
    else:
        with pytest.raises(GraphFileError, match="a graph is read from"):
            mk.load_graph(path)


@pytest.mark.parametrize(("extension", "format_of"), ALSO.items())
def test_extensions_of_one_format_have_one_content(extension: str, format_of: str, folder: Path) -> None:
    files = [export_contents(everything(), folder / f"both.{each}") for each in (extension, format_of)]
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert len(digests) == 1


@pytest.mark.parametrize("extension", sorted(READABLE))
def test_a_damaged_file_is_a_typed_error(extension: str, folder: Path) -> None:
    path = export_contents(everything(), folder / f"damaged.{extension}")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(GraphFileError, match=r"is not a graph that can be read"):
        read_contents(path)
