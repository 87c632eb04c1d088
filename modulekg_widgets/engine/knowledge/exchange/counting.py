"""How many nodes and edges the graph has, counted without making it."""

from __future__ import annotations

from collections.abc import Iterator

from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.exchange.property_graph import chosen_types


def node_count(contents: Contents) -> int:
    """The number of nodes of `to_networkx(contents)`."""
    groups = {
        "Module": contents.modules, "Model": contents.models, "DataSet": contents.datasets, "User": contents.users,
        "Job": contents.jobs, "Operator": {name for model in contents.models.values() for _, name in model.calls},
    }  # fmt: skip
    return sum(len(groups[kind]) for kind in chosen_types(contents, None))


def edge_count(contents: Contents) -> int:
    """The number of edges of `to_networkx(contents)`: of pairs of nodes with one relation or several."""
    pairs = set(_contained(contents))
    if "Model" not in chosen_types(contents, None):
        return len(pairs)
    modules, models = contents.modules, contents.models.values()
    pairs.update(pair for model in models for pair in model.feeds if pair[0] in modules and pair[1] in modules)
    calls = {pair for model in models for pair in model.calls if pair[0] in modules}
    return len(pairs) + len(calls) + sum(model.root in modules for model in models) + _runs(contents)


def _contained(contents: Contents) -> Iterator[tuple[str, str]]:
    modules = contents.modules
    for key, node in modules.items():
        for _, child in node.slots:
            if child in modules:
                yield key, child


def _runs(contents: Contents) -> int:
    """Edges from the user to a job, and from it to its data set and model."""
    return sum(
        (job.user in contents.users) + (job.dataset in contents.datasets) + (job.model in contents.models)
        for job in contents.jobs.values()
    )
