"""The loop that dry-runs and corrects a candidate plan until it runs, and then verifies it.

Code can fix sizes beyond the data flow: `view(-1, 8, 64)`, or an attribute such as `hidden_size`. A dry
run finds the first mismatch, `correction_proposals` says which changes may help there (an attribute follows
a size, sizes are tied, axes stay whole), and the first one that gets further is kept; `correction_cache`
repeats it in similar modules. When the candidate runs, the cut model is compared with the masked original
(`masked_reference`), as equal integers can be a coincidence. Axes that cannot be verified stay whole,
unless the user named them.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, Axis, UnprovedReason
from modulekg_widgets.engine.axes.proof.control_flow import chosen_axes
from modulekg_widgets.engine.axes.proof.operator_proofs import contributing_axes
from modulekg_widgets.engine.axes.proof.verify import UNSTEADY
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.cut.edits import ChangedAttributeError, Edits
from modulekg_widgets.engine.pruning.plan.corrections.candidate import (
    ATTRIBUTE,
    CONSTRAINT,
    OUTPUT,
    PINNED,
    SCALE,
    Change,
    PlanCandidate,
)
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import EditCompiler
from modulekg_widgets.engine.pruning.plan.corrections.correction_cache import CorrectionCache
from modulekg_widgets.engine.pruning.plan.corrections.correction_kinds import Corrections
from modulekg_widgets.engine.pruning.plan.corrections.correction_proposals import CorrectionProposals
from modulekg_widgets.engine.pruning.plan.corrections.failed_dry_run import FailedDryRun
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import (
    DryRunResult,
    Mismatch,
    RerunRange,
    RerunRanges,
    ScaleChange,
    dry_run,
)
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import (
    AxisEffects,
    matches_masked_model,
    matches_masked_router,
)
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.tracing.dataflow import DataNode
from modulekg_widgets.engine.tracing.trace import REAL

MAX_TRIES = 40  # to find the axes along which a cut model gives other values
log = logging.getLogger("modulekg_widgets")
MAX_OPERATORS_RUN = 8_000  # operators that run to see what axes do; of further ones, what they reach has to do
NOT_COMPARABLE = (
    "the code takes another branch on the smaller sizes, and its result cannot be compared with the masked model, "
    "which has no data or returns different values each time it runs"
)
MAX_NAMES = 6  # in a note
AFFORDABLE_FLOPS = 2e9  # floating-point operations: two passes of such a model take a tenth of a second


class Repair:
    """Dry-runs a candidate, and corrects it until the dry run goes as planned."""

    def __init__(self, axes: Axes, compiler: EditCompiler) -> None:
        self.axes = axes
        self.compiler = compiler
        self.rerun_ranges = RerunRanges(axes.graph)
        self.corrections = Corrections(axes)
        self.proposals = CorrectionProposals(self.corrections, self.rerun_near)
        self.cache = CorrectionCache(self.corrections, self.rerun_near)
        self._changing_numbers: set[str] = (
            set()
        )  # numbers that change while the plan is made, as counters: they are no sizes
        self.explicit_axes: frozenset[Term] = frozenset()  # the axes that were asked for by name: they go, with a note
        self._removable_cache: dict[object, bool] = {}
        self._effect_cache: dict[Term, bool] = {}
        self._effects = AxisEffects(axes)
        self._operators_run = 0  # operators that ran to see what an axis does
        self._unverified_explicit: set[Term] = set()  # the named axes that go though their values cannot be compared
        self._pin_reasons: dict[Term, str] = {}  # the axes that are kept whole for want of a proof, and why
        self._records_failures = False  # whether a call has raised, so that it pays to hear what the next one asks for

    def edits(self, candidate: PlanCandidate) -> Edits:
        attributes = {
            path: change for path, change in candidate.attributes().items() if path not in self._changing_numbers
        }
        return self.compiler.edits(candidate.selection, attributes)

    def rerun_near(self, candidate: PlanCandidate, position: int) -> DryRunResult:
        """A dry run of the calls around an operator; no mismatch means that it got past it."""
        return self.dry_run(candidate, self.rerun_ranges.range_of(position))

    def dry_run(self, candidate: PlanCandidate, rerun_range: RerunRange | None = None) -> DryRunResult:
        try:
            found = dry_run(self.axes, candidate.selection, self.edits(candidate), self._records_failures, rerun_range)
        except ChangedAttributeError as error:
            if error.path not in candidate.attributes() or error.path in self._changing_numbers:
                raise
            self._changing_numbers.add(error.path)
            return self.dry_run(candidate, rerun_range)
        self._records_failures = self._records_failures or bool(found.mismatch and found.mismatch.error)
        return found

    def verified(self, candidate: PlanCandidate) -> tuple[PlanCandidate, DryRunResult]:
        """The corrected candidate whose cut model computes the same as the masked original.

        Equal integers can be coincidence: where that comes out, the plan does without attributes that follow sizes.
        """
        return self.verify(candidate, *self.fixed(candidate))

    def verify(
        self, candidate: PlanCandidate, fixed: PlanCandidate, found: DryRunResult
    ) -> tuple[PlanCandidate, DryRunResult]:
        """The verified candidate, if its dry run is known already."""
        wrong = self._unremovable_lists(fixed)
        if wrong:
            unlike = "the cut model differs from the one whose router cannot choose what is removed"
            return self.verified(self.corrections.with_pinned(candidate, wrong, unlike))
        blind = self._unobservable_axes(fixed)
        if blind:
            return self.verified(self._with_unproved_pinned(candidate, blind))
        if self._is_verified(fixed, found):
            return fixed, found
        if not fixed.strict:
            strict = replace(candidate, strict=True)
            fixed, found = self.fixed(strict)
            if self._matches(fixed, found):
                return fixed, found
            candidate = strict
        doubted = [atom for atom in fixed.selection.changed if self._doubt(atom) and atom not in self.explicit_axes]
        if doubted:
            # what is not doubted goes without, or shows itself what is wrong
            why = "the cut model does not return what the masked one returns, or that cannot be compared"
            return self.verified(self._with_unproved_pinned(candidate, dict.fromkeys(doubted, why)))
        return self._largest_matching(candidate, fixed, self._verdict(fixed, found) is None)

    def _with_unproved_pinned(self, candidate: PlanCandidate, reasons: Mapping[Term, str]) -> PlanCandidate:
        """The candidate with unproved axes kept whole."""
        for atom, why in reasons.items():
            doubt = self._doubt(atom)
            self._pin_reasons[atom] = why if doubt is None or doubt.reason == why else f"{doubt.reason}; {why}"
        if not reasons:
            return candidate
        return replace(candidate, selection=candidate.selection.pin(list(reasons), next(iter(reasons.values()))))

    def _doubt(self, atom: Term) -> UnprovedReason | None:
        """The reason why an axis is neither proved nor refuted on this model."""
        return self.axes.doubts.get(self.axes.of(atom))

    def _unobservable_axes(self, candidate: PlanCandidate) -> dict[Term, str]:
        """The doubtful axes that no output depends on, with the reason."""
        keeps = candidate.selection.keep_masks()
        found = {}
        for atom in candidate.selection.changed:
            doubt = self._doubt(atom)
            if (
                doubt is not None
                and atom not in self.explicit_axes
                and not self._affects_outputs(atom, doubt, keeps[atom])
            ):
                found[atom] = "nothing that this pass gives is seen to depend on it"
        return found

    def _affects_outputs(self, atom: Term, doubt: UnprovedReason, keep: NDArray[np.bool_]) -> bool:
        """True if the outputs depend on an axis."""
        if doubt.affects_output:
            return True
        if atom not in self._axes_reaching_outputs:
            return atom not in self._nonempty_axes and self._sibling_affects_outputs(atom)
        if self._operators_run >= MAX_OPERATORS_RUN:
            return True
        if atom not in self._effect_cache:
            self._operators_run += len(self.axes.graph.operators)
            self._effect_cache[atom] = self._effects.has_effect(atom, keep)
        return self._effect_cache[atom]

    @cached_property
    def _axes_reaching_outputs(self) -> set[Term]:
        return contributing_axes(self.axes)

    @cached_property
    def _nonempty_axes(self) -> set[Term]:
        """The axes of the values that are not empty in this trace."""
        dims = self.axes.inference.dims
        made = (node for node in self.axes.graph.values if node.producer is not None and node.numel())
        made = (node for node in made if self.axes.graph.state.keys().isdisjoint(node.names) and not _is_weight(node))
        return {atom for node in made for term in dims(node) for atom in atoms(term)}

    def _sibling_affects_outputs(self, atom: Term) -> bool:
        """True if the outputs depend on the same axis of another list element."""
        own = _numberless_location(self.axes.of(atom))
        others = (axis for axis in self.axes.free if axis.term is not atom and axis.term in self._axes_reaching_outputs)
        return any(_numberless_location(axis) == own for axis in others)

    def notes(self, candidate: PlanCandidate) -> list[str]:
        """Notes on axes kept whole without a proof, and on explicit axes that are unproved."""
        stay: dict[str, list[str]] = {}
        for atom, why in self._pin_reasons.items():
            if atom in candidate.selection.pinned:
                stay.setdefault(why, []).append(printable(self.axes.of(atom).name))
        found = [f"{_listed_names(names)} not proved on this model and {_stay_verb(names)} whole: {why}"
                 for why, names in stay.items()]  # fmt: skip
        for atom in candidate.selection.changed:
            doubt = self._doubt(atom)
            why = NOT_COMPARABLE if atom in self._unverified_explicit else None if doubt is None else doubt.reason
            if why is not None and (atom in self.explicit_axes or atom in self._unverified_explicit):
                found.append(
                    f"{printable(self.axes.of(atom).name)} is cut as requested, although it is not proved: {why}"
                )
        return found

    def _unremovable_lists(self, candidate: PlanCandidate) -> list[Term]:
        """The list axes whose removed elements change the model beyond their router."""
        every = [atom for atom in candidate.selection.changed if atom.lists]
        if not every or self._can_be_removed(candidate, every):
            return []
        alone = [atom for atom in every if not self._can_be_removed(candidate, [atom])]
        return alone or every

    def _can_be_removed(self, candidate: PlanCandidate, atoms: Sequence[Term]) -> bool:
        """True if these list axes can be removed alone."""
        selection = candidate.selection.restricted_to(atoms)
        key = tuple(
            (id(atom), selection.orders[atom][: atom.size - selection.counts[atom]].tobytes()) for atom in atoms
        )
        if key not in self._removable_cache:
            edits = self.compiler.edits(selection, replace(candidate, selection=selection).attributes())
            self._removable_cache[key] = matches_masked_router(self.axes, selection.keep_masks(), edits)
        return self._removable_cache[key]

    def _largest_matching(
        self, candidate: PlanCandidate, mended: PlanCandidate, unknown: bool
    ) -> tuple[PlanCandidate, DryRunResult]:
        """The largest verified part of a candidate, found by bisection.

        `unknown`: or along which it goes another way, where values cannot be compared.
        """
        every = list(mended.selection.changed)
        if unknown and (named := self.explicit_axes.intersection(every)):
            self._unverified_explicit |= named
            return self.fixed(
                self._with_unproved_pinned(candidate, {atom: NOT_COMPARABLE for atom in every if atom not in named})
            )
        where = mended.changes[0].source if mended.changes else "the model"
        unlike = f"returns other values than the masked model, {where}"
        good: list[Term] = []
        best: tuple[PlanCandidate, DryRunResult] | None = None
        waiting = [every[len(every) // 2 :], every[: len(every) // 2]]
        for _ in range(MAX_TRIES):
            if not waiting:
                break
            part = waiting.pop()
            taken = {*good, *part}
            others = [atom for atom in every if atom not in taken]
            trial = (
                self._with_unproved_pinned(candidate, dict.fromkeys(others, NOT_COMPARABLE))
                if unknown
                else self.corrections.with_pinned(candidate, others, unlike)
            )
            tried = self.fixed(trial)
            if tried[0].selection.changed and self._matches(*tried):
                good, best = [*good, *part], tried
            elif len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
        if best is None and unknown:
            raise CutError(f"no axis can be cut: {NOT_COMPARABLE}. To cut some anyway, name them in per_axis={{…}}")
        if best is None:
            raise CutError(
                f"the plan runs, but returns other values than the masked model: {where}. Protect it with keep=[…]"
            )
        return best

    def _is_verified(self, candidate: PlanCandidate, found: DryRunResult) -> bool:
        """True if the cut model computes the same as the masked original.

        The dry run proves it where the same operators ran on the same values, and each number among their arguments
        is as before or the planned size of what it was the size of. Else the outputs decide; those of small models do
        so anyway where an attribute follows a size, for equal integers can be coincidence.
        """
        guessed = any(change.kind == ATTRIBUTE for change in candidate.changes)
        affordable = guessed and self.axes.graph.flops() < AFFORDABLE_FLOPS
        doubted = any(self._doubt(atom) and atom not in self.explicit_axes for atom in candidate.selection.changed)
        return (found.matches_trace and not affordable and not doubted) or self._matches(candidate, found)

    def _matches(self, candidate: PlanCandidate, found: DryRunResult) -> bool:
        """True if the outputs match the masked model, or the dry run alone decides."""
        verdict = self._verdict(candidate, found)
        if verdict is not None:
            return verdict
        doubted = any(self._doubt(atom) and atom not in self.explicit_axes for atom in candidate.selection.changed)
        return found.matches_trace and not doubted

    def _verdict(self, candidate: PlanCandidate, found: DryRunResult) -> bool | None:
        """The result of the comparison; None if the outputs cannot be compared."""
        doubts = map(self._doubt, candidate.selection.changed)
        if any(doubt is not None and doubt.reason.endswith(UNSTEADY) for doubt in doubts):
            return None
        chosen = self._data_chosen_axes(candidate)
        if chosen:
            return self._verdict_without(candidate, chosen)
        verdict = matches_masked_model(self.axes, candidate.selection.keep_masks(), self.edits(candidate), found.scales)
        # where lists get shorter, what was recorded has more calls, and it is known that the rest does not choose them
        shorter = [] if verdict is not None else [atom for atom in candidate.selection.changed if atom.lists]
        return self._verdict_without(candidate, shorter) if shorter else verdict

    def _data_chosen_axes(self, candidate: PlanCandidate) -> list[Term]:
        """The axes that data choose from, which make a cut model decide differently."""
        if self.axes.graph.traced_on != REAL:
            return []
        chosen = chosen_axes(self.axes)
        return [atom for atom in candidate.selection.changed if atom in chosen or atom.lists]

    def _verdict_without(self, candidate: PlanCandidate, chosen: Sequence[Term]) -> bool:
        """The result of the comparison without the axes that data choose from."""
        if any(self._doubt(atom) and atom not in self.explicit_axes for atom in chosen):
            return False
        rest = [atom for atom in candidate.selection.changed if atom not in chosen]
        if not rest:
            return True
        beside = replace(candidate, selection=candidate.selection.restricted_to(rest))
        found = self.dry_run(beside)
        return found.mismatch is None and self._is_verified(beside, found)

    def still_runs(self, candidate: PlanCandidate, result_before: DryRunResult, edits: Edits) -> bool:
        """True if a dry run still passes and computes the same with further edits."""
        try:
            found = dry_run(self.axes, candidate.selection, edits)
        except CutError:
            return False
        if found.mismatch is not None or _scale_pairs(found) != _scale_pairs(result_before):
            return False
        if found.matches_trace:
            return True
        affordable = self.axes.graph.flops() < AFFORDABLE_FLOPS
        return (
            affordable
            and matches_masked_model(self.axes, candidate.selection.keep_masks(), edits, found.scales) is True
        )

    def fixed(self, candidate: PlanCandidate) -> tuple[PlanCandidate, DryRunResult]:
        """The corrected candidate and its dry run; raises `CutError` if no correction makes it run."""
        found = self.dry_run(candidate)
        while found.mismatch is not None:
            candidate, found = self._correct(candidate, found.mismatch)
        return candidate, found

    def _correct(self, candidate: PlanCandidate, mismatch: Mismatch) -> tuple[PlanCandidate, DryRunResult]:
        """The first correction with which the dry run gets further, applied to all similar modules."""
        near = self.rerun_ranges.range_of(mismatch.position)
        if near is not None and self.dry_run(candidate, near).mismatch != mismatch:
            # what is not run again had written into the model, or its result is known by value
            self.rerun_ranges.unreliable.add(mismatch.position)
        failure = FailedDryRun(self.axes, candidate, mismatch)
        for trial in itertools.chain(self.cache.candidates(failure), self.proposals.candidates(failure)):
            close = self.rerun_near(trial, mismatch.position)
            if not _is_further(close, mismatch):
                continue
            for option in self._narrowed_options(failure, trial, close):
                # what ran whole already need not do so again
                found = close if option is trial and close.is_complete else self.dry_run(option)
                if _is_further(found, mismatch):
                    log.debug("%s", option.changes[len(candidate.changes)])
                    return option, found
        raise CutError(
            f"no plan could be made to run: {mismatch.where} "
            + (
                f"raises {printable(mismatch.error, 300)}"
                if mismatch.error
                else "gives sizes that no choice of axes meets"
            )
            + ". Protect the module with keep=[…], or choose axes with only=[…]"
        )

    def _narrowed_options(
        self, failure: FailedDryRun, trial: PlanCandidate, found: DryRunResult
    ) -> Iterator[PlanCandidate]:
        """Variants of a helpful correction: fewest axes and everywhere first, then as it is."""
        fewest = trial
        if trial.changes[-1].kind == PINNED:
            fewest = self.proposals.fewest_pinned(failure, trial, found)
        self.cache.add(failure, fewest)
        everywhere = self.cache.apply_everywhere(failure, fewest)
        yield everywhere
        if everywhere is not fewest:
            yield fewest
        if fewest is not trial:
            yield trial

    def changes(self, candidate: PlanCandidate) -> tuple[Change, ...]:
        """The corrections, with the final sizes of size constraints."""
        constraints = iter(candidate.constraints)
        changes = [
            replace(change, what=self.corrections.describe_constraint(next(constraints), candidate.selection))
            if change.kind == CONSTRAINT
            else change
            for change in candidate.changes
        ]
        return tuple(dict.fromkeys(changes))


def _is_weight(node: DataNode) -> bool:
    """True if a value is a weight in another layout."""
    while node.producer is not None and len(node.producer.inputs) == 1:
        node = node.producer.inputs[0]
    return node.is_parameter


def _numberless_location(axis: Axis) -> list[tuple[str, int]]:
    """The locations of an axis without the numbers of list elements."""
    return [(re.sub(r"\.\d+\.", ".*.", node.label), at) for node, at in axis.tensor_dims]


def _listed_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more} {'is' if len(names) == 1 else 'are'}"


def _stay_verb(names: Sequence[str]) -> str:
    return "stays" if len(names) == 1 else "stay"


def _scale_pairs(found: DryRunResult) -> list[tuple[float, float]]:
    """The scale changes of a dry run, as pairs."""
    return [(scale.before, scale.after) for scale in found.scales]


def _is_further(found: DryRunResult, before: Mismatch) -> bool:
    """True if a dry run got further, or to the same operator with fewer mismatched sizes."""
    now = found.mismatch
    if now is None:
        return True
    if now.position == before.position:
        return 0 < len(now.requests) < len(before.requests)
    return now.position > before.position


def scale_changes(scales: Iterable[ScaleChange]) -> list[Change]:
    """The scale changes as corrections, each line of code once."""
    counted = Counter((f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source) for scale in scales)
    operators = {
        (f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source): scale.operator for scale in scales
    }
    return [
        Change(SCALE, f"a number computed from sizes, {what}, {times} times", operators[what, source].where)
        for (what, source), times in counted.items()
    ]


def output_changes(axes: Axes, selection: Selection) -> list[Change]:
    """The outputs whose shape follows the cut, as corrections."""
    found = []
    for name, node in axes.graph.cuttable_outputs.items():
        after = [selection.size(term) for term in axes.inference.dims(node)]
        if after != list(node.shape):
            source = "" if node.producer is None else node.producer.where
            what = f"the output {printable(name)}" if name else "the output"
            found.append(Change(OUTPUT, f"{what} becomes {after}, was {list(node.shape)}", source))
    return found
