"""Plans for a wanted configuration, as `mk.plan(graph, config={"intermediate_size": 1024})`.

The model of that configuration is built once, with empty weights. The size of each dimension there says how
many indices of its axes remain: of heads and their parts, whole heads go first. The cut model is then
compared with the built one in all that a configuration decides, before the plan is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.pruning.plan.configured_model import (
    ConfigComparison,
    factors,
    numbers_of_model,
    read_dims,
)
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import OUTER_ROLES
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from modulekg_widgets.engine.pruning.saving.config_numbers import (
    CandidateConfig,
    ConfigNumbers,
    ConfigPath,
    describe_mismatch,
    value_at,
)
from modulekg_widgets.engine.pruning.saving.model_signature import FactKey, describe_fact

MAX_LISTED = 3
ADVICE = "Also pass the numbers that depend on these, such as the heads on the width, or plan with layers='uniform'"


def plan_for_config(graph: DataflowGraph, request: Request) -> PruningPlan:
    """The plan that leaves the model of a configuration with other numbers.

    Raises `UnknownNameError` for keys that there are not, and `CutError` where no cut leaves that model.
    """
    planner = Planner(graph, request)
    numbers = numbers_of_model(planner.graph.model)
    if numbers is None:
        raise CutError("config=…: the model is none of transformers that its configuration builds: pass per_axis={…}")
    change = _config_change(planner.graph.model, numbers, request.config or {})
    built = _built(numbers, change)
    comparison = ConfigComparison(planner.graph, numbers)
    refusal: CutError | None = None
    for whole_heads in (True, False):
        try:
            counts = _axis_counts(planner.axes, read_dims(planner.graph, numbers), built, whole_heads)
            plan = _plan_of_counts(planner, counts, comparison, built)
        except CutError as error:
            refusal = refusal or error
        else:
            return plan
    assert refusal is not None
    raise refusal


def _plan_of_counts(
    planner: Planner, counts: Mapping[Term, int], comparison: ConfigComparison, built: CandidateConfig
) -> PruningPlan:
    """The plan that leaves these counts; raises `CutError` if it does not leave the built model."""
    other = planner.with_counts(counts)
    plan, differences = comparison.compare(other.with_unused_parameters, other.plan(), built)
    if differences:
        here, there = comparison.cut_signature(plan).facts, built.signature.facts
        listed = "; ".join(
            describe_fact(key, here, there) if key in here or key in there else describe_mismatch([key])
            for key in differences[:MAX_LISTED]
        )
        more = f", and {len(differences) - MAX_LISTED} more" if len(differences) > MAX_LISTED else ""
        raise CutError(
            f"config=…: the cut model is not the one that the configuration builds: {listed}{more}. {ADVICE}"
        )
    return plan


# -------------------- The numbers that a user gives, checked


def _config_change(model: Any, numbers: ConfigNumbers, wanted: Mapping[str, Any]) -> dict[ConfigPath, Any]:
    """The wanted values by their paths; lists as their elements."""
    config = numbers.origin.config
    found: dict[ConfigPath, Any] = {}
    for key, value in wanted.items():
        path = _resolve(model.config, config, key)
        now = value_at(config, path)
        if isinstance(now, list) and isinstance(value, list | tuple) and len(now) == len(value):
            for at, (old, new) in enumerate(zip(now, value, strict=True)):
                if old != new:
                    found[(*path, at)] = _checked_number(f"{key}[{at}]", old, new)
        else:
            found[path] = _checked_number(key, now, value)
    if all(value_at(config, path) == value for path, value in found.items()):
        raise CutError(f"config={printable(str(dict(wanted)))} removes nothing: the model has these sizes")
    return found


def _resolve(config: Any, document: Mapping[str, Any], key: Any) -> ConfigPath:
    """The path of a dotted key, by the names of the document or those that the library maps to them."""
    path: list[str] = []
    part: Any = document
    for name in str(key).split("."):
        aliases = getattr(config, "attribute_map", {})
        own = aliases.get(name, name)
        if not isinstance(part, Mapping) or own not in part:
            known = [*part, *aliases] if isinstance(part, Mapping) else []
            raise UnknownNameError(f"config has no {printable(str(key))!r}: {closest_match_hint(name, known)}")
        path.append(own)
        part, config = part[own], getattr(config, own, None)
    return tuple(path)


def _checked_number(key: str, now: Any, wanted: Any) -> int:
    what = f"config[{printable(key)!r}]={printable(repr(wanted))}"
    if now is not None and type(now) is not int:
        raise CutError(f"{what}: it is {printable(repr(now))} now: give a number of those that are integers")
    number = _whole_number(wanted)
    if number is None or number < 1:
        raise CutError(f"{what}: give a whole number of 1 at least")
    if now is not None and number > now:
        raise CutError(f"{what}: it is {now} now, and a cut makes nothing larger: give {now} at most")
    return number


def _whole_number(value: Any) -> int | None:
    """An integer of any library as one of Python's; None for other values, booleans among them."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def _built(numbers: ConfigNumbers, change: Mapping[ConfigPath, Any]) -> CandidateConfig:
    """The model of the changed configuration; raises `CutError` if there is none, or with fewer layers."""
    said = ", ".join(f"{'.'.join(map(str, path))}={value}" for path, value in change.items())
    built = numbers.build(change)
    if built is None:
        divided = [path for path, value in change.items()
                   if type(now := value_at(numbers.origin.config, path)) is int and now % value]  # fmt: skip
        hint = "numbers that divide one another as before, as heads the width"
        named = f", for {'.'.join(map(str, divided[0]))} a part of what it is now" if divided else ""
        raise CutError(
            f"config=…: the library builds no model with {printable(said)}: {numbers.refusal(change)}: "
            f"give {hint}{named}"
        )
    before, after = numbers.base.facts, built.signature.facts
    shorter = next((key for key in before if key[0] == "length" and before[key] != after.get(key)), None)
    if shorter is not None and any(key[0] == "size" and key not in after for key in before):
        raise CutError(
            f"config=…: {printable(said)} changes how many modules {printable(str(shorter[1]))} has: remove "
            "layers with "
            "mk.plan(graph, blocks=…, layers='uniform')"
        )
    return built


# -------------------- Counts of axes from sizes of dimensions


def _axis_counts(
    axes: Axes, dims: Mapping[FactKey, Term], built: CandidateConfig, whole_heads: bool
) -> dict[Term, int]:
    """The counts of indices that remain of each axis, by dimensions: those first that have one open axis."""
    facts = built.signature.facts
    waiting = {key: parts for key, term in dims.items() if (parts := factors(term, set(atoms(term)))) is not None}
    found: dict[Term, int] = {}
    for key in [key for key in waiting if facts.get(key) == dims[key].size]:
        for atom in waiting.pop(key):
            found[atom] = atom.size
    while waiting:
        key = min(waiting, key=lambda each: len({*waiting[each]} - found.keys()))
        _share_out(axes, key, dims[key], waiting.pop(key), facts.get(key), found, whole_heads)
    counts = {term: count for term, count in found.items() if count < term.size}
    if not counts:
        raise CutError(
            "config=…: no size of the traced model follows these numbers, so that nothing would be cut: give numbers "
            "that count channels, heads or experts"
        )
    return counts


def _share_out(
    axes: Axes, key: FactKey, term: Term, parts: Sequence[Term], size: Any, found: dict[Term, int], whole_heads: bool
) -> None:
    """Take what a dimension loses from its open axes, heads first or last."""
    name = f"{key[1]}[{key[2]}]"
    if type(size) is not int:
        raise CutError(f"config=…: the model that it builds has no {printable(name)}")
    fixed = term.size // math.prod(atom.size for atom in parts)
    left = size / fixed / math.prod(found.get(atom, atom.size) for atom in parts)
    for atom in _in_order(axes, [atom for atom in parts if atom not in found and atom.size > 1], whole_heads):
        count = atom.size * left
        if left < 1 and (count < 1 or abs(count - round(count)) > 1e-9):
            continue
        found[atom] = round(count)
        left = 1.0 if left < 1 else left
        if found[atom] < atom.size and axes.of(atom).frozen is not None:
            axis = axes.of(atom)
            raise CutError(f"config=…: {printable(axis.name)} is frozen, {axis.frozen}: its number cannot change")
    if abs(left - 1) > 1e-9:
        sizes = " · ".join(f"{printable(axes.of(atom).name)} {found.get(atom, atom.size)}" for atom in parts)
        raise CutError(f"config=…: {printable(name)} becomes {size}, which its axes do not make: {sizes}. {ADVICE}")


def _in_order(axes: Axes, parts: Sequence[Term], whole_heads: bool) -> Iterator[Term]:
    outer = [atom for atom in parts if axes.of(atom).role in OUTER_ROLES]
    inner = [atom for atom in parts if atom not in outer]
    yield from (*outer, *inner) if whole_heads else (*inner, *outer)
