"""Attributes of modules that a cut changes, as `out_channels`: adapters compute them from tensor sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from modulekg_widgets.engine.adapters import AttributesOf, adapters
from modulekg_widgets.engine.adapters import __name__ as adapters_module
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.index_semantics import EXPERTS
from modulekg_widgets.engine.axes.terms.term_positions import leading_factors, remaining_size
from modulekg_widgets.engine.errors import (
    CutError,
    ModuleKGError,
    UnknownNameError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state
from modulekg_widgets.engine.torch_runtime.private import modules_of
from modulekg_widgets.engine.torch_runtime.pytree import SEQUENCES
from modulekg_widgets.engine.tracing.dataflow import RESULT, DataNode, ModuleNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes

EXPERT = EXPERTS.removesuffix("s")
SizeValue: TypeAlias = int | tuple[int, ...] | list[int]  # what an attribute that holds sizes may be
Counts = Mapping[Term, int]  # how many indices stay of an axis, where some go


class TensorSizes:
    """The sizes of a module's tensors once a cut is made."""

    def __init__(self, axes: Axes, counts: Counts, node: ModuleNode) -> None:
        self._axes = axes
        self._counts = counts
        self._node = node
        self.module = node.module

    @cached_property
    def _tensors(self) -> dict[str, DataNode]:
        """The module's own tensors by name; a parametrized one is listed under the name that forward reads."""
        found = dict(self._node.params)
        prefix = f"{self._node.path}." if self._node.path else ""
        wrapped = modules_of(self.module).get("parametrizations")
        for name in () if wrapped is None else modules_of(wrapped):
            for original in ("original", "original1", "original0"):  # of weight_norm's two, the second has the shape
                node = self._axes.graph.state.get(f"{prefix}parametrizations.{name}.{original}")
                if node is not None:
                    found.setdefault(name, node)
        for name, node in self._node.params.items():
            for suffix in ("_orig", "_v"):  # as torch.nn.utils.prune and the old weight_norm call what they wrap
                if name.endswith(suffix):
                    found.setdefault(name.removesuffix(suffix), node)
        return found

    def parameter(self, name: str, dim: int) -> int:
        """The size of a dimension of one of the module's own parameters or buffers.

        Raises `UnknownNameError` for a tensor that it does not have, `CutError` for a dimension.
        """
        return remaining_size(self._term(self._tensor(name), dim), self._counts)

    def has(self, name: str) -> bool:
        """True if the module has a parameter or buffer of that name."""
        return name in self._tensors

    def input(self, dim: int) -> int | None:
        """The size of a dimension of the first tensor that the module was called with; None when it was not called."""
        inputs = self._node.inputs
        return remaining_size(self._term(inputs[0], dim), self._counts) if inputs else None

    def groups(self, name: str, dim: int, count: int) -> int:
        """Returns the number of remaining groups when a dimension consists of `count` groups (outermost factor)."""
        return self._groups(self._term(self._tensor(name), dim), count)

    def input_groups(self, dim: int, count: int) -> int | None:
        """The same of the first tensor that the module was called with; None when it was not called."""
        inputs = self._node.inputs
        return self._groups(self._term(inputs[0], dim), count) if inputs else None

    def of_role(self, role: str, name: str, dim: int) -> int | None:
        """Returns the remaining size of the axis with this role in a dimension of a parameter."""
        for atom in atoms(self._term(self._tensor(name), dim)):
            if self._axes.inference.roles.get(atom) == role:
                return self._counts.get(atom, atom.size)
        return None

    def _groups(self, term: Term, count: int) -> int:
        outer = leading_factors(term, count)
        return count if outer is None else remaining_size(outer, self._counts)

    def _tensor(self, name: str) -> DataNode:
        if name not in self._tensors:
            owner = printable(self._node.path or type(self.module).__name__)
            raise UnknownNameError(
                f"{owner} has no tensor {printable(str(name))!r}: {closest_match_hint(str(name), self._tensors)}"
            )
        return self._tensors[name]

    def _term(self, node: DataNode, dim: int) -> Term:
        dims = self._axes.inference.dims(node)
        if not -len(dims) <= dim < len(dims):
            raise CutError(f"{printable(node.name)} has the shape {list(node.shape)}: there is no dimension {dim}")
        return dims[dim]


def changed_attributes(axes: Axes, counts: Counts) -> dict[str, tuple[SizeValue, SizeValue]]:
    """The attributes that a cut changes, as {"conv1.out_channels": (before, after)}."""
    changed: dict[str, tuple[SizeValue, SizeValue]] = dict(_expert_counts(axes, counts))
    for path, node in axes.graph.modules.items():
        sizes_of = adapters.of_class(type(node.module))
        touched = {*node.params.values(), *(n for n in node.inputs if n.kind == RESULT)}
        if sizes_of is None or not any(_is_affected(axes, each, counts) for each in touched):
            continue
        state = module_state(node.module)
        found = _adapter_values(sizes_of, node, TensorSizes(axes, counts, node), state)
        now = _adapter_values(sizes_of, node, TensorSizes(axes, {}, node), state) if found else {}
        for name, after in found.items():
            if now.get(name) != state[name]:
                if sizes_of.__module__ == adapters_module:
                    continue  # a subclass of a standard module that means something else by the name
                wrong = f"gives {name}={now.get(name)} before the cut, where it is {state[name]!r}"
                raise _adapter_error(sizes_of, node, wrong)
            if after != state[name]:
                changed[f"{path}.{name}" if path else name] = (state[name], after)
    return changed


def _expert_counts(axes: Axes, counts: Counts) -> Iterator[tuple[str, tuple[int, int]]]:
    """The integers that are called after the experts and count them, in modules that hold these or whose child does.

    And in those around, where all layers keep as many. Forward need not read them: another way to run the experts, to
    which a model may be switched, does, and a loss of the router.
    """
    roles = axes.inference.roles
    if not any(EXPERT in roles.get(term, "") for term in counts):
        return
    experts = {find(term) for term, role in roles.items() if EXPERT in role}
    left: dict[int, set[int]] = {}
    for term in experts:
        left.setdefault(term.size, set()).add(remaining_size(term, counts))
    common = {size: next(iter(after)) for size, after in left.items() if len(after) == 1}
    for path, node in axes.graph.modules.items():
        every = [node, *node.sub_modules.values()]
        terms = {find(term) for each in every for own in each.params.values() for term in axes.inference.dims(own)}
        counted = [term for term in terms if all(EXPERT in roles.get(atom, "") for atom in atoms(term))]
        sizes = {term.size: remaining_size(term, counts) for term in counted} or (common if node.sub_modules else {})
        for name, value in module_state(node.module).copy().items():
            if EXPERT in name and type(value) is int and sizes.get(value, value) != value:
                yield f"{path}.{name}" if path else name, (value, sizes[value])


def _adapter_values(
    sizes_of: AttributesOf, node: ModuleNode, sizes: TensorSizes, state: Attributes
) -> dict[str, SizeValue]:
    """Returns the attributes that an adapter computes, converted to the types of today's; raises `CutError`."""
    try:
        found = dict(sizes_of(sizes))
        kinds: dict[str, type] = {name: type(value) for name, value in state.items() if value is not None}
        return {
            name: _as_integers(value, kinds[name])
            for name, value in found.items()
            if value is not None and name in kinds
        }
    except ModuleKGError as error:
        raise _adapter_error(sizes_of, node, f"fails: {error}") from error
    except Exception as error:  # whatever a user's function raises
        raise _adapter_error(sizes_of, node, f"fails: {type(error).__name__}: {printable(str(error))}") from error


def _as_integers(value: Any, kind: type) -> SizeValue:
    if isinstance(value, SEQUENCES):
        parts = [operator.index(part) for part in value]
        return parts if issubclass(kind, list) else tuple(parts)
    return operator.index(value)


def _adapter_error(sizes_of: AttributesOf, node: ModuleNode, what: str) -> CutError:
    owner = f"{printable(node.path or 'the model')}, {a_type(node.module)}"
    name = printable(str(getattr(sizes_of, "__name__", type(sizes_of).__name__)))
    return CutError(f"the adapter for {owner}, {what}. Correct {name}, which @mk.adapter registered")


def _is_affected(axes: Axes, node: DataNode, counts: Counts) -> bool:
    return any(atom in counts for term in axes.inference.dims(node) for atom in atoms(term))
