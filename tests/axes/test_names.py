"""Names and roles of axes: from where they were born, readable, no two alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.inference.names import short_name


def axes_of(model: nn.Module, *args: Tensor) -> mk.DataflowGraph:
    return mk.trace(model.eval(), args)


def names(graph: mk.DataflowGraph) -> list[str]:
    return [axis.name for axis in graph.axes]


def torchvision_graph(name: str, size: int = 64) -> mk.DataflowGraph:
    from torchvision import models

    with torch.device("meta"):
        return mk.trace(models.get_model(name).eval(), torch.zeros(1, 3, size, size))


def test_axes_of_a_resnet_are_named_after_the_layer_that_makes_them() -> None:
    free = [axis.name for axis in torchvision_graph("resnet18").axes.free]
    blocks = [(stage, block) for stage in range(1, 5) for block in range(2)]
    made = [f"layer{stage}.{block}.conv1.out" for stage, block in blocks]
    streams = ["conv1.out", *(f"layer{stage}.0.conv2.out" for stage in range(2, 5))]
    assert sorted(free) == sorted([*made, *streams])


@pytest.mark.parametrize(
    "name", ["resnet18", "densenet121", "shufflenet_v2_x0_5", "mnasnet0_5", "convnext_tiny", "mobilenet_v3_small"]
)
def test_no_two_axes_have_one_name_and_each_is_found_by_its_own(name: str) -> None:
    graph = torchvision_graph(name)
    found = names(graph)
    assert len(set(found)) == len(found)
    assert all(graph.axes[axis.name] is axis for axis in graph.axes)


def test_a_name_that_is_taken_gets_a_number_that_is_not() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.ParameterList([torch.zeros(4), torch.zeros(5)])
            self.register_parameter("scale", nn.Parameter(torch.zeros(3)))
            self.scale_2 = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return x * self.scale, y * self.scale_2, self.w[0] + 0, self.w[1] + 0

    found = names(axes_of(Alike(), torch.zeros(1, 3), torch.zeros(1, 2)))
    assert sorted(found) == ["scale", "scale_2", "w.0", "w.1"]


def test_the_sides_of_a_layer_and_the_positions_of_its_kernel() -> None:
    graph = axes_of(
        nn.Sequential(nn.Conv2d(3, 8, (3, 5)), nn.ConvTranspose2d(8, 6, 2), nn.Flatten(2), nn.Conv1d(6, 4, 7)),
        torch.zeros(1, 3, 9, 9),
    )
    assert graph.axes.expression("0.weight") == "out=8 in=3 kernel_h=3 kernel_w=5"
    assert graph.axes.expression("1.weight") == "0.out=8 1.out=6 kernel_h=2 kernel_w=2"
    assert graph.axes.expression("3.weight") == "3.out=4 1.out=6 kernel=7"
    assert {"0.out", "1.out", "3.out", "0.in", "3.kernel"} <= set(names(graph))


def test_an_embedding_has_a_vocabulary_and_a_dim() -> None:
    graph = axes_of(nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 4)), torch.zeros(1, 3, dtype=torch.long))
    assert names(graph) == ["0.vocabulary", "0.dim", "1.out"]
    assert graph.axes["0.vocabulary"].role == "vocabulary"
    assert graph.axes.expression("1.weight") == "out=4 dim=6"


def test_parts_of_a_dimension_are_numbered() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fused, self.a, self.b = nn.Linear(5, 12), nn.Linear(4, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.fused(x).split([4, 8], -1)
            return self.a(left) + self.b(right)

    graph = axes_of(Parts(), torch.zeros(2, 5))
    assert graph.axes.expression("fused.weight") == "(out.0=4 + out.1=8) in=5"
    assert graph.axes.expression("a.weight") == "out=3 out.0=4"
    assert {"fused.out.0", "fused.out.1"} <= set(names(graph))


def test_groups_of_a_grouped_convolution_and_of_a_norm() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 12, 1, groups=4))
    graph = axes_of(model, torch.zeros(1, 3, 4, 4))
    assert graph.axes.expression("0.weight") == "(groups=2 out.1=4) in=3 1 1"
    assert graph.axes.expression("2.weight") == "(2.groups=4 2.out.1=2) (0.groups=2 0.out.1=4) 1 1"
    assert graph.axes["0.groups"].role == graph.axes["2.groups"].role == "groups"


class Recurrent(nn.Module):
    def __init__(self, cell: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = cell(6, 5, **options)
        directions = 2 if self.rnn.bidirectional else 1
        self.head = nn.Linear(directions * (self.rnn.proj_size or 5), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][-1])


CELLS = pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])


def states(graph: mk.DataflowGraph) -> list[str]:
    return [axis.name for axis in graph.axes if axis.role in ("hidden", "projection")]


@CELLS
def test_the_states_of_a_recurrent_layer_say_layer_and_direction(cell: type[nn.RNNBase], gates: int) -> None:
    graph = axes_of(Recurrent(cell, num_layers=2, bidirectional=True), torch.zeros(4, 2, 6))
    places = ["layer0", "layer0.reverse", "layer1", "layer1.reverse"]
    assert states(graph) == [f"rnn.{place}.hidden" for place in places]
    rows = " + ".join(["hidden=5"] * gates)
    assert graph.axes.expression("rnn.weight_ih_l0") == (f"({rows}) in=6" if gates > 1 else "hidden=5 in=6")
    for place in places:
        suffix = place.replace("layer", "l").replace(".", "_")
        axis = graph.axes[f"rnn.{place}.hidden"]
        assert graph.axes[f"rnn.weight_hh_{suffix}", 1] is axis
        assert {member.name for member in axis.members} > {f"rnn.weight_hh_{suffix}", f"rnn.bias_ih_{suffix}"}


@CELLS
def test_one_layer_in_one_direction_is_layer_0(cell: Any, gates: int) -> None:
    assert states(axes_of(Recurrent(cell), torch.zeros(4, 2, 6))) == ["rnn.layer0.hidden"]
    assert states(axes_of(cell(6, 5), torch.zeros(4, 2, 6))) == ["layer0.hidden"]


def test_a_projection_is_an_axis_beside_the_hidden_one() -> None:
    graph = axes_of(Recurrent(nn.LSTM, bidirectional=True, proj_size=4), torch.zeros(4, 2, 6))
    assert states(graph) == [
        "rnn.layer0.hidden", "rnn.layer0.projection", "rnn.layer0.reverse.hidden", "rnn.layer0.reverse.projection",
    ]  # fmt: skip
    assert graph.axes["rnn.weight_hr_l0_reverse", 0] is graph.axes["rnn.layer0.reverse.projection"]
    assert graph.axes.expression("rnn.weight_hr_l0") == "projection=4 hidden=5"


def test_a_state_that_cells_share_is_named_after_what_they_have_in_common() -> None:
    class Summed(nn.Module):
        def __init__(self, from_input: bool) -> None:
            super().__init__()
            self.first = nn.Linear(6, 5) if from_input else None
            self.rnn, self.head = nn.GRU(6, 5, 2, bidirectional=True), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            given = None if self.first is None else torch.stack([self.first(x[0])] * 4)
            out, _ = self.rnn(x, given)
            return self.head(out[..., :5] + out[..., 5:])

    # the sum of both directions
    graph = axes_of(Summed(from_input=False), torch.zeros(4, 2, 6))
    assert states(graph) == ["rnn.layer0.hidden", "rnn.layer0.reverse.hidden", "rnn.layer1.hidden"]
    # one first state for all layers and directions
    assert states(axes_of(Summed(from_input=True), torch.zeros(4, 2, 6))) == ["rnn.hidden"]


def test_a_cell_that_is_called_by_hand_and_a_layer_that_never_runs() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.idle, self.head = nn.LSTMCell(6, 5), nn.LSTM(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            state = (x.new_zeros(x.shape[1], 5), x.new_zeros(x.shape[1], 5))
            for step in x:
                state = self.cell(step, state)
            return self.head(state[0])

    graph = axes_of(Steps(), torch.zeros(4, 2, 6))
    assert states(graph) == ["cell.hidden"]
    assert "idle.weight_hh_l0.dim0" in names(graph)


def test_names_of_earlier_versions_are_still_understood() -> None:
    graph = axes_of(Recurrent(nn.LSTM, num_layers=2, bidirectional=True), torch.zeros(4, 2, 6))
    now = states(graph)
    before = ["rnn.hidden", "rnn.hidden_2", "rnn.hidden_3", "rnn.hidden_4"]
    assert [graph.axes[name].name for name in before] == now
    assert all(name in graph.axes for name in before)
    assert [axis.name for axis in graph.axes if axis.name in before] == []
    plan = mk.plan(graph, per_axis={name: [0, 3] for name in before})
    assert [(cut.name, cut.dropped) for cut in plan.axes] == [(name, (0, 3)) for name in now]
    assert mk.plan(graph, ratio=0.4, only=before).axes == mk.plan(graph, ratio=0.4, only=now).axes
    with pytest.raises(mk.ModuleKGError, match=r"rnn\.layer0\.hidden"):
        graph.axes["rnn.layer_0.hidden"]


def test_positions_of_a_table_are_numbered_by_dimension() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Linear(3, 6), nn.Parameter(torch.zeros(1, 4, 6))

        def forward(self, x: Tensor) -> Tensor:
            return self.embed(x) + self.position

    graph = axes_of(Table(), torch.zeros(2, 4, 3))
    assert graph.axes.expression("position") == "1 dim1=4 out=6"
    assert "position.dim1" in names(graph)


def test_weights_of_a_parametrization_belong_to_their_layer() -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 6)), nn.Linear(6, 2))
    graph = axes_of(model, torch.zeros(1, 3))
    assert {"0.out", "0.in", "1.out"} == set(names(graph))
    assert graph.channel_dependency().sets == (("0",), ("1",))


def test_single_indices_that_are_joined_print_as_their_number() -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cat([self.a(x), self.b(x), x, self.a(x)], -1))

    graph = axes_of(Joined(), torch.zeros(2, 3))
    assert graph.axes.expression("head.weight") == "out=2 (2 + in=3 + 1)"
    tokens = torch.cat([torch.zeros(1, 1, 3), torch.zeros(1, 1, 3)], 1)
    pair = mk.trace(nn.Linear(3, 2).eval(), tokens)
    assert pair.axes.expression("weight") == "out=2 in=3"


@pytest.mark.parametrize(
    ("name", "short"),
    [("conv1.out", "out"), ("conv1.out.0", "out.0"), ("out", "out"), ("heads_2", "heads_2"), ("0.in.12", "in.12")],
)
def test_the_short_name_is_what_stands_in_an_expression(name: str, short: str) -> None:
    assert short_name(name) == short
