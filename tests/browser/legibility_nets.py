"""Models written out by hand for test_legibility.py: the shapes that no model library has under one name."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def conv(before: int, after: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class DoubleConv(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn2(self.conv2(self.act(self.bn1(self.conv1(x))))))


class UNet(nn.Module):
    """Four levels down, four up, a skip by `cat` at each: 62 modules with the root."""

    def __init__(self, wide: int = 16, classes: int = 2) -> None:
        super().__init__()
        sizes = [wide * 2**level for level in range(5)]
        self.d1, self.d2 = DoubleConv(3, sizes[0]), DoubleConv(sizes[0], sizes[1])
        self.d3, self.d4 = DoubleConv(sizes[1], sizes[2]), DoubleConv(sizes[2], sizes[3])
        self.pool = nn.MaxPool2d(2)
        self.bottom = DoubleConv(sizes[3], sizes[4])
        self.dropout = nn.Dropout2d(0.1)
        for level in (4, 3, 2, 1):
            self.add_module(f"up{level}", nn.ConvTranspose2d(sizes[level], sizes[level - 1], 2, 2))
            self.add_module(f"u{level}", DoubleConv(sizes[level], sizes[level - 1]))
        self.head = nn.Conv2d(sizes[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down in (self.d1, self.d2, self.d3, self.d4):
            skips.append(down(x))
            x = self.pool(skips[-1])
        x = self.dropout(self.bottom(x))
        for level in (4, 3, 2, 1):
            x = torch.cat([skips.pop(), self.get_submodule(f"up{level}")(x)], 1)
            x = self.get_submodule(f"u{level}")(x)
        return self.head(x)


class ExpertList(nn.Module):
    """30 experts in a ModuleList, weighted and summed in a loop."""

    def __init__(self, size: int = 32, experts: int = 30) -> None:
        super().__init__()
        self.embed, self.gate = nn.Linear(size, size), nn.Linear(size, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size)) for _ in range(experts)
        )
        self.head = nn.Linear(size, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        weights = self.gate(x).softmax(-1)
        total = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            total = total + weights[:, place : place + 1] * expert(x)
        return self.head(total)


class FusedExperts(nn.Module):
    """The experts as two stacked parameters; two of them for each token."""

    def __init__(self, size: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, experts, bias=False)
        self.up = nn.Parameter(torch.zeros(experts, size, 4 * size))
        self.down = nn.Parameter(torch.zeros(experts, 4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, _ = self.gate(x).topk(2, dim=-1)
        scores = self.gate(x)
        weights = torch.where(scores >= best[..., -1:], scores, torch.full_like(scores, -1e9)).softmax(-1)
        hidden = F.gelu(torch.einsum("bti,eio->bteo", x, self.up))
        return torch.einsum("bteo,eoi,bte->bti", hidden, self.down, weights)


class FusedBlock(nn.Module):
    def __init__(self, size: int, experts: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, 4, batch_first=True)
        self.moe = FusedExperts(size, experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.moe(self.norm2(x))


class FusedMixture(nn.Module):
    def __init__(self, size: int = 32, experts: int = 8, blocks: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, size)
        self.blocks = nn.ModuleList(FusedBlock(size, experts) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 100, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Tagger(nn.Module):
    """Words and their letters, two bidirectional layers, a tag for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.letters = nn.Embedding(500, 32), nn.Embedding(60, 16)
        self.letter_lstm = nn.LSTM(16, 16, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.3)
        self.lstm = nn.LSTM(64, 48, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(96, 17)

    def forward(self, words: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        batch, length, size = letters.shape
        _, (last, _) = self.letter_lstm(self.letters(letters.reshape(batch * length, size)))
        spelled = last.transpose(0, 1).reshape(batch, length, 32)
        x, _ = self.lstm(self.dropout(torch.cat([self.words(words), spelled], -1)))
        return self.tags(self.dropout(x)).log_softmax(-1)


class GAN(nn.Module):
    """Generator and discriminator in one module: the discriminator judges what is real and what was made."""

    def __init__(self, noise: int = 32, wide: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise, 4 * wide, 4), nn.BatchNorm2d(4 * wide), nn.ReLU()]
        for before, after in ((4, 2), (2, 1)):
            layers += [nn.ConvTranspose2d(before * wide, after * wide, 4, 2, 1), nn.BatchNorm2d(after * wide)]
            layers += [nn.ReLU()]
        self.generator = nn.Sequential(*layers, nn.ConvTranspose2d(wide, 3, 4, 2, 1), nn.Tanh())
        layers = [nn.Conv2d(3, wide, 4, 2, 1), nn.LeakyReLU(0.2)]
        for before, after in ((1, 2), (2, 4)):
            layers += [nn.Conv2d(before * wide, after * wide, 4, 2, 1), nn.BatchNorm2d(after * wide)]
            layers += [nn.LeakyReLU(0.2)]
        self.discriminator = nn.Sequential(*layers, nn.Conv2d(4 * wide, 1, 4), nn.Flatten())

    def forward(self, noise: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        fake = self.generator(noise)
        return fake, self.discriminator(fake), self.discriminator(real)


class MixedOp(nn.Module):
    """All that a search may choose from, weighted by what it has learned."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.candidates = nn.ModuleList(
            [
                nn.Identity(),
                nn.MaxPool2d(3, 1, 1),
                conv(size, size),
                nn.Sequential(nn.Conv2d(size, size, 3, padding=2, dilation=2, groups=size), nn.Conv2d(size, size, 1)),
            ]
        )

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for weight, candidate in zip(weights, self.candidates, strict=True):
            total = total + weight * candidate(x)
        return total


class Cell(nn.Module):
    """Four nodes, each the sum of mixed operations on two states before it; what they give is concatenated."""

    WIRES = ((0, 1), (0, 2), (1, 3), (2, 4))

    def __init__(self, before: int, last: int, size: int) -> None:
        super().__init__()
        self.pre0, self.pre1 = conv(before, size, 1), conv(last, size, 1)
        self.ops = nn.ModuleList(MixedOp(size) for _ in range(8))

    def forward(self, before: torch.Tensor, last: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        states = [self.pre0(before), self.pre1(last)]
        for node, (one, other) in enumerate(self.WIRES):
            left, right = self.ops[2 * node], self.ops[2 * node + 1]
            states.append(left(states[one], weights[2 * node]) + right(states[other], weights[2 * node + 1]))
        return torch.cat(states[2:], 1)


class NASNetwork(nn.Module):
    """Six cells, each fed by the two before it."""

    def __init__(self, size: int = 8, cells: int = 6) -> None:
        super().__init__()
        self.stem = conv(3, size)
        self.alphas = nn.Parameter(torch.zeros(8, 4))
        widths = [size, size] + [4 * size] * cells
        self.cells = nn.ModuleList(Cell(widths[i], widths[i + 1], size) for i in range(cells))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(4 * size, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.alphas.softmax(-1)
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last, weights)
        return self.head(self.pool(last).flatten(1))


class Siamese(nn.Module):
    """One encoder for both pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(conv(3, 16), nn.MaxPool2d(2), conv(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.project = nn.Linear(32, 24)
        self.compare = nn.Sequential(nn.Linear(72, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        a, b = self.project(self.encoder(one)), self.project(self.encoder(other))
        return self.compare(torch.cat([a, b, (a - b).abs()], 1)).sigmoid()


class LoopedCell(nn.Module):
    """Twelve steps of a GRU cell in a loop, each with attention over what was read."""

    def __init__(self, size: int = 24) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(100, size), nn.GRUCell(2 * size, size)
        self.score, self.head = nn.Linear(2 * size, 1), nn.Linear(size, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        read = self.embed(tokens)
        state = read.mean(1)
        given = []
        for step in range(tokens.shape[1]):
            asked = torch.cat([read, state[:, None].expand_as(read)], -1)
            context = (self.score(asked).softmax(1) * read).sum(1)
            state = self.cell(torch.cat([read[:, step], context], -1), state)
            given.append(self.head(state))
        return torch.stack(given, 1)


class Wide(nn.Module):
    """400 branches of different widths beside each other, concatenated."""

    def __init__(self, branches: int = 400) -> None:
        super().__init__()
        widths = [1 + place % 7 for place in range(branches)]
        self.branches = nn.ModuleList(nn.Linear(8, width) for width in widths)
        self.head = nn.Linear(sum(widths), 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([branch(x) for branch in self.branches], 1))


def deep(modules: int = 5_000) -> nn.Sequential:
    """A chain in which no two neighbours are alike."""
    return nn.Sequential(*(nn.Linear(4, 4) if place % 2 == 0 else nn.Tanh() for place in range(modules)))


class ManyEnds(nn.Module):
    """Four inputs, of which one goes around the trunk, and three outputs with a name each."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(conv(3, 16), conv(16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.words = nn.EmbeddingBag(100, 16)
        self.table = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.trunk = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.classes, self.box, self.quality = nn.Linear(32, 5), nn.Linear(32, 4), nn.Linear(33, 1)

    def forward(
        self, image: torch.Tensor, words: torch.Tensor, table: torch.Tensor, prior: torch.Tensor
    ) -> dict[str, Any]:
        x = self.trunk(torch.cat([self.image(image), self.words(words), self.table(table)], 1))
        quality = self.quality(torch.cat([x, prior], 1)).sigmoid()
        return {"classes": self.classes(x).softmax(-1), "box": self.box(x), "quality": quality}
