"""`mk.axis_rule`: telling of an operator of one's own, in one place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from modulekg_widgets.engine.axes.call import Call, Rule, rules
from modulekg_widgets.engine.axes.inference import rule_named
from modulekg_widgets.engine.errors import DuplicateNameError, ModuleKGError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.operators.user_operators import UserOperator, user_operators
from modulekg_widgets.engine.registry import check_function, is_new_version


class AxisRuleError(ModuleKGError, ValueError):
    """What a user's rule raised, with its name."""


def axis_rule(
    *names: str,
    like: str | None = None,
    shape: Callable[..., Any] | None = None,
    value: Callable[..., Any] | None = None,
    flops: Callable[..., int] | None = None,
) -> Callable[[Rule], Rule]:
    """Register the rule of operators such as `"mylib::my_op"`; the rule gets a `Call` and returns the result's terms.

    `@mk.axis_rule("mylib::scale")` over `def scale(call): return call.axes(call.inputs[0])` says that the result has
    the axes of the first tensor. `like` names an operator that behaves the same, and no rule is needed:
    `mk.axis_rule("mylib::pool", like="aten::max_pool2d")`. `shape(*args)` gives a result's shape where the operator
    cannot run without data, `value(*args)` its value where it cannot run at all, `flops(*args)` its cost from the
    shapes of its tensors. What a notebook registered it may register again, as when a cell runs a second time.
    A rule that fails freezes what its operator touches, and `graph.unknown` lists it.
    Raises `DuplicateNameError` and `UnknownNameError`.
    """
    home = sys._getframe(1).f_globals.get("__name__")
    if not names or not all(isinstance(name, str) and "::" in name for name in names):
        raise UnknownNameError(f"operators are named as 'namespace::name', got {shown(str(names))}")
    told = UserOperator(shape, value, flops, like, home)
    _refuse_taken(names, told)
    if like is not None and rule_named(like) is None:
        raise UnknownNameError(f"like={shown(like)!r} has no rule: {nearest(like, rules)}")
    if any(part is not None for part in (shape, value, flops, like)):
        user_operators.update(dict.fromkeys(names, told))

    def decorate(rule: Rule) -> Rule:
        check_function(rule, f"the rule of {shown(names[0])}")
        _refuse_taken(names, told)
        rules.replace(_named(rule), names)
        user_operators.update(dict.fromkeys(names, told))
        return rule

    return decorate


def _named(rule: Rule) -> Rule:
    """The rule, whose every failure names it."""

    @wraps(rule)
    def named(call: Call) -> Any:
        try:
            return rule(call)
        except Exception as error:
            name = shown(str(getattr(rule, "__name__", type(rule).__name__)))
            told = f"{type(error).__name__}: {shown(str(error), 300)}"
            raise AxisRuleError(f"{name} stopped, {told}") from error

    return named


def _refuse_taken(names: Iterable[str], told: UserOperator) -> None:
    for name in names:
        user = user_operators.get(name)
        taken = rule_named(name) is not None if user is None else not is_new_version(user.home, told.home)
        if taken and user is not told:
            raise DuplicateNameError(f"{shown(name)} has a rule already: choose another operator")
