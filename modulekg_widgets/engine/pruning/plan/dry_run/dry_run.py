"""Dry run: the model's own forward pass on tensors of the planned sizes.

Parameters are replaced in a sandbox by meta tensors of the planned sizes, attributes are set as
planned, and the traced call runs again. Every operator is compared with the recorded one
(`recorded_calls`). The first operator whose sizes differ from the plan ends the run with a
`Mismatch`, which names the operator, the requested sizes and the line of code; `repair_loop` then corrects
the plan. A model whose control flow depends on data runs on real tensors and follows the traced
decisions. `dry_run` never changes the model. With `rerun_range` only the calls around one operator run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.inference.inference import has_consistent_sizes, unified_pairs
from modulekg_widgets.engine.axes.proof.control_flow import Decisions, OperatorLimit, chosen_axes, traced_path
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.operators.arguments import OperatorCall, missing_arguments, schema_reading
from modulekg_widgets.engine.operators.recorded_call import Value, meta_tensor
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import BEFORE_VIEWS, traits_of
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit, locate_tensors, slicer
from modulekg_widgets.engine.pruning.cut.transaction import Slicer, apply_edits
from modulekg_widgets.engine.pruning.plan.dry_run.recorded_calls import (
    FailedCall,
    is_same_call,
    is_same_call_site,
    result_nodes,
    scalar_pairs,
    sizes_asked_by,
)
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.residuals.blocks import is_inside
from modulekg_widgets.engine.torch_runtime.hooks import SkippedCall
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import with_leaves
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, OperatorNode
from modulekg_widgets.engine.tracing.trace import META, REAL, trace_dataflow

# -------------------- Partial dry runs around one operator: earlier finished module calls are not run again


OPERATORS_AFTER = 40  # operators that run behind the one in question: what an answer changes shows soon
MIN_SKIPPED = 60  # operators that need not run: to spare fewer costs more than it saves


class RerunRange(NamedTuple):
    """The range of operators to run again, from the current module call to some operators later."""

    calls: dict[tuple[str, int], ModuleCall]  # by path and first operator
    begin: int
    until: int

    def finished_call(self, path: str, at: int) -> ModuleCall | None:
        """The recorded module call that starts at an operator and ended before the range."""
        call = self.calls.get((path, at))
        return None if call is None or call.end is None or call.end > self.begin else call


class RerunRanges:
    """The rerun ranges of the operators of a trace."""

    def __init__(self, graph: Dataflow) -> None:
        self.graph = graph
        self.calls: dict[tuple[str, int], ModuleCall] = {}
        self.unreliable: set[int] = set()  # operators around which less than all shows something else
        for node in dict.fromkeys(graph.modules.values()):
            for call in node.calls:
                # a call that is no plain structure cannot be given, and one without operators costs nothing
                if call.result is not None and call.end is not None and call.end > call.start:
                    self.calls.setdefault((call.path, call.start), call)

    def range_of(self, position: int) -> RerunRange | None:
        """The rerun range for an operator; None if everything has to run."""
        if self.graph.traced_on == REAL or position >= len(self.graph.operators) or position in self.unreliable:
            return None
        begin = 0
        module = self.graph.modules.get(self.graph.operators[position].module)
        for call in () if module is None else module.calls:
            if call.start <= position and (call.end is None or position < call.end):
                begin = max(begin, call.start)
        return RerunRange(self.calls, begin, position + OPERATORS_AFTER) if begin >= MIN_SKIPPED else None


# ----------------------------------------


Tensor = torch.Tensor
SIZE_ARGUMENTS = ("size", "shape", "split_size", "split_sizes")  # the arguments that views and splits have for them


class ScaleChange(NamedTuple):
    """A number that the code computes from sizes, as attention's 1/sqrt(head_dim)."""

    operator: OperatorNode
    before: float
    after: float


class SizeRequest(NamedTuple):
    """A dimension for which the code requested another size than planned."""

    term: Term
    planned: int
    asked: int


@dataclass(frozen=True)
class Mismatch:
    """The first operator of a dry run that differs from the plan."""

    position: int  # of the operator among the recorded ones
    operator: OperatorNode | None  # the recorded call; None behind the last
    requests: tuple[SizeRequest, ...]
    error: str = ""  # what the code raised, "" when it ran on
    where: str = ""


@dataclass(frozen=True)
class DryRunResult:
    """The result of a dry run; `mismatch` is None if all went as planned."""

    graph: Dataflow | None  # None where it was stopped
    mismatch: Mismatch | None
    is_complete: bool = True  # whether all ran, and not the surroundings of an operator alone
    scales: list[ScaleChange] = field(default_factory=list)  # numbers of the code that changed
    matches_trace: bool = True  # whether it was the recorded pass, call by call, on the planned sizes


def dry_run(
    axes: Axes, selection: Selection, edits: Edits, record_failures: bool = False, rerun_range: RerunRange | None = None
) -> DryRunResult:
    """Run the traced call with the tensors and attributes of `edits`; the model is unchanged.

    `record_failures`: to every call of a torch function from the beginning, for one that raises asks for sizes.
    `rerun_range`: only these surroundings of an operator run.
    """
    found = _dry_run(axes, selection, edits, FailedCall() if record_failures else None, rerun_range)
    if not record_failures and found.mismatch is not None and found.mismatch.error and not found.mismatch.requests:
        # listening to every call takes time, and only one that raised has something to tell
        return _dry_run(axes, selection, edits, FailedCall(), rerun_range)
    return found


def _dry_run(
    axes: Axes, selection: Selection, edits: Edits, calls: FailedCall | None, rerun_range: RerunRange | None
) -> DryRunResult:
    recorded = axes.graph
    lockstep = _ReplayChecker(axes, selection, rerun_range)
    decisions = _traced_decisions(axes, selection)

    def prepare(walk: Walk, sandbox: Sandbox) -> None:
        apply_edits(walk, sandbox, edits, _slicer(walk, edits, recorded.traced_on == REAL))

    try:
        tried = trace_dataflow(
            recorded.model,
            *recorded.call,
            training=recorded.training,
            modes=(recorded.traced_on,),
            prepare=prepare,
            watch=lockstep.check,
            skip_call=lockstep.skipped_call if rerun_range else None,
            around=_RunContexts(recorded, calls, decisions),
            seed=recorded.seed,
            gradients=recorded.gradients,
            watch_memory=recorded.watched,
        )
    except _Diverged as parted:
        return DryRunResult(None, parted.mismatch, rerun_range is None)
    except TraceError as caught:
        if not isinstance(caught.graph, Dataflow):
            raise
        return DryRunResult(
            None, lockstep.error_mismatch(caught.graph, str(caught.__cause__ or caught), calls), rerun_range is None
        )
    explained = lockstep.matches_trace and not lockstep.diverged and lockstep.at == len(recorded.operators)
    scales = _size_dependent(axes, selection, lockstep.scales)
    return DryRunResult(tried, lockstep.final_mismatch(tried), rerun_range is None, scales, explained)


def _traced_decisions(axes: Axes, selection: Selection) -> Decisions | None:
    """The traced control-flow decisions for a dry run to follow; None if it decides anew.

    Indices that are chosen by data are other ones once some are gone, and so are elements of lists.
    """
    known = traced_path(axes).decisions
    chosen = chosen_axes(axes) if known else ()
    is_anew = not known or any(atom in chosen or atom.lists for atom in selection.changed)
    return None if is_anew else Decisions(known)


class _RunContexts:
    """The contexts of a dry run, which can be entered again for a second run."""

    def __init__(self, recorded: Dataflow, calls: FailedCall | None, decisions: Decisions | None) -> None:
        self.every = (recorded, calls, decisions)

    def __enter__(self) -> None:
        recorded, calls, decisions = self.every
        self.entered = ExitStack()
        unled = OperatorLimit(recorded) if recorded.traced_on == REAL else nullcontext()
        self.entered.enter_context(unled if decisions is None else decisions)
        self.entered.enter_context(calls or nullcontext())

    def __exit__(self, *error: object) -> None:
        self.entered.close()


def _size_dependent(axes: Axes, selection: Selection, scales: list[ScaleChange]) -> list[ScaleChange]:
    """The scale changes that are due to sizes, without numbers that change by themselves."""
    every = {selection.size(term) / term.size for term in selection.changed}

    def goes_by_a_size(change: ScaleChange) -> bool:
        ratio = change.after / change.before if change.before else 0.0
        nodes = (*change.operator.inputs, *change.operator.outputs)
        own = {selection.size(term) / term.size for node in nodes for term in axes.inference.dims(node) if term.size}
        return any(math.isclose(ratio, share**power) for share in every | own for power in (1, -1, 0.5, -0.5) if share)

    if all(map(goes_by_a_size, scales)):
        return scales
    return [change for change in scales if change.operator.index not in traced_path(axes).varying_operators]


def run_with_edits(recorded: Dataflow, edits: Edits) -> Dataflow:
    """Run the traced call with `edits` where no axes are known.

    Raises `CutError` when forward raises or gives outputs of other shapes.
    """
    try:
        tried = trace_dataflow(
            recorded.model, *recorded.call, training=recorded.training, modes=(recorded.traced_on,),
            prepare=lambda walk, sandbox: apply_edits(
                walk, sandbox, edits, _slicer(walk, edits, recorded.traced_on == REAL)
            ),
            seed=recorded.seed, gradients=recorded.gradients, watch_memory=recorded.watched,
        )  # fmt: skip
    except TraceError as error:
        raise CutError(f"the plan does not run in the traced mode: {error}") from error
    tried.wanted = recorded.wanted
    before, after = ([node.shape for node in graph.fixed_outputs] for graph in (recorded, tried))
    if before != after and recorded.traced_on != REAL:
        raise CutError(f"the plan changes the outputs of the traced mode from {before} to {after}")
    return tried


# ------------------------------------------------------------- planned sizes


def _slicer(walk: Walk, edits: Edits, with_values: bool) -> Slicer:
    """A function that returns the remaining slices of tensors, or empty tensors of that size."""
    if not with_values:
        return _empty_slice
    values = {name: place.tensor.detach() for place in locate_tensors(walk, edits) for name in place.edit.names}
    slice_of = slicer(edits, values.__getitem__)
    return lambda edit, tensor: slice_of(edit)


def _empty_slice(edit: TensorEdit, tensor: Tensor) -> Tensor:
    """An empty tensor of the planned size."""
    layout = sorted(range(tensor.dim()), key=lambda at: -tensor.stride(at))
    return torch.empty_permuted(edit.shape_after, layout, dtype=tensor.dtype, device=tensor.device)


# ------------------------------------------------------------------ lockstep


def _calls_around_shorter_lists(axes: Axes, selection: Selection) -> Iterator[ModuleCall]:
    for path in dict.fromkeys(each.path for atom in selection.changed for each in atom.lists):
        yield from axes.graph.modules[path.rpartition(".")[0]].calls


class _Diverged(BaseException):
    """Ends a dry run early; no `Exception`, so that the model's code does not catch it."""

    def __init__(self, mismatch: Mismatch | None) -> None:
        super().__init__(mismatch)
        self.mismatch = mismatch


class _ReplayChecker:
    def __init__(self, axes: Axes, selection: Selection, rerun_range: RerunRange | None) -> None:
        self.axes = axes
        self.selection = selection
        self.rerun_range = rerun_range
        self.recorded = axes.graph.operators
        self.idle = axes.inference.idle
        self.is_data_dependent = axes.graph.traced_on == REAL
        self.at = 0  # how many operators went alike
        self.skipped = 0  # how many of them did not run
        self.device = "meta" if axes.graph.traced_on == META else _model_device(axes.graph)
        self.diverged = False
        self.shorter_list_calls = list(_calls_around_shorter_lists(axes, selection))
        self.shorter_call: ModuleCall | None = None  # a call around a list that got shorter, which goes its own way
        self.matches_trace = True
        self.scales: list[ScaleChange] = []

    def skipped_call(self, path: str) -> SkippedCall | None:
        """The recorded result of a module call in planned sizes, if the call need not run."""
        call = (
            self.rerun_range.finished_call(path, self.at)
            if self.rerun_range is not None and not self.diverged
            else None
        )
        if call is None or call.end is None:
            return None
        self.at = call.end
        self.skipped += call.end - call.start
        return SkippedCall(with_leaves(call.result, DataNode, self._planned_tensor))

    def _planned_tensor(self, node: DataNode) -> Tensor:
        shape = [self.selection.size(term) for term in self.axes.inference.dims(node)]
        layout = sorted(range(len(shape)), key=lambda at: -node.stride[at])
        with disable_current_modes():  # making it is no operator of the model
            return torch.empty_permuted(shape, layout, dtype=node.dtype, device=self.device)

    def check(self, now: OperatorNode) -> None:
        """Compare an operator of the dry run with the recorded one."""
        if self.diverged or self._in_shorter_list(now) or now.index + self.skipped != self.at:
            return
        before = self.recorded[self.at] if self.at < len(self.recorded) else None
        if (
            before is None
            or before.overload is not now.overload
            or (self.is_data_dependent and not is_same_call_site(before, now))
        ):
            self.diverged = True
            return
        idle = before in self.idle
        if (
            (idle or _joins_changed_values(before, now))
            and not has_consistent_sizes(now)
            and has_consistent_sizes(before)
        ):
            shapes = " and ".join(str(list(node.shape)) for node in now.inputs)
            text = f"{now.name} cannot take the shapes {shapes}"  # some kernels for tensors without data do not look
            raise _Diverged(Mismatch(before.index, before, tuple(self._unequal_sizes(before)), text, before.where))
        if (text := _schema_error(now)) and not _schema_error(before):
            raise _Diverged(Mismatch(before.index, before, (), text, before.where))
        requests = [] if idle else self._size_requests(before, now)
        if self.is_data_dependent and not any(self.selection.cut_atoms(request.term) for request in requests):
            # other data lead to other numbers of things, and on another way from here
            self.diverged = bool(requests)
        elif requests:
            raise _Diverged(Mismatch(before.index, before, tuple(requests), where=before.where))
        self.at += not self.diverged
        if self.rerun_range is not None and self.at > self.rerun_range.until:
            raise _Diverged(None)
        self.matches_trace = self.matches_trace and is_same_call(
            before, now, self.axes.inference.dims, self.selection.size
        )
        self.scales += [ScaleChange(before, old, new) for old, new in scalar_pairs(before, now) if old != new]
        if has_default_scale(before):
            old, new = (OperatorCall(call)["query"].shape[-1] for call in (before, now))
            self.scales += [ScaleChange(before, old**-0.5, new**-0.5)] if old != new else []

    def _in_shorter_list(self, now: OperatorNode) -> bool:
        """True if an operator runs in a module with a shortened list."""
        if self.shorter_call is None and now.index + self.skipped == self.at:
            self.shorter_call = next((call for call in self.shorter_list_calls if call.start == self.at), None)
        call = self.shorter_call
        if call is None or call.end is None:
            return False
        self.matches_trace = False
        if is_inside(now.module, call.path) or now.module == call.path:
            return True
        self.at, self.skipped, self.shorter_call = call.end, call.end - now.index, None
        return False

    def _size_requests(self, before: OperatorNode, now: OperatorNode) -> list[SizeRequest]:
        pairs = zip(result_nodes(before), result_nodes(now), strict=False)
        return [request for old, new in pairs for request in self._requests_of(old, list(new.shape))]

    def final_mismatch(self, trace: Dataflow) -> Mismatch | None:
        """The mismatch of the outputs after the forward pass, if any."""
        if self.is_data_dependent and self.diverged:
            return None
        outputs: list[SizeRequest] = []
        for old, new in zip(self.axes.graph.outputs, trace.outputs, strict=False):
            outputs += self._requests_of(old, list(new.shape))
        same = len(self.axes.graph.outputs) == len(trace.outputs)
        if outputs or not same:
            text = "" if same else f"{len(trace.outputs)} outputs, not {len(self.axes.graph.outputs)}"
            return Mismatch(len(self.recorded), None, tuple(outputs), text, "the model's output")
        return None

    def error_mismatch(self, trace: Dataflow, error: str, calls: FailedCall | None) -> Mismatch:
        """The mismatch after the forward pass raised."""
        if self.diverged or self.shorter_call is not None:
            self.at = self._counterpart_of_last(trace)
        operator = self.recorded[self.at] if self.at < len(self.recorded) else None
        viewed = self._upcoming_view()
        attempt = trace.attempt if trace.attempt and trace.attempt.index == len(trace.operators) else None
        found: list[SizeRequest] = []
        if viewed is not None:
            name, sizes = ("", ()) if calls is None else (calls.name, calls.arguments[1:])
            if attempt is not None:
                call = OperatorCall(attempt)
                name, sizes = call.name, [call[size] for size in SIZE_ARGUMENTS if call.has(size)]
            dim = OperatorCall(viewed).get("dim", 0)
            for node, asked in sizes_asked_by(name, sizes, result_nodes(viewed), dim if isinstance(dim, int) else 0):
                found += self._requests_of(node, asked)
        if operator is not None and operator in self.idle and not found:
            found = self._unequal_sizes(operator)
        failed = attempt or viewed or operator
        where = failed.where if failed is not None else "the end of forward"
        return Mismatch(self.at, viewed or operator, tuple(found), error, where)

    def _counterpart_of_last(self, trace: Dataflow) -> int:
        """The recorded operator from the same line of code as the last one that ran."""
        if not trace.operators:
            return self.at
        last = trace.operators[-1]

        def alike(operators: list[OperatorNode]) -> list[OperatorNode]:
            return [each for each in operators if (each.overload, each.module, each.source)
                    == (last.overload, last.module, last.source)]  # fmt: skip

        count, known = len(alike(trace.operators)), alike(self.recorded)
        return known[min(count, len(known)) - 1].index + 1 if known else self.at

    def _unequal_sizes(self, operator: OperatorNode) -> list[SizeRequest]:
        """The dimensions that meet in an idle operator with different planned sizes."""
        pairs = unified_pairs(operator, self.axes.inference.dims)
        sizes = ((term, self.selection.size(term), self.selection.size(other))
                 for a, b in pairs for term, other in ((a, b), (b, a)))  # fmt: skip
        return [SizeRequest(*entry) for entry in sizes if entry[1] != entry[2]]

    def _upcoming_view(self) -> OperatorNode | None:
        """The view that a failed call would have made; a reshape may copy first."""
        for operator in self.recorded[self.at : self.at + 3]:
            traits = traits_of(operator.overload)
            if traits.asks_for_sizes or traits.splits:
                return operator
            if base_name(operator.name) not in BEFORE_VIEWS:
                return None
        return None

    def _requests_of(self, node: DataNode, asked: list[int] | list[int | None]) -> list[SizeRequest]:
        terms = self.axes.inference.dims(node)
        if len(asked) != len(terms) or not (node.consumers or node.is_output):
            return []
        found = []
        for term, size in zip(terms, asked, strict=True):
            planned = self.selection.size(term)
            if size is None or planned == size:
                continue
            # along a filler all is equal: how long it is stands in the code
            if all(atom.filler is None for atom in atoms(term)):
                found.append(SizeRequest(term, planned, size))
        return found


def _model_device(graph: Dataflow) -> torch.device | str:
    """The device of the model's tensors."""
    return next((node.tensor.device for node in graph.state.values() if node.tensor is not None), "cpu")


def _joins_changed_values(before: OperatorNode, now: OperatorNode) -> bool:
    """True if a non-pointwise operator joins several values of which some changed their shapes."""
    if len(now.inputs) < 2 or torch.Tag.pointwise in now.overload.tags:
        return False
    return any(old.shape != new.shape for old, new in zip(before.inputs, now.inputs, strict=False))


def _schema_error(operator: OperatorNode) -> str:
    """The error of the operator that a user's operator is like, or ""."""
    reading = schema_reading(operator.overload)
    like = reading.overload
    if reading.is_native or missing_arguments(reading):
        return ""  # a call that leaves out what the other one demands cannot be asked of it
    args, kwargs = with_leaves(OperatorCall(operator).native_arguments(), Value, meta_tensor)
    try:
        with disable_current_modes():
            like(*args, **kwargs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return f"{schema_of(like).name}, which {operator.name} is like: {error}"
    return ""


def has_default_scale(operator: OperatorNode) -> bool:
    """True if an attention operator uses the default scale, 1/sqrt of the query's size."""
    return traits_of(operator.overload).is_attention and OperatorCall(operator).get("scale") is None
