"""The corrections that may make a plan run: an attribute follows a size, sizes meet constraints, axes stay whole."""

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
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, flat
from modulekg_widgets.engine.axes.terms.expression import neighbours, parts_of
from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, CONSTRAINT, WHOLE, Attempt, Change
from modulekg_widgets.engine.pruning.plan.corrections.likely_constraints import LikelyConstraints
from modulekg_widgets.engine.pruning.plan.corrections.size_constraints import SizeConstraint, solved
from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import Mismatch, Rehearsal
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.pruning.plan.selection.shared_size import Attribute, attributes_of, one_number_names
from modulekg_widgets.engine.tracing.source import Source

# -------------------- The attributes that one line of a class's code reads, by name


@lru_cache(maxsize=1024)
def names_read(cls: type, source: Source) -> frozenset[str]:
    """The names of the attributes that the statement at a line reads; none where the line is not the class's own."""
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
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and each.lineno <= at <= _end(each)]
    return max(around, key=lambda each: (each.lineno, -_end(each)), default=None)


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _attributes(statement: ast.stmt) -> Iterator[str]:
    """Of a loop or a condition those of its head."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


# --------------------
# Corresponding dimensions in several modules of one class: of a tensor that they hold, or of an input.


Place = tuple[str | int, int, int]  # the tensor's name or its number among the inputs, the dimension, the part of that


def place_of(axes: Axes, term: Term, path: str) -> Place | None:
    """A tensor that a module holds or an input, a dimension of it, and which part of that the term is."""
    prefix = f"{path}." if path else ""
    below = ((name[len(prefix) :], node) for name, node in axes.graph.state.items() if name.startswith(prefix))
    for name, node in (*below, *enumerate(axes.graph.modules[path].inputs)):
        for at, whole in enumerate(axes.inference.dims(node)):
            for number, part in enumerate(parts_of(whole)):
                if _key(part) == _key(term):
                    return name, at, number
    return None


def term_at(axes: Axes, path: str, place: Place) -> Term | None:
    """The term at the same place of another module."""
    name, dim, number = place
    if isinstance(name, int):
        inputs = axes.graph.modules[path].inputs
        node = inputs[name] if name < len(inputs) else None
    else:
        node = axes.graph.state.get(f"{path}.{name}" if path else name)
    if node is None or dim >= node.dim():
        return None
    parts = parts_of(axes.inference.dims(node)[dim])
    return parts[number] if number < len(parts) else None


def _key(term: Term) -> tuple[int, ...]:
    """What identifies a term: runs of factors are made anew each time."""
    return tuple(id(part) for part in flat(term))


# ----------------------------------------


FEW = 6
Option = TypeVar("Option")


class Corrections:
    """What may be tried where a dry run went another way; each is a new attempt."""

    def __init__(self, axes: Axes, near: Callable[[Attempt, int], Rehearsal]) -> None:
        self.axes = axes
        self.likely = LikelyConstraints(axes)
        self.near = near  # a dry run of what lies around an operator

    def of(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[Attempt]:
        """The corrections, those that cost least first."""
        yield from self.constrained(attempt, mismatch, self.likely.equal_parts(mismatch))
        if not attempt.strict:
            yield from self._by_attributes(attempt, mismatch)
        yield from self.constrained(attempt, mismatch, self.likely.of(attempt, mismatch))
        yield from self._one_sided(attempt, mismatch)
        yield from self._by_sparing(attempt, mismatch)

    def _effective(
        self, mismatch: Mismatch, options: Sequence[Option], taken: Callable[[Sequence[Option]], Attempt | None]
    ) -> Iterator[Option]:
        """The options that may help; options that change nothing together are skipped, as they change nothing alone."""
        if len(options) > 2:
            together = taken(options)
            if together is not None and self.near(together, mismatch.position).mismatch == mismatch:
                return
            middle = len(options) // 2
            yield from self._effective(mismatch, options[:middle], taken)
            yield from self._effective(mismatch, options[middle:], taken)
        else:
            yield from options

    # ------------------------------------------------------------ attributes

    def _by_attributes(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[Attempt]:
        """Let an attribute that holds an old size follow it: first those that the line of code reads.

        Of the others, those of the module at work first, and those above it next.
        """
        known = {attribute.identity for attribute in attempt.followers}
        tried: set[tuple[Any, int]] = set()
        every: dict[Attribute, Term] = {}
        candidates = {each.identity: each for each in reversed(list(self._attributes(mismatch)))}
        named = self._named(mismatch)
        concerned = self._concerned(attempt, mismatch)
        for on_the_line, term in product((True, False), concerned):
            after = attempt.selection.size(term)
            fitting = [
                each
                for identity, each in reversed(candidates.items())
                if each.size == term.size and identity not in known and (identity, after) not in tried
                and (each.name.rpartition(".")[2] in named or not on_the_line)
            ]  # fmt: skip
            tried.update((each.identity, after) for each in fitting)  # whatever it follows, the number is the same
            for each in fitting:
                every.setdefault(each, term)

            def taken(options: Sequence[Attribute], term: Term = term) -> Attempt:
                return replace(attempt, followers={**attempt.followers, **dict.fromkeys(options, term)})

            for attribute in fitting if on_the_line else self._effective(mismatch, fitting, taken):
                following = self.following(attempt, attribute, term, mismatch)
                if following is not None:
                    yield following
        on_line = {each: term for each, term in every.items() if each.name.rpartition(".")[2] in named}
        if mismatch.requests and len(on_line) > 1:
            yield self._all_following(
                attempt, on_line, mismatch
            )  # as `view(-1, self.groups, self.size // self.groups)`
        if mismatch.error and not mismatch.requests and len(every) > 1:
            yield from self._together(attempt, every, mismatch)

    def _together(self, attempt: Attempt, every: dict[Attribute, Term], mismatch: Mismatch) -> Iterator[Attempt]:
        """Where a call takes several values of wrong sizes: all attributes at once, less those that are not needed.

        A call that raises names the first of its faults only, so that one correction alone comes no further; one that
        goes wrong earlier is of another number that happens to be the same.
        """

        def end(taken: dict[Attribute, Term]) -> float:
            trial = self._all_following(attempt, taken, mismatch)
            found = self.near(trial, mismatch.position).mismatch
            return math.inf if found is None else found.position

        every = {each: term for each, term in every.items() if end({each: term}) >= mismatch.position}
        best = end(every)
        if best <= mismatch.position:
            return
        for attribute in list(every):
            fewer = {each: term for each, term in every.items() if each != attribute}
            if end(fewer) >= best:
                every = fewer
        yield self._all_following(attempt, every, mismatch)

    def _all_following(self, attempt: Attempt, every: dict[Attribute, Term], mismatch: Mismatch) -> Attempt:
        for attribute, term in every.items():
            attempt = self.following(attempt, attribute, term, mismatch) or attempt
        return attempt

    def _named(self, mismatch: Mismatch) -> frozenset[str]:
        """The attributes that the line of code itself reads."""
        operator = mismatch.operator
        if operator is None or operator.source is None or operator.module not in self.axes.graph.modules:
            return frozenset()
        return names_read(type(self.axes.graph.modules[operator.module].module), operator.source)

    def following(self, attempt: Attempt, attribute: Attribute, term: Term, mismatch: Mismatch) -> Attempt | None:
        """The attempt in which an attribute follows a size, that of the other modules of its class as well.

        A number that several modules hold together, as that of a common configuration, makes their sizes equal.
        """
        alike = self._alike(attribute, term, attempt)
        shared = tuple(
            SizeConstraint(term, other) for twin, other in alike.items() if twin.identity == attribute.identity
        )
        selection = attempt.selection
        if any(selection.size(constraint.right or term) != selection.size(term) for constraint in shared):
            found = solved(selection, (*attempt.constraints, *attempt.shared, *shared), attempt.wanted)
            if found is None:
                return None
            selection = found
        others = f", as {len(alike)} others of its class do" if len(alike) > 1 else ""
        one = ", one number for all" if shared and len(shared) == len(alike) else ""
        what = f"{attribute} follows {self._written(term)}{others}{one}"
        change = Change(ATTRIBUTE, what, mismatch.where, self._names([term]))
        return replace(
            attempt,
            selection=selection,
            shared=(*attempt.shared, *shared),
            followers={**attempt.followers, **alike, attribute: term},
            changes=(*attempt.changes, change),
        )

    def _attributes(self, mismatch: Mismatch) -> Iterator[Attribute]:
        modules = self.axes.graph.modules
        home = path = mismatch.operator.module if mismatch.operator is not None else ""
        seen: set[str] = set()
        while True:
            yield from self._own(path, seen)
            if not path:
                break
            path = path.rpartition(".")[0]
        for other in modules:
            if not home or other.startswith(f"{home}."):
                yield from self._own(other, seen)

    def _own(self, path: str, seen: set[str]) -> Iterator[Attribute]:
        if path in self.axes.graph.modules and path not in seen:
            seen.add(path)
            yield from attributes_of(path, self.axes.graph.modules[path].module)

    def _concerned(self, attempt: Attempt, mismatch: Mismatch) -> list[Term]:
        """The dimensions that change where the runs part, and their factors and summands, the requested ones first.

        Where code raised and named no size, what it got may be of the wrong one, as a first state of zeros: then it is
        the weights of the current module that count, and neighbouring summands count together, as two directions do.
        """
        terms = [term for request in mismatch.requests for term in parts_of(request.term)]
        operator = mismatch.operator
        if operator is not None:
            nodes = [*operator.outputs, *operator.inputs]
            terms += [part for node in nodes for term in self.axes.inference.dims(node) for part in parts_of(term)]
            if mismatch.error and not mismatch.requests and operator.module in self.axes.graph.modules:
                own = self.axes.graph.modules[operator.module].params.values()
                weighed = [term for node in own for term in self.axes.inference.dims(node)]
                terms += [part for term in weighed for part in (*parts_of(term), *neighbours(term))]
        return [term for term in dict.fromkeys(terms) if attempt.selection.size(term) != term.size]

    def _alike(self, attribute: Attribute, term: Term, attempt: Attempt) -> dict[Attribute, Term]:
        """The same attribute of the other modules of that class, where it goes by the same dimension of their own."""
        modules = self.axes.graph.modules
        home = modules[attribute.module]
        place = place_of(self.axes, term, attribute.module)
        if place is None:
            return {}
        found: dict[Attribute, Term] = {}
        for path, node in modules.items():
            if type(node.module) is type(home.module) and path != attribute.module:
                other = term_at(self.axes, path, place)
                twin = attribute.at(path, node.module)
                if other is not None and twin is not None and twin not in attempt.followers and twin.size == other.size:
                    found[twin] = other
        return found

    # ------------------------------------------------------ size constraints

    def constrained(
        self, attempt: Attempt, mismatch: Mismatch, constraints: Iterable[SizeConstraint], may_hold: bool = False
    ) -> Iterator[Attempt]:
        """The nearest sizes with which a size constraint holds as well as those found before.

        `may_hold`: also where it holds already, as a search over other sizes has to know of it.
        """
        for constraint in constraints:
            if not constraint.holds(attempt.selection):
                every = (*attempt.constraints, *attempt.shared, constraint)
                selection = solved(attempt.selection, every, attempt.wanted)
                if selection is not None:
                    yield self._with_sizes(attempt, mismatch, constraint, selection)
            elif may_hold and constraint not in attempt.constraints:
                yield self._with_sizes(attempt, mismatch, constraint, attempt.selection)

    def _one_sided(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[Attempt]:
        """The same with the size that another one is tied to as it is: more may be tied to it, so far by chance."""
        open_ones = (each for each in self.likely.of(attempt, mismatch) if not each.holds(attempt.selection))
        for constraint in open_ones:
            held = [] if constraint.right is None else attempt.selection.free(constraint.right)
            every = (*attempt.constraints, *attempt.shared, constraint)
            selection = solved(attempt.selection, every, attempt.wanted, held) if held else None
            if selection is not None:
                yield self._with_sizes(attempt, mismatch, constraint, selection)

    def _with_sizes(
        self, attempt: Attempt, mismatch: Mismatch, constraint: SizeConstraint, selection: Selection
    ) -> Attempt:
        terms = [constraint.left, *([constraint.right] if constraint.right else [])]
        change = Change(CONSTRAINT, self.described(constraint, selection), mismatch.where, self._names(terms))
        return replace(
            attempt,
            selection=selection,
            constraints=(*attempt.constraints, constraint),
            changes=(*attempt.changes, change),
        )

    def described(self, constraint: SizeConstraint, selection: Selection) -> str:
        left = f"{self._written(constraint.left)} keeps {selection.size(constraint.left)} of {constraint.left.size}"
        if constraint.right is None:
            return left
        text = f"{left}, tied to {self._written(constraint.right)}"
        every = [*atoms(constraint.left), *atoms(constraint.right)]
        shared = [self._one_number[atom] for atom in every if atom in self._one_number]
        stays = selection.size(constraint.left) == constraint.left.size
        return text + self._of_one_number(*shared[0]) if stays and shared else text

    # --------------------------------------------------------------- sparing

    def _by_sparing(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[Attempt]:
        """Keep axes whole: those requested, those of the operator, those of its module, those of the modules above."""
        groups = list(self._groups(attempt, mismatch))
        # one alone is enough more often than not
        alone = list(dict.fromkeys(atom for group in groups if len(group) <= FEW for atom in group))
        for atom in self._effective(mismatch, alone, lambda atoms: self.spared(attempt, list(atoms), mismatch)):
            yield self.spared(attempt, [atom], mismatch)
        tried = {frozenset([atom]) for atom in alone}
        for cut in groups:
            if cut and frozenset(cut) not in tried:
                tried.add(frozenset(cut))
                yield self.spared(attempt, cut, mismatch)

    def spared(self, attempt: Attempt, cut: list[Term], mismatch: Mismatch) -> Attempt:
        """The attempt with some axes kept whole."""
        names = ", ".join(self.axes.of(atom).name for atom in cut[:3]) + (", …" if len(cut) > 3 else "")
        what = f"{names} stays whole{self._for_one_number(attempt, cut)}"
        change = Change(WHOLE, what, mismatch.where, self._names(cut))
        return replace(
            attempt, selection=attempt.selection.pin(cut, mismatch.where), changes=(*attempt.changes, change)
        )

    def _for_one_number(self, attempt: Attempt, cut: Sequence[Term]) -> str:
        """The number of a module that has to be one for an axis and others of which not as many were to stay."""
        for number, group in (self._one_number[atom] for atom in cut if atom in self._one_number):
            if len({attempt.wanted.get(atom, atom.size) for atom in group}) > 1:
                return self._of_one_number(number, group)
        return ""

    def _of_one_number(self, number: str, group: Sequence[Term]) -> str:
        names = ", ".join(shown(self.axes.of(atom).name) for atom in group[:FEW])
        more = ", …" if len(group) > FEW else ""
        return f", for {number} is one number for {names}{more}, which can only go alike"

    @cached_property
    def _one_number(self) -> dict[Term, tuple[str, tuple[Term, ...]]]:
        return one_number_names(self.axes.free)

    def fewest(self, attempt: Attempt, mismatch: Mismatch, trial: Attempt, found: Rehearsal) -> Attempt:
        """The correction that spares as few of these axes as will do: each obstacle keeps only the axes that it needs.

        `found`: how far `trial` came.
        """
        cut = [atom for atom in trial.selection.pinned if atom not in attempt.selection.pinned]
        size = len(cut) // 2
        while size and len(cut) > 2:
            start = 0
            while start < len(cut) > 1:
                fewer = cut[:start] + cut[start + size :]
                other = self.spared(attempt, fewer, mismatch)
                result = self.near(other, mismatch.position)
                if fewer and _as_far(result, found):
                    cut, trial, found = fewer, other, result
                else:
                    start += size
            size //= 2
        return trial

    def _groups(self, attempt: Attempt, mismatch: Mismatch) -> Iterator[list[Term]]:
        for request in mismatch.requests:
            yield attempt.selection.cut(request.term)
        yield [atom for request in mismatch.requests for atom in attempt.selection.cut(request.term)]
        operator = mismatch.operator
        nodes: list[Any] = []
        if operator is not None:
            nodes = [*operator.inputs, *operator.outputs]
            yield self._cut_in(attempt, nodes)
        path = operator.module if operator is not None else ""
        while True:
            module = self.axes.graph.modules.get(path)
            if module is not None:
                nodes += [*module.inputs, *module.outputs, *module.params.values()]
                yield self._cut_in(attempt, nodes)
                for each in module.operators:
                    nodes += [*each.inputs, *each.outputs]
                yield self._cut_in(attempt, nodes)
            if not path:
                return
            path = path.rpartition(".")[0]

    def _cut_in(self, attempt: Attempt, nodes: list[Any]) -> list[Term]:
        found: dict[Term, None] = {}
        for node in dict.fromkeys(nodes):
            for term in self.axes.inference.dims(node):
                found.update(dict.fromkeys(attempt.selection.cut(term)))
        return list(found)

    def _written(self, term: Term) -> str:
        return " · ".join(self._names([term])[:3])

    def _names(self, terms: Iterable[Term]) -> tuple[str, ...]:
        """The axes in some dimensions."""
        inside = (atom for term in terms for atom in atoms(term) if atom.size > 1)
        return tuple(dict.fromkeys(self.axes.of(atom).name for atom in inside))


def _as_far(now: Rehearsal, before: Rehearsal) -> bool:
    """Whether a dry run came at least as far as another one."""
    if now.mismatch is None or before.mismatch is None:
        return now.mismatch is None
    return now.mismatch.position >= before.mismatch.position
