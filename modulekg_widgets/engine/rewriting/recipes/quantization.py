"""Fake quantization with torch.ao's quantizers: the accuracy of integers, and training with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import RewritingError, a_type, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.recipes.quantization_chains import (
    QuantizationChain,
    SkippedLayer,
    detect_chains,
    is_quantized_value,
    named_chains,
)
from modulekg_widgets.engine.rewriting.recipes.quantizers import FakeQuantized, quantize_layer, quantizers
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import ModuleFlow, ReplaceableLayers, identity_like
from modulekg_widgets.engine.rewriting.replace import replace_modules
from modulekg_widgets.engine.rewriting.undo import Recipe
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.modules import module_state, set_mode
from modulekg_widgets.engine.torch_runtime.private import PARAMETERS, modules_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Call, Kwargs, call_arguments, tensors
from modulekg_widgets.engine.tracing.trace import trace_dataflow

T = TypeVar("T")
Evaluate = Callable[[nn.Module], float]
_SCALE, _ZERO_POINT, _BIAS = 4, 4, 4  # bytes: float32, int32, float32


class QuantizationAgreement(NamedTuple):
    """The agreement of quantized and float outputs: relative error, SQNR in dB, share of equal top-1."""

    error: float
    sqnr: float
    top1: float | None  # None where an output is no table of scores


class FakeQuantization(Recipe):
    """The result of `fake_quant`: quantized chains, skipped layers, accuracy and bytes; `undo()` reverts it.

    Attributes
    ----------
    chains : tuple of tuples of str
        The layers that became one, by dotted names.
    skipped : tuple of Unquantised
        What was not quantised, and why.
    bits : (int, int)
        Of weights and of activations.
    accuracy : (float, float) or None
        Before and after, where `evaluate` was given.
    agreement : QuantizationAgreement or None
        Of the outputs for `args`: relative error, signal to noise in dB, share of equal top-1.
    nbytes : (int, int)
        Bytes of parameters and buffers in floating point, and with integer weights, float32 scales and biases.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> from torch import nn
    >>> done = mk.rewrite.fake_quant(nn.Sequential(nn.Linear(4, 2)), torch.ones(1, 4))
    >>> done.chains, done.bits
    ((('0',),), (8, 8))
    """

    chains: tuple[tuple[str, ...], ...]
    skipped: tuple[SkippedLayer, ...]
    bits: tuple[int, int]
    accuracy: tuple[float, float] | None
    agreement: QuantizationAgreement | None
    nbytes: tuple[int, int]

    def headline(self) -> str:
        before, after = self.nbytes
        parts = [f"{len(self.chains)} layers in {self.bits[0]} bits, activations in {self.bits[1]}"]
        parts.append(f"{before:,} → {after:,} bytes")
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy[0]:.4g} → {self.accuracy[1]:.4g}")
        if self.agreement is not None:
            top1 = "" if self.agreement.top1 is None else f", {self.agreement.top1:.1%} equal top-1"
            parts.append(f"error {self.agreement.error:.2%}, SQNR {self.agreement.sqnr:.1f} dB{top1}")
        return "; ".join(parts)

    def lines(self) -> Iterator[str]:
        yield from (f"{printable(name) or '(root)'}: not quantised, {why}" for name, why in self.skipped)
        yield from (printable(" → ".join(names)) for names in self.chains)


@explain_keywords("mk.rewrite.fake_quant")
def fake_quant(
    model: nn.Module,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    batches: Iterable[object] = (),
    chains: Iterable[Sequence[str]] | None = None,
    evaluate: Evaluate | None = None,
    bits: int = 8,
    activation_bits: int | None = None,
) -> FakeQuantization:
    """Quantise, in place and for show, every convolution with its batch norm and ReLU, and every linear layer.

    Each chain becomes one `FakeQuantized` with copies of the weights, which train through the rounding; its ranges
    follow the data in training mode and stay in eval mode. All figures are of eval mode. A norm behind a linear layer,
    and one without weights, stays as it is, outside of the chain.

    Parameters
    ----------
    model : nn.Module
        The model.
    args, kwargs : tuple and dict
        Inputs that forward takes.
    batches : iterable, optional
        Further inputs; all of them tell the ranges of the activations.
    chains : iterable of sequences of str, optional
        Names as of `find_chains`; None for all.
    evaluate : callable, optional
        `evaluate(model)` gives the accuracy.
    bits : int
        Of weights (per output channel, symmetric), 2 to 8.
    activation_bits : int, optional
        Of activations (per tensor, affine), 2 to 8; None for the same.

    Returns
    -------
    FakeQuantization
        What was quantised, what it costs and saves, and the way back.

    Raises
    ------
    RewritingError, UnknownPathError
        For what cannot be quantised; the model is then as it was.
    TraceError
        When forward stops on the inputs.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> done = mk.rewrite.fake_quant(model, torch.ones(1, 4))
    >>> type(model[0]).__name__, done.chains
    ('FakeQuantized', (('0', '1'),))
    """
    widths = _checked_bits(bits), _checked_bits(bits if activation_bits is None else activation_bits)
    layers = ReplaceableLayers(model)
    _check_data(layers)
    flow = ModuleFlow(trace_dataflow(model, args, kwargs, training=False))
    found, skipped = detect_chains(flow, layers) if chains is None else (named_chains(chains, flow, layers), [])
    with torch.inference_mode(False), torch.no_grad():
        made = _quantized_modules(found, widths)
    before = _model_bytes(model, ())
    calls = [call_arguments(args, kwargs), *(call_arguments(batch, None) for batch in batches)]
    root = flow.graph.model

    def measured(sandbox: Sandbox) -> tuple[list[torch.Tensor], float | None]:
        return _calibrated(sandbox, found, made), None if evaluate is None else _number(evaluate(sandbox.model))

    def measured_again(sandbox: Sandbox) -> tuple[float | None, QuantizationAgreement | None]:
        after = None if evaluate is None else _number(evaluate(sandbox.model))
        return after, _agreement(expected, _outputs_of_batch(sandbox.model, sandbox.held[0], "args, quantised,"))

    expected, accuracy = _run_in_eval(root, calls, measured)
    new = {
        name: module for chain, block in zip(found, made, strict=True) for name, module in _replacements(chain, block)
    }
    rewrite = replace_modules(model, new, check=False)
    try:
        after, agreement = _run_in_eval(root, calls, measured_again)
    except BaseException:
        rewrite.undo()
        raise
    return FakeQuantization(
        rewrite,
        chains=tuple(chain.names for chain in found),
        skipped=tuple(skipped),
        bits=widths,
        accuracy=None if accuracy is None or after is None else (accuracy, after),
        agreement=agreement,
        nbytes=(before, _model_bytes(model, made)),
    )


def _quantized_modules(chains: Sequence[QuantizationChain], widths: tuple[int, int]) -> list[FakeQuantized]:
    """The quantised module of each chain; one quantises its input where that is not the output of others."""
    given = {value for chain in chains for value in chain.modules[-1].outputs}
    return [
        quantize_layer(
            chain.layer.module,
            None if chain.norm is None else chain.norm.module,
            chain.activation,
            bits=widths[0],
            activation_bits=widths[1],
            quantize_input=not all(is_quantized_value(value, given) for value in chain.layer.inputs),
        )
        for chain in chains
    ]


def _replacements(chain: QuantizationChain, block: FakeQuantized) -> Iterator[tuple[str, nn.Module]]:
    """Yields the replacements of a chain's modules by name."""
    yield chain.layer.path, block
    yield from ((node.path, identity_like(node.module)) for node in chain.modules[1:])


# ------------------------------------------------------------------ running


def _run_in_eval(root: nn.Module, held: list[Call], run: Callable[[Sandbox], T]) -> T:
    """Runs `run` on an isolated copy in eval mode without gradients."""

    def resting(sandbox: Sandbox) -> T:
        set_mode(sandbox.states, training=False)
        with torch.no_grad():
            return run(sandbox)

    return run_isolated(walk(root).modules, held, resting, ALL)


def _calibrated(
    sandbox: Sandbox, chains: Sequence[QuantizationChain], made: Sequence[FakeQuantized]
) -> list[torch.Tensor]:
    """Calibrates the quantizers on the float model, and returns its outputs for the first call."""
    pairs = list(zip(chains, made, strict=True))
    first = {id(sandbox.of(chain.layer.module)): (chain, block) for chain, block in pairs}
    last = {id(sandbox.of(chain.modules[-1].module)): (chain, block) for chain, block in pairs}
    seen: dict[int, int] = {}

    def observe(block: FakeQuantized, name: str, values: torch.Tensor) -> None:
        quantizer = modules_of(block).get(name)
        if quantizer is not None:
            count = seen[id(quantizer)] = seen.get(id(quantizer), -1) + 1
            quantizer.observe(values, count)  # type: ignore[operator]

    def left(module: nn.Module, args: Args, kwargs: Kwargs, output: Any = None) -> None:
        if output is None:  # the call raised
            return
        if id(module) in first:
            observe(first[id(module)][1], "input", next(tensor for _, tensor in tensors((args, kwargs))))
        if id(module) in last:
            chain, block = last[id(module)]
            observe(block, "output", output if chain.activation is None else chain.activation(output))

    with module_call_hooks(sandbox.copies, lambda *_: None, left):
        calls = enumerate(sandbox.held)
        outputs = [_outputs_of_batch(sandbox.model, call, f"batch {i}" if i else "args") for i, call in calls]
    for chain, block in zip(chains, made, strict=True):
        for quantizer in quantizers(block):
            if not quantizer.scale.isfinite().all():
                raise RewritingError(f"{printable(chain.layer.path)} takes or gives numbers that are not finite")
            quantizer.enable_observer(block.training)
    return outputs[0]


def _outputs_of_batch(root: nn.Module, call: Call, given: str) -> list[torch.Tensor]:
    try:
        return _outputs(root, call)
    except Exception as error:
        raise RewritingError(
            f"the forward pass with {given} raised {type(error).__name__}: {printable(str(error), 300)}"
        ) from error


def _outputs(root: nn.Module, call: Call) -> list[torch.Tensor]:
    """Returns the floating-point tensors of the model's output."""
    args, kwargs = call
    return [tensor.detach().clone() for _, tensor in tensors(root(*args, **kwargs)) if tensor.is_floating_point()]


# ------------------------------------------------------------------ figures


def _agreement(expected: list[torch.Tensor], found: list[torch.Tensor]) -> QuantizationAgreement | None:
    """Returns the agreement of two sets of outputs; None where they cannot be compared."""
    if not sum(tensor.numel() for tensor in expected) or [t.shape for t in expected] != [t.shape for t in found]:
        return None
    signal = sum(float(tensor.double().square().sum()) for tensor in expected)
    pairs = zip(expected, found, strict=True)
    noise = sum(float((after.double() - before.double()).square().sum()) for before, after in pairs)
    scores, others = expected[0], found[0]
    table = scores.dim() >= 2 and scores.shape[1] > 1
    top1 = float((scores.argmax(1) == others.argmax(1)).double().mean()) if table and scores.numel() else None
    if not noise:
        return QuantizationAgreement(0.0, math.inf, top1)
    ratio = signal / noise
    return QuantizationAgreement(
        math.sqrt(1 / ratio) if ratio else math.inf, 10 * math.log10(ratio) if ratio else -math.inf, top1
    )


def _model_bytes(model: nn.Module, blocks: Sequence[FakeQuantized]) -> int:
    """The bytes of parameters and buffers, of the weights in `blocks` as integers with scales and float32 biases."""
    inside = {id(tensor) for block in blocks for tensor in _state(block)}
    rest = sum(tensor.nbytes for tensor in _state(model) if id(tensor) not in inside)
    return rest + sum(map(_quantized_bytes, blocks))


def _quantized_bytes(block: FakeQuantized) -> int:
    core: Any = block.layer
    weight = core.weight
    bits = core.weight_fake_quant.activation_post_process.quant_max.bit_length() + 1
    size = math.ceil(weight.numel() * bits / 8) + len(weight) * _SCALE
    if core.bias is not None or hasattr(core, "bn"):
        size += len(weight) * _BIAS
    return size + (len(quantizers(block)) - 1) * (_SCALE + _ZERO_POINT)


def _state(module: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module and those below, each once."""
    return list({id(t): t for t in (*module.parameters(), *module.buffers())}.values())


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RewritingError(f"evaluate returned {a_type(value)}: let it give one number") from None


def _checked_bits(bits: int) -> int:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 2 <= bits <= 8:
        raise RewritingError(f"got {printable(repr(bits))} bits: pass a whole number from 2 to 8")
    return bits


def _check_data(layers: ReplaceableLayers) -> None:
    for path, module in layers:
        if any(own is not None and own.is_meta for own in module_state(module)[PARAMETERS].values()):
            raise RewritingError(
                f"{printable(path) or 'the model'} is on the meta device: ranges are taken from real data"
            )
