"""Which operators a test has proved, and the proof of the axes that go through the others."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from modulekg_widgets.engine.axes.algebra import Reason, Term, atoms
from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.verify import WRONG, verify
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.tracing.dataflow import OperatorNode

log = logging.getLogger("modulekg_widgets")
# written by `python tests/axes/operator_samples.py --write`, from torch's operator samples and our own examples
FILE = Path(__file__).with_name("proved_operators.txt")
REFUTED = "its indices may not change places, a permutation shows, though the rule of this operator says so"


@cache
def proved_operators() -> frozenset[str]:
    """The names of the operators, as `aten::relu`, whose axes held under permutation in every sample of torch's."""
    return frozenset(FILE.read_text(encoding="utf-8").split())


def unproved(axes: Axes) -> dict[Axis, OperatorNode]:
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


def prove(axes: Axes) -> list[str]:
    """Verify the axes that go through unproved operators; what is refuted is frozen, with operator and line.

    Gives, as sentences, what could not be verified, as without weights. Nothing runs where all operators are proved,
    and nothing a second time.
    """
    if axes.proof_notes is None:
        axes.proof_notes = _proved(axes)
    return axes.proof_notes


def _proved(axes: Axes) -> list[str]:
    asked = unproved(axes)
    if not asked:
        return []
    names = ", ".join(dict.fromkeys(operator.name for operator in asked.values()))
    try:
        report = verify(axes, bipartitions=0, only=list(asked))
    except TraceError as error:
        log.debug("the axes through %s are not verified", names, exc_info=True)
        return [f"no test has proved {names}, and the axes through it could not be verified: {error}"]
    wrong = [axis for axis in asked if report[axis.name].status == WRONG]
    for axis in wrong:
        axis.term.frozen = Reason(REFUTED, asked[axis])
    return []
