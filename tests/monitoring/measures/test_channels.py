"""Where a module has its channels, and tensors as rows of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

from modulekg_widgets.engine.adapters import channel_dim
from modulekg_widgets.engine.monitoring.measures.moments import flat, planes, rows

# always with a batch, whatever the other dimensions
BATCHED = re.compile(r"BatchNorm|Upsampling|CrossMapLRN")
# a lazy layer is of another class once it has run
NAMED = sorted(name for name in vars(nn) if re.search(r"^(?!Lazy|NLLLoss).*[123]d$", name))


@pytest.mark.parametrize("name", NAMED)
def test_layers_over_space_have_channels_before_it(name: str) -> None:
    cls, spatial = getattr(nn, name), int(name[-2])
    assert channel_dim(cls, spatial + 2) == 1
    assert channel_dim(cls, spatial + 1) == (1 if BATCHED.search(name) else 0)


class Own(nn.Conv1d):
    """A user's subclass."""


class Container(nn.Module):
    pass


@pytest.mark.parametrize(
    ("module", "ndim", "expected"),
    [
        (nn.Linear(2, 2), 1, 0),
        (nn.Linear(2, 2), 2, 1),
        (nn.Linear(2, 2), 4, 3),
        (nn.LayerNorm(2), 4, 3),
        (nn.RMSNorm(2), 5, 4),
        (nn.Embedding(2, 2), 3, 2),
        (nn.MultiheadAttention(2, 1), 3, 2),
        (nn.LSTM(2, 2), 3, 2),
        (nn.GRUCell(2, 2), 2, 1),
        (nn.TransformerEncoderLayer(2, 1), 3, 2),
        (nn.Conv1d(2, 2, 1), 3, 1),
        (nn.Conv1d(2, 2, 1), 2, 0),
        (Own(2, 2, 1), 2, 0),
        (nn.BatchNorm1d(2), 2, 1),
        (nn.BatchNorm1d(2), 3, 1),
        (nn.GroupNorm(1, 2), 2, 1),
        (nn.GroupNorm(1, 2), 5, 1),
        (nn.SyncBatchNorm(2), 4, 1),
        (nn.InstanceNorm1d(2), 2, 0),
        (nn.PixelShuffle(2), 3, 0),
        (nn.PixelShuffle(2), 5, 2),
        (nn.ReLU(), 1, 0),
        (nn.ReLU(), 2, 1),
        (nn.ReLU(), 3, 2),
        (nn.ReLU(), 4, 1),
        (nn.ReLU(), 5, 1),
        (nn.ReLU(), 6, 5),
        (Container(), 4, 1),
        (Container(), 3, 2),
        (nn.Sequential(), 4, 1),
        (nn.Linear(2, 2), 0, 0),
        (nn.Conv2d(2, 2, 1), 0, 0),
        (nn.BatchNorm2d(2), 0, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_channels_by_class(module: nn.Module, ndim: int, expected: int) -> None:
    assert channel_dim(module, ndim) == expected
    assert channel_dim(type(module), ndim) == expected


def images() -> torch.Tensor:
    return torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(1))


LAYOUTS = {
    "contiguous": images,
    "channels_last": lambda: images().to(memory_format=torch.channels_last),
    "transposed": lambda: images().transpose(0, 3),
    "sliced": lambda: images()[:, 1:3, ::2],
    "expanded": lambda: images()[:, :, :1, :1].expand(3, 4, 5, 6),
    "empty": lambda: images()[:, :, :0],
    "no_channel": lambda: images()[:, :0],
}


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_positions_and_columns_channels(layout: str, dim: int) -> None:
    tensor = LAYOUTS[layout]()
    found = rows(tensor, dim)
    channels = tensor.shape[dim]
    expected = np.moveaxis(tensor.numpy(), dim, -1)
    np.testing.assert_array_equal(found.numpy(), expected.reshape(tensor.numel() // max(channels, 1), channels))


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_planes_keep_each_channel_together(layout: str, dim: int) -> None:
    tensor = LAYOUTS[layout]()
    found = planes(tensor, dim)
    assert found.dim() == 3
    assert found.shape[1] == tensor.shape[dim]
    of_channels = [np.sort(channel.reshape(-1)) for channel in found.numpy().swapaxes(0, 1)]
    expected = [np.sort(channel.reshape(-1)) for channel in np.moveaxis(tensor.numpy(), dim, 0)]
    np.testing.assert_array_equal(of_channels, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vector_has_every_element_once(layout: str) -> None:
    tensor = LAYOUTS[layout]()
    np.testing.assert_array_equal(np.sort(flat(tensor).numpy()), np.sort(tensor.numpy().reshape(-1)))


@pytest.mark.parametrize(
    "tensor", [images(), images().to(memory_format=torch.channels_last), images().permute(3, 1, 0, 2)]
)
def test_what_lies_densely_is_not_copied(tensor: torch.Tensor) -> None:
    assert flat(tensor).data_ptr() == tensor.data_ptr()


def test_channels_last_rows_are_a_view() -> None:
    tensor = images().to(memory_format=torch.channels_last)
    assert rows(tensor, 1).data_ptr() == tensor.data_ptr()


def test_a_number_is_one_row_of_one_channel() -> None:
    assert rows(torch.tensor(3.0), 0).tolist() == [[3.0]]
    assert planes(torch.tensor(3.0), 0).tolist() == [[[3.0]]]
