"""Pruning plans: their edits and sizes, and methods to cut, mask, save and print them.

`mk.plan` and `mk.load_plan` return a `PruningPlan`. `cut` changes a model in place and returns a receipt, `mask` sets
the same indices to zero, `save` writes JSON, `save_pretrained` writes the cut model. `axes` lists the removed indices
of each axis, `changes` the corrections of the dry run with the line of code that required them, `notes` what could
not be verified. Pairs such as `params` are (before, after). The repr is Python that makes the plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, a_type, pluralize, printable
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
from modulekg_widgets.engine.pruning.plan.corrections.candidate import Change
from modulekg_widgets.engine.pruning.plan.saved.plan_text import MILLISECONDS, AxisRow, PlanText, remaining_share
from modulekg_widgets.engine.pruning.plan.saved.plan_writing import plan_bytes, save_plan
from modulekg_widgets.engine.safe_files import PATHLIKE
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work

if TYPE_CHECKING:
    from modulekg_widgets.engine.profiling.timing import Call, TimedModel
    from modulekg_widgets.engine.pruning.cut.receipt import Receipt
    from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall
    from modulekg_widgets.engine.pruning.saving.origin import SavedCut
    from modulekg_widgets.engine.pruning.saving.save import SavedModel
    from modulekg_widgets.engine.tracing.dataflow import Dataflow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AxisCut:
    """The removed indices of one axis."""

    name: str
    size: int
    dropped: tuple[int, ...]
    members: tuple[str, ...]  # "conv1.weight[0]"

    @property
    def left(self) -> int:
        return self.size - len(self.dropped)


@dataclass(frozen=True)
class PruningPlan:
    """A pruning plan, verified by a dry run on the traced model.

    Its repr is Python that makes it again, `print` shows totals, axes and corrections. Every pair is (before, after).

    Attributes
    ----------
    axes : tuple of AxisCut
        The axes that lose indices, each with `.name`, `.size`, `.left` and `.dropped`.
    edits : Edits
        What changes in every tensor and attribute.
    changes : tuple of Change
        The corrections that the dry run asked for, with the line that did.
    params, flops, macs : tuple of int
        Parameters, FLOPs and multiply-adds of a forward pass on the traced input. FLOPs are of all operators.
    matmul_flops : tuple of int, optional
        The FLOPs of matrix products and convolutions alone, as torch's FlopCounterMode counts and papers report them;
        None in a plan from a file of an earlier version.
    call : str
        Python that makes this plan again.
    notes : tuple of str
        What could not be verified, or a target that steps cannot meet, as sentences.
    blocks : tuple of str
        The paths of the residual blocks that go as a whole; the other names are those that the model has before.
    bytes : tuple of int, optional
        Bytes of parameters and buffers; None in a plan from a file of an earlier version.
    latency : tuple of float, optional
        Milliseconds of a forward pass, measured for a plan with a target for them; None where nobody asked, and when
        read from a file.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = mk.plan(mk.trace(model, torch.randn(1, 4)), target={"params": 0.6})
    >>> plan.params, plan.axes[0].left
    ((58, 30), 4)
    """

    axes: tuple[AxisCut, ...]
    edits: Edits = field(repr=False)
    changes: tuple[Change, ...]  # the corrections that the dry run asked for, with the line that did
    params: tuple[int, int]
    flops: tuple[int, int]
    macs: tuple[int, int]
    call: str = field(repr=False, compare=False)  # Python that makes this plan again
    notes: tuple[str, ...] = field(default=(), compare=False)  # what could not be verified or met, as sentences
    bytes: tuple[int, int] | None = None  # None where the plan is from a file that has none
    blocks: tuple[str, ...] = ()  # the paths of whole blocks that go
    traced: TracedCall | None = field(default=None, repr=False, compare=False)  # None when read from a file
    latency: tuple[float, float] | None = field(default=None, compare=False)  # milliseconds, where they were asked for
    matmul_flops: tuple[int, int] | None = None  # those of `flops` in products and convolutions; None as for `bytes`

    def cut(
        self,
        model: nn.Module,
        optimizer: Optimizers | None = None,
        recalibrate: Iterable[Any] | None = None,
        compensate: bool = False,
        copies: Sequence[Any] = (),
        undo: bool = True,
    ) -> Receipt:
        """Cut `model` in place, wholly or not at all.

        Parameters
        ----------
        model : nn.Module
            The traced model or a copy of it.
        optimizer : torch.optim.Optimizer or list of them, optional
            Its state is cut alike; a list for parameters that several train, as Muon and AdamW do.
        recalibrate : iterable, optional
            Batches from which the running statistics of all normalisations are renewed: means over batches, weighted
            by their sizes, of means and unbiased variances, as `torch.optim.swa_utils.update_bn` computes them. A batch
            is what the model takes (a tensor, a tuple of arguments, a dict of keywords), or a pair of that and a
            target. Everything else is in eval mode, or as the trace set it. What the batches do not reach stays.
        compensate : bool, default False
            Whether each layer that reads a cut axis is fitted to its output before, by its bias (means) or its weight
            (least squares), where that lowers the error on the part of the batches that is held out:
            `receipt.compensation` has the errors. It takes about two passes of the batches for each such layer.
        copies : sequence, optional
            Averages of the model's weights that are cut alike: modules (as `AveragedModel` or a deepcopy) or
            dictionaries of tensors by name.
        undo : bool, default True
            Whether the receipt can undo and restore. Without, nothing is kept of what goes: weights are sliced one by
            one, and memory falls from the first on. It is then all or nothing but for what stops it between two
            weights, as memory that runs out, which raises a `CutError` that says so.

        Returns
        -------
        Receipt
            The way back, for the optimizer, the statistics and the copies too.

        Raises
        ------
        CutError
            When the model or a copy is not what the plan was made for, is sharded or held by a live
            DistributedDataParallel, for batches that do not go through, are empty or lead to statistics that are not
            finite; nothing has changed then.
        ModelInUseError
            When another thread runs or trains the model; nothing has changed then.

        Notes
        -----
        Batches run through a shadow of the model, which shares the memory of all that the cut leaves alone; it takes
        the slices that stay, the buffers, and one batch. `compensate` and `copies` keep the batches of a generator.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> import modulekg_widgets as mk
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).eval()
        >>> plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
        >>> receipt = plan.cut(model, recalibrate=[torch.randn(16, 4) for _ in range(4)])
        >>> receipt.renewed
        ('1.running_mean', '1.running_var', '1.num_batches_tracked')
        >>> receipt.undo()
        >>> model[1].num_batches_tracked.item()
        0
        """
        from modulekg_widgets.engine.pruning.recover.recovery import cut_and_recover
        from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall

        traced = TracedCall.of_signature(model) if self.traced is None else self.traced
        with long_work("Cut", model):
            receipt = cut_and_recover(
                model, self.edits, optimizer, traced, self._axis_names, recalibrate, compensate, copies, undo
            )
        receipt.plan = self
        return receipt

    def timed(self, model: nn.Module, call: Call, run: Callable[[TimedModel], T]) -> T:
        """Run a timing function on a cut copy of the model: see `graph.profile(plan=…)`.

        Parameters
        ----------
        model : nn.Module
            The traced model, which stays as it is.
        call : tuple
            Arguments and keywords of the call.
        run : callable
            Takes a `TimedModel`.

        Returns
        -------
        Any
            What `run` gives.
        """
        from modulekg_widgets.engine.pruning.latency import time_cut_copy

        return time_cut_copy(model, self.edits, call, run)

    def flow(self, graph: Dataflow) -> Dataflow:
        """The traced pass in the sizes of the cut model.

        Parameters
        ----------
        graph : DataflowGraph
            Of the model that the plan was made for.

        Returns
        -------
        Dataflow
            Its operators and values in the sizes that are left.

        Raises
        ------
        CutError
            For what is no graph, and where the pass does not go through.
        """
        from modulekg_widgets.engine.pruning.plan.dry_run.dry_run import run_with_edits
        from modulekg_widgets.engine.tracing.dataflow import Dataflow

        if not isinstance(graph, Dataflow):
            raise CutError(f"plan.flow takes what mk.trace(model, args) gives, got {a_type(graph)}")
        return run_with_edits(graph, self.edits)

    @property
    def _axis_names(self) -> dict[tuple[str, int], str]:
        """The axes that are cut, by parameter and dimension."""
        found: dict[tuple[str, int], list[str]] = {}
        for axis in self.axes:
            for member in axis.members:
                name, _, dim = member.removesuffix("]").rpartition("[")
                found.setdefault((name, int(dim) if dim.isdecimal() else 0), []).append(axis.name)
        return {place: " × ".join(names) for place, names in found.items()}

    def mask(self, model: nn.Module) -> Receipt:
        """Set the removed indices to zero where they are produced; sizes stay.

        Parameters
        ----------
        model : nn.Module
            The traced model or a copy of it.

        Returns
        -------
        Receipt
            The way back.

        Raises
        ------
        CutError
            When the model is not what the plan was made for; nothing has changed then.
        """
        from modulekg_widgets.engine.pruning.cut.masking import mask

        return mask(model, self.edits)

    def masks(self) -> dict[str, torch.Tensor]:
        """The masks of this plan in the format of NNI's pruners.

        `torch.save(plan.masks(), path)` writes a file that `mk.speedup`, `mk.pruning.read_masks` and NNI's users read.

        Returns
        -------
        dict
            `{parameter: mask}` by full name, for the parameters that produce what goes: float tensors in their shape,
            0 where a weight goes and 1 where it stays. A tied parameter is listed under each of its names.

        Raises
        ------
        CutError
            Where whole modules go, of which no weights stay that could be zero.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> import modulekg_widgets as mk
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> plan = mk.plan(mk.trace(model, torch.randn(1, 4)), per_axis={"0.out": [1]})
        >>> plan.masks()["0.bias"]
        tensor([1., 0., 1.])
        """
        if self.edits.removal:
            names = ", ".join(printable(each.path) for each in self.edits.removal.modules[:3])
            raise CutError(
                f"masks are zeros in weights, and {names} are removed as a whole: cut instead, plan.cut(model)"
            )
        found: dict[str, torch.Tensor] = {}
        for edit in self.edits.tensors:
            if edit.produced - edit.by_gain:
                found.update(dict.fromkeys(edit.names, _mask(edit)))
        return found

    def save_pretrained(self, model: nn.Module, folder: PATHLIKE) -> SavedModel:
        """Save the cut model as safetensors and JSON; `mk.load_pretrained` reads it in another process.

        Parameters
        ----------
        model : nn.Module
            The model that was cut by this plan, or the whole one, which stays as it is: what stays of each tensor is
            written in turn, and no second model comes into memory.
        folder : str or path
            A new or empty folder, or one that a model was saved in before.

        Returns
        -------
        SavedModel
            With `folder`, `plain` (whether the library's own `from_pretrained` loads it) and `reason`.

        Raises
        ------
        ModelFolderError
            For a model that is not built anew as it is, and for a folder that holds something else.
        """
        from modulekg_widgets.engine.pruning.saving.save import save

        return save(model, folder, [self.saved_cut])

    @property
    def saved_cut(self) -> SavedCut:
        """The cut as a model folder stores it."""
        from modulekg_widgets.engine.pruning.saving.origin import SavedCut

        return SavedCut(self.edits, self.cut, plan_bytes(self))

    def save(self, path: PATHLIKE) -> None:
        """Write the plan as JSON; `mk.load_plan` reads it.

        Parameters
        ----------
        path : str or path
            The file, which appears whole or not at all.
        """
        save_plan(self, path)

    # ------------------------------------------------------------- printing

    def __repr__(self) -> str:
        return self.call

    def __str__(self) -> str:
        return str(self._text)

    @property
    def summary(self) -> str:
        """One line: parameters, FLOPs, those in matrix products and convolutions, and milliseconds before and after."""
        blocks = f", {pluralize(len(self.blocks), 'block', 'blocks')}" if self.blocks else ""
        sizes = f"parameters {_change(*self.params)}, FLOPs {_change(*self.flops)}"
        if self.matmul_flops is not None:
            sizes += f", matmul FLOPs {_change(*self.matmul_flops)}"
        return f"{sizes}{_latency(self.latency)}, {pluralize(len(self.axes), 'axis', 'axes')}{blocks}"

    def _repr_html_(self) -> str:
        return self._text.html()

    @property
    def _text(self) -> PlanText:
        totals = {
            "parameters": self.params,
            "FLOPs": self.flops,
            "matmul FLOPs": self.matmul_flops,
            "bytes": self.bytes,
            MILLISECONDS: self.latency,
        }
        axes = [AxisRow(axis.name, axis.size, axis.left, axis.members) for axis in self.axes]
        return PlanText(totals, self.blocks, axes, [str(change) for change in self.changes], self.notes)


def _mask(edit: TensorEdit) -> torch.Tensor:
    """A mask in the shape of a parameter: zeros where it produces removed indices."""
    mask = torch.ones(edit.shape, device="cpu")
    for at in edit.produced - edit.by_gain:  # what a gain sets to zero need not be zero itself
        gone = np.setdiff1d(np.arange(edit.shape[at]), edit.kept[at])
        mask.index_fill_(at, torch.from_numpy(gone), 0)
    return mask


def _change(before: int, after: int) -> str:
    left = remaining_share(before, after)
    return f"{before:,} → {after:,} ({left})" if left else f"{before:,} → {after:,}"


def _latency(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f", {pair[0]:.3g} → {pair[1]:.3g} ms ({pair[1] / pair[0]:.1%})"
