"""Quantisation-aware training: scales, zero points and observed ranges follow the channels, and observers go on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization as tq
from torch import nn

import modulekg_widgets as mk
from pruning.battery import differs, state_of

pytestmark = pytest.mark.filterwarnings("ignore")  # torch announces torchao
X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class QuantStubConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.back = tq.QuantStub(), tq.DeQuantStub()
        self.first, self.norm, self.second = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 8, 3)
        self.relu, self.head = nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.first(self.into(x))))
        return self.back(self.head(self.second(x).mean((2, 3))))


def without_fused_observers() -> Any:
    return tq.QConfig(activation=tq.default_fake_quant, weight=tq.default_per_channel_weight_fake_quant)


CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "qnnpack": lambda: tq.get_default_qat_qconfig("qnnpack"),
    "fbgemm": lambda: tq.get_default_qat_qconfig("fbgemm"),
    "x86": lambda: tq.get_default_qat_qconfig("x86"),
    "fbgemm, first version": lambda: tq.get_default_qat_qconfig("fbgemm", 0),
    "in single steps": without_fused_observers,
}


def prepared(configuration: str, fused: bool, observing: bool, training: bool) -> nn.Module:
    torch.manual_seed(0)
    model = QuantStubConvNet().train()
    if fused:
        model = tq.fuse_modules_qat(model, [["first", "norm", "relu"]])
    model.qconfig = CONFIGURATIONS[configuration]()
    tq.prepare_qat(model, inplace=True)
    for _ in range(3):
        model(X)
    if not observing:
        model.apply(tq.disable_observer)
    return model.train(training)


@pytest.mark.parametrize(
    ("fused", "observing", "training"),
    [(False, True, True), (False, False, False), (True, False, True), (True, True, False)],
)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_per_channel_quantisers_are_cut_along(configuration: str, fused: bool, observing: bool, training: bool) -> None:
    model = prepared(configuration, fused, observing, training)
    before = state_of(model)
    graph = mk.trace(model, X)
    report = graph.axes.verify()
    assert report.ok, str(report)
    assert not differs(before, state_of(model))  # observers have seen nothing of it
    plan = mk.plan(graph, ratio=0.5)
    assert {axis.size: axis.left for axis in plan.axes} == {16: 8, 8: 4}
    receipt = plan.mask(model)
    masked = copy.deepcopy(model)(X)
    receipt.undo()
    receipt = plan.cut(model)
    output = copy.deepcopy(model)(X)
    assert output.isfinite().all()
    if not (fused and observing):  # torch's fused layer divides by the gains that a mask sets to zero
        assert torch.allclose(output, masked, atol=1e-6)
    model.train()(X).square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.01).step()
    integers = tq.convert(copy.deepcopy(model).eval())
    assert integers(X).shape == output.shape
    model.train(training)
    receipt.undo()
    assert not differs(before, state_of(model))


def test_ranges_and_zero_points_are_those_of_the_channels_that_stay() -> None:
    model = prepared("fbgemm", fused=False, observing=True, training=True)
    quantiser = model.first.weight_fake_quant
    with torch.no_grad():
        quantiser.zero_point.copy_(torch.arange(16))
    before = {name: value.clone() for name, value in quantiser.state_dict().items()}
    plan = mk.plan(mk.trace(model, X), per_axis={"first.weight": [0, 3, 5]})
    plan.cut(model)
    kept = [at for at in range(16) if at not in (0, 3, 5)]
    for name, value in quantiser.state_dict().items():
        whole = before[name]
        assert torch.equal(value, whole[kept] if whole.shape == (16,) else whole), name
    assert quantiser.zero_point.tolist() == kept


def test_integers_that_are_read_otherwise_too_keep_their_axis() -> None:
    class Counted(nn.Module):
        """The zero points are a table of levels as well."""

        def __init__(self) -> None:
            super().__init__()
            self.made, self.read = nn.Linear(6, 8), nn.Linear(8, 3)
            self.register_buffer("scale", torch.full((8,), 0.1))
            self.register_buffer("zero_point", torch.arange(8, dtype=torch.int32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = torch.fake_quantize_per_channel_affine(self.made.weight, self.scale, self.zero_point, 0, -128, 127)
            return self.read(nn.functional.linear(x, weight).index_select(1, self.zero_point))

    graph = mk.trace(Counted(), torch.randn(2, 6))
    assert all(axis.frozen for axis in graph.axes)
