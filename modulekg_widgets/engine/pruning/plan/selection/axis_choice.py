"""Selection of the axes to prune: those that a request names, and the ones that may be cut together.

`AxisChoice` resolves `only`, `keep` and keys of `per_axis`, which may be names of axes, modules,
parameters, wildcards, classes or objects. `independent` selects axes of which no two multiply the
same dimension, such as heads and head size; `granularity` decides which of them come first. `multiples`
converts `round_to` into multiples of indices for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from torch import nn

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.cut_analysis import Cut, KeepMasks, resolve
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.axes.terms.index_semantics import EXPERT_GROUPS, EXPERTS
from modulekg_widgets.engine.errors import CutError, UnknownAxisError, UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.pruning.plan.selection.selection import NO_PROPORTIONS, Proportions
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

EXPERT = "expert"
GRANULARITIES = {"index": (), "head": ("heads", "kv_heads", "v_heads"), "group": ("groups",), EXPERT: (EXPERTS,)}
# heads of every kind, and groups
WHOLE_ROLES = tuple(role for name, roles in GRANULARITIES.items() for role in roles if name != EXPERT)
OUTER_ROLES = {*WHOLE_ROLES, "group", EXPERT_GROUPS}


class AxisChoice:
    """The axes that a plan may cut; without a granularity whole heads and groups are removed.

    `traced_axes`: those of the pass that was traced, where the plan is made on another one.
    """

    def __init__(
        self,
        axes: Axes,
        granularity: str | None,
        only: object = None,
        keep: object = None,
        traced_axes: Axes | None = None,
    ) -> None:
        if granularity is not None and not (isinstance(granularity, str) and granularity in GRANULARITIES):
            raise UnknownNameError(
                f"granularity={printable(str(granularity))!r}: {closest_match_hint(str(granularity), GRANULARITIES)}"
            )
        if granularity == EXPERT and not any(axis.role == EXPERTS for axis in axes.free):
            raise CutError(
                "granularity='expert': no experts can be removed. Leave it out to cut widths, or see in "
                "graph.axes why the one of the router is frozen"
            )
        self.axes = axes
        self.traced_axes = axes if traced_axes is None else traced_axes
        self.layers = list(Layers(axes.inference, buffers=True))
        self.read_only = read_only_dims(axes, self.layers)
        self.granularity = granularity
        wanted = set(axes) if only is None else self._axes_only_of(only)
        wanted = wanted if keep is None else wanted - set(self.resolve(keep)) - set(self._axes_removing(keep))
        self.allowed_axes = {axis for axis in wanted if axis.frozen is None}
        self._wanted = wanted

    # --------------------------------------------------------------- names

    def resolve(self, what: object) -> list[Axis]:
        """The axes for a name, module or class, or a list of these."""
        return list(dict.fromkeys(axis for entry in _as_entries(what) for axis in self._axes_of_entry(entry)))

    def axes_of(self, key: object) -> list[Axis]:
        """The axes for a key of a mapping: what `resolve` takes, or a parameter with a dimension."""
        if isinstance(key, str) and key in self.traced_axes and key not in self.axes:
            member = self.traced_axes[key].members[0]  # another pass may have given it another name
            return list(self.axes[member.name, member.dim].axes)
        if isinstance(key, tuple) and len(key) == 2:
            return list(self.axes[key].axes)
        return self.resolve(key)

    def free_axes_of(self, key: object) -> list[Axis]:
        """The free axes for a key of `per_axis`, of which no two multiply."""
        found = self.axes_of(key)
        free = [axis for axis in found if axis.frozen is None]
        if not free:
            why = f"{printable(found[0].name)} is frozen, {found[0].frozen}" if found else "it has none"
            raise CutError(f"per_axis: no axis of {printable(str(key))!r} can be cut: {why}")
        return free if len(free) == 1 else AxisChoice(self.axes, self.granularity, free).independent()

    def _axes_removing(self, keep: object) -> Iterator[Axis]:
        """The axes whose indices would remove modules that are to be kept, as elements of lists."""
        paths = [path for entry in _as_entries(keep) if not isinstance(entry, Axis) for path in self._paths(entry)]
        for axis in self.axes:
            for each in axis.term.lists:
                if any(path == each.path or each.split(path) is not None for path in paths):
                    yield axis

    def _axes_only_of(self, what: object) -> set[Axis]:
        """The axes that only these layers produce."""
        entries = _as_entries(what)
        chosen = {entry: set(self._axes_of_entry(entry)) for entry in entries}
        modules = [entry for entry in entries if self._paths(entry)]
        paths = [path for entry in modules for path in self._paths(entry)]
        outside = [layer.out for layer in self.layers if not any(_is_below(layer.label, path) for path in paths)]
        shared = {self.axes.of(atom) for term in outside for atom in atoms(term)}
        shared -= {axis for entry in entries if isinstance(entry, str) for axis in self.axes
                   if fnmatchcase(axis.name, entry)}  # fmt: skip
        return {axis for entry, own in chosen.items() for axis in own if entry not in modules or axis not in shared}

    def _paths(self, entry: object) -> list[str]:
        """The module paths of an entry; none for the name of an axis or a parameter."""
        return matching_paths(self.axes.graph, entry)

    def _axes_of_entry(self, entry: object) -> Iterable[Axis]:
        axes, graph = self.axes, self.axes.graph
        if isinstance(entry, Axis):
            return self._corresponding_axes(entry)
        if isinstance(entry, nn.Module | type):
            paths = self._paths(entry)
            if not paths and isinstance(entry, nn.Module):
                raise UnknownAxisError(f"{printable(type(entry).__name__)} is not a module of the traced model")
            return [axis for path in paths for axis in self._of_module(path)]
        if not isinstance(entry, str):
            raise UnknownAxisError(f"axes are named by text, modules or classes, got {printable(repr(entry))}")
        found = self._by_name(entry)
        if found is not None:
            return found
        known = {axis.name: [axis] for axis in axes}
        matching = [name for name in (*known, *graph.modules, *graph.state) if fnmatchcase(name, entry)]
        if not matching:
            names = [*known, *(layer.name for layer in self.layers)]
            raise UnknownAxisError(
                f"no axis, layer, module or parameter {printable(entry)!r}: {closest_match_hint(entry, names)}"
            )
        return [axis for name in matching for axis in self._by_name(name) or ()]

    def _corresponding_axes(self, axis: Axis) -> list[Axis]:
        """The corresponding axes of the plan's trace, by a dimension of the axis."""
        if axis in self.axes or not axis.tensor_dims:
            return [self.axes.of(find(axis.term))]
        node, dim = axis.tensor_dims[0]
        theirs = node.graph.axes.term(node.label, dim)  # type: ignore[attr-defined]
        before, now = list(atoms(theirs)), list(atoms(self.axes.term(node.label, dim)))
        same = (
            [now[at] for at, atom in enumerate(before) if atom is find(axis.term)] if len(before) == len(now) else now
        )
        return [self.axes.of(atom) for atom in dict.fromkeys(same) if atom.size > 1]

    def _by_name(self, name: str) -> list[Axis] | None:
        axes = self.axes
        axis = axes.find_by_name(name)
        if axis is not None:
            return [axis]
        if name in axes.graph.modules:
            return self._of_module(name)
        if name in axes.graph.state:
            terms = axes.inference.dims(axes.graph.state[name])
            return [axes.of(atom) for term in terms for atom in atoms(term) if atom.size > 1]
        return None

    def _of_module(self, path: str) -> list[Axis]:
        """The axes that the layers of a module produce, or those of its tensors if it has no layers."""
        inside = [layer.out for layer in self.layers if _is_below(layer.label, path)]
        if not inside:
            state = self.axes.graph.state
            inside = [term for name in state if _is_below(name, path) for term in self.axes.inference.dims(state[name])]
        return [self.axes.of(atom) for term in inside for atom in atoms(term) if atom.size > 1]

    # ---------------------------------------------------------- independent

    @property
    def outer_roles(self) -> tuple[str, ...]:
        """The roles of axes that are cut first where axes multiply."""
        return WHOLE_ROLES if self.granularity is None else GRANULARITIES[self.granularity]

    def prunable(self) -> list[Axis]:
        """The allowed axes that a parameter produces; without a granularity none inside of heads."""
        return [axis for axis in self.allowed_axes if self._is_learnt(axis) and not self._is_head_part(axis)]

    def fixed_size_axes(self) -> list[Axis]:
        """The axes that are excluded only because the code fixes their size."""
        allowed = {axis.term for axis in self.allowed_axes}
        return [
            axis
            for axis in self.axes
            if axis in self._wanted
            and axis.frozen is not None
            and axis.term.frozen is None
            and self._is_learnt(axis)
            and allowed.isdisjoint(self.multiplied_with.get(axis.term, ()))
        ]

    def _is_head_part(self, axis: Axis) -> bool:
        """True if an axis changes the size of a head, as its rotary part, while whole heads are removed."""
        if self.granularity is not None or axis.role not in HEAD_PART_ROLES:
            return False
        beside = (
            atom for node, _ in axis.tensor_dims for term in self.axes.inference.dims(node) for atom in atoms(term)
        )
        return any(self.axes.of(atom).role in OUTER_ROLES for atom in beside if atom.size > 1)

    def independent(self, proportions: Proportions = NO_PROPORTIONS, whole: Container[Term] = ()) -> list[Axis]:
        """Allowed axes of which no two multiply one dimension; preferred granularities come first.

        Axes that go together are taken together or not at all, those in `whole` never.
        """
        wanted = self.outer_roles
        able = [axis for axis in self.prunable() if axis.term not in whole]
        mass = {axis: self._weight_count(axis) for axis in able}
        rank = sorted(able, key=lambda a: (_role_rank(a.role, wanted), -mass[a], a.number))
        taken: set[Term] = set()
        for axis in rank:
            every = proportions.with_group_members([axis.term])
            # what multiplies with itself, as in second-order pooling, goes as any other
            crossed = set().union(*(self.multiplied_with.get(term, set()) - {term} for term in every))
            if crossed.isdisjoint(taken | set(every)):
                taken.update(every)
        return [axis for axis in self.axes if axis.term in taken]

    def _is_learnt(self, axis: Axis) -> bool:
        """True if a weight produces the axis, and no constant table or input."""
        return any(self._is_weight(node) and (node, at) not in self.read_only for node, at in axis.tensor_dims)

    def _is_weight(self, node: DataNode) -> bool:
        return node.is_parameter or node in self.axes.weight_buffers

    def _weight_count(self, axis: Axis) -> int:
        """The number of weight entries on an axis."""
        nodes = {node for node, _ in axis.tensor_dims if self._is_weight(node)}
        return sum(node.numel() for node in nodes)

    @cached_property
    def multiplied_with(self) -> dict[Term, set[Term]]:
        """For each atom those that it multiplies in a dimension of a parameter or buffer."""
        found: dict[Term, set[Term]] = {}
        for term in self._terms():
            for product in _products(term):
                inside = [set(atoms(factor)) for factor in flattened_parts(product)]
                for at, own in enumerate(inside):
                    others = set().union(*inside[:at], *inside[at + 1 :])
                    for atom in own:
                        found.setdefault(atom, set()).update(others)
        if self.granularity == EXPERT:
            for experts, inside in self._inside_of_experts():
                for atom in inside:
                    found.setdefault(atom, set()).add(experts)
        return found

    def _inside_of_experts(self) -> Iterator[tuple[Term, set[Term]]]:
        """Each prunable axis of experts, with the axes that lie only inside of them."""
        for experts in self.allowed_axes:
            if experts.role == EXPERTS:
                own = {node for node, _ in experts.tensor_dims}
                own.update(
                    node for each in experts.term.lists for name, node in self.axes.graph.state.items()
                    if each.split(name) is not None
                )  # fmt: skip
                within = (axis for axis in self.allowed_axes if own.issuperset(node for node, _ in axis.tensor_dims))
                yield experts.term, {axis.term for axis in within if axis is not experts}

    def _terms(self) -> Iterator[Term]:
        for node in dict.fromkeys(node for places in self.axes.tensor_dims.values() for node, _ in places):
            yield from self.axes.inference.dims(node)

    # ------------------------------------------------------------- rounding

    def multiples(self, chosen: Iterable[Axis], round_to: int | None) -> dict[Term, int]:
        """The multiple for the count of each axis, so that whole dimensions are multiples of `round_to`."""
        if round_to is None:
            return {}
        multiples = {axis.term: 1 for axis in chosen}
        for term in self._terms():
            for atom, times in _position_counts(term):
                if atom in multiples:
                    multiples[atom] = math.lcm(multiples[atom], round_to // math.gcd(round_to, times))
        return multiples


HEAD_PART_ROLES = {"head_dim", "rot", "pair"}  # what a head is made of


def read_only_dims(axes: Axes, layers: Iterable[Layer]) -> set[tuple[DataNode, int]]:
    """The weight dimensions that read an axis and produce none, in any of the layers that share the weight."""
    read, produced = set[tuple[DataNode, int]](), set[tuple[DataNode, int]]()
    for layer in layers:
        into, out = set(atoms(layer.into)), set(atoms(layer.out))
        for at, term in enumerate(axes.inference.dims(layer.weight)):
            if not out.isdisjoint(own := set(atoms(term))):
                produced.add((layer.weight, at))
            elif into.issuperset(own):
                read.add((layer.weight, at))
    return read - produced


def indices_dropped_by_cuts(axes: Axes, cuts: Iterable[Cut]) -> dict[Term, list[int]]:
    """The indices that several cuts drop; cuts of another trace are matched by their parameters."""
    gone: dict[Term, set[int]] = {}
    for cut in cuts:
        if not isinstance(cut, Cut):
            raise CutError(f"cuts=[…] are results of graph.cut_analysis, got {printable(type(cut).__name__)}")
        for term, indices in _cut_indices(axes, cut).items():
            gone.setdefault(term, set()).update(indices)
    return {term: sorted(indices) for term, indices in gone.items()}


def _cut_indices(axes: Axes, cut: Cut) -> dict[Term, list[int]]:
    if cut.axes is axes:
        return {axes.of(find(cut.axes[name].term)).term: indices for name, indices in cut.indices.items()}
    keeps: KeepMasks = {}
    for name, dims in cut.parameters.items():
        node, removal = axes.graph.state.get(name), axes.graph.removal
        if node is None and removal and removal.removes(name.rpartition(".")[0]):
            continue  # it goes as a whole
        for at, positions in dims.items():
            if node is None or at >= node.dim() or max(positions) >= node.shape[at]:
                raise CutError(f"the cut of {printable(name)!r} is of another model: analyse it on this graph")
            keep = np.ones(node.shape[at], dtype=bool)
            keep[positions] = False
            resolve(axes.inference.dims(node)[at], keep, keeps, f"dimension {at} of {printable(name)}")
    return {term: np.flatnonzero(~keep).tolist() for term, keep in keeps.items()}


def matching_paths(graph: Dataflow, entry: object) -> list[str]:
    """The module paths that match an entry of `only` or `keep`."""
    if isinstance(entry, str):
        return [path for path in graph.modules if path == entry or fnmatchcase(path, entry)]
    cls = entry if isinstance(entry, type) else ()
    return [path for path, node in graph.modules.items() if node.module is entry or isinstance(node.module, cls)]


def protected_names(graph: Dataflow, keep: object) -> list[str]:
    """The module paths and parameter names that `keep` protects."""
    entries = [entry for entry in _as_entries(() if keep is None else keep) if not isinstance(entry, Axis)]
    named = [name for entry in entries if isinstance(entry, str) for name in graph.state if fnmatchcase(name, entry)]
    return [*(path for entry in entries for path in matching_paths(graph, entry)), *named]


def _as_entries(what: object) -> list[object]:
    if isinstance(what, str | nn.Module | type | Axis):
        return [what]
    if not isinstance(what, Iterable):
        raise UnknownAxisError(f"axes are named by text, modules or classes, got {printable(repr(what))}")
    return list(what)


def _is_below(name: str, path: str) -> bool:
    return not path or name.startswith(f"{path}.")


def _role_rank(role: str | None, wanted: Sequence[str]) -> int:
    """The rank of a role: requested ones, then parts of heads and groups, then heads and groups."""
    return 0 if role in wanted else 2 if role in OUTER_ROLES else 1


def _products(term: Term) -> Iterator[Term]:
    term = find(term)
    if term.kind == ATOM:
        return
    if term.kind == PRODUCT:
        yield term
    for part in flattened_parts(term):
        yield from _products(part)


def _position_counts(term: Term, times: int = 1) -> Iterator[tuple[Term, int]]:
    """Each atom of a dimension with the number of positions of each of its indices."""
    term = find(term)
    if term.kind == ATOM:
        yield term, times
        return
    for part in flattened_parts(term):
        yield from _position_counts(part, times * (term.size // part.size if term.kind == PRODUCT else 1))
