"""Recurrent layers of torch are one operator each, with the axes and the cost of the steps that they take."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import modulekg_widgets as mk

FUNCTIONS = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn_tanh"}
CELLS = pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
OPTIONS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"num_layers": 2},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]


def _step_by_step(kind: type[nn.RNNBase]) -> type[nn.RNNBase]:
    """The same layer with a forward of its own, which a trace takes apart."""

    class Stepwise(kind):  # type: ignore[valid-type, misc]
        def forward(self, x: Tensor, hx: Any = None) -> Any:
            samples = x.shape[0] if self.batch_first else x.shape[1]
            count = self.num_layers * (2 if self.bidirectional else 1)
            if hx is None:
                hx = torch.zeros(count, samples, self.proj_size or self.hidden_size)
                hx = (hx, torch.zeros(count, samples, self.hidden_size)) if kind is nn.LSTM else hx
            options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)
            out, *states = getattr(torch._VF, FUNCTIONS[kind])(x, hx, self._flat_weights, *options)
            return out, tuple(states) if len(states) > 1 else states[0]

    return Stepwise


class _Tagger(nn.Module):
    """A layer, and a head on all of its outputs, on its last states, or on both."""

    def __init__(self, layer: type[nn.RNNBase], reads: str = "out", **options: Any) -> None:
        super().__init__()
        self.pre = nn.Linear(4, 6)
        self.rnn = layer(6, 5, **options)
        ends = self.rnn.proj_size or 5
        self.head = nn.Linear(ends * (2 if self.rnn.bidirectional and reads == "out" else 1), 3)
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        out, last = self.rnn(self.pre(x))
        last = last[0] if isinstance(last, tuple) else last
        return self.head(out if self.reads == "out" else last)


def _told(graph: Any) -> Any:
    return [
        (axis.name, axis.size, axis.frozen is None, sorted((member.name, member.dim) for member in axis.members))
        for axis in graph.axes
        if axis.frozen is None or axis.name.startswith("rnn")
    ]


def _state_members(told: Any) -> Any:
    """Of each axis what lies on weights: what is between the operators differs."""
    return [
        (name, size, free, [each for each in members if "." in each[0] and ":" not in each[0]])
        for name, size, free, members in told
    ]


@CELLS
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("reads", ["out", "last"])
def test_axes_and_costs_are_those_of_the_steps(kind: type[nn.RNNBase], options: dict[str, Any], reads: str) -> None:
    x = torch.randn(3, 7, 4)
    whole = mk.trace(_Tagger(kind, reads, **options).eval(), x)
    steps = mk.trace(_Tagger(_step_by_step(kind), reads, **options).eval(), x)
    layers = options.get("num_layers", 1)
    assert sum(op.name == f"aten::{FUNCTIONS[kind]}" for op in whole.operators) == layers
    assert len(steps.operators) > len(whole.operators) + 20
    assert _state_members(_told(whole)) == _state_members(_told(steps))
    counted = [(flops, flops.macs, flops.matmul) for flops in (whole.flops(), steps.flops())]
    assert counted[0] == counted[1]
    mine, theirs = ([(node.shape, node.stride) for node in graph.outputs] for graph in (whole, steps))
    assert mine == theirs


@pytest.mark.parametrize("reads", ["out", "last"])
def test_a_projection(reads: str) -> None:
    options = {"num_layers": 2, "bidirectional": True, "proj_size": 2}
    x = torch.randn(3, 7, 4)
    whole = mk.trace(_Tagger(nn.LSTM, reads, **options).eval(), x)
    steps = mk.trace(_Tagger(_step_by_step(nn.LSTM), reads, **options).eval(), x)
    assert _state_members(_told(whole)) == _state_members(_told(steps))
    assert (whole.flops(), whole.flops().macs) == (steps.flops(), steps.flops().macs)


@CELLS
@pytest.mark.parametrize("training", [False, True])
def test_what_is_cut_is_proved(kind: type[nn.RNNBase], training: bool) -> None:
    """Each layer is an operator, with dropout between two of them."""
    model = _Tagger(kind, num_layers=2, dropout=0.3 if training else 0.0, bidirectional=True)
    x = torch.randn(3, 7, 4)
    graph = mk.trace(model, x, training=training)
    count = sum(op.name == f"aten::{FUNCTIONS[kind]}" for op in graph.operators)
    assert count == 2
    found = graph.axes.verify()
    assert {proof.status for proof in found.proofs} == {"proved"}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    receipt = mk.plan(graph, ratio=0.5).cut(model)
    assert model.rnn.hidden_size == 3
    assert model(x).shape == (3, 7, 3)
    receipt.undo()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@CELLS
@pytest.mark.slow
def test_a_trace_with_data_gives_what_the_model_gives(kind: type[nn.RNNBase]) -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = kind(4, 5, 2, bidirectional=True, batch_first=True), nn.Linear(10, 3)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, _ = pad_packed_sequence(self.rnn(rows)[0], batch_first=True)
            return self.head(out)

    model, x, lengths = Packed().eval(), torch.randn(3, 6, 4), torch.tensor([4, 6, 2])
    graph = mk.trace(model, (x, lengths))
    assert graph.traced_on == "real"
    assert [op.overload for op in graph.operators if "aten::" + FUNCTIONS[kind] == op.name] == [
        getattr(torch.ops.aten, FUNCTIONS[kind]).data
    ] * 2
    names = ["rnn.layer0.hidden", "rnn.layer0.reverse.hidden", "rnn.layer1.hidden", "rnn.layer1.reverse.hidden"]
    assert [axis.name for axis in graph.axes.free] == names
    assert torch.allclose(graph.forward(x, lengths), model(x, lengths), atol=1e-6)
    assert {proof.status for proof in graph.axes.verify().proofs} == {"proved"}
    steps = 12 * (2 * 5)  # of both directions, each hidden index
    products = sum(p.numel() for name, p in model.rnn.named_parameters() if p.dim() == 2) * 12
    in_a_step = {nn.LSTM: 13, nn.GRU: 10, nn.RNN: 2}[kind]
    layers = [op for op in graph.operators if op.name == f"aten::{FUNCTIONS[kind]}"]
    assert sum(layer.flops() or 0 for layer in layers) == 2 * products + in_a_step * steps * 2
    receipt = mk.plan(graph, ratio=0.5).cut(model)
    assert model(x, lengths).shape == (3, 6, 3)
    receipt.undo()


def test_a_loop_over_a_cell_stays_a_loop() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = c = torch.zeros(x.shape[1], self.cell.hidden_size)
            for frame in x:
                h, c = self.cell(frame, (h, c))
            return self.head(h)

    graph = mk.trace(Loop().eval(), torch.randn(6, 2, 4))
    assert len(graph.modules["cell"].calls) == 6
    assert not any(op.name == "aten::lstm" for op in graph.operators)
    assert len(graph.operators) > 6 * 5


def test_sizes_that_do_not_fit_stop_the_trace() -> None:
    layer = nn.GRU(4, 5)
    layer.weight_hh_l0 = nn.Parameter(torch.randn(15, 6))
    with pytest.raises(mk.ModuleKGError, match="shapes cannot be multiplied"):
        mk.trace(layer, torch.randn(3, 2, 4))


def test_frames_cost_no_time() -> None:
    """Ten times the frames, and the trace takes as long: it does not run them."""
    model = nn.LSTM(40, 64, 3, batch_first=True)
    mk.trace(model, torch.rand(1, 4, 40))

    def seconds(frames: int) -> float:
        x = torch.rand(1, frames, 40)
        start = time.process_time()
        graph = mk.trace(model, x)
        assert len(graph.operators) < 20
        return time.process_time() - start

    assert min(seconds(1600) for _ in range(3)) < 0.1 + 3 * min(seconds(160) for _ in range(3))


def test_the_first_state_of_a_model_is_one_axis_for_all_cells() -> None:
    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.zeros(2, 1, 5))
            self.rnn, self.head = nn.GRU(4, 5, 2), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x, self.first.expand(-1, x.shape[1], -1))[0])

    graph = mk.trace(Given().eval(), torch.randn(3, 7, 4))
    assert [axis.name for axis in graph.axes.free] == ["rnn.hidden"]
    assert {"first", "rnn.weight_hh_l0", "rnn.weight_hh_l1"} <= {m.name for m in graph.axes["rnn.hidden"].members}


@pytest.mark.slow
def test_sizes_by_a_formula_are_those_of_the_cut() -> None:
    """Counters of the page add up cells, of which one operator has more dimensions than others have."""
    model = _Tagger(nn.LSTM, num_layers=3, bidirectional=True)
    graph = mk.trace(model, torch.randn(3, 7, 4))
    plan = mk.plan(graph, ratio=0.4)
    receipt = plan.cut(model)
    again = mk.trace(model, torch.randn(3, 7, 4)).flops()
    receipt.undo()
    assert plan.flops[1] == again
    plan = mk.plan(graph, target={"matmul_flops": 0.5})
    receipt = plan.cut(model)
    after = mk.trace(model, torch.randn(3, 7, 4)).flops().matmul
    receipt.undo()
    assert plan.matmul_flops == (graph.flops().matmul, after)
    assert after <= 0.51 * graph.flops().matmul
