"""Modules of a removed block that later blocks share, as T5's position bias, moved to the next block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.residuals.blocks import ResidualBlock
from modulekg_widgets.engine.residuals.layer_counters import AttributeChanges
from modulekg_widgets.engine.residuals.module_removal import MovedModule
from modulekg_widgets.engine.torch_runtime.modules import Attributes, IndexedChildren, index_prefix
from modulekg_widgets.engine.torch_runtime.private import MODULES

SharedMoves = tuple[list[MovedModule], AttributeChanges]


def moved_shared_modules(
    model: nn.Module, blocks: Iterable[ResidualBlock], removed: Sequence[str]
) -> SharedMoves | None:
    """The modules that move when blocks are removed, and the flags that mark them; None if impossible.

    An attribute says so where it is another in the module that had the one that moves, as T5's
    `has_relative_attention_bias`. None where no block is left that could take something over.
    """
    walked = walk(model)
    states = {path: walked.states[index] for path, index in walked.all_paths()}
    moved: list[MovedModule] = []
    attributes: AttributeChanges = {}
    for block in blocks:
        homes = sorted({name.rpartition(".")[0] for node in block.shared_weights for name in node.names})
        heir = _next_remaining(block.path, states, removed) if block.shared_operators else block.path
        if heir is None:
            return None
        for home in homes:
            if not home.startswith(f"{block.path}."):
                continue
            owner, _, _ = home.rpartition(".")
            new = heir + owner.removeprefix(block.path)
            if new not in states:
                return None
            moved.append(MovedModule(home, new))
            attributes.update(_differing_flags(states[owner], new, states[new]))
    return moved, attributes


def _next_remaining(path: str, states: dict[str, Attributes], removed: Sequence[str]) -> str | None:
    """The path of the next remaining module in the container."""
    container, _, name = path.rpartition(".")
    children = states[container][MODULES]
    prefix = index_prefix(children)
    if prefix is None:
        return None
    modules = IndexedChildren(container, prefix)
    behind = (modules.path_of(at) for at in range(int(name.removeprefix(prefix)) + 1, len(children)))
    return next((other for other in behind if other not in removed), None)


def _differing_flags(old: Attributes, path: str, new: Attributes) -> AttributeChanges:
    """The flags of a module that differ from those at `path`."""
    flags = {name: value for name, value in old.items() if type(value) is bool and type(new.get(name)) is bool}
    return {f"{path}.{name}": (new[name], value) for name, value in flags.items() if new[name] is not value}
