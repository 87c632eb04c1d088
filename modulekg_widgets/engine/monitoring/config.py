"""Configuration of a monitor: modules and metrics by name, validated before any hook is attached."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from modulekg_widgets.engine.errors import UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.hierarchy import class_name
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.monitoring.metric import ConfigError, ConfiguredMetric, MetricKind
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.schedule import EVERY_STEP, Schedule, is_schedule_text, schedule, union
from modulekg_widgets.engine.torch_runtime.modules import is_script, main_weight, unwrapped
from modulekg_widgets.engine.torch_runtime.parallel import FlatPart, flat_parts
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS

ModuleKey: TypeAlias = "str | type[nn.Module]"
Config: TypeAlias = "Mapping[ModuleKey, object]"

DEFAULT_METRICS = ("OutputSndNorm", "OutputGradSndNorm", "WeightNorm", "WeightGradNorm", "UpdateRatio")
GLOB_CHARACTERS = frozenset("*?[")
WRAPPER_PREFIXES = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before the names


@dataclass(eq=False)
class Measurement:
    """One metric of one module on one schedule."""

    path: str
    module: nn.Module  # the one that stands there now
    metric: ConfiguredMetric
    schedule: Schedule
    flat: FlatPart | None = None  # its weight, where that is a part of a flat one


def root_of(model: object) -> nn.Module:
    """Returns the user's module behind `torch.compile` and DistributedDataParallel; refuses `nn.DataParallel`."""
    while True:
        if isinstance(model, nn.DataParallel):
            raise ConfigError(
                "nn.DataParallel runs copies of the modules that live for one call, so no hook sees them: use "
                "torch.nn.parallel.DistributedDataParallel, or monitor the module inside on one device"
            )
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(model, nn.Module) and unwrapped(model) is not model:
            model = unwrapped(model)
        else:
            return model  # type: ignore[return-value] - the walk refuses what is no module


def measurements(model: nn.Module, config: Config | None) -> list[Measurement]:
    """Returns one measurement per module and metric of `config`, in module order; overlapping keys add up.

    Raises `UnknownPathError`, `UnknownNameError`, `ScheduleError` and `ConfigError`.
    """
    modules = walk(model)
    if config is None:
        chosen = [
            (index, METRICS[name](), EVERY_STEP) for index in _modules_with_weight(modules) for name in DEFAULT_METRICS
        ]
    elif isinstance(config, Mapping):
        parsed = [(_matching_modules(modules, key), list(_entries(value))) for key, value in config.items()]
        chosen = [(index, *entry) for found, entries in parsed for index in found for entry in entries]
    else:
        raise ConfigError(f"the configuration is {a_type(config)}: write {{module: [metrics]}}")
    return _merged_measurements(modules, chosen)


def _merged_measurements(modules: Walk, chosen: Sequence[tuple[int, ConfiguredMetric, Schedule]]) -> list[Measurement]:
    """Merges entries of a metric of a module: schedules are united, windows cannot be."""
    found: dict[tuple[int, str, str, Schedule | None], tuple[int, ConfiguredMetric, list[Schedule]]] = {}
    for index, metric, when in sorted(chosen, key=lambda each: each[0]):
        own = when if metric.kind.multi_step else None
        _, _, schedules = found.setdefault((index, metric.name, str(metric.settings), own), (index, metric, []))
        if when not in schedules:
            schedules.append(when)
    flat = flat_parts(modules.modules)
    planned = [
        Measurement(
            modules.path(index),
            modules.modules[index],
            metric,
            union(schedules),
            main_weight(flat.get(id(modules.modules[index]), {})),
        )
        for index, metric, schedules in found.values()
    ]
    _check_names(planned)
    return planned


def _check_names(planned: list[Measurement]) -> None:
    """Raise `ConfigError` for two settings or windows of one metric of a module, which would share a series."""
    seen: set[tuple[str, str]] = set()
    for each in planned:
        key = (each.path, each.metric.name)
        if key in seen:
            where = f"of {printable(each.path)!r}" if each.path else "of the model"
            raise ConfigError(
                f"the metric {each.metric.name} {where} has two settings or two windows: give it one, or register the "
                "other under another name with @mk.metric"
            )
        seen.add(key)


def _modules_with_weight(modules: Walk) -> list[int]:
    """Indices of the modules with a parameter `weight`, without TorchScript ones."""
    flat = flat_parts(modules.modules)
    return [
        at
        for at, (module, state) in enumerate(zip(modules.modules, modules.states, strict=True))
        if not is_script(module)
        and (state[PARAMETERS].get("weight") is not None or "weight" in flat.get(id(module), ()))
    ]


def opaque_paths(model: nn.Module) -> tuple[str, ...]:
    """Returns the paths of TorchScript modules, whose insides no hook sees."""
    modules = walk(model)
    return tuple(modules.path(at) for at, module in enumerate(modules.modules) if is_script(module))


def _matching_modules(modules: Walk, key: object) -> list[int]:
    """Indices of the modules that a key matches: a class, dotted name, class name or glob pattern."""
    if isinstance(key, type) and issubclass(key, nn.Module):
        found = [at for at, module in enumerate(modules.modules) if issubclass(type(module), key)]
        if not found:
            classes = sorted({class_name(module) for module in modules.modules})
            raise UnknownPathError(
                f"no module is a {printable(key.__name__)}: {closest_match_hint(key.__name__, classes)}"
            )
        return found
    if not isinstance(key, str):
        raise ConfigError(f"a module is named by a string or a class: {a_type(key)} was passed")
    index = _index_of(modules, key)
    if index is not None:
        return [index]
    names = [class_name(module) for module in modules.modules]
    found = [at for at, name in enumerate(names) if name == key]
    if not found and GLOB_CHARACTERS & set(key):
        found = [at for at in range(len(modules)) if fnmatch.fnmatchcase(modules.path(at), key)]
    if not found:
        raise UnknownPathError(f"there is no module {printable(key)!r}: {_closest_hint(modules, key, names)}")
    return found


def _index_of(modules: Walk, key: str) -> int | None:
    for prefix in ("", *WRAPPER_PREFIXES):
        if key.startswith(prefix):
            index = modules.find(key[len(prefix) :])
            if index is not None:
                return index
    return None


def _closest_hint(modules: Walk, key: str, names: Sequence[str]) -> str:
    paths = [] if GLOB_CHARACTERS & set(key) else list(modules.similar_paths(key))
    return closest_match_hint(key, {*paths, *names})


def _entries(value: object) -> Iterator[tuple[ConfiguredMetric, Schedule]]:
    """Yields the metrics of one key with their schedules: names, objects, and lists of metric and schedule."""
    waiting: ConfiguredMetric | None = None
    for part in _parts(value):
        when = _schedule(part)
        if when is None:
            if waiting is not None:
                yield waiting, EVERY_STEP
            waiting = None
            if isinstance(part, list | tuple):
                yield from _entries(part)
            else:
                waiting = _metric(part)
        elif waiting is None:
            raise ConfigError(f"the schedule {part!r} has no metric before it")
        else:
            yield waiting, when
            waiting = None
    if waiting is not None:
        yield waiting, EVERY_STEP


def _parts(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _schedule(part: object) -> Schedule | None:
    if isinstance(part, str):
        return schedule(part) if is_schedule_text(part) else None
    return part if hasattr(part, "due") and hasattr(part, "watches") else None  # type: ignore[return-value]


def _metric(part: object) -> ConfiguredMetric:
    if isinstance(part, str):
        return METRICS[part]()
    if isinstance(part, ConfiguredMetric):
        return part
    if isinstance(part, MetricKind):
        return part()
    made = [METRICS[name] for name in METRICS if METRICS[name].function is part]
    if made:
        return made[0]()
    raise ConfigError(f"a metric is a name or a metric object: {a_type(part)} was passed")
