"""Many models into one graph: in processes, threads or a cluster, interrupted and taken up again."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cli.sample_models import broken, make_small, needs_numbers
from models.zoo import zoo_model
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.facts.traced import add_cost
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights

SMALL = ["squeezenet1_0", "squeezenet1_1", "alexnet", "mobilenet_v2"]


def zoo(names: list[str] = SMALL) -> dict[str, Callable[[], nn.Module]]:
    builders = mk.torchvision_builders()
    return {name: builders[name] for name in names}


def expected(names: list[str] = SMALL) -> dict[str, Any]:
    graph = mk.KnowledgeGraph()
    for name in names:
        builder: Any = zoo([name])[name]
        with meta_weights():
            model = builder()
        graph.add_records([add_cost(model_record(model, name), model, builder.example(model))])
    return graph.contents().models


@pytest.mark.slow
def test_processes_index_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.indexing.IN_PROCESS_SECONDS", 0.0)
    graph = mk.index_models(zoo(), tmp_path / "zoo.db")
    assert graph.contents().models == expected()
    assert graph.models == SMALL
    assert mk.KnowledgeGraph(tmp_path / "zoo.db").module_count == graph.module_count


def test_few_models_need_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("modulekg_widgets.engine.knowledge.indexing.ProcessPoolExecutor")
    assert mk.index_models(zoo(SMALL[:2])).contents().models == expected(SMALL[:2])


def test_threads_index_models() -> None:
    with ThreadPoolExecutor(2) as executor:
        graph = mk.index_models(zoo(), executor=executor)
    assert graph.contents().models == expected()
    assert torch.zeros(1).device.type == "cpu"


@pytest.mark.nightly
def test_a_cluster_indexes_models(tmp_path: Path, require: Callable[..., None]) -> None:
    require("distributed")
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path) as cluster,
        cluster.get_client() as client,
    ):
        local = {"made here": lambda: nn.Sequential(nn.ReLU())}
        graph = mk.index_models({**zoo(SMALL[:2]), **local}, tmp_path / "zoo.db", executor=client.get_executor())
    assert sorted(graph.models) == sorted([*SMALL[:2], "made here"])


@contextmanager
def threads(tasks: int) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    with ThreadPoolExecutor(tasks) as executor:
        yield executor, tasks


def test_what_cannot_be_sent_is_built_here(monkeypatch: pytest.MonkeyPatch) -> None:
    width = 3
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.indexing.IN_PROCESS_SECONDS", 0.0)
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.indexing._processes", threads)
    graph = mk.index_models({"a": lambda: nn.Linear(width, 1), "b": nn.ReLU})
    assert sorted(graph.models) == ["a", "b"]
    assert graph.unique_count == 2


SCRIPT = """
import os, sys
from functools import partial
from torch import nn
import modulekg_widgets as mk
import modulekg_widgets.engine.knowledge.indexing as indexing

print("runs")
indexing.SECONDS_ALONE = 0.0
builders = {"relu": nn.ReLU, "ends": partial(os._exit, 1), "exits": partial(sys.exit, 3), "tanh": nn.Tanh}
try:
    mk.index_models(builders, sys.argv[1])
except mk.ModuleKGError as error:
    print(error)
"""


@pytest.mark.nightly
def test_a_builder_that_ends_its_process_ends_nothing_else(tmp_path: Path) -> None:
    """In a script without a guard, which a fresh process would run again."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "zoo.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.count("runs") == 1
    assert "2 of 4 models could not be indexed: ends: its process ended; exits: its builder exits" in done.stdout
    assert "Traceback" not in done.stderr
    assert mk.KnowledgeGraph(tmp_path / "zoo.db").models == ["relu", "tanh"]


def test_with_a_pool_of_the_user_s_what_cannot_be_sent_is_built_here() -> None:
    with ProcessPoolExecutor(1) as executor:
        assert mk.index_models({"a": lambda: nn.ReLU()}, executor=executor).models == ["a"]


def test_random_numbers_go_on_as_if_nothing_had_been_built() -> None:
    torch.manual_seed(3)
    mk.index_models({"a": lambda: nn.Linear(3, 3)})
    first = torch.rand(1)
    torch.manual_seed(3)
    assert torch.rand(1) == first


def test_functions_are_named_by_themselves() -> None:
    assert mk.index_models([make_small]).models == ["make_small"]
    assert mk.index_models([("a", make_small), make_small]).models == ["a", "make_small"]
    for several in ([make_small, make_small], [partial(make_small)]):
        with pytest.raises(mk.ModuleKGError, match=r"pass \{name: builder\}"):
            mk.index_models(several)
    with pytest.raises(mk.ModuleKGError, match="is built by an int"):
        mk.index_models({"a": 5})  # type: ignore[dict-item]


def test_weights_are_made_only_where_their_numbers_are_looked_at() -> None:
    assert mk.index_models({"a": needs_numbers}).unique_count == 1


class Interrupting(ThreadPoolExecutor):
    """Stops in the middle, as a user may."""

    left = 3

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().submit(fn, *args, **kwargs)


def test_an_interrupted_index_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modulekg_widgets.engine.knowledge.indexing.MAX_PENDING", 1)
    with Interrupting(1) as executor, pytest.raises(KeyboardInterrupt):
        mk.index_models(zoo(), tmp_path / "zoo.db", executor=executor)
    assert mk.KnowledgeGraph(tmp_path / "zoo.db").models == SMALL[:3]
    built: list[str] = []

    def noted(name: str) -> nn.Module:
        built.append(name)
        return zoo_model(name)

    builders = {name: partial(noted, name) for name in SMALL}
    with ThreadPoolExecutor(1) as executor:
        graph = mk.index_models(builders, tmp_path / "zoo.db", executor=executor)
        assert (built, graph.models) == (SMALL[3:], SMALL)
        mk.index_models(builders, tmp_path / "zoo.db", executor=executor, again=True)
    assert len(built) == 1 + len(SMALL)


def test_some_that_fail_do_not_lose_the_others(tmp_path: Path) -> None:
    builders = {"a": make_small, "bad": broken, "lazy": partial(nn.LazyLinear, 2), "none": dict, "z": nn.ReLU}
    with ThreadPoolExecutor(2) as executor, pytest.raises(mk.ModuleKGError, match="3 of 5 models could") as caught:
        mk.index_models(builders, tmp_path / "zoo.db", executor)
    failures = caught.value.failures  # type: ignore[attr-defined]
    assert sorted(failures) == ["bad", "lazy", "none"]
    assert "out of order" in failures["bad"]
    assert sorted(mk.KnowledgeGraph(tmp_path / "zoo.db").models) == ["a", "z"]


@pytest.mark.nightly
def test_the_whole_zoo(tmp_path: Path) -> None:
    graph = mk.index_models(mk.torchvision_builders(), tmp_path / "zoo.db")
    assert (len(graph.models), graph.module_count) == (121, 37_528)
