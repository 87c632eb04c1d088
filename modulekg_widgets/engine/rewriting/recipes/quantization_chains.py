"""Chains to quantize together: a layer, its batch norm, and the clamping activation after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from torch import nn

from modulekg_widgets.engine.adapters import NORMS
from modulekg_widgets.engine.errors import RewritingError, a_type, printable
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.signature import base_name
from modulekg_widgets.engine.operators.traits import traits_of
from modulekg_widgets.engine.rewriting.function_modules.function_module import FunctionModule, function_name
from modulekg_widgets.engine.rewriting.recipes.folding import channel_mismatch_reason, norm_rejection_reason
from modulekg_widgets.engine.rewriting.recipes.quantizers import QUANTIZED
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import (
    LAYERS,
    ModuleFlow,
    ReplaceableLayers,
    torch_class,
)
from modulekg_widgets.engine.rewriting.select import plain_name
from modulekg_widgets.engine.torch_runtime.hooks import has_hooks
from modulekg_widgets.engine.tracing.dataflow import DataNode, ModuleNode, OperatorNode

_CLAMPS = (nn.ReLU, nn.ReLU6, nn.Hardtanh)
_CLAMPING_FUNCTIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6}


class SkippedLayer(NamedTuple):
    """A layer that is not quantized, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, eq=False, slots=True)
class QuantizationChain:
    """A layer to quantize with the norm and activation that follow it."""

    layer: ModuleNode
    norm: ModuleNode | None = None
    activation: nn.Module | None = None  # a new one
    clamp: ModuleNode | None = None  # the module that does what `activation` does, which then goes

    @property
    def modules(self) -> list[ModuleNode]:
        return [node for node in (self.layer, self.norm, self.clamp) if node is not None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.path for node in self.modules)


def detect_chains(flow: ModuleFlow, layers: ReplaceableLayers) -> tuple[list[QuantizationChain], list[SkippedLayer]]:
    """The chains by data flow, and the layers that are in none.

    A clamp does nothing to what is clamped already, so one that must stay (a function, a module that is called
    elsewhere, too) is done within the chain as well.
    """
    chains, others = [], []
    for node in flow.modules:
        if isinstance(node.module, LAYERS):
            why = rejection_reason(node, flow, layers)
            if why:
                others.append(SkippedLayer(node.path, why))
            else:
                chains.append(_chain_from(node, flow, layers))
    return chains, others


def named_chains(
    names: Iterable[Sequence[str]], flow: ModuleFlow, layers: ReplaceableLayers
) -> list[QuantizationChain]:
    """The chains of these names: a layer, then a batch norm, then a clamp, the latter two where they are named.

    Raises `UnknownPathError` and `RewritingError`.
    """
    if not isinstance(names, Iterable):
        raise RewritingError(f"chains is {a_type(names)}: pass a list of lists of names, or None")
    chains: list[QuantizationChain] = []
    taken: set[int] = set()
    for chain in names:
        if isinstance(chain, str) or not isinstance(chain, Iterable):
            raise RewritingError(f"a chain is a list of names, got {printable(repr(chain))}: pass [[…], […]]")
        nodes = [flow.graph.modules[plain_name(flow.graph.model, name)] for name in chain]
        why = _invalid_chain_reason(nodes, flow, layers)
        if not why and any(id(node) in taken for node in nodes):
            why = "one of these stands in two chains"
        if why:
            raise RewritingError(
                f"{printable(' → '.join(map(str, chain))) or 'an empty chain'} cannot be quantised: {why}"
            )
        taken.update(map(id, nodes))
        norm = next((node for node in nodes if isinstance(node.module, NORMS)), None)
        clamp = nodes[-1] if _clamp(nodes[-1].module) else None
        chains.append(QuantizationChain(nodes[0], norm, _clamp(clamp.module) if clamp else None, clamp))
    return chains


def rejection_reason(node: ModuleNode, flow: ModuleFlow, layers: ReplaceableLayers) -> str:
    """Returns the reason why a layer cannot be quantized; else an empty text."""
    cls = torch_class(node.module, LAYERS)
    if cls not in QUANTIZED:
        return f"torch.ao trains no quantised {printable(type(node.module).__name__)}"
    why = layers.rejection_reason(node.module, QUANTIZED) or flow.external_read_reason(node)
    if not why and not node.calls:
        why = "it is not called"
    if not why and any(len(call.inputs) != 1 or len(call.outputs) != 1 for call in node.calls):
        why = "it is called with other things than one tensor"
    return why or _fast_path_reason(node.module, layers)


def is_quantized_value(value: DataNode, outputs: set[DataNode]) -> bool:
    """True if a value contains only numbers of quantizer outputs, moved or dropped at most."""
    while value not in outputs:
        producer = value.producer
        if producer is None or not traits_of(producer.overload).keeps_numbers:
            return False
        value = OperatorCall(producer).inputs[0]
    return True


def _fast_path_reason(layer: nn.Module, layers: ReplaceableLayers) -> str:
    """nn.TransformerEncoderLayer reads the weights of its layers in evaluation without calling them."""
    fast = isinstance(layers.parent(layer), nn.TransformerEncoderLayer)
    return "nn.TransformerEncoderLayer reads its weight without calling it" if fast else ""


def _chain_from(layer: ModuleNode, flow: ModuleFlow, layers: ReplaceableLayers) -> QuantizationChain:
    norm = next((node for node in flow.readers(layer) if isinstance(node.module, NORMS)), None)
    if norm is not None and _norm_rejection_reason(layer, norm, flow, layers):
        norm = None
    last = norm or layer
    operator = _clamping_operator(last, flow)
    if operator is None:
        return QuantizationChain(layer, norm)
    return QuantizationChain(layer, norm, _activation(operator), _clamping_module(operator, flow, layers))


def _norm_rejection_reason(layer: ModuleNode, norm: ModuleNode, flow: ModuleFlow, layers: ReplaceableLayers) -> str:
    why = (
        layers.rejection_reason(norm.module, NORMS)
        or norm_rejection_reason(norm.module, layers)
        or flow.not_sequential_reason(layer, norm)
    )
    why = why or flow.external_read_reason(norm) or channel_mismatch_reason(layer, norm)
    if why or isinstance(layer.module, nn.Linear):
        return why or "torch.ao quantises linear layers without their batch norm"
    return "" if torch_class(norm.module, NORMS) is not nn.SyncBatchNorm else "torch.ao has no SyncBatchNorm"


def _clamping_operator(last: ModuleNode, flow: ModuleFlow) -> OperatorNode | None:
    """Returns the clamp that is the only consumer of a module's output, or None."""
    if len(last.calls) != 1 or len(last.outputs[0].consumers) != 1:
        return None
    operator = last.outputs[0].consumers[0]
    return operator if _activation(operator) is not None and not flow.observer_reason(last.outputs[0]) else None


def _activation(operator: OperatorNode) -> nn.Module | None:
    name = base_name(operator.name)
    if name == "aten::relu":
        return nn.ReLU()
    if name == "aten::hardtanh":
        bounds = [*operator.args[1:3], -1.0, 1.0][: max(2, len(operator.args) - 1)]
        return nn.ReLU6() if bounds[:2] == [0.0, 6.0] else nn.Hardtanh(*bounds[:2])
    return None


def _clamping_module(operator: OperatorNode, flow: ModuleFlow, layers: ReplaceableLayers) -> ModuleNode | None:
    """The module that makes this call and none else, so that it may go."""
    node = flow.graph.modules[operator.module]
    plain = torch_class(node.module, _CLAMPS) is type(node.module) and len(node.calls) == 1
    return node if plain and not has_hooks(node.module) and not layers.is_in_plain_attribute(node.module) else None


def _clamp(module: nn.Module) -> nn.Module | None:
    """A new module for a clamp that was named: a module of torch, or a function as a module."""
    if isinstance(module, FunctionModule):
        made = _CLAMPING_FUNCTIONS.get(function_name(module.function))
        return made() if made is not None else None
    if type(module) is nn.Hardtanh:
        return nn.Hardtanh(module.min_val, module.max_val)
    return type(module)() if type(module) in _CLAMPS else None


def _invalid_chain_reason(nodes: list[ModuleNode], flow: ModuleFlow, layers: ReplaceableLayers) -> str:
    """Returns the reason why the named modules are no chain; else an empty text."""
    if not nodes:
        return "name a layer, the batch norm and the activation behind it"
    first, *rest = nodes
    if why := rejection_reason(first, flow, layers):
        return f"{printable(first.path) or 'the model'}: {why}"
    kinds = "".join("n" if isinstance(node.module, NORMS) else "c" if _clamp(node.module) else "?" for node in rest)
    if kinds not in ("", "n", "c", "nc"):
        return "a chain is a layer, then a batch norm, then a ReLU, ReLU6 or Hardtanh, which both may be absent"
    if "n" in kinds and (why := _norm_rejection_reason(first, rest[0], flow, layers)):
        return why
    return next((why for pair in pairwise(nodes) if (why := flow.not_sequential_reason(*pair))), "")
