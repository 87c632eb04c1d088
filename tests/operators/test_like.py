"""A user's operator that is said to be like one of torch is read, planned, cut and costed as that one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.importance.members import gains
from modulekg_widgets.engine.pruning.nni.conflicts import conflicts, fix_conflicts
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import matches_masked_model, output_error
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from operators.own_operators import OWN, Own, Through, defined, dense, parameter, rows

_operators: dict[str, Any] = {}
each = pytest.mark.parametrize("own", OWN, ids=[own.name for own in OWN])


def twins(own: Own) -> tuple[nn.Module, nn.Module, Tensor]:
    """The model with torch's operator, the one with the user's, of equal weights, and an input."""
    operator = _operators.get(own.name)
    if operator is None:
        operator = _operators[own.name] = defined(own)
    models = [seeded(lambda of=of: own.model(of)).train(own.training) for of in (own.torch, operator)]
    return models[0], models[1], seeded(own.x)


def traced(own: Own) -> tuple[mk.DataflowGraph, mk.DataflowGraph]:
    original, model, x = twins(own)
    return mk.trace(original, x), mk.trace(model, x)


def axes_of(graph: mk.DataflowGraph) -> set[tuple[Any, ...]]:
    return {
        (axis.size, axis.role, axis.frozen is None, *((m.name, m.dim) for m in axis.members)) for axis in graph.axes
    }


@each
def test_it_has_the_axes_and_the_cost(own: Own) -> None:
    original, graph = traced(own)
    assert any(operator.name == f"mkglike::{own.name}" for operator in graph.operators)
    assert graph.unknown == []
    assert axes_of(graph) == axes_of(original)
    assert len(graph.flops().unknown) == len(original.flops().unknown)
    assert graph.flops() == original.flops()
    assert graph.flops().macs == original.flops().macs


@each
def test_its_axes_are_proved_as_those_of_the_other(own: Own) -> None:
    original, graph = traced(own)
    expected, found = original.axes.verify(), graph.axes.verify()
    assert found.ok
    assert (found.proved, found.not_proved) == (expected.proved, expected.not_proved)


@each
def test_it_is_cut_as_the_other(own: Own) -> None:
    original, model, x = twins(own)
    first, second = mk.trace(original, x), mk.trace(model, x)
    if not first.axes.free:
        with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
            mk.plan(second, ratio=own.ratio)
        return
    plans = mk.plan(first, ratio=own.ratio), mk.plan(second, ratio=own.ratio)
    assert plans[0].axes == plans[1].axes
    assert (plans[0].params, plans[0].flops, plans[0].macs) == (plans[1].params, plans[1].flops, plans[1].macs)
    assert plans[0].notes == plans[1].notes
    for plan, each_model in zip(plans, (original, model), strict=True):
        plan.cut(each_model)
    shapes = [{name: tuple(t.shape) for name, t in m.state_dict().items()} for m in (original, model)]
    assert shapes[0] == shapes[1]
    for each_model in (original, model):
        each_model.eval()
    if not own.training:
        torch.testing.assert_close(original(x), model(x))


@each
def test_the_masked_reference_is_that_of_the_other(own: Own) -> None:
    graphs = traced(own)
    if not graphs[0].axes.free:
        return
    errors = []
    for graph in graphs:
        planner = Planner(graph, Request(ratio=own.ratio))
        selection = planner.selection(own.ratio)
        attempt, rehearsal = planner.repair.fixed(PlanCandidate(selection, selection.counts))
        assert attempt.selection.changed
        masks, edits = attempt.selection.keep_masks(), planner.repair.edits(attempt)
        errors.append(output_error(planner.axes, masks, edits, rehearsal.scales))
        assert matches_masked_model(planner.axes, masks, edits, rehearsal.scales)
    if not own.training:
        assert max(errors) < 1e-9


@each
def test_criteria_and_dependency_views_see_the_same_layers(own: Own) -> None:
    first, second = traced(own)
    assert [node.label for node in gains(second.axes)] == [node.label for node in gains(first.axes)]
    for view in ("channel_dependency", "input_channel_dependency", "group_dependency"):
        assert getattr(second, view)().named_sets() == getattr(first, view)().named_sets()
    assert [len(sets) for sets in second.attention_dependency().dependency_sets] == [
        len(sets) for sets in first.attention_dependency().dependency_sets
    ]


@each
def test_masks_of_others_agree_on_the_same_indices(own: Own) -> None:
    graphs = traced(own)
    if not hasattr(graphs[0].model, "a") or not graphs[0].axes.free:
        return
    keep = torch.ones_like(graphs[0].model.a.weight)
    keep[[1, 5]] = 0
    for masks in ({"a": {"weight": keep}}, *gain_masks(graphs[0])):
        found = []
        for graph in graphs:
            fixed = fix_conflicts(graph, copy.deepcopy(masks), 0)
            listed = [(c.kind, c.axis, c.agreed, c.asked) for c in conflicts(graph, masks, 0)]
            found.append((listed, {name: {t: m.tolist() for t, m in entry.items()} for name, entry in fixed.items()}))
        assert found[0] == found[1]


def gain_masks(graph: mk.DataflowGraph) -> list[dict[str, dict[str, Tensor]]]:
    """A mask on the gain of the model itself, where it has one."""
    if graph.state.get("w") is None or graph.state["w"].dim() != 1:
        return []
    gain = torch.ones(8)
    gain[[2, 6]] = 0
    return [{"": {"w": gain}}]


def test_numbers_in_the_code_hold_where_the_other_holds_them() -> None:
    """What stands for an operator without data need not look at sizes that it could not run with."""
    names = {"input": "x", "normalized_shape": "sizes", "weight": "w"}
    with torch.library._scoped_library("mkgsaid", "FRAGMENT") as library:
        library.define("norm(Tensor w, Tensor x, int[] sizes) -> Tensor")
        library.impl("norm", lambda w, x, sizes: F.layer_norm(x, sizes, w), "CompositeExplicitAutograd")
        torch.library.register_fake("mkgsaid::norm", lambda w, x, sizes: torch.empty_like(x), lib=library)
        mk.axis_rule("mkgsaid::norm", like="aten::layer_norm", args=names)
        for of in (lambda m, y: F.layer_norm(y, [8], m.w), lambda m, y: torch.ops.mkgsaid.norm(m.w, y, [8])):
            model = Through(of, dense(w=lambda: parameter(8)))
            with pytest.raises(mk.ModuleKGError, match="is not cut"):
                mk.plan(mk.trace(model, rows()), ratio=0.5)
