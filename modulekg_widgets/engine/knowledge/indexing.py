"""Building and adding of many models, without weights, in several processes, each stored when it is finished."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import torch
from torch import nn
from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import IndexingError, ModuleKGError, UnknownNameError, a_type, printable
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.facts.traced import add_cost
from modulekg_widgets.engine.knowledge.graph import KnowledgeGraph
from modulekg_widgets.engine.knowledge.store.database import Location
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.torch_runtime.rng import preserved_rng

Builder = Callable[[], nn.Module]
BuildResult = tuple[str, "ModelRecord | str"]  # a model's name, its record or why there is none
RecordOptions = tuple[str, str]  # the scheme of the fingerprints, and what tells levels
MAX_PENDING = 64  # models that are being built or wait to be stored
PROGRESS_DELAY = 2.0
IN_PROCESS_SECONDS = 2.0  # about what other processes take to start: few models are done by then


def index_models(
    builders: Mapping[str, Builder] | Iterable[Builder | tuple[str, Builder]],
    store: KnowledgeGraph | Location | None = None,
    executor: Executor | None = None,
    *,
    again: bool = False,
) -> KnowledgeGraph:
    """Build each model and add it to the graph in `store` under its name.

    A model whose name the graph knows is left out unless `again`: after an interruption the same call goes on.

    Parameters
    ----------
    builders
        Functions without arguments by the names of their models, pairs of both, or functions that are named like their
        models. They run without memory for weights.
    store
        A graph, or what `KnowledgeGraph` takes: None for one in memory, a path, or a URL.
    executor
        Any of `concurrent.futures`, in whose processes the builders run (Dask's `client.get_executor()` for a
        cluster); by default one process per core. Builders that cannot be sent run here.
    again
        Whether models that the graph knows are built again.

    Returns
    -------
    KnowledgeGraph
        With all models that could be built.

    Raises
    ------
    IndexingError
        In the end, when some could not be built; all others are in the graph then.
    UnknownNameError
        For builders without names, or of the same name.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> kg = mk.index_models({"small": lambda: torch.nn.Linear(2, 3), "large": lambda: torch.nn.Linear(20, 30)})
    >>> kg.unique_count
    2
    """
    graph = store if isinstance(store, KnowledgeGraph) else KnowledgeGraph(store)
    named = _by_name(builders)
    graph.builders.update(named)
    known = set() if again else set(graph.models)
    todo = {name: builder for name, builder in named.items() if name not in known}
    failures: dict[str, str] = {}
    with tqdm(total=len(named), initial=len(named) - len(todo), unit="model", delay=PROGRESS_DELAY) as bar:
        for name, made in _records(todo, (graph.scheme, graph.levels), executor):
            if isinstance(made, ModelRecord):
                graph.add_records([made])
            else:
                failures[name] = made
            bar.update()
    if failures:
        raise _indexing_error(failures, len(todo))
    return graph


def build_record(name: str, builder: Builder, scheme: str, levels: str) -> ModelRecord:
    """Builds a model with weights on the meta device, or real ones if it needs them, and returns its record.

    The process's random numbers go on as if nothing had been built.
    """
    try:
        with preserved_rng():
            model = _build_model(builder)
            record = model_record(model, name, scheme, levels)
            example = getattr(builder, "example", None)  # what the models of a library take
            call = None if example is None else example(model)
            return record if call is None else add_cost(record, model, call)
    except SystemExit as error:
        raise IndexingError(f"its builder exits the process ({printable(str(error))})") from error


def _build_model(builder: Builder) -> nn.Module:
    try:
        with meta_weights():
            return builder()
    except Exception:  # anything may fail that looks at the numbers of weights
        if getattr(builder, "only_without_memory", False):
            raise
        return builder()


def _by_name(builders: object) -> dict[str, Builder]:
    named: dict[str, Builder]
    if isinstance(builders, Mapping):
        named = dict(builders)
    elif isinstance(builders, Iterable) and not isinstance(builders, str):
        several = [
            each if isinstance(each, tuple) else (getattr(each, "__name__", "<none>"), each) for each in builders
        ]
        named = dict(several)
        if len(named) < len(several) or any(str(name).startswith("<") for name in named):
            raise UnknownNameError("some builders have the same name or none: pass {name: builder}")
    else:
        raise UnknownNameError(f"got {a_type(builders)}: pass {{name: builder}}")
    for name, builder in named.items():
        if not isinstance(name, str) or not callable(builder) or isinstance(builder, nn.Module):
            raise UnknownNameError(
                f"{printable(str(name))!r} is built by {a_type(builder)}: pass functions by the models' names"
            )
    return named


def _name_of(builder: object) -> str:
    return str(getattr(builder, "__name__", "<none>"))


def _records(builders: dict[str, Builder], kept: RecordOptions, executor: Executor | None) -> Iterator[BuildResult]:
    """Yields (name, record or error), each when it is finished."""
    if executor is not None:
        yield from _build_in_executor(builders, kept, executor)
        return
    waiting, until = dict(builders), time.monotonic() + IN_PROCESS_SECONDS
    while waiting and (time.monotonic() < until or not any(map(_is_picklable, waiting.values()))):
        name = next(iter(waiting))
        yield name, _build_here(name, waiting.pop(name), kept)
    sent = {name: builder for name, builder in waiting.items() if _is_picklable(builder)}
    yield from _build_in_processes(deque(sent.items()), kept)
    for name in [name for name in waiting if name not in sent]:
        yield name, _build_here(name, waiting[name], kept)


def _build_in_executor(builders: dict[str, Builder], kept: RecordOptions, executor: Executor) -> Iterator[BuildResult]:
    """Yields results in the order of the builders, so that the graph does not depend on the speed of processes."""
    waiting = deque(builders.items())
    running: deque[tuple[str, Future[ModelRecord]]] = deque()
    try:
        while waiting or running:
            while waiting and len(running) < MAX_PENDING:
                name, builder = waiting.popleft()
                running.append((name, _submit(executor, name, builder, kept)))
            name, future = running.popleft()
            yield name, _result(future, name, builders[name], kept)
    finally:
        for _, future in running:
            future.cancel()


def _submit(executor: Executor, name: str, builder: Builder, kept: RecordOptions) -> Future[ModelRecord]:
    try:
        with _without_main():  # processes start as tasks come
            return executor.submit(build_record, name, builder, *kept)
    except Exception as error:  # noqa: BLE001 - an executor that broke takes nothing any more
        failed: Future[ModelRecord] = Future()
        failed.set_exception(error)
        return failed


def _result(future: Future[ModelRecord], name: str, builder: Builder, kept: RecordOptions) -> ModelRecord | str:
    try:
        return future.result()
    except BrokenExecutor as error:
        return _reason(error)
    except Exception as error:  # noqa: BLE001 - whatever one builder raises must not lose the others
        if isinstance(error, (pickle.PicklingError, AttributeError, TypeError)) and not _is_picklable(builder):
            return _build_here(name, builder, kept)
        return _reason(error)


def _build_in_processes(waiting: deque[tuple[str, Builder]], kept: RecordOptions) -> Iterator[BuildResult]:
    """Yields results of own processes; a builder that ends its process is isolated, and the others continue."""
    while waiting:
        suspects: list[tuple[str, Builder]] = []
        with _processes(len(waiting)) as (pool, workers):
            running: deque[tuple[str, Builder, Future[ModelRecord]]] = deque()
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    name, builder = waiting.popleft()
                    running.append((name, builder, _submit(pool, name, builder, kept)))
                name, builder, future = running.popleft()
                if isinstance(future.exception(), BrokenExecutor):
                    suspects = [(name, builder), *((name, builder) for name, builder, _ in running)]
                    break
                yield name, _result(future, name, builder, kept)
        for name, builder in suspects:
            with _processes(1) as (pool, _):
                future = _submit(pool, name, builder, kept)
                broke = isinstance(future.exception(), BrokenExecutor)
                yield name, "its process ended" if broke else _result(future, name, builder, kept)


def _build_here(name: str, builder: Builder, kept: RecordOptions) -> ModelRecord | str:
    try:
        return build_record(name, builder, *kept)
    except Exception as error:  # noqa: BLE001
        return _reason(error)


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, ModuleKGError) else f"{type(error).__name__}: "
    return printable(f"{kind}{error}", 300)


def _is_picklable(builder: Builder) -> bool:
    """True if another process can unpickle the builder, which fails for notebook cells and local functions."""
    try:
        return b"__main__" not in pickle.dumps(builder)
    except Exception:  # noqa: BLE001 - objects raise what they like when they are pickled
        return False


@contextmanager
def _processes(tasks: int) -> Iterator[tuple[Executor, int]]:
    """Starts fresh processes and returns their number; a fork would copy the locks of other threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(tasks, cores)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_use_one_thread)
    try:
        yield pool, workers
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hides the user's script, which a fresh process would run again."""
    main = sys.modules["__main__"]
    hidden = {name: vars(main).pop(name) for name in ("__file__", "__spec__") if name in vars(main)}
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _indexing_error(failures: Mapping[str, str], total: int) -> IndexingError:
    lines: list[str] = [f"{printable(name)}: {reason}" for name, reason in list(failures.items())[:5]]
    more = [f"and {len(failures) - len(lines)} more, see .failures"] if len(failures) > len(lines) else []
    message = "; ".join([*lines, *more])
    return IndexingError(f"{len(failures)} of {total} models could not be indexed: {message}", dict(failures))
