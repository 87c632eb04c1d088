"""Mixtures whose experts are modules of a list, in the ways in which code goes over them; and lists that are none."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inside)
        self.down = nn.Linear(inside, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)))


class Mixture(nn.Module):
    """`way` is how the experts are gone over."""

    def __init__(self, way: str, width: int = 8, inside: int = 12, experts: int = 6, top_k: int = 2) -> None:
        super().__init__()
        self.way = way
        self.num_experts, self.top_k = experts, top_k
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, inside) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return getattr(self, f"_{self.way}")(rows).reshape(x.shape)

    def _chosen(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, chosen = torch.topk(self.gate(x).softmax(-1), self.top_k, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen

    def _every_number(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        marks = F.one_hot(chosen, num_classes=self.num_experts).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for number in range(self.num_experts):
            slots, rows = torch.where(marks[number])
            given = x[None, rows].reshape(-1, x.shape[-1])
            out.index_add_(0, rows, self.experts[number](given) * weights[rows, slots, None])
        return out

    def _numbers_that_were_hit(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        marks = F.one_hot(chosen, num_classes=self.num_experts).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for number in (marks.sum(dim=(-1, -2)) > 0).nonzero():
            slots, rows = torch.where(marks[number].squeeze(0))
            out.index_add_(0, rows, self.experts[number](x[rows]) * weights[rows, slots, None])
        return out

    def _rows_that_were_marked(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            is_meant = chosen == number
            rows = is_meant.any(-1)
            if rows.any():
                out[rows] += (weights * is_meant).sum(-1)[rows, None] * expert(x[rows])
        return out

    def _sorted_by_number(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        counts = chosen.new_zeros((len(chosen), len(self.experts))).scatter_(1, chosen, 1).sum(0)
        order = chosen.view(-1).argsort(stable=True)
        rows, parts, start = x[order // self.top_k], [], 0
        for expert, count in zip(self.experts, counts.cpu().numpy(), strict=True):
            if count:
                parts.append(expert(rows[start : start + count]))
            start += count
        found = torch.empty_like(rows)
        found[order] = torch.cat(parts)
        return (found.view(*chosen.shape, -1) * weights[..., None]).sum(1)

    def _counted(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        counts = torch.bincount(chosen.flatten(), minlength=self.num_experts).tolist()
        out = torch.zeros_like(x)
        for number in range(self.num_experts):
            if counts[number]:
                rows, slots = torch.where(chosen == number)
                out[rows] += self.experts[number](x[rows]) * weights[rows, slots, None]
        return out

    def _the_best(self, x: torch.Tensor) -> torch.Tensor:
        best = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number in best.indices.unique():
            rows = torch.where(best.indices == number)[0]
            out[rows] = self.experts[number](x[rows]) * best.values[rows, None]
        return out

    def _stacked(self, x: torch.Tensor) -> torch.Tensor:
        every = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (self.gate(x).softmax(-1)[..., None] * every).sum(1)

    def _summed(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        parts = [weights[:, at : at + 1] * expert(x) for at, expert in enumerate(self.experts)]
        return torch.stack(parts).sum(0)

    def _weights_of_the_chosen(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self._chosen(x)
        every = torch.zeros(len(x), self.num_experts, device=x.device, dtype=x.dtype).scatter(-1, chosen, weights)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            out = out + every[:, at, None] * expert(x)
        return out

    # ------------------------------------------------------------- and others

    def _neighbours(self, x: torch.Tensor) -> torch.Tensor:
        """Each choice is of the expert behind it: rows and elements do not go together."""
        weights = self.gate(x).softmax(-1)
        parts = [weights[:, at - 1, None] * expert(x) for at, expert in enumerate(self.experts)]
        return torch.stack(parts).sum(0)

    def _special(self, x: torch.Tensor) -> torch.Tensor:
        """The first expert is another thing than the others."""
        weights = self.gate(x).softmax(-1)
        parts = [weights[:, at, None] * expert(x) for at, expert in enumerate(self.experts)]
        return parts[0] * 2 + torch.stack(parts[1:]).sum(0)


# each token goes to some experts
SHARED_OUT = (
    "every_number", "numbers_that_were_hit", "rows_that_were_marked", "sorted_by_number", "counted", "the_best",
)  # fmt: skip
OF_ALL = ("stacked", "summed", "weights_of_the_chosen")
OTHERS = ("neighbours", "special")


class MixtureDecoder(nn.Module):
    """Some layers with attention and a mixture each, on words."""

    def __init__(self, way: str, layers: int = 2, experts: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.layers = nn.ModuleList(MixtureLayer(way, experts) for _ in range(layers))
        self.head = nn.Linear(16, 40)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class MixtureLayer(nn.Module):
    def __init__(self, way: str, experts: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mixture = Mixture(way, 16, 24, experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mixture(self.norm2(x))
