"""The checks see what they are there for: a rule that is false, one that merges axes, and one that freezes too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from axes.rules.checks import check_couplings, check_permutation, check_terms
from axes.rules.harness import Example, example, x
from axes.rules.inferred import Inferred
from modulekg_widgets.engine.axes.terms.call import Call, Dims, rules


def as_it_is(call: Call) -> Dims:
    return call.axes(call["self"])


def square(call: Call) -> Dims:
    rows, columns = call.axes(call["self"])
    call.unify(rows, columns)
    call.unify(columns, call.axes(call["vec"])[0])
    return [rows]


def careful(call: Call) -> Dims:
    dims = call.axes(call["self"])
    call.freeze_all(dims, "a reason")
    return dims


def misfit(call: Call) -> Dims:
    rows, columns = call.axes(call["self"])
    call.unify(rows, columns)
    return [rows, columns]


def with_rule(monkeypatch: pytest.MonkeyPatch, name: str, rule: Callable[[Call], Any], of: Example) -> Inferred:
    monkeypatch.setattr(rules, "entries", rules.entries)
    rules.replace(rule, [name])
    return Inferred(of)


def test_a_false_rule_changes_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_rule(monkeypatch, "aten::cumsum", as_it_is, example("aten::cumsum", "a b -> a b", x(2, 3), 1))
    check_terms(found)
    with pytest.raises(AssertionError):
        check_permutation(found)


def test_a_rule_that_merges_two_axes_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_rule(monkeypatch, "aten::mv", square, example("aten::mv", "a a, a -> a", x(5, 5), x(5)))
    check_permutation(found)
    with pytest.raises(AssertionError):
        check_couplings(found)


def test_a_rule_that_freezes_too_much_has_other_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    of = example("aten::exp", "a b -> a b", x(2, 3))
    check_terms(Inferred(of))
    with pytest.raises(AssertionError):
        check_terms(with_rule(monkeypatch, "aten::exp", careful, of))


def test_a_rule_that_contradicts_the_sizes_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_rule(monkeypatch, "aten::exp", misfit, example("aten::exp", ". . -> . .", x(2, 3)))
    assert str(found) == ". . -> . ."
    with pytest.raises(AssertionError):
        check_terms(found)
