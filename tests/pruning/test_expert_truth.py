"""Usage of experts against the truth: what the loss of trained mixtures rises by when each expert is cut alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

import modulekg_widgets as mk
from models.expert_models import SIZES

WORDS, LENGTH, EXPERTS, STEPS = 60, 12, 12, 200


def sentences(count: int, generator: torch.Generator) -> torch.Tensor:
    """Each word follows from the one before, by one of four rules that the first two tell."""
    start = torch.randint(WORDS, (count, 2), generator=generator)
    factor = torch.tensor([1, 7, 11, 13])[start[:, 1] % 4]
    words = [start[:, 0]]
    for _ in range(LENGTH - 1):
        words.append((words[-1] * factor + 3) % WORDS)
    return torch.stack(words, 1)


def loss_of(model: Any, words: torch.Tensor) -> torch.Tensor:
    return model(input_ids=words, labels=words, use_cache=False).loss


def trained(seed: int) -> tuple[Any, torch.Generator]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    sizes = {**SIZES, "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32}
    config = transformers.MixtralConfig(**sizes, num_local_experts=EXPERTS, num_experts_per_tok=2)
    model = transformers.MixtralForCausalLM(config)
    model.set_experts_implementation("grouped_mm")
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, sentences(32, generator)).backward()
        optimizer.step()
    return model.eval(), generator


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.slow
def test_usage_tells_what_the_loss_rises_by_without_each_expert(seed: int) -> None:
    model, generator = trained(seed)
    test = sentences(128, generator)
    batches = [{"input_ids": sentences(32, generator)} for _ in range(4)]
    graph = mk.trace(model, (), {"input_ids": test[:2], "use_cache": False})
    axis = next(axis for axis in graph.axes.free if axis.role == "experts")
    rises = []
    with torch.no_grad():
        whole = float(loss_of(model, test))
        assert whole < 0.5  # it has learnt the rules
        for index in range(EXPERTS):
            cut = copy.deepcopy(model)
            mk.plan(graph, per_axis={axis.name: [index]}).cut(cut, undo=False)
            rises.append(float(loss_of(cut, test)) - whole)
    scores = mk.pruning.ExpertUsage(batches).scores(graph.axes, [axis.term])[axis.term]
    assert np.corrcoef(rankdata(scores), rankdata(rises))[0, 1] > 0.5
