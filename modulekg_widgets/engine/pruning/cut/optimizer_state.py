"""Optimizer state that is cut with its parameters: momenta and other tensors of their shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch

from modulekg_widgets.engine.errors import CutError, a_kind, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import TensorEdit
from modulekg_widgets.engine.pruning.cut.receipt import ReceiptPart
from modulekg_widgets.engine.pruning.cut.transaction import Snapshot, Write, attribute_write, contents_write, item_write
from modulekg_widgets.engine.torch_runtime.pytree import tensors

Optimizers = (
    torch.optim.Optimizer | list[torch.optim.Optimizer] | tuple[torch.optim.Optimizer, ...]
)  # one, or those that share the parameters

EntryKey = tuple[torch.Tensor, Hashable]  # a parameter, and a key of its state


def named_optimizers(optimizers: Optimizers | None) -> list[tuple[str, torch.optim.Optimizer]]:
    """The optimizers that were passed, each once, with their names for messages."""
    if optimizers is None:
        return []
    if not isinstance(optimizers, list | tuple):
        return [("optimizer=", optimizers)]
    by_identity = {id(each): (f"optimizer[{at}]", each) for at, each in reversed(list(enumerate(optimizers)))}
    return list(by_identity.values())[::-1]


class StateTensor(NamedTuple):
    """A tensor in the optimizer state that is cut like its parameter."""

    parameter: torch.Tensor
    key: Hashable
    tensor: torch.Tensor
    edit: TensorEdit

    @property
    def entry(self) -> EntryKey:
        return self.parameter, self.key


class OptimizerState(ReceiptPart):
    """The state of one optimizer during a cut; groups, learning rates and step counts are unchanged.

    `model_flow` are the tensors of the model, of which it has to train one. It lets go of those that are `gone` with
    the modules that a cut removes, so that a checkpoint of it is one of the model that is left.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        edits: Mapping[torch.Tensor, TensorEdit],
        of_model: Iterable[torch.Tensor],
        removed: Iterable[torch.Tensor] = (),
        label: str = "optimizer=",
    ) -> None:
        self._optimizer, self._edits, self._label = optimizer, edits, label
        self._removed = set(removed)
        self._check_kind(of_model)
        self._state, self._groups = optimizer.state, optimizer.param_groups
        self._parameters = [list(group["params"]) for group in self._groups]
        self._removed_state = {key: own for key, own in self._state.items() if key in self._removed}
        self._cut: dict[tuple[torch.Tensor, Hashable], StateTensor] = {}  # by the parameter and the key
        self._other_sizes: dict[
            tuple[torch.Tensor, Hashable], list[torch.Size]
        ] = {}  # what does not follow, and its sizes
        followers = list(self._state_tensors({parameter: edit.shape for parameter, edit in edits.items()}))
        self._cut = {each.entry: each for each in followers}
        entries = [((parameter, key), value) for parameter, key, value in self._entries()]
        self._other_sizes = {entry: _tensor_shapes(value) for entry, value in entries if entry not in self._cut}
        self._snapshot = Snapshot()
        alone = {id(parameter) for group in self._groups for parameter in group["params"]}
        self._snapshot.record("param_groups", self._groups, alone)
        # what is cut is replaced, and nothing writes to it any more
        self._snapshot.record("the state of the optimizer", self._state, {id(each.tensor) for each in followers})

    def _check_kind(self, of_model: Iterable[torch.Tensor]) -> None:
        kind = printable(type(self._optimizer).__name__)
        if not all(isinstance(getattr(self._optimizer, name, None), dict | list) for name in ("state", "param_groups")):
            raise CutError(
                f"{self._label} is {a_kind(kind)}: pass the torch.optim.Optimizer that trains the model, or a "
                "list of them"
            )
        held = {id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]}
        if held.isdisjoint(map(id, of_model)):
            raise CutError(
                f"{self._label} is {kind}, which trains no parameter of this model: pass the one that does, or none"
            )
        if isinstance(self._optimizer, torch.optim.LBFGS) and any(id(parameter) in held for parameter in self._edits):
            raise CutError(f"{kind} lays all parameters end to end in its state, which cannot be cut: make a new one")

    def _entries(self) -> Iterator[tuple[torch.Tensor, Hashable, object]]:
        """The present state entries of each parameter that is cut."""
        for parameter in self._edits:
            for key, value in self._optimizer.state.get(parameter, {}).items():
                yield parameter, key, value

    def _state_tensors(self, shapes: Mapping[torch.Tensor, tuple[int, ...]]) -> Iterator[StateTensor]:
        """The state tensors that match parameters of these shapes."""
        for parameter, key, value in self._entries():
            entry, sizes = (parameter, key), _tensor_shapes(value)
            cut = self._cut.get(entry)
            if cut is not None and sizes == [cut.edit.shape_after] and isinstance(value, torch.Tensor):
                yield StateTensor(parameter, key, value, cut.edit)
            elif sizes != self._other_sizes.get(entry):
                yield from _matching_tensors(parameter, key, value, self._edits[parameter], shapes[parameter])

    def cut(self) -> Iterator[Write]:
        for each in self._cut.values():
            yield item_write(self._state[each.parameter], each.key, each.edit.slice(each.tensor))
        for group in self._groups if self._removed else ():
            yield item_write(group, "params", [each for each in group["params"] if each not in self._removed])
        if self._removed:
            yield contents_write(
                self._state, {key: own for key, own in self._state.items() if key not in self._removed}
            )

    def undo(self, walked: Walk) -> Iterator[Write]:
        """Restore the same tensors with the same bytes; newer entries are removed."""
        for name, before in (("state", self._state), ("param_groups", self._groups)):
            if getattr(self._optimizer, name) is not before:  # after load_state_dict
                yield attribute_write(self._optimizer, name, before)
        yield from self._snapshot.writes()

    def restore(self, walked: Walk) -> Iterator[Write]:
        """Put the removed slices back; they are zeros in entries that are newer than the cut."""
        after = {parameter: edit.shape_after for parameter, edit in self._edits.items()}
        for now in self._state_tensors(after):
            cut = self._cut.get(now.entry)
            before = cut.tensor if cut is not None and cut.edit is now.edit else None
            yield item_write(self._optimizer.state[now.parameter], now.key, now.edit.scatter(now.tensor, before))
        yield from self._restore_groups()

    def _restore_groups(self) -> Iterator[Write]:
        """Put removed parameters back into their groups, with their state."""
        groups, state = self._optimizer.param_groups, self._optimizer.state
        for group, before in zip(groups, self._parameters, strict=False):
            back = [each for each in before if each in self._removed]
            if back:
                new = [each for each in group["params"] if all(each is not other for other in before)]
                kept = {id(each) for each in (*group["params"], *back)}
                yield item_write(group, "params", [each for each in before if id(each) in kept] + new)
        if self._removed_state:
            yield contents_write(state, {**state, **self._removed_state})


def _tensor_shapes(value: object) -> list[torch.Size]:
    return [tensor.shape for _, tensor in tensors(value)]


def _matching_tensors(
    parameter: torch.Tensor, key: Hashable, value: object, edit: TensorEdit, shape: tuple[int, ...]
) -> Iterator[StateTensor]:
    """The tensor of an entry that matches the parameter; raises `CutError` if that is unknown."""
    label = f"{key} of {edit.names[0]}"
    for _, tensor in tensors(value):
        following = _state_edit(label, edit, shape, tensor)
        if following is not None and tensor is not value:
            raise _unknown_layout_error(label, tensor, shape)
        if following is not None:
            yield StateTensor(parameter, key, tensor, following)


def _state_edit(label: str, edit: TensorEdit, shape: tuple[int, ...], tensor: torch.Tensor) -> TensorEdit | None:
    """The edit of a state tensor of a parameter with this shape; None if all of it remains.

    One of fewer entries follows where it has the full size, as the row and column factors of Adafactor do.
    """
    if tensor.shape != shape and tensor.numel() == 1:
        return None
    if tensor.dim() != len(shape) or any(size not in (1, full) for size, full in zip(tensor.shape, shape, strict=True)):
        raise _unknown_layout_error(label, tensor, shape)
    along = [at for at in edit.kept if tensor.shape == shape or tensor.shape[at] > 1]
    if not along:
        return None
    before = tuple(edit.shape[at] if at in along else size for at, size in enumerate(tensor.shape))
    return TensorEdit((label,), before, {at: edit.kept[at] for at in along})


def _unknown_layout_error(label: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> CutError:
    return CutError(
        f"the optimizer keeps {printable(label)}, of shape {list(tensor.shape)}: how it follows the parameter, of "
        "shape "
        f"{list(shape)}, is not known; cut without optimizer= and make a new one"
    )
