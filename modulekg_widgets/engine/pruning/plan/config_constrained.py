"""Uniform plans that a model's configuration can express.

A model is built from a changed configuration and compared with the cut one, to find which axes the
configuration has a number for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, ModuleKGError, printable
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import NO_CONSTRAINTS, ConfigConstraints
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from modulekg_widgets.engine.pruning.plan.unused_parameters import unused_facts, unused_parameter_edits
from modulekg_widgets.engine.pruning.saving.config_search import CandidateConfig, describe_mismatch, nearest_config
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import TransformersOrigin, transformers_origin
from modulekg_widgets.engine.pruning.saving.model_signature import ModelSignature, differing_facts, is_set_by_forward
from modulekg_widgets.engine.torch_runtime.modules import unwrapped

MAX_TRIES = 80  # models that are built to find what the configuration says of a plan
PROBE_RATIO = 0.5  # the share that goes of an axis where it is tried whether the configuration can say it
log = logging.getLogger("modulekg_widgets")


class _CheckedPlan(NamedTuple):
    """A plan, the nearest configuration, and the reason why it does not express the plan ("" if it does)."""

    plan: PruningPlan
    config: Mapping[str, Any]
    reason: str


def config_constrained_plan(planner: Planner) -> PruningPlan:
    """The plan that the configuration can express; the unconstrained plan if there is none."""
    origin = _config_origin(planner.graph.model)
    if origin is None:
        return planner.plan()
    first: _CheckedPlan | None = None
    for way in _planner_variants(planner):
        try:
            checked = _check_plan(way, way.plan(), origin)
        except CutError:
            if way is planner:
                raise
            continue  # a target may be out of reach where more goes together
        if not checked.reason:
            return checked.plan
        first = first if way is not planner else checked
    assert first is not None
    return _narrowed_plan(planner, origin, first)


def _planner_variants(planner: Planner) -> list[Planner]:
    """The planners to try: without and with heads tied to the width.

    That is so wherever all lose one share, so that it is tried first for a target alone.
    """
    with_width = planner.with_request(planner.request, ConfigConstraints(with_width=True))
    if with_width.layers == planner.layers:
        return [planner]
    return [planner, with_width] if planner.request.target is None else [with_width, planner]


def _narrowed_plan(planner: Planner, origin: TransformersOrigin, first: _CheckedPlan) -> PruningPlan:
    """The plan of the axes that the configuration can express, else the first plan with a note."""
    probe = _ConfigProbe(planner, origin)
    said = probe.constraints(_cut_terms(planner, first.plan))
    if said is None:
        return _with_note(first.plan, first.reason)
    try:
        narrower = planner.with_request(planner.request, said)
        found = _check_plan(narrower, narrower.plan(), origin.with_config(probe.config))
    except CutError as error:
        return _with_note(first.plan, f"{first.reason}, and what it can say does not suffice: {error}")
    return _with_note(found.plan, found.reason) if found.reason else found.plan


def _with_note(plan: PruningPlan, reason: str) -> PruningPlan:
    note = f"layers='uniform': mk.load_pretrained alone will load the model, for {printable(reason, 300)}"
    return replace(plan, notes=(*plan.notes, note))


def _cut_terms(planner: Planner, plan: PruningPlan) -> list[Term]:
    """The axes that a plan cuts and the user does not name."""
    cut = {axis.name for axis in plan.axes}
    return [axis.term for axis in planner.chosen if axis.name in cut]


def _config_origin(model: nn.Module) -> TransformersOrigin | None:
    """The builder of the model from its configuration; None if there is none that reproduces it."""
    try:
        model = unwrapped(model)
        origin = transformers_origin(model, ())
        if origin is None:
            return None
        one, other = ModelSignature.of(model).facts, ModelSignature.of(build_with_empty_weights(origin.build)).facts
    except Exception as error:  # noqa: BLE001 - of the library, whatever its code needs
        log.debug("the configuration does not build the model: %s", error)
        return None
    return origin if all(is_set_by_forward(key, other) for key in differing_facts(one, other)) else None


def _check_plan(planner: Planner, plan: PruningPlan, origin: TransformersOrigin) -> _CheckedPlan:
    """The plan with the nearest configuration; unread parameters follow it."""
    wanted = _cut_signature(plan, planner.graph.model)
    if isinstance(wanted, str):
        return _CheckedPlan(plan, origin.config, wanted)
    near = nearest_config(origin, wanted, unused_facts(planner.graph, wanted.facts), MAX_TRIES)
    if isinstance(near, str):
        return _CheckedPlan(plan, origin.config, near)
    reason = _unexpressed(near, wanted)
    if reason and (longer := _with_unread_parameters(planner, plan, wanted, near)) is not None:
        again = _cut_signature(longer, planner.graph.model)
        if isinstance(again, ModelSignature) and not (reason := _unexpressed(near, again)):
            plan = longer
    return _CheckedPlan(plan, near.config, reason)


def _unexpressed(near: CandidateConfig, wanted: ModelSignature) -> str:
    return describe_mismatch(near, wanted, lambda name: wanted.by_name[name].tensor)


def _with_unread_parameters(
    planner: Planner, plan: PruningPlan, wanted: ModelSignature, near: CandidateConfig
) -> PruningPlan | None:
    """The plan with unread parameters as the configuration sizes them; None otherwise."""
    built = near.signature.facts
    more = unused_parameter_edits(planner.graph, plan.edits, differing_facts(wanted.facts, built), wanted.facts, built)
    return None if more is None else planner.with_unused_parameters(plan, more)


def _cut_signature(plan: PruningPlan, model: nn.Module) -> ModelSignature | str:
    """The signature of the cut model without weights, or an error message."""
    origin = transformers_origin(unwrapped(model), ())
    assert origin is not None
    twin = build_with_empty_weights(origin.build)
    try:
        plan.cut(twin)
    except CutError as error:
        return f"a model that is built anew is not cut alike: {error}"
    return ModelSignature.of(twin)


class _ConfigProbe:
    """Tries which axes a configuration can express, the groups with the most parameters first."""

    def __init__(self, planner: Planner, origin: TransformersOrigin) -> None:
        self.planner = planner
        self.origin = origin
        self.config: Mapping[str, Any] = origin.config
        asked = planner.request
        self._request = Request(
            ratio=PROBE_RATIO, importance="random", only=asked.only, keep=asked.keep, granularity=asked.granularity,
            layers=asked.layers,
        )  # fmt: skip

    def constraints(self, terms: Sequence[Term]) -> ConfigConstraints | None:
        """The constraints under which some axes can be expressed; None if none can."""
        good, deferred = self._partition(self._axis_groups(terms, NO_CONSTRAINTS), NO_CONSTRAINTS)
        said = NO_CONSTRAINTS
        if len(deferred) > 1:
            joint = set[Term]().union(*(group for group, _ in deferred))
            joined = ConfigConstraints(together=tuple(joint))
            if not self._try(good | joint, joined):
                good, deferred, said = good | joint, [], joined
        apart = frozenset[Term]().union(*(group for group, _ in deferred))
        parts = [part for group, _ in deferred for part in self._axis_groups(group, ConfigConstraints(separate=apart))]
        whole = dict[Term, str]()
        if len(parts) > len(deferred):
            said = ConfigConstraints(separate=apart)
            more, deferred = self._partition(parts, said, good)
            good |= more
        for group, reason in deferred:
            whole.update(dict.fromkeys(group, self._note(group, reason)))
        return replace(said, pinned=whole) if good else None

    def _partition(
        self, groups: Iterable[set[Term]], constraints: ConfigConstraints, good: Iterable[Term] = ()
    ) -> tuple[set[Term], list[tuple[set[Term], str]]]:
        """The axes that can be expressed one group after the other, and the groups that cannot."""
        going, deferred = {*good}, list[tuple[set[Term], str]]()
        for group in groups:
            reason = self._try(going | group, constraints)
            if reason:
                deferred.append((group, reason))
            else:
                going |= group
        return going, deferred

    def _axis_groups(self, terms: Iterable[Term], constraints: ConfigConstraints) -> list[set[Term]]:
        """The groups of tied axes, those with the most parameters first."""
        proportions = self.planner.with_request(self._request, constraints).layers.proportions
        found = {id(group): group for group in ({*proportions.with_group_members([term])} for term in terms)}
        distinct = {frozenset(group): group for group in found.values()}
        return sorted(distinct.values(), key=self._parameter_count, reverse=True)

    def _parameter_count(self, group: Iterable[Term]) -> int:
        axes = self.planner.axes
        return sum(node.numel() for node in {node for term in group for node, _ in axes.of(term).tensor_dims})

    def _try(self, going: set[Term], constraints: ConfigConstraints) -> str:
        """The reason why the configuration cannot express a cut of these axes alone; "" if it can."""
        axes = self.planner.axes
        whole = {axis.term: "" for axis in axes if axis.term not in going}
        trial = self.planner.with_request(self._request, replace(constraints, pinned=whole))
        try:
            checked = _check_plan(trial, trial.plan(), self.origin.with_config(self.config))
        except ModuleKGError as error:
            return str(error)
        if not checked.reason:
            self.config = checked.config
        return checked.reason

    def _note(self, group: Iterable[Term], reason: str) -> str:
        name = min((self.planner.axes.of(term) for term in group), key=lambda axis: axis.number).name
        return f"layers='uniform': {printable(name)} and its like stay whole, for {printable(reason, 300)}"
