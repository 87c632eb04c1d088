"""Corrections of a candidate plan: attributes follow sizes, size constraints, and axes kept whole."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import product
from types import CodeType, FunctionType
from typing import Any, TypeVar

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, flattened_parts
from modulekg_widgets.engine.axes.terms.term_positions import adjacent_summands, subterms
from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.plan.corrections.candidate import (
    ATTRIBUTE,
    CONSTRAINT,
    PINNED,
    Change,
    PlanCandidate,
)
from modulekg_widgets.engine.pruning.plan.corrections.likely_constraints import LikelyConstraints
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import SizeConstraint, solve
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import DryRunResult, Mismatch
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.selection.shared_size import Attribute, attributes_of, shared_size_names
from modulekg_widgets.engine.tracing.source import Source

# -------------------- The attributes that one line of a class's code reads


@lru_cache(maxsize=1024)
def line_attributes(cls: type, source: Source) -> frozenset[str]:
    """The attribute names that the statement at a line reads; none for code of other files."""
    for function in _functions(cls):
        if function.__code__.co_filename == source.file and source.line in _lines(function.__code__):
            statement = _statement(function, source.line)
            return frozenset() if statement is None else frozenset(_attributes(statement))
    return frozenset()


def _functions(cls: type) -> Iterator[FunctionType]:
    for base in cls.__mro__:
        for value in vars(base).values():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            function = getattr(function, "__wrapped__", function)  # a decorator's
            if isinstance(function, FunctionType):
                yield function


def _lines(code: CodeType) -> set[int | None]:
    return {line for _, _, line in code.co_lines()}


def _statement(function: FunctionType, line: int) -> ast.stmt | None:
    """The innermost statement around a line."""
    try:
        text, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(text)))
    except (OSError, SyntaxError, TypeError):  # code without a file, or changed since
        return None
    at = line - first + 1
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and each.lineno <= at <= _last_line(each)]
    return max(around, key=lambda each: (each.lineno, -_last_line(each)), default=None)


def _last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _attributes(statement: ast.stmt) -> Iterator[str]:
    """The attribute names in a statement; for loops and conditions those in the head."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


# -------------------- Corresponding dimensions in modules of one class, by tensor name or input


DimLocation = tuple[
    str | int, int, int
]  # the tensor's name or its number among the inputs, the dimension, the part of that


def locate_dim(axes: Axes, term: Term, path: str) -> DimLocation | None:
    """The location of a term in a module: tensor or input, dimension, and part of it."""
    prefix = f"{path}." if path else ""
    below = ((name[len(prefix) :], node) for name, node in axes.graph.state.items() if name.startswith(prefix))
    for name, node in (*below, *enumerate(axes.graph.modules[path].inputs)):
        for at, whole in enumerate(axes.inference.dims(node)):
            for number, part in enumerate(subterms(whole)):
                if _term_key(part) == _term_key(term):
                    return name, at, number
    return None


def dim_at(axes: Axes, path: str, location: DimLocation) -> Term | None:
    """The term at a location of another module."""
    name, dim, number = location
    if isinstance(name, int):
        inputs = axes.graph.modules[path].inputs
        node = inputs[name] if name < len(inputs) else None
    else:
        node = axes.graph.state.get(f"{path}.{name}" if path else name)
    if node is None or dim >= node.dim():
        return None
    parts = subterms(axes.inference.dims(node)[dim])
    return parts[number] if number < len(parts) else None


def _term_key(term: Term) -> tuple[int, ...]:
    """The identity of a term, whose runs of factors are made anew each time."""
    return tuple(id(part) for part in flattened_parts(term))


# ----------------------------------------


MAX_SMALL_GROUP = 6
Option = TypeVar("Option")


class Corrections:
    """The possible corrections after a mismatch; each is a new candidate."""

    def __init__(self, axes: Axes, rerun: Callable[[PlanCandidate, int], DryRunResult]) -> None:
        self.axes = axes
        self.likely_constraints = LikelyConstraints(axes)
        self.rerun = rerun  # a dry run of what lies around an operator

    def candidates(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[PlanCandidate]:
        """The corrected candidates, the cheapest first."""
        yield from self.with_constraints(candidate, mismatch, self.likely_constraints.equal_parts(mismatch))
        if not candidate.strict:
            yield from self._attribute_candidates(candidate, mismatch)
        yield from self.with_constraints(candidate, mismatch, self.likely_constraints.constraints(candidate, mismatch))
        yield from self._one_sided_constraints(candidate, mismatch)
        yield from self._pinning_candidates(candidate, mismatch)

    def _effective_options(
        self, mismatch: Mismatch, options: Sequence[Option], taken: Callable[[Sequence[Option]], PlanCandidate | None]
    ) -> Iterator[Option]:
        """The options that may help; groups without any effect together are skipped."""
        if len(options) > 2:
            together = taken(options)
            if together is not None and self.rerun(together, mismatch.position).mismatch == mismatch:
                return
            middle = len(options) // 2
            yield from self._effective_options(mismatch, options[:middle], taken)
            yield from self._effective_options(mismatch, options[middle:], taken)
        else:
            yield from options

    # ------------------------------------------------------------ attributes

    def _attribute_candidates(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[PlanCandidate]:
        """Candidates in which an attribute with an old size follows it, those on the failing line first.

        Of the others, those of the module at work first, and those above it next.
        """
        known = {attribute.identity for attribute in candidate.attribute_terms}
        tried: set[tuple[Any, int]] = set()
        every: dict[Attribute, Term] = {}
        candidates = {each.identity: each for each in reversed(list(self._attributes(mismatch)))}
        named = self._attributes_on_line(mismatch)
        concerned = self._changed_dims(candidate, mismatch)
        for on_the_line, term in product((True, False), concerned):
            after = candidate.selection.size(term)
            fitting = [
                each
                for identity, each in reversed(candidates.items())
                if each.size == term.size and identity not in known and (identity, after) not in tried
                and (each.name.rpartition(".")[2] in named or not on_the_line)
            ]  # fmt: skip
            tried.update((each.identity, after) for each in fitting)  # whatever it follows, the number is the same
            for each in fitting:
                every.setdefault(each, term)

            def taken(options: Sequence[Attribute], term: Term = term) -> PlanCandidate:
                return replace(candidate, followers={**candidate.attribute_terms, **dict.fromkeys(options, term)})

            for attribute in fitting if on_the_line else self._effective_options(mismatch, fitting, taken):
                following = self.with_attribute(candidate, attribute, term, mismatch)
                if following is not None:
                    yield following
        on_line = {each: term for each, term in every.items() if each.name.rpartition(".")[2] in named}
        if mismatch.requests and len(on_line) > 1:
            yield self._with_attributes(
                candidate, on_line, mismatch
            )  # as `view(-1, self.groups, self.size // self.groups)`
        if mismatch.error and not mismatch.requests and len(every) > 1:
            yield from self._joint_attributes(candidate, every, mismatch)

    def _joint_attributes(
        self, candidate: PlanCandidate, every: dict[Attribute, Term], mismatch: Mismatch
    ) -> Iterator[PlanCandidate]:
        """A candidate with all attributes at once, less those that are not needed.

        A call that raises names the first of its faults only, so that one correction alone comes no further; one that
        goes wrong earlier is of another number that happens to be the same.
        """

        def end(taken: dict[Attribute, Term]) -> float:
            trial = self._with_attributes(candidate, taken, mismatch)
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
        yield self._with_attributes(candidate, every, mismatch)

    def _with_attributes(
        self, candidate: PlanCandidate, every: dict[Attribute, Term], mismatch: Mismatch
    ) -> PlanCandidate:
        for attribute, term in every.items():
            candidate = self.with_attribute(candidate, attribute, term, mismatch) or candidate
        return candidate

    def _attributes_on_line(self, mismatch: Mismatch) -> frozenset[str]:
        """The attributes that the failing line of code reads."""
        operator = mismatch.operator
        if operator is None or operator.source is None or operator.module not in self.axes.graph.modules:
            return frozenset()
        return line_attributes(type(self.axes.graph.modules[operator.module].module), operator.source)

    def with_attribute(
        self, candidate: PlanCandidate, attribute: Attribute, term: Term, mismatch: Mismatch
    ) -> PlanCandidate | None:
        """The candidate in which an attribute follows a size, in all modules of the class.

        A number that several modules hold together, as that of a common configuration, makes their sizes equal.
        """
        alike = self._corresponding_attributes(attribute, term, candidate)
        shared = tuple(
            SizeConstraint(term, other) for twin, other in alike.items() if twin.identity == attribute.identity
        )
        selection = candidate.selection
        if any(selection.size(constraint.right or term) != selection.size(term) for constraint in shared):
            found = solve(selection, (*candidate.constraints, *candidate.shared_constraints, *shared), candidate.wanted)
            if found is None:
                return None
            selection = found
        others = f", as {len(alike)} others of its class do" if len(alike) > 1 else ""
        one = ", one number for all" if shared and len(shared) == len(alike) else ""
        what = f"{attribute} follows {self._describe_term(term)}{others}{one}"
        change = Change(ATTRIBUTE, what, mismatch.where, self._axis_names([term]))
        return replace(
            candidate,
            selection=selection,
            shared=(*candidate.shared_constraints, *shared),
            followers={**candidate.attribute_terms, **alike, attribute: term},
            changes=(*candidate.changes, change),
        )

    def _attributes(self, mismatch: Mismatch) -> Iterator[Attribute]:
        modules = self.axes.graph.modules
        home = path = mismatch.operator.module if mismatch.operator is not None else ""
        seen: set[str] = set()
        while True:
            yield from self._module_attributes(path, seen)
            if not path:
                break
            path = path.rpartition(".")[0]
        for other in modules:
            if not home or other.startswith(f"{home}."):
                yield from self._module_attributes(other, seen)

    def _module_attributes(self, path: str, seen: set[str]) -> Iterator[Attribute]:
        if path in self.axes.graph.modules and path not in seen:
            seen.add(path)
            yield from attributes_of(path, self.axes.graph.modules[path].module)

    def _changed_dims(self, candidate: PlanCandidate, mismatch: Mismatch) -> list[Term]:
        """The changed dimensions at the mismatch with their factors and summands, requested ones first.

        Where code raised and named no size, what it got may be of the wrong one, as a first state of zeros: then it is
        the weights of the current module that count, and neighbouring summands count together, as two directions do.
        """
        terms = [term for request in mismatch.requests for term in subterms(request.term)]
        operator = mismatch.operator
        if operator is not None:
            nodes = [*operator.outputs, *operator.inputs]
            terms += [part for node in nodes for term in self.axes.inference.dims(node) for part in subterms(term)]
            if mismatch.error and not mismatch.requests and operator.module in self.axes.graph.modules:
                own = self.axes.graph.modules[operator.module].params.values()
                weighed = [term for node in own for term in self.axes.inference.dims(node)]
                terms += [part for term in weighed for part in (*subterms(term), *adjacent_summands(term))]
        return [term for term in dict.fromkeys(terms) if candidate.selection.size(term) != term.size]

    def _corresponding_attributes(
        self, attribute: Attribute, term: Term, candidate: PlanCandidate
    ) -> dict[Attribute, Term]:
        """The same attribute of other modules of the class, with the corresponding dimension."""
        modules = self.axes.graph.modules
        home = modules[attribute.module]
        place = locate_dim(self.axes, term, attribute.module)
        if place is None:
            return {}
        found: dict[Attribute, Term] = {}
        for path, node in modules.items():
            if type(node.module) is type(home.module) and path != attribute.module:
                other = dim_at(self.axes, path, place)
                twin = attribute.in_module(path, node.module)
                if (
                    other is not None
                    and twin is not None
                    and twin not in candidate.attribute_terms
                    and twin.size == other.size
                ):
                    found[twin] = other
        return found

    # ------------------------------------------------------ size constraints

    def with_constraints(
        self,
        candidate: PlanCandidate,
        mismatch: Mismatch,
        constraints: Iterable[SizeConstraint],
        include_met: bool = False,
    ) -> Iterator[PlanCandidate]:
        """Candidates with the nearest sizes that meet a further size constraint.

        `include_met`: also where it holds already, as a search over other sizes has to know of it.
        """
        for constraint in constraints:
            if not constraint.is_met(candidate.selection):
                every = (*candidate.constraints, *candidate.shared_constraints, constraint)
                selection = solve(candidate.selection, every, candidate.wanted)
                if selection is not None:
                    yield self._with_sizes(candidate, mismatch, constraint, selection)
            elif include_met and constraint not in candidate.constraints:
                yield self._with_sizes(candidate, mismatch, constraint, candidate.selection)

    def _one_sided_constraints(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[PlanCandidate]:
        """Candidates in which the other side of a size constraint is fixed."""
        open_ones = (
            each
            for each in self.likely_constraints.constraints(candidate, mismatch)
            if not each.is_met(candidate.selection)
        )
        for constraint in open_ones:
            held = [] if constraint.right is None else candidate.selection.free_atoms(constraint.right)
            every = (*candidate.constraints, *candidate.shared_constraints, constraint)
            selection = solve(candidate.selection, every, candidate.wanted, held) if held else None
            if selection is not None:
                yield self._with_sizes(candidate, mismatch, constraint, selection)

    def _with_sizes(
        self, candidate: PlanCandidate, mismatch: Mismatch, constraint: SizeConstraint, selection: Selection
    ) -> PlanCandidate:
        terms = [constraint.left, *([constraint.right] if constraint.right else [])]
        change = Change(
            CONSTRAINT, self.describe_constraint(constraint, selection), mismatch.where, self._axis_names(terms)
        )
        return replace(
            candidate,
            selection=selection,
            constraints=(*candidate.constraints, constraint),
            changes=(*candidate.changes, change),
        )

    def describe_constraint(self, constraint: SizeConstraint, selection: Selection) -> str:
        left = (
            f"{self._describe_term(constraint.left)} keeps {selection.size(constraint.left)} of {constraint.left.size}"
        )
        if constraint.right is None:
            return left
        text = f"{left}, tied to {self._describe_term(constraint.right)}"
        every = [*atoms(constraint.left), *atoms(constraint.right)]
        shared = [self._shared_sizes[atom] for atom in every if atom in self._shared_sizes]
        stays = selection.size(constraint.left) == constraint.left.size
        return text + self._shared_size_note(*shared[0]) if stays and shared else text

    # --------------------------------------------------------------- sparing

    def _pinning_candidates(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[PlanCandidate]:
        """Candidates that keep axes whole: requested ones, those of the operator, then of its modules."""
        groups = list(self._axis_groups(candidate, mismatch))
        # one alone is enough more often than not
        alone = list(dict.fromkeys(atom for group in groups if len(group) <= MAX_SMALL_GROUP for atom in group))
        for atom in self._effective_options(
            mismatch, alone, lambda atoms: self.with_pinned(candidate, list(atoms), mismatch)
        ):
            yield self.with_pinned(candidate, [atom], mismatch)
        tried = {frozenset([atom]) for atom in alone}
        for cut in groups:
            if cut and frozenset(cut) not in tried:
                tried.add(frozenset(cut))
                yield self.with_pinned(candidate, cut, mismatch)

    def with_pinned(self, candidate: PlanCandidate, cut: list[Term], mismatch: Mismatch) -> PlanCandidate:
        """The candidate with some axes kept whole."""
        names = ", ".join(self.axes.of(atom).name for atom in cut[:3]) + (", …" if len(cut) > 3 else "")
        what = f"{names} stays whole{self._shared_size_reason(candidate, cut)}"
        change = Change(PINNED, what, mismatch.where, self._axis_names(cut))
        return replace(
            candidate, selection=candidate.selection.pin(cut, mismatch.where), changes=(*candidate.changes, change)
        )

    def _shared_size_reason(self, candidate: PlanCandidate, cut: Sequence[Term]) -> str:
        """The reason that one number of a module is the size of several axes, or ""."""
        for number, group in (self._shared_sizes[atom] for atom in cut if atom in self._shared_sizes):
            if len({candidate.wanted.get(atom, atom.size) for atom in group}) > 1:
                return self._shared_size_note(number, group)
        return ""

    def _shared_size_note(self, number: str, group: Sequence[Term]) -> str:
        names = ", ".join(printable(self.axes.of(atom).name) for atom in group[:MAX_SMALL_GROUP])
        more = ", …" if len(group) > MAX_SMALL_GROUP else ""
        return f", for {number} is one number for {names}{more}, which can only go alike"

    @cached_property
    def _shared_sizes(self) -> dict[Term, tuple[str, tuple[Term, ...]]]:
        return shared_size_names(self.axes.free)

    def fewest_pinned(
        self, candidate: PlanCandidate, mismatch: Mismatch, trial: PlanCandidate, found: DryRunResult
    ) -> PlanCandidate:
        """The candidate that keeps as few of these axes whole as suffices.

        `found`: how far `trial` came.
        """
        cut = [atom for atom in trial.selection.pinned if atom not in candidate.selection.pinned]
        size = len(cut) // 2
        while size and len(cut) > 2:
            start = 0
            while start < len(cut) > 1:
                fewer = cut[:start] + cut[start + size :]
                other = self.with_pinned(candidate, fewer, mismatch)
                result = self.rerun(other, mismatch.position)
                if fewer and _reaches_as_far(result, found):
                    cut, trial, found = fewer, other, result
                else:
                    start += size
            size //= 2
        return trial

    def _axis_groups(self, candidate: PlanCandidate, mismatch: Mismatch) -> Iterator[list[Term]]:
        for request in mismatch.requests:
            yield candidate.selection.cut_atoms(request.term)
        yield [atom for request in mismatch.requests for atom in candidate.selection.cut_atoms(request.term)]
        operator = mismatch.operator
        nodes: list[Any] = []
        if operator is not None:
            nodes = [*operator.inputs, *operator.outputs]
            yield self._cut_axes_of(candidate, nodes)
        path = operator.module if operator is not None else ""
        while True:
            module = self.axes.graph.modules.get(path)
            if module is not None:
                nodes += [*module.inputs, *module.outputs, *module.params.values()]
                yield self._cut_axes_of(candidate, nodes)
                for each in module.operators:
                    nodes += [*each.inputs, *each.outputs]
                yield self._cut_axes_of(candidate, nodes)
            if not path:
                return
            path = path.rpartition(".")[0]

    def _cut_axes_of(self, candidate: PlanCandidate, nodes: list[Any]) -> list[Term]:
        found: dict[Term, None] = {}
        for node in dict.fromkeys(nodes):
            for term in self.axes.inference.dims(node):
                found.update(dict.fromkeys(candidate.selection.cut_atoms(term)))
        return list(found)

    def _describe_term(self, term: Term) -> str:
        return " · ".join(self._axis_names([term])[:3])

    def _axis_names(self, terms: Iterable[Term]) -> tuple[str, ...]:
        """The names of the axes in some dimensions."""
        inside = (atom for term in terms for atom in atoms(term) if atom.size > 1)
        return tuple(dict.fromkeys(self.axes.of(atom).name for atom in inside))


def _reaches_as_far(now: DryRunResult, before: DryRunResult) -> bool:
    """True if a dry run came at least as far as another one."""
    if now.mismatch is None or before.mismatch is None:
        return now.mismatch is None
    return now.mismatch.position >= before.mismatch.position
