"""Axis inference: from recorded operators to the terms of every dimension, in one pass.

`Inference(graph)` applies the rule of each operator in the order of execution. First come the live operators, on which
outputs, written state or Python's reads depend; then the dead ones, which only have to fit the sizes. Afterwards inputs
and outputs are frozen, parameters that this pass did not read are frozen (unless a sibling shows their axes), and
fillers that met only constants are fixed. An operator without a rule, or whose rule raises, freezes all dimensions that
it touches and is listed in `unknown`. Nothing here runs the model; `verify.py` proves the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.axes import rules as _registered
from modulekg_widgets.engine.axes.inference.liveness import live_operators, output_operators
from modulekg_widgets.engine.axes.inference.triangular import unify_triangular
from modulekg_widgets.engine.axes.inference.uncalled_modules import disabled_observer_ranges, uncalled_parameters
from modulekg_widgets.engine.axes.terms.algebra import ONE, SUM, Algebra, Reason, Term, atoms, find
from modulekg_widgets.engine.axes.terms.call import Call, Dims, Rule, rules
from modulekg_widgets.engine.axes.terms.index_semantics import (
    EXPERTS,
    NOT_FOLLOWED,
    READ_BY_PYTHON,
    ChosenIndices,
    IndexBuffers,
)
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.recorded_call import CallRecord, nodes_in
from modulekg_widgets.engine.operators.signature import base_name, signature_of
from modulekg_widgets.engine.operators.traits import is_tagged_pointwise, traits_of
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.torch_runtime.isolation.progress import report_progress
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren
from modulekg_widgets.engine.torch_runtime.private import Overload, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import leaves
from modulekg_widgets.engine.tracing.dataflow import INPUT, Dataflow, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.unregistered_tensors import PARAMETER

# -------------------- Position tables sliced to the input length: the unused part must not be pruned


LONGER_INPUT = "a longer input reads it: the code slices this dimension to the length of the input"
DimensionsOf = Callable[["DataNode"], list[Term]]


def unused_table_axes(graph: Dataflow, dims: DimensionsOf) -> Iterator[Term]:
    """Yields the axes of sliced tables beyond the input length, where nothing else reads them."""
    given = {atom for node in graph.values if node.kind == INPUT for term in dims(node) for atom in atoms(term)}
    held = [term for node in dict.fromkeys(graph.state.values()) for term in dims(node)]
    tables = (set(atoms(term)) for term in held if find(term).kind == SUM)
    rests = {atom for found in tables if not given.isdisjoint(found) for atom in found} - given
    if rests:
        results = [term for operator in graph.operators for node in operator.outputs for term in dims(node)]
        every = (set(atoms(term)) for term in (*held, *results))
        yield from rests.difference(*(found for found in every if given.isdisjoint(found)))


# ----------------------------------------


log = logging.getLogger("modulekg_widgets")
REMEDY = "register a rule with @mk.axis_rule({name!r}), or mk.axis_rule({name!r}, like='aten::…')"
_RULE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)  # what a rule may raise
DECIDES = "only decides which branch this forward pass takes; another input may return it"
RETURNED = "Python reads the chosen index, and the model returns numbers with its tensors"
ListsOfDimensions = Mapping[
    tuple[str, int], tuple[IndexedChildren, ...]
]  # by weight and dimension: what goes with its indices
NO_LISTS: ListsOfDimensions = {}
_ = _registered  # importing the rules registers them


class Inference:
    """The terms of all values of a graph; `unknown` lists the operators that no rule knows."""

    def __init__(
        self,
        graph: Dataflow,
        free_inputs: bool = False,
        free_outputs: bool = False,
        lists: ListsOfDimensions = NO_LISTS,
    ) -> None:
        self.graph = graph
        self.lists = lists
        self.algebra = Algebra()
        self.roles: dict[Term, str] = {}
        self.unknown: list[CallRecord] = []
        self._dims: list[Dims | None] = [None] * len(graph.values)
        self._rules: dict[object, Rule | None] = {}
        self._uniform: set[int] = set()  # values with dimensions along which all is equal
        self._free_inputs = free_inputs
        self.indices = IndexBuffers(graph)
        self.chosen = ChosenIndices()
        self.idle: set[OperatorNode] = set()  # the operators whose results are not used
        self._live = live = live_operators(graph)
        deciding = live - output_operators(graph)
        for operator in graph.operators:
            report_progress("operators analyzed", operator.index + 1)
            if operator in live:
                self._apply(operator)
        self._follow_idle([operator for operator in graph.operators if operator not in live])
        self.algebra.cause = None
        for before, after in graph.assigned:
            self._follow_assignment(before, after)
        for node, record in graph.escaped:
            # what happens outside of torch is not seen
            where = f"{record.operator} in {record.module or '(root)'}" + (
                f", {record.source}" if record.source else ""
            )
            self._freeze(node, f"is read by Python code: {where}")
            self._note_python_read(node, Reason(f"its indices are read by Python code: {where}", node.producer))
        self._freeze_deciding_axes(deciding)
        if self.chosen.read and _holds_numbers(graph.result):
            self._freeze_returned_choices()
        for node in [] if free_outputs else graph.fixed_outputs:
            self._freeze(node, "model output")
        for node in graph.outputs:
            self.chosen.freeze(node, self.algebra, "a model output contains its indices")
        reached = dict(uncalled_parameters(graph, self.dims))
        integers = (node for node in dict.fromkeys(graph.state.values()) if not is_value_dtype(node.dtype))
        zero_points = [node for node in integers if node.is_buffer_like and node.dim() == 1 and is_value_buffer(node)]
        reached.update(disabled_observer_ranges(graph, self.dims, zero_points))
        for node, dims in reached.items():
            self._dims[node.index] = dims
        for node in graph.unread:
            if node in reached:
                continue
            self._freeze(node, f"{node.name} is not read by this forward pass")
        for atom in unused_table_axes(graph, self.dims):
            self.algebra.freeze(atom, LONGER_INPUT)
        for node in self.indices.unfollowed():
            self._freeze(node, f"the {node.kind} {node.label} contains integers that are not used as indices")
        self._settle_fillers()
        # indices of these are followed as those of others, but the code does not run with fewer
        self.fixed_sizes: dict[Term, Reason] = {}
        for term, reason in self.algebra.fixed_sizes:
            for atom in atoms(term):
                self.fixed_sizes.setdefault(atom, reason)

    def _follow_assignment(self, before: DataNode, after: DataNode) -> None:
        """State that a parameter or buffer has the dimensions of what forward puts in its place."""
        if before.dim() != after.dim():
            self._freeze(before, "forward replaces it with a tensor of other dimensions")
            return
        for own, other in zip(self.dims(before), self.dims(after), strict=True):
            if own.size == other.size:
                self.algebra.unify(own, other)
            else:
                self.algebra.freeze(own, "forward replaces it with a tensor of another size")

    def _note_python_read(self, node: DataNode, reason: Reason) -> None:
        """Python reads the indices that a value holds: a permutation has yet to prove what follows them."""
        axis = self.chosen.axis_of(node)
        if axis is not None and node.producer is not None:
            self.chosen.read.setdefault(axis, node.producer)
        self.chosen.freeze(node, self.algebra, reason)

    def _freeze_returned_choices(self) -> None:
        """Freeze the axes whose indices Python reads, for forward returns numbers that may be these."""
        for axis, operator in self.chosen.read.items():
            for atom in atoms(axis):
                if atom.frozen is None and atom.size > 1:
                    atom.frozen = Reason(RETURNED, operator)

    def _freeze_deciding_axes(self, deciding: set[OperatorNode]) -> None:
        """Freeze the axes of parameters that serve a decision of Python's alone: another input may return the value."""
        held = [node for node in dict.fromkeys(self.graph.state.values()) if node.consumers] if deciding else []
        alone = [node for node in held if deciding.issuperset(node.consumers)]
        others = {atom for node in set(held) - set(alone) for term in self.dims(node) for atom in atoms(term)}
        reader = min((each for each in deciding if not each.outputs), key=lambda each: each.index, default=None)
        for node in alone:
            for atom in (atom for term in self.dims(node) for atom in atoms(term)):
                if atom not in others:
                    self.algebra.freeze(atom, Reason(DECIDES, reader))

    def _follow_idle(self, idle: list[OperatorNode]) -> None:
        """Let operators whose results are not used follow the sizes of what is used: they run, and must fit it."""
        self.idle = set(idle)
        inputs = (self._dims[node.index] for operator in idle for node in operator.inputs)
        self.algebra.settled = {atom for dims in inputs for term in dims or () for atom in atoms(term)}
        for operator in idle:
            self._apply(operator)
        for operator in idle:
            for node in operator.outputs:
                if not node.consumers:
                    self._freeze(node, f"the output of {operator.where} is not used")
        self.algebra.settled = None

    def is_idle(self, node: DataNode) -> bool:
        """True if all operators that read a value are dead, that is, their results are not used."""
        return bool(node.consumers) and self.idle.issuperset(node.consumers)

    def dims(self, node: DataNode) -> Dims:
        """The terms of the dimensions of a value."""
        known = self._dims[node.index]
        if known is None:
            # another view of memory that was written has the dimensions that it had before
            known = self._initial_dims(node) if node.previous is None else self.dims(node.previous)
            self._dims[node.index] = known
        return known

    def _freeze(self, node: DataNode, text: str) -> None:
        for term in self.dims(node):
            self.algebra.freeze(term, text)

    def _initial_dims(self, node: DataNode) -> Dims:
        if node.stored is not None:
            reason = Reason(f"the {node.kind} {node.label} is sparse")
            return [ONE if size == 1 else Term(size, reason) for size in node.shape]
        if node.kind == PARAMETER or (node.is_buffer_like and is_value_buffer(node)):
            return [self._weight_dim(node, at, size) for at, size in enumerate(node.shape)]
        if node.is_buffer_like and node in self.indices:
            return [Term(size) for size in node.shape]
        if node.kind == INPUT and self._free_inputs:
            return [ONE if size == 1 else Term(size) for size in node.shape]
        if node.kind == INPUT:
            reason = Reason("model input" if node.label in ("", INPUT) else f"model input {node.label}")
        elif node.is_buffer_like:
            reason = Reason(f"the {node.kind} {node.label} holds integers")
        elif node.names:
            reason = Reason(f"the attribute {node.label}, which the code may recompute", self.algebra.cause)
        else:
            reason = Reason("a tensor that is neither parameter nor buffer", self.algebra.cause)
        return [ONE if size == 1 else Term(size, reason) for size in node.shape]

    def _weight_dim(self, node: DataNode, at: int, size: int) -> Term:
        """A dimension of a weight; the elements of lists of modules may go with its indices."""
        if size == 1:
            return ONE
        term = Term(size)
        if (lists := self.lists.get((node.label, at))) is not None:
            term.lists = lists
            self.roles[term] = EXPERTS
        return term

    def _apply(self, operator: OperatorNode) -> None:
        self.algebra.cause = operator
        if self.graph.has_ragged and any(node.is_ragged for node in (*operator.inputs, *operator.outputs)):
            self._freeze_unknown(operator, "a nested tensor stores rows of several lengths")
            return
        rule = self._rule(operator)
        if rule is None:
            self._freeze_unknown(operator, "this operator has no rule")
            return
        try:
            fillers = self.algebra.fillers
            call = Call(operator, self.algebra, self._reader(operator), self.roles, self.indices, self.chosen)
            call.live = self._live
            unify_triangular(call)
            found = rule(call)
            self._assign_results(operator, found)
            self._follow_chosen(operator, call.followed)
            if self.algebra.fillers > fillers or any(node.index in self._uniform for node in operator.inputs):
                self._note_uniform(operator)
        except _RULE_ERRORS as error:
            log.debug("the rule of %s failed", operator.where, exc_info=True)
            self._freeze_unknown(operator, f"its rule failed ({type(error).__name__}: {error})")

    def _follow_chosen(self, operator: OperatorNode, followed: Collection[DataNode]) -> None:
        """Freeze the axes whose indices an operator reads, where neither its rule nor what it moves follows them."""
        for node in operator.inputs:
            if node in self.chosen.semantics and node not in followed and not self.chosen.propagate(operator):
                is_read = operator.name == "aten::_local_scalar_dense"
                self.chosen.freeze(node, self.algebra, READ_BY_PYTHON if is_read else NOT_FOLLOWED)

    def _rule(self, operator: OperatorNode) -> Rule | None:
        overload = operator.overload
        if overload not in self._rules:
            self._rules[overload] = find_rule(overload)
        return self._rules[overload]

    def _reader(self, operator: OperatorNode) -> Callable[[DataNode], Dims]:
        """Returns the function by which a rule reads the dimensions of its inputs.

        What is uniform along a dimension couples nothing: each operator that reads it sees an atom of its own. Views of
        it, and what is written into it, go by the one atom that it has.
        """
        aliasing = signature_of(operator.overload).views is not None
        if aliasing or not any(node.index in self._uniform for node in operator.inputs):
            return self.dims
        written = {node.previous for node in operator.outputs}
        own: dict[DataNode, Dims] = {}

        def read(node: DataNode) -> Dims:
            if node.index not in self._uniform or node in written:
                return self.dims(node)
            if node not in own:
                own[node] = [self.algebra.with_fresh_fillers(term) for term in self.dims(node)]
            return own[node]

        return read

    def _note_uniform(self, operator: OperatorNode) -> None:
        for node in nodes_in(operator.result):
            if any(atom.filler is not None for term in self.dims(node) for atom in atoms(term)):
                self._uniform.add(node.index)

    def _assign_results(self, operator: OperatorNode, found: list[Term] | list[Dims] | None) -> None:
        """Give the results the dimensions that the rule found, once they are seen to fit."""
        results = nodes_in(operator.result)
        if found is None:
            found = []
        several = [found] if all(isinstance(term, Term) for term in found) and len(results) == 1 else found
        if len(several) != len(results):
            raise ValueError(f"{len(several)} results for {len(results)}")
        for node, dims in zip(results, several, strict=True):
            if tuple(term.size for term in dims) != node.shape:  # type: ignore[union-attr]
                raise ValueError(f"dimensions {dims} for the shape {list(node.shape)}")
        for node, dims in zip(results, several, strict=True):
            self._dims[node.index] = list(dims)  # type: ignore[arg-type]

    def _freeze_unknown(self, operator: OperatorNode, why: str) -> None:
        """Freeze everything that the operator touches, and list it as unknown."""
        for node in operator.inputs:
            self._freeze(node, why)
            self.chosen.freeze(node, self.algebra, why)
        for node in nodes_in(operator.result):
            if node.previous is not None:
                self._dims[node.index] = self.dims(node.previous)
            else:
                self._dims[node.index] = [self.algebra.fresh(size, frozen=why) for size in node.shape]
        self.unknown.append(operator.record(f"{why}: {REMEDY.format(name=operator.name)}"))

    def _settle_fillers(self) -> None:
        """Freezes fillers that met only constants of the code: their size is written there."""
        for node in dict.fromkeys(self.graph.state.values()):
            for term in self.dims(node):
                for atom in atoms(term):
                    if atom.filler is not None and atom.frozen is None:
                        atom.frozen = atom.filler


class _PairCollector(Algebra):
    """An algebra that only collects the pairs of dimensions that a rule unifies."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Term, Term]] = []

    def with_fresh_fillers(self, term: Term) -> Term:
        return term

    def unify(self, a: Term, b: Term) -> None:
        self.pairs.append((a, b))

    def freeze(self, term: Term, text: str | Reason) -> None:
        pass

    def split(self, term: Term, kind: str, sizes: Sequence[int]) -> list[Term]:
        return [Term(size) for size in sizes]


def unified_pairs(operator: OperatorNode, dims: Callable[[DataNode], Dims] | None = None) -> list[tuple[Term, Term]]:
    """The pairs of dimensions that the rule of a call says are one index set; without `dims`, of its shapes alone."""
    rule = find_rule(operator.overload)
    if rule is None:
        return []
    said = _PairCollector()
    own = {node: [Term(size) for size in node.shape] for node in operator.inputs}
    with suppress(*_RULE_ERRORS):
        rule(Call(operator, said, dims or own.__getitem__, {}))
    return said.pairs


def has_consistent_sizes(operator: OperatorNode) -> bool:
    """True if all dimensions that the rule of the call unifies have equal sizes."""
    return all(a.size == b.size for a, b in unified_pairs(operator))


def _holds_numbers(result: object) -> bool:
    """True if the model returns plain numbers beside tensors."""
    kinds: Any = (int, float, np.ndarray, np.generic)
    return any(type(number) is not bool for _, number in leaves(result, kinds))


def find_rule(overload: Overload) -> Rule | None:
    """Returns the rule of an operator: its own, that of the operator in `like=`, or the pointwise rule."""
    name: str = schema_of(overload).name
    user = user_operators.get(name)
    if user is not None and user.like is not None:
        return rule_named(user.like)
    rule = rule_named(name)
    return rules["aten::clone"] if rule is None and traits_of(overload).pointwise else rule


def rule_named(name: str) -> Rule | None:
    """The rule of an operator by its name, as `aten::relu_`."""
    for candidate in (name, base_name(name)):
        if candidate in rules:
            return rules[candidate]
    return rules["aten::clone"] if is_tagged_pointwise(name) else None


def is_value_buffer(node: DataNode) -> bool:
    """True if a buffer holds one value per index (by dtype, or as quantization zero points), and no indices."""
    return is_value_dtype(node.dtype) or (bool(node.consumers) and _are_zero_points(node))


def _are_zero_points(node: DataNode) -> bool:
    """True if integers are only read as zero points, or overwritten as a whole."""
    for operator in node.consumers:
        call = OperatorCall(operator)
        written = call.name in ("copy", "fill", "zero") and call.operator.args[0] is node
        if not written and call.get("zero_point") is not node:
            return False
    later = (new for operator in node.consumers for new in operator.outputs if new.previous is node)
    return all(map(_are_zero_points, later))


def is_value_dtype(dtype: torch.dtype) -> bool:
    """True if a buffer of this dtype holds one value per index, and no indices."""
    return dtype.is_floating_point or dtype.is_complex or dtype is torch.bool
