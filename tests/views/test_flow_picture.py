"""The static picture of a traced model: data edges where data flows, beside the cards, and every input and output."""

from __future__ import annotations

import time
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torchvision.models import resnet18, resnet152

import modulekg_widgets as mk
from browser.legibility_models import build
from cases.payloads import PAYLOADS
from modulekg_widgets.engine.views.payload import class_of
from modulekg_widgets.engine.views.pictures.boxes import WIDTH
from modulekg_widgets.engine.views.pictures.flow_column import (
    MAX_EDGES,
    MAX_LANES,
    FlowColumn,
    flow_column,
    tracks_of,
)
from modulekg_widgets.engine.views.pictures.flow_parts import FlowParts
from modulekg_widgets.engine.views.pictures.hierarchy import draw_hierarchy
from modulekg_widgets.engine.views.pictures.png import file_png
from modulekg_widgets.engine.views.pictures.svg import svg_text

IMAGE = torch.zeros(1, 3, 64, 64)
MODELS = [
    "unet", "resnet18", "t5", "transformer", "many_ends", "siamese", "looped_cell", "experts_as_list", "googlenet",
    "nas_cells", "fpn", "gan",
]  # fmt: skip


class Ends(nn.Module):
    """Two inputs, two outputs, and a skip around both layers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, near: torch.Tensor, far: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given = self.left(near)
        return self.right(far) + given, given


class Other(nn.Linear):
    """Not of the sort of its neighbours, with which it would be one card."""


class Dense(nn.Module):
    """Every layer takes all that was before it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList((nn.Linear, Other)[at % 2](at + 1, 1) for at in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = [x]
        for layer in self.layers:
            given.append(layer(torch.cat(given, 1)))
        return given[-1]


def graph(name: str) -> mk.ModelGraph:
    model, args = build(name)
    return mk.ModelGraph(model, args=args)


def all_nodes(graph: mk.ModelGraph) -> list[int]:
    return list(range(len(graph.payload["nodes"]["name"])))


def named_edges(graph: mk.ModelGraph, opened: list[int]) -> set[tuple[str, str]]:
    """The edges by what is written on both ends, without shapes; a module is its name and which call it is."""
    flow = FlowParts(graph.payload, opened)
    names = graph.payload["nodes"]["name"]

    def title(place: int) -> str:
        part = flow.parts[place]
        is_module = part.kind in ("card", "frame")
        return f"{names[part.node]} {part.title}".strip() if is_module else part.title.split(" · ")[0]

    return {(title(source), title(target)) for source, target in flow.edges}


def svg(payload: dict[str, Any], opened: list[int]) -> str:
    return svg_text(draw_hierarchy(payload, opened))


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]


def lines(picture: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("path") and e.get("stroke")]


def test_a_unet_has_its_skips() -> None:
    unet = graph("unet")
    edges = named_edges(unet, [])
    assert {("d1", "cat"), ("d2", "cat"), ("d3", "cat"), ("d4", "cat")} <= edges
    assert {("d1", "pool call 1 of 4"), ("d4", "pool call 4 of 4"), ("input x", "d1"), ("head", "output")} <= edges
    assert ("d1", "d2") not in edges
    column = flow_column(unet.payload, [])
    rights = {round(x) for line in column.tracks for x, _ in line if x > WIDTH - 16}
    assert len(rights) == 4  # four skips around each other


def test_each_call_has_the_shape_that_it_gave() -> None:
    picture = texts(svg(graph("unet").payload, []))
    at = [picture.index(f"pool  MaxPool2d · call {call} of 4") for call in (1, 2, 3, 4)]
    assert [picture[place + 1] for place in at] == ["1×16×64×64", "1×32×32×32", "1×64×16×16", "1×128×8×8"]


def test_what_is_called_often_says_so() -> None:
    assert "cell  GRUCell · 12 calls" in texts(svg(graph("looped_cell").payload, []))
    siamese = graph("siamese")
    assert any(
        text.endswith("… · 2 calls") for text in texts(svg(siamese.payload, siamese._expanded_nodes()))
    )  # a frame


def test_all_inputs_and_outputs_are_named_with_their_shapes() -> None:
    ends = mk.ModelGraph(Ends(), (torch.zeros(2, 4), torch.zeros(3, 4)[:2]))
    assert named_edges(ends, []) == {
        ("input near", "left"), ("input far", "right"), ("left", "add"), ("right", "add"),
        ("add", "output 1"), ("left", "output 2"),
    }  # fmt: skip
    shown = texts(svg(ends.payload, []))
    assert {"input near · 2×4", "input far · 2×4", "output 1 · 2×4", "output 2 · 2×4"} <= set(shown)


def test_a_residual_block_and_its_way_around() -> None:
    resnet = mk.ModelGraph(resnet18(), (IMAGE,))
    edges = named_edges(resnet, [])
    assert ("layer1", "layer2") in edges
    assert ("avgpool", "view") in edges
    opened = [resnet._paths.find(path) or 0 for path in ("layer2", "layer2.0")]
    edges = named_edges(resnet, opened)
    assert {("layer1", "conv1"), ("layer1", "downsample"), ("bn2", "add"), ("downsample", "add")} <= edges
    assert ("bn2", "downsample") not in edges  # neighbours in the column between which nothing flows


@pytest.mark.slow
def test_what_a_closed_container_hides_is_the_containers() -> None:
    t5 = graph("t5")
    edges = named_edges(t5, [])
    assert {("input_ids", "encoder"), ("decoder_input_ids", "decoder"), ("encoder", "decoder")} <= edges
    assert ("encoder", "output encoder_last_hidden_state") in edges
    assert "shared  Embedding · not called" in texts(svg(t5.payload, []))


def test_norms_around_a_module_are_no_run() -> None:
    one = graph("transformer")
    edges = named_edges(one, [node for node in all_nodes(one) if "Attention" not in class_of(one.payload, node)])
    assert {("norm1", "linear1"), ("norm2", "norm"), ("norm1", "multihead_attn")} <= edges
    assert ("linear2", "dropout1") not in edges


def test_the_members_of_a_run_do_not_lead_back() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5)), nn.Linear(4, 2))
    chain = mk.ModelGraph(model, (torch.zeros(1, 4),))
    assert len(chain.payload["folds"]) == 1
    flow = FlowParts(chain.payload, all_nodes(chain))
    assert sorted((flow.parts[a].node, flow.parts[b].node) for a, b in flow.edges) == [(0, 2), (2, 3), (3, 16), (16, 0)]


def test_the_own_code_of_a_model_without_modules() -> None:
    class Code(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.T).softmax(-1)

    own = mk.ModelGraph(Code(), (torch.zeros(2, 3),))
    (code,) = (part for part in FlowParts(own.payload, []).parts if part.kind == "code")
    assert code.title == "permute, mm, softmax · 2×3 → 2×2"
    assert len(FlowParts(own.payload, []).edges) == 2


def test_where_forward_stopped_there_is_no_output() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3))
    stopped = mk.ModelGraph(model, (torch.zeros(1, 4),))
    assert stopped.payload["error"]
    shown = texts(svg(stopped.payload, []))
    assert "no output: the forward pass stopped" in shown


def test_an_untraced_model_is_drawn_as_before() -> None:
    picture = svg(mk.ModelGraph(resnet18()).payload, [])
    assert (texts(picture)[0], texts(picture)[-1]) == ("input", "output")
    assert all(line.get("stroke-dasharray") for line in lines(picture))
    traced = svg(mk.ModelGraph(resnet18(), (IMAGE,)).payload, [])
    assert lines(traced)
    assert not any(line.get("stroke-dasharray") for line in lines(traced))


# ------------------------------------------------------------------- geometry


def segments(column: FlowColumn) -> list[tuple[float, float, float, float]]:
    """Every piece of a line as (left, top, right, bottom)."""
    found = [(WIDTH / 2, start, WIDTH / 2, end) for start, end in column.arrows]
    for line in column.tracks:
        for (x, y), (to_x, to_y) in pairwise(line):
            assert x == to_x or y == to_y
            found.append((min(x, to_x), min(y, to_y), max(x, to_x), max(y, to_y)))
    return found


def check(column: FlowColumn) -> None:
    cards = [box for box in column.boxes if box.kind != "frame"]
    for one, other in combinations(cards, 2):
        assert one.y + one.height <= other.y or other.y + other.height <= one.y
    for box in column.boxes:
        assert box.x >= 0
        assert box.x + box.width <= column.width
        assert box.y + box.height <= column.height
    pieces = segments(column)
    for left, top, right, bottom in pieces:
        assert 0 <= left <= right <= column.width
        for box in cards:
            # a pill is touched at its round corner, up to 12 pixels within its box
            inset = 12 if box.kind == "pill" else 0.01
            is_apart = right <= box.x + inset or left >= box.x + box.width - inset
            assert is_apart or bottom <= box.y + 0.01 or top >= box.y + box.height - 0.01, (box.title, left, top)
        for box in column.boxes:
            if box.kind == "frame" and left == right and box.x < left < box.x + box.width:
                assert box.crossed or bottom <= box.y + 0.01 or top >= box.y + 26, box.title
    _no_two_lie_on_each_other(column)


def _no_two_lie_on_each_other(column: FlowColumn) -> None:
    uprights: dict[float, list[tuple[float, float]]] = {}
    levels: dict[float, list[tuple[float, float]]] = {}
    for left, top, right, bottom in segments(column):
        if left == right and top != bottom:
            uprights.setdefault(left, []).append((top, bottom))
        elif left != right:
            levels.setdefault(top, []).append((left, right))
    for spans in (*uprights.values(), *levels.values()):
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert end <= start


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_open", [False, True], ids=["at first", "all open"])
def test_no_line_crosses_a_card_or_lies_on_another(name: str, is_open: bool) -> None:
    one = graph(name)
    column = flow_column(one.payload, all_nodes(one) if is_open else one._expanded_nodes())
    assert len(column.boxes) > 4
    assert column.arrows
    check(column)


@pytest.mark.parametrize("name", MODELS)
def test_every_edge_is_drawn_once(name: str) -> None:
    one = graph(name)
    opened = one._expanded_nodes()
    column = flow_column(one.payload, opened)
    assert len(column.arrows) + len(column.tips) + column.omitted == len(FlowParts(one.payload, opened).edges)
    assert column.omitted == 0


def test_a_header_that_a_line_crosses_keeps_its_text_apart() -> None:
    class AnExceedinglyLongNameOfAContainerOfLayers(nn.Sequential):
        pass

    model = nn.Sequential(
        nn.Linear(2, 2), AnExceedinglyLongNameOfAContainerOfLayers(nn.Linear(2, 2), nn.ReLU()), nn.ReLU()
    )
    one = mk.ModelGraph(model, (torch.zeros(1, 2),))
    (frame,) = (box for box in flow_column(one.payload, all_nodes(one)).boxes if box.kind == "frame")
    assert frame.crossed
    (title,) = (text for text in texts(svg(one.payload, all_nodes(one))) if "Exceeding" in text)
    assert title.endswith("…")
    assert 12 + 7 * len(title) < frame.width / 2


# ----------------------------------------------------------- limits and texts


@pytest.mark.slow
def test_too_many_edges_are_counted_and_not_drawn() -> None:
    dense = mk.ModelGraph(Dense(120), (torch.zeros(2, 1),))
    opened = all_nodes(dense)
    begin = time.perf_counter()
    picture = svg(dense.payload, opened)
    assert time.perf_counter() - begin < 2
    column = flow_column(dense.payload, opened)
    check(column)
    total = len(FlowParts(dense.payload, opened).edges)
    assert total > 5_000
    assert len(column.arrows) + len(column.tips) + column.omitted == total
    assert len(column.tips) <= MAX_EDGES
    assert f"{column.omitted:,} more data edges are not drawn" in texts(picture)
    assert len(picture) < 200_000
    assert len(svg_text(dense._static_picture())) <= 90_000


def test_lanes_have_a_limit() -> None:
    tracks = tracks_of([(row, row + 60) for row in range(100)])
    assert (tracks.lanes, len(tracks.tracks) + tracks.omitted) == (MAX_LANES, 100)
    assert tracks.omitted > 0


def test_the_picture_of_resnet152_takes_no_time() -> None:
    with torch.device("meta"):
        model = resnet152()
    one = mk.ModelGraph(model, (IMAGE,))

    def seconds(opened: list[int]) -> float:
        begin = time.perf_counter()
        svg(one.payload, opened)
        return time.perf_counter() - begin

    assert min(seconds(all_nodes(one)) for _ in range(5)) < 0.1


def hostile(line: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in which `line` is the name of a module, of a class, of a parameter and of an input."""

    def forward(self: Any, **given: torch.Tensor) -> torch.Tensor:
        total = sum(given.values())
        return self._modules[line](total) * self._parameters.get("weight", 2)

    model = type(line.replace("\0", ""), (nn.Module,), {"forward": forward})()
    model._modules[line] = nn.Sequential(nn.Identity(), nn.Linear(2, 2))
    model._parameters[line] = nn.Parameter(torch.ones(2))
    return model, {line: torch.ones(1, 2)}


@pytest.mark.parametrize("line", PAYLOADS)
def test_hostile_text_stays_text(line: str) -> None:
    model, given = hostile(line)
    one = mk.ModelGraph(model, (), kwargs=given)
    assert one.payload["traced"]
    picture = svg(one.payload, all_nodes(one))
    root = ElementTree.fromstring(picture)
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {"svg", "title", "rect", "path", "text"}
    assert not {name for e in root.iter() for name in e.attrib if name.startswith("on") or "href" in name}
    shown = [text for text in texts(picture) if text.startswith("input")]
    assert shown
    assert "".join(c if c.isprintable() else "\ufffd" for c in line)[:20] in shown[0]
    check(flow_column(one.payload, all_nodes(one)))
    assert file_png(draw_hierarchy(one.payload, all_nodes(one))).startswith(b"\x89PNG")


class Functional(nn.Module):
    """Two layers with functions between them, in place of modules."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.a, self.between, self.b = nn.Linear(4, 8), between, nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.between(self.a(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2) / 2, -1) @ self.v(x)


@pytest.mark.parametrize(
    ("between", "title"),
    [
        (nn.functional.relu, "relu · 5×8"),
        (lambda x: nn.functional.softmax(x, -1), "softmax · 5×8"),
        (lambda x: nn.functional.dropout(x, training=True), "dropout · 5×8"),
        (lambda x: nn.functional.gelu(x).flip(-1) * 0.5 + 1, "gelu, flip, +2 · 5×8"),
    ],
    ids=["relu", "softmax", "dropout", "several"],
)
def test_functions_between_modules_have_cards(between: Any, title: str) -> None:
    shown = texts(svg(mk.ModelGraph(Functional(between), torch.randn(5, 4)).payload, []))
    assert title in shown
    assert shown.index("a  Linear") < shown.index(title) < shown.index("b  Linear")


def test_code_of_many_operators_names_its_functions() -> None:
    shown = texts(svg(mk.ModelGraph(Attention(), torch.randn(5, 4)).payload, []))
    assert [text for text in shown if text.startswith("softmax, +")] == ["softmax, +3 · 5×5"]  # before `v` is called


class Widening(nn.Module):
    """Blocks of one make that double their widths."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o)) for i, o in pairwise(widths)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize(
    ("widths", "counts"),
    [([4 * 2**i for i in range(7)], "312–296k"), ([64, 32, 16, 8, 4], "300–18.5k"), ([4, 4, 4, 4], "156")],
)
@pytest.mark.parametrize("is_traced", [True, False])
def test_a_card_of_similar_modules_has_the_range_of_their_parameters(
    widths: list[int], counts: str, is_traced: bool
) -> None:
    model = Widening(widths)
    image = torch.randn(1, widths[0], 8, 8)
    payload = mk.ModelGraph(model, image if is_traced else None).payload
    (fold,) = [each for each in payload["folds"] if each[1] == len(widths) - 1]
    opened = [payload["nodes"]["parent"][fold[0]]]
    details = [text.split(" · ")[-1] for text in texts(svg(payload, opened))]
    assert counts in details


class Chained(nn.Module):
    """Layers of one make with a function after each."""

    def __init__(self, *functions: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in functions)
        self.functions = functions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, function in zip(self.layers, self.functions, strict=True):
            x = function(layer(x))
        return x


@pytest.mark.parametrize(
    ("functions", "cards"),
    [
        ((torch.relu, torch.relu), 2),
        ((torch.relu, torch.relu, torch.relu), 1),
        ((torch.relu, torch.tanh, torch.relu), 3),
        ((torch.clone, torch.clone), 1),
    ],
)
def test_layers_are_one_card_where_the_same_is_computed_between_them(functions: Any, cards: int) -> None:
    model = Chained(*functions)
    shown = texts(svg(mk.ModelGraph(model, torch.randn(2, 4)).payload, [1]))
    assert len([text for text in shown if "Linear" in text]) == cards
