"""Replacement of modules in place: all or none, with undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import nn

from modulekg_widgets.engine.errors import (
    NotAModuleError,
    RewritingError,
    UnknownPathError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.function_modules.compatibility import (
    Shapes,
    as_sequential,
    mismatch_reason,
    result_shapes,
    shape_difference,
    side_effect_reason,
)
from modulekg_widgets.engine.rewriting.function_modules.recording import inactive_hint
from modulekg_widgets.engine.rewriting.select import plain_name
from modulekg_widgets.engine.rewriting.undo import ModuleSlot, Rewrite, write_slots
from modulekg_widgets.engine.torch_runtime.modules import is_script
from modulekg_widgets.engine.torch_runtime.private import MODULES


@explain_keywords("mk.rewrite.replace")
def replace(
    model: nn.Module,
    names: str | Iterable[str],
    fn: Callable[[str, nn.Module], nn.Module],
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    check: bool = True,
) -> Rewrite:
    """Put `fn(name, module)` in the place of each named module, in place and in the same position.

    `nn.Identity()` takes a module out; the module itself keeps it. A shared module is asked about once and replaced in
    all its places. A model in eval mode stays in it. Whatever goes wrong, the model stays as it was.

    Parameters
    ----------
    model : nn.Module
        The model; the root itself cannot be replaced.
    names : str or iterable of str
        Dotted names, as `find` gives them.
    fn : callable
        `fn(name, module)` gives the new module; what it raises passes through.
    args, kwargs : tuple and dict, optional
        Inputs on which the whole model must then give the shapes that it gave.
    check : bool
        Whether every replacement must take what the old module took and give the same shape; False also leaves out the
        check by `args`, as for a head with another number of classes.

    Returns
    -------
    Rewrite
        What was replaced, and the way back.

    Raises
    ------
    UnknownPathError, NotAModuleError
        For names that do not exist, and a model that is none.
    RewritingError
        For a module that does not fit.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> mk.rewrite.replace(model, mk.rewrite.find(model, nn.ReLU), lambda name, module: nn.SiLU()).names
    ['1']
    >>> model[1]
    SiLU()
    """
    _check_callback(fn, "lambda name, module: nn.SiLU()")
    if not isinstance(names, Iterable):
        raise UnknownPathError(f"got {a_type(names)}: pass the names of modules, as find gives them")
    places, found = _locate(model, [names] if isinstance(names, str) else list(names))
    old = {name: places.modules[index] for name, index in found.items()}
    new = {name: fn(name, module) for name, module in old.items()}
    return _replace_groups(model, old, new, [[name] for name in new], args, kwargs, check)


@explain_keywords("mk.rewrite.replace_chains")
def replace_chains(
    model: nn.Module,
    chains: Iterable[Sequence[str]],
    fn: Callable[[list[str], list[nn.Module]], Sequence[nn.Module]],
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    check: bool = True,
) -> Rewrite:
    """Put `fn(names, modules)`, as many modules as the chain has, in the place of the modules of each chain.

    Parameters
    ----------
    model : nn.Module
        The model.
    chains : iterable of sequences of str
        Lists of names, as `find_chains` gives them; a module may be in one chain only.
    fn : callable
        `fn(names, modules)` gives a list of as many modules; `nn.Identity()` takes one out.
    args, kwargs : tuple and dict, optional
        Inputs on which the whole model must then give the shapes that it gave.
    check : bool
        Whether each chain as a whole must fit, as of `replace`.

    Returns
    -------
    Rewrite
        What was replaced, and the way back.

    Raises
    ------
    RewritingError
        For chains that overlap or are none, and modules that do not fit.
    UnknownPathError, NotAModuleError
        For names that do not exist, and a model that is none.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> mk.rewrite.replace_chains(model, [["0", "1"]], lambda names, modules: [modules[0], nn.SiLU()])
    <Rewrite in Sequential: 1 modules>
      1: ReLU → SiLU
    """
    _check_callback(fn, "lambda names, modules: [modules[0], nn.Identity()]")
    groups = [list(chain) for chain in chains]
    for chain in chains if isinstance(chains, list | tuple) else groups:
        if isinstance(chain, str) or not chain:
            raise RewritingError(f"a chain is a list of names, got {printable(repr(chain))}: pass [[…], […]]")
    places, found = _locate(model, [name for group in groups for name in group])
    _check_disjoint(places, groups)
    new: dict[str, nn.Module] = {}
    for group in groups:
        given = fn(list(group), [places.modules[_index(places, name)] for name in group])
        if not isinstance(given, list | tuple) or len(given) != len(group):
            what = f"{len(given)} modules" if isinstance(given, list | tuple) else a_type(given)
            raise RewritingError(
                f"fn gave {what} for the chain {printable(' → '.join(group))}: give a list of {len(group)}, "
                "nn.Identity() "
                "for a module to remove"
            )
        new.update(zip(group, given, strict=True))
    old = {name: places.modules[index] for name, index in found.items()}
    return _replace_groups(model, old, new, groups, args, kwargs, check)


def replace_modules(
    model: nn.Module,
    new: Mapping[str, nn.Module],
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    check: bool = True,
) -> Rewrite:
    """Put modules in the place of others, by name; as `replace`."""
    places, found = _locate(model, list(new))
    old = {name: places.modules[index] for name, index in found.items()}
    return _replace_groups(model, old, {name: new[name] for name in old}, [[name] for name in old], args, kwargs, check)


def replace_layers(
    model: nn.Module, new: Mapping[str, nn.Module], args: object, kwargs: Mapping[str, object] | None, check: bool
) -> Rewrite:
    """Replaces layers by others of the same shapes; with inputs, the whole model is tried unless `check=False`."""
    return replace_modules(
        model, new, args=args, kwargs=kwargs, check=check and (args is not None or kwargs is not None)
    )


def _check_callback(fn: object, example: str) -> None:
    if isinstance(fn, nn.Module | type) or not callable(fn):
        what = fn.__name__ if isinstance(fn, type) else a_type(fn)
        raise RewritingError(f"fn is {printable(what)}: pass a function that returns the new modules, as {example}")


# --------------------------------------------------------------------- locating


def _locate(model: nn.Module, names: list[str]) -> tuple[Walk, dict[str, int]]:
    """The walk, and the index of each named module, once each under the first of its names."""
    places = walk(model)
    found: dict[str, int] = {}
    chosen: dict[int, str] = {}
    for name in names:
        index = _index(places, name)
        if not index:
            raise RewritingError("the model itself cannot be replaced in place: build the new one around it instead")
        if index not in chosen:
            found[name], chosen[index] = index, name
    clear: dict[int, None] = {}  # modules that lie in none of the chosen
    for index, name in chosen.items():
        above = places.parents[index]
        while above > 0 and above not in clear:
            if above in chosen:
                container = printable(places.path(above))
                raise RewritingError(
                    f"{printable(name)!r} lies in {container!r}, which is removed too: name one of them"
                )
            clear[above] = None
            above = places.parents[above]
    return places, found


def _index(places: Walk, name: str) -> int:
    path = plain_name(places.modules[0], name)
    index = places.find(path)
    if index is None:
        near = closest_match_hint(path, places.similar_paths(path))
        raise UnknownPathError(f"there is no module {printable(path)!r}: {near}{inactive_hint(path)}")
    return index


def _check_disjoint(places: Walk, groups: list[list[str]]) -> None:
    seen: set[int] = set()
    for group in groups:
        for name in group:
            index = _index(places, name)
            if index in seen:
                raise RewritingError(
                    f"{printable(name)!r} stands in the chains twice: replace one chain, then look again"
                )
            seen.add(index)


# -------------------------------------------------------------------- exchanging


def _replace_groups(
    model: nn.Module,
    old: dict[str, nn.Module],
    new: dict[str, nn.Module],
    groups: list[list[str]],
    args: object,
    kwargs: Mapping[str, object] | None,
    check: bool,
) -> Rewrite:
    places, found = _locate(model, list(old))  # again, as fn may have changed the model
    root = places.modules[0]
    if any(places.modules[found[name]] is not module for name, module in old.items()):
        raise RewritingError("fn changed the model while it was asked: let it only give the new modules")
    changed = {name: module for name, module in new.items() if module is not old[name]}
    slots = _slots(places, {found[name]: module for name, module in changed.items()})
    _check_modules(places, slots, found, new)
    before = None
    if check:
        _check_side_effects(old, changed)
    if check and (args is not None or kwargs is not None):
        before = result_shapes(root, () if args is None else args, kwargs)
    elif check:
        _check_fit(old, new, [group for group in groups if any(name in changed for name in group)])
    rewrite = Rewrite(root, slots, {name: (old[name], module) for name, module in changed.items()})
    write_slots([(slot, slot.new, slot.old) for slot in slots])
    with _matching_mode(rewrite):
        if before is not None:
            _check_whole(rewrite, before, args, kwargs)
    return rewrite


@contextmanager
def _matching_mode(rewrite: Rewrite) -> Iterator[None]:
    """Puts new modules into eval mode where the old ones were; reverts that on an error."""
    replaced = rewrite.replaced.values()
    training = [inner for old, new in replaced if not old.training for inner in new.modules() if inner.training]
    for module in training:
        module.training = False
    try:
        yield
    except BaseException:
        for module in training:
            module.training = True
        raise


def _slots(places: Walk, new: Mapping[int, nn.Module]) -> list[ModuleSlot]:
    """Returns every slot that holds a replaced module."""
    found = []
    for parent in range(len(places)):
        for key, index in places.slots(parent):
            if index is not None and index in new:
                owner = places.modules[parent]
                if is_script(owner):
                    raise RewritingError(
                        f"{printable(places.path(index))!r} lies in TorchScript, which cannot be rewritten"
                    )
                found.append(ModuleSlot(owner, key, places.states[parent][MODULES][key], new[index]))
    return found


def _check_modules(places: Walk, slots: list[ModuleSlot], found: dict[str, int], new: Mapping[str, nn.Module]) -> None:
    for name, module in new.items():
        if isinstance(module, type) or not isinstance(module, nn.Module):
            what = f"the class {module.__name__}" if isinstance(module, type) else a_type(module)
            raise NotAModuleError(
                f"the replacement for {printable(name)} is {printable(what)}: give an instance of nn.Module"
            )
    owners = {id(slot.owner) for slot in slots}
    # an owner inside its own replacement would contain itself; one that the old module holds may move
    for name, module in new.items():
        if module is not places.modules[found[name]] and any(id(inner) in owners for inner in walk(module).modules):
            raise RewritingError(f"the replacement for {printable(name)} contains the module that it would stand in")


def _check_side_effects(old: Mapping[str, nn.Module], new: Mapping[str, nn.Module]) -> None:
    for name, module in new.items():
        if (reason := side_effect_reason(old[name], module)) is not None:
            raise RewritingError(f"the replacement for {printable(name)} would do nothing: {reason}")


def _check_fit(old: Mapping[str, nn.Module], new: Mapping[str, nn.Module], groups: list[list[str]]) -> None:
    for group in groups:
        olds, news = [old[name] for name in group], [new[name] for name in group]
        if len(group) > 1 and all(type(module) is nn.Identity for module in news):
            continue
        reason = (
            mismatch_reason(olds[0], news[0])
            if len(group) == 1
            else mismatch_reason(as_sequential(olds), as_sequential(news))
        )
        if reason is not None:
            raise RewritingError(
                f"the replacement for {printable(' → '.join(group))} does not fit: {reason}. Give one that fits, "
                "pass args "
                "to let the whole model decide, or check=False to put it there anyway"
            )


def _check_whole(rewrite: Rewrite, before: Shapes, args: object, kwargs: Mapping[str, object] | None) -> None:
    try:
        after = result_shapes(rewrite.model, () if args is None else args, kwargs)
        reason = shape_difference(before, after)
    except BaseException as error:
        rewrite.undo()
        if not isinstance(error, Exception):
            raise
        raise RewritingError(f"the model does not run with the replacements: {error}. It is unchanged") from error
    if reason is not None:
        rewrite.undo()
        raise RewritingError(f"with the replacements {reason}; the model is unchanged. check=False replaces anyway")
