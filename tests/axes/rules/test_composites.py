"""What torch takes apart reaches the rules as operators that they know, and these say together what is true."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from axes.rules.checks import check_couplings, check_permutation, check_terms
from axes.rules.examples import composites, sequences
from axes.rules.harness import function, x
from axes.rules.inferred import Inferred

EXAMPLES = [*composites.EXAMPLES, *sequences.EXAMPLES]
each = pytest.mark.parametrize("at", range(len(EXAMPLES)), ids=[of.title for of in EXAMPLES])


@cache
def inferred(at: int) -> Inferred:
    return Inferred(EXAMPLES[at])


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
