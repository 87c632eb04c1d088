"""Activation importance: statistics of activations along each axis, from batches of data."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.importance.calibration import Calibration, check_batches
from modulekg_widgets.engine.pruning.importance.criteria import Scores, means_or_magnitudes, squared, upcast, weights_of
from modulekg_widgets.engine.pruning.importance.importance import Criterion, importance
from modulekg_widgets.engine.pruning.importance.index_sums import (
    ElementFunction,
    IndexSums,
    Vector,
    marginals,
    relative_to_mean,
)
from modulekg_widgets.engine.pruning.importance.members import reading_dims
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.decompose import DecomposedLayers, OperatorMode, WholeRecurrentLayers
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.private import OpOverload
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode
from modulekg_widgets.engine.tracing.unregistered_tensors import model_tensors_by_name

Tensor = torch.Tensor
TensorNames = frozenset[str]  # of the parameters and buffers that a tensor is made of, and nothing else
LAYER_INPUT, LAYER_OUTPUT, OTHER_OPERATOR = range(3)


class Statistic(NamedTuple):
    """Sums over elements, and what is computed from their means."""

    elements: tuple[ElementFunction, ...]
    finish: Callable[..., Vector]


STATISTICS = {
    "mean_abs": Statistic((lambda x: upcast(x).abs(),), lambda mean: mean),
    "rms": Statistic((lambda x: upcast(x).abs().square_(),), np.sqrt),
    "std": Statistic(
        (upcast, lambda x: upcast(x).square()), lambda mean, square: np.sqrt(np.maximum(square - mean**2, 0.0))
    ),
    "nonzero": Statistic((lambda x: (x != 0).float(),), lambda share: share),
}


@importance("activation")
class Activation(Criterion):
    """A statistic of the activations of an index, times the norm ‖w‖₂ of the weights that read it.

    The statistic is relative to the axis's average, and several values have the same say. Where no layer reads an axis,
    as that of queries and keys, what layers put out along it counts, and nothing is multiplied. An axis that the passes
    do not reach, or on which the statistic is zero, is scored as by `L1`. Source: An et al. 2024, "Fluctuation-based
    Adaptive Structured Pruning for Large Language Models", for the deviations.

    Parameters
    ----------
    batches : iterable, optional
        What runs through the model, by default what the trace was called with; a target in a batch is left aside.
    statistic : {"mean_abs", "rms", "std", "nonzero"}, default "std"
        "std" is over samples and positions, "nonzero" is 1 - APoZ (Hu et al. 2016, "Network Trimming").
    weighted : bool, default True
        Whether the weights that read an index count; without them it is the values alone.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Raises
    ------
    UnknownNameError
        For another statistic.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> graph = mk.trace(model, torch.randn(3, 4))
    >>> mk.plan(graph, ratio=0.5, importance=mk.pruning.Activation([torch.randn(3, 4)], "rms")).axes[0].left
    4
    """

    def __init__(
        self,
        batches: Iterable[object] | None = None,
        statistic: str = "std",
        *,
        weighted: bool = True,
        training: bool | None = None,
    ) -> None:
        check_batches(batches)
        if statistic not in STATISTICS:
            raise UnknownNameError(
                f"statistic={printable(str(statistic))!r}: {closest_match_hint(str(statistic), STATISTICS)}"
            )
        self.batches = batches
        self.statistic = statistic
        self.weighted = weighted
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Scores:
        index_sums = IndexSums(axes, terms)
        weights = weights_of(axes, "activation")
        readings = ActivationSums(index_sums, STATISTICS[self.statistic])
        calibration = Calibration(axes.graph, self.batches, self.training)
        calibration.run(lambda sandbox: _recording_activations(readings, sandbox))
        readings.add_to_index_sums()
        scores = means_or_magnitudes(index_sums)
        if self.weighted:
            for atom, lengths in input_weight_norms(axes, index_sums.counted_atoms, weights).items():
                scores[atom] = scores[atom] * lengths
        return scores


def input_weight_norms(axes: Axes, terms: Sequence[Term], weights: Mapping[DataNode, tuple[Tensor]]) -> Scores:
    """The norm of the weights that read each index, relative to the mean of its axis."""
    index_sums = IndexSums(axes, terms)
    index_sums.add_all(squared, weights, index_sums.add, reading_dims(axes))
    return {atom: relative_to_mean(np.sqrt(index_sums.sum_of(atom))) for atom in index_sums.counted_atoms}


class ActivationSums:
    """Selects the activations to record, and sums their statistics.

    A value is known again by its operator: the n-th one whose largest parameter is the same, for what surrounds it, as
    the addition of a bias, changes with batch size and device. `calls` are these operators by that parameter's name,
    each with its first input that is an activation, and its first output.
    """

    def __init__(self, index_sums: IndexSums, statistic: Statistic) -> None:
        self.index_sums = index_sums
        self.statistic = statistic
        self.calls: dict[str, list[tuple[DataNode, DataNode | None]]] = {}
        self._sums: dict[tuple[DataNode, int], list[Vector]] = {}
        self._depths: Counter[tuple[DataNode, int]] = Counter()
        self.chosen = self._choose(self._candidates())

    # ------------------------------------------------------------- planning

    def _candidates(self) -> Iterator[tuple[int, DataNode]]:
        """The values that could be recorded, with a level: layer input, layer output or other."""
        graph = self.index_sums.axes.graph
        layers = Layers(self.index_sums.axes.inference, buffers=True)
        made_of = {node.storage: frozenset([node.label]) for node in graph.state.values()}
        for operator in graph.operators:
            names = [made_of.get(node.storage) for node in operator.inputs]
            known = frozenset().union(*(each for each in names if each))
            if not known:
                continue
            if None not in names:
                made_of.update({node.storage: known for node in operator.outputs if node.storage not in made_of})
                continue
            into = operator.inputs[names.index(None)]
            out = _first_result(operator)
            self.calls.setdefault(self.largest_tensor(known), []).append((into, out))
            is_layer = operator.index in layers.at
            yield LAYER_INPUT if is_layer else OTHER_OPERATOR, into
            if out is not None:
                yield LAYER_OUTPUT if is_layer else OTHER_OPERATOR, out

    def largest_tensor(self, names: TensorNames) -> str:
        """The name of the largest of these tensors."""
        state = self.index_sums.axes.graph.state
        return max(names, key=lambda name: (state[name].numel(), name))

    def _choose(self, candidates: Iterable[tuple[int, DataNode]]) -> dict[DataNode, dict[int, set[Term]]]:
        """The atoms to record for each value and dimension, each at its best level."""
        best: dict[Term, int] = {}
        places: list[tuple[int, DataNode, int, list[Term]]] = []
        for level, node in candidates:
            for at, layout in self.index_sums.layouts(node).items():
                places.append((level, node, at, layout.atoms))
                for atom in layout.atoms:
                    best[atom] = min(level, best.get(atom, level))
        chosen: dict[DataNode, dict[int, set[Term]]] = {}
        for level, node, at, every in places:
            own = {atom for atom in every if best[atom] == level}
            if own:
                chosen.setdefault(node, {}).setdefault(at, set()).update(own)
        return chosen

    # -------------------------------------------------------------- reading

    def record(self, node: DataNode, value: Tensor) -> None:
        """Add a value to the sums, if it is selected."""
        if node not in self.chosen or value.dim() != node.dim():
            return
        dims = [at for at in self.chosen[node] if value.shape[at] == node.shape[at]]
        if not dims or not value.numel():
            return
        for number, element in enumerate(self.statistic.elements):
            for at, sums in marginals(element, (value.detach(),), dims).items():
                kept = self._sums.setdefault((node, at), [np.zeros(len(sums)) for _ in self.statistic.elements])
                kept[number] += sums.cpu().double().numpy()
        for at in dims:
            self._depths[node, at] += value.numel() // value.shape[at]

    def add_to_index_sums(self) -> None:
        """Add the recorded statistics to the index sums; every value and dimension has the same weight."""
        for (node, at), sums in self._sums.items():
            layout = self.index_sums.layouts(node)[at]
            depth = np.repeat(layout.multiplicity * self._depths[node, at], layout.sizes)
            folded = self.statistic.finish(*(layout.fold(vector) / depth for vector in sums))
            for atom, start in zip(layout.atoms, layout.starts, strict=True):
                if atom in self.chosen[node][at]:
                    own = self.index_sums.layout(atom)
                    assert own is not None
                    self.index_sums.add_relative(own, folded[start : start + atom.size])


def _first_result(operator: OperatorNode) -> DataNode | None:
    results = operator.result if isinstance(operator.result, list | tuple) else [operator.result]
    return next((each for each in results if isinstance(each, DataNode)), None)


class _ActivationMode(OperatorMode):
    """Records the selected values during one forward pass."""

    def __init__(self, readings: ActivationSums, sandbox: Sandbox) -> None:
        super().__init__()
        self._readings = readings
        self._call_counts: Counter[str] = Counter()
        self._read: set[DataNode] = set()
        self._made: dict[int, tuple[TensorNames, Tensor]] = {}  # by address; what is held is not freed and taken again
        graph = readings.index_sums.axes.graph
        walked = walk(graph.model).with_modules(sandbox.modules)
        ranges = {}
        for held in model_tensors_by_name(walked, graph.state).values():
            node, tensor = graph.state.get(held.name), held.tensor
            if node is not None and tensor.numel() and tensor.layout is torch.strided:
                size = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.itemsize
                ranges[tensor.data_ptr()] = (tensor.data_ptr() + size, frozenset([node.label]))
        self._starts = sorted(ranges)
        self._ranges = ranges

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        inputs = list(tensors_in([*args, *(kwargs or {}).values()]))
        names = [self._names(tensor) for tensor in inputs]
        known = frozenset().union(*(each for each in names if each))
        if not known:
            return out
        results = list(tensors_in([out]))
        if None not in names:
            for tensor in results:
                if self._names(tensor) is None and tensor.numel():
                    self._made[tensor.untyped_storage().data_ptr()] = (known, tensor)
            return out
        key = self._readings.largest_tensor(known)
        calls = self._readings.calls.get(key, ())
        number = self._call_counts[key]
        self._call_counts[key] += 1
        if number < len(calls):
            into, result = calls[number]
            self._record(into, inputs[names.index(None)])
            if result is not None and results:
                self._record(result, results[0])
        return out

    def _record(self, node: DataNode, value: Tensor) -> None:
        if node not in self._read:  # several layers may read one value
            self._read.add(node)
            self._readings.record(node, value)

    def _names(self, tensor: Tensor) -> TensorNames | None:
        """The names of the parameters and buffers that a tensor is made of; None if it depends on the input."""
        if not tensor.numel() or tensor.layout is not torch.strided:
            return None
        address = tensor.data_ptr()
        at = bisect_right(self._starts, address) - 1
        if at >= 0:
            end, names = self._ranges[self._starts[at]]
            if address < end:
                return names
        made = self._made.get(tensor.untyped_storage().data_ptr())
        return None if made is None else made[0]


@contextmanager
def _recording_activations(readings: ActivationSums, sandbox: Sandbox) -> Iterator[None]:
    """Record activations with recurrent layers as single operators, as in the trace."""
    watch = _ActivationMode(readings, sandbox)
    with DecomposedLayers(), watch, WholeRecurrentLayers(watch):
        yield
