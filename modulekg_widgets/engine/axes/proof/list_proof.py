"""Module lists that belong to an axis, as the experts in a `ModuleList` to the rows of their router, with the proof.

Code selects an element by its number, which it compares with the router's choice. Candidates are found by their length,
and proved as axes are: permuting rows and elements together leaves the outputs unchanged; permuting the elements alone
changes them. All elements must have run: router offsets lead rows to those that the data did not reach.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.axes.inference.inference import ListsOfDimensions
from modulekg_widgets.engine.axes.proof.operator_proofs import ProvableAxes
from modulekg_widgets.engine.axes.proof.verify import Orders, PermutationProof, max_difference, max_magnitude
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.operators.traits import CONVOLUTION, MATRIX_PRODUCT, traits_of
from modulekg_widgets.engine.torch_runtime.decompose import OperatorMode
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren, index_prefix
from modulekg_widgets.engine.torch_runtime.private import Overload
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleNode

# -------------------- Proof


Tensor = torch.Tensor


def router_weights(axis: Axis) -> list[tuple[DataNode, int]]:
    """The weights that make an axis, each with the dimension; none of what lies in elements of its lists."""
    inside = (node for node, _ in axis.tensor_dims if any(each.split(node.label) for each in axis.term.lists))
    return [(node, at) for node, at in axis.tensor_dims if node.dim() > 1 and node not in set(inside)]


class RouterOffsets(OperatorMode):
    """Adds to what products with these weights give, along the dimension of their indices; no gradients run."""

    def __init__(self, offsets: Iterable[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._offsets = {_storage_address(weight): offset for weight, offset in offsets}
        self._copies: list[Tensor] = []  # of weights, kept: another tensor may come to lie where one has gone

    def __torch_dispatch__(
        self, func: Overload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        given = [tensor for _, tensor in tensors((args, kwargs or {}))]
        known = [self._offsets.get(_storage_address(tensor)) for tensor in given]
        offset = next((each for each in known if each is not None), None)
        if offset is None or not isinstance(out, Tensor) or not out.is_floating_point():
            return out
        if all(each is not None for each in known):
            self._offsets.setdefault(_storage_address(out), offset)
            self._copies.append(out)
            return out
        layer = traits_of(func).layer
        dim = 1 if layer == CONVOLUTION else -1
        if layer in (CONVOLUTION, MATRIX_PRODUCT) and out.dim() > 1 and out.shape[dim] == len(offset):
            shape = [-1 if at == dim % out.dim() else 1 for at in range(out.dim())]
            out.add_(offset.to(out).view(shape))
        return out


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


# ----------------------------------------


Lists = dict[Axis, tuple[IndexedChildren, ...]]
Offsets = Mapping[Axis, Tensor]
MAX_ROUNDS = 16  # in which routers are led to elements that nothing has reached
ROUTER_OFFSET = 1e3  # added to what a router gives: more than it gives itself, and less than what hides it


class ListProof:
    """A proof by running the model that the elements of module lists belong to axes; raises `TraceError`. Raises
    `TraceError` where it does not run.
    """

    def __init__(self, axes: Axes, dtype: torch.dtype) -> None:
        self.axes = axes
        self.proof = PermutationProof(axes, None, None, 0, dtype)
        self._reached: dict[IndexedChildren, set[int]] = {}
        self._numbers: dict[int, tuple[IndexedChildren, int]] = {}  # by the module of an element
        self._kinds: dict[tuple[str, int], bool] = {}

    def prove(self, asked: Lists) -> Lists:
        """Returns the lists of `asked` that are proved to belong to their axes."""
        modules = self.axes.graph.modules
        self._numbers = {
            id(modules[each.path_of(at)].module): (each, at)
            for axis, own in asked.items() for each in own for at in range(axis.size)
        }  # fmt: skip
        lists = {axis: self._sensitive_lists(axis, own) for axis, own in asked.items()}
        lists = self._equivariant_lists({axis: own for axis, own in lists.items() if own})
        for _ in range(MAX_ROUNDS):
            offsets = self._offsets_to_unreached(lists)
            if not offsets:
                break
            lists = self._equivariant_lists(lists, offsets)
        return {axis: own for axis, own in lists.items() if not self._unreached(axis, own)}

    # ---------------------------------------------------------------- steps

    def _sensitive_lists(self, axis: Axis, lists: Sequence[IndexedChildren]) -> tuple[IndexedChildren, ...]:
        """The lists whose elements alone in a new order give something else; of alike lists one is tried."""
        found: list[IndexedChildren] = []
        for each in lists:
            kind = (re.sub(r"\d+", "*", each.path), axis.size)
            if kind not in self._kinds:
                orders = {each: self.proof.orders[axis.term]}
                self._kinds[kind] = self._error({}, orders, {}) > self.proof.least
            if self._kinds[kind]:
                found.append(each)
        return tuple(found)

    def _equivariant_lists(self, lists: Lists, offsets: Offsets | None = None) -> Lists:
        """Returns the lists that leave the output unchanged when permuted with their axis, together or one by one."""
        given = offsets or {}
        if not lists or self._is_equivariant(lists, given):
            return lists
        found: Lists = {}
        for axis, own in lists.items():
            tries = [own, *((each,) for each in own if len(own) > 1)]
            best = next((part for part in tries if self._is_equivariant({axis: part}, given)), None)
            if best is not None:
                found[axis] = best
        return found

    def _is_equivariant(self, lists: Lists, offsets: Offsets) -> bool:
        orders = {axis.term: self.proof.orders[axis.term] for axis in lists}
        places = {each: self.proof.orders[axis.term] for axis, own in lists.items() for each in own}
        return self._error(orders, places, offsets) <= self.proof.tolerance

    def _offsets_to_unreached(self, lists: Lists) -> Offsets:
        """Returns router offsets that lead rows to elements which no run has reached yet."""
        found: dict[Axis, Tensor] = {}
        for axis, own in lists.items():
            missing = self._unreached(axis, own)
            if missing:
                least = axis.least
                count = max(1 if least is None else least.count, self._rows(own) // 2)
                found[axis] = torch.zeros(axis.size, dtype=self.proof.dtype)
                found[axis][missing[:count]] = ROUTER_OFFSET
        return found

    def _unreached(self, axis: Axis, lists: Sequence[IndexedChildren]) -> list[int]:
        return [at for at in range(axis.size) if any(at not in self._reached.get(each, ()) for each in lists)]

    def _rows(self, lists: Sequence[IndexedChildren]) -> int:
        """Returns the number of rows that are distributed over the elements."""
        modules = self.axes.graph.modules
        calls = [call for at in range(len(modules[lists[0].path].sub_modules))
                 for call in modules[lists[0].path_of(at)].calls]  # fmt: skip
        return sum(call.inputs[0].numel() // max(call.inputs[0].shape[-1], 1) for call in calls if call.inputs
                   and call.inputs[0].dim())  # fmt: skip

    # ------------------------------------------------------------ execution

    def _error(self, orders: Orders, places: Mapping[IndexedChildren, NDArray[np.int64]], offsets: Offsets) -> float:
        """Returns the relative change of the output when axes and list elements are permuted."""
        expected = self._outputs(self.proof.state, offsets, {}) if offsets else self._plain_outputs
        changed = self.proof.rearranged(orders, places)
        found = self._outputs(changed, offsets, {axis: self.proof.orders[axis.term] for axis in offsets})
        return max_difference(found, expected) / max(max_magnitude(expected), 1e-300)

    @cached_property
    def _plain_outputs(self) -> list[Tensor]:
        return self._outputs(self.proof.state, {}, {})

    def _outputs(
        self, state: Mapping[str, Tensor], offsets: Offsets, orders: Mapping[Axis, NDArray[np.int64]]
    ) -> list[Tensor]:
        @contextmanager
        def around(sandbox: Sandbox, held: Mapping[str, Tensor]) -> Generator[None, None, None]:
            led = [
                (held[node.label], offset.index_select(0, torch.as_tensor(orders[axis], device=offset.device))
                 if axis in orders else offset)
                for axis, offset in offsets.items() for node, _ in router_weights(axis)
            ]  # fmt: skip
            with ExitStack() as stack:
                stack.enter_context(self._recording_reached(sandbox))
                if led:
                    stack.enter_context(RouterOffsets(led))
                yield

        return self.proof.run_on(dict(state), around=around)[0]

    @contextmanager
    def _recording_reached(self, sandbox: Sandbox) -> Generator[None, None, None]:
        """Notes which elements get rows."""
        modules = walk(self.axes.graph.model).modules
        own = {id(copy): self._numbers.get(id(module)) for module, copy in zip(modules, sandbox.modules, strict=True)}

        def left(module: nn.Module, args: Args, kwargs: Kwargs, output: object = None) -> None:
            place = own.get(id(module))
            if place is not None and any(tensor.numel() for _, tensor in tensors((args, kwargs or {}))):
                self._reached.setdefault(place[0], set()).add(place[1])

        with module_call_hooks(sandbox.copies, lambda module, args: None, left):
            yield


# -------------------- Candidates


log = logging.getLogger("modulekg_widgets")
MAX_PARAMETERS = 300_000_000  # of a model that is run in float64 for the proof


def infer_axes(graph: Dataflow, free_inputs: bool = False, free_outputs: bool = False) -> ProvableAxes:
    """The axes of a traced model, with the lists of modules that go with them."""
    with long_work("Channel groups", graph.model):
        return _inferred_axes(graph, free_inputs, free_outputs)


def _inferred_axes(graph: Dataflow, free_inputs: bool, free_outputs: bool) -> ProvableAxes:
    axes = ProvableAxes(graph, free_inputs, free_outputs)
    likely = _candidates(axes)
    while likely:
        found = ProvableAxes(graph, free_inputs, free_outputs, likely)
        proved = _proved_dimensions(found, likely)
        if proved == likely:
            return found
        likely = proved
    return axes


def _candidates(axes: ProvableAxes) -> ListsOfDimensions:
    """The dimensions of weights that may be of a router, each with the lists that are as long."""
    graph = axes.graph
    lists = [each for path, node in graph.modules.items() if (each := _alternatives(graph, path, node)) is not None]
    if not lists or not _can_be_proved(graph):
        return {}
    found: dict[tuple[str, int], tuple[IndexedChildren, ...]] = {}
    for each in lists:
        for dimension in _routers(axes, each.path, len(graph.modules[each.path].sub_modules)):
            found[dimension] = (*found.get(dimension, ()), each)
    return found


def _can_be_proved(graph: Dataflow) -> bool:
    held = [node for node in dict.fromkeys(graph.state.values()) if node.tensor is not None]
    return sum(node.numel() for node in held) <= MAX_PARAMETERS and not any(node.tensor.is_meta for node in held)  # type: ignore[union-attr]


def _alternatives(graph: Dataflow, path: str, node: ModuleNode) -> IndexedChildren | None:
    """Returns a list of parallel modules of one class with own weights, of which none feeds another; else None."""
    prefix = index_prefix(node.sub_modules) if isinstance(node.module, nn.ModuleList | nn.ModuleDict) else None
    elements = list(node.sub_modules.values())
    if prefix is None or len(elements) < 2 or len({id(element.module) for element in elements}) < len(elements):
        return None
    called = [element for element in elements if element.calls]
    if len({type(element.module) for element in elements}) > 1 or not called or _is_chain(called):
        return None
    modules = IndexedChildren(path, prefix)
    return modules if _have_like_weights(graph, modules, len(elements)) else None


def _have_like_weights(graph: Dataflow, modules: IndexedChildren, count: int) -> bool:
    """True if all elements of a list have tensors of the same names and shapes, and share none."""
    found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(count)]
    for node in dict.fromkeys(graph.state.values()):
        own = [place for name in node.names if (place := modules.split(name)) is not None]
        if own and (len(own) < len(node.names) or len({number for number, _ in own}) > 1):
            return False
        for number, name in own:
            found[number][name] = node.shape
    return bool(found[0]) and all(weights == found[0] for weights in found)


def _is_chain(called: list[ModuleNode]) -> bool:
    return any(set(one.outputs) & set(other.inputs) for one, other in itertools.pairwise(called))


def _routers(axes: ProvableAxes, path: str, count: int) -> list[tuple[str, int]]:
    """The dimensions of that size from which code picks single indices, in the module with the list or around that."""
    around = [path.rpartition(".")[0], path.rpartition(".")[0].rpartition(".")[0]]
    for home in dict.fromkeys(around):
        prefix = f"{home}." if home else ""
        nodes = [
            node for node in dict.fromkeys(axes.graph.state.values())
            if node.is_parameter and node.label.startswith(prefix) and not node.label.startswith(f"{path}.")
        ]  # fmt: skip
        found = dict(reversed(list(_selected_dimensions(axes, nodes, count))))
        if found:
            return list(found.values())
    return []


def _selected_dimensions(
    axes: ProvableAxes, nodes: list[DataNode], count: int
) -> Iterator[tuple[Term, tuple[str, int]]]:
    for node in nodes:
        for at, term in enumerate(map(find, axes.inference.dims(node)[:2])):  # kernels come behind these
            is_frozen = term.kind == ATOM and term.frozen is not None and term.frozen.operator is not None
            is_apart = term.kind == SUM and all(part.size == 1 for part in flattened_parts(term))
            if term.size == count and (is_frozen or is_apart):
                yield term, (node.label, at)


def _proved_dimensions(axes: ProvableAxes, likely: ListsOfDimensions) -> ListsOfDimensions:
    """Returns the dimensions that are proved to be permutable together with their lists."""
    terms = {dimension: axes.term(*dimension) for dimension in likely}
    asked = {axes.of(term): term.lists for term in terms.values() if term.kind == ATOM and term.lists}
    found = _prove_lists({axis: lists for axis, lists in asked.items() if axis.frozen is None}, axes)
    return {
        dimension: kept for dimension, term in terms.items()
        if (kept := tuple(each for each in likely[dimension] if each in found.get(axes.of(term), ())))
    }  # fmt: skip


def _prove_lists(asked: Lists, axes: ProvableAxes) -> Lists:
    for dtype in (torch.float64, torch.float32):  # some kernels exist for lower precision only
        try:
            return ListProof(axes, dtype).prove(asked)
        except TraceError as error:
            log.debug("no list of modules is proved to go with an axis: %s", error)
    return {}
