"""The proof of axes: permuting an axis in all its members at once must leave the outputs unchanged.

`axes.verify()` permutes all free axes together and, if the outputs change, finds the wrong ones by bisection. The model
runs as an isolated copy in float64, on weights rescaled so that weak initialization hides no error. Two controls keep
the proof honest: permuting one member alone must change the outputs, else the axis is "not proved"; and permuting
random parts of the members must change them, else two independent axes may have been merged. Where data or random
numbers decide the control flow, the alternative paths next to the traced one are permuted, too.

>>> import torch, modulekg_widgets as mk
>>> mk.trace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)), torch.ones(1, 3)).axes.verify().proved
['0.out']
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.inference.inference import is_value_buffer
from modulekg_widgets.engine.axes.proof.control_flow import (
    AlternativePath,
    Decisions,
    OperatorLimit,
    alternative_paths,
    chosen_axes,
    traced_path,
)
from modulekg_widgets.engine.axes.proof.double_precision import DecomposedBatchNorm, ForceDtype, State, cast, rescaled
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.axes.terms.term_positions import permuted_positions
from modulekg_widgets.engine.errors import ModuleKGError, TraceError, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.residuals.removal_trial import apply_removal
from modulekg_widgets.engine.torch_runtime.decompose import AttentionSlowPath, WholeRecurrentLayers
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import UNREGISTERED
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren, set_mode
from modulekg_widgets.engine.torch_runtime.pytree import call_arguments, leaves, nested_rows, tensors, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import advance_rng, seeded_generator
from modulekg_widgets.engine.tracing.dataflow import DataNode
from modulekg_widgets.engine.tracing.trace import REAL, call_model
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    ATTRIBUTE,
    named_registered_tensors,
    set_unregistered_tensors,
)

log = logging.getLogger("modulekg_widgets")
Tensor = torch.Tensor
Result = TypeVar("Result")
PROVED, WRONG, NOT_PROVED = "proved", "wrong", "not proved"
TOLERANCE = 1e-5  # relative to the largest output, as in the literature's float32 checks; float64 gives 1e-12
FLOAT32_TOLERANCE = 1e-4  # the same where the model knows no float64
MAX_RUNS = 32
MAX_PATHS = 16  # next to the traced one
UNSTEADY_RUNS = 4  # of a pass that reads a clock
MIN_EFFECT = 1e-9  # of the largest output in float64: less is rounding
UNSTEADY = "the model returns different values each time it runs, so permutations cannot be compared"


class UnsteadyError(TraceError):
    """A model without reproducible outputs, as one that reads a clock, so that no proof is possible."""

    def __init__(self) -> None:
        super().__init__(UNSTEADY)


@dataclass(frozen=True, slots=True)
class AxisProof:
    """The result of the proof for one axis."""

    axis: str
    status: str
    note: str = ""
    affects_output: bool = True  # whether the output depends on the axis in one member at least


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `axes.verify()`; `error` is the largest change of the output, relative to the largest output."""

    error: float
    dtype: str  # float64, or float32 where an operator of the model knows no float64
    proofs: list[AxisProof] = field(repr=False)
    bipartitions: int = 0  # random parts of members that were permuted alone and did change the output, as they must

    @property
    def ok(self) -> bool:
        """No axis is wrong."""
        return all(proof.status != WRONG for proof in self.proofs)

    @property
    def proved(self) -> list[str]:
        return self._with(PROVED)

    @property
    def wrong(self) -> list[str]:
        return self._with(WRONG)

    @property
    def not_proved(self) -> list[str]:
        """Axes on which, in one member at least, the output does not depend."""
        return self._with(NOT_PROVED)

    def _with(self, status: str) -> list[str]:
        return [proof.axis for proof in self.proofs if proof.status == status]

    def __getitem__(self, axis: str) -> AxisProof:
        return next(proof for proof in self.proofs if proof.axis == axis)

    def __str__(self) -> str:
        counts = f"{len(self.proved)} proved, {len(self.wrong)} wrong, {len(self.not_proved)} not proved"
        change = f"largest relative change {self.error:.1e} in {self.dtype}"
        return f"{counts}; {change}, {self.bipartitions} bipartitions refused"


def verify(
    axes: Axes,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    bipartitions: int = 8,
    only: Sequence[Axis] | None = None,
    max_runs: int = MAX_RUNS,
    max_paths: int = MAX_PATHS,
) -> Verification:
    """Permutes all free axes at once, and finds wrong ones by bisection; the model is not changed.

    The inputs are the traced ones unless `args` and `kwargs` give others of the same shapes. `bipartitions` random
    parts of members are permuted alone; the output must change, else two axes were merged that are independent.
    `only` names the axes that are asked about, instead of all; `max_runs` of the model are for members that have no
    gradient, what comes behind these is not proved. Where a value of the data decides which way forward goes, or chance
    does, the ways next to the traced one are permuted too, `max_paths` of them: an axis that is wrong there is wrong.
    Raises `TraceError` when the forward pass does not run in float64, or the model was cut since the trace.
    """

    def proof(dtype: torch.dtype, limit: float) -> Verification:
        return PermutationProof(axes, args, kwargs, seed, dtype, limit, max_runs, max_paths).report(bipartitions, only)

    return _in_float64_or_float32(proof, tolerance)


def find_refuted(axes: Axes, only: Sequence[Axis], max_paths: int = 0) -> dict[Axis, str]:
    """The axes that change the output when they are permuted, and why; in two passes where there are none.

    There is no control: on an axis that is not among them the output need not depend.
    """

    def proof(dtype: torch.dtype, limit: float) -> dict[Axis, str]:
        return PermutationProof(axes, None, None, 0, dtype, limit, max_paths=max_paths).changed(only)

    return _in_float64_or_float32(proof, TOLERANCE)


def _in_float64_or_float32(proof: Callable[[torch.dtype, float], Result], tolerance: float) -> Result:
    """A proof in float64, or in float32 where an operator of the model knows no other."""
    try:
        return proof(torch.float64, tolerance)
    except UnsteadyError:
        raise
    except TraceError as error:
        try:
            # some kernels, such as grouped matrix products, exist for lower precision only
            return proof(torch.float32, max(tolerance, FLOAT32_TOLERANCE))
        except TraceError:
            raise error from error.__cause__


def _change_text(error: float) -> str:
    return f"the output changes by {error:.1e} of its size"


def _check_shapes(nodes: Sequence[DataNode]) -> None:
    for node in nodes:
        if node.tensor is not None and tuple(node.tensor.shape) != node.shape:
            now, then = list(node.tensor.shape), list(node.shape)
            raise TraceError(
                f"{printable(node.name)} has shape {now}, at the trace {then}: trace the model again as it is now"
            )


Orders = Mapping[Term, NDArray[np.int64]]
Around = Callable[[Sandbox, State], AbstractContextManager[object]]


class PermutationProof:
    def __init__(
        self,
        axes: Axes,
        args: object,
        kwargs: Mapping[str, Any] | None,
        seed: int,
        dtype: torch.dtype,
        tolerance: float | None = None,
        max_runs: int = MAX_RUNS,
        max_paths: int = MAX_PATHS,
    ) -> None:
        self.axes = axes
        self.max_runs = max_runs
        self.dtype = dtype
        self.least = MIN_EFFECT if dtype is torch.float64 else FLOAT32_TOLERANCE
        self.graph = axes.graph
        self.args, self.kwargs = self.graph.call if args is None and kwargs is None else call_arguments(args, kwargs)
        self.seed = seed
        self.runs = 0
        self.known: dict[tuple[str, str], bool] = {}
        self.tolerance = (
            (TOLERANCE if dtype is torch.float64 else FLOAT32_TOLERANCE) if tolerance is None else tolerance
        )
        self.random = np.random.default_rng(seed)
        self.nodes: list[DataNode] = list(dict.fromkeys(self.graph.state.values()))
        _check_shapes(self.nodes)
        self.state = {name: cast(value, dtype) for name, value in rescaled(self.nodes, seed).items()}
        by_data = self.graph.traced_on == REAL
        traced = args is None and kwargs is None
        chosen = chosen_axes(axes) if by_data else set[Term]()
        choosing = any(axis.term in chosen or axis.term.lists for axis in axes.free)
        # the way that passes are led; where the data choose from an axis, another order of it is another way
        self.decisions = traced_path(axes).decisions if by_data and traced and not choosing else None
        self.orders = {axis.term: _derangement(axis.size, self.random) for axis in axes.free}
        ways = (
            alternative_paths(axes, follow_trace=not choosing)
            if traced and not self.graph.cuttable_outputs and max_paths
            else []
        )
        self.ways = ways[:max_paths]
        self.way: AlternativePath | None = None  # the one that passes are led now, None for the traced one
        self.path_starts: dict[Axis, str] = {}  # the axes that are wrong on another way, and where that begins

    def report(self, bipartitions: int, only: Sequence[Axis] | None) -> Verification:
        expected, gradients = self._gradients()
        self._expect(expected)
        free = [axis for axis in self.axes.free if only is None or axis in only]
        error = self._error(free)
        wrong = {} if error <= self.tolerance else self._wrong_ones(free)
        try:
            if wrong and self._is_unsteady():
                raise UnsteadyError
            wrong |= self._wrong_on_other_paths([axis for axis in free if axis not in wrong])
        except UnsteadyError:
            unsteady = [AxisProof(axis.name, NOT_PROVED, UNSTEADY) for axis in free]
            return Verification(error, str(self.dtype).removeprefix("torch."), unsteady)
        proofs: list[AxisProof] = []
        for axis in free:
            if axis in wrong:
                proofs.append(AxisProof(axis.name, WRONG, self._change(axis, wrong[axis])))
                continue
            used = self._used_members(axis) or _member_names(axis)
            silent = [name for name in used if not self._affects_output(name, axis, gradients)]
            note = f"the output does not depend on the order in {', '.join(silent[:3])}" if silent else ""
            acts = len(silent) < len(used)
            proofs.append(AxisProof(axis.name, NOT_PROVED if silent else PROVED, note, acts))
        refused, merged = self._bipartitions(free, wrong, bipartitions, gradients)
        return Verification(
            error, str(self.dtype).removeprefix("torch."), [merged.get(proof.axis, proof) for proof in proofs], refused
        )

    def changed(self, only: Sequence[Axis]) -> dict[Axis, str]:
        """Returns the axes whose permutation changes the output, with the change; raises `TraceError`."""
        self._expect(self._run(self.state))
        asked = [axis for axis in self.axes.free if axis in only]
        wrong = self._wrong_ones(asked)
        if wrong and self._is_unsteady():
            raise UnsteadyError
        wrong |= self._wrong_on_other_paths([axis for axis in asked if axis not in wrong])
        return {axis: self._change(axis, error) for axis, error in wrong.items()}

    def _change(self, axis: Axis, error: float) -> str:
        """Returns a description of the change of the output when an axis is permuted, with its path."""
        where = self.path_starts.get(axis)
        return _change_text(error) if where is None else f"{_change_text(error)} on another branch from {where}"

    def _wrong_on_other_paths(self, axes: Sequence[Axis]) -> dict[Axis, float]:
        """Returns the axes that change the output on a path other than the traced one."""
        wrong: dict[Axis, float] = {}
        before = self.expected, self.decided, self.scale
        for way in self.ways:
            self.way = way
            rest = [axis for axis in axes if axis not in wrong]
            if not rest:
                break
            try:
                self._expect(self._run(self.state))
                found = self._wrong_ones(rest)
                if found and self._is_unsteady():
                    raise UnsteadyError
            except UnsteadyError:
                if way.draws:
                    raise
                continue
            except TraceError:
                continue  # no pass goes there, as into a `raise`
            wrong |= found
            self.path_starts.update(dict.fromkeys(found, way.where))
        self.way = None
        self.expected, self.decided, self.scale = before
        return wrong

    def _expect(self, outputs: list[Tensor]) -> None:
        """Take outputs as those that permutations must leave, with what led to them."""
        self.expected, self.decided = outputs, self.last
        self.scale: float = max(max_magnitude(outputs), 1e-300)

    def _is_unsteady(self) -> bool:
        """True if the output changes without any permutation, as with a clock."""
        times = 1 if self.graph.draws is None else UNSTEADY_RUNS
        runs = (self._run(self.state) for _ in range(times))
        return any(max_difference(outputs, self.expected) / self.scale > self.tolerance for outputs in runs)

    def _used_members(self, axis: Axis) -> list[str]:
        """The members that something in the output is made of; of the others the sizes alone matter."""
        return [name for name in _member_names(axis) if not self.axes.inference.is_idle(self.graph.state[name])]

    # --------------------------------------------------------- permutation

    def _error(self, axes: Sequence[Axis], only: Mapping[str, bool] | None = None) -> float:
        """Returns the relative change of the output when axes are permuted (in the members of `only` alone)."""
        orders = {axis.term: self.orders[axis.term] for axis in axes}
        lists = {each: self.orders[axis.term] for axis in axes for each in axis.term.lists} if only is None else {}
        changed = self.rearranged(orders, lists, only)
        expected = self.expected if only is not None else self._in_order(orders, self.expected)
        error = max_difference(self._run(changed), expected) / self.scale
        return error if only is not None else max(error, self._other_decisions())

    def _other_decisions(self) -> float:
        """Returns the relative difference between the decisions of the last pass and the expected ones."""
        if len(self.last) != len(self.decided):
            return float("inf")
        pairs = zip(map(as_floats, self.last), map(as_floats, self.decided), strict=True)
        return max((max_difference(now, then) / max(max_magnitude(then), 1e-300) for now, then in pairs), default=0.0)

    def rearranged(
        self, orders: Orders, lists: Mapping[IndexedChildren, NDArray[np.int64]], only: Mapping[str, bool] | None = None
    ) -> State:
        """The tensors with axes and the elements of lists in new orders, in all or in those that `only` names."""
        return {
            node.label: self._permuted(self._in_lists(node, lists), orders)
            if only is None or only.get(node.label, False)
            else self.state[node.label]
            for node in self.nodes
        }

    def _in_lists(self, node: DataNode, lists: Mapping[IndexedChildren, NDArray[np.int64]]) -> DataNode:
        """The tensor that takes the place of one when the elements of these lists are in new orders."""
        label = node.label
        for modules, order in lists.items():
            if (inside := modules.split(label)) is not None:
                label = f"{modules.path_of(order[inside[0]])}.{inside[1]}"
        return node if label == node.label else self.graph.state[label]

    def _in_order(self, orders: Orders, expected: list[Tensor]) -> list[Tensor]:
        """The expected outputs, those that follow a cut with their indices in the new orders too."""
        following = set(self.graph.cuttable_outputs.values())
        if not following:
            return expected
        nodes = [node for _, node in leaves(self.graph.result, DataNode)]
        if len(nodes) != len(expected):
            return expected
        return [
            self._moved(node, value, orders) if node in following else value
            for node, value in zip(nodes, expected, strict=True)
        ]

    def _permuted(self, node: DataNode, orders: Orders) -> Tensor:
        """A tensor with the indices of these axes in their new orders; one that holds indices is unchanged."""
        value = self.state[node.label]
        return self._moved(node, value, orders) if is_value_buffer(node) else value

    def _moved(self, node: DataNode, value: Tensor, orders: Orders) -> Tensor:
        for at, term in enumerate(self.axes.inference.dims(node)):
            order = permuted_positions(term, orders)
            if value.shape[at] > 1 and not np.array_equal(order, np.arange(len(order))):
                value = value.index_select(at, torch.as_tensor(order, device=value.device))
        return value

    def _wrong_ones(self, axes: list[Axis]) -> dict[Axis, float]:
        """The axes that change the output, found by halving."""
        error = self._error(axes)
        if not axes or error <= self.tolerance:
            return {}
        if len(axes) == 1:
            return {axes[0]: error}
        middle = len(axes) // 2
        return {**self._wrong_ones(axes[:middle]), **self._wrong_ones(axes[middle:])}

    def _bipartitions(
        self, free: list[Axis], wrong: Mapping[Axis, float], count: int, gradients: State
    ) -> tuple[int, dict[str, AxisProof]]:
        """Permute random parts of the members alone; also how often that was refused."""
        able = [
            axis for axis in free if axis not in wrong and axis.size > 1
            and len([n for n in _member_names(axis) if self._affects_output(n, axis, gradients)]) > 1
        ]  # fmt: skip
        refused = 0
        merged: dict[str, AxisProof] = {}
        order: list[Axis] = [able[int(at)] for at in self.random.permutation(len(able))]
        for attempt in range(count if order else 0):
            axis = order[attempt % len(order)]
            names = [n for n in _member_names(axis) if self._affects_output(n, axis, gradients)]
            chosen = self.random.random(len(names)) < 0.5
            chosen[0], chosen[-1] = True, False
            if self._error([axis], dict(zip(names, chosen, strict=True))) > self.least:
                refused += 1
            else:
                part = ", ".join(name for name, taken in zip(names, chosen, strict=True) if taken)
                merged[axis.name] = AxisProof(axis.name, NOT_PROVED, f"{part} can be permuted without the others")
        return refused, merged

    # ------------------------------------------------------------- control

    def _gradients(self) -> tuple[list[Tensor], State]:
        """Returns the output and the gradients of its random projection in every member, from one backward pass."""
        state = {n: v.detach().clone().requires_grad_(v.is_floating_point()) for n, v in self.state.items()}
        with torch.enable_grad(), DecomposedBatchNorm(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that code reads numbers which have gradients
            try:
                outputs, leaves = self.run_on(state, keep_graph=True, follow_data=False)
            except TraceError:
                # code that leaves torch, as `x.numpy()`, runs without gradients only: the control then runs the model
                return self._run(self.state), {}
            generator = seeded_generator(self.seed)
            parts = [
                (t * torch.randn(t.shape, generator=generator, dtype=t.dtype, device="cpu").to(t.device)).sum()
                for t in outputs if t.requires_grad
            ]  # fmt: skip
            names = [name for name, leaf in leaves.items() if leaf.requires_grad]
            found = _gradients_of(parts, [leaves[name] for name in names])
        gradients = {name: grad for name, grad in zip(names, found, strict=False) if grad is not None}
        return [t.detach() for t in outputs], gradients

    def _affects_output(self, name: str, axis: Axis, gradients: State) -> bool:
        key = (name, axis.name)
        if key not in self.known:
            self.known[key] = self._changes_output(name, axis, gradients)
        return self.known[key]

    def _changes_output(self, name: str, axis: Axis, gradients: State) -> bool:
        """True if permuting this member alone changes the output, by its gradient or by a run."""
        gradient, value = gradients.get(name), self.state[name]
        if gradient is None:
            # unread here, or behind a detach: a run of its own tells, as long as these are few
            self.runs += 1
            return self.runs <= self.max_runs and self._error([axis], {name: True}) > self.least
        moved = self._permuted(self.graph.state[name], {axis.term: self.orders[axis.term]})
        effect = (gradient * (moved - value)).sum().abs().item()
        rounding = (gradient.abs() * (moved - value).abs()).sum().item() * 1e3 * torch.finfo(self.dtype).eps
        return effect > max(rounding, self.least * self.scale * 1e-3)

    # ----------------------------------------------------------- execution

    def _with_gradient(self, node: DataNode, state: State) -> Tensor:
        """Returns a tensor for the run that requires a gradient where forward needs the model's own gradients."""
        value = _private_tensor(node, state)
        wanted = self.graph.gradients and node.tensor is not None and node.tensor.requires_grad
        return value.detach().requires_grad_() if wanted and not value.requires_grad else value

    def _run(self, state: State) -> list[Tensor]:
        return self.run_on(state, follow_data=False)[0]

    def run_on(
        self, state: State, keep_graph: bool = False, around: Around | None = None, follow_data: bool = True
    ) -> tuple[list[Tensor], State]:
        """The outputs on these tensors, and what stood for each of them; `around` the call, with both at hand.

        `follow_data`: the data lead where these tensors say, and not as in the traced call.
        """
        model = self.graph.model
        walked = walk(model)
        known = self.decisions if self.way is None else self.way.decisions
        decisions = Decisions(known) if known and not follow_data else None
        ends = nullcontext() if self.graph.traced_on != REAL else OperatorLimit(self.graph)
        if decisions is not None:
            ends = nullcontext() if self.way is None else OperatorLimit(self.graph, min_operators=0)
        self.last: list[list[Tensor]] = []
        args, kwargs = with_tensors((self.args, self.kwargs), lambda t: cast(t.detach().clone(), self.dtype))

        def forward(sandbox: Sandbox) -> tuple[object, dict[str, Tensor]]:
            set_mode(sandbox.states, self.graph.training)
            advance_rng(0 if self.way is None else self.way.draws)
            held = {
                node.label: sandbox.hold(sandbox.of(node.tensor), self._with_gradient(node, state))
                for node in self.nodes
            }
            named = {name: held[node.label] for name, node in self.graph.state.items()}
            set_unregistered_tensors(walked.with_modules(sandbox.modules), named)
            registered = {name: value for name, value in named.items() if self.graph.state[name].kind != ATTRIBUTE}
            if self.graph.removal:
                apply_removal(walked.with_modules(sandbox.modules), self.graph.removal)
                registered = _renamed_state(sandbox, self.nodes, held)
            cast_as = ForceDtype(self.dtype)
            with (
                torch.set_grad_enabled(keep_graph or self.graph.gradients),
                AttentionSlowPath(),
                ends,
                nullcontext() if decisions is None else decisions,
                cast_as,
                WholeRecurrentLayers(cast_as),
            ):

                def call(*args: object, **kwargs: object) -> object:
                    given = (sandbox.model, registered, args, kwargs)
                    return torch.func.functional_call(*given, tie_weights=False, strict=False)

                with nullcontext() if around is None else around(sandbox, held):
                    return call_model(call, args, kwargs or {}), held

        try:
            output, held = run_isolated(walked.modules, (), forward, UNREGISTERED, self.seed)
        except ModuleKGError:
            raise
        except Exception as error:
            raise TraceError(
                f"verify runs the model in float64, and {printable(type(model).__name__)} stopped: "
                f"{type(error).__name__}: {printable(str(error), 300)}"
            ) from error
        if decisions is not None:
            apart = decisions.diverged and self.way is None
            if apart or len(decisions.recomputed) != len(decisions.known or ()):
                raise TraceError(f"verify runs {printable(type(model).__name__)} again, and it takes another branch")
            self.last = [[tensor.detach() for tensor in own] for own in decisions.recomputed]
        return [nested_rows(tensor) for _, tensor in tensors(output)], held


def _private_tensor(node: DataNode, state: State) -> Tensor:
    """Returns the tensor for one run; buffers are cloned, as forward may write to them."""
    value = state[node.label]
    return value.detach().clone().requires_grad_(value.requires_grad) if node.is_buffer_like else value


def _renamed_state(sandbox: Sandbox, nodes: Sequence[DataNode], held: State) -> State:
    """The tensors by the names that they have in a model that has lost modules."""
    values = {id(sandbox.of(node.tensor)): held[node.label] for node in nodes}
    walked = walk(sandbox.model)
    every = named_registered_tensors(walked, walked.all_paths())
    return {each.name: values[id(each.tensor)] for each in every if id(each.tensor) in values}


def _member_names(axis: Axis) -> list[str]:
    return list(dict.fromkeys(member.name for member in axis.members))


def _derangement(size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """A random order that leaves no index at its place."""
    order = random.permutation(size)
    out = np.empty(size, dtype=np.int64)
    out[order] = np.roll(order, 1)
    return out


def _gradients_of(parts: list[Tensor], leaves: list[Tensor]) -> Sequence[Tensor | None]:
    """The gradients of a sum; none where an operator overwrote what its gradient needs, or a user's `backward` raised.

    Then the control runs the model.
    """
    with suppress(Exception):
        return torch.autograd.grad(torch.stack(parts).sum(), leaves, allow_unused=True)
    return ()


def as_floats(values: Sequence[Tensor]) -> list[Tensor]:
    """The same as floating-point numbers, which have differences."""
    return [value if value.is_complex() else value.to(torch.float64) for value in values]


def max_magnitude(outputs: Sequence[Tensor]) -> float:
    """Returns the largest finite magnitude in the outputs."""
    finite = (t[t.isfinite()].abs() for t in outputs if t.dtype is not torch.bool)
    return max((t.max().item() for t in finite if t.numel()), default=0.0)


def max_difference(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The largest difference of two outputs; infinite where shapes or numbers that are none differ."""
    worst = 0.0
    if len(a) != len(b):
        return float("inf")
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape:
            return float("inf")
        if x.numel():
            difference = (x.to(torch.complex128 if x.is_complex() else torch.float64) - y).abs()
            same = x.isnan() & y.isnan() | (x == y)
            difference = difference.masked_fill(same, 0.0)
            worst = max(worst, difference.max().item() if not bool(difference.isnan().any()) else float("inf"))
    return worst
