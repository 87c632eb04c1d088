"""The state of an optimizer follows the parameters that are cut: momenta and all else that has their shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import TensorEdit
from modulekg_widgets.engine.pruning.cut.transaction import Snapshot, Write, attribute, contents, entry
from modulekg_widgets.engine.torch_runtime.structure import tensors

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]  # one, or those that share the parameters


def optimizers_in(given: Optimizers | None) -> list[tuple[str, Any]]:
    """The optimizers that were passed, each once, with the words for it in a message."""
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        return [("optimizer=", given)]
    found = {id(each): (f"optimizer[{at}]", each) for at, each in reversed(list(enumerate(given)))}
    return list(found.values())[::-1]


class Follower(NamedTuple):
    """A tensor in the state of an optimizer that is cut as its parameter is."""

    parameter: torch.Tensor
    key: Any
    tensor: torch.Tensor
    edit: TensorEdit

    @property
    def place(self) -> tuple[torch.Tensor, Any]:
        return self.parameter, self.key


class OptimizerState:
    """The state of one optimizer around a cut; groups, learning rates and step counts are left alone.

    `of_model` are the tensors of the model, of which it has to train one. It lets go of those that are `gone` with the
    modules that a cut removes, so that a checkpoint of it is one of the model that is left.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        edits: Mapping[torch.Tensor, TensorEdit],
        of_model: Iterable[torch.Tensor],
        gone: Iterable[torch.Tensor] = (),
        which: str = "optimizer=",
    ) -> None:
        self._optimizer, self._edits, self._which = optimizer, edits, which
        self._gone = set(gone)
        self._check_kind(of_model)
        self._state, self._groups = optimizer.state, optimizer.param_groups
        self._parameters = [list(group["params"]) for group in self._groups]
        self._let_go = {key: own for key, own in self._state.items() if key in self._gone}
        self._cut: dict[tuple[torch.Tensor, Any], Follower] = {}  # by the parameter and the key
        self._kept: dict[tuple[torch.Tensor, Any], list[torch.Size]] = {}  # what does not follow, and its sizes
        followers = list(self._followers({parameter: edit.shape for parameter, edit in edits.items()}))
        self._cut = {each.place: each for each in followers}
        places = [((parameter, key), value) for parameter, key, value in self._entries()]
        self._kept = {place: _sizes(value) for place, value in places if place not in self._cut}
        self._snapshot = Snapshot()
        alone = {id(parameter) for group in self._groups for parameter in group["params"]}
        self._snapshot.keep("param_groups", self._groups, alone)
        # what is cut is replaced, and nothing writes to it any more
        self._snapshot.keep("the state of the optimizer", self._state, {id(each.tensor) for each in followers})

    def _check_kind(self, of_model: Iterable[torch.Tensor]) -> None:
        kind = shown(type(self._optimizer).__name__)
        if not all(isinstance(getattr(self._optimizer, name, None), dict | list) for name in ("state", "param_groups")):
            raise CutError(
                f"{self._which} is a {kind}: pass the torch.optim.Optimizer that trains the model, or a list of them"
            )
        held = {id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]}
        if held.isdisjoint(map(id, of_model)):
            raise CutError(
                f"{self._which} is {kind}, which trains no parameter of this model: pass the one that does, or none"
            )
        if isinstance(self._optimizer, torch.optim.LBFGS) and any(id(parameter) in held for parameter in self._edits):
            raise CutError(f"{kind} lays all parameters end to end in its state, which cannot be cut: make a new one")

    def _entries(self) -> Iterator[tuple[torch.Tensor, Any, Any]]:
        """What the optimizer keeps by now for each parameter that is cut."""
        for parameter in self._edits:
            for key, value in self._optimizer.state.get(parameter, {}).items():
                yield parameter, key, value

    def _followers(self, shapes: Mapping[torch.Tensor, tuple[int, ...]]) -> Iterator[Follower]:
        """The tensors in the state that follow parameters of these shapes."""
        for parameter, key, value in self._entries():
            place, sizes = (parameter, key), _sizes(value)
            cut = self._cut.get(place)
            if cut is not None and sizes == [cut.edit.shape_after] and isinstance(value, torch.Tensor):
                yield Follower(parameter, key, value, cut.edit)
            elif sizes != self._kept.get(place):
                yield from _found(parameter, key, value, self._edits[parameter], shapes[parameter])

    def cut(self) -> Iterator[Write]:
        for each in self._cut.values():
            yield entry(self._state[each.parameter], each.key, each.edit.of(each.tensor))
        for group in self._groups if self._gone else ():
            yield entry(group, "params", [each for each in group["params"] if each not in self._gone])
        if self._gone:
            yield contents(self._state, {key: own for key, own in self._state.items() if key not in self._gone})

    def undo(self, walked: Walk) -> Iterator[Write]:
        """The same tensors with the same bytes; entries that came since go."""
        for name, before in (("state", self._state), ("param_groups", self._groups)):
            if getattr(self._optimizer, name) is not before:  # after load_state_dict
                yield attribute(self._optimizer, name, before)
        yield from self._snapshot.writes()

    def restore(self, walked: Walk) -> Iterator[Write]:
        """The slices that went come back, as zeros in entries that came since."""
        after = {parameter: edit.shape_after for parameter, edit in self._edits.items()}
        for now in self._followers(after):
            cut = self._cut.get(now.place)
            before = cut.tensor if cut is not None and cut.edit is now.edit else None
            yield entry(self._optimizer.state[now.parameter], now.key, now.edit.whole(now.tensor, before))
        yield from self._trained_again()

    def _trained_again(self) -> Iterator[Write]:
        """What was let go of comes back into its group and at its place, with the state that it had."""
        groups, state = self._optimizer.param_groups, self._optimizer.state
        for group, before in zip(groups, self._parameters, strict=False):
            back = [each for each in before if each in self._gone]
            if back:
                new = [each for each in group["params"] if all(each is not other for other in before)]
                kept = {id(each) for each in (*group["params"], *back)}
                yield entry(group, "params", [each for each in before if id(each) in kept] + new)
        if self._let_go:
            yield contents(state, {**state, **self._let_go})


def _sizes(value: Any) -> list[torch.Size]:
    return [tensor.shape for _, tensor in tensors(value)]


def _found(
    parameter: torch.Tensor, key: Any, value: Any, edit: TensorEdit, shape: tuple[int, ...]
) -> Iterator[Follower]:
    """The tensor of an entry when it follows the parameter; raises `CutError` when that is not known."""
    label = f"{key} of {edit.names[0]}"
    for _, tensor in tensors(value):
        following = _following(label, edit, shape, tensor)
        if following is not None and tensor is not value:
            raise _refused(label, tensor, shape)
        if following is not None:
            yield Follower(parameter, key, tensor, following)


def _following(label: str, edit: TensorEdit, shape: tuple[int, ...], tensor: torch.Tensor) -> TensorEdit | None:
    """What stays of a tensor in the state of a parameter that has `shape` now; None when all of it does.

    One of fewer entries follows where it has the full size, as the row and column factors of Adafactor do.
    """
    if tensor.shape != shape and tensor.numel() == 1:
        return None
    if tensor.dim() != len(shape) or any(size not in (1, full) for size, full in zip(tensor.shape, shape, strict=True)):
        raise _refused(label, tensor, shape)
    along = [at for at in edit.kept if tensor.shape == shape or tensor.shape[at] > 1]
    if not along:
        return None
    before = tuple(edit.shape[at] if at in along else size for at, size in enumerate(tensor.shape))
    return TensorEdit((label,), before, {at: edit.kept[at] for at in along})


def _refused(label: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> CutError:
    return CutError(
        f"the optimizer keeps {shown(label)}, of shape {list(tensor.shape)}: how it follows the parameter, of shape "
        f"{list(shape)}, is not known; cut without optimizer= and make a new one"
    )
