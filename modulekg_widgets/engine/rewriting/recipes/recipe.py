"""The base class of recipe results: a rewrite with a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from torch import nn

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.rewriting.replace import replace_modules
from modulekg_widgets.engine.rewriting.undo import Rewrite

_MAX_LINES = 12


class Recipe(Rewrite):
    """A rewrite with the facts of one recipe; `undo()` as for every rewrite."""

    def __init__(self, rewrite: Rewrite, **facts: object) -> None:
        vars(self).update(vars(rewrite), **facts)

    def headline(self) -> str:
        """A short summary of the result.

        Raises
        ------
        NotImplementedError
            For a recipe that does not say it.
        """
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """One line for each module, the important ones first.

        Raises
        ------
        NotImplementedError
            For a recipe that does not say it.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        state = ", undone" if self._undone else ""
        title = f"<{type(self).__name__} in {printable(type(self.model).__name__)}: {self.headline()}{state}>"
        found = list(islice(self.lines(), _MAX_LINES + 1))
        return "\n".join([title, *(f"  {line}" for line in found[:_MAX_LINES]), *["  …"] * (len(found) > _MAX_LINES)])


def replace_layers(
    model: nn.Module, new: Mapping[str, nn.Module], args: object, kwargs: Mapping[str, object] | None, check: bool
) -> Rewrite:
    """Replaces layers by others of the same shapes; with inputs, the whole model is tried unless `check=False`."""
    return replace_modules(
        model, new, args=args, kwargs=kwargs, check=check and (args is not None or kwargs is not None)
    )
