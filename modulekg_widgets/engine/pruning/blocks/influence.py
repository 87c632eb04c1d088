"""Block influence: 1 minus the cosine between the input and the output of a residual block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.importance.calibration import Calibration, check_batches, parameters_with_data
from modulekg_widgets.engine.pruning.importance.importance import Criterion
from modulekg_widgets.engine.pruning.importance.scoring import score
from modulekg_widgets.engine.residuals.additions import source_value
from modulekg_widgets.engine.residuals.blocks import ResidualBlock
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

Tensor = torch.Tensor


class BlockInfluence(Criterion):
    """1 - the cosine between the input and the output of a residual block, addition included.

    It is the mean over all tokens of all batches; a feature map of three and more dimensions counts as one vector.
    Source: Men et al. 2024, "ShortGPT: Layers in Large Language Models are More Redundant Than You Expect".

    Parameters
    ----------
    batches : iterable, optional
        Each is what the model takes, or a pair of that and a target; without them what the trace was called with.
    widths : str, Criterion or function, default "l2"
        The importance of single indices, where a plan takes some of what is left.
    training : bool, optional
        The mode of the passes, by default that of the trace.

    Examples
    --------
    >>> import torch, torchvision, modulekg_widgets as mk
    >>> _ = torch.manual_seed(0)
    >>> graph = mk.trace(torchvision.models.resnet18().eval(), torch.zeros(1, 3, 64, 64))
    >>> plan = mk.plan(graph, blocks=2, importance=mk.pruning.BlockInfluence([torch.randn(2, 3, 64, 64)]))
    >>> len(plan.blocks)
    2
    """

    def __init__(
        self, batches: Iterable[object] | None = None, widths: object = "l2", *, training: bool | None = None
    ) -> None:
        check_batches(batches)
        self.batches = batches
        self.widths = widths
        self.training = training

    def scores(self, axes: Axes, terms: Sequence[Term]) -> Mapping[Term, object]:
        return score(axes, terms, self.widths)

    def block_scores(self, graph: Dataflow, blocks: Sequence[ResidualBlock]) -> dict[str, float]:
        """The mean influence of each block over the batches.

        Parameters
        ----------
        graph : Dataflow
            The traced model.
        blocks : sequence of ResidualBlock
            Some of its blocks.

        Returns
        -------
        dict
            The influence, 0 … 2, by the path of each block.

        Raises
        ------
        CutError
            Where no module gets or gives what goes through a block, no batch reaches it, or the weights have no data.

        Examples
        --------
        >>> import torch, torchvision, modulekg_widgets as mk
        >>> from modulekg_widgets.engine.residuals.removable_blocks import residual_blocks
        >>> graph = mk.trace(torchvision.models.resnet18().eval(), torch.zeros(1, 3, 64, 64))
        >>> influence = mk.pruning.BlockInfluence([torch.randn(2, 3, 64, 64)])
        >>> sorted(influence.block_scores(graph, residual_blocks(graph)[:2]))
        ['layer1.0', 'layer1.1']
        """
        parameters_with_data(graph, "block influence")
        ends = [
            (_locate_value(graph, block.source, block), _locate_value(graph, block.result, block)) for block in blocks
        ]
        recorder = _ValueRecorder(graph, {location for pair in ends for location in pair})
        sums, counts = [0.0] * len(blocks), [0] * len(blocks)

        @contextmanager
        def watch(sandbox: Sandbox) -> Iterator[None]:
            with recorder.recording(sandbox):
                yield
            for at, (start, end) in enumerate(ends):
                if start in recorder.values and end in recorder.values:
                    cosines = _cosines(recorder.values[start], recorder.values[end])
                    sums[at] += float((1 - cosines).sum())
                    counts[at] += cosines.numel()
            recorder.values.clear()

        Calibration(graph, self.batches, self.training).run(watch)
        missing = next((block.path for block, count in zip(blocks, counts, strict=True) if not count), None)
        if missing is not None:
            raise CutError(f"no batch went through the block {printable(missing)!r}: pass batches that reach it")
        return {block.path: sums[at] / counts[at] for at, block in enumerate(blocks)}


def _cosines(before: Tensor, after: Tensor) -> Tensor:
    start = -1 if before.dim() <= 3 else 1
    before, after = (each.double().flatten(start) if start == 1 else each.double() for each in (before, after))
    return torch.nn.functional.cosine_similarity(before, after.reshape(before.shape), dim=-1)


class ValueLocation(NamedTuple):
    """A place where a value can be recorded: a module call, and the tensor among its inputs or outputs."""

    path: str
    number: int  # of the call
    is_output: bool
    at: int


def _locate_value(graph: Dataflow, node: DataNode, block: ResidualBlock) -> ValueLocation:
    """The first module call that takes or returns a value, or a view of it."""
    wanted = source_value(node)
    for path, module in graph.modules.items():
        if path != module.path:
            continue
        for number, call in enumerate(module.calls):
            for is_output, nodes in ((True, call.outputs), (False, call.inputs)):
                for at, each in enumerate(nodes):
                    if each is node or source_value(each) is wanted:
                        return ValueLocation(path, number, is_output, at)
    raise CutError(f"no module reads or returns the data of the block {printable(block.path)!r}: name the blocks")


class _ValueRecorder:
    """Records the values at some locations during one forward pass."""

    def __init__(self, graph: Dataflow, locations: set[ValueLocation]) -> None:
        self.graph = graph
        self.values: dict[ValueLocation, Tensor] = {}
        self._wanted: dict[tuple[str, int], list[ValueLocation]] = {}
        for location in locations:
            self._wanted.setdefault((location.path, location.number), []).append(location)

    @contextmanager
    def recording(self, sandbox: Sandbox) -> Iterator[None]:
        """Record the module calls of a sandbox."""
        paths = {path for path, _ in self._wanted}
        self._paths = {id(sandbox.of(self.graph.modules[path].module)): path for path in paths}
        self._numbers = dict.fromkeys(paths, 0)
        self._open: list[tuple[nn.Module, int]] = []
        with module_call_hooks(sandbox.copies, self._on_call, self._on_return):
            yield

    def _on_call(self, module: nn.Module, args: Args) -> None:
        path = self._paths.get(id(module))
        if path is None:
            return
        number = self._numbers[path]
        self._numbers[path] += 1
        self._open.append((module, number))
        self._record(path, number, False, tensors(args))  # now, for it may be written

    def _on_return(self, module: nn.Module, args: Args, kwargs: Kwargs, output: object = None) -> None:
        path = self._paths.get(id(module))
        if path is None or not self._open:
            return
        _, number = self._open.pop()
        self._record(path, number, False, [*tensors(args), *tensors(kwargs)])
        self._record(path, number, True, tensors(output))

    def _record(self, path: str, number: int, is_output: bool, named: Iterable[tuple[str, Tensor]]) -> None:
        wanted = [each for each in self._wanted.get((path, number), ()) if each.is_output == is_output]
        every = [tensor for _, tensor in named] if wanted else []
        for location in wanted:
            if location.at < len(every) and location not in self.values:
                self.values[location] = every[location.at].detach().clone()
