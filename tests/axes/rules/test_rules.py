"""Every rule has an example; what it says of the example is exact, and true of the operator's values."""

from __future__ import annotations

from functools import cache

import pytest

from axes.rules.checks import check_couplings, check_permutation, check_terms
from axes.rules.inferred import Inferred
from axes.rules.tables import EXAMPLES
from modulekg_widgets.engine.axes import inference as _registered
from modulekg_widgets.engine.axes.call import rules

_ = _registered
each = pytest.mark.parametrize("at", range(len(EXAMPLES)), ids=[of.id for of in EXAMPLES])


@cache
def inferred(at: int) -> Inferred:
    """What the rules find on an example, computed once for all tests."""
    return Inferred(EXAMPLES[at])


def test_every_rule_has_an_example() -> None:
    own = {name for name in rules if name.partition("::")[0] in ("aten", "torchvision")}
    assert own - {of.name for of in EXAMPLES} - {of.name.removesuffix("_") for of in EXAMPLES} == set()


@each
def test_the_terms_are_exact(at: int) -> None:
    check_terms(inferred(at))


@each
def test_values_follow_a_permutation(at: int) -> None:
    check_permutation(inferred(at))


@each
def test_couplings_are_needed(at: int) -> None:
    check_couplings(inferred(at))
