"""A cut with recalibrated statistics, compensated outputs and cut copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, a_type, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.cut.copy_cuts import CopyTarget, checked_copies, tensors_by_model_name
from modulekg_widgets.engine.pruning.cut.cut import cut
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_resizing
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, tensors_with_names
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.recover.compensation import (
    AxisNames,
    CompensationRow,
    LayerCorrection,
    compensate_layers,
)
from modulekg_widgets.engine.pruning.recover.recalibration import recalibrated_statistics
from modulekg_widgets.engine.pruning.recover.sandbox_runs import Batches, TracedCall, run_as_cut
from modulekg_widgets.engine.pruning.recover.uncut_reference import parameters_of_model
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model

Values = dict[str, NewValue]


def cut_and_recover(
    model: nn.Module,
    edits: Edits,
    optimizer: Optimizers | None,
    traced: TracedCall,
    axes: AxisNames,
    recalibrate: object = None,
    compensate: bool = False,
    copies: object = (),
    undo: bool = True,
) -> Receipt:
    """Cut a model, all or nothing; batches run before anything changes.

    `axes` are the names of axes by parameter and dimension, for the report. Raises what `cut` raises, and `CutError`
    for batches that do not fit.
    """
    for name, value in (("compensate", compensate), ("undo", undo)):
        if not isinstance(value, bool):
            what = ": pass batches as recalibrate=…, and compensate=True" if name == "compensate" else ""
            raise CutError(f"{name}= is {a_type(value)}, and True or False is asked for{what}")
    if edits.tensors or edits.removal:
        refuse_resizing(model)  # before batches run
    model = unwrap_model(model)
    none = isinstance(copies, tuple) and not copies
    targets = [] if none else checked_copies(walk(model), copies, edits)
    if recalibrate is None:
        if compensate:
            raise CutError("compensate=True learns from batches: pass them as recalibrate=batches")
        return cut(model, edits, optimizer, copies=targets, undo=undo)
    modules = [target for target in targets if isinstance(target.inner, nn.Module)]
    batches = Batches(model, recalibrate, traced, once=not compensate and not modules)
    training = bool(traced.training)
    rows: tuple[CompensationRow, ...] = ()
    corrections: list[LayerCorrection] = []
    if compensate:
        rows, corrections = compensate_layers(model, edits, training, batches, axes)
    values = _values_after_cut(model, edits, training, batches, corrections)
    ties = {name: names for _, names in tensors_with_names(walk(model)) for name in names}
    copied = [
        each._replace(values=_values_of_copy(each, edits, training, batches, corrections, values, ties))
        for each in targets
    ]
    receipt = cut(model, edits, optimizer, values, copied, undo)
    receipt.compensation, receipt.renewed = rows, tuple(name for name, new in values.items() if not new.is_sum)
    return receipt


def recalibrate(model: nn.Module, traced: TracedCall, batches: object) -> Receipt:
    """Recalibrate the running statistics of a model, all or nothing.

    Raises `CutError` for batches that do not fit.
    """
    return cut_and_recover(model, Edits(()), None, traced, {}, batches)


def _values_after_cut(
    model: nn.Module, edits: Edits, training: bool, batches: Batches, corrections: Sequence[LayerCorrection]
) -> Values:
    """The new values of a model's tensors after the cut."""
    values = _corrected_values(parameters_of_model(model) if corrections else {}, corrections)
    statistics = run_as_cut(model, edits, training, lambda sandbox: recalibrated_statistics(sandbox, batches), values)
    return {**values, **statistics}


def _corrected_values(full: Mapping[str, torch.Tensor], corrections: Sequence[LayerCorrection]) -> Values:
    values: Values = {}
    for correction in corrections:
        empty = next((name for name in correction.parameter_names() if full[name].is_meta), None)
        if empty is not None:
            raise CutError(
                f"{printable(empty)} is on the meta device and has no data: load it before weights are fitted"
            )
        values.update(correction.values(full))
    return values


def _values_of_copy(
    target: CopyTarget,
    edits: Edits,
    training: bool,
    batches: Batches,
    corrections: Sequence[LayerCorrection],
    values: Values,
    ties: Mapping[str, Sequence[str]],
) -> Values:
    """The new values of a copy: its own compensation, and statistics from its own runs if it is a module."""
    if isinstance(target.inner, nn.Module):
        return _values_after_cut(target.inner, edits, training, batches, corrections)
    full = tensors_by_model_name(target.inner)
    own = [each for each in corrections if each.parameter_names() <= full.keys()]
    own_values = {**{name: new for name, new in values.items() if not new.is_sum}, **_corrected_values(full, own)}
    return {other: new for name, new in own_values.items() for other in ties[name]}  # a dictionary has a tied one twice
