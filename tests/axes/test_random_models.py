"""Random models: permutation-equivariant, and cut exactly where the generator's book says."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import modulekg_widgets as mk
from models.random_models import SIZE, Builder, Channels, builders
from modulekg_widgets.engine.axes.terms.algebra import PRODUCT, SUM, Term, find, flattened_parts

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _classes(builder: Builder) -> list[Channels]:
    return list(dict.fromkeys(channel.root() for own in builder.maps for channel in own))


def _expected(channels: Channels) -> dict[str, dict[int, list[int]]]:
    gone: dict[str, dict[int, list[int]]] = {}
    for name, dim, position in sorted(channels.places):
        gone.setdefault(name, {}).setdefault(dim, []).append(position)
    return gone


def check(builder: Builder) -> None:
    """All that must hold of one random model."""
    torch.manual_seed(0)
    model = builder.model.eval()
    graph = mk.trace(model, torch.randn(2, len(builder.maps[0]), SIZE, SIZE))
    assert graph.unknown == []
    proof = graph.axes.verify(bipartitions=2)
    assert proof.ok, f"{model.log}: {proof.wrong}"
    assert proof.error < 1e-9
    for channels in _classes(builder):
        if not channels.places:
            continue
        name, dim, position = min(channels.places)
        size = graph.state[name].shape[dim]
        alone = size == 1 or len({p for p in channels.places if p[:2] == (name, dim)}) == size
        per_channel = builder.repeat if (name, dim) == (builder.head, 1) else 1
        if channels.frozen or alone or _is_last(graph, name, dim, position, per_channel):
            with pytest.raises(mk.ModuleKGError):
                graph.cut_analysis(name, index=[position], dim=dim)
        else:
            assert graph.cut_analysis(name, index=[position], dim=dim).parameters == _expected(channels), model.log
    for name, dim, index, gone in builder.private:
        assert graph.cut_analysis(name, index=index, dim=dim).parameters == gone, model.log


def _is_last(graph: mk.DataflowGraph, name: str, dim: int, position: int, per_channel: int) -> bool:
    """Whether the position belongs to a part of one channel, which must stay."""
    channel = position // per_channel
    for size in _channel_parts(graph.axes.term(name, dim), per_channel):
        if channel < size:
            return size == 1
        channel -= size
    raise AssertionError(f"{name} has no position {position}")


def _channel_parts(term: Term, per_channel: int) -> list[int]:
    """The sizes of the parts of a dimension, in channels: (A + B)·positions, A·positions + B·positions, or A + B."""
    outer = flattened_parts(term)[0] if term.kind == PRODUCT and per_channel > 1 else term
    unit = 1 if outer is not term else per_channel
    if term.kind == PRODUCT and per_channel > 1 and find(outer).kind != SUM:
        return [term.size // per_channel]
    return [part.size // unit for part in (flattened_parts(outer) if find(outer).kind == SUM else [outer])]


# no shrinking in CI: it would run for minutes; the nightly run shrinks, and prints the program of the model either way
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=CHECKS, phases=[Phase.generate])
@given(builders())
@pytest.mark.slow
def test_random_models(builder: Builder) -> None:
    check(builder)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(
    max_examples=int(os.environ.get("MODULEKG_RANDOM_MODELS", "1000")), deadline=None, suppress_health_check=CHECKS
)
@given(builders())
def test_a_thousand_random_models(builder: Builder) -> None:
    check(builder)
