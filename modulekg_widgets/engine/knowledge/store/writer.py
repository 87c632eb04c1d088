"""Changes of the store; each method runs inside one transaction of `Store.write`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection, delete, exists, func, or_, select, update

from modulekg_widgets.engine.errors import StoreError, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode
from modulekg_widgets.engine.knowledge.facts.property_values import encode
from modulekg_widgets.engine.knowledge.facts.records import ModelNode, StructureNode
from modulekg_widgets.engine.knowledge.store.rows import (
    Row,
    checked_integer,
    contains_rows,
    escaped,
    insert_rows,
    job_properties,
    model_properties,
    module_properties,
    name_key,
)
from modulekg_widgets.engine.knowledge.store.schema import edges, nodes, occurrences

BATCH_ROWS = 20_000  # rows sent at once
MAX_QUERY_KEYS = 500  # keys in one question, below the limit of every database
Item = TypeVar("Item")


class StoreWriter:
    """Writer of one transaction: assigns ids and writes rows."""

    def __init__(self, connection: Connection, scheme: str) -> None:
        self.connection = connection
        self.scheme = scheme
        self._next = 1 + (connection.execute(select(func.max(nodes.c.id))).scalar() or 0)

    def add(self, contents: Contents) -> None:
        """Adds everything; nodes of the same name are replaced, existing modules are shared."""
        ids = self.add_modules(contents.modules.values())
        for dataset in contents.datasets.values():
            self.add_named("DataSet", dataset)
        for user in contents.users.values():
            self.add_named("User", user)
        for model in contents.models.values():
            self.add_model(model, ids)
        self.add_jobs(contents.jobs.values())

    # -------------------------------------------------------------- modules

    def add_modules(self, modules: Iterable[StructureNode]) -> dict[str, int]:
        """Adds missing modules; returns the id of each by fingerprint."""
        ids: dict[str, int] = {}
        written: list[StructureNode] = []  # their edges follow once all ids are known
        empty = self._is_empty()
        for batch in batches(modules, BATCH_ROWS):
            known = {} if empty else self.ids_of("Module", [node.fingerprint for node in batch])
            fresh = [node for node in batch if node.fingerprint not in known and node.fingerprint not in ids]
            ids.update(known)
            ids.update(zip((node.fingerprint for node in fresh), self._new_ids(len(fresh)), strict=True))
            insert_rows(self.connection, nodes, [_module_row(ids[node.fingerprint], node) for node in fresh])
            replaced = [node for node in batch if node.fingerprint in known] if self.scheme == "seed" else []
            self._replace_modules(replaced, ids)
            written += fresh + replaced
        self._add_contains(written, ids)
        return ids

    def _replace_modules(self, modules: list[StructureNode], ids: Mapping[str, int]) -> None:
        """Replaces modules whose children have other names, as the scheme "seed" merges them."""
        for node in modules:
            key = ids[node.fingerprint]
            values = {"name": escaped(node.class_name), "properties": module_properties(node)}
            self.connection.execute(update(nodes).where(nodes.c.id == key).values(values))
            self.connection.execute(delete(edges).where(edges.c.source == key, edges.c.type == "contains"))

    def _add_contains(self, modules: list[StructureNode], ids: dict[str, int]) -> None:
        missing = {child for node in modules for _, child in node.slots if child is not None and child not in ids}
        places = {**self.ids_of("Module", missing), **ids} if missing else ids
        if absent := [child for child in missing if child not in places]:
            raise StoreError(
                f"a module contains {printable(absent[0])!r}, which is not among those to add: nothing was"
            )
        rows = (
            (ids[node.fingerprint], "contains", places[child], 0, slots)
            for node in modules
            for child, slots in contains_rows(node)
        )
        for batch in batches(rows, BATCH_ROWS):
            insert_rows(self.connection, edges, batch)

    # -------------------------------------------------------------- models

    def add_model(self, model: ModelNode, ids: Mapping[str, int]) -> None:
        """Adds a model whose modules exist; replaces one of the same name, whose jobs then belong to the new one."""
        old = self.id_of("Model", model.name)
        unused = [] if old is None else self._modules_of(old)
        if old is not None:
            self._remove_model_rows(old)
            self.connection.execute(delete(nodes).where(nodes.c.id == old))
        needed = {model.root, *(key for key, _ in model.occurrences), *(k for pair in model.feeds for k in pair)}
        places = self._module_ids(needed | {key for key, _ in model.calls}, ids)
        new = self._insert("Model", model.name, model_properties(model))
        own = [(new, "contains", places[model.root], new, "1")]
        own += [(places[a], "feeds", places[b], new, encode(count)) for (a, b), count in model.feeds.items()]
        operators = self._operators({name for _, name in model.calls})
        own += [(places[k], "calls", operators[name], new, encode(n)) for (k, name), n in model.calls.items()]
        insert_rows(self.connection, edges, own)
        counted = model.occurrences.items()
        insert_rows(
            self.connection,
            occurrences,
            [(new, places[key], level, checked_integer(count, "a count")) for (key, level), count in counted],
        )
        if old is not None:
            trains = (edges.c.type == "trains") & (edges.c.target == old)
            self.connection.execute(update(edges).where(trains).values(target=new))
            self._remove_unused(unused)

    def _module_ids(self, needed: Collection[str], ids: Mapping[str, int]) -> dict[str, int]:
        """The id of each module that is needed: of those that were just added, else from the store."""
        places = {key: ids[key] for key in needed if key in ids}
        places |= self.ids_of("Module", [key for key in needed if key not in places])
        if absent := [key for key in needed if key not in places]:
            raise StoreError(
                f"a model holds {printable(absent[0])!r}, which is not a module of the graph: nothing was added"
            )
        return places

    def remove_model(self, name: str) -> None:
        """Removes a model and the modules of no other model; its jobs stay without a model."""
        model = self._required("Model", name)
        unused = self._modules_of(model)
        self._remove_model_rows(model)
        self._remove_nodes([model])
        self._remove_unused(unused)

    def _modules_of(self, model: int) -> list[int]:
        asked = select(occurrences.c.module).where(occurrences.c.model == model).distinct()
        return list(self.connection.execute(asked).scalars())

    def _remove_model_rows(self, model: int) -> None:
        self.connection.execute(delete(occurrences).where(occurrences.c.model == model))
        self.connection.execute(delete(edges).where(edges.c.owner == model))

    def _remove_unused(self, modules: Collection[int]) -> None:
        """Removes those of `modules` that no model contains, and operators without calls."""
        used: set[int] = set()
        for batch in batches(modules, MAX_QUERY_KEYS):
            asked = select(occurrences.c.module).where(occurrences.c.module.in_(batch)).distinct()
            used.update(self.connection.execute(asked).scalars())
        self._remove_nodes([module for module in modules if module not in used])
        called = exists().where(edges.c.target == nodes.c.id, edges.c.type == "calls")
        self.connection.execute(delete(nodes).where(nodes.c.type == "Operator", ~called))

    def _operators(self, names: Collection[str]) -> dict[str, int]:
        known = self.ids_of("Operator", [name_key(name) for name in names])
        return {
            name: known[name_key(name)] if name_key(name) in known else self._insert("Operator", name, "{}")
            for name in sorted(names)
        }

    # -------------------------------------------------------------- data sets, users, jobs

    def add_named(self, kind: str, node: DataSetNode | UserNode) -> str:
        """Adds a data set or user, or replaces its properties; returns its key."""
        properties = encode(node.properties)
        old = self.id_of(kind, node.name)
        if old is None:
            self._insert(kind, node.name, properties)
        else:
            self.connection.execute(update(nodes).where(nodes.c.id == old).values(properties=properties))
        return name_key(node.name)

    def add_job(self, job: JobNode) -> str:
        """Adds or replaces a job; its user, data set and model must exist. Returns its key. Returns its key."""
        self.add_jobs([job])
        return name_key(job.name)

    def add_jobs(self, jobs: Iterable[JobNode]) -> None:
        """Adds or replaces jobs of different names; what they name must exist."""
        for batch in batches(jobs, BATCH_ROWS):
            users = self._all_required("User", {job.user for job in batch})
            datasets = self._all_required("DataSet", {job.dataset for job in batch})
            models = self._all_required("Model", {job.model for job in batch})
            self._remove_nodes(self.ids_of("Job", [name_key(job.name) for job in batch]).values())
            ids = self._new_ids(len(batch))
            rows: list[Row] = []
            for job, new in zip(batch, ids, strict=True):
                rows += [] if job.user is None else [(users[job.user], "runs", new, 0, "1")]
                rows += [] if job.dataset is None else [(new, "uses", datasets[job.dataset], 0, "1")]
                rows += [] if job.model is None else [(new, "trains", models[job.model], 0, "1")]
            named = ((new, "Job", name_key(job.name), escaped(job.name), job_properties(job))
                     for job, new in zip(batch, ids, strict=True))  # fmt: skip
            insert_rows(self.connection, nodes, list(named))
            insert_rows(self.connection, edges, rows)

    def remove_named(self, kind: str, name: str) -> None:
        """Removes a job, or a data set or user, whose jobs stay without it."""
        self._remove_nodes([self._required(kind, name)])

    # -------------------------------------------------------------- nodes of every type

    def ids_of(self, kind: str, keys: Collection[str]) -> dict[str, int]:
        """The ids of the nodes that are there, by key."""
        found: dict[str, int] = {}
        for batch in batches(keys, MAX_QUERY_KEYS):
            asked = select(nodes.c.key, nodes.c.id).where(nodes.c.type == kind, nodes.c.key.in_(batch))
            found.update((key, number) for key, number in self.connection.execute(asked))
        return found

    def id_of(self, kind: str, name: str) -> int | None:
        return self.ids_of(kind, [name_key(name)]).get(name_key(name))

    def _required(self, kind: str, name: str) -> int:
        return self._all_required(kind, [name])[name]

    def _all_required(self, kind: str, names: Collection[str | None]) -> dict[str, int]:
        """The ids of nodes by name; raises `StoreError` where one is not there."""
        wanted = {name: name_key(name) for name in names if name is not None}
        known = self.ids_of(kind, wanted.values())
        for name, key in wanted.items():
            if key not in known:
                raise StoreError(f"there is no {kind} {printable(name)!r} (any more): nothing was written")
        return {name: known[key] for name, key in wanted.items()}

    def _insert(self, kind: str, name: str, properties: str) -> int:
        (new,) = self._new_ids(1)
        insert_rows(self.connection, nodes, [(new, kind, name_key(name), escaped(name), properties)])
        return new

    def _remove_nodes(self, ids: Collection[int]) -> None:
        for batch in batches(ids, MAX_QUERY_KEYS):
            ends = or_(edges.c.source.in_(batch), edges.c.target.in_(batch))
            self.connection.execute(delete(edges).where(ends))
            self.connection.execute(delete(nodes).where(nodes.c.id.in_(batch)))

    def _new_ids(self, count: int) -> range:
        first, self._next = self._next, self._next + count
        return range(first, self._next)

    def _is_empty(self) -> bool:
        return self.connection.execute(select(nodes.c.id).where(nodes.c.type == "Module").limit(1)).first() is None


def _module_row(key: int, node: StructureNode) -> Row:
    return key, "Module", node.fingerprint, escaped(node.class_name), module_properties(node)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """`items` in lists of at most `size`."""
    waiting = iter(items)
    while batch := list(islice(waiting, size)):
        yield batch
