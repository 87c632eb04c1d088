"""What a store holds after something was added, from what it held before: not everything is read again."""

from __future__ import annotations

from dataclasses import replace

from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.property_values import encode
from modulekg_widgets.engine.knowledge.records import ModelNode, StructureNode
from modulekg_widgets.engine.knowledge.store.rows import (
    contains,
    dataset_of,
    escaped,
    job_of,
    job_properties,
    model_of,
    model_properties,
    module_of,
    module_properties,
    user_of,
)


def patched(known: Contents, added: Contents) -> Contents | None:
    """`known` with what was added, as it would be read but for the order of counts; None where more changes than that.

    That is so for models that replace others, with which modules may go, and under the seed's scheme, where modules do.
    """
    if not known.models.keys().isdisjoint(added.models) or (known.scheme == "seed" and added.modules):
        return None
    fresh = {key: _module(node) for key, node in added.modules.items() if key not in known.modules}
    jobs = {name: job for name, job in known.jobs.items() if name not in added.jobs}
    return replace(
        known,
        modules={**known.modules, **fresh},
        models={**known.models, **{name: _model(node) for name, node in added.models.items()}},
        datasets={**known.datasets, **{name: _dataset(node) for name, node in added.datasets.items()}},
        users={**known.users, **{name: _user(node) for name, node in added.users.items()}},
        jobs={**jobs, **{name: _job(node) for name, node in added.jobs.items()}},
    )


def _module(node: StructureNode) -> StructureNode:
    return module_of(node.fingerprint, escaped(node.class_name), module_properties(node), contains(node))


def _model(node: ModelNode) -> ModelNode:
    counts = (type(each)(each) for each in (node.occurrences, node.feeds, node.calls))
    return model_of(escaped(node.name), model_properties(node), *counts)


def _dataset(node: DataSetNode) -> DataSetNode:
    return dataset_of(escaped(node.name), encode(node.properties))


def _user(node: UserNode) -> UserNode:
    return user_of(escaped(node.name), encode(node.properties))


def _job(job: JobNode) -> JobNode:
    return job_of(escaped(job.name), job_properties(job), job.user, job.dataset, job.model)
