"""Where the hash of the seed merges what differs and splits what is the same; ours does the opposite."""

import copy

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Outer


def seed(module: nn.Module) -> str:
    return mk.fingerprint(module, scheme="seed").hexdigest


def ours(module: nn.Module) -> str:
    return mk.fingerprint(module).hexdigest


def product(*factors: nn.Module) -> nn.Module:
    return nn.Sequential(*factors)


MERGED = {
    "bias": (nn.Conv2d(2, 2, 1, bias=True), nn.Conv2d(2, 2, 1, bias=False)),
    "shapes": (nn.ParameterList([nn.Linear(2, 3).weight]), nn.ParameterList([nn.Linear(4, 5).weight])),
    "falsy values": (nn.Dropout(0.0), nn.Dropout(0)),
    "names of children": (Outer(a=nn.ReLU()), Outer(b=nn.ReLU())),
}


@pytest.mark.parametrize("pair", MERGED.values(), ids=MERGED)
def test_the_seed_merges_what_differs(pair: tuple[nn.Module, nn.Module]) -> None:
    assert seed(pair[0]) == seed(pair[1])
    assert ours(pair[0]) != ours(pair[1])


def test_the_seed_merges_two_orders_of_a_product() -> None:
    # a sum of shifted hashes: what moves one place to the right may be made up for by one more in front
    w, v = nn.Linear(4, 4, bias=True), nn.Linear(4, 4, bias=False)
    assert seed(product(w, v)) == seed(product(v, w))
    assert ours(product(w, v)) != ours(product(v, w))


def test_the_seed_splits_training_from_evaluation() -> None:
    training, evaluation = nn.Dropout(0.5).train(), nn.Dropout(0.5).eval()
    assert seed(training) != seed(evaluation)
    assert ours(training) == ours(evaluation)


def test_the_seed_depends_on_the_order_of_attributes() -> None:
    first, second = nn.Module(), nn.Module()
    first.a, first.b = 1, 2
    second.b, second.a = 2, 1
    assert seed(first) != seed(second)
    assert ours(first) == ours(second)


def test_the_seed_is_the_same_for_a_copy() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert seed(model) == seed(copy.deepcopy(model))
