"""The request of a plan, and its validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.cut_analysis import Cut
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.tracing.unregistered_tensors import named_registered_tensors

Importance = str | Callable[..., object] | object
PerAxis = Mapping[Any, float | Iterable[int]]  # axis, layer or (parameter, dim): ratio or indices
AxisSelector = str | nn.Module | type | Axis | Iterable[str | nn.Module | type | Axis]
Limit = float | int | Mapping[Any, float | int]  # a share or a number of indices, of every axis or by axis
ConfigSizes = Mapping[str, int | Sequence[int]]  # by the keys of a configuration
LOCAL, GLOBAL = "local", "global"
SCOPES = (LOCAL, GLOBAL, "isomorphic")
FREE, UNIFORM = "free", "uniform"
TARGETS = ("params", "flops", "matmul_flops", "macs", "bytes")
MAX_ROUND_TO = 2**31  # of sizes
LATENCY = "latency"  # a target as well, which is measured and not counted


@dataclass(frozen=True)
class Request:
    """The options of `mk.plan`."""

    ratio: float | None = None
    target: Mapping[str, float] | None = None
    per_axis: PerAxis | None = None
    cuts: Sequence[Cut] | None = None
    importance: Importance = "l2"
    scope: str = LOCAL
    only: AxisSelector | None = None
    keep: AxisSelector | None = None
    granularity: str | None = None
    round_to: int | None = None
    floor: Limit | None = None
    ceiling: Limit | None = None
    per: str | None = None
    blocks: float | Sequence[str] | None = None
    layers: str = FREE
    config: ConfigSizes | None = None

    @property
    def granularity_wanted(self) -> str | None:
        """The granularity, by default single indices; None for whole heads and groups."""
        if self.granularity is not None:
            return self.granularity
        return None if self.layers == UNIFORM else "index"

    def call(self, dropped: Mapping[str, list[int]], blocks: Sequence[str] = ()) -> str:
        """Python that makes the plan again: the request, or the indices and blocks to remove."""
        defaults = Request()
        given = {name: value for name in Request.__dataclass_fields__
                 if (value := getattr(self, name)) != getattr(defaults, name)}  # fmt: skip
        is_measured = LATENCY in (self.target or {})  # another time, or elsewhere, it may come out otherwise
        if is_measured or not all(_is_literal(value) for value in given.values()):
            given = {name: what for name, what in (("per_axis", dict(dropped)), ("blocks", list(blocks))) if what}
        return f"mk.plan(graph, {', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _is_literal(value: object) -> bool:
    """True if the repr of a value is valid Python for it."""
    if isinstance(value, Mapping):
        return all(_is_literal(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_literal, value))
    return type(value) in (int, float, bool, str, type(None))


def check_request(graph: object, request: Request) -> None:
    """Raise `CutError` or `UnknownNameError` for an invalid request."""
    if not isinstance(graph, DataflowGraph):
        what = (
            "trace it first: mk.plan(mk.trace(model, args), …)" if isinstance(graph, nn.Module) else "pass mk.trace(…)"
        )
        raise CutError(f"a plan is made for a traced graph, got {printable(type(graph).__name__)}: {what}")
    if graph.error is not None:
        raise CutError("the graph ends where its forward pass stopped: trace with inputs that the model accepts")
    if request.config is not None:
        _check_config(request)
        return
    wanted = [name for name in ("ratio", "target", "per_axis", "cuts", "blocks") if getattr(request, name) is not None]
    if not wanted:
        raise CutError("nothing to cut: pass ratio=0.5, target={'params': 0.5}, per_axis={…}, cuts=[…] or blocks=4")
    if "ratio" in wanted and "target" in wanted:
        raise CutError("ratio and target exclude each other: the target finds the ratio")
    if request.ratio is not None and not (isinstance(request.ratio, float | int) and 0 <= request.ratio < 1):
        raise CutError(
            f"ratio={printable(repr(request.ratio))}: give the share of indices to remove, from 0 to below 1"
        )
    for option, ways in (("scope", SCOPES), ("layers", (FREE, UNIFORM)), ("per", TARGETS)):
        name = getattr(request, option)
        if (name is not None or option != "per") and not (isinstance(name, str) and name in ways):
            raise UnknownNameError(f"{option}={printable(str(name))!r}: {closest_match_hint(str(name), ways)}")
    if request.per_axis is not None and not isinstance(request.per_axis, Mapping):
        raise CutError(
            f"per_axis={printable(repr(request.per_axis))}: give shares or indices by axis, as {{'layer1.conv1': 0.5}}"
        )
    round_to = request.round_to
    if round_to is not None and not (isinstance(round_to, int) and 1 <= round_to <= MAX_ROUND_TO):
        raise CutError(f"round_to={printable(repr(round_to))}: give the multiple of sizes, such as 8")
    if request.per is not None and request.scope == LOCAL:
        raise CutError(f"per={request.per!r} ranks the indices of several axes: pass scope='global' or 'isomorphic'")
    check_target(request.target, (*TARGETS, LATENCY))
    check_limit("floor", request.floor)
    check_limit("ceiling", request.ceiling)


def _check_config(request: Request) -> None:
    """Raise `CutError` for an invalid `config`, and for options that it leaves nothing to."""
    defaults = Request()
    names = Request.__dataclass_fields__.keys() - {"config", "importance"}
    others = sorted(name for name in names if getattr(request, name) != getattr(defaults, name))
    if others:
        raise CutError(f"config and {others[0]} exclude each other: the configuration says all sizes")
    if not isinstance(request.config, Mapping) or not request.config:
        raise CutError(
            f"config={printable(repr(request.config))}: give numbers by key, as {{'intermediate_size': 1024}}"
        )


def check_model_unchanged(graph: DataflowGraph) -> None:
    """Raise `CutError` if parameters or modules have changed since the trace."""
    walked = walk(graph.model)
    held = {each.name: each.tensor for each in named_registered_tensors(walked, walked.all_paths())}
    for node in dict.fromkeys(graph.state.values()):
        tensor = held.get(node.label)
        if node.is_parameter and (tensor is None or tuple(tensor.shape) != node.shape):
            now = "is gone" if tensor is None else f"has shape {list(tensor.shape)}"
            raise CutError(
                f"the parameter {printable(node.label)!r} {now}, at the trace it had {list(node.shape)}: "
                "trace the model again as it is now"
            )
    modules = {path: walked.modules[index] for path, index in walked.all_paths()}
    for path, node in graph.modules.items():
        before, now = type(node.module).__name__, modules.get(path)
        if type(now) is not type(node.module):
            what = "is gone" if now is None else f"is {a_type(now)}"
            raise CutError(
                f"{printable(path) or 'the model'} {what}, at the trace it was a {printable(before)}: trace the "
                "model again "
                "as it is now"
            )


def check_target(target: object, units: Sequence[str] = TARGETS) -> None:
    """Raise `CutError` for an invalid target."""
    if target is not None and not _is_target(target, units):
        raise CutError(
            f"target={printable(repr(target))}: give what to keep of {', '.join(units)}, as "
            "{'params': 0.5} or {'flops': 1e9, 'params': 0.6}"
        )


def _is_target(target: object, units: Sequence[str]) -> bool:
    """True if a target maps units to shares below 1 or numbers above."""
    return (
        isinstance(target, Mapping)
        and len(target) > 0
        and all(
            unit in units and isinstance(wanted, float | int) and wanted > 0 and wanted != 1
            for unit, wanted in target.items()
        )
    )


def check_limit(name: str, limit: object) -> None:
    """Raise `CutError` unless a limit is a share, a count, or a mapping to these."""
    entries = limit.items() if isinstance(limit, Mapping) else [] if limit is None else [(None, limit)]
    for key, value in entries:
        where = name if key is None else f"{name}[{printable(str(key))!r}]"
        is_share = isinstance(value, float) and 0 <= value <= 1
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not (is_share or is_count):
            raise CutError(f"{where}={printable(repr(value))}: give a share of 0.0 … 1.0 or a whole number of indices")
        if name == "ceiling" and value == 0:
            raise CutError(f"{where}={value}: no axis can lose all of its indices: keep at least one")
