"""Nets that are exported in these tests, and what is asked of every file with a graph."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torchvision
from torch import nn

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.records import FileContents


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


class Shared(nn.Module):
    """Modules under two names, called again and again, weights that are tied, a buffer and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Inner()
        self.b = self.a
        self.items = nn.ModuleList([Inner(), Inner()])
        self.act = nn.ReLU()
        self.register_buffer("scale", torch.arange(8.0))
        self.register_buffer("passing", torch.ones(8), persistent=False)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.items[0].fc.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.a(x))
        x = self.act(self.b(x))
        for item in self.items:
            x = self.act(item(x))
        return self.tied(x) * self.scale + self.passing + torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8])


class Branches(nn.Module):
    """What runs depends on what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.left(x), lambda x: self.right(x) + 1, (x,))


class Sized(Branches):
    """A size that is not fixed is asked for, which no module does in what torch exports."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x.shape[0]


class Repeats(nn.Module):
    """How often it runs depends on what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):
            x = self.step(x)
        return x + 1 if bool(x.sum() > 0) else x - 1


class Lists(nn.Module):
    """Attributes that are lists, which TorchScript keeps with their types."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.rates, self.flags = [2, 4], [0.5, 0.25], [True, False]
        self.parts = [torch.ones(2), torch.zeros(3)]
        self.names = {"a": 1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.rates[0] + self.sizes[0] + self.parts[0] + int(self.flags[1]) + self.names["a"]


def vision_transformer() -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64
    )


IMAGES = (2, 3, 32, 32)
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (torchvision.models.resnet18, IMAGES),
    "mobilenet_v3_small": (torchvision.models.mobilenet_v3_small, IMAGES),
    "vit": (vision_transformer, IMAGES),
    "shared": (Shared, (2, 8)),
    "branches": (Branches, (2, 8)),
}


def class_name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def dtype_word(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def that_run(net: nn.Module, shape: tuple[int, ...]) -> set[str]:
    """The paths of the modules whose `forward` is called, all of those that a shared one has."""
    run: set[nn.Module] = set()
    for module in net.modules():
        module.register_forward_hook(lambda module, *_: run.add(module))
    net(torch.zeros(shape))
    return {path for path, module in net.named_modules(remove_duplicate=False) if module in run}


def check_edges(contents: FileContents) -> None:
    """Every input of an operator is one of the graph, a tensor, or something that was computed before; names differ."""
    assert contents.graph is not None
    known = {*contents.graph.inputs, *(tensor.name for tensor in contents.tensors)}
    assert len(known) == len(contents.graph.inputs) + len(contents.tensors)
    for operator in contents.graph.operators:
        assert known.issuperset(operator.inputs), operator
        assert known.isdisjoint(operator.outputs), operator
        known.update(operator.outputs)
    assert known.issuperset(contents.graph.outputs)
    assert known.issuperset(contents.graph.values)
    names = [operator.name for operator in contents.graph.operators]
    assert len(set(names)) == len(names)


def check_tensors(contents: FileContents, state: dict[str, torch.Tensor], file: Path) -> None:
    """The tensors are those of a state dict, and where one has an offset its bytes are there."""
    content = file.read_bytes()
    for record in contents.tensors:
        tensor = state[record.name]
        assert record.shape == tuple(tensor.shape)
        assert record.dtype == dtype_word(tensor)
        assert record.nbytes == tensor.nbytes
        if record.offset is not None and not record.file:
            stored = content[record.offset : record.offset + record.nbytes]
            assert stored == tensor.detach().contiguous().numpy().tobytes(), record


def changed(content: bytes, header: int, count: int, seed: int) -> Iterator[bytes]:
    """A file cut off at every fiftieth, and files of which bytes were changed, most of them among the first."""
    draws = random.Random(seed)
    for part in range(50):
        yield content[: len(content) * part // 50]
    for _ in range(count):
        forged = bytearray(content)
        for _ in range(draws.randrange(1, 5)):
            at = draws.randrange(header) if draws.random() < 0.9 else draws.randrange(len(content))
            forged[at] = draws.choice(
                [0, 1, 0x7F, 0x80, 0xFF, draws.randrange(256), forged[at] ^ 1 << draws.randrange(8)]
            )
        yield bytes(forged)


def outcomes(path: Path, contents: Iterator[bytes], read: Callable[[Path], object]) -> set[str]:
    """Whether these files were read or refused; anything but `ModelFileError` is raised."""
    found: set[str] = set()
    for content in contents:
        path.write_bytes(content)
        try:
            read(path)
            found.add("read")
        except ModelFileError:
            found.add("refused")
    return found
