"""Solver of size constraints: the nearest counts of axes that meet linear equations, by integer programming."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection, SizeConstraint

TIME_LIMIT = 10.0  # for one solution


LinearForm = tuple[float, dict[Term, float]]  # a constant, and how often each axis's count comes in


def linear_size(term: Term, selection: Selection) -> LinearForm:
    """The size of a dimension as a linear form in the counts."""
    term = find(term)
    if term.kind == ATOM:
        if term in selection.counts and term not in selection.pinned:
            smallest, times = selection.proportions.base_axis(term)
            return 0.0, {smallest: float(times)}
        return float(selection.counts.get(term, term.size)), {}
    forms = [linear_size(part, selection) for part in flattened_parts(term)]
    if term.kind == SUM:
        total: dict[Term, float] = {}
        for _, counts in forms:
            for atom, times in counts.items():
                total[atom] = total.get(atom, 0.0) + times
        return sum(constant for constant, _ in forms), total
    varying = max((at for at, (_, counts) in enumerate(forms) if counts), default=len(forms) - 1)
    others = float(np.prod([selection.size(part) for at, part in enumerate(flattened_parts(term)) if at != varying]))
    constant, counts = forms[varying]
    return constant * others, {atom: times * others for atom, times in counts.items()}


def solve_constraints(
    selection: Selection, constraints: Sequence[SizeConstraint], wanted: Mapping[Term, int], fixed: Container[Term] = ()
) -> Selection | None:
    """The nearest selection that meets all constraints; None if there is none.

    Axes that are `fixed` keep the counts that the selection has of them.
    """
    rows: list[tuple[dict[Term, float], float]] = []
    for constraint in constraints:
        constant, counts = linear_size(constraint.left, selection)
        if constraint.right is None:
            rows.append((counts, constraint.times - constant))
            continue
        other, others = linear_size(constraint.right, selection)
        merged = {atom: times * constraint.times for atom, times in counts.items()}
        for atom, times in others.items():
            merged[atom] = merged.get(atom, 0.0) - times
        rows.append((merged, other - constant * constraint.times))
    atoms = list(dict.fromkeys(atom for counts, _ in rows for atom in counts))
    if not atoms:
        return selection if all(value == 0 for _, value in rows) else None
    rows += [({atom: 1.0}, float(selection.counts[atom])) for atom in atoms if atom in fixed]
    found = _nearest_counts(atoms, rows, [wanted[atom] for atom in atoms], selection)
    if found is None:
        return None
    changed = selection
    for atom, count in zip(atoms, found, strict=True):
        if count != selection.counts[atom]:
            changed = changed.with_count(atom, count)
    return changed


def _nearest_counts(
    atoms: Sequence[Term], rows: Sequence[tuple[dict[Term, float], float]], wanted: Sequence[int], selection: Selection
) -> list[int] | None:
    """The nearest counts that satisfy the rows, by a mixed-integer linear program.

    Its variables are how many multiples of `round_to` stay of each axis, whether what is left of the size beyond the
    last whole one stays too, and how far each count lies from what is wanted, relative to its size.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # a third of a second, which no first picture waits for

    count = len(atoms)
    place = {atom: at for at, atom in enumerate(atoms)}
    equal = np.zeros((len(rows), count))
    for row, (counts, _) in enumerate(rows):
        for atom, times in counts.items():
            equal[row, place[atom]] = times
    values = np.array([value for _, value in rows], dtype=float)
    goal = np.asarray(wanted, dtype=float)
    sizes = np.array([atom.size for atom in atoms], dtype=float)
    multiples = np.array([selection.multiples.get(atom, 1) for atom in atoms], dtype=float)
    least = np.array([selection.minimum.get(atom, 1) for atom in atoms], dtype=float)
    most, rest = np.divmod(sizes, multiples)
    identity, nothing = np.eye(count), np.zeros((count, count))
    counted = np.hstack([np.diag(multiples), np.diag(rest)])  # from the variables to the counts
    limits: Any = [  # SciPy's annotations know single numbers only
        (np.hstack([equal @ counted, np.zeros((len(rows), count))]), values, values),
        (np.hstack([counted, -identity]), -np.inf, goal),
        (np.hstack([counted, identity]), goal, np.inf),
        (np.hstack([counted, nothing]), least, sizes),
        (np.hstack([identity, -np.diag(most), nothing]), 0, np.inf),  # the rest stays where all multiples do
    ]
    bounds: Any = (np.zeros(3 * count), np.concatenate([most, rest > 0, np.full(count, np.inf)]))
    found = milp(
        c=np.concatenate([np.zeros(2 * count), 1 / sizes]),
        constraints=[LinearConstraint(*limit) for limit in limits],
        integrality=np.concatenate([np.ones(2 * count), np.zeros(count)]),
        bounds=Bounds(*bounds),
        options={"time_limit": TIME_LIMIT},
    )
    return None if found.x is None else np.rint(counted @ np.rint(found.x[: 2 * count])).astype(int).tolist()
