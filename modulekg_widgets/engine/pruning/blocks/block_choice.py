"""Selection of the residual blocks to remove: those that a request names, or the least important."""

from __future__ import annotations

from collections.abc import Sequence

from modulekg_widgets.engine.errors import CutError, UnknownPathError, closest_match_hint, printable
from modulekg_widgets.engine.pruning.blocks.block_scoring import block_scores
from modulekg_widgets.engine.residuals.blocks import ResidualBlock, outermost_blocks
from modulekg_widgets.engine.residuals.module_removal import outermost_paths
from modulekg_widgets.engine.residuals.removable_blocks import residual_blocks, residual_layers
from modulekg_widgets.engine.residuals.shared_modules import moved_shared_modules
from modulekg_widgets.engine.tracing.dataflow import Dataflow

_EXPECTED = 'pass a number, as blocks=4, a share, as blocks=0.25, or paths of graph.blocks(), as blocks=["layers.3"]'


def chosen_blocks(
    graph: Dataflow, wanted: object, importance: object, whole_layers: bool = False, protected: Sequence[str] = ()
) -> list[ResidualBlock]:
    """The blocks to remove, in forward order; with `whole_layers` a number or share counts blocks of containers.

    None of them has anything of what is to be `protected`, paths of modules and names of parameters.
    Raises `CutError` for what names no number of blocks, `UnknownPathError` for a path of none.
    """
    known = residual_layers(graph) if whole_layers else residual_blocks(graph)
    if isinstance(wanted, list | tuple):
        paths = {block.path for block in known}
        others = [block for block in residual_blocks(graph) if block.path not in paths]
        every = sorted([*known, *others], key=lambda block: (block.call.start, block.is_branch))
        named = _named(graph, every, wanted)
        for block in named:
            if (path := _protected_part(block, protected)) is not None:
                raise CutError(
                    f"blocks removes {printable(block.path)!r}, and keep protects {printable(path)!r}: leave it out of "
                    "one of them"
                )
        return named
    if isinstance(wanted, bool) or not isinstance(wanted, float | int):
        raise CutError(f"blocks={printable(repr(wanted))}: {_EXPECTED}")
    every = outermost_blocks(known)
    if not every:
        raise CutError("the model has no removable residual block: graph.blocks() is empty")
    count = _count(wanted, len(every))
    every = [block for block in every if _protected_part(block, protected) is None]
    if len(every) < count:
        raise CutError(f"blocks={wanted}: of the removable blocks keep=… leaves {len(every)}, {count} are asked for")
    scores = block_scores(graph, every, importance)
    first = _removable_together(graph, sorted(every, key=lambda block: scores[block.path]), count)
    return [block for block in every if block.path in first]


def _protected_part(block: ResidualBlock, protected: Sequence[str]) -> str | None:
    """The first path or parameter of `protected` that overlaps a block, or None."""
    return next((path for path in protected for own in block.modules if _is_in(path, own) or _is_in(own, path)), None)


def _is_in(name: str, path: str) -> bool:
    return not path or name == path or name.startswith(f"{path}.")


def _removable_together(graph: Dataflow, ranked: list[ResidualBlock], count: int) -> set[str]:
    """The least important blocks such that a remaining block can take over the modules they share.

    Raises `CutError` where there are fewer.
    """
    chosen: list[ResidualBlock] = []
    for block in ranked:
        tried = [*chosen, block]
        paths = [each.path for each in tried]
        if (
            not any(each.shared_operators for each in tried)
            or moved_shared_modules(graph.model, tried, paths) is not None
        ):
            chosen = tried
        if len(chosen) == count:
            return {each.path for each in chosen}
    raise CutError(f"of {count} blocks {len(chosen)} can be removed: the others need modules that the first ones share")


def _count(wanted: float | int, of: int) -> int:
    """The number of blocks to remove; a share removes at least one and is rounded down."""
    if isinstance(wanted, int):
        if not 1 <= wanted <= of:
            raise CutError(f"blocks={wanted}: the model has {of} removable blocks, which graph.blocks() lists")
        return wanted
    if not 0 < wanted < 1:
        raise CutError(f"blocks={wanted}: give a share between 0 and 1, or a whole number of blocks")
    return max(1, int(of * wanted + 1e-9))


def _named(graph: Dataflow, known: list[ResidualBlock], wanted: Sequence[object]) -> list[ResidualBlock]:
    by_path = {block.path: block for block in known}
    paths = []
    for path in wanted:
        if not isinstance(path, str):
            raise CutError(f"blocks has {printable(repr(path))} in it: {_EXPECTED}")
        if path not in by_path:
            what = "is not a removable residual block" if path in graph.modules else "is not a module"
            raise UnknownPathError(
                f"blocks: {printable(path)!r} {what}: {closest_match_hint(path, by_path)}; graph.blocks() lists all"
            )
        paths.append(path)
    if not paths:
        raise CutError(f"blocks is empty: {_EXPECTED}")
    kept = set(outermost_paths(paths))
    return [block for block in known if block.path in kept]
