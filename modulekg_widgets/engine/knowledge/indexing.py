"""Many models into one graph: built without weights in several processes, each stored as soon as it is known."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch
from torch import nn
from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import IndexingError, ModuleKGError, UnknownNameError, shown
from modulekg_widgets.engine.knowledge.graph import KnowledgeGraph
from modulekg_widgets.engine.knowledge.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.store.database import Location
from modulekg_widgets.engine.knowledge.zoo import meta_weights

log = logging.getLogger("modulekg_widgets")
Builder = Callable[[], nn.Module]
AHEAD = 64  # models that are being built or wait to be stored
SECONDS_BEFORE_BAR = 2.0
SECONDS_ALONE = 2.0  # about what other processes take to start: few models are done by then


def index_models(
    builders: Mapping[str, Builder] | Iterable[Builder],
    store: KnowledgeGraph | Location | None = None,
    executor: Executor | None = None,
    *,
    again: bool = False,
) -> KnowledgeGraph:
    """Build each model and add it to the graph in `store` under its name; returns the graph.

    `builders` are functions without arguments by the names of their models, or functions that are named like them.
    They run without memory for weights in the processes of `executor`, any of `concurrent.futures` (Dask's
    `client.get_executor()` for a cluster), by default one process per core; those that cannot be sent run here.
    A model whose name the graph knows is left out unless `again`: after an interruption the same call goes on.
    Raises `IndexingError` in the end when some could not be built; all others are in the graph then.
    """
    graph = store if isinstance(store, KnowledgeGraph) else KnowledgeGraph(store)
    named = _by_name(builders)
    graph.builders.update(named)
    known = set() if again else set(graph.models)
    todo = {name: builder for name, builder in named.items() if name not in known}
    failures: dict[str, str] = {}
    with tqdm(total=len(named), initial=len(named) - len(todo), unit="model", delay=SECONDS_BEFORE_BAR) as bar:
        for name, made in _records(todo, graph.scheme, executor):
            if isinstance(made, ModelRecord):
                graph.add_records([made])
            else:
                failures[name] = made
            bar.update()
    if failures:
        raise _not_all(failures, len(todo))
    return graph


def built_record(name: str, builder: Builder, scheme: str) -> ModelRecord:
    """The record of what `builder` makes, with weights on the meta device, or real ones where it needs their values."""
    try:
        with meta_weights():
            model = builder()
    except Exception:  # noqa: BLE001 - anything may fail that looks at the numbers of weights
        model = builder()
    return model_record(model, name, scheme)


def _by_name(builders: Mapping[str, Builder] | Iterable[Builder]) -> dict[str, Builder]:
    if isinstance(builders, Mapping):
        named = dict(builders)
    else:
        several = list(builders)
        named = {getattr(builder, "__name__", ""): builder for builder in several}
        if len(named) < len(several) or "" in named:
            raise UnknownNameError("some builders have the same name or none: pass {name: builder}")
    for name, builder in named.items():
        if not isinstance(name, str) or not callable(builder):
            kind = shown(type(builder).__name__)
            raise UnknownNameError(f"{shown(str(name))!r} is built by a {kind}: pass functions by the models' names")
    return named


def _records(
    builders: dict[str, Builder], scheme: str, executor: Executor | None
) -> Iterator[tuple[str, ModelRecord | str]]:
    """(name, its record or why there is none), each as soon as it is known."""
    if executor is not None:
        yield from _sent(builders, scheme, executor)
        return
    waiting, until = dict(builders), time.monotonic() + SECONDS_ALONE
    while waiting and (time.monotonic() < until or not any(map(_travels, waiting.values()))):
        name = next(iter(waiting))
        yield name, _here(name, waiting.pop(name), scheme)
    sent = {name: builder for name, builder in waiting.items() if _travels(builder)}
    if sent:
        with _processes(len(sent)) as pool:
            yield from _sent(sent, scheme, pool)
    for name in [name for name in waiting if name not in sent]:
        yield name, _here(name, waiting[name], scheme)


def _sent(builders: dict[str, Builder], scheme: str, executor: Executor) -> Iterator[tuple[str, ModelRecord | str]]:
    """In the order of the builders, so that the graph is the same however fast each process is."""
    waiting = deque(builders.items())
    running: deque[tuple[str, Future[ModelRecord]]] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD:
                name, builder = waiting.popleft()
                running.append((name, executor.submit(built_record, name, builder, scheme)))
            name, future = running.popleft()
            yield name, _result(future, name, builders[name], scheme)
    finally:
        for _, future in running:
            future.cancel()


def _result(future: Future[ModelRecord], name: str, builder: Builder, scheme: str) -> ModelRecord | str:
    try:
        return future.result()
    except (BrokenProcessPool, pickle.PicklingError) as error:
        log.warning("%s is built in this process: %s", shown(name), shown(str(error)))
        return _here(name, builder, scheme)
    except Exception as error:  # noqa: BLE001 - whatever one builder raises must not lose the others
        return _reason(error)


def _here(name: str, builder: Builder, scheme: str) -> ModelRecord | str:
    try:
        return built_record(name, builder, scheme)
    except Exception as error:  # noqa: BLE001
        return _reason(error)


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, ModuleKGError) else f"{type(error).__name__}: "
    return shown(f"{kind}{error}", 300)


def _travels(builder: Builder) -> bool:
    """Whether another process finds the builder: not so what was defined in a notebook or in a function."""
    try:
        return b"__main__" not in pickle.dumps(builder)
    except Exception:  # noqa: BLE001 - objects raise what they like when they are pickled
        return False


@contextmanager
def _processes(tasks: int) -> Iterator[Executor]:
    """Fresh processes: a fork would copy the locks of this one's threads."""
    workers = min(tasks, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _not_all(failures: Mapping[str, str], total: int) -> IndexingError:
    lines: list[str] = [f"{shown(name)}: {reason}" for name, reason in list(failures.items())[:5]]
    more = [f"and {len(failures) - len(lines)} more, see .failures"] if len(failures) > len(lines) else []
    told: Any = "; ".join([*lines, *more])
    return IndexingError(f"{len(failures)} of {total} models could not be indexed: {told}", dict(failures))
