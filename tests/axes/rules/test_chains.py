"""Rules together: random chains of operators keep their values when all that is free is permuted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from axes.rules.chains import chain
from axes.rules.checks import check_permutation, check_terms
from axes.rules.harness import function, x
from axes.rules.inferred import Inferred

SOME, MANY = 600, 5000


def check(seed: int) -> int:
    """The number of free axes of a chain, which are so in truth."""
    found = Inferred(chain(seed))
    assert found.axes.unknown == [], seed
    check_permutation(found)
    return len(found.free)


@pytest.mark.slow
def test_random_chains() -> None:
    assert sum(check(seed) for seed in range(SOME)) > SOME


@pytest.mark.nightly
def test_many_random_chains() -> None:
    assert sum(check(seed) for seed in range(SOME, MANY)) > MANY


def test_taking_apart_what_is_thrown_away_frees_nothing() -> None:
    def flipped(a: Tensor) -> Tensor:
        out = a.flip(0)
        a.chunk(2)
        return out

    check_terms(Inferred(function("a frozen axis", "(.+.) -> (.+.)", flipped, x(6))))


def test_what_cannot_be_taken_apart_is_frozen_even_there() -> None:
    def joined(a: Tensor, b: Tensor) -> Tensor:
        out = torch.cat([a, b], 1).view(8)
        out.view(4, 2)
        return out

    check_permutation(Inferred(function("a sum in a product", "", joined, x(2, 3), x(2, 1))))
