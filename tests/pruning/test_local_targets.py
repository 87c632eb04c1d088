"""What a target takes of each axis where the scope is "local": less of those that many weights make or read."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from models.recurrent import SequenceTagger
from modulekg_widgets.engine.pruning.importance.members import weights_along
from modulekg_widgets.engine.pruning.plan.selection.shared_size import shared_size_groups
from modulekg_widgets.engine.pruning.plan.targets.ranking import local_exponents
from sampling import sampled

WIDTH, HIDDEN, DEPTH = 64, 128, 4


class Stream(nn.Module):
    """Blocks that all read and write one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)) for _ in range(DEPTH)
        )
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


@pytest.fixture
def graph() -> mk.DataflowGraph:
    torch.manual_seed(0)
    return mk.trace(Stream(), torch.randn(2, 8))


def left(plan: object) -> dict[str, float]:
    return {axis.name: axis.left / axis.size for axis in plan.axes}  # type: ignore[attr-defined]


class TestLocalTargets:
    def test_a_target_takes_less_of_the_stream(self, graph: mk.DataflowGraph) -> None:
        plan = mk.plan(graph, target={"flops": 0.4})
        stream, *inside = sorted(left(plan).values(), reverse=True)
        assert len(inside) == DEPTH
        weights = weights_along(graph.axes)
        most = max(weights[axis.term] for axis in graph.axes.free)
        assert most == 2 * DEPTH + 2
        for share in inside:
            # what stays is whole indices, and steps of one index meet the target
            assert stream == pytest.approx(share ** (2 / most) ** 0.5, abs=0.03)
        before, after = plan.flops
        assert after / before == pytest.approx(0.4, abs=0.01)

    def test_a_ratio_takes_the_same_of_every_axis(self, graph: mk.DataflowGraph) -> None:
        assert set(left(mk.plan(graph, ratio=0.5)).values()) == {0.5}

    def test_a_target_takes_the_same_where_two_weights_run_along_every_axis(self) -> None:
        model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        graph = mk.trace(model, torch.randn(2, 8))
        assert local_exponents(graph.axes, graph.axes.free).tolist() == [1.0, 1.0]
        first, second = left(mk.plan(graph, target={"flops": 0.5})).values()
        assert first == pytest.approx(second, abs=1 / 64)

    @pytest.mark.parametrize("share", [0.9, 0.1, 0.02])
    def test_targets_far_off_are_met_as_well(self, graph: mk.DataflowGraph, share: float) -> None:
        before, after = mk.plan(graph, target={"flops": share}).flops
        assert after / before == pytest.approx(share, abs=0.01)

    def test_every_axis_is_ranked_alone(self, graph: mk.DataflowGraph) -> None:
        found = mk.plan(graph, target={"params": 0.5})
        again = mk.plan(graph, per_axis={axis.name: 1 - axis.left / axis.size for axis in found.axes})
        assert [axis.dropped for axis in found.axes] == [axis.dropped for axis in again.axes]

    def test_l2_is_the_default(self, graph: mk.DataflowGraph) -> None:
        assert inspect.signature(mk.plan).parameters["importance"].default == "l2"
        found, named = mk.plan(graph, ratio=0.5), mk.plan(graph, ratio=0.5, importance="l2")
        assert [axis.dropped for axis in found.axes] == [axis.dropped for axis in named.axes]


def tagger(kind: type[nn.RNNBase]) -> SequenceTagger:
    """Two layers in two directions, which have one number for all of their sizes, and of which one is read by more."""
    rnn = kind(24, 28, num_layers=2, bidirectional=True, batch_first=True)  # type: ignore[call-arg]
    return SequenceTagger(nn.Embedding(20, 24), rnn, 5)


@pytest.mark.parametrize(("kind", "share"), [(nn.LSTM, 0.7), (nn.GRU, 0.4)])
def test_sizes_that_are_one_number_meet_where_their_paces_differ(kind: type[nn.RNNBase], share: float) -> None:
    torch.manual_seed(0)
    model = tagger(kind).eval()
    graph = mk.trace(model, torch.randint(0, 20, (1, 4)))
    hidden = [axis for axis in graph.axes.free if axis.size == 28]
    assert len(hidden) == 4
    assert len({weights_along(graph.axes)[axis.term] for axis in hidden}) > 1
    assert len(list(shared_size_groups(graph.axes.free))) == 1
    plan = mk.plan(graph, target={"flops": share})
    before, after = plan.flops
    assert after / before == pytest.approx(share, abs=0.01)
    sizes = {axis.left for axis in plan.axes if axis.size == 28}
    assert len(sizes) == 1
    plan.cut(model)
    assert model.rnn.hidden_size in sizes
    assert model(torch.randint(0, 20, (2, 6))).shape == (2, 6, 5)


class Own(nn.Module):
    """A stream of its own parameters, and no number that holds a size."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(32, 8))
        self.up = nn.Parameter(torch.randn(inner, 32))
        self.down = nn.Parameter(torch.randn(32, inner))
        self.last = nn.Parameter(torch.randn(4, 32))

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.first.T
        x = x + (x @ self.up.T).relu() @ self.down.T
        return x @ self.last.T


class TestOneNumber:
    @pytest.mark.parametrize("inner", [32, 48])
    def test_equal_sizes_without_a_number_are_no_one_size(self, inner: int) -> None:
        graph = mk.trace(Own(inner), torch.randn(2, 8))
        assert list(shared_size_groups(graph.axes.free)) == []

    def test_what_a_layer_reads_is_none_of_its_sizes(self) -> None:
        model = tagger(nn.GRU)
        model.embed, model.rnn = nn.Embedding(20, 28), nn.GRU(28, 28, 2, bidirectional=True, batch_first=True)
        free = mk.trace(model.eval(), torch.randint(0, 20, (1, 4))).axes.free
        assert [axis.size for axis in free] == [28] * 5
        (group,) = shared_size_groups(free)
        assert {free[at].name.partition(".")[0] for at in group} == {"rnn"}

    def test_layers_in_a_row_are_apart(self) -> None:
        class Row(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a = nn.LSTM(8, 24, bidirectional=True)
                self.b = nn.LSTM(48, 24, bidirectional=True)
                self.head = nn.Linear(48, 2)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.b(self.a(x)[0])[0])

        free = mk.trace(Row().eval(), torch.randn(3, 1, 8)).axes.free
        groups = [{free[at].name[0] for at in group} for group in shared_size_groups(free)]
        assert sorted(map(sorted, groups)) == [["a"], ["b"]]

    @pytest.mark.parametrize("scope", ["local", "global", "isomorphic"])
    @pytest.mark.parametrize("share", sampled([0.8, 0.6, 0.4], [0.6]))
    def test_sizes_that_are_one_number_meet_a_target_together(self, scope: str, share: float) -> None:
        torch.manual_seed(0)
        rnn = nn.LSTM(20, 32, 2, bidirectional=True, proj_size=12, batch_first=True)
        graph = mk.trace(SequenceTagger(None, rnn, 5).eval(), torch.randn(2, 7, 20))
        before, after = mk.plan(graph, target={"flops": share}, scope=scope).flops
        assert after / before == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("widths", "target"),
    [
        ((64, 12, 32, 6, 12, 2), {"flops": 0.75}),
        ((64, 16, 12, 6, 8, 20, 10, 2), {"params": 0.6}),
        ((3, 12, 100, 16, 6, 4), {"flops": 0.9}),
    ],
)
def test_what_meets_a_target_strays_little_from_what_the_ratio_leaves(
    widths: tuple[int, ...], target: dict[str, float]
) -> None:
    torch.manual_seed(0)
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    graph = mk.trace(nn.Sequential(*layers[:-1]), torch.randn(1, widths[0]))
    plan = mk.plan(graph, target=target)
    ((unit, share),) = target.items()
    before, after = getattr(plan, unit)
    assert after / before == pytest.approx(share, abs=0.01)
    shares = left(plan).values()
    every = [*shares, *[1.0] * (len(graph.axes.free) - len(shares))]
    assert min(every) > share - 0.1
