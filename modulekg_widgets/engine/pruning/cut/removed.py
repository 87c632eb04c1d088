"""Modules that a cut takes out of a model, and what comes in their places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modulekg_widgets.engine.errors import CutError
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.transaction import Write, contents
from modulekg_widgets.engine.residuals.removal import ModuleRemoval, children_after
from modulekg_widgets.engine.torch_runtime.private import MODULES


class RemovedModules:
    """The children of modules that lose some of them; the modules that go are kept for the way back."""

    def __init__(self, walked: Walk, removal: ModuleRemoval) -> None:
        self._changed = children_after(walked, removal)
        owners = {id(state): module for module, state in zip(walked.modules, walked.states, strict=True)}
        self._owners = [owners[id(each.state)] for each in self._changed]

    @property
    def children(self) -> dict[int, dict[str, Any]]:
        """What the modules had as children, by their identity."""
        return {id(owner): each.before for owner, each in zip(self._owners, self._changed, strict=True)}

    def cut(self) -> Iterator[Write]:
        return (contents(each.state[MODULES], each.after) for each in self._changed)

    def undo(self, walked: Walk) -> Iterator[Write]:
        for each in self._changed:
            now = each.state[MODULES]
            if list(now) != list(each.after) or any(now[name] is not module for name, module in each.after.items()):
                raise CutError(
                    "modules were put in or taken out since the cut, where it had removed some: undo that first"
                )
            yield contents(now, each.before)

    restore = undo
