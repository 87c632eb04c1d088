"""Recurrent layers between an embedding and a linear head."""

from __future__ import annotations

from torch import Tensor, nn


class SequenceTagger(nn.Module):
    """An embedding or none, a recurrent layer, and a linear head on each of its outputs."""

    def __init__(self, embed: nn.Module | None, rnn: nn.RNNBase, classes: int) -> None:
        super().__init__()
        self.embed, self.rnn = embed, rnn
        self.head = nn.Linear((1 + rnn.bidirectional) * (rnn.proj_size or rnn.hidden_size), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x if self.embed is None else self.embed(x))[0])


class SequenceClassifier(SequenceTagger):
    """An embedding or none, a recurrent layer whose batch comes first, and a linear head on its last output."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x if self.embed is None else self.embed(x))[0][:, -1])
