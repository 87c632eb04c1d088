"""Proposals of corrections where a dry run stopped, the cheapest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.corrections import Corrections
from modulekg_widgets.engine.pruning.plan.corrections.line_attributes import line_attributes
from modulekg_widgets.engine.pruning.plan.corrections.size_conflict import (
    SizeConflict,
    constraint_candidates,
    equal_parts,
)
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult
from modulekg_widgets.engine.pruning.plan.selection.selection import SizeConstraint
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import Attribute, attributes_of

MAX_SMALL_GROUP = 6
Option = TypeVar("Option")
Rerun = Callable[[PlanCandidate, int], DryRunResult]  # a dry run of what lies around an operator


class CorrectionProposals:
    """Proposes the candidates that may get past a conflict.

    Most options have no effect where the dry run stopped. Several are tried together first, by `rerun`, and left out
    together.
    """

    def __init__(self, corrections: Corrections, rerun: Rerun) -> None:
        self.corrections = corrections
        self.rerun = rerun

    def candidates(self, conflict: SizeConflict) -> Iterator[PlanCandidate]:
        """The corrected candidates, the cheapest first."""
        yield from self._unmet(conflict, equal_parts(conflict))
        if not conflict.candidate.strict:
            yield from self._with_attribute(conflict)
        yield from self._unmet(conflict, constraint_candidates(conflict))
        yield from self._one_sided(conflict)
        yield from self._with_pinned(conflict)

    def _effective_options(
        self, conflict: SizeConflict, options: Sequence[Option], taken: Callable[[Sequence[Option]], PlanCandidate]
    ) -> Iterator[Option]:
        """The options that may help; groups without any effect together are skipped."""
        if len(options) > 2:
            mismatch = conflict.mismatch
            if self.rerun(taken(options), mismatch.position).mismatch == mismatch:
                return
            middle = len(options) // 2
            yield from self._effective_options(conflict, options[:middle], taken)
            yield from self._effective_options(conflict, options[middle:], taken)
        else:
            yield from options

    # ------------------------------------------------------------ attributes

    def _with_attribute(self, conflict: SizeConflict) -> Iterator[PlanCandidate]:
        """Candidates in which an attribute with an old size follows it, those on the failing line first.

        Of the others, those of the module at work first, and those above it next.
        """
        candidate, mismatch = conflict.candidate, conflict.mismatch
        known = {attribute.identity for attribute in candidate.attribute_terms}
        tried: set[tuple[object, int]] = set()
        every: dict[Attribute, Term] = {}
        options = {each.identity: each for each in reversed(list(_nearby_attributes(conflict)))}
        named = _attributes_on_line(conflict)
        for on_the_line, term in product((True, False), conflict.changed_dims()):
            after = candidate.selection.size(term)
            fitting = [
                each
                for identity, each in reversed(options.items())
                if each.size == term.size and identity not in known and (identity, after) not in tried
                and (each.name.rpartition(".")[2] in named or not on_the_line)
            ]  # fmt: skip
            tried.update((each.identity, after) for each in fitting)  # whatever it follows, the number is the same
            for each in fitting:
                every.setdefault(each, term)

            def taken(attributes: Sequence[Attribute], term: Term = term) -> PlanCandidate:
                return candidate.with_followers(dict.fromkeys(attributes, term))

            for attribute in fitting if on_the_line else self._effective_options(conflict, fitting, taken):
                following = self.corrections.with_attribute(candidate, attribute, term, mismatch.where)
                if following is not None:
                    yield following
        on_line = {each: term for each, term in every.items() if each.name.rpartition(".")[2] in named}
        if mismatch.requests and len(on_line) > 1:  # as `view(-1, self.groups, self.size // self.groups)`
            yield self.corrections.with_attributes(candidate, on_line, mismatch.where)
        if mismatch.error and not mismatch.requests and len(every) > 1:
            yield from self._with_joint_attributes(conflict, every)

    def _with_joint_attributes(
        self, conflict: SizeConflict, every: Mapping[Attribute, Term]
    ) -> Iterator[PlanCandidate]:
        """A candidate with all attributes at once, less those that are not needed.

        A call that raises names the first of its faults only, so that one correction alone comes no further; one that
        goes wrong earlier is of another number that happens to be the same.
        """
        candidate, mismatch = conflict.candidate, conflict.mismatch

        def end(taken: Mapping[Attribute, Term]) -> float:
            trial = self.corrections.with_attributes(candidate, taken, mismatch.where)
            found = self.rerun(trial, mismatch.position).mismatch
            return math.inf if found is None else found.position

        every = {each: term for each, term in every.items() if end({each: term}) >= mismatch.position}
        best = end(every)
        if best <= mismatch.position:
            return
        for attribute in list(every):
            fewer = {each: term for each, term in every.items() if each != attribute}
            if end(fewer) >= best:
                every = fewer
        yield self.corrections.with_attributes(candidate, every, mismatch.where)

    # ------------------------------------------------------ size constraints

    def _unmet(self, conflict: SizeConflict, constraints: Iterator[SizeConstraint]) -> Iterator[PlanCandidate]:
        """Candidates that meet a further constraint, of those that are not met yet."""
        candidate = conflict.candidate
        for constraint in constraints:
            if not constraint.is_met(candidate.selection):
                found = self.corrections.with_constraint(candidate, constraint, conflict.mismatch.where)
                if found is not None:
                    yield found

    def _one_sided(self, conflict: SizeConflict) -> Iterator[PlanCandidate]:
        """Candidates in which the other side of a size constraint is fixed."""
        candidate = conflict.candidate
        for constraint in constraint_candidates(conflict):
            if constraint.right is None or constraint.is_met(candidate.selection):
                continue
            fixed = candidate.selection.free_atoms(constraint.right)
            where = conflict.mismatch.where
            found = self.corrections.with_constraint(candidate, constraint, where, fixed) if fixed else None
            if found is not None:
                yield found

    # ---------------------------------------------------------- pinned axes

    def _with_pinned(self, conflict: SizeConflict) -> Iterator[PlanCandidate]:
        """Candidates that keep axes whole: requested ones, those of the operator, then of its modules."""

        def pinned(cut: Sequence[Term]) -> PlanCandidate:
            return self.corrections.with_pinned(conflict.candidate, cut, conflict.mismatch.where)

        groups = list(conflict.cut_axes())
        # one alone is enough more often than not
        alone = list(dict.fromkeys(atom for group in groups if len(group) <= MAX_SMALL_GROUP for atom in group))
        for atom in self._effective_options(conflict, alone, pinned):
            yield pinned([atom])
        tried = {frozenset([atom]) for atom in alone}
        for cut in groups:
            if cut and frozenset(cut) not in tried:
                tried.add(frozenset(cut))
                yield pinned(cut)

    def fewest_pinned(self, conflict: SizeConflict, trial: PlanCandidate, found: DryRunResult) -> PlanCandidate:
        """The candidate that keeps as few of the axes whole as suffices.

        `found`: how far `trial` came.
        """
        candidate, mismatch = conflict.candidate, conflict.mismatch
        cut = [atom for atom in trial.selection.pinned if atom not in candidate.selection.pinned]
        size = len(cut) // 2
        while size and len(cut) > 2:
            start = 0
            while start < len(cut) > 1:
                fewer = cut[:start] + cut[start + size :]
                other = self.corrections.with_pinned(candidate, fewer, mismatch.where)
                result = self.rerun(other, mismatch.position)
                if fewer and _reaches_as_far(result, found):
                    cut, trial, found = fewer, other, result
                else:
                    start += size
            size //= 2
        return trial


def _attributes_on_line(conflict: SizeConflict) -> frozenset[str]:
    """The attributes that the failing line of code reads."""
    operator = conflict.mismatch.operator
    if operator is None or operator.source is None or conflict.module is None:
        return frozenset()
    return line_attributes(type(conflict.module.module), operator.source)


def _nearby_attributes(conflict: SizeConflict) -> Iterator[Attribute]:
    """The sizes that modules hold: the module at work, those above it, then those in it."""
    modules, path = conflict.axes.graph.modules, conflict.path
    above = [path]
    while path:
        path = path.rpartition(".")[0]
        above.append(path)
    inside = [other for other in modules if not conflict.path or other.startswith(f"{conflict.path}.")]
    for each in dict.fromkeys([*above, *inside]):
        if each in modules:
            yield from attributes_of(each, modules[each].module)


def _reaches_as_far(now: DryRunResult, before: DryRunResult) -> bool:
    """True if a dry run came at least as far as another one."""
    if now.mismatch is None or before.mismatch is None:
        return now.mismatch is None
    return now.mismatch.position >= before.mismatch.position
