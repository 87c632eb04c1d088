"""Making a plan run: sizes that Python code fixes beyond the data flow are found by dry runs, then changed or kept."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.edits import Edits, MovedAttributeError
from modulekg_widgets.engine.pruning.plan.attempt import ATTRIBUTE, CONSTRAINT, OUTPUT, SCALE, WHOLE, Attempt, Change
from modulekg_widgets.engine.pruning.plan.corrections import Corrections
from modulekg_widgets.engine.pruning.plan.dry_run import Mismatch, Rehearsal, ScaleChange, rehearse
from modulekg_widgets.engine.pruning.plan.list_truth import is_never_chosen
from modulekg_widgets.engine.pruning.plan.outcome import Outcome
from modulekg_widgets.engine.pruning.plan.precedents import Precedents
from modulekg_widgets.engine.pruning.plan.reference import agrees
from modulekg_widgets.engine.pruning.plan.selection import Selection
from modulekg_widgets.engine.pruning.plan.surroundings import Neighbourhood, Surroundings

MOST_TRIES = 40  # to find the axes along which a cut model gives other values
log = logging.getLogger("modulekg_widgets")
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
        self._known_to_go: dict[object, bool] = {}
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
        if self._is_proved(mended, found):
            return mended, found
        strict = replace(attempt, strict=True)
        mended, found = self.mended(strict)
        if self._agrees(mended, found):
            return mended, found
        return self._most_that_agrees(strict, mended)

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

    def _most_that_agrees(self, attempt: Attempt, mended: Attempt) -> tuple[Attempt, Rehearsal]:
        """The attempt without the axes along which the cut model gives other values, found by halves."""
        every = list(mended.selection.changed)
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
            trial = self.corrections.spared(attempt, [atom for atom in every if atom not in taken], unlike)
            tried = self.mended(trial)
            if tried[0].selection.changed and self._agrees(*tried):
                good, best = [*good, *part], tried
            elif len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
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
        return (found.explained and not affordable) or self._agrees(attempt, found)

    def _agrees(self, attempt: Attempt, found: Rehearsal) -> bool:
        return agrees(self.axes, attempt.selection.keeps(), self.edits(attempt), found.scales) is not False

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
        return affordable and agrees(self.axes, attempt.selection.keeps(), edits, found.scales) is not False

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
