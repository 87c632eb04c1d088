"""Queries of the store: single nodes by key, and the whole graph as `Contents`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from sqlalchemy import Connection, bindparam, func, select

from modulekg_widgets.engine.errors import StoreError, printable
from modulekg_widgets.engine.identity.levels import LEVELS
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.facts.records import FINGERPRINTS, ModelNode, StructureNode
from modulekg_widgets.engine.knowledge.store.rows import (
    dataset_from_row,
    decode_count,
    job_from_row,
    model_from_row,
    module_from_row,
    name_key,
    read_checked,
    unescaped,
    user_from_row,
)
from modulekg_widgets.engine.knowledge.store.schema import edges, nodes, occurrences
from modulekg_widgets.engine.knowledge.store.writer import MAX_QUERY_KEYS, batches

Pair = tuple[str, str]
# the type of node at the other end of each edge of a job
JOB_EDGES = {"runs": "User", "uses": "DataSet", "trains": "Model"}
NODE_TYPES = ("Module", "Model", "DataSet", "Job", "User", "Operator")

# made once: a look-up by fingerprint is as long as its statements take to build
_MODULES = select(nodes.c.id, nodes.c.key, nodes.c.name, nodes.c.properties).where(
    nodes.c.type == "Module", nodes.c.key.in_(bindparam("keys", expanding=True))
)
_SLOTS = (
    select(edges.c.source, nodes.c.key, edges.c.properties)
    .join(nodes, nodes.c.id == edges.c.target)
    .where(edges.c.type == "contains", edges.c.source.in_(bindparam("sources", expanding=True)))
)


def names_of(connection: Connection, kind: str) -> list[str]:
    """The names of all nodes of a type, in the order of adding."""
    found = connection.execute(select(nodes.c.name).where(nodes.c.type == kind).order_by(nodes.c.id)).scalars()
    return [read_checked(lambda text=text: unescaped(text), f"a {kind}'s name") for text in found]


def count_modules(connection: Connection) -> int:
    """The number of modules over all models, each occurrence."""
    return int(connection.execute(select(func.coalesce(func.sum(occurrences.c.count), 0))).scalar_one())


def count_nodes(connection: Connection, kind: str) -> int:
    return connection.execute(select(func.count()).where(nodes.c.type == kind)).scalar_one()


def read_module(connection: Connection, fingerprint: str) -> StructureNode | None:
    """Returns the structure of a fingerprint, by two index look-ups."""
    return read_modules(connection, [fingerprint]).get(fingerprint)


def read_modules(connection: Connection, fingerprints: Iterable[str]) -> dict[str, StructureNode]:
    """Returns the structures of the fingerprints that exist."""
    found: dict[str, StructureNode] = {}
    for batch in batches(fingerprints, MAX_QUERY_KEYS):
        rows = connection.execute(_MODULES, {"keys": batch}).all()
        inside: dict[int, list[Pair]] = defaultdict(list)
        for source, child, places in connection.execute(_SLOTS, {"sources": [row.id for row in rows]}):
            inside[source].append((child, places))
        found.update({row.key: module_from_row(row.key, row.name, row.properties, inside[row.id]) for row in rows})
    return found


def read_model(connection: Connection, name: str) -> ModelNode | None:
    """Returns a model with its occurrences, without the facts of its trace."""
    asked = select(nodes.c.id, nodes.c.name, nodes.c.properties)
    row = connection.execute(asked.where(nodes.c.type == "Model", nodes.c.key == name_key(name))).first()
    if row is None:
        return None
    counted = (
        select(nodes.c.key, occurrences.c.level, occurrences.c.count)
        .join(nodes, nodes.c.id == occurrences.c.module)
        .where(occurrences.c.model == row.id)
    )
    uses = Counter(
        {(key, checked_level(level)): checked_count(count) for key, level, count in connection.execute(counted)}
    )
    return model_from_row(row.name, row.properties, uses, Counter(), Counter())


def read_contents(connection: Connection, scheme: str) -> Contents:
    """Everything in the store; raises `StoreError` for rows that do not fit together."""
    return _ContentsReader(connection).contents(scheme)


class _ContentsReader:
    """Reads each table once and assembles the records."""

    def __init__(self, connection: Connection) -> None:
        self.rows: dict[str, list[tuple[int, str, str, str]]] = {kind: [] for kind in NODE_TYPES}
        self.keys: dict[int, str] = {}  # of modules, by id
        self.titles: dict[int, str] = {}  # names of all other nodes, by id
        for key, kind, digest, name, text in connection.execute(select(nodes).order_by(nodes.c.id)):
            if kind not in self.rows:
                raise _damage_error(f"a node of type {kind!r}")
            self.rows[kind].append((key, digest, name, text))
            if kind == "Module":
                self.keys[key] = digest
            else:
                self.titles[key] = read_checked(lambda name=name: unescaped(name), f"a {kind}'s name")
                if digest != name_key(self.titles[key]):
                    raise _damage_error(f"the {kind} {name!r} under another name")
        self.inside: dict[int, list[Pair]] = defaultdict(list)
        self.feeds: dict[int, Counter[Pair]] = defaultdict(Counter)
        self.calls: dict[int, Counter[Pair]] = defaultdict(Counter)
        self.ends: dict[str, dict[int, int]] = {kind: {} for kind in JOB_EDGES}  # job -> the other end
        for source, kind, target, owner, text in connection.execute(select(edges)):
            self._edge(source, kind, target, owner, text)
        self.uses: dict[int, Counter[Pair]] = defaultdict(Counter)
        for model, module, level, count in connection.execute(select(occurrences)):
            self.uses[model][self._module(module), checked_level(level)] = checked_count(count)

    def _edge(self, source: int, kind: str, target: int, owner: int, text: str) -> None:
        if kind == "contains":
            if owner == 0:
                self._module(source)
                self.inside[source].append((self._module(target), text))
        elif kind == "feeds":
            self.feeds[owner][self._module(source), self._module(target)] = decode_count(text)
        elif kind == "calls":
            self.calls[owner][self._module(source), self._title(target)] = decode_count(text)
        elif kind == "runs":
            self.ends[kind][target] = source
        elif kind in self.ends:
            self.ends[kind][source] = target
        else:
            raise _damage_error(f"an edge of type {kind!r}")

    def _module(self, key: int) -> str:
        if key not in self.keys:
            raise _damage_error(f"an edge to the module of id {key}, which is not there")
        return self.keys[key]

    def _title(self, key: int) -> str:
        if key not in self.titles:
            raise _damage_error(f"an edge to the node of id {key}, which is not there")
        return self.titles[key]

    def _end(self, kind: str, job: int) -> str | None:
        end = self.ends[kind].get(job)
        if end is not None and end not in self.of_type[JOB_EDGES[kind]]:
            raise _damage_error(f"an edge of type {kind!r} to the node of id {end}, no {JOB_EDGES[kind]}")
        return None if end is None else self._title(end)

    def contents(self, scheme: str) -> Contents:
        self.of_type = {kind: {key for key, *_ in rows} for kind, rows in self.rows.items()}
        modules = {d: module_from_row(d, name, text, self.inside[key]) for key, d, name, text in self.rows["Module"]}
        for digest in modules:
            if not FINGERPRINTS[scheme].fullmatch(digest):
                raise _damage_error(f"a module under {digest!r}, no fingerprint of the scheme {scheme!r}")
        models = [
            model_from_row(name, text, self.uses[key], self.feeds[key], self.calls[key])
            for key, _, name, text in self.rows["Model"]
        ]
        for model in models:
            if model.root not in modules:
                raise _damage_error(f"the model {model.name!r} without its root")
        jobs = [
            job_from_row(name, text, self._end("runs", key), self._end("uses", key), self._end("trains", key))
            for key, _, name, text in self.rows["Job"]
        ]
        datasets = [dataset_from_row(name, text) for _, _, name, text in self.rows["DataSet"]]
        users = [user_from_row(name, text) for _, _, name, text in self.rows["User"]]
        return Contents(
            scheme, modules, {model.name: model for model in models}, {node.name: node for node in datasets},
            {node.name: node for node in users}, {job.name: job for job in jobs},
        )  # fmt: skip


def check_complete(model: str, keys: Iterable[str], modules: Mapping[str, StructureNode]) -> None:
    """Raises `StoreError` unless all modules of a model and their contents exist."""
    inside = (child for node in modules.values() for _, child in node.slots if child is not None)
    for key in chain(keys, inside):
        if key not in modules:
            raise _damage_error(f"the model {model!r} without its module {key!r}")


def checked_level(level: object) -> str:
    if level not in LEVELS:
        raise _damage_error(f"uses at the level {level!r}")
    return str(level)


def checked_count(count: object) -> int:
    if type(count) is not int or count < 1:
        raise _damage_error(f"{count!r} uses of a module")
    return count


def _damage_error(damage: str) -> StoreError:
    return StoreError(f"the store holds {printable(damage, 150)}: it is damaged")
