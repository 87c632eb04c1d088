"""Cuts a model in place.

`cut` slices every tensor of the edits, sets the attributes, removes modules, and cuts the optimizer
state and further copies alike. All writes are prepared first and committed as one transaction: if
anything fails, the model is as before. Parameters stay the same objects with their hooks, ties and
gradients. The result is a `Receipt`, whose `undo` restores every byte. With `undo=False` weights are
sliced one by one and nothing is kept, which saves memory. `plan.cut` calls it through
`recover/recovery.py`, which adds recalibration and compensation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.copy_cuts import (
    CopyTarget,
    CutCopy,
    CutDict,
    copy_error_context,
    tensors_by_model_name,
)
from modulekg_widgets.engine.pruning.cut.derived_state import derived_states, recomputed_values
from modulekg_widgets.engine.pruning.cut.edits import (
    Edits,
    NewValue,
    TensorEdit,
    TensorTarget,
    locate_tensors,
    tensors_with_names,
)
from modulekg_widgets.engine.pruning.cut.optimizer_state import Optimizers, OptimizerState, named_optimizers
from modulekg_widgets.engine.pruning.cut.receipt import Children, FinalReceipt, Receipt, ReceiptPart, sample_weights
from modulekg_widgets.engine.pruning.cut.receipt_parts import (
    ComputedTensor,
    EditedAttributes,
    EditedTensors,
    PlainTensors,
    RecurrentWeights,
    UncutTensors,
    computed_tensors,
    flattening_edits,
    layers_to_flatten,
)
from modulekg_widgets.engine.pruning.cut.transaction import Write, commit, contents_write, refuse_in_use
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, children_after
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.tracing.unregistered_tensors import named_registered_tensors

# -------------------- Modules that a cut removes from a model, and the placeholders in their positions


class RemovedModules(ReceiptPart):
    """The children of modules that lose some; removed modules are kept for undo."""

    def __init__(self, walked: Walk, removal: ModuleRemoval) -> None:
        self._changed = children_after(walked, removal)
        owners = {id(state): module for module, state in zip(walked.modules, walked.states, strict=True)}
        self._owners = [owners[id(each.state)] for each in self._changed]

    @property
    def children(self) -> Children:
        return {id(owner): each.before for owner, each in zip(self._owners, self._changed, strict=True)}

    def cut(self) -> Iterator[Write]:
        return (contents_write(each.state[MODULES], each.after) for each in self._changed)

    def undo(self, walked: Walk) -> Iterator[Write]:
        for each in self._changed:
            now = each.state[MODULES]
            if list(now) != list(each.after) or any(now[name] is not module for name, module in each.after.items()):
                raise CutError(
                    "modules were put in or taken out since the cut, where it had removed some: undo that first"
                )
            yield contents_write(now, each.before)

    restore = undo


# ----------------------------------------


Values = Mapping[str, NewValue]  # what tensors hold once they are cut, by name


def cut(
    model: nn.Module,
    edits: Edits,
    optimizer: Optimizers | None = None,
    values: Values | None = None,
    copies: Sequence[CopyTarget] = (),
    undo: bool = True,
) -> Receipt:
    """Slice every tensor of `edits` in place, set the attributes, and cut the state of each optimizer alike.

    Parameters and buffers stay the same objects, with their hooks, ties, gradients, dtype, device and memory format. A
    tensor in a plain attribute is replaced by its slices, also where it lies in a container, of which the model gets a
    copy. `values` are what parameters and buffers hold then, also such that keep their size; `copies` are cut alike.
    Raises `CutError` when the model, the optimizer or a copy does not fit; whatever is raised, all is as it was before.
    Without `undo` nothing is kept of what goes, and of the weights one at a time is in memory twice: what stops that
    midway, as memory that runs out, is told from what does not fit.
    """
    walked = walk(model)
    refuse_in_use(walked.modules)  # a gradient that is read while a backward pass writes it ends the process
    targets, computed, changed = _cut_parts(walked, edits, values or {})
    optimizers = named_optimizers(optimizer)
    if optimizers:
        of_model = [held.tensor for held in named_registered_tensors(walked, walked.all_paths())]
        edited, removed = {target.tensor: target.edit for target in targets}, _removed_tensors(walked, edits)
        changed += [OptimizerState(each, edited, of_model, removed, which) for which, each in optimizers]
    modules = list(walked.modules)
    for at, each in enumerate(copies):
        with copy_error_context(at):
            changed.append(_cut_copy(each, edits, walked))
        modules += walk(each.inner).modules if isinstance(each.inner, nn.Module) else []
    title = _receipt_title(targets, edits, len(copies))
    if not undo:
        receipt: Receipt = FinalReceipt(model, (), title, edits)
        receipt.samples = sample_weights(targets)
        return _cut_without_undo(changed, receipt, modules)
    receipt = Receipt(model, [*changed, UncutTensors(walked, targets, computed)], title, edits)
    receipt.samples = sample_weights(targets)
    writes = [write for part in changed for write in part.cut()]  # complete before the first of them
    return commit(writes, receipt, modules)


def _cut_without_undo(changed: Sequence[ReceiptPart], receipt: Receipt, modules: Sequence[nn.Module]) -> Receipt:
    """Cut small state all or nothing, then the weights one by one."""
    weights = [part for part in changed if isinstance(part, EditedTensors)]
    last = [part for part in changed if isinstance(part, RecurrentWeights)]
    commit([write for part in changed if part not in (*weights, *last) for write in part.cut()], None, modules)
    try:
        for part in weights:
            for write in part.cut_one_by_one():
                write.assign(write.after)
                del write  # and with it what was there
        for write in (write for part in last for write in part.cut()):
            write.assign(write.after)
    except BaseException as error:
        raise CutError(
            f"the cut stopped midway ({type(error).__name__}: {printable(str(error), 200)}), and undo=False keeps "
            "nothing "
            "to go back to: load the model again"
        ) from error
    return receipt


def _cut_copy(target: CopyTarget, edits: Edits, model: Walk) -> CutCopy | CutDict:
    inner, wrapper, values = target
    if not isinstance(inner, nn.Module):
        own = tensors_by_model_name(inner)
        derived = recomputed_values(model, edits, values, own)
        return CutDict(inner, edits, {**{name: new for name, new in derived.items() if name in own}, **values})
    targets, computed, parts = _cut_parts(walk(inner), edits, values)
    whole = inner if wrapper is None else wrapper
    return CutCopy(inner, parts, whole, UncutTensors(walk(whole), targets, computed))


def _cut_parts(
    walked: Walk, edits: Edits, values: Values
) -> tuple[list[TensorTarget], list[ComputedTensor], list[ReceiptPart]]:
    """The edited tensors, the tensors computed from them, and all receipt parts of one model."""
    layers = layers_to_flatten(walked, locate_tensors(walked, edits))
    values = {**recomputed_values(walked, edits, values), **values}
    whole = [*flattening_edits(walked, layers, edits), *_value_only_edits(walked, edits, values)]
    known = {name: edit for edit in whole for name in edit.names}  # a weight may be moved and get a new value
    targets = locate_tensors(walked, Edits((*edits.tensors, *dict.fromkeys(known.values()))))
    derived = derived_states(walked, {name for target in targets for name in target.edit.names})
    computed = computed_tensors(targets, derived, values)
    tables = [target for target in targets if target.attribute_locations]
    attributes = EditedAttributes(walked, edits)
    changed = [
        EditedTensors(
            (target for target in targets if target.tensor.grad_fn is None and not target.attribute_locations),
            values,
            derived,
        ),
        *computed,
        attributes,
        PlainTensors(tables, attributes.copies),
        RecurrentWeights(layers),
        RemovedModules(walked, edits.removal),
    ]
    return targets, computed, changed


def _value_only_edits(walked: Walk, edits: Edits, values: Values) -> Iterable[TensorEdit]:
    """Edits that keep all positions of tensors that get a new value only."""
    others = values.keys() - {name for edit in edits.tensors for name in edit.names}
    for tensor, names in tensors_with_names(walked) if others else ():
        if not others.isdisjoint(names):
            yield TensorEdit(names, tuple(tensor.shape), {})


def _removed_tensors(walked: Walk, edits: Edits) -> list[torch.Tensor]:
    """The tensors that belong only to removed modules."""
    every = tensors_with_names(walked) if edits.removal else []
    return [tensor for tensor, names in every if edits.removal.removes_all(names)]


def _receipt_title(targets: Sequence[TensorTarget], edits: Edits, copies: int) -> str:
    tables = sum(bool(target.attribute_locations) for target in targets)
    plain = f" ({tables} in plain attributes, which no state_dict has)" if tables else ""
    also = f", also in {copies} {'copy' if copies == 1 else 'copies'}" if copies else ""
    modules = f", {len(edits.removal.modules)} modules removed" if edits.removal else ""
    return printable(
        f"{len(edits.tensors)} tensors{plain} and {len(edits.all_attributes)} attributes cut{modules}{also}"
    )
