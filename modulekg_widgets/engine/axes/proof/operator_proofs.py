"""The operators whose rules the tests have proved, and the proof of axes that other operators touch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from modulekg_widgets.engine.axes.axis import Axes, Axis, UnprovedReason
from modulekg_widgets.engine.axes.inference.inference import DECIDES
from modulekg_widgets.engine.axes.inference.liveness import contributing_values, unused_weight_operator
from modulekg_widgets.engine.axes.proof.control_flow import alternative_paths, traced_path
from modulekg_widgets.engine.axes.proof.verify import (
    MAX_PATHS,
    NOT_PROVED,
    TOLERANCE,
    WRONG,
    Verification,
    find_refuted,
    verify,
)
from modulekg_widgets.engine.axes.terms.algebra import Reason, Term, atoms
from modulekg_widgets.engine.errors import TraceError, printable
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work
from modulekg_widgets.engine.torch_runtime.private import has_storage
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, Dataflow, OperatorNode
from modulekg_widgets.engine.tracing.trace import REAL

log = logging.getLogger("modulekg_widgets")
# written by `python tests/axes/operator_samples.py --write`, from torch's operator samples and our own examples
PROVED_OPERATORS_FILE = Path(__file__).with_name("proved_operators.txt")
REFUTED = "permuting its indices changes the output, although the rule of this operator allows it"
MAX_PLAN_RUNS = 4  # of the model, for members without a gradient: a plan has another witness
MAX_PROOF_FLOPS = 2e9  # floating-point operations of a pass: the control takes a backward pass in float64


@cache
def proved_operators() -> frozenset[str]:
    """Returns the names of the operators whose axis rules the tests have proved, as `aten::relu`."""
    return frozenset(PROVED_OPERATORS_FILE.read_text(encoding="utf-8").split())


def unproved_axes(axes: Axes) -> dict[Axis, OperatorNode]:
    """The free axes that go through an operator that no test has proved, each with the first of these."""
    known = proved_operators()
    found: dict[Term, OperatorNode] = {}
    for axis, operator in axes.inference.chosen.read.items():  # a number went through Python, unseen
        found.update((atom, operator) for atom in atoms(axis) if atom.frozen is None and atom.size > 1)
    for operator in axes.graph.operators:
        if base_name(operator.name) in known:
            continue
        for node in (*operator.inputs, *operator.outputs):
            for term in axes.inference.dims(node):
                for atom in atoms(term):
                    if atom.frozen is None and atom.size > 1:
                        found.setdefault(atom, operator)
    return {axis: found[axis.term] for axis in axes.free if axis.term in found}


def untraced_effect(axes: Axes) -> str | None:
    """Returns an effect of the pass that no operator shows, as data that leave torch; None without any."""
    graph = axes.graph
    for record in [*(record for _, record in graph.escaped), *graph.data_dependent]:
        where = ", ".join(filter(None, (record.module or "(root)", record.source)))
        return f"{record.operator} in {where}, which data decide"
    if graph.traced_on == REAL:
        return "a pass that runs with data alone"
    if traced_path(axes).diverging_draws:
        return f"chance or a clock in {graph.draws}, which decides the branch of forward"
    operator = unused_weight_operator(graph)
    if operator is not None:
        return f"{operator.where}, whose result, computed from weights, is not read"
    return _aliased_weight(graph)


def _aliased_weight(graph: Dataflow) -> str | None:
    """Returns a weight that shares its memory with a tensor made by the code, as with `p.data`; else None."""
    made = [node for node in graph.values if node.kind == CONSTANT and node.dtype.is_floating_point and node.numel()]
    own = {address for node in made if (address := _address(node.tensor))}
    if not own:
        return None
    for node in graph.state.values():
        if _address(node.tensor) in own:
            return f"{printable(node.label)}, whose memory the code takes past its operators"
    return None


def _address(tensor: torch.Tensor | None) -> int:
    if tensor is None or tensor.is_meta or not has_storage(tensor):
        return 0
    return tensor.untyped_storage().data_ptr()


def prove(axes: Axes) -> list[str]:
    """Verifies the axes that unproved operators touch, or all axes where the pass has untraced effects.

    What is refuted is frozen; `axes.doubts` are about what is neither refuted nor proved. Gives, as sentences, what was
    refuted, and what could not be verified for want of weights. Nothing runs where all operators are proved and nothing
    goes past them, and nothing a second time.
    """
    if axes.proof_notes is None:
        axes.proof_notes = [*_prove_axes(axes), *_decision_notes(axes)]
    return axes.proof_notes


def _decision_notes(axes: Axes) -> list[str]:
    """Returns notes on the axes that are frozen because the traced path only tests their values."""
    return [f"{axis.name} is not cut: it {axis.frozen}" for axis in axes if (axis.frozen or "").startswith(DECIDES)]


def _prove_axes(axes: Axes) -> list[str]:
    through = unproved_axes(axes)
    past = untraced_effect(axes)
    asked = axes.free if past is not None else list(through)
    if not asked:
        return []
    names = ", ".join(dict.fromkeys(operator.name for operator in through.values()))
    try:
        wrong = _refuted_axes(axes, asked)
    except TraceError as error:
        log.debug("the axes are not verified", exc_info=True)
        if any(node.tensor is not None and node.tensor.is_meta for node in axes.graph.state.values()):
            what = f"no test has proved {names}" if names else f"there is {past}"
            return [f"{what}, and the axes through it could not be verified: {error}"]
        axes.doubts.update(dict.fromkeys(asked, UnprovedReason(f"it could not be verified: {error}")))
        return []
    notes: list[str] = []
    for axis, change in wrong.items():
        axis.term.frozen = Reason(REFUTED, through[axis]) if axis in through else Reason(f"{_REFUTED_HERE}: {past}")
        notes.append(f"{printable(axis.name)} is not cut, {change} when its indices are permuted: {axis.frozen}")
    return [*notes, *(_untried_path_notes(axes) if past is not None else [])]


def contributing_axes(axes: Axes) -> set[Term]:
    """The axes of the values of which the outputs are made."""
    dims = axes.inference.dims
    return {atom for node in contributing_values(axes.graph) for term in dims(node) for atom in atoms(term)}


def _path_budget(axes: Axes) -> int:
    """Returns the number of alternative paths to try: those by chance, and as many by data as are cheap."""
    by_data = min(MAX_PATHS, int(MAX_PROOF_FLOPS / (2 * max(axes.graph.flops(), 1))))
    return len(traced_path(axes).diverging_draws) + by_data


def _untried_path_notes(axes: Axes) -> list[str]:
    """Returns notes on the alternative paths that were not tried because of their cost."""
    if axes.graph.cuttable_outputs:
        return []
    untried = list(dict.fromkeys(way.where for way in alternative_paths(axes, follow_trace=True)[_path_budget(axes) :]))
    if not untried:
        return []
    where = f"{', '.join(untried[:3])}{f' and {len(untried) - 3} more' if len(untried) > 3 else ''}"
    said = f"the branch at {where} depends on data, and only the traced branch was verified because of the"
    return [f"{said} cost of others: graph.axes.verify() runs them"]


_REFUTED_HERE = "permuting its indices changes the output, although all operators allow it"


def _refuted_axes(axes: Axes, asked: Sequence[Axis]) -> Mapping[Axis, str]:
    """Returns the refuted ones of these axes with the reason; records unproved ones in `axes.doubts`."""
    most_ways = _path_budget(axes)
    if axes.graph.flops() > MAX_PROOF_FLOPS:
        wrong = find_refuted(axes, asked, most_ways)
        reaching = contributing_axes(axes)
        unseen = [axis for axis in asked if axis not in wrong and axis.term not in reaching]
        axes.doubts.update(dict.fromkeys(unseen, UnprovedReason("no output of this forward pass depends on it")))
        return wrong
    report = verify(axes, bipartitions=0, only=asked, max_runs=MAX_PLAN_RUNS, max_paths=most_ways)
    for axis in asked:
        proof = report[axis.name]
        if proof.status == NOT_PROVED:
            axes.doubts[axis] = UnprovedReason(proof.note, proof.affects_output)
    return {axis: report[axis.name].note for axis in asked if report[axis.name].status == WRONG}


# -------------------- The `Axes` with the public method `verify()`


class ProvableAxes(Axes):
    __doc__ = Axes.__doc__

    def verify(
        self,
        args: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        tolerance: float = TOLERANCE,
        bipartitions: int = 8,
        only: Sequence[Axis] | None = None,
    ) -> Verification:
        """Prove the free axes: permuting the indices of one in all its members leaves the output unchanged.

        Parameters
        ----------
        args, kwargs
            Inputs of the shapes of the traced ones, instead of these.
        seed
            For the permutations and for the weights, which are rescaled so that none hides an error.
        tolerance
            The largest change of the output, relative to the largest output, that is rounding.
        bipartitions
            How many random parts of members are permuted alone; the output must change.
        only
            The axes that are asked about, instead of all.

        Returns
        -------
        Verification
            With `.ok`, and the axes `.proved`, `.wrong` and `.not_proved`.

        Raises
        ------
        TraceError
            When the forward pass does not run in float64, or the model was cut since the trace.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> mk.trace(model, torch.randn(2, 3)).axes.verify().ok
        True
        """
        with long_work("Proof of the channel groups", self.graph.model):
            return verify(self, args, kwargs, seed=seed, tolerance=tolerance, bipartitions=bipartitions, only=only)
