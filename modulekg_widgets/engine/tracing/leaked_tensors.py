"""Meta tensors that outlive a traced pass outside the model, as in a cache: they are replaced by real ones."""

from __future__ import annotations

import gc
import sys
import weakref

import torch

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.torch_runtime.isolation.callables import reachable_state
from modulekg_widgets.engine.torch_runtime.private import base_of, disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import leaves, tensors, with_leaves
from modulekg_widgets.engine.torch_runtime.rng import is_random
from modulekg_widgets.engine.tracing.dataflow import CONSTANT, DataNode, Storage
from modulekg_widgets.engine.tracing.execution import MAX_CONSTANT_SIZE, run_operator
from modulekg_widgets.engine.tracing.unregistered_tensors import BUFFER

Tensor = torch.Tensor
SWEEP_SIZE = 64  # values after which those that have died are let go
_OWN_REFERENCES = 2  # references to a tensor: the name's and that of the question


class LeakedTensors:
    """The meta or fake tensors of a pass that may outlive it, as in a cache outside the model."""

    def __init__(self) -> None:
        self.nodes: list[DataNode] = []
        self.tensors: list[Tensor] = []
        self._met: list[weakref.ref[Tensor]] = []  # they die as in every forward pass
        self._nodes_met: list[DataNode] = []
        self._many = SWEEP_SIZE

    def add(self, met: weakref.ref[Tensor], node: DataNode) -> None:
        self._met.append(met)
        self._nodes_met.append(node)
        if len(self._met) > self._many:
            living = [(each, at) for each, at in zip(self._met, self._nodes_met, strict=True) if each() is not None]
            self._met, self._nodes_met = [each for each, _ in living], [at for _, at in living]
            self._many = SWEEP_SIZE + 2 * len(living)

    def materialize(self, result: object = None) -> None:
        """Replaces living leaked tensors by the real tensors that they stand for; those in `result` are exempt.

        That is a table of constants in a cache of the user's, whose holder finds it as another object's contents.
        """
        self._collect_alive()
        self._drop_unreferenced()
        own = self._of_the_graph(result) if self.tensors else ()
        pairs = [pair for pair in zip(self.tensors, self.nodes, strict=True) if id(pair[0]) not in own]
        self._keep([pair for pair in pairs if not _materialize(*pair)])

    def _of_the_graph(self, result: object) -> set[int]:
        """The addresses of the tensors that a graph has itself, and of those that these are views of."""
        objects = with_leaves(result, DataNode, lambda _: None)
        held = [each.tensor for node in self.nodes[:1] for each in node.graph.values if each.tensor is not None]
        held += [each for each in reachable_state(objects) if isinstance(each, Tensor)]
        return {id(each) for tensor in held for each in (tensor, base_of(tensor)) if each is not None}

    def notes(self) -> list[str]:
        """Returns notes on the leaked tensors that could not be materialized."""
        if self.tensors:
            gc.collect()
            self._drop_unreferenced()
        return list(dict.fromkeys(map(_note, self.nodes)))

    def _collect_alive(self) -> None:
        """Collects the tensors that are still alive, and drops the weak references to them."""
        alive = [(met(), node) for met, node in zip(self._met, self._nodes_met, strict=True)]
        self._met, self._nodes_met = [], []
        self.tensors += [tensor for tensor, _ in alive if tensor is not None]
        self.nodes += [node for tensor, node in alive if tensor is not None]

    def _drop_unreferenced(self) -> None:
        """Drops the tensors that nothing else references, views before their bases."""
        kept: list[tuple[Tensor, DataNode]] = []
        while self.tensors:
            tensor, node = self.tensors.pop(), self.nodes.pop()
            if sys.getrefcount(tensor) > _OWN_REFERENCES:
                kept.append((tensor, node))
        self._keep(kept[::-1])

    def _keep(self, pairs: list[tuple[Tensor, DataNode]]) -> None:
        self.tensors, self.nodes = [tensor for tensor, _ in pairs], [node for _, node in pairs]


def _materialize(tensor: Tensor, node: DataNode) -> bool:
    try:
        with disable_current_modes(), torch.no_grad():
            value = _constant_contents(node)
            if value is not None:
                torch.utils.swap_tensors(tensor, value)
    except Exception:  # noqa: BLE001 - of the user's operators, or of a tensor that others refer to
        return False
    return value is not None


def _constant_contents(node: DataNode) -> Tensor | None:
    """Returns the final contents of a value that depends on constants and buffers alone; else None."""
    needed = _dependencies(node)
    operators = {each.producer for each in needed if each.producer is not None}
    if not all(map(_is_known, needed)) or any(map(is_random, (operator.overload for operator in operators))):
        return None
    values = {each: each.tensor.clone() for each in needed if each.producer is None and each.tensor is not None}
    for operator in sorted(operators, key=lambda operator: operator.index):
        found = [tensor for _, tensor in tensors(run_operator(operator, values.__getitem__))]
        traced = [each for _, each in leaves(operator.result, DataNode)]
        values.update(zip(traced, found, strict=True))
        values.update((each, values[each.previous]) for each in operator.outputs if each.previous in values)
    return values[node].clone()


def _is_known(node: DataNode) -> bool:
    if node.producer is not None:
        return node.numel() <= MAX_CONSTANT_SIZE
    return node.kind in (BUFFER, CONSTANT) and node.tensor is not None and not node.tensor.is_meta


def _dependencies(node: DataNode) -> set[DataNode]:
    """All that a value is made of, and what is written into its memory, each with what that is made of."""
    versions: dict[Storage, list[DataNode]] = {}
    for each in node.graph.values:
        if each.previous is not None:
            versions.setdefault(each.storage, []).append(each)
    needed: set[DataNode] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in needed:
            continue
        needed.add(each)
        waiting += versions.get(each.storage, ())
        waiting += [] if each.producer is None else each.producer.inputs
        waiting += [] if each.previous is None else [each.previous]
    return needed


def _note(node: DataNode) -> str:
    where = f", made at {node.producer.source}" if node.producer is not None and node.producer.source else ""
    return (
        f"forward keeps a tensor outside of the model ({printable(node.name)}{where}), where a copy "
        "cannot replace it: it has no data there now. Keep it in the model, or in a dictionary that the module's "
        "own code names"
    )
