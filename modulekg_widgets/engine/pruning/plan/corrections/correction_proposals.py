"""Proposals: which corrections may help where a dry run failed, in the order in which they are tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

from modulekg_widgets.engine.axes.terms.algebra import Term, find
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.corrections.correction_kinds import Corrections
from modulekg_widgets.engine.pruning.plan.corrections.failed_dry_run import FailedDryRun
from modulekg_widgets.engine.pruning.plan.corrections.line_attributes import line_attributes
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult, SizeRequest
from modulekg_widgets.engine.pruning.plan.selection.selection import SizeConstraint
from modulekg_widgets.engine.pruning.plan.selection.size_attributes import Attribute, attributes_of

MAX_SMALL_GROUP = 6
Option = TypeVar("Option")
Rerun = Callable[[PlanCandidate, int], DryRunResult]  # a dry run of what lies around an operator


class CorrectionProposals:
    """Proposes the candidates that may get past the operator at which a dry run failed.

    Most options have no effect where the dry run stopped. Several are tried together first, by `rerun`, and left out
    together.
    """

    def __init__(self, corrections: Corrections, rerun: Rerun) -> None:
        self.corrections = corrections
        self.rerun = rerun

    def candidates(self, failure: FailedDryRun) -> Iterator[PlanCandidate]:
        """The corrected candidates, the cheapest first."""
        yield from self._unmet(failure, _equal_parts(failure))
        if not failure.candidate.strict:
            yield from self._with_attribute(failure)
        yield from self._unmet(failure, _constraint_candidates(failure))
        yield from self._one_sided(failure)
        yield from self._with_pinned(failure)

    def _effective_options(
        self, failure: FailedDryRun, options: Sequence[Option], taken: Callable[[Sequence[Option]], PlanCandidate]
    ) -> Iterator[Option]:
        """The options that may help; groups without any effect together are skipped."""
        if len(options) > 2:
            mismatch = failure.mismatch
            if self.rerun(taken(options), mismatch.position).mismatch == mismatch:
                return
            middle = len(options) // 2
            yield from self._effective_options(failure, options[:middle], taken)
            yield from self._effective_options(failure, options[middle:], taken)
        else:
            yield from options

    # ------------------------------------------------------------ attributes

    def _with_attribute(self, failure: FailedDryRun) -> Iterator[PlanCandidate]:
        """Candidates in which an attribute with an old size follows it, those on the failing line first.

        Of the others, those of the module at work first, and those above it next.
        """
        candidate, mismatch = failure.candidate, failure.mismatch
        known = {attribute.identity for attribute in candidate.attribute_terms}
        tried: set[tuple[object, int]] = set()
        every: dict[Attribute, Term] = {}
        options = {each.identity: each for each in reversed(list(_nearby_attributes(failure)))}
        named = _attributes_on_line(failure)
        for on_the_line, term in product((True, False), failure.changed_dims()):
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

            for attribute in fitting if on_the_line else self._effective_options(failure, fitting, taken):
                following = self.corrections.with_attribute(candidate, attribute, term, mismatch.where)
                if following is not None:
                    yield following
        on_line = {each: term for each, term in every.items() if each.name.rpartition(".")[2] in named}
        if mismatch.requests and len(on_line) > 1:  # as `view(-1, self.groups, self.size // self.groups)`
            yield self.corrections.with_attributes(candidate, on_line, mismatch.where)
        if mismatch.error and not mismatch.requests and len(every) > 1:
            yield from self._with_joint_attributes(failure, every)

    def _with_joint_attributes(self, failure: FailedDryRun, every: Mapping[Attribute, Term]) -> Iterator[PlanCandidate]:
        """A candidate with all attributes at once, less those that are not needed.

        A call that raises names the first of its faults only, so that one correction alone comes no further; one that
        goes wrong earlier is of another number that happens to be the same.
        """
        candidate, mismatch = failure.candidate, failure.mismatch

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

    def _unmet(self, failure: FailedDryRun, constraints: Iterator[SizeConstraint]) -> Iterator[PlanCandidate]:
        """Candidates that meet a further constraint, of those that are not met yet."""
        candidate = failure.candidate
        for constraint in constraints:
            if not constraint.is_met(candidate.selection):
                found = self.corrections.with_constraint(candidate, constraint, failure.mismatch.where)
                if found is not None:
                    yield found

    def _one_sided(self, failure: FailedDryRun) -> Iterator[PlanCandidate]:
        """Candidates in which the other side of a size constraint is fixed."""
        candidate = failure.candidate
        for constraint in _constraint_candidates(failure):
            if constraint.right is None or constraint.is_met(candidate.selection):
                continue
            fixed = candidate.selection.free_atoms(constraint.right)
            where = failure.mismatch.where
            found = self.corrections.with_constraint(candidate, constraint, where, fixed) if fixed else None
            if found is not None:
                yield found

    # ---------------------------------------------------------- pinned axes

    def _with_pinned(self, failure: FailedDryRun) -> Iterator[PlanCandidate]:
        """Candidates that keep axes whole: requested ones, those of the operator, then of its modules."""

        def pinned(cut: Sequence[Term]) -> PlanCandidate:
            return self.corrections.with_pinned(failure.candidate, cut, failure.mismatch.where)

        groups = list(failure.cut_axes())
        # one alone is enough more often than not
        alone = list(dict.fromkeys(atom for group in groups if len(group) <= MAX_SMALL_GROUP for atom in group))
        for atom in self._effective_options(failure, alone, pinned):
            yield pinned([atom])
        tried = {frozenset([atom]) for atom in alone}
        for cut in groups:
            if cut and frozenset(cut) not in tried:
                tried.add(frozenset(cut))
                yield pinned(cut)

    def fewest_pinned(self, failure: FailedDryRun, trial: PlanCandidate, found: DryRunResult) -> PlanCandidate:
        """The candidate that keeps as few of the axes whole as suffices.

        `found`: how far `trial` came.
        """
        candidate, mismatch = failure.candidate, failure.mismatch
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


def _attributes_on_line(failure: FailedDryRun) -> frozenset[str]:
    """The attributes that the failing line of code reads."""
    operator = failure.mismatch.operator
    if operator is None or operator.source is None or failure.module is None:
        return frozenset()
    return line_attributes(type(failure.module.module), operator.source)


def _nearby_attributes(failure: FailedDryRun) -> Iterator[Attribute]:
    """The sizes that modules hold: the module at work, those above it, then those in it."""
    modules, path = failure.axes.graph.modules, failure.path
    above = [path]
    while path:
        path = path.rpartition(".")[0]
        above.append(path)
    inside = [other for other in modules if not failure.path or other.startswith(f"{failure.path}.")]
    for each in dict.fromkeys([*above, *inside]):
        if each in modules:
            yield from attributes_of(each, modules[each].module)


def _reaches_as_far(now: DryRunResult, before: DryRunResult) -> bool:
    """True if a dry run came at least as far as another one."""
    if now.mismatch is None or before.mismatch is None:
        return now.mismatch is None
    return now.mismatch.position >= before.mismatch.position


# -------------------- Size constraints that a failed dry run suggests


def _equal_parts(failure: FailedDryRun) -> Iterator[SizeConstraint]:
    """Constraints that parts of one operator, such as halves, stay equal."""
    operator = failure.mismatch.operator
    every = [failure.axes.inference.dims(node) for node in (operator.outputs if operator is not None else [])]
    for at in range(min(map(len, every), default=0)):
        first, *others = [dims[at] for dims in every]
        for other in others:
            if first.size == other.size and find(first) is not find(other):
                yield SizeConstraint(first, other)


def _constraint_candidates(failure: FailedDryRun) -> Iterator[SizeConstraint]:
    """Constraints of a dimension to the size of a nearby one, or to the requested number, the likeliest first."""
    selection, requests = failure.candidate.selection, failure.mismatch.requests
    near = failure.nearby_dims() if requests else failure.module_dims()
    for request in requests or _guessed_requests(failure):
        for other in near:
            times, rest = divmod(other.size, max(request.term.size, 1))
            fits = rest == 0 and selection.size(other) // times == request.asked
            if fits and find(other) is not find(request.term) and selection.free_atoms(request.term):
                yield SizeConstraint(request.term, other, times)
    for request in requests:
        yield from _divisibility_constraints(failure, request, near)
    for request in requests:
        if selection.free_atoms(request.term):
            yield SizeConstraint(request.term, None, request.asked)


def _divisibility_constraints(
    failure: FailedDryRun, request: SizeRequest, near: Sequence[Term]
) -> Iterator[SizeConstraint]:
    """Constraints for a requested quotient of sizes, as `width // heads`.

    The dimension that this is asked of keeps its planned size.
    """
    size = failure.candidate.selection.size
    for part, whole in product(near, near):
        was_so = part.size * request.term.size == whole.size and find(part) is not find(whole)
        if was_so and size(whole) // max(size(part), 1) == request.asked:
            yield SizeConstraint(part, whole, request.planned)


def _guessed_requests(failure: FailedDryRun) -> list[SizeRequest]:
    """Requests for equal sizes, if the requested size is unknown."""
    operator, size = failure.mismatch.operator, failure.candidate.selection.size
    near = failure.module_dims()
    found = []
    for node in operator.outputs if operator is not None else ():
        for term in failure.axes.inference.dims(node):
            for other in near:
                if term.size > 1 and other.size % term.size == 0:
                    asked = size(other) // (other.size // term.size)
                    if asked != size(term):
                        found.append(SizeRequest(term, size(term), asked))
    return found
