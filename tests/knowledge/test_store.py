"""One graph in every kind of store: what was written is read, by anyone who opens it."""

import math
import multiprocessing
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import text
from torch import nn

import modulekg_widgets as mk
from knowledge.writers import network, write_models
from models.zoo import zoo_model
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import ModelNode

HOSTILE = [
    "", "'; DROP TABLE modulekg_nodes;--", "a" * 10_000, "\0", "\\", "\\x00", "\\\\x00", "\udc80\\", "\\\udfff\0",
    '"', "%s %(x)s {y} :z ?", "<script>alert(1)</script>", "=1+1", "\ud83d\ude00", "😀", "\n\t", "é\u202e",
]  # fmt: skip
VALUES: dict[str, Any] = {
    "nan": math.nan, "inf": -math.inf, "zero": -0.0, "big": 2**64, "huge": -(10**40), "text": "\udc80\0", "none": None,
    "nested": {"a": [1, (2, 3)], "$x": b"\xff"}, "truth": True, "tiny": 5e-324,
}  # fmt: skip


def fill(graph: mk.KnowledgeGraph) -> None:
    graph.add_model(zoo_model("resnet18"), name="resnet18", args=(torch.zeros(1, 3, 64, 64),))
    graph.add_model(network(), name="small")
    graph.add_dataset("digits", classes=10, **VALUES)
    graph.add_user("ada", team="a")
    graph.add_job(user="ada", dataset="digits", model="small", accuracy=97.5, history=[0.1, 0.9, 0.96], name="first")
    graph.add_job(model="resnet18", history={"loss": [(0, 2.0), (10, math.nan), (20, 0.1)]}, started=10, ended=20)


def same(left: Any, right: Any) -> bool:
    """Equality under which NaN is NaN and -0.0 is not 0.0."""
    return pickle.dumps(_plain(left)) == pickle.dumps(_plain(right))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {repr(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else [*map(_plain, value)]
    return repr(value)


def test_what_was_written_is_read_by_who_opens_it(lasting: str) -> None:
    written = mk.KnowledgeGraph(lasting)
    fill(written)
    read = mk.KnowledgeGraph(lasting)
    ours, theirs = written.contents(), read.contents()
    for part in ("modules", "models", "datasets", "users", "jobs"):
        assert list(getattr(ours, part)) == list(getattr(theirs, part))
        assert [same(a, b) for a, b in zip(getattr(ours, part).values(), getattr(theirs, part).values(), strict=True)]
    assert same(theirs.datasets["digits"].properties, {"classes": 10, **VALUES})
    assert read.module_count == sum(1 for _ in zoo_model("resnet18").modules()) + 8


def test_every_store_holds_the_same(anywhere: str | None) -> None:
    graph, expected = mk.KnowledgeGraph(anywhere), mk.KnowledgeGraph()
    for each in (graph, expected):
        each.add_model(network(), name="a")
        each.add_model(network(3), name="b")
        each.add_model(network(4), name="a")
        each.add_dataset("d")
        each.add_job(model="a", dataset="d", accuracy=0.5, started=1, name="j")
        each.add_job(model="b", accuracy=0.25, started=2, name="k")
        each.remove_model("b")
    assert graph.contents() == expected.contents()
    assert graph.models == ["a"]
    assert graph.contents().jobs["k"].model is None
    assert graph.contents().jobs["j"].model == "a"


def test_a_model_with_its_trace_is_read_whole(anywhere: str | None) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    graph.add_model(zoo_model("resnet18"), name="r", args=(torch.zeros(1, 3, 224, 224, device="meta"),))
    model: ModelNode = graph.contents().models["r"]
    assert model.flops == int(mk.trace(zoo_model("resnet18"), (torch.zeros(1, 3, 224, 224, device="meta"),)).flops())
    assert model.inputs == ((1, 3, 224, 224),)
    relu, pool = (mk.fingerprint(m).hexdigest for m in (nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)))
    assert model.feeds[relu, pool] == 1
    assert sum(n for (_, name), n in model.calls.items() if name == "aten::convolution") == 20
    assert model.module_flops[model.root] == model.flops


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_data(anywhere: str | None, name: str) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    hostile = nn.Sequential()
    hostile.add_module(name.replace(".", "") or "x", nn.ReLU())
    graph.add_model(hostile, name=name)
    graph.add_dataset(name, note=name)
    graph.add_user(name)
    graph.add_job(user=name, dataset=name, model=name, name=name, note=name)
    assert (graph.models, graph.datasets, graph.users) == ([name], [name], [name])
    job = graph.contents().jobs[name]
    assert (job.user, job.dataset, job.model, job.properties) == (name, name, name, {"note": name})
    assert graph.tree(name).number_of_nodes() == 2
    graph.remove_job(name)
    graph.remove_model(name)
    assert (graph.models, graph.unique_count) == ([], 0)


def test_a_store_says_what_it_holds_to_sql(lasting: str) -> None:
    graph = mk.KnowledgeGraph(lasting)
    fill(graph)
    asked = text("SELECT type, count(*) FROM modulekg_nodes GROUP BY type ORDER BY type")
    with graph.repository.store.read() as connection:
        counts = dict(map(tuple, connection.execute(asked)))
    assert counts == {
        "DataSet": 1, "Job": 2, "Model": 2, "Module": graph.unique_count, "Operator": counts["Operator"], "User": 1,
    }  # fmt: skip


def test_a_failure_leaves_the_store_as_it_was(anywhere: str | None) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    fill(graph)
    before = graph.contents()
    fails = [
        lambda: graph.add_model(nn.Sequential(nn.ReLU(), nn.LazyLinear(2)), name="small"),
        lambda: graph.add_model(network(), name="small", args=(torch.zeros(1, 77),)),
        lambda: graph.add_job(user="adda"),
        lambda: graph.add_job(model="small", accuracy=101),
        lambda: graph.add_job(model="small", accuracy=math.nan),
        lambda: graph.add_job(model="small", started=5, ended=4),
        lambda: graph.add_job(model="small", note=object()),
        lambda: graph.add_dataset("x", note=object()),
        lambda: graph.add_dataset(5),  # type: ignore[arg-type]
        lambda: graph.remove_model("smal"),
        lambda: graph.remove_job("x"),
        lambda: graph.remove_dataset("digit"),
        lambda: graph.remove_user("eve"),
        lambda: graph.add_contents(_half()),
    ]
    for fail in fails:
        with pytest.raises(mk.ModuleKGError):
            fail()
        after = graph.contents()
        assert after == before or same(list(after.jobs.values()), list(before.jobs.values()))
    assert graph.module_count == before.uses.total()


def _half() -> Contents:
    """Models of which the modules are missing."""
    graph = mk.KnowledgeGraph()
    graph.add_model(network(9), name="half")
    whole = graph.contents()
    root = whole.models["half"].root
    return Contents(modules={root: whole.modules[root]}, models=whole.models)


def test_nearest_names_are_told() -> None:
    graph = mk.KnowledgeGraph()
    fill(graph)
    for call, hint in (
        (lambda: graph.add_job(user="adda"), "'ada'"),
        (lambda: graph.add_job(model="resnet81"), "'resnet18'"),
        (lambda: graph.jobs(dataset="digit"), "'digits'"),
        (lambda: graph.most_used(user="add"), "'ada'"),
        (lambda: graph.remove_model("resnet"), "'resnet18'"),
    ):
        with pytest.raises(mk.ModuleKGError, match=hint):
            call()


def test_a_new_data_set_of_the_same_name_keeps_its_jobs(anywhere: str | None) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    fill(graph)
    graph.add_dataset("digits", classes=11)
    assert graph.contents().datasets["digits"].properties == {"classes": 11}
    assert graph.contents().jobs["first"].dataset == "digits"
    graph.add_job(name="first", accuracy=0.5)
    assert (graph.contents().jobs["first"].dataset, len(graph.contents().jobs)) == (None, 2)
    graph.remove_dataset("digits")
    graph.remove_user("ada")
    assert (graph.datasets, graph.users, len(graph.contents().jobs)) == ([], [], 2)


def test_the_seed_s_scheme_is_kept(lasting: str) -> None:
    graph = mk.KnowledgeGraph(lasting, scheme="seed")
    graph.add_model(nn.Linear(2, 2, bias=False), name="a")
    graph.add_model(nn.Linear(2, 2), name="b")
    assert graph.unique_count == 1
    assert mk.KnowledgeGraph(lasting).scheme == "seed"
    with pytest.raises(mk.ModuleKGError, match="scheme='seed'"):
        mk.KnowledgeGraph(lasting, scheme="structure")


def test_threads_share_a_graph(anywhere: str | None) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    models = [network(width) for width in range(1, 5)]
    threads = [threading.Thread(target=graph.add_model, args=(m, f"m{i}")) for i, m in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(graph.models) == ["m0", "m1", "m2", "m3"]
    assert graph.module_count == 4 * 8


def test_a_reader_sees_one_moment(lasting: str) -> None:
    writing, reading = mk.KnowledgeGraph(lasting), mk.KnowledgeGraph(lasting)
    writing.add_model(network(1), name="model")
    done = threading.Event()

    def write() -> None:
        for width in range(2, 40):
            writing.add_model(network(width), name="model")
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    moments = 0
    while not done.is_set():
        contents = reading.contents()
        used = {key for key, _ in contents.models["model"].occurrences}
        assert used == set(contents.modules)
        assert reading.tree("model").number_of_nodes() == 8
        moments += 1
    writer.join()
    assert moments > 3


def test_a_fork_while_a_thread_reads_does_not_hang(anywhere: str | None) -> None:
    graph = mk.KnowledgeGraph(anywhere)
    graph.add_user("ada")
    inside, done = threading.Event(), threading.Event()

    def read() -> None:
        with graph.repository.store.read():
            inside.set()
            done.wait(60)

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait(60)
    child = multiprocessing.get_context("fork").Process(target=lambda: graph.close() or graph.users)
    child.start()
    child.join(30)
    done.set()
    reader.join()
    assert child.exitcode == 0
    assert graph.users == ["ada"]


@pytest.mark.slow
def test_eight_processes_write_at_once(lasting: str) -> None:
    check_writers(lasting, "fork", 8)


@pytest.mark.nightly
def test_fresh_processes_write_at_once(tmp_path: Path) -> None:
    check_writers(str(tmp_path / "graph.db"), "spawn", 2)


def check_writers(location: str, how: str, count: int) -> None:
    graph = mk.KnowledgeGraph(location)
    graph.add_model(network(1), name="base")
    context = multiprocessing.get_context(how)
    writers = [context.Process(target=write_models, args=(graph, number)) for number in range(count)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * len(writers)
    assert sorted(graph.models) == [*(f"{number}.3" for number in range(len(writers))), "base"]
    assert len(graph.contents().jobs) == 4 * len(writers)
    assert graph.unique_count == 2 * 3 + 2  # a linear, a block and a network of two widths; two others are shared


def test_a_graph_in_memory_stays_in_its_process() -> None:
    with pytest.raises(mk.ModuleKGError, match="give it a store"):
        pickle.dumps(mk.KnowledgeGraph())


def test_closing_gives_the_file_back(tmp_path: Path) -> None:
    graph = mk.KnowledgeGraph(tmp_path / "graph.db")
    fill(graph)
    graph.close()
    assert [path.name for path in tmp_path.iterdir()] == ["graph.db"]
    assert len(graph.models) == 2
