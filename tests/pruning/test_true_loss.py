"""Importances against the truth: what the loss rises by when each index of small trained nets is cut alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from scipy.stats import rankdata

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.importance.activations import Activation
from modulekg_widgets.engine.pruning.importance.criteria import L1
from modulekg_widgets.engine.pruning.importance.loss_criteria import Hessian, Taylor
from pruning.criterion_samples import scores
from pruning.trained_nets import NETS, Trained, trained
from sampling import sampled

SMALLEST = 10  # indices of an axis, below which a rank correlation tells little

net = cache(trained)
each_net = pytest.mark.parametrize("name", NETS)


def agreement(own: Trained, importance: Any) -> float:
    """The mean rank correlation with the truth over the axes of a net."""
    found = scores(own.graph, importance)
    wide = {name: rises for name, rises in own.rises.items() if len(rises) >= SMALLEST}
    return float(np.mean([np.corrcoef(rankdata(found[name]), rankdata(wide[name]))[0, 1] for name in wide]))


@each_net
@pytest.mark.slow
def test_the_loss_depends_on_what_is_cut(name: str) -> None:
    own = net(name)
    accuracy = (own.model(own.images).argmax(1) == own.labels).float().mean()
    assert accuracy > 0.8
    assert all(rises.mean() > 0 for rises in own.rises.values())


@each_net
def test_magnitudes_tell_something(name: str) -> None:
    own = net(name)
    least = {"perceptron": 0.5, "convolutional": 0.2, "transformer": 0.5, "recurrent": 0.35}[name]
    for importance in ("l1", "l2", "bn_scale"):
        assert agreement(own, importance) > least, importance


def test_distances_tell_less() -> None:  # there are indices like no other that nothing reads
    found = np.mean([agreement(net(name), "fpgm") for name in NETS])
    assert 0.2 < found < np.mean([agreement(net(name), "l1") for name in NETS])


def test_biases_tell_less_than_weights() -> None:
    every = [net(name) for name in NETS]
    by_weights = np.mean([agreement(own, "l1") for own in every])
    assert by_weights > np.mean([agreement(own, L1("all")) for own in every])


@each_net
def test_the_first_order_tells_more_than_magnitudes(name: str) -> None:
    own = net(name)
    found = agreement(own, Taylor(own.batches(24, 32), F.cross_entropy))
    assert found > 0.6
    assert found > agreement(own, "l1")


@pytest.mark.slow
def test_small_batches_tell_the_first_order_better_than_one_of_all() -> None:
    small, one = (
        np.mean([agreement(own, Taylor(own.batches(count, 768 // count), F.cross_entropy)) for own in map(net, NETS)])
        for count in (24, 1)
    )
    assert small > 0.05 + one


@pytest.mark.parametrize("name", sampled(NETS, ["convolutional"]))
@pytest.mark.slow
def test_the_second_order_is_nearest_to_the_truth(name: str) -> None:
    own = net(name)
    found = agreement(own, Hessian(own.batches(12, 64), F.cross_entropy))
    assert found > 0.8
    assert found > agreement(own, Taylor(own.batches(12, 64), F.cross_entropy))


@each_net
def test_activations_tell_more_with_the_weights_that_read_them(name: str) -> None:
    own = net(name)
    batches = own.batches(6, 64)
    found = agreement(own, Activation(batches))
    assert found > 0.4
    assert found > agreement(own, Activation(batches, "mean_abs", weighted=False))  # as it was


def test_chance_tells_nothing() -> None:
    assert abs(np.mean([agreement(net(name), "random") for name in NETS])) < 0.3


@pytest.mark.parametrize("left", [0.7, 0.5, 0.3])
@pytest.mark.parametrize("how", ["l2", "taylor", "taylor for FLOPs"])
def test_a_target_takes_of_the_inner_axes_before_the_stream(how: str, left: float) -> None:
    own = net("transformer")
    importance = "l2" if how == "l2" else Taylor(own.batches(24, 32), F.cross_entropy)
    per = {"per": "flops"} if how == "taylor for FLOPs" else {}
    plan = mk.plan(own.graph, target={"flops": left}, scope="global", importance=importance, **per)
    shares = {axis.name: axis.left / axis.size for axis in plan.axes}
    inner = [shares.get(name, 1.0) for name in ("block.inner.out", "block.head_dim")]
    assert np.mean(inner) < shares.get("embed.hidden", 1.0), shares
