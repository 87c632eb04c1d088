"""`mk.axis_rule`: telling of an operator of one's own, in one place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from modulekg_widgets.engine.axes.call import Rule, rules
from modulekg_widgets.engine.axes.inference import rule_named
from modulekg_widgets.engine.errors import DuplicateNameError, UnknownNameError, nearest, shown
from modulekg_widgets.engine.registry import is_new_version
from modulekg_widgets.engine.tracing.operators import UserOperator, user_operators


def axis_rule(
    *names: str,
    like: str | None = None,
    shape: Callable[..., Any] | None = None,
    value: Callable[..., Any] | None = None,
    flops: Callable[..., int] | None = None,
) -> Callable[[Rule], Rule]:
    """Register the rule of operators such as `"mylib::my_op"`; the rule gets a `Call` and returns the result's terms.

    `like` names an operator that behaves the same, and no rule is needed: `mk.axis_rule("mylib::pool",
    like="aten::max_pool2d")`. `shape(*args)` gives a result's shape where the operator cannot run without data,
    `value(*args)` its value where it cannot run at all, `flops(*args)` its cost from the shapes of its tensors.
    What a notebook registered it may register again, as when a cell runs a second time.
    Raises `DuplicateNameError` and `UnknownNameError`.
    """
    home = sys._getframe(1).f_globals.get("__name__")
    if not names or not all(isinstance(name, str) and "::" in name for name in names):
        raise UnknownNameError(f"operators are named as 'namespace::name', got {shown(str(names))}")
    for name in names:
        user = user_operators.get(name)
        if not is_new_version(user.home, home) if user else rule_named(name) is not None:
            raise DuplicateNameError(f"{shown(name)} has a rule already: choose another operator")
    if like is not None and rule_named(like) is None:
        raise UnknownNameError(f"like={shown(like)!r} has no rule: {nearest(like, rules)}")
    for name in names:
        user_operators[name] = UserOperator(shape, value, flops, like, home)

    def decorate(rule: Rule) -> Rule:
        return rules.register(*names)(rule)

    return decorate
