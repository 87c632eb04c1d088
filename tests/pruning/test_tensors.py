"""One tensor, cut or zeroed in place and made whole again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.cut.tensor_cuts import cut_tensor, uncut_tensor, unzero_tensor, zero_tensor
from pruning.edits_of_cut import bytes_of


def parameter() -> nn.Parameter:
    made = nn.Parameter(torch.arange(1.0, 13.0).reshape(4, 3))
    made.grad = torch.ones(4, 3)
    return made


def test_a_parameter_is_cut_and_whole_again_with_what_was_trained() -> None:
    tensor = parameter()
    graph = tensor.sum()  # keeps what collects the gradients of the old shape
    before = tensor.detach().clone()
    receipt = cut_tensor(tensor, [0, -1])
    assert repr(receipt) == "<TensorReceipt: cut 2 of 4 in dimension 0>"
    assert isinstance(tensor, nn.Parameter)
    assert torch.equal(tensor, before[1:3])
    assert tensor.grad.shape == (2, 3)  # type: ignore[union-attr]
    tensor.sum().backward()
    tensor.data += 1
    uncut_tensor(tensor, receipt)
    assert bytes_of(tensor[[0, 3]]) == bytes_of(before[[0, 3]])
    assert torch.equal(tensor[1:3], before[1:3] + 1)
    assert tensor.grad.tolist() == [[0.0] * 3, [2.0] * 3, [2.0] * 3, [0.0] * 3]  # type: ignore[union-attr]
    assert repr(receipt) == "<TensorReceipt: cut 2 of 4 in dimension 0, spent>"
    assert graph.requires_grad


def test_zeros_go_back_where_they_were_written() -> None:
    tensor = parameter()
    before = tensor.detach().clone()
    receipt = zero_tensor(tensor, np.array([True, False, True]), dim=-1)
    assert tensor[:, [0, 2]].tolist() == [[0.0, 0.0]] * 4
    assert torch.equal(tensor[:, 1], before[:, 1])
    tensor.data += 5
    unzero_tensor(tensor, receipt)
    assert torch.equal(tensor[:, [0, 2]], before[:, [0, 2]])
    assert torch.equal(tensor[:, 1], before[:, 1] + 5)
    assert repr(receipt) == "<TensorReceipt: zeroed 2 of 3 in dimension 1, spent>"


def test_plain_tensors_and_other_tensors_of_the_shape() -> None:
    tensor = torch.arange(6).reshape(2, 3).t()
    strides = tensor.stride()
    receipt = cut_tensor(tensor, [1], 1)
    assert tensor.tolist() == [[0], [1], [2]]
    other = tensor.clone() + 10
    uncut_tensor(other, receipt)
    assert other.tolist() == [[10, 3], [11, 4], [12, 5]]
    assert other.stride() == strides


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tensor: cut_tensor(tensor, [4]), "dimension 0 of the tensor has 4 positions: there is no 4"),
        (lambda tensor: cut_tensor(tensor, []), "no position"),
        (lambda tensor: cut_tensor(tensor, range(4)), "keep at least one"),
        (lambda tensor: zero_tensor(tensor, [0], 2), "there is no dimension 2"),
        (lambda tensor: cut_tensor(tensor * 2, [0]), "result of a computation"),
        (lambda tensor: cut_tensor(tensor.tolist(), [0]), "got a list"),
        (lambda tensor: cut_tensor(tensor.detach().to_sparse(), [0]), "only dense tensors"),
        (lambda tensor: cut_tensor(torch.tensor(1.0), [0]), "there is no dimension 0"),
    ],
)
def test_what_cannot_be_cut_is_refused(call: Callable[[Any], Any], message: str) -> None:
    tensor = parameter()
    before = tensor.tolist()
    with pytest.raises(mk.ModuleKGError, match=message):
        call(tensor)
    assert tensor.tolist() == before


def test_receipts_serve_once_and_for_their_own() -> None:
    tensor = parameter()
    zeroed = zero_tensor(tensor, [0])
    with pytest.raises(mk.ModuleKGError, match="undone by unzero_tensor"):
        uncut_tensor(tensor, zeroed)
    unzero_tensor(tensor, zeroed)
    with pytest.raises(mk.ModuleKGError, match="works once"):
        unzero_tensor(tensor, zeroed)
    cut = cut_tensor(tensor, [0])
    with pytest.raises(mk.ModuleKGError, match=r"for a tensor of shape \[3, 3\]: got \[4, 3\]"):
        uncut_tensor(torch.zeros(4, 3), cut)
    with pytest.raises(mk.ModuleKGError, match="undone by uncut_tensor"):
        unzero_tensor(tensor, cut)
    uncut_tensor(tensor, cut)
    with pytest.raises(mk.ModuleKGError, match="works once"):
        uncut_tensor(tensor, cut)
