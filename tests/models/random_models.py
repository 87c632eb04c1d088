"""Random models whose exact slices are known, because the generator keeps book of every single channel.

A model is a program over a stack of feature maps. Each channel of each map belongs to a class of channels that must go
together, and each class knows its places: (parameter, dimension, position).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import nn

Place = tuple[str, int, int]
Forward = Callable[[list[torch.Tensor]], None]
SIZE = 4  # of the square feature maps


@dataclass(eq=False)
class Channels:
    """A class of channels that go together."""

    places: set[Place] = field(default_factory=set)
    frozen: bool = False
    into: Channels | None = None

    def root(self) -> Channels:
        return self if self.into is None else self.into.root()

    def join(self, other: Channels) -> None:
        a, b = self.root(), other.root()
        if a is not b:
            b.places |= a.places
            b.frozen |= a.frozen
            a.into = b


class RandomModel(nn.Module):
    """Runs its steps over a stack of maps that begins with the input."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Forward] = []
        self.log: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stack = [x]
        for step in self.steps:
            step(stack)
        return stack[-1]


class Builder:
    """Grows a model step by step, and the book of its channels beside it."""

    def __init__(self, channels: int) -> None:
        self.model = RandomModel()
        self.maps: list[list[Channels]] = [[Channels(frozen=True) for _ in range(channels)]]
        self.private: list[tuple[str, int, list[int], dict[str, dict[int, list[int]]]]] = []
        self.head, self.repeat = "", 1  # the last weight, and how many positions it reads of each channel
        self._count = 0

    # ------------------------------------------------------------- helpers

    def add(self, module: nn.Module) -> str:
        """Register a module under a name of its own."""
        name = f"m{self._count}"
        self._count += 1
        self.model.add_module(name, module)
        return name

    def step(self, text: str, run: Forward, channels: list[Channels]) -> None:
        self.model.steps.append(run)
        self.model.log.append(text)
        self.maps.append(channels)

    def read(self, at: int, name: str, dim: int = 1, repeat: int = 1) -> None:
        """Map `at` is read by a weight: each channel by `repeat` positions in a row."""
        for j, channel in enumerate(self.maps[at]):
            channel.root().places |= {(name, dim, j * repeat + r) for r in range(repeat)}

    def fresh(self, names: list[str], count: int) -> list[Channels]:
        return [Channels({(name, 0, i) for name in names}) for i in range(count)]

    # --------------------------------------------------------------- steps

    def conv(self, at: int, out: int, kernel: int) -> None:
        """A convolution makes new channels of all."""
        name = self.add(nn.Conv2d(len(self.maps[at]), out, kernel, padding=kernel // 2))
        self.read(at, f"{name}.weight")
        layer = self.model.get_submodule(name)
        self.step(f"conv {at}", lambda s: s.append(layer(s[at])), self.fresh([f"{name}.weight", f"{name}.bias"], out))

    def elementwise(self, at: int, which: int) -> None:
        function = (torch.relu, torch.sigmoid, F.gelu, lambda x: x * 2 + 1)[which % 4]
        self.step(f"elementwise {at}", lambda s: s.append(function(s[at])), self.maps[at])

    def norm(self, at: int) -> None:
        """Batch normalisation and a depthwise convolution behind it keep the channels."""
        count = len(self.maps[at])
        names = [self.add(nn.BatchNorm2d(count)), self.add(nn.Conv2d(count, count, 3, padding=1, groups=count))]
        layers = [self.model.get_submodule(name) for name in names]
        tensors = ["weight", "bias", "running_mean", "running_var"]
        for tensor in [f"{names[0]}.{t}" for t in tensors] + [f"{names[1]}.weight", f"{names[1]}.bias"]:
            self.read(at, tensor, 0)
        self.step(f"norm {at}", lambda s: s.append(layers[1](layers[0](s[at]))), self.maps[at])

    def residual(self, a: int, b: int) -> None:
        """Two maps of one width are added; a convolution makes the second one fit."""
        if len(self.maps[a]) != len(self.maps[b]):
            self.conv(b, len(self.maps[a]), 1)
            b = len(self.maps) - 1
        for x, y in zip(self.maps[a], self.maps[b], strict=True):
            x.join(y)
        self.step(f"add {a} {b}", lambda s: s.append(s[a] + s[b]), self.maps[a])

    def concatenate(self, a: int, b: int) -> None:
        if len(self.maps[a]) + len(self.maps[b]) <= 40:
            channels = self.maps[a] + self.maps[b]
            self.step(f"cat {a} {b}", lambda s: s.append(torch.cat([s[a], s[b]], 1)), channels)

    def split(self, at: int, where: int) -> None:
        count = len(self.maps[at])
        if count > 1:
            first = 1 + where % (count - 1)
            self.step(
                f"split {at}", lambda s: s.append(s[at].split([first, count - first], 1)[0]), self.maps[at][:first]
            )
            self.step(f"slice {at}", lambda s: s.append(s[at][:, first:]), self.maps[at][first:])

    def write(self, a: int, b: int) -> None:
        """Map `b`, made to fit, is added in place onto the last channels of a copy of `a`."""
        width = max(len(self.maps[a]) // 2, 1)
        self.conv(b, width, 1)
        c = len(self.maps) - 1
        for x, y in zip(self.maps[a][-width:], self.maps[c], strict=True):
            x.join(y)

        def run(stack: list[torch.Tensor]) -> None:
            whole = stack[a].clone()
            whole[:, -width:] += stack[c]
            stack.append(whole)

        self.step(f"write {a} {c}", run, self.maps[a])

    def channels_last(self, at: int, out: int) -> None:
        """A linear layer and a layer normalisation on channels that come last."""
        count = len(self.maps[at])
        first, second = self.add(nn.LayerNorm(count)), self.add(nn.Linear(count, out))
        for tensor in ("weight", "bias"):
            self.read(at, f"{first}.{tensor}", 0)
        self.read(at, f"{second}.weight")
        norm, linear = self.model.get_submodule(first), self.model.get_submodule(second)
        self.step(
            f"channels last {at}",
            lambda s: s.append(linear(norm(s[at].permute(0, 2, 3, 1))).permute(0, 3, 1, 2)),
            self.fresh([f"{second}.weight", f"{second}.bias"], out),
        )

    def grouped(self, at: int, groups: int, inside: int, outside: int, out: int) -> None:
        """A grouped convolution between two plain ones: a whole group goes, or one index in every group."""
        names = [
            self.add(nn.Conv2d(len(self.maps[at]), groups * inside, 1)),
            self.add(nn.Conv2d(groups * inside, groups * outside, 3, padding=1, groups=groups)),
            self.add(nn.Conv2d(groups * outside, out, 1)),
        ]
        first, middle, last = names
        layers = [self.model.get_submodule(name) for name in names]
        self.read(at, f"{first}.weight")
        group = groups - 1
        rows = [group * outside + o for o in range(outside)]
        into = [group * inside + i for i in range(inside)]
        everywhere = [g * outside for g in range(groups)]
        self.private += [
            (f"{middle}.weight", 0, rows, {
                f"{first}.weight": {0: into}, f"{first}.bias": {0: into}, f"{middle}.weight": {0: rows},
                f"{middle}.bias": {0: rows}, f"{last}.weight": {1: rows},
            }),
            (f"{last}.weight", 1, everywhere, {
                f"{middle}.weight": {0: everywhere}, f"{middle}.bias": {0: everywhere},
                f"{last}.weight": {1: everywhere},
            }),
        ]  # fmt: skip
        self.step(
            f"grouped {at}",
            lambda s: s.append(layers[2](layers[1](layers[0](s[at])))),
            self.fresh([f"{last}.weight", f"{last}.bias"], out),
        )

    def attention(self, at: int, heads: int, width: int, fused: bool) -> None:
        """Self-attention over the positions; its output is added, as in a transformer."""
        count = len(self.maps[at])
        inner = heads * width
        if fused:
            qkv, out = self.add(nn.Linear(count, 3 * inner)), self.add(nn.Linear(inner, count))
            self.read(at, f"{qkv}.weight")
            tensors, offsets = [qkv, qkv, qkv], [0, inner, 2 * inner]
        else:
            tensors, offsets = [self.add(nn.Linear(count, inner)) for _ in range(3)], [0, 0, 0]
            out = self.add(nn.Linear(inner, count))
            for name in tensors:
                self.read(at, f"{name}.weight")
        for j, channel in enumerate(self.maps[at]):
            channel.root().places |= {(f"{out}.weight", 0, j), (f"{out}.bias", 0, j)}
        rows = [(heads - 1) * width + i for i in range(width)]
        gone: dict[str, dict[int, list[int]]] = {f"{out}.weight": {1: rows}}
        for name, offset in zip(tensors, offsets, strict=True):
            for tensor in ("weight", "bias"):
                gone.setdefault(f"{name}.{tensor}", {}).setdefault(0, []).extend(r + offset for r in rows)
        first = f"{tensors[0]}.weight"
        self.private.append((first, 0, gone[first][0], gone))
        layers = [self.model.get_submodule(name) for name in dict.fromkeys(tensors)]
        last = self.model.get_submodule(out)

        def run(stack: list[torch.Tensor]) -> None:
            x = stack[at].flatten(2).transpose(1, 2)
            batch, tokens, _ = x.shape
            parts = layers[0](x).chunk(3, -1) if fused else [layer(x) for layer in layers]
            q, k, v = (part.reshape(batch, tokens, heads, width).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, inner)
            stack.append((x + last(y)).transpose(1, 2).reshape(batch, -1, SIZE, SIZE))

        self.step(f"attention {at}", run, self.maps[at])

    def finish(self, flat: bool) -> None:
        """Every map is read by one last layer, so that all of the model counts."""
        channels = [c for own in self.maps[1:] or self.maps for c in own]
        name = self.add(nn.Linear(len(channels) * (SIZE * SIZE if flat else 1), 3))
        used = list(range(1, len(self.maps))) or [0]
        repeat = SIZE * SIZE if flat else 1
        self.head, self.repeat = f"{name}.weight", repeat
        for j, channel in enumerate(channels):
            channel.root().places |= {(f"{name}.weight", 1, j * repeat + r) for r in range(repeat)}
        layer = self.model.get_submodule(name)

        def run(stack: list[torch.Tensor]) -> None:
            every = torch.cat([stack[i] for i in used], 1)
            stack.append(layer(every.flatten(1) if flat else every.mean((2, 3))))

        self.step("head", run, [Channels(frozen=True) for _ in range(3)])


@st.composite
def builders(draw: st.DrawFn) -> Builder:
    """A random model with its book."""
    builder = Builder(draw(st.integers(1, 4)))
    small = st.integers(1, 7)
    for _ in range(draw(st.integers(1, 7))):
        at, other = (draw(st.integers(0, len(builder.maps) - 1)) for _ in range(2))
        match draw(st.integers(0, 9)):
            case 0:
                builder.conv(at, draw(small), draw(st.sampled_from([1, 3])))
            case 1:
                builder.elementwise(at, draw(st.integers(0, 3)))
            case 2:
                builder.norm(at)
            case 3:
                builder.residual(at, other)
            case 4:
                builder.concatenate(at, other)
            case 5:
                builder.split(at, draw(small))
            case 6:
                builder.write(at, other)
            case 7:
                builder.channels_last(at, draw(small))
            case 8:
                builder.grouped(at, draw(st.integers(2, 3)), *(draw(st.integers(2, 3)) for _ in range(2)), draw(small))
            case 9:
                builder.attention(at, draw(st.integers(2, 3)), draw(st.integers(2, 3)), draw(st.booleans()))
    builder.finish(draw(st.booleans()))
    return builder
