"""The result of a rewrite: the replaced modules, a summary, and `undo()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import nn

from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES

_MAX_LINES = 12  # of what is printed


@dataclass(frozen=True, slots=True)
class ModuleSlot:
    """An entry of a module's children, and what was put there."""

    owner: nn.Module
    key: str
    old: nn.Module
    new: nn.Module

    def put(self, module: object) -> None:
        module_state(self.owner)[MODULES][self.key] = module

    def holds(self, module: object) -> bool:
        return module_state(self.owner)[MODULES].get(self.key) is module


class Rewrite:
    """The result of a replacement: `replaced` maps names to (old, new) modules, and `undo()` reverts it.

    Attributes
    ----------
    model : nn.Module
        The model that was rewritten.
    replaced : dict of str to (nn.Module, nn.Module)
        The old and the new module, by dotted name.
    names : list of str
        The names of the modules that were replaced.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> rewrite = mk.rewrite.replace(model, "1", lambda name, module: nn.SiLU())
    >>> rewrite
    <Rewrite in Sequential: 1 modules>
      1: ReLU → SiLU
    >>> rewrite.undo()
    >>> model[1]
    ReLU()
    """

    def __init__(
        self, model: nn.Module, slots: Sequence[ModuleSlot], replaced: Mapping[str, tuple[nn.Module, nn.Module]]
    ) -> None:
        self.model = model
        self.replaced = dict(replaced)
        self._slots = tuple(slots)
        self._undone = False

    @property
    def names(self) -> list[str]:
        """The names of the modules that were replaced."""
        return list(self.replaced)

    def undo(self) -> None:
        """Put the very modules back that were there before.

        Raises
        ------
        RewritingError
            When others stand there by now, or it is undone already.
        """
        if self._undone:
            raise RewritingError("this rewrite is undone already: there is nothing left to put back")
        for slot in self._slots:
            if not slot.holds(slot.new):
                raise RewritingError(
                    f"{printable(slot.key)!r} holds another module than this rewrite put there: undo what came later "
                    "first"
                )
        write_slots([(slot, slot.old, slot.new) for slot in self._slots])
        self._undone = True

    def headline(self) -> str:
        """A short summary of the result."""
        return f"{len(self.replaced)} modules"

    def lines(self) -> Iterator[str]:
        """One line for each module, the important ones first."""
        for name, (old, new) in self.replaced.items():
            yield f"{printable(name)}: {printable(type(old).__name__)} → {printable(type(new).__name__)}"

    def __repr__(self) -> str:
        state = ", undone" if self._undone else ""
        title = f"<{type(self).__name__} in {printable(type(self.model).__name__)}: {self.headline()}{state}>"
        found = list(islice(self.lines(), _MAX_LINES + 1))
        return "\n".join([title, *(f"  {line}" for line in found[:_MAX_LINES]), *["  …"] * (len(found) > _MAX_LINES)])


class Recipe(Rewrite):
    """A rewrite with the facts of one recipe; `undo()` as for every rewrite."""

    def __init__(self, rewrite: Rewrite, **facts: object) -> None:
        vars(self).update(vars(rewrite), **facts)


def write_slots(changes: list[tuple[ModuleSlot, nn.Module, nn.Module]]) -> None:
    """Fill slots, all or none: each with the second of a triple, the third is what it holds now."""
    done = []
    try:
        for change in changes:
            done.append(change)
            change[0].put(change[1])
    except BaseException:
        for slot, _, before in done:
            slot.put(before)
        raise
