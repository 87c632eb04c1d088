"""The changes that removing positions of one dimension requires: parameters, values and attributes.

`cut_analysis(axes, "conv1.weight", [0, 1])` resolves positions to indices of atoms, and atoms to positions in every
tensor with that axis. Positions inside a product that cannot be removed alone take the fewest others with them: one
channel of `(groups=2 out=4)` is removed from each group. The result is a `Cut`, which changes nothing; `mk.plan` takes
several. A frozen dimension, or one that would become empty, is a `CutError`. `operator_analysis` does the same for one
operator as if it were the whole model. What Python code demands of sizes beyond the data flow is found by the dry run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.attributes import SizeValue, changed_attributes
from modulekg_widgets.engine.axes.inference.inference import find_rule
from modulekg_widgets.engine.axes.terms.algebra import (
    ATOM,
    SUM,
    Algebra,
    Term,
    atoms,
    find,
    flattened_parts,
    is_integer,
)
from modulekg_widgets.engine.axes.terms.call import Call, Dims
from modulekg_widgets.engine.axes.terms.term_positions import keep_mask
from modulekg_widgets.engine.errors import CutError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes

KeepMask = NDArray[np.bool_]
KeepMasks = dict[Term, KeepMask]
Indices = dict[int, list[int]]  # dimension → positions


@dataclass(frozen=True)
class Cut:
    """The result of a cut analysis: the removed indices of each axis and their positions in all tensors."""

    axes: Axes = field(repr=False)
    indices: dict[str, list[int]]  # axis name → indices that go
    parameters: dict[str, Indices] = field(repr=False)  # and buffers, each under all of its names
    values: dict[str, Indices] = field(repr=False)
    attributes: dict[str, tuple[SizeValue, SizeValue]] = field(repr=False)  # "conv1.out_channels" → (before, after)
    modules: tuple[str, ...] = ()  # elements of lists, as experts, that go as a whole

    def __str__(self) -> str:
        gone = ", ".join(f"{len(indices)} of {name}" for name, indices in self.indices.items())
        return (
            f"{gone}: {len(self.parameters)} parameters, {len(self.values)} values, {len(self.attributes)} attributes"
        )


def cut_analysis(axes: Axes, what: str | DataNode, index: Iterable[int], dim: int = 0) -> Cut:
    """The cut that removes the positions `index` of dimension `dim` of a parameter, buffer or value.

    Positions that cannot go alone take the fewest others with them: one of `(groups=2 out=4)` goes in each group.
    Raises `CutError` when the dimension is frozen or nothing would be left, `UnknownPathError` for an unknown name.
    """
    node = what if isinstance(what, DataNode) else _node(axes, what)
    dims = axes.inference.dims(node)
    if not is_integer(dim):
        raise CutError(f"dim={printable(repr(dim))}: give the number of a dimension of {printable(node.name)}")
    if not -len(dims) <= dim < len(dims):
        raise CutError(f"{printable(node.name)} has the shape {list(node.shape)}: there is no dimension {dim}")
    gone = position_mask(index, node.shape[dim], f"dimension {dim} of {printable(node.name)}")
    keeps: KeepMasks = {}
    resolve(dims[dim], ~gone, keeps, f"dimension {dim} of {printable(node.name)}")
    return cut_from_masks(axes, keeps)


def cut_from_masks(axes: Axes, keeps: KeepMasks) -> Cut:
    """The cut that keeps of each atom what `keeps` marks."""
    for atom, flags in keeps.items():
        if not flags.any():
            raise CutError(
                f"{printable(axes.of(atom).name)} would lose all of its {atom.size} indices: keep at least one"
            )
    inference = axes.inference
    parameters: dict[str, Indices] = {}
    values: dict[str, Indices] = {}
    for node in axes.graph.values:
        changed = removed_positions(inference.dims(node), keeps)
        if not changed:
            continue
        if node.names:
            parameters.update(dict.fromkeys(node.names, changed))
        else:
            values[node.name] = changed
    indices = {axes.of(atom).name: np.flatnonzero(~flags).tolist() for atom, flags in keeps.items()}
    counts = {atom: int(flags.sum()) for atom, flags in keeps.items()}
    gone = (
        each.path_of(at)
        for atom, flags in keeps.items()
        for each in atom.lists
        for at in np.flatnonzero(~flags).tolist()
    )
    return Cut(axes, indices, parameters, values, changed_attributes(axes, counts), tuple(gone))


def removed_positions(dims: Dims, keeps: KeepMasks) -> Indices:
    """Per dimension the positions that go."""
    out: Indices = {}
    for at, term in enumerate(dims):
        if any(atom in keeps for atom in atoms(term)):
            positions = np.flatnonzero(~keep_mask(term, keeps))
            if len(positions):
                out[at] = positions.tolist()
    return out


def position_mask(index: Iterable[int], size: int, where: str) -> KeepMask:
    """Returns a boolean mask of positions, given as integers (negative ones from the end) or as booleans."""
    given: object = index  # as it was passed
    try:
        chosen = np.asarray(index if isinstance(index, Sequence | np.ndarray) else list(index))
    except (TypeError, ValueError):
        raise CutError(f"positions of {where} must be a list of int, got {printable(repr(given))}") from None
    out = np.zeros(size, dtype=bool)
    if chosen.dtype == bool:
        if chosen.shape != (size,):
            raise CutError(f"a mask of shape {list(chosen.shape)} for {where}, which has {size} positions")
        return chosen
    if chosen.size == 0:
        raise CutError(f"no position of {where} is given: pass index=[…]")
    if not np.issubdtype(chosen.dtype, np.integer) or chosen.ndim != 1:
        raise CutError(f"positions of {where} must be a list of int, got {printable(str(given))}")
    outside = chosen[(chosen < -size) | (chosen >= size)]
    if outside.size:
        raise CutError(f"{where} has {size} positions: there is no {int(outside[0])}")
    out[chosen] = True
    return out


# ------------------------------------------------------------------ resolving


def resolve(term: Term, keep: KeepMask, keeps: KeepMasks, where: str) -> None:
    """Find, for each atom of a term, which indices must go so that at least the positions outside `keep` do."""
    if keep.all():
        return
    term = find(term)
    if term.kind == ATOM:
        if term.frozen is not None or term.size == 1:
            reason = "its only index, which must be kept" if term.size == 1 else str(term.frozen)
            raise _refused(where, reason)
        keeps[term] = keeps.get(term, np.ones(term.size, dtype=bool)) & keep
    elif term.kind == SUM:
        start = 0
        for part in flattened_parts(term):
            resolve(part, keep[start : start + part.size], keeps, where)
            start += part.size
    elif term.order is not None:
        resolve(flattened_parts(term)[0], keep[np.argsort(term.order)], keeps, where)
    else:
        _resolve_product(flattened_parts(term), keep, keeps, where)


def _resolve_product(factors: list[Term], keep: KeepMask, keeps: KeepMasks, where: str) -> None:
    grid = np.reshape(keep, [factor.size for factor in factors])
    shadows = [_projection(grid, at) for at in range(len(factors))]
    outer = shadows[0]
    for shadow in shadows[1:]:
        outer = outer[..., None] & shadow
    if np.array_equal(outer, grid) and grid.any():
        for factor, shadow in zip(factors, shadows, strict=True):
            resolve(factor, shadow, keeps, where)
        return
    # no exact choice: the factor that can be cut there and takes the fewest positions with it
    choices: list[tuple[int, int, KeepMasks]] = []
    reasons: dict[str, None] = {}
    for at, factor in enumerate(factors):
        hit = _projection(~grid, at)
        if hit.all():
            reasons["removing them would remove all others"] = None
            continue
        trial: KeepMasks = {}
        try:
            resolve(factor, ~hit, trial, where)
        except CutError as error:
            reasons[error.reason] = None
        else:
            choices.append((int(hit.sum()) * (keep.size // factor.size), -at, trial))
    if not choices:
        raise _refused(where, "; ".join(reasons))
    for atom, flags in min(choices, key=lambda choice: choice[:2])[2].items():
        keeps[atom] = keeps.get(atom, np.ones(atom.size, dtype=bool)) & flags


def _refused(where: str, reason: str) -> CutError:
    error = CutError(f"{where} cannot be cut there: {reason}. Choose other positions, or an axis that is free")
    error.reason = reason
    return error


def _projection(grid: KeepMask, at: int) -> KeepMask:
    return np.asarray(grid.any(axis=tuple(axis for axis in range(grid.ndim) if axis != at)))


def _node(axes: Axes, name: object) -> DataNode:
    graph = axes.graph
    if not isinstance(name, str):
        raise UnknownPathError(f"a parameter is named by text, got {printable(type(name).__name__)}")
    if name in graph.state:
        return graph.state[name]
    for node in graph.values:
        if node.name == name:
            return node
    path, _, attribute = name.rpartition(".")
    if path in graph.modules:
        own = graph.modules[path].params
        raise UnknownPathError(
            f"{printable(path)!r} has no tensor {printable(attribute)!r}: {closest_match_hint(attribute, own)}"
        )
    raise UnknownPathError(
        f"no parameter, buffer or value {printable(name)!r}: {closest_match_hint(name, graph.state)}"
    )


# ------------------------------------------------------------- one operator


def operator_analysis(operator: object, value: object, mask: object) -> dict[DataNode, Indices]:
    """Returns the positions that a mask on one tensor removes from the other tensors of one operator.

    `mask` is {dimension: positions that go}, or an array in the tensor's shape whose zeros go where a whole slice is
    zero. Raises `CutError` when the operator cannot follow.
    """
    if not isinstance(operator, OperatorNode) or not isinstance(value, DataNode):
        got = f"{printable(type(operator).__name__)} and {printable(type(value).__name__)}"
        raise CutError(f"an operator of graph.operators and one of its values are required, got {got}")
    dims = _isolated_dims(operator)
    if value not in dims:
        raise CutError(f"{printable(value.name)} is neither an input nor an output of {operator.where}")
    keeps: KeepMasks = {}
    for at, positions in _by_dimension(mask, value).items():
        where = f"dimension {at} of {printable(value.name)}"
        resolve(dims[value][at], ~position_mask(positions, value.shape[at], where), keeps, where)
    return {node: gone for node, terms in dims.items() if (gone := removed_positions(terms, keeps))}


def _isolated_dims(operator: OperatorNode) -> dict[DataNode, Dims]:
    """The terms of an operator's tensors as if it were the whole model."""
    algebra = Algebra()
    algebra.cause = operator
    dims = {node: [algebra.fresh(size) for size in node.shape] for node in operator.inputs}
    rule = find_rule(operator.overload)
    if rule is None:
        raise CutError(f"{operator.where} has no rule: register one with @mk.axis_rule")
    found = rule(Call(operator, algebra, lambda node: dims[node], {}))
    results = nodes_in(operator.result)
    several = [found] if len(results) == 1 and all(isinstance(term, Term) for term in found) else found or []
    return {**dims, **dict(zip(results, several, strict=True))}


def _by_dimension(mask: object, value: DataNode) -> Mapping[int, Iterable[int]]:
    if isinstance(mask, Mapping):
        by_dim = cast("Mapping[Any, Iterable[int]]", mask)
        if not all(is_integer(at) and -value.dim() <= at < value.dim() for at in by_dim):
            raise CutError(
                f"{printable(value.name)} has the shape {list(value.shape)}: the mask names other dimensions"
            )
        return {int(at) % value.dim(): positions for at, positions in by_dim.items()}
    try:
        grid = np.asarray(mask) != 0
    except (TypeError, ValueError, RuntimeError):
        raise CutError(
            f"a mask is an array of zeros and ones, or positions by dimension; got {printable(repr(mask))}"
        ) from None
    if grid.shape != value.shape:
        raise CutError(
            f"a mask of shape {list(grid.shape)} for {printable(value.name)}, whose shape is {list(value.shape)}"
        )
    gone = {at: np.flatnonzero(~_projection(grid, at)).tolist() for at in range(grid.ndim)}
    return {at: positions for at, positions in gone.items() if positions}
