"""Plans with `layers="uniform"`: repeated layers of one size, as a model's configuration can express.

Each number of the configuration says the sizes that move with it (`saving/config_numbers`). So the axes that
one number counts keep one share, and an axis that none counts stays whole: `_Equations` solves that for all
axes at once. The plan that follows is proved: the cut model is compared with the one that the configuration
builds. Where code computes with a number while it runs, that number stays, and the plan is made again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.plan.configured_model import ConfigComparison, factors, numbers_of_model, read_dims
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.repeated_layers import ConfigConstraints
from modulekg_widgets.engine.pruning.plan.unused_parameters import unused_facts
from modulekg_widgets.engine.pruning.saving.config_numbers import (
    ConfigChange,
    ConfigNumbers,
    NumberEffect,
    describe_mismatch,
)
from modulekg_widgets.engine.pruning.saving.model_signature import (
    FactKey,
)

MAX_ROUNDS = 8  # plans that are made until the configuration says one
UNSAID = "no key of the configuration changes its size alone"
log = logging.getLogger("modulekg_widgets")


def uniform_plan(planner: Planner) -> PruningPlan:
    """The plan that the configuration can express; the unconstrained plan if there is none."""
    numbers = numbers_of_model(planner.graph.model)
    return planner.plan() if numbers is None else _UniformPlanner(planner, numbers).plan()


@dataclass
class _Limits:
    """Limits of a configuration besides its equations."""

    fixed: set[NumberEffect] = field(default_factory=set)  # numbers that stay as they are
    whole: set[Term] = field(default_factory=set)
    ties: list[tuple[Term, Term]] = field(default_factory=list)
    multiples: dict[Term, int] = field(default_factory=dict)
    reasons: dict[Term, str] = field(default_factory=dict)


class _CheckedPlan(NamedTuple):
    """A plan, the numbers that say it best, and what of it they do not say (`reason` is "" if they say all)."""

    plan: PruningPlan
    change: ConfigChange
    mismatches: list[FactKey]
    reason: str


class _UniformPlanner:
    """Plans under the equations of a configuration, until it expresses the plan."""

    def __init__(self, planner: Planner, numbers: ConfigNumbers) -> None:
        self.numbers = numbers
        self.request = planner.request
        self.free = planner.with_request(planner.request, ConfigConstraints())
        self.axes = planner.axes
        self.limits = _Limits()

    def plan(self) -> PruningPlan:
        constraints = self.constraints()
        first: _CheckedPlan | None = None
        for _ in range(MAX_ROUNDS):
            planner = self.free.with_request(self.request, constraints)
            try:
                checked = self._checked(planner, planner.plan())
            except CutError as error:
                reason = f"what it can say does not suffice: {error}"
                return _with_note(self.free.plan() if first is None else first.plan, reason)
            if not checked.reason:
                return checked.plan
            first = first or checked
            before, constraints = constraints, self._narrow(constraints, checked)
            if constraints == before:
                break
        assert first is not None
        return _with_note(first.plan, first.reason)

    # --------------------------------------------------------- constraints

    @cached_property
    def terms(self) -> list[Term]:
        """The axes that may be cut together, and those that the user names."""
        choice, explicit = self.free.axis_choice, self.free.explicit
        crossed = set[Term]().union(*(choice.multiplied_with.get(term, ()) for term in explicit))
        able = choice.independent(self.free.layers.proportions, self.free.layers.pinned)
        return [*explicit, *(axis.term for axis in able if axis.term not in explicit and axis.term not in crossed)]

    @cached_property
    def dims(self) -> dict[FactKey, Term]:
        return read_dims(self.free.graph, self.numbers)

    def constraints(self) -> ConfigConstraints:
        """The axes that the configuration ties, and those that stay whole."""
        cut = set(self.terms)
        self.numbers.explain({
            key: (term.size, *_part_sizes(term))
            for key, term in self.dims.items() if not cut.isdisjoint(atoms(term))
        })  # fmt: skip
        variable = self._variable_numbers(cut)
        uncut = {key: () for key, term in self.dims.items() if cut.isdisjoint(atoms(term)) and self._is_saved(key)
                 and any(key in each.sizes for each in variable)}  # fmt: skip
        self.numbers.explain(uncut, only_quotients=True)
        equations = _Equations()
        for row in self._rows(cut):
            equations.add(row)
        for one, other in self.limits.ties:
            equations.add({one: 1, other: -1})
        for term in self.limits.whole:
            equations.add({term: 1})
        ties, zero = equations.solution(self.terms)
        named = self.free.explicit
        ties = [group for group in ties if named.keys().isdisjoint(zero) or zero.isdisjoint(group)]
        zero = {term for term in zero if term not in named}
        pinned = {term: self.limits.reasons.get(term, "") for term in self.terms if term in zero}
        # what else could go where these stay, as heads for their parts, is in no equation
        others = {axis.term: "" for axis in self.free.axis_choice.prunable() if axis.term not in cut}
        return ConfigConstraints({**others, **pinned}, tuple(ties), dict(self.limits.multiples), self._notes(pinned))

    def _rows(self, cut: AbstractSet[Term]) -> Iterator[dict[object, int]]:
        """An equation for each dimension: its axes lose together what its numbers lose."""
        variable = self._variable_numbers(cut)
        for key, term in self.dims.items():
            parts = factors(term, cut)
            moving = {each: each.exponent(key) for each in variable if key in each.sizes}
            if parts is None or None in moving.values():
                continue
            row: dict[object, int] = {atom: parts.count(atom) for atom in parts}
            row.update({number: -power for number, power in moving.items() if power})
            if row and (parts or self._is_saved(key)):
                yield row

    def _is_saved(self, key: FactKey) -> bool:
        """False for a size of a table that is computed, from whatever numbers."""
        return key[1] not in self.numbers.base.unsaved

    def _variable_numbers(self, cut: AbstractSet[Term]) -> list[NumberEffect]:
        """Factors, and numbers that count an axis: others, as a factor of 2, take few values."""
        counts = {term.size for term in cut}
        return [
            number for number in self.numbers.effects if number not in self.limits.fixed and (
                type(number.value) is float or number.value in counts or any(
                    number.value % atom.size == 0 and atom in cut
                    for key in number.sizes if key in self.dims for atom in atoms(self.dims[key])
                )
            )
        ]  # fmt: skip

    def _notes(self, pinned: Mapping[Term, str]) -> tuple[str, ...]:
        """A note for each reason, with the first axis that it holds for."""
        first: dict[str, Term] = {}
        for term, reason in sorted(pinned.items(), key=lambda each: self.axes.of(each[0]).number):
            first.setdefault(reason or UNSAID, term)
        return tuple(
            f"layers='uniform': {printable(self.axes.of(term).name)} and its like are not cut: {printable(reason, 300)}"
            for reason, term in first.items()
        )

    def _checked(self, planner: Planner, plan: PruningPlan) -> _CheckedPlan:
        """The plan with what the configuration says of it."""
        comparison = ConfigComparison(planner.graph, self.numbers)
        wanted = comparison.cut_signature(plan)
        change, built = self.numbers.fitting(wanted, unused_facts(planner.graph, wanted.facts))
        if built is None:
            return _CheckedPlan(plan, change, [], describe_mismatch([], self.numbers.refusal(change)))
        plan, others = comparison.compare(planner.with_unused_parameters, plan, built, wanted)
        return _CheckedPlan(plan, change, others, describe_mismatch(others) if others else "")

    # --------------------------------------------------------- what the configuration does not say

    def _narrow(self, before: ConfigConstraints, checked: _CheckedPlan) -> ConfigConstraints:
        """Narrower constraints for what the configuration does not express; the same ones if there are none."""
        ways = (self._fix_number, self._keep_axes) if checked.mismatches else (self._round_numbers, self._tie_numbers)
        for narrow in ways:
            narrow(checked)
            after = self.constraints()
            new = after.pinned.keys() - before.pinned.keys()
            if after != before:
                self.limits.reasons.update(dict.fromkeys(new, checked.reason))
                return self.constraints() if new else after
        return before

    def _changed(self, checked: _CheckedPlan) -> list[NumberEffect]:
        return [each for each in self.numbers.effects if not checked.change.keys().isdisjoint(each.paths)]

    def _fix_number(self, checked: _CheckedPlan) -> None:
        """Fix the number that the first mismatch follows; of several the one with the fewest sizes."""
        changed = self._changed(checked)
        for key in checked.mismatches:
            following = [each for each in changed if key in each.facts and each not in self.limits.fixed]
            if following:
                self.limits.fixed.add(min(following, key=lambda each: len(each.sizes)))
                return

    def _keep_axes(self, checked: _CheckedPlan) -> None:
        """Keep the smallest axes of the module whose size or attribute no number says."""
        cut = {each.name for each in checked.plan.axes}
        for kind, path, *_ in checked.mismatches:
            home = str(path).rpartition(".")[0] if kind == "size" else path
            inside = {
                atom for key, term in self.dims.items() if str(key[1]).startswith(f"{home}.")
                for atom in atoms(term) if atom in self.terms and self.axes.of(atom).name in cut
            }  # fmt: skip
            if inside:
                self.limits.whole.add(min(inside, key=lambda term: (term.size, self.axes.of(term).number)))
                return

    def _round_numbers(self, checked: _CheckedPlan) -> None:
        """Keep a number that the library refuses a multiple of all that divide it now."""
        for number in self._changed(checked):
            alone = {path: checked.change[path] for path in number.paths if path in checked.change}
            if self.numbers.build(alone) is None:
                divisors = [int(each.value) for each in self.numbers.effects
                            if 1 < each.value < number.value and number.value % each.value == 0]  # fmt: skip
                round_to = math.lcm(*divisors)
                for term in self._counted_by(number):
                    if term.size == round_to:
                        self.limits.whole.add(term)
                    elif term.size % round_to == 0:
                        self.limits.multiples[term] = round_to

    def _tie_numbers(self, checked: _CheckedPlan) -> None:
        """Tie the axes of numbers of which one divides the other, as heads and the width."""
        changed = self._changed(checked)
        for number in changed:
            whole = [each for each in self.numbers.effects if each is not number and each.value % number.value == 0]
            for other in sorted(whole, key=lambda each: -len(each.sizes))[:1]:
                for one in self._counted_by(number)[:1]:
                    self.limits.ties += [(one, term) for term in self._counted_by(other)[:1]]

    def _counted_by(self, number: NumberEffect) -> list[Term]:
        """The axes that have as many indices as a number says."""
        found = {atom: None for key in number.sizes if key in self.dims for atom in atoms(self.dims[key])
                 if number.value % atom.size == 0 and atom in self.terms}  # fmt: skip
        return sorted(found, key=lambda atom: -atom.size)


def _with_note(plan: PruningPlan, reason: str) -> PruningPlan:
    note = f"layers='uniform': mk.load_pretrained alone will load the model, for {printable(reason, 300)}"
    return replace(plan, notes=(*plan.notes, note))


def _part_sizes(term: Term) -> set[int]:
    """The sizes of all products of axes in a dimension."""
    found = {1}
    for atom in atoms(term):
        found |= {size * atom.size for size in found}
    return {size for size in found - {1} if term.size % size == 0}


# -------------------- Linear equations of shares, solved exactly


class _Equations:
    """Equations between what axes and numbers lose, in logarithms, where numbers may take any value."""

    def __init__(self) -> None:
        self._rows: dict[frozenset[tuple[object, int]], None] = {}

    def add(self, row: Mapping[object, int]) -> None:
        """Add that the sum of these multiples is 0."""
        self._rows[frozenset(row.items())] = None

    def solution(self, terms: Sequence[Term]) -> tuple[list[tuple[Term, ...]], set[Term]]:
        """Groups of axes that lose one share, and the axes that can lose nothing.

        Of axes of which one would lose what several others lose together, none goes.
        """
        zero: set[Term] = set()
        while True:
            groups: dict[Term, list[Term]] = {}
            tangled: set[Term] = set()
            for pivot, others in self._solved(terms, zero).items():
                if not others:
                    zero.add(pivot)
                elif len(others) == 1 and (other := next(iter(others.items())))[1] == -1:
                    groups.setdefault(other[0], [other[0]]).append(pivot)
                else:
                    tangled |= {pivot, *others}
            if not tangled:
                return [tuple(group) for group in groups.values()], zero
            zero |= tangled

    def _solved(self, terms: Sequence[Term], zero: Collection[Term]) -> dict[Term, dict[Term, Fraction]]:
        """The equations without numbers, each as one axis and what the others add to it, in reduced form."""
        order = {term: at for at, term in enumerate(terms)}
        reduced: list[tuple[object, dict[object, Fraction]]] = []
        for given in [*self._rows, *(frozenset({(term, 1)}) for term in zero)]:
            row = {name: Fraction(times) for name, times in given}
            for pivot, other in reduced:
                _subtract(row, other, pivot)
            if row:
                # numbers first, so that what is left over are equations between axes alone
                pivot = min(row, key=lambda name: (order.get(name, -1), str(name)))  # type: ignore[call-overload]
                scale = row[pivot]
                row = {name: times / scale for name, times in row.items()}
                for _, other in reduced:
                    _subtract(other, row, pivot)
                reduced.append((pivot, row))
        return {pivot: {name: times for name, times in row.items() if name is not pivot}
                for pivot, row in reduced if pivot in order}  # type: ignore[misc]  # fmt: skip


def _subtract(row: dict[object, Fraction], other: Mapping[object, Fraction], pivot: object) -> None:
    """Take the multiple of another row that removes its pivot."""
    times = row.get(pivot)
    if times:
        for name, each in other.items():
            left = row.get(name, Fraction()) - times * each
            if left:
                row[name] = left
            else:
                row.pop(name, None)
