"""Making a plan run: sizes that Python code fixes beyond the data flow are found by dry runs, then changed or kept."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, Axis, Doubt
from modulekg_widgets.engine.axes.proof.decisions import chosen_axes
from modulekg_widgets.engine.axes.proof.proved import reaching_axes
from modulekg_widgets.engine.axes.proof.verify import UNSTEADY
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.edits import Edits, MovedAttributeError
from modulekg_widgets.engine.pruning.plan.corrections.candidate import (
    ATTRIBUTE,
    CONSTRAINT,
    OUTPUT,
    SCALE,
    WHOLE,
    Attempt,
    Change,
)
from modulekg_widgets.engine.pruning.plan.corrections.compile_edits import Outcome
from modulekg_widgets.engine.pruning.plan.corrections.correction_cache import Precedents
from modulekg_widgets.engine.pruning.plan.corrections.corrections import Corrections
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import (
    Mismatch,
    Neighbourhood,
    Rehearsal,
    ScaleChange,
    Surroundings,
    rehearse,
)
from modulekg_widgets.engine.pruning.plan.dry_run.reference import Effects, agrees, is_never_chosen
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.tracing.dataflow import DataNode
from modulekg_widgets.engine.tracing.trace import REAL

MOST_TRIES = 40  # to find the axes along which a cut model gives other values
log = logging.getLogger("modulekg_widgets")
MOST_SEEN = 8_000  # operators that run to see what axes do; of further ones, what they reach has to do
UNCOMPARED = (
    "the code goes another way on the smaller sizes, and what it computes cannot be compared with the masked model, "
    "which has no data or gives other values each time that it runs, as by a clock"
)
MOST_NAMES = 6  # in a note
AFFORDABLE = 2e9  # floating-point operations: two passes of such a model take a tenth of a second


class Repair:
    """Rehearses an attempt, and corrects it until its dry run goes as planned."""

    def __init__(self, axes: Axes, outcome: Outcome) -> None:
        self.axes = axes
        self.outcome = outcome
        self.neighbourhood = Neighbourhood(axes.graph)
        self.corrections = Corrections(axes, self.near)
        self.precedents = Precedents(axes, self.corrections)
        self._moving: set[str] = set()  # numbers that change while the plan is made, as counters: they are no sizes
        self.named: frozenset[Term] = frozenset()  # the axes that were asked for by name: they go, with a note
        self._known_to_go: dict[object, bool] = {}
        self._known_to_act: dict[Term, bool] = {}
        self._effects = Effects(axes)
        self._seen = 0  # operators that ran to see what an axis does
        self._as_asked: set[Term] = set()  # the named axes that go though their values cannot be compared
        self._stay: dict[Term, str] = {}  # the axes that are kept whole for want of a proof, and why
        self._listening = False  # whether a call has raised, so that it pays to hear what the next one asks for

    def edits(self, attempt: Attempt) -> Edits:
        attributes = {path: change for path, change in attempt.attributes().items() if path not in self._moving}
        return self.outcome.edits(attempt.selection, attributes)

    def near(self, attempt: Attempt, position: int) -> Rehearsal:
        """A dry run of what lies around an operator, the rest as planned; without a mismatch it came past that."""
        return self.rehearse(attempt, self.neighbourhood.of(position))

    def rehearse(self, attempt: Attempt, near: Surroundings | None = None) -> Rehearsal:
        try:
            found = rehearse(self.axes, attempt.selection, self.edits(attempt), self._listening, near)
        except MovedAttributeError as error:
            if error.path not in attempt.attributes() or error.path in self._moving:
                raise
            self._moving.add(error.path)
            return self.rehearse(attempt, near)
        self._listening = self._listening or bool(found.mismatch and found.mismatch.error)
        return found

    def proved(self, attempt: Attempt) -> tuple[Attempt, Rehearsal]:
        """The attempt with the corrections that it needs, once the cut model computes what the masked original does.

        Equal integers can be coincidence: where that comes out, the plan does without attributes that follow sizes.
        """
        return self.confirmed(attempt, *self.mended(attempt))

    def confirmed(self, attempt: Attempt, mended: Attempt, found: Rehearsal) -> tuple[Attempt, Rehearsal]:
        """As `proved`, where it is known what became of the attempt."""
        wrong = self._lists_that_do_not_go(mended)
        if wrong:
            unlike = Mismatch(0, None, (), where="the cut model is not the one whose router cannot choose what goes")
            return self.proved(self.corrections.spared(attempt, wrong, unlike))
        blind = self._without_witness(mended)
        if blind:
            return self.proved(self._kept(attempt, blind))
        if self._is_proved(mended, found):
            return mended, found
        if not mended.strict:
            strict = replace(attempt, strict=True)
            mended, found = self.mended(strict)
            if self._agrees(mended, found):
                return mended, found
            attempt = strict
        doubted = [atom for atom in mended.selection.changed if self._doubt(atom) and atom not in self.named]
        if doubted:
            # what is not doubted goes without, or shows itself what is wrong
            why = "the cut model does not give what the masked one does, or that cannot be compared"
            return self.proved(self._kept(attempt, dict.fromkeys(doubted, why)))
        return self._most_that_agrees(attempt, mended, self._verdict(mended, found) is None)

    def _kept(self, attempt: Attempt, reasons: Mapping[Term, str]) -> Attempt:
        """The attempt with axes kept whole for want of a proof."""
        for atom, why in reasons.items():
            doubt = self._doubt(atom)
            self._stay[atom] = why if doubt is None or doubt.why == why else f"{doubt.why}; {why}"
        if not reasons:
            return attempt
        return replace(attempt, selection=attempt.selection.pin(list(reasons), next(iter(reasons.values()))))

    def _doubt(self, atom: Term) -> Doubt | None:
        """Why an axis is neither proved nor refuted on this model."""
        return self.axes.doubts.get(self.axes.of(atom))

    def _without_witness(self, attempt: Attempt) -> dict[Term, str]:
        """The doubtful axes that no output shows anything of: that a cut and a mask agree says nothing there."""
        keeps = attempt.selection.keeps()
        found = {}
        for atom in attempt.selection.changed:
            doubt = self._doubt(atom)
            if doubt is not None and atom not in self.named and not self._acts(atom, doubt, keeps[atom]):
                found[atom] = "nothing that this pass gives is seen to depend on it"
        return found

    def _acts(self, atom: Term, doubt: Doubt, keep: NDArray[np.bool_]) -> bool:
        """Whether the outputs depend on an axis: by the values that they are made of, and by a run where that pays."""
        if doubt.acts:
            return True
        if atom not in self._reaching:
            return atom not in self._filled and self._sibling_acts(atom)
        if self._seen >= MOST_SEEN:
            return True
        if atom not in self._known_to_act:
            self._seen += len(self.axes.graph.operators)
            self._known_to_act[atom] = self._effects.has(atom, keep)
        return self._known_to_act[atom]

    @cached_property
    def _reaching(self) -> set[Term]:
        return reaching_axes(self.axes)

    @cached_property
    def _filled(self) -> set[Term]:
        """The axes of the values that hold anything in this pass: no row may have come to an element of a list."""
        dims = self.axes.inference.dims
        made = (node for node in self.axes.graph.values if node.producer is not None and node.numel())
        made = (node for node in made if self.axes.graph.state.keys().isdisjoint(node.names) and not _is_weight(node))
        return {atom for node in made for term in dims(node) for atom in atoms(term)}

    def _sibling_acts(self, atom: Term) -> bool:
        """Whether the outputs are made of the axis of the same place in another element of a list."""
        own = _place(self.axes.of(atom))
        others = (axis for axis in self.axes.free if axis.term is not atom and axis.term in self._reaching)
        return any(_place(axis) == own for axis in others)

    def notes(self, attempt: Attempt) -> list[str]:
        """What was kept whole for want of a proof, and what goes without one since it was asked for by name."""
        stay: dict[str, list[str]] = {}
        for atom, why in self._stay.items():
            if atom in attempt.selection.pinned:
                stay.setdefault(why, []).append(shown(self.axes.of(atom).name))
        found = [f"{_listed(names)} not proved on this model and {_stays(names)} whole: {why}"
                 for why, names in stay.items()]  # fmt: skip
        for atom in attempt.selection.changed:
            doubt = self._doubt(atom)
            why = UNCOMPARED if atom in self._as_asked else None if doubt is None else doubt.why
            if why is not None and (atom in self.named or atom in self._as_asked):
                found.append(f"{shown(self.axes.of(atom).name)} goes as asked, though it is not proved: {why}")
        return found

    def _lists_that_do_not_go(self, attempt: Attempt) -> list[Term]:
        """The axes without whose elements of lists the model is another one than that which cannot choose them."""
        every = [atom for atom in attempt.selection.changed if atom.lists]
        if not every or self._go(attempt, every):
            return []
        alone = [atom for atom in every if not self._go(attempt, [atom])]
        return alone or every

    def _go(self, attempt: Attempt, atoms: Sequence[Term]) -> bool:
        """Whether it is so of some axes when these alone are cut."""
        selection = attempt.selection.of(atoms)
        key = tuple(
            (id(atom), selection.orders[atom][: atom.size - selection.counts[atom]].tobytes()) for atom in atoms
        )
        if key not in self._known_to_go:
            edits = self.outcome.edits(selection, replace(attempt, selection=selection).attributes())
            self._known_to_go[key] = is_never_chosen(self.axes, selection.keeps(), edits)
        return self._known_to_go[key]

    def _most_that_agrees(self, attempt: Attempt, mended: Attempt, unknown: bool) -> tuple[Attempt, Rehearsal]:
        """The attempt without the axes along which the cut model gives other values, found by halves.

        `unknown`: or along which it goes another way, where values cannot be compared.
        """
        every = list(mended.selection.changed)
        if unknown and (named := self.named.intersection(every)):
            self._as_asked |= named
            return self.mended(self._kept(attempt, {atom: UNCOMPARED for atom in every if atom not in named}))
        where = mended.changes[0].source if mended.changes else "the model"
        unlike = Mismatch(0, None, (), where=f"gives other values than the masked model, {where}")
        good: list[Term] = []
        best: tuple[Attempt, Rehearsal] | None = None
        waiting = [every[len(every) // 2 :], every[: len(every) // 2]]
        for _ in range(MOST_TRIES):
            if not waiting:
                break
            part = waiting.pop()
            taken = {*good, *part}
            others = [atom for atom in every if atom not in taken]
            trial = (
                self._kept(attempt, dict.fromkeys(others, UNCOMPARED))
                if unknown
                else self.corrections.spared(attempt, others, unlike)
            )
            tried = self.mended(trial)
            if tried[0].selection.changed and self._agrees(*tried):
                good, best = [*good, *part], tried
            elif len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
        if best is None and unknown:
            raise CutError(
                f"no axis can be cut: {UNCOMPARED}. Name those that shall go all the same with per_axis={{…}}"
            )
        if best is None:
            raise CutError(
                f"the plan runs, but gives other values than the masked model: {where}. Spare it with keep=[…]"
            )
        return best

    def _is_proved(self, attempt: Attempt, found: Rehearsal) -> bool:
        """Whether the cut model computes what the masked original does.

        The dry run proves it where the same operators ran on the same values, and each number among their arguments
        is as before or the planned size of what it was the size of. Else the outputs decide; those of small models do
        so anyway where an attribute follows a size, for equal integers can be coincidence.
        """
        guessed = any(change.kind == ATTRIBUTE for change in attempt.changes)
        affordable = guessed and self.axes.graph.flops() < AFFORDABLE
        doubted = any(self._doubt(atom) and atom not in self.named for atom in attempt.selection.changed)
        return (found.explained and not affordable and not doubted) or self._agrees(attempt, found)

    def _agrees(self, attempt: Attempt, found: Rehearsal) -> bool:
        """Whether the values are those of the masked model; where they tell nothing, the dry run alone decides."""
        verdict = self._verdict(attempt, found)
        if verdict is not None:
            return verdict
        doubted = any(self._doubt(atom) and atom not in self.named for atom in attempt.selection.changed)
        return found.explained and not doubted

    def _verdict(self, attempt: Attempt, found: Rehearsal) -> bool | None:
        """What the values say; None where they cannot be compared, or two passes in a row agree by luck."""
        doubts = map(self._doubt, attempt.selection.changed)
        if any(doubt is not None and doubt.why.endswith(UNSTEADY) for doubt in doubts):
            return None
        chosen = self._chosen(attempt)
        if chosen:
            return self._verdict_beside(attempt, chosen)
        verdict = agrees(self.axes, attempt.selection.keeps(), self.edits(attempt), found.scales)
        # where lists get shorter, what was recorded has more calls, and it is known that the rest does not choose them
        shorter = [] if verdict is not None else [atom for atom in attempt.selection.changed if atom.lists]
        return self._verdict_beside(attempt, shorter) if shorter else verdict

    def _chosen(self, attempt: Attempt) -> list[Term]:
        """The axes that data choose from, where they decide the way: a cut model goes another one then."""
        if self.axes.graph.traced_on != REAL:
            return []
        chosen = chosen_axes(self.axes)
        return [atom for atom in attempt.selection.changed if atom in chosen or atom.lists]

    def _verdict_beside(self, attempt: Attempt, chosen: Sequence[Term]) -> bool:
        """What the values say without the axes that data choose from, whose proof is the permutation."""
        if any(self._doubt(atom) and atom not in self.named for atom in chosen):
            return False
        rest = [atom for atom in attempt.selection.changed if atom not in chosen]
        if not rest:
            return True
        beside = replace(attempt, selection=attempt.selection.of(rest))
        found = self.rehearse(beside)
        return found.mismatch is None and self._is_proved(beside, found)

    def goes_on(self, attempt: Attempt, before: Rehearsal, edits: Edits) -> bool:
        """Whether a pass that went as planned, `before`, goes so and computes the same with further edits."""
        try:
            found = rehearse(self.axes, attempt.selection, edits)
        except CutError:
            return False
        if found.mismatch is not None or _numbers(found) != _numbers(before):
            return False
        if found.explained:
            return True
        affordable = self.axes.graph.flops() < AFFORDABLE
        return affordable and agrees(self.axes, attempt.selection.keeps(), edits, found.scales) is True

    def mended(self, attempt: Attempt) -> tuple[Attempt, Rehearsal]:
        """The attempt with the corrections that it needs; raises `CutError` when none makes it run."""
        found = self.rehearse(attempt)
        while found.mismatch is not None:
            attempt, found = self._corrected(attempt, found.mismatch)
        return attempt, found

    def _corrected(self, attempt: Attempt, mismatch: Mismatch) -> tuple[Attempt, Rehearsal]:
        """The first correction with which the dry run comes further, made at all places that need the same."""
        near = self.neighbourhood.of(mismatch.position)
        if near is not None and self.rehearse(attempt, near).mismatch != mismatch:
            # what is not run again had written into the model, or its result is known by value
            self.neighbourhood.untrue.add(mismatch.position)
        for trial in self._trials(attempt, mismatch):
            close = self.near(trial, mismatch.position)
            if not _is_further(close, mismatch):
                continue
            for option in self._narrowed(attempt, mismatch, trial, close):
                # what ran whole already need not do so again
                found = close if option is trial and close.whole else self.rehearse(option)
                if _is_further(found, mismatch):
                    log.debug("%s", option.changes[len(attempt.changes)])
                    return option, found
        raise CutError(
            f"no plan could be made to run: {mismatch.where} "
            + (f"raises {shown(mismatch.error, 300)}" if mismatch.error else "gives sizes that no choice of axes meets")
            + ". Spare the module with keep=[…], or choose axes with only=[…]"
        )

    def _narrowed(self, attempt: Attempt, mismatch: Mismatch, trial: Attempt, found: Rehearsal) -> Iterator[Attempt]:
        """A correction that helps with as few axes spared as will do and wherever it is needed, then as it is."""
        fewest = trial
        if trial.changes[-1].kind == WHOLE:
            fewest = self.corrections.fewest(attempt, mismatch, trial, found)
        self.precedents.add(attempt, fewest, mismatch)
        everywhere = self.precedents.everywhere(fewest, mismatch)
        yield everywhere
        if everywhere is not fewest:
            yield fewest
        if fewest is not trial:
            yield trial

    def _trials(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[Attempt]:
        """What helped at the same line of another module of the class first."""
        yield from self.precedents.of(attempt, mismatch)
        yield from self.corrections.of(attempt, mismatch)

    def changes(self, attempt: Attempt) -> tuple[Change, ...]:
        """The corrections, of size constraints with the sizes that they came to in the end."""
        constraints = iter(attempt.constraints)
        changes = [
            replace(change, what=self.corrections.described(next(constraints), attempt.selection))
            if change.kind == CONSTRAINT
            else change
            for change in attempt.changes
        ]
        return tuple(dict.fromkeys(changes))


def _is_weight(node: DataNode) -> bool:
    """Whether a value is a weight in another layout."""
    while node.producer is not None and len(node.producer.inputs) == 1:
        node = node.producer.inputs[0]
    return node.is_parameter


def _place(axis: Axis) -> list[tuple[str, int]]:
    """Where an axis stands, whatever the number of the element in a list."""
    return [(re.sub(r"\.\d+\.", ".*.", node.label), at) for node, at in axis.places]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more} {'is' if len(names) == 1 else 'are'}"


def _stays(names: Sequence[str]) -> str:
    return "stays" if len(names) == 1 else "stay"


def _numbers(found: Rehearsal) -> list[tuple[float, float]]:
    """The numbers that the code computes from sizes."""
    return [(scale.before, scale.after) for scale in found.scales]


def _is_further(found: Rehearsal, before: Mismatch) -> bool:
    """Whether a dry run came further, or to the same place with fewer sizes that do not fit."""
    now = found.mismatch
    if now is None:
        return True
    if now.position == before.position:
        return 0 < len(now.requests) < len(before.requests)
    return now.position > before.position


def scale_changes(scales: Iterable[ScaleChange]) -> list[Change]:
    """The numbers that the code computes from sizes, each once a line."""
    counted = Counter((f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source) for scale in scales)
    operators = {
        (f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source): scale.operator for scale in scales
    }
    return [
        Change(SCALE, f"a number computed from sizes, {what}, {times} times", operators[what, source].where)
        for (what, source), times in counted.items()
    ]


def output_changes(axes: Axes, selection: Selection) -> list[Change]:
    """The outputs that follow the cut."""
    found = []
    for name, node in axes.graph.following.items():
        after = [selection.size(term) for term in axes.inference.dims(node)]
        if after != list(node.shape):
            source = "" if node.producer is None else node.producer.where
            what = f"the output {shown(name)}" if name else "the output"
            found.append(Change(OUTPUT, f"{what} becomes {after}, was {list(node.shape)}", source))
    return found
