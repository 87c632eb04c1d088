"""A small knowledge graph: its contents, the store, every question, every export format."""

from __future__ import annotations

import inspect
import math
import sqlite3
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import modulekg_widgets as mk
from goldens.digests import Case
from goldens.nets import NETS, exact_net, local_net, net_of

EXPORTS = ("graphml", "gexf", "cyjs", "dot", "edges", "jsonld", "csv")
READ = ("graphml", "cyjs", "jsonld")


def filled(kg: mk.KnowledgeGraph) -> mk.KnowledgeGraph:
    """The graph with models, data sets, users and jobs."""
    for name in ("linears", "residual", "layered", "attending"):
        model, x = local_net(name)
        kg.add_model(model, name=name, args=x)
    kg.add_model(exact_net(), name='exact "x" & ü')
    kg.add_dataset("digits", classes=10, size=[1, 28, 28], when=None, share=float("inf"), pair=(1, b"\0"))
    kg.add_dataset("words", task="text classification")
    kg.add_user("ada", admin=True)
    kg.add_user("bo")
    moments = [1.7e9 + 3600 * hour for hour in range(4)]
    kg.add_job(name="first", user="ada", dataset="digits", model="linears", accuracy=0.5, started=moments[0],
               ended=moments[1], history={"loss": [(0, 2.0), (1, 1.0)]}, seed=3)  # fmt: skip
    kg.add_job(name="second", user="bo", dataset="digits", model="residual", accuracy=91.5, started=moments[1])
    kg.add_job(name="third", user="ada", dataset="words", model="attending", accuracy=0.75, started=moments[2])
    kg.add_job(name="fourth", dataset="digits", model="layered", accuracy=0.25, started=moments[3])
    return kg


def small_graph() -> mk.KnowledgeGraph:
    """In memory."""
    return filled(mk.KnowledgeGraph())


def contents() -> dict[str, Any]:
    """Nodes and edges."""
    kg = small_graph()
    whole = kg.to_networkx()
    return {
        "nodes": sorted([str(node), str(sorted(data.items()))] for node, data in whole.nodes(data=True)),
        "edges": sorted([str(a), str(b), str(sorted(data.items()))] for a, b, data in whole.edges(data=True)),
        "counts": [kg.module_count, kg.unique_count, kg.number_of_nodes(), kg.number_of_edges()],
        "lists": [kg.models, kg.datasets, kg.users], "names": kg.names(), "str": str(kg), "scheme": str(kg.scheme),
    }  # fmt: skip


def tree(name: str) -> dict[str, Any]:
    """The tree of a model."""
    made = small_graph().tree(name)
    return {str(node): [data, list(made.successors(node))] for node, data in made.nodes(data=True)}


def store() -> dict[str, Any]:
    """The tables and rows of a store."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zoo.db"
        kg = filled(mk.KnowledgeGraph(f"sqlite:///{path}"))
        kg.close()
        connection = sqlite3.connect(path)
        tables = connection.execute("select name, sql from sqlite_master order by name").fetchall()
        rows = {
            name: sorted(map(repr, connection.execute(f'select * from "{name}"').fetchall()))
            for name, sql in tables
            if sql and sql.lower().startswith("create table")
        }
        connection.close()
        read = mk.KnowledgeGraph(f"sqlite:///{path}")
        same = read.contents() == small_graph().contents()
        read.close()
    return {"tables": [[name, sql] for name, sql in tables], "rows": rows, "same as in memory": same}


def exported(ending: str) -> dict[str, Any]:
    """A file of the graph, and what is read back of it."""
    kg = small_graph()
    with tempfile.TemporaryDirectory() as folder:
        path = kg.export(Path(folder) / f"zoo.{ending}")
        found: dict[str, Any] = {
            each.relative_to(folder).as_posix(): each.read_text("utf-8")
            for each in sorted(Path(folder).rglob("*"))
            if each.is_file()
        }
        if ending in READ:
            found["read back"] = mk.load_graph(path).contents() == kg.contents()
    return found


def plain_questions() -> list[str]:
    """Questions that need no argument and are answered by a table."""
    found = []
    for name, question in inspect.getmembers(mk.KnowledgeGraph, inspect.isfunction):
        parameters = inspect.signature(question).parameters.values()
        needs = any(p.default is p.empty and p.name != "self" and p.kind != p.VAR_KEYWORD for p in parameters)
        asks_zoo = name == "evaluate_prediction"  # fits many predictors, for seconds
        if (
            not name.startswith("_")
            and not needs
            and not asks_zoo
            and inspect.signature(question).return_annotation == "pd.DataFrame"
        ):
            found.append(name)
    return found


QUESTIONS: dict[str, Callable[[mk.KnowledgeGraph], Any]] = {
    "most used blocks": lambda kg: kg.most_used(5, level="block"),
    "most used in jobs": lambda kg: kg.most_used(5, over="jobs", user="ada"),
    "importance by degree": lambda kg: kg.importance("in_degree"),
    "importance by betweenness": lambda kg: kg.importance("betweenness"),
    "is_a of level 2": lambda kg: kg.is_a(level=2),
    "communities by labels": lambda kg: kg.communities(seed=1, level="op"),
    "difference": lambda kg: kg.difference("residual", "layered"),
    "shared": lambda kg: kg.overlap(shared=True),
    "rank frequency": lambda kg: str(kg.rank_frequency()),
    "similar": lambda kg: kg.similar("residual", 3),
    "similar to another": lambda kg: kg.similar(local_net("three")[0]),
    "equivalent": lambda kg: str(kg.equivalent(local_net("three")[0], local_net("three")[0], local_net("three")[1])),
    "jobs of ada": lambda kg: kg.jobs(user="ada"),
    "jobs since": lambda kg: kg.jobs(since=1.7e9 + 4000),
    "statistics of digits": lambda kg: kg.module_statistics("digits"),
    "best of digits": lambda kg: kg.best_modules(3, None, dataset="digits"),
    "convergence": lambda kg: str(kg.add_convergence("loss", reach=1.5)),
}  # fmt: skip


def asked(name: str) -> Any:
    """The answer of a question."""
    kg = small_graph()
    return QUESTIONS[name](kg) if name in QUESTIONS else getattr(kg, name)()


def edited() -> dict[str, Any]:
    """What is removed, replaced and merged."""
    kg = small_graph()
    kg.remove_job("third")
    kg.remove_model("linears")
    kg.remove_user("bo")
    kg.add_model(local_net("tied")[0], name="residual")
    other = mk.KnowledgeGraph()
    other.add_model(local_net("lstm")[0], name="lstm")
    kg.merge(other)
    return {"models": kg.models, "jobs": kg.jobs(), "users": kg.users, "counts": [kg.module_count, kg.unique_count]}


def results() -> dict[str, Any]:
    """A table of results, of which a row is left out."""
    kg = small_graph()
    table = pd.DataFrame(
        {"model": ["linears", "residual", "nobody"], "dataset": "digits", "target": "acc@1", "value": [50.0, 75.5, 1.0]}
    )
    report = kg.add_results(table)
    return {"str": str(report), "added": report.added, "left out": report.left_out, "jobs": kg.jobs()}


def predicted() -> dict[str, Any]:
    """A target of the user's: predictions, and how well each predictor does."""
    kg = mk.KnowledgeGraph()
    kg.add_dataset("digits", classes=10)
    for name in NETS:
        model, x = local_net(name)
        kg.add_model(model, name=name, args=x)
    table = pd.DataFrame({"model": list(NETS), "value": [0.5 + 0.03 * at for at in range(len(NETS))]})
    kg.add_results(table, "digits", "score", unit="points")
    known = kg.predict("score", "residual", dataset="digits")
    new = kg.predict("score", exact_net(), args=torch.zeros(2, 4), dataset="digits")
    evaluated = kg.evaluate_prediction("score", "digits", predictors=["mean", "ridge", "wl", "nearest"])
    evaluated.loc[evaluated["predictor"] == "mean", "rho"] = math.nan  # ranks of means: their last bits decide
    return {"known": str(known), "new": str(new), "evaluated": evaluated, "value": [new.value, new.low, new.high]}


def published() -> dict[str, Any]:
    """The results that the package ships."""
    table = mk.published_results("timm")
    return {"columns": list(table.columns), "rows": len(table), "head": table.head(20), "sum": table["value"].sum()}


def indexed() -> dict[str, Any]:
    """Builders that are indexed."""
    kg = mk.index_models({name: partial(_built, name) for name in ("residual", "tied")})
    return {"models": kg.models, "counts": [kg.module_count, kg.unique_count]}


def _built(name: str) -> Any:
    return net_of(name)[0]


REFUSED: dict[str, Callable[[mk.KnowledgeGraph], Any]] = {
    "no such model": lambda kg: kg.tree("residaul"),
    "no such measure": lambda kg: kg.importance("pagerang"),
    "no such format": lambda kg: kg.export("zoo.xyz"),
    "no such job": lambda kg: kg.remove_job("tenth"),
    "job of nobody": lambda kg: kg.add_job(user="cy"),
    "no such picture": lambda kg: kg.plot("most_use"),
    "accuracy": lambda kg: kg.add_job(model="linears", accuracy=120),
    "value": lambda kg: kg.add_dataset("x", value=object),
}


def refused(name: str) -> str:
    """The words of a refusal."""
    try:
        return f"not refused: {REFUSED[name](small_graph())}"
    except mk.ModuleKGError as error:
        return str(error)


def cases() -> dict[str, Case]:
    """All of this subject."""
    return {
        "contents": Case(contents),
        "store": Case(store),
        **{f"tree of {name}": Case(partial(tree, name)) for name in ("residual", "attending")},
        **{f"export to {ending}": Case(partial(exported, ending)) for ending in EXPORTS},
        **{f"question: {name}": Case(partial(asked, name), 5) for name in (*plain_questions(), *QUESTIONS)},
        "editing": Case(edited),
        "results": Case(results),
        "prediction": Case(predicted, 2),
        "published results": Case(published),
        "indexing": Case(indexed),
        **{f"refused: {name}": Case(partial(refused, name)) for name in REFUSED},
    }
