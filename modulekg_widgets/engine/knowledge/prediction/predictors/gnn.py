"""Graph neural network on the modules of models, trained for all families and seeds in one batch.

Messages run from children to parents. Modules that look alike to it, by kind and by the kinds below, are one node, so
that all models are one small graph; networks that have not seen a family, and one that has seen all, train at once for
all families and seeds, side by side in one batch.
Its settings are fixed (two rounds, 16 wide); they were not searched beyond a handful of tries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from modulekg_widgets.engine.knowledge.facts.contents import count_uses
from modulekg_widgets.engine.knowledge.prediction.data.design import Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import (
    Array,
    Features,
    child_keys,
    log_sizes,
    operation_label,
)
from modulekg_widgets.engine.torch_runtime.rng import seeded_generator

WIDTH, ROUNDS, EPOCHS = 16, 2, 200
LEARNING_RATE, WEIGHT_DECAY, DROPOUT = 0.01, 0.3, 0.2


@dataclass(frozen=True, slots=True)
class ModuleGraph:
    """The modules of all models as one graph; floats are float32 on the CPU."""

    kinds: Tensor  # (nodes, parts of labels)
    parts: list[str]  # of the labels of kinds
    children: Tensor  # (edges,)
    parents: Tensor  # (edges,)
    counts: Tensor  # (edges,), log(1 + how often)
    readout: Tensor  # (models, nodes), rows of unit length
    sizes: Tensor  # (models, 1 or 2)


def module_graph(
    features: Sequence[Features], parts: list[str] | None = None, costs: bool | None = None
) -> ModuleGraph:
    """Returns the modules of all models as one graph, with modules merged that messages cannot separate.

    `parts` of labels and whether it goes by `costs` are those of another graph, by default what these models have.
    """
    ids: dict[object, int] = {}
    edges: dict[int, Counter[int]] = {}
    labels: dict[int, str] = {}
    uses: list[Counter[int]] = []
    for each in features:
        nodes = each.record.nodes
        classes = _classes(each, ids)
        found: Counter[int] = Counter()
        for fingerprint, count in count_uses([each.record.model]).items():
            own = classes[fingerprint]
            found[own] += count
            labels.setdefault(own, operation_label(nodes[fingerprint]))
            edges.setdefault(own, Counter(classes[child] for child in child_keys(nodes[fingerprint])))
        uses.append(found)
    column = {own: index for index, own in enumerate(sorted(labels))}
    triples = [(column[child], column[own], math.log1p(n)) for own in column for child, n in edges[own].items()]
    readout = np.zeros((len(features), len(column)))
    for row, counts in zip(readout, uses, strict=True):
        for own, count in counts.items():
            row[column[own]] = math.log1p(count)
    readout /= np.linalg.norm(readout, axis=1, keepdims=True)
    size = log_sizes(features, all(each.flops is not None for each in features) if costs is None else costs)
    kinds, parts = _kinds([labels[own] for own in column], parts)
    return ModuleGraph(
        kinds, parts, _indices([child for child, _, _ in triples]),
        _indices([parent for _, parent, _ in triples]), _floats([count for _, _, count in triples]),
        _floats(readout), _floats(size),
    )  # fmt: skip


def _classes(features: Features, ids: dict[object, int]) -> dict[str, int]:
    """Returns a number for each fingerprint, equal for modules that are alike down to `ROUNDS` levels."""
    nodes = features.record.nodes
    known = {key: ids.setdefault(operation_label(node), len(ids)) for key, node in nodes.items()}
    for _ in range(ROUNDS):
        below = {key: tuple(sorted(Counter(known[c] for c in child_keys(node)).items())) for key, node in nodes.items()}
        known = {key: ids.setdefault((known[key], below[key]), len(ids)) for key in nodes}
    return known


def _kinds(labels: list[str], known: list[str] | None) -> tuple[Tensor, list[str]]:
    """Returns indicators of the parts of labels, and the names of the parts."""
    parts = [dict.fromkeys(text.split("/")) for text in labels]
    names = sorted({part for each in parts for part in each}) if known is None else known
    column = {part: index for index, part in enumerate(names)}
    kinds = torch.zeros(len(labels), len(column), dtype=torch.float32, device="cpu")
    for row, each in enumerate(parts):
        kinds[row, [column[part] for part in each if part in column]] = 1.0
    return kinds, names


def _floats(values: Array | list[float]) -> Tensor:
    return torch.tensor(np.asarray(values, dtype=np.float32), device="cpu")


def _indices(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")


# ------------------------------------------------------------------ networks


class NetworkBatch:
    """One network for each seed and left-out family, batched in one tensor for each layer."""

    def __init__(self, graph: ModuleGraph, seeds: Sequence[int], families: int) -> None:
        self.graph = graph
        self.rng = seeded_generator(seeds[0])  # of the dropout
        draws = [seeded_generator(seed) for seed in seeds]
        self.count = len(seeds) * families

        def weights(inputs: int, outputs: int, gain: float = 1.0) -> Tensor:
            """The same start for all networks of a seed."""
            drawn = [torch.randn(inputs, outputs, generator=draw, dtype=torch.float32, device="cpu") for draw in draws]
            return (torch.stack(drawn).repeat_interleave(families, 0) * gain / math.sqrt(inputs)).requires_grad_()

        def biases(outputs: int) -> Tensor:
            return torch.zeros(self.count, 1, outputs, dtype=torch.float32, device="cpu").requires_grad_()

        self.first = weights(graph.kinds.shape[1], WIDTH), biases(WIDTH)
        self.rounds = [(weights(WIDTH, WIDTH), weights(WIDTH, WIDTH, 0.5), biases(WIDTH)) for _ in range(ROUNDS)]
        self.hidden = weights(WIDTH + graph.sizes.shape[1], WIDTH), biases(WIDTH)
        self.last = weights(WIDTH, 1, 0.3), biases(1)
        layers = (self.first, *self.rounds, self.hidden, self.last)
        self.parameters = [tensor for layer in layers for tensor in layer]

    def __call__(self, training: bool = False, graph: ModuleGraph | None = None) -> Tensor:
        """The output of each network for each model of its graph or another one, shape (networks, models)."""
        graph = self.graph if graph is None else graph
        states = torch.relu(graph.kinds @ self.first[0] + self.first[1])
        for own, received, bias in self.rounds:
            sent = states[:, graph.children] * graph.counts[:, None]
            sums = torch.zeros_like(states).index_add(1, graph.parents, sent)
            states = torch.relu(torch.bmm(states, own) + torch.bmm(sums, received) + bias)
        models = torch.cat([graph.readout @ states, graph.sizes.expand(self.count, -1, -1)], 2)
        if training:
            kept = torch.rand(models.shape, generator=self.rng, dtype=torch.float32, device="cpu") >= DROPOUT
            models = models * kept / (1 - DROPOUT)
        hidden = torch.nn.functional.silu(torch.bmm(models, self.hidden[0]) + self.hidden[1])
        return (torch.bmm(hidden, self.last[0]) + self.last[1])[..., 0]


class GraphNetworkEnsemble:
    """Networks of all seeds, trained without each group of values and on all of them, with their predictions."""

    def __init__(self, features: Sequence[Features], values: Array, groups: np.ndarray, seeds: Sequence[int]) -> None:
        self.title = "GNN"
        kinds = np.unique(groups)
        fits = len(kinds) + 1  # the last on all
        # whoever calls may have switched gradients off
        with torch.inference_mode(False), torch.enable_grad():
            graph = module_graph(features)
            self._costs = graph.sizes.shape[1] > 1
            truth = _floats(values)
            known = _floats(
                np.tile(np.concatenate([groups != kinds[:, None], np.ones((1, len(groups)))]), (len(seeds), 1))
            )
            known = known / known.sum(1, keepdim=True)
            self._mean = (known * truth).sum(1, keepdim=True)
            self._spread = (known * (truth - self._mean) ** 2).sum(1, keepdim=True).sqrt().clamp_min(1e-6)
            self._networks = NetworkBatch(graph, seeds, fits)
            _train(self._networks, (truth - self._mean) / self._spread, known)
        outputs = self._outputs(graph).reshape(len(seeds), fits, -1)
        self.runs_by_seed = outputs[
            :, np.searchsorted(kinds, groups), np.arange(len(values))
        ]  # without their groups, by seed
        self.out_of_fold: Array = self.runs_by_seed.mean(0)

    def predict(self, samples: Sequence[Sample]) -> Array:
        """Predicts the mean over the seeds."""
        features = [sample.features for sample in samples]
        outputs = self._outputs(module_graph(features, self._networks.graph.parts, self._costs))
        return outputs.reshape(len(self.runs_by_seed), -1, len(samples))[:, -1].mean(0)

    def _outputs(self, graph: ModuleGraph) -> Array:
        with torch.inference_mode(False), torch.no_grad():
            return (self._networks(graph=graph) * self._spread + self._mean).numpy().astype(float)


def _train(networks: NetworkBatch, truth: Tensor, known: Tensor) -> None:
    optimizer = torch.optim.AdamW(networks.parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for epoch in tqdm(range(EPOCHS), f"training {networks.count} networks", unit="epoch", delay=2, leave=False):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        loss = ((networks(training=True) - truth) ** 2 * known).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
