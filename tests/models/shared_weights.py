"""Embeddings whose table is the weight of the head, too."""

from __future__ import annotations

from torch import Tensor, nn


class TiedEmbedding(nn.Module):
    """A table of words that is also the weight of the head behind it."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


class TiedResidual(nn.Module):
    """A residual linear layer between a table of words and the head that has its weight."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed, self.mix, self.head = (
            nn.Embedding(words, width), nn.Linear(width, width), nn.Linear(width, words, bias=False)
        )  # fmt: skip
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.head(x + self.mix(x))
