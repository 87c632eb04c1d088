"""Conversion between records of the graph and rows of the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar

from sqlalchemy import Connection, Table

from modulekg_widgets.engine.errors import PropertyError, StoreError, printable
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode, slot_positions
from modulekg_widgets.engine.knowledge.facts.jobs import checked_seconds
from modulekg_widgets.engine.knowledge.facts.property_values import (
    Properties,
    decode,
    decode_history,
    encode,
    encode_history,
)
from modulekg_widgets.engine.knowledge.facts.records import FINGERPRINTS, ModelNode, StructureNode

Node = TypeVar("Node")
Kind = TypeVar("Kind")
Row = tuple[object, ...]
_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_JSON_SCALARS = {str, int, float, bool, type(None)}
MIN_COPY_ROWS = 1000  # rows; fewer are inserted sooner than a COPY is set up
_MAX_INTEGER = 1 << 63


def name_key(name: str) -> str:
    """Returns the key of a named node; names may have any length and characters."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def escaped(name: str) -> str:
    """`name` as text that every database holds: without NUL and lone surrogates; `unescaped` gives it back."""
    if name.isascii() and "\\" not in name and "\0" not in name:
        return name
    plain = name.replace("\\", "\\\\").replace("\0", "\\x00")
    return plain.encode("utf-8", "backslashreplace").decode("utf-8")


def unescaped(text: str) -> str:
    """Returns the name that `escaped` converted."""
    if "\\" not in text:
        return text
    # backslashes come as pairs, as NUL and as surrogates; everything else stands for itself
    parts = text.split("\\\\")
    return "\\".join(_with_characters(part) for part in parts)


def _with_characters(part: str) -> str:
    head, *escapes = part.split("\\")
    pieces = [head]
    for escape in escapes:
        length = {"x": 3, "u": 5}.get(escape[:1], 0)
        digits = escape[1:length]
        if not length or len(digits) != length - 1 or not set(digits) <= set("0123456789abcdef"):
            raise ValueError(f"no escape: \\{escape[:6]}")
        pieces.append(chr(int(digits, 16)) + escape[length:])
    return "".join(pieces)


# -------------------------------------------------------------- to rows


def module_properties(node: StructureNode) -> str:
    """Returns the properties of a module's row as text; its children are edges."""
    values = {
        "qualified_class": node.qualified_class, "bases": node.bases, "hyperparameters": node.hyperparameters,
        "tensors": node.tensors, "parameters": node.parameters, "bytes": node.bytes,
        "empty_slots": [(position, name) for position, (name, child) in enumerate(node.slots) if child is None],
    }  # fmt: skip
    if set(map(type, node.hyperparameters.values())) <= _JSON_SCALARS and (text := _fast_encode(values)) is not None:
        return text
    shapes = {name: None if shape is None else list(shape) for name, shape in node.tensors.items()}
    empty = [list(slot) for slot in values["empty_slots"]]
    return encode({**values, "bases": list(node.bases), "tensors": shapes, "empty_slots": empty})


def contains_rows(node: StructureNode) -> Iterable[tuple[str, str]]:
    """Yields (fingerprint of the child, its slots as text), each child once."""
    for child, places in slot_positions(node).items():
        slots = [[position, node.slots[position][0]] for position in places]
        yield child, _fast_encode(slots) or encode(slots)


def _fast_encode(value: object) -> str | None:
    """Returns the text of `encode` faster, for values whose texts alone may need its care; else None."""
    try:
        text = _dumps(value)
    except ValueError:  # NaN
        return None
    return None if '"$' in text or "\\ud" in text else text


def model_properties(model: ModelNode) -> str:
    return encode({
        "root": model.root, "cyclic": model.cyclic, "parameters": model.parameters, "bytes": model.bytes,
        "flops": model.flops, "inputs": None if model.inputs is None else [list(shape) for shape in model.inputs],
        "module_flops": model.module_flops, "launches": model.launches, "traffic": model.traffic,
    })  # fmt: skip


def job_properties(job: JobNode) -> str:
    return encode({
        "accuracy": job.accuracy, "convergence": job.convergence, "started": job.started, "ended": job.ended,
        "history": encode_history(job.history), "properties": job.properties,
    })  # fmt: skip


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Append rows that are not there yet, through the driver itself: a million take seconds."""
    if not rows:
        return
    columns = [column.name for column in table.columns]
    if connection.dialect.name == "postgresql" and len(rows) >= MIN_COPY_ROWS:
        _copy_rows(connection, table.name, columns, rows)
        return
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"
    connection.exec_driver_sql(statement, list(rows))


def _copy_rows(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Append rows by COPY, which is several times as fast as INSERT."""
    cursor: Any = connection.connection.cursor()
    with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def checked_integer(count: int, what: str) -> int:
    """`count`, if the databases can hold it; raises `PropertyError`."""
    if not 0 <= count < _MAX_INTEGER:
        raise PropertyError(f"{what} is {printable(str(count))}: the store holds numbers from 0 to 2^63 - 1")
    return count


# -------------------------------------------------------------- from rows: whoever wrote them, they are checked


def module_from_row(fingerprint: str, name: str, text: str, children: Iterable[tuple[str, str]]) -> StructureNode:
    """Returns the structure of a row and its `contains` edges (fingerprint of the child, slots)."""

    def read() -> StructureNode:
        found = decode_properties(text)
        slots: dict[int, tuple[str, str | None]] = {
            _natural(position): (_text(slot), None) for position, slot in found["empty_slots"]
        }
        for child, places in children:
            for position, slot in _pairs(decode(places)):
                if position in slots:
                    raise ValueError(f"two children at position {position}")
                slots[_natural(position)] = (_text(slot), _fingerprint(child))
        if slots and max(slots) != len(slots) - 1:
            raise ValueError("a child is missing")
        shapes = {
            _text(tensor): None if shape is None else tuple(_integer(size) for size in shape)
            for tensor, shape in found["tensors"].items()
        }
        return StructureNode(
            _fingerprint(fingerprint), unescaped(name), _text(found["qualified_class"]),
            tuple(map(_text, found["bases"])), _mapping(found["hyperparameters"]), shapes,
            tuple(slots[at] for at in range(len(slots))), _natural(found["parameters"]), _natural(found["bytes"]),
        )  # fmt: skip

    return read_checked(read, f"the module {fingerprint}")


def model_from_row(
    name: str,
    text: str,
    occurrences: Counter[tuple[str, str]],
    feeds: Counter[tuple[str, str]],
    calls: Counter[tuple[str, str]],
) -> ModelNode:
    """Returns the model of a row with its rows of other tables."""

    def read() -> ModelNode:
        found = decode_properties(text)
        flops, inputs = found["flops"], found["inputs"]
        return ModelNode(
            unescaped(name), _text(found["root"]), occurrences, _of_type(found["cyclic"], bool, "a truth value"),
            _natural(found["parameters"]), _natural(found["bytes"]), None if flops is None else _natural(flops),
            None if inputs is None else tuple(tuple(map(_integer, shape)) for shape in inputs),
            {_text(key): _natural(cost) for key, cost in found["module_flops"].items()}, feeds, calls,
            *(None if found.get(key) is None else _natural(found[key]) for key in ("launches", "traffic")),
        )  # fmt: skip

    return read_checked(read, f"the model {name!r}")


def job_from_row(name: str, text: str, user: str | None, dataset: str | None, model: str | None) -> JobNode:
    """Returns the job of a row with the names at its edges."""

    def read() -> JobNode:
        found = decode_properties(text)
        return JobNode(
            unescaped(name), user, dataset, model, _real_or_none(found["accuracy"]),
            _real_or_none(found["convergence"]), decode_history(_text(found["history"])),
            checked_seconds(found["started"], "started"),
            None if found["ended"] is None else checked_seconds(found["ended"], "ended"), _mapping(found["properties"]),
        )  # fmt: skip

    return read_checked(read, f"the job {name!r}")


def named_from_row(kind: Callable[[str, Properties], Node], name: str, text: str) -> Node:
    """Returns the data set or user of a row."""
    return read_checked(lambda: kind(unescaped(name), _mapping(decode_properties(text))), f"{kind.__name__} {name!r}")


def dataset_from_row(name: str, text: str) -> DataSetNode:
    return named_from_row(DataSetNode, name, text)


def user_from_row(name: str, text: str) -> UserNode:
    return named_from_row(UserNode, name, text)


def read_checked(read: Callable[[], Node], what: str) -> Node:
    """Returns `read()`; any error of the row becomes a `StoreError` that names it."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = printable(f"{type(error).__name__}: {error}", 120)
        raise StoreError(f"{printable(what)} cannot be read from the store ({reason}): the store is damaged") from error


def decode_properties(text: str) -> Properties:
    return _mapping(decode(text))


def decode_count(text: str) -> int:
    return read_checked(lambda: _natural(decode(text)), "a number of uses")


def _pairs(value: object) -> list[list[object]]:
    if not isinstance(value, list):
        raise TypeError("slots are not a list")
    return value


def _of_type(value: object, kind: type[Kind], noun: str) -> Kind:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{type(value).__name__} instead of {noun}")
    return value


def _mapping(value: object) -> Properties:
    return _of_type(value, dict, "properties")


def _text(value: object) -> str:
    return _of_type(value, str, "a text")


def _fingerprint(value: object) -> str:
    text = _text(value)
    if not FINGERPRINTS["seed"].fullmatch(text):  # which those of the other scheme match as well
        raise ValueError("no fingerprint")
    return text


def _integer(value: object) -> int:
    return _of_type(value, int, "a whole number")


def _natural(value: object) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


def _real_or_none(value: object) -> float | None:
    if value is None:
        return None
    return value if isinstance(value, float) else float(_of_type(value, int, "a number"))


# -------------------- Update of cached contents after an addition, so that the store is not read again


def updated_contents(known: Contents, added: Contents) -> Contents | None:
    """Returns `known` with the additions, as they would be read; None if more changes than that.

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
    return module_from_row(node.fingerprint, escaped(node.class_name), module_properties(node), contains_rows(node))


def _model(node: ModelNode) -> ModelNode:
    counts = (type(each)(each) for each in (node.occurrences, node.feeds, node.calls))
    return model_from_row(escaped(node.name), model_properties(node), *counts)


def _dataset(node: DataSetNode) -> DataSetNode:
    return dataset_from_row(escaped(node.name), encode(node.properties))


def _user(node: UserNode) -> UserNode:
    return user_from_row(escaped(node.name), encode(node.properties))


def _job(job: JobNode) -> JobNode:
    return job_from_row(escaped(job.name), job_properties(job), job.user, job.dataset, job.model)
