"""Forward and backward passes over calibration batches, which leave the model unchanged."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.errors import CutError, ModuleKGError, a_type, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.importance.gates import Gates
from modulekg_widgets.engine.torch_runtime.decompose import AttentionSlowPath, MathAttention
from modulekg_widgets.engine.torch_runtime.isolation.progress import report_progress
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.modules import module_state, registered_tensors, set_mode
from modulekg_widgets.engine.torch_runtime.pytree import Args, Call, Kwargs, tensors, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import seeded_generator
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

Tensor = torch.Tensor
ParameterPairs = dict[DataNode, tuple[Tensor, Tensor]]  # per parameter its values, and what belongs to each of them
Loss = Callable[..., object]
ONE_BATCH_HINT = "to pass one batch of inputs and targets, write [(X, y)]"


def live_parameters(graph: Dataflow, more: Collection[DataNode] = ()) -> dict[DataNode, Tensor]:
    """The parameters, and `more`, as the model has them now; `to` or `load_state_dict` may replace them.

    Raises `CutError` when one is gone or has another shape than at the trace.
    """
    live: dict[DataNode, Tensor] = {}
    for node in dict.fromkeys(graph.state.values()):
        if not node.is_parameter and node not in more:
            continue
        path, _, attribute = node.label.rpartition(".")
        tensor = registered_tensors(module_state(graph.modules[path].module)).get(attribute)
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != node.shape:
            now = f"has shape {list(tensor.shape)}" if isinstance(tensor, Tensor) else "is gone"
            raise CutError(
                f"the {node.kind} {printable(node.label)!r} {now}, at the trace it had {list(node.shape)}: "
                "trace the model again as it is now"
            )
        live[node] = tensor
    return live


def weights_with_data(axes: Axes, reader: str) -> dict[DataNode, Tensor]:
    """The live parameters, and the buffers that are weights of layers."""
    return parameters_with_data(axes.graph, reader, axes.weight_buffers)


def parameters_with_data(graph: Dataflow, reader: str, more: Collection[DataNode] = ()) -> dict[DataNode, Tensor]:
    """The live parameters, and `more`; raises `CutError` on the meta device."""
    live = live_parameters(graph, more)
    for node, tensor in live.items():
        if tensor.is_meta:
            raise CutError(
                f"{reader} reads the weights, and {printable(node.label)!r} is on the meta device: give the model data "
                "first, as by to_empty and load_state_dict; importance='random' needs none"
            )
    return live


def check_batches(batches: object) -> None:
    """Raise `CutError` for one batch instead of an iterable of batches."""
    if isinstance(batches, Tensor | Mapping):
        what = "a tensor, whose items would be the batches" if isinstance(batches, Tensor) else "one mapping"
        raise CutError(f"batches is {what}: {ONE_BATCH_HINT}")
    if isinstance(batches, tuple | list) and len(batches) == 2 and all(isinstance(each, Tensor) for each in batches):
        inputs, target = batches
        alike = (inputs.dim(), inputs.is_floating_point()) == (target.dim(), target.is_floating_point())
        if not alike and inputs.dim() and target.dim() and len(inputs) == len(target):
            raise CutError(f"batches is a pair of tensors of {len(inputs)} items, inputs and target: {ONE_BATCH_HINT}")


def batch_count(batches: Iterable[object]) -> int | None:
    """The number of batches; None if it is unknown, as for a loader over a stream."""
    try:
        return len(batches) if isinstance(batches, Sized) else None
    except TypeError:  # a DataLoader has a length, but not of any data
        return None


def check_samples(call: Call, which: str) -> None:
    """Raise `CutError` for a call whose tensors are all empty."""
    sizes = [tensor.numel() for _, tensor in tensors(call)]
    if sizes and not any(sizes):
        raise CutError(f"{which} has no samples: leave it out, or let the loader drop it")


def is_one_pair(batches: object) -> bool:
    """True if the batches may be meant as one (inputs, target) pair."""
    return isinstance(batches, tuple | list) and len(batches) == 2 and isinstance(batches[0], Tensor)


class Calibration:
    """Runs batches of data through a traced model.

    A batch is what the model takes (a tensor, a tuple of arguments, or a dict of keywords) or a pair of that and a
    target; None as batches stands for what the trace was called with. The passes run in the mode of the trace unless
    `training` sets one, under the random `seed`.
    """

    def __init__(
        self,
        graph: Dataflow,
        batches: Iterable[object] | None,
        training: bool | None = None,
        seed: int = 0,
        more: Collection[DataNode] = (),
    ) -> None:
        check_batches(batches)
        self.graph = graph
        self.more = more  # buffers that count as parameters
        self.batches = batches
        self.training = graph.training if training is None else training
        self.seed = seed
        self._batch_label = "a batch"  # that goes through the model now

    # ------------------------------------------------------------- passes

    def run(self, watch: Callable[[Sandbox], AbstractContextManager[None]]) -> int:
        """Run every batch without gradients inside the context of `watch`; returns their number."""

        def use(batch: object) -> None:
            args, kwargs = self._prepared_call(
                self.graph.call if self.batches is None else model_inputs(batch, self.graph.call)
            )
            with torch.no_grad(), watch(self.sandbox):
                self._output(self.sandbox.model, args, kwargs)

        return self._run_batches(use)

    def gradients(self, loss: Loss, take: Callable[[ParameterPairs], None]) -> int:
        """Pass the parameters and their gradients to `take` for every batch; returns the number of batches."""

        def use(batch: object) -> None:
            leaves, value = self._leaves_and_loss(batch, loss)
            gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            take(_parameter_pairs(leaves, gradients))

        return self._run_batches(use)

    def gate_derivatives(self, gates: Gates, loss: Loss, samples: int, take: Callable[[Tensor, Tensor], None]) -> int:
        """Pass the first and second derivative by each gate to `take`; returns the number of batches.

        The second ones are v·(Hv) with up to `samples` vectors v of random signs, each on some of the gates: exact but
        for what gates of one v have to do with one another, which has the mean 0 (Hutchinson 1990; Tang and Saad 2012,
        "A probing method for computing the diagonal of a matrix inverse", for the sharing out).
        """
        generator = seeded_generator(self.seed)

        def use(batch: object) -> None:
            # the fused kernels of attention have no second derivative
            with MathAttention(), self._gated(gates) as (stand_ins, factors):
                value = self._loss_with(batch, loss, stand_ins)
                (first,) = torch.autograd.grad(value, [factors], create_graph=True)
                second = torch.zeros_like(first)
                for probe in gates.probes(samples, generator):
                    signs = probe.to(first)
                    second += self._product(first, factors, signs) * signs
                take(first.detach(), second)

        return self._run_batches(use)

    @contextmanager
    def _gated(self, gates: Gates) -> Iterator[tuple[dict[DataNode, Tensor], Tensor]]:
        """The parameters times their gates, all of which are 1, and the gates."""
        copies = {node: self.sandbox.of(tensor) for node, tensor in live_parameters(self.graph, self.more).items()}
        smooth = [copy for copy in copies.values() if _is_smooth(copy)]
        device = smooth[0].device if smooth else torch.device("cpu")
        is_double = any(copy.dtype in (torch.float64, torch.complex128) for copy in smooth)
        factors = torch.ones(gates.size, dtype=torch.float64 if is_double else torch.float32, device=device)
        factors.requires_grad_()
        scaled = {}
        try:
            for node, copy in copies.items():
                if copy.is_inference():
                    copy = copies[node] = copy.clone()  # no gradient goes through one of inference mode
                copy.requires_grad_(False)
                if node not in gates or not _is_smooth(copy):
                    continue
                factor = gates.factor(node, factors).to(copy.device, copy.dtype)
                with torch.enable_grad():
                    if self.sandbox.shadow is None or type(copy) not in (Tensor, nn.Parameter):
                        scaled[node] = copy * factor
                    else:  # in place, so that all that leads to it finds it, as what a recurrent layer holds beside
                        scaled[node] = copy.mul_(factor)
            yield {**copies, **scaled}, factors
        finally:
            for copy in scaled.values():
                copy.detach_()

    def _product(self, first: Tensor, factors: Tensor, along: Tensor) -> Tensor:
        """The Hessian-vector product; zeros if the loss is linear."""
        if not first.requires_grad:
            return torch.zeros_like(first)
        try:
            (product,) = torch.autograd.grad((first * along).sum(), [factors], allow_unused=True, retain_graph=True)
        except RuntimeError as error:
            raise CutError(
                f"importance 'hessian' needs second derivatives, and {self._name} has none: "
                f"{printable(str(error), 200)}; take importance=Taylor(batches, loss)"
            ) from error
        return torch.zeros_like(first) if product is None else product

    # -------------------------------------------------------------- inside

    def _run_batches(self, use: Callable[[object], None]) -> int:
        """Run the batches in one sandbox of the model."""
        count = run_isolated(walk(self.graph.model).modules, (), partial(self._run_in_sandbox, use), ALL, self.seed)
        if not count:
            raise CutError(
                "the batches are empty: pass a list or a DataLoader, because a generator yields its items once"
            )
        return count

    def _run_in_sandbox(self, use: Callable[[object], None], sandbox: Sandbox) -> int:
        count = 0
        self.sandbox = sandbox
        set_mode(sandbox.states, self.training)
        for batch in [self.graph.call] if self.batches is None else self.batches:
            self._batch_label = "what the trace was called with" if self.batches is None else f"batch {count}"
            try:
                with torch.inference_mode(False), AttentionSlowPath():
                    use(batch)
            except CutError as error:
                if not is_one_pair(self.batches):
                    raise
                raise CutError(f"{error}; batches is a pair: {ONE_BATCH_HINT}") from error
            count += 1
            report_progress("batches run", count)
        return count

    @property
    def _name(self) -> str:
        return printable(type(self.graph.model).__name__)

    def _leaves_and_loss(self, batch: object, loss: Loss) -> tuple[dict[DataNode, Tensor], Tensor]:
        """Leaves that share the parameters' memory, and the loss as a function of them."""
        live = live_parameters(self.graph, self.more)
        leaves = {node: self._leaf(self.sandbox.of(tensor)) for node, tensor in live.items()}
        value = self._loss_with(batch, loss, {**leaves, **self._usable_buffers(live)})
        return {node: leaf for node, leaf in leaves.items() if leaf.requires_grad}, value

    def _usable_buffers(self, live: Mapping[DataNode, Tensor]) -> dict[DataNode, Tensor]:
        """Copies of other buffers that were made in inference mode, which take no gradients."""
        others = [node for node in dict.fromkeys(self.graph.state.values()) if node.is_buffer and node not in live]
        buffers = live_parameters(self.graph, others)
        return {node: self.sandbox.of(buffers[node]).clone() for node in others if buffers[node].is_inference()}

    def _loss_with(self, batch: object, loss: Loss, stand_ins: Mapping[DataNode, Tensor]) -> Tensor:
        """The loss of a batch with other tensors in place of the parameters."""
        inputs, target = inputs_and_target(batch, self.graph, loss)
        args, kwargs = self._prepared_call(inputs)
        named = {name: stand_ins[node] for name, node in self.graph.state.items() if node in stand_ins}
        with torch.enable_grad():
            run = torch.func.functional_call
            output = self._output(run, (self.sandbox.model, named, args, kwargs), {"tie_weights": False})
            targets = () if target is NO_TARGET else (self._prepared_call(((target,), {}))[0][0],)
            try:
                value = loss(output, *targets)
            except Exception as error:
                raise CutError(
                    f"the loss stopped on the output of {self._name}: {type(error).__name__}: "
                    f"{printable(str(error), 300)}; it is called as loss(output{', target' if targets else ''})"
                ) from error
        return checked_loss(value, self._batch_label)

    def _leaf(self, copy: Tensor) -> Tensor:
        value = copy.clone() if copy.is_inference() else copy.detach()  # one of inference mode takes no gradients
        return self.sandbox.hold(copy, value.requires_grad_(_is_smooth(copy)))

    def _output(self, run: Callable[..., object], args: Args, kwargs: Kwargs) -> object:
        try:
            return run(*args, **kwargs)
        except ModuleKGError:
            raise
        except Exception as error:
            raise CutError(
                f"{self._batch_label} does not go through {self._name}: {type(error).__name__}: "
                f"{printable(str(error), 300)}; a batch is what the model takes, or a pair of that and a target"
            ) from error

    def _prepared_call(self, call: Call) -> Call:
        """Copies of the input tensors on the device of the model."""
        check_samples(call, self._batch_label)
        devices = {tensor.device for tensor in live_parameters(self.graph).values()}
        device = next(iter(devices)) if len(devices) == 1 else None

        def copy(tensor: Tensor) -> Tensor:
            if tensor.is_meta:
                raise CutError("a batch on the meta device has no data: pass batches with real inputs")
            return tensor.detach().clone().to(tensor.device if device is None else device)

        return with_tensors(call, copy)


def _is_smooth(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _parameter_pairs(leaves: Mapping[DataNode, Tensor], gradients: Iterable[Tensor | None]) -> ParameterPairs:
    return {
        node: (leaf.detach(), value.detach())
        for (node, leaf), value in zip(leaves.items(), gradients, strict=True)
        if value is not None
    }


def checked_loss(value: object, which: str) -> Tensor:
    """The loss as a scalar that depends on the parameters; raises `CutError` otherwise."""
    if not isinstance(value, Tensor):
        raise CutError(f"the loss returned {a_type(value)}: return a tensor of one number")
    finite_loss(value, which)
    if not value.requires_grad:
        raise CutError("the loss does not depend on the parameters: compute it from the output, without detach")
    return value.sum()


def finite_loss(value: Any, which: str) -> float:
    """The loss as a number; raises `CutError` if it is none or not finite."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise CutError(f"the loss returned the shape {list(value.shape)}: return one number, as its mean")
    try:
        number = float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CutError(f"the loss returned {a_type(value)}: return one number, as its mean") from error
    if not math.isfinite(number):
        raise CutError(
            f"the loss of {which} is {number}: look for NaN or infinity in its inputs, its target and the weights"
        )
    return number


# ------------------------------------------------------------------ batches

NO_TARGET = object()  # no target


def inputs_and_target(batch: object, graph: Dataflow, loss: Loss) -> tuple[Call, object]:
    """The model inputs of a batch, and the target if the loss takes one."""
    wanted = _arguments_of(loss)
    if wanted is None:
        wanted = 2 if isinstance(batch, tuple | list) and len(batch) == 2 else 1
    if wanted < 2:
        return model_inputs(batch, graph.call), NO_TARGET
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        what = f"{len(batch)} items" if isinstance(batch, tuple | list) else a_type(batch)
        raise CutError(
            f"the loss takes an output and a target, so batches are pairs (inputs, target), got {what}; "
            "pass several inputs as ((first, second), target)"
        )
    return _as_traced_call(batch[0], graph.call), batch[1]


def _arguments_of(loss: Loss) -> int | None:
    """The number of required arguments of a loss; None if it is unknown."""
    try:
        signature = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except (TypeError, ValueError):
        return None
    every = signature.parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in every):
        return None
    return sum(each.default is each.empty and each.kind in _POSITIONAL for each in every)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def model_inputs(batch: object, traced: Call) -> Call:
    """The model inputs of a batch, as in the traced call; further items are targets."""
    positional = traced[0]
    count = len(positional)
    if not isinstance(batch, tuple | list) or not batch or not count:
        return _as_traced_call(batch, traced)
    first_is_several = isinstance(batch[0], tuple | list)
    takes_a_list = count == 1 and isinstance(positional[0], tuple | list)
    if takes_a_list or count > 1:
        if first_is_several and len(batch) in (1, 2):
            return _as_traced_call(batch[0], traced)
        return _as_traced_call(batch[:-1] if len(batch) == count + 1 and not takes_a_list else batch, traced)
    return _as_traced_call(batch[0] if len(batch) in (1, 2) else batch, traced)


def _as_traced_call(inputs: object, traced: Call) -> Call:
    """The inputs in the form of the traced call; keywords without tensors are passed on."""
    positional, named = traced
    settings = {name: value for name, value in named.items() if next(tensors(value), None) is None}
    takes_a_mapping = len(positional) == 1 and isinstance(positional[0], Mapping)
    if isinstance(inputs, Mapping) and not takes_a_mapping:
        return (), {**settings, **inputs}
    several = len(positional) != 1
    if isinstance(inputs, tuple) and len(inputs) == 1:  # what a call with one gets, unless that is a sequence itself
        several = several or not isinstance(positional[0], tuple | list)
    return (tuple(inputs) if several and isinstance(inputs, tuple | list) else (inputs,)), settings
