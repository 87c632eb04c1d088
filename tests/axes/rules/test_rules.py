"""Every rule has an example; what it says of the example is exact, and true of the operator's values."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from axes.rules.checks import check_couplings, check_permutation, check_terms
from axes.rules.harness import function, x
from axes.rules.inferred import Inferred
from axes.rules.tables import COMPOSITES, EXAMPLES
from modulekg_widgets.engine.axes.inference import inference as _registered
from modulekg_widgets.engine.axes.terms.call import rules

_ = _registered
EVERY = [*EXAMPLES, *COMPOSITES]
each = pytest.mark.parametrize("at", range(len(EVERY)), ids=[of.id for of in EVERY])


@cache
def inferred(at: int) -> Inferred:
    """What the rules find on an example, computed once for all tests."""
    return Inferred(EVERY[at])


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


def test_an_operator_without_a_rule_is_named() -> None:
    graph = mk.trace(nn.Hardtanh(), (x(2, 3),))
    assert graph.unknown == []
    unknown = Inferred(
        function("unknown", "", torch.ops.aten._convert_indices_from_coo_to_csr, torch.tensor([0, 1, 1, 2]), 3)
    )
    assert [u.operator for u in unknown.axes.unknown] == ["aten::_convert_indices_from_coo_to_csr"]
    assert str(unknown) == ". -> ."
