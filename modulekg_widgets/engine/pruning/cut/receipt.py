"""Receipts: the undo of a cut or a mask.

`plan.cut`, `plan.mask` and `mk.speedup` return a `Receipt`. `undo` makes the model, the optimizer and
the copies byte for byte as before; `restore` puts the removed slices back and keeps later training.
A receipt can be used once. Receipts on the same tensors are undone in reverse order, which
`refuse_out_of_order` enforces. They survive `copy.deepcopy` and pickling together with their model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from os import PathLike
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_resizing
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorTarget
from modulekg_widgets.engine.pruning.cut.transaction import Write, attribute_write, commit
from modulekg_widgets.engine.torch_runtime.modules import module_state

# -------------------- The order of unused receipts on the same tensors, and how receipts are copied and pickled


PACKAGE_PREFIX = __name__.partition(".")[0] + "."  # the modules whose objects parts are made of
_numbers = count()
_active_receipts: WeakSet[Receipt] = WeakSet()  # what a user let go of cannot be undone, and is in nobody's way


def register_receipt(receipt: Receipt) -> int:
    """Register a receipt and return its number in the order of creation."""
    _active_receipts.add(receipt)
    return next(_numbers)


def refuse_out_of_order(receipt: Receipt, way: Way) -> None:
    """Raise `CutError` if a later unused receipt is of the same tensors."""
    own = receipt.modified_tensor_ids(way)
    later = [each for each in list(_active_receipts) if each.number > receipt.number and not each.is_spent]
    above = [each for each in later if not own.isdisjoint(each.modified_tensor_ids(way))]
    if above:
        last = max(above, key=lambda each: each.number)
        raise CutError(
            f"{last!r} was made after {receipt!r}, on the same tensors: undo that first, receipts go back in reverse "
            f"order; or delete that receipt to discard it, and call {way}() again"
        )


# ----------------------------------------------------------- copies and files


class ModuleStateReference:
    """Refers to the `__dict__` of a module in copied data, as the copied module has another one."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def pack_parts(parts: tuple[ReceiptPart, ...], modules: Iterable[nn.Module]) -> tuple[ReceiptPart, ...]:
    """The parts of a receipt, ready to be copied together with these modules."""
    return _with_replacements(parts, {id(module_state(module)): ModuleStateReference(module) for module in modules}, {})


def unpack_parts(parts: tuple[ReceiptPart, ...]) -> tuple[ReceiptPart, ...]:
    """The parts of a copied receipt."""
    return _with_replacements(parts, {}, {})


def _with_replacements(
    value: Any, references: Mapping[int, ModuleStateReference], seen: dict[int, tuple[object, object]]
) -> Any:
    """A copy with references in place of module dictionaries, or the reverse."""
    if isinstance(value, ModuleStateReference):
        return module_state(value.module)
    if id(value) in references:
        return references[id(value)]
    if isinstance(value, torch.Tensor | nn.Module | str | bytes | int | float | type):
        return value
    if id(value) not in seen:
        seen[id(value)] = value, value  # kept, so that its identity stays its own
        seen[id(value)] = value, _rebuild_value(value, partial(_with_replacements, references=references, seen=seen))
    return seen[id(value)][1]


def _rebuild_value(value: object, change: Callable[[Any], Any]) -> object:
    if isinstance(value, tuple | list):
        new = [change(part) for part in value]
        same = all(one is other for one, other in zip(new, value, strict=True))
        return value if same else getattr(type(value), "_make", type(value))(new)
    if isinstance(value, dict):
        changed = {key: change(part) for key, part in value.items()}
        return value if all(changed[key] is part for key, part in value.items()) else changed
    if isinstance(value, partial):
        args, keywords = change(value.args), change(value.keywords)
        return value if args is value.args and keywords is value.keywords else partial(value.func, *args, **keywords)
    if not type(value).__module__.startswith(PACKAGE_PREFIX):
        return value
    held = {name: getattr(value, name) for name in _attributes(value)}
    after = change(held)
    if after is held:
        return value
    made = object.__new__(type(value))
    for name, part in after.items():
        object.__setattr__(made, name, part)
    return made


def _attributes(value: object) -> list[str]:
    slots = (name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ()))
    own = [name for name in slots if not name.startswith("__") and hasattr(value, name)]
    return own + list(getattr(value, "__dict__", ()))


# -------------------- A few entries of each cut weight, to recognise the model before the cut


MAX_ENTRIES = 2_000  # of one weight

Samples = dict[str, torch.Tensor]  # by the first name of a tensor


def sample_weights(targets: Iterable[TensorTarget]) -> Samples:
    """Sampled entries of weights of two or more dimensions; norms and biases of models are too alike."""
    weights = (target for target in targets if target.tensor.dim() >= 2 and target.tensor.is_floating_point())
    return {target.edit.names[0]: sample_entries(target.tensor) for target in weights if not target.tensor.is_meta}


def sample_entries(tensor: torch.Tensor) -> torch.Tensor:
    """Evenly spaced entries of a tensor, as float64 on the CPU."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, -(-len(flat) // MAX_ENTRIES))].to("cpu", torch.float64, copy=True)


# ----------------------------------------


Way = Literal["undo", "restore"]
NO_EDITS = Edits(())
Children = dict[int, dict[str, nn.Module | None]]


class ReceiptPart:
    """One kind of state that a cut changed, or that training may change afterwards."""

    def cut(self) -> Iterable[Write]:
        """The writes of the cut."""
        return ()

    def undo(self, walked: Walk) -> Iterable[Write]:
        """The writes that restore the state before the cut; raises `CutError` if the model has changed."""
        return ()

    def restore(self, walked: Walk) -> Iterable[Write]:
        """The writes that put the removed slices back, and nothing else."""
        return ()

    def tensors(self, way: Way) -> list[torch.Tensor]:
        """The tensors of the model that `undo` or `restore` writes to."""
        return []

    def modules(self) -> list[nn.Module]:
        """The modules that belong to this part alone."""
        return []

    @property
    def children(self) -> Children:
        """The children before the cut of modules that lost some, by module identity."""
        return {}

    def before(self) -> dict[str, torch.Tensor]:
        """The values of tensors before the cut, by name."""
        return {}


class Receipt:
    """Undoes one cut, once; cuts on top of each other are undone in reverse order.

    What `plan.cut`, `plan.mask` and `mk.speedup` give. `str(receipt)` lists what was renewed and compensated.

    Attributes
    ----------
    edits : Edits
        What was cut: the positions that stay in every tensor, and the attributes that changed.
    renewed : tuple of str
        The running statistics that were renewed, and the counts beside them.
    compensation : tuple
        A row per layer that reads a cut axis, with `layer`, `axis`, `way` ("means", "least squares" or "least squares
        with bias"), `before`, `after`, `kept` and `note`;
        `pandas.DataFrame(receipt.compensation)` is a table of it. Errors are shares of the squared output of the
        uncut layer, on data that was held out. The last row is the model's output.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> receipt = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5).cut(model)
    >>> receipt
    <Receipt: 3 tensors and 2 attributes cut>
    >>> receipt.undo()
    >>> receipt
    <Receipt: 3 tensors and 2 attributes cut, spent>
    """

    _action = "cut"
    _resizes = True

    def __init__(self, model: nn.Module, parts: Sequence[ReceiptPart], title: str, edits: Edits = NO_EDITS) -> None:
        self._model, self._parts, self._title = model, tuple(parts), title
        self.edits = edits
        self.renewed: tuple[str, ...] = ()
        self.compensation: tuple[Any, ...] = ()  # rows of recover/compensation.py, above this file
        self.samples: Samples = {}  # of the weights before
        self.plan: Any = None  # what was cut by, which knows how to save
        self.number = register_receipt(self)

    @property
    def is_spent(self) -> bool:
        """True if the receipt was used."""
        return not self._parts

    def modified_tensor_ids(self, way: Way) -> set[int]:
        """The identities of the tensors that `undo` or `restore` writes to."""
        return {id(tensor) for part in self._parts for tensor in part.tensors(way)}

    def __getstate__(self) -> dict[str, object]:
        modules = [*self._walk_model().modules] if self._parts else []
        modules += [each for part in self._parts for each in part.modules()]
        return {**vars(self), "_parts": pack_parts(self._parts, modules)}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._parts = unpack_parts(self._parts)
        register_receipt(self)

    def save_pretrained(self, folder: str | PathLike[str]) -> Any:
        """Save the cut model as safetensors and JSON; `mk.load_pretrained` reads it in another process.

        Parameters
        ----------
        folder : str or path
            A new or empty folder, or one that a model was saved in before.

        Returns
        -------
        SavedModel
            With `folder`, `plain` (whether the library's own `from_pretrained` loads it) and `reason`.

        Raises
        ------
        CutError
            When the receipt is spent, or of no cut by a plan.
        ModelFolderError
            For a model that is not built anew as it is, and for a folder that holds something else.

        Notes
        -----
        `mk.save_model` saves what was cut several times, and what needs arguments to be built.
        """
        if self.is_spent or self.plan is None:
            raise CutError(
                f"{self!r} belongs to no current cut: mk.save_model(model, folder) saves the model without it"
            )
        return self.plan.save_pretrained(self._model, folder)

    def undo(self) -> None:
        """Make the model, the optimizer and the copies byte for byte as before the cut, whatever was trained since.

        Statistics and compensated weights are those of before, too.

        Raises
        ------
        CutError
            Before anything changes, when the receipt is spent or the model has changed since the cut.
        """
        commit(self._writes("undo"), None, self._walk_model().modules)

    def restore(self) -> None:
        """Put the slices back that the cut removed; all else keeps what was trained since, and new gradients are zero.

        Compensation is taken out of what stayed, for what it stands for is back. Statistics that were renewed, and not
        trained since, are those of before; trained ones stay, those of the slices that come back are of before.

        Raises
        ------
        CutError
            Before anything changes, when the receipt is spent or the model has changed since the cut.
        """
        commit(self._writes("restore"), None, self._walk_model().modules)

    def _walk_model(self) -> Walk:
        """The modules of the model, removed ones included at their old paths."""
        return walk(self._model, {at: own for part in self._parts for at, own in part.children.items()})

    def before(self) -> dict[str, torch.Tensor]:
        """The values before the cut of all parameters and buffers that were cut, by name; empty once used.

        Returns
        -------
        dict
            The tensors that the way back needs: look at them, and do not write into them.
        """
        return {name: tensor for part in self._parts for name, tensor in part.before().items()}

    def _writes(self, way: Way) -> list[Write]:
        if not self._parts:
            raise CutError(f"{self!r} was used already: a receipt undoes its {self._action} once")
        walked = self._walk_model()
        if self._resizes and (self.edits.tensors or self.edits.removal):
            refuse_resizing(walked)
        writes = [write for part in self._parts for write in (part.undo if way == "undo" else part.restore)(walked)]
        refuse_out_of_order(self, way)
        return [*writes, attribute_write(self, "_parts", ())]

    def __str__(self) -> str:
        lines = [repr(self)]
        if self.renewed:
            lines.append(f"  statistics renewed: {printable(', '.join(self.renewed), 500)}")
        return "\n".join([*lines, *(f"  {row}" for row in self.compensation)])

    def __repr__(self) -> str:
        state = "" if self._parts else ", spent"
        return f"<{type(self).__name__}: {printable(self._title)}{state}>"


class FinalReceipt(Receipt):
    """The receipt of a cut with `undo=False`: both `undo` and `restore` raise `CutError`."""

    @property
    def is_spent(self) -> bool:
        return False

    def modified_tensor_ids(self, way: Way) -> set[int]:
        return set()

    def _writes(self, way: Way) -> list[Write]:
        raise CutError(f"there is no {way} after a cut with undo=False, which keeps no backup: load the model again")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {printable(self._title)}, for good>"
