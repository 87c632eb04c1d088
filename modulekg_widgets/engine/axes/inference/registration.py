"""`mk.axis_rule`: registration of a user's operator with its axis rule, shape, value and FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from modulekg_widgets.engine.axes.inference.inference import rule_named
from modulekg_widgets.engine.axes.terms.call import Call, Rule, rules
from modulekg_widgets.engine.errors import (
    DuplicateNameError,
    ModuleKGError,
    UnknownNameError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.classes import is_text
from modulekg_widgets.engine.operators.arguments import missing_arguments, reading_like
from modulekg_widgets.engine.operators.signature import overloads_of
from modulekg_widgets.engine.operators.user_operators import DUPLICATE_RULE, UserOperator, user_operators
from modulekg_widgets.engine.registry import check_function
from modulekg_widgets.engine.torch_runtime.private import frame_at, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Function


class AxisRuleError(ModuleKGError, ValueError):
    """An error in a user's axis rule, with the name of the rule."""


def axis_rule(
    *names: str,
    like: str | None = None,
    args: Mapping[str, str] | None = None,
    shape: Function | None = None,
    value: Function | None = None,
    flops: Callable[..., int] | None = None,
) -> Callable[[Rule], Rule]:
    """Register the axis rule of operators such as `"mylib::my_op"`, with their shapes, values and FLOPs.

    `@mk.axis_rule("mylib::scale")` over `def scale(call): return call.axes(call.inputs[0])` says that the result has
    the axes of the first tensor. Or name an operator that behaves the same, and no function is needed. What a notebook
    registered it may register again, as when a cell runs a second time. A rule that fails freezes what its operator
    touches, and `graph.unknown` lists it.

    Parameters
    ----------
    *names
        The operators, as `"namespace::name"`.
    like
        An operator that behaves the same, as `"aten::layer_norm"`: its rule, its traits and its FLOPs hold.
    args
        The arguments of `like` that have other names here, theirs → yours. What has the same name, or else the same
        place, needs no entry.
    shape
        `shape(*args)` gives the shape of a result where the operator cannot run without data.
    value
        `value(*args)` gives its value where it cannot run at all.
    flops
        `flops(*args)` gives its cost in floating-point operations, from the shapes of its tensors.

    Returns
    -------
    Callable
        The decorator of the rule; with `like` it need not be used.

    Raises
    ------
    DuplicateNameError
        When another module, or this project, has a rule for the operator.
    UnknownNameError
        For a name without namespace, an unknown `like`, and arguments in `args` that one of the operators has not.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> @torch.library.custom_op("mkgdoc::norm", mutates_args=())
    ... def norm(w: torch.Tensor, x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    ...     return torch.nn.functional.layer_norm(x, sizes, w)
    >>> _ = norm.register_fake(lambda w, x, sizes: torch.empty_like(x))
    >>> names = {"input": "x", "normalized_shape": "sizes", "weight": "w"}
    >>> rule = mk.axis_rule("mkgdoc::norm", like="aten::layer_norm", args=names)
    """
    home = frame_at(1).f_globals.get("__name__")
    if not names or not all(is_text(name) and "::" in name for name in names):
        raise UnknownNameError(f"operators are named as 'namespace::name', got {printable(str(names))}")
    user = UserOperator(shape, value, flops, like, dict(args or {}))
    _check_free(names, user, home)
    if like is not None and rule_named(like) is None:
        raise UnknownNameError(f"like={printable(like)!r} has no rule: {_missing_rule_hint(like)}")
    if args:
        for name in names:
            _check_arguments(name, like, user.args)
    if any(part is not None for part in (shape, value, flops, like)):
        user_operators.add(dict.fromkeys(names, user), home)

    def decorate(rule: Rule) -> Rule:
        check_function(rule, f"the rule of {printable(names[0])}")
        _check_free(names, user, home)
        rules.replace(_with_named_errors(rule), names)
        user_operators.add(dict.fromkeys(names, user), home)
        return rule

    return decorate


def _missing_rule_hint(like: str) -> str:
    """Returns advice for `like=` with an operator without rule: torch decomposes many, such as conv2d."""
    if not overloads_of(like):
        return closest_match_hint(like, rules)
    return "name the operator that graph.operators shows in its place (for conv2d 'aten::convolution'), or give a rule"


def _check_arguments(name: str, like: str | None, args: Mapping[str, str]) -> None:
    """Raise `UnknownNameError` where `args` names what one of the operators does not have, or leaves a tensor open."""
    if like is None:
        raise UnknownNameError("args maps arguments of another operator to yours: name that operator with like='…'")
    if not all(is_text(each) for pair in args.items() for each in pair):
        raise UnknownNameError(f"args={printable(str(args))}: give names, as {{'weight': 'w'}}, theirs → yours")
    own = overloads_of(name)
    if not own:
        raise UnknownNameError(f"there is no operator {printable(name)!r} yet, which args refers to: define it first")
    for operator, every, given in ((like, overloads_of(like), args.keys()), (name, own, args.values())):
        known = {argument.name for overload in every for argument in schema_of(overload).arguments}
        for argument in given:
            if argument not in known:
                hint = closest_match_hint(argument, known)
                raise UnknownNameError(f"args: {printable(operator)} has no argument {printable(argument)!r}: {hint}")
    twice = [argument for argument, count in Counter(args.values()).items() if count > 1]
    if twice:
        raise UnknownNameError(
            f"args: {printable(name)}'s {printable(twice[0])!r} stands for several arguments of {like}"
        )
    for overload in own:
        reading = reading_like(overload, like, args)
        if reading is not None and (left := missing_arguments(reading, tensors=True)):
            raise UnknownNameError(f"args: nothing of {printable(name)} is the {left[0]!r} of {like}: name it too")


def _with_named_errors(rule: Rule) -> Rule:
    """The rule, whose every failure names it."""

    @wraps(rule)
    def named(call: Call) -> Any:
        try:
            return rule(call)
        except Exception as error:
            name = printable(str(getattr(rule, "__name__", type(rule).__name__)))
            reason = f"{type(error).__name__}: {printable(str(error), 300)}"
            raise AxisRuleError(f"{name} stopped, {reason}") from error

    return named


def _check_free(names: Iterable[str], new: UserOperator, home: str | None) -> None:
    for name in names:
        user = user_operators.get(name)
        if user is None and rule_named(name) is not None:
            raise DuplicateNameError(DUPLICATE_RULE.format(printable(name)))
        if user is not new:
            user_operators.check_free([name], home)
