"""ModelGraph in the kernel: traits, errors, and what it keeps."""

import gc
import json
import math
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ipywidgets import DOMWidget
from ipywidgets.widgets.widget import _instances
from torch import nn
from torchvision.models import densenet201, resnet18, resnet152
from traitlets import TraitError

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.views.schema import MODEL
from modulekg_widgets.widgets.shared.model_widget import SIZES_CHANGED, WEIGHTS_CHANGED


@pytest.fixture(scope="module")
def model() -> nn.Module:
    with meta_weights():
        return resnet152(weights=None)


@pytest.fixture
def graph(model: nn.Module) -> Any:
    widget = mk.ModelGraph(model)
    yield widget
    widget.close()


def test_state_holds_the_payload(graph: Any) -> None:
    state = graph.get_state()
    assert state["payload"]["schema_version"] == 2
    assert len(state["payload"]["nodes"]["name"]) == 423
    assert (state["_model_module"], state["_model_name"]) == ("modulekg-widgets", "ModelGraphModel")
    json.dumps(state, allow_nan=False, default=str).encode("utf-8")


def test_first_opening_shows_at_most_25_nodes(graph: Any) -> None:
    assert graph.expanded == ["layer1", "layer2", "layer3", "layer4"]


def test_selection_is_a_known_path(graph: Any) -> None:
    graph.selected = "layer3.17.conv2"
    assert graph.selected == "layer3.17.conv2"
    with pytest.raises(mk.ModuleKGError, match=r"no module 'layer3\.99'.*did you mean 'layer3\."):
        graph.selected = "layer3.99"
    assert graph.selected == "layer3.17.conv2"
    graph.selected = ""
    assert graph.selected == ""
    graph.selected = None
    assert graph.selected is None


def test_a_shared_module_is_selected_at_the_first_of_its_paths() -> None:
    shared = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    shared.add_module("again", shared[0])
    graph = mk.ModelGraph(shared, selected="again")
    assert graph.selected == "0"


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("view", "hierachy", "did you mean 'hierarchy'"),
        ("view", "diff", "compare="),
        ("color_by", "parms", "did you mean 'params'"),
        ("expanded", ["layer9"], "did you mean 'layer"),
        ("overlay", {"layr1": 1.0}, "did you mean 'layer1'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_nearest(graph: Any, trait: str, value: object, message: str) -> None:
    before = getattr(graph, trait)
    with pytest.raises(mk.ModuleKGError, match=message):
        setattr(graph, trait, value)
    assert getattr(graph, trait) == before


def test_an_unknown_keyword_is_a_type_error_with_the_nearest(model: nn.Module) -> None:
    with pytest.raises(TypeError, match="did you mean 'color_by'") as caught:
        mk.ModelGraph(model, colour_by="params")
    assert isinstance(caught.value, mk.ModuleKGError)


@pytest.mark.parametrize("value", [3, ["layer1"], {}])
def test_a_value_of_the_wrong_kind_is_our_error_and_traitlets(graph: Any, value: object) -> None:
    with pytest.raises(TraitError) as caught:
        graph.selected = value
    assert isinstance(caught.value, mk.ModuleKGError)


def test_a_wrong_value_at_the_start_opens_nothing(model: nn.Module) -> None:
    before = set(_instances)
    with pytest.raises(mk.ModuleKGError):
        mk.ModelGraph(model, selected="layer9")
    assert not [w for key, w in _instances.items() if key not in before and isinstance(w, mk.ModelGraph)]


def test_an_unknown_attribute_cannot_be_set(graph: Any) -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour_by': did you mean 'color_by'") as caught:
        graph.colour_by = "params"
    assert isinstance(caught.value, mk.ModuleKGError)


def test_expanding_opens_the_containers_around(graph: Any) -> None:
    graph.expanded = []
    graph.expand("layer3.17", "layer3.4")
    assert graph.expanded == ["layer3", "layer3.17", "layer3.4"]
    graph.collapse("layer3.17")
    assert graph.expanded == ["layer3", "layer3.4"]
    graph.collapse()
    assert graph.expanded == []


def test_pages_open_what_fits_until_somebody_has_chosen() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    assert not mk.ModelGraph(model, expanded=["0"]).open_to_fit
    graph = mk.ModelGraph(model)
    assert graph.open_to_fit
    graph.refresh(model)
    assert graph.open_to_fit
    with pytest.raises(UnknownPathError):
        graph.expanded = ["3"]
    assert graph.open_to_fit
    graph.expanded = list(graph.expanded)  # a choice, though nothing changes here: the page may show otherwise
    assert not graph.open_to_fit


def test_the_repr_is_one_line(graph: Any) -> None:
    graph.selected = "layer1"
    assert repr(graph) == "<ModelGraph of ResNet: 423 modules, selected='layer1'>"


@pytest.mark.parametrize(("wrong", "message"), [(resnet18, "function"), (nn.Linear, "class Linear"), ("x", "str")])
def test_only_modules_are_shown(wrong: object, message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        mk.ModelGraph(wrong)


def test_an_overlay_takes_any_numbers(graph: Any) -> None:
    graph.overlay = {"layer1": np.float32(2), "layer2": torch.tensor(3), "layer3": float("nan"), "layer4": 2**60}
    sent = graph.get_state(key="overlay")["overlay"]
    assert sent == {"layer1": 2.0, "layer2": 3.0, "layer3": "NaN", "layer4": str(2**60)}
    assert math.isnan(graph.overlay["layer3"])
    with pytest.raises(mk.ModuleKGError, match="must be a number: a str was passed"):
        graph.overlay = {"layer1": "red"}


def test_lone_surrogates_come_back_from_their_escape() -> None:
    model = nn.Sequential()
    model.add_module("\ud800", nn.Sequential(nn.ReLU()))
    graph = mk.ModelGraph(model)
    graph.set_state({"selected": "\\ud800.0"})  # what the browser sends
    assert graph.selected == "\ud800.0"
    assert graph.get_state(key="selected")["selected"] == "\\ud800.0"


@pytest.mark.slow
def test_the_model_is_not_kept_alive() -> None:
    model = resnet18(weights=None)
    kept = weakref.ref(model)
    graph = mk.ModelGraph(model, compare=model)
    del model
    gc.collect()
    assert kept() is None
    assert graph.payload["compare"]


@pytest.mark.slow
def test_closing_leaves_nothing_behind(model: nn.Module) -> None:
    before = set(_instances)
    graph = mk.ModelGraph(model)
    kept = weakref.ref(graph)
    graph.close()
    del graph
    gc.collect()
    assert set(_instances) <= before
    assert kept() is None


def test_looking_does_not_touch_the_model() -> None:
    model = resnet18(weights=None)
    modules = list(model.modules())
    before = [(dict(vars(m)), m.training, dict(m._forward_hooks)) for m in modules]
    weights = {name: t.clone() for name, t in model.state_dict().items()}
    random_state = torch.get_rng_state()
    mk.ModelGraph(model, compare=model)._repr_mimebundle_()
    assert [(dict(vars(m)), m.training, dict(m._forward_hooks)) for m in modules] == before
    assert all(torch.equal(t, weights[name]) for name, t in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("build", [resnet152, densenet201])
def test_sizes_of_what_is_sent_and_saved(build: Any) -> None:
    with meta_weights():
        graph = mk.ModelGraph(build(weights=None))
    assert len(json.dumps(graph.get_state()["payload"])) <= 200_000
    assert len(graph._repr_mimebundle_()["image/svg+xml"].encode()) <= 100_000


def test_showing_a_model_creates_two_models_in_the_browser(model: nn.Module) -> None:
    before = set(_instances)
    graph = mk.ModelGraph(model)
    opened = [w for key, w in _instances.items() if key not in before]
    assert {type(w).__name__ for w in opened} == {"ModelGraph", "Layout"}
    graph.close()


def test_ipycytoscape_gets_the_open_part(graph: Any) -> None:
    widget = graph.to_ipycytoscape()
    assert isinstance(widget, DOMWidget)
    labels = [node.data["label"] for node in widget.graph.nodes]
    assert "1  Bottleneck ×35" in labels
    assert len(labels) == 18
    graph.expanded = [f"layer3.{i}" for i in range(36)] + ["layer3"]
    assert len(graph.to_ipycytoscape().graph.nodes) <= 200


def test_compare_offers_the_diff_view(model: nn.Module) -> None:
    graph = mk.ModelGraph(model, compare=model, view="diff")
    assert set(graph.payload["compare"]["left"]) == {"same"}
    assert len(graph.payload["compare"]["pairs"]) == 423


def test_a_comparison_opens_side_by_side_unless_a_view_is_given(model: nn.Module) -> None:
    assert mk.ModelGraph(model, compare=model).view == "diff"
    assert mk.ModelGraph(model, compare=model, view="hierarchy").view == "hierarchy"
    assert mk.ModelGraph(model).view == "hierarchy"


def test_measured_times_are_a_column() -> None:
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4)
    widget = mk.ModelGraph(net, x)
    assert "time" not in widget.payload["columns"]
    with pytest.raises(UnknownNameError, match="no column 'time'"):
        widget.color_by = "time"
    table = pd.DataFrame({"module": ["", "0", "2"], "time_ms": [3.0, 1.5, math.nan], "time_ms_after": [2.0, 1.0, 0.5]})
    widget.show_profile(table)
    assert widget.payload["columns"]["time"] == [3.0, 1.5, None, None]
    assert widget.payload["columns"]["time_after"] == [2.0, 1.0, None, 0.5]
    assert widget.payload["column_info"]["time"] == {"label": "time", "aggregate": "sum"}
    MODEL.check(widget.payload)
    json.dumps(widget.payload, allow_nan=False)
    widget.color_by = "time"
    widget.show_profile(table[["module", "time_ms"]])
    assert "time_after" not in widget.payload["columns"]
    with pytest.raises(UnknownPathError, match="no module '7'"):
        widget.show_profile(pd.DataFrame({"module": ["7"], "time_ms": [1.0]}))
    for wrong in (pd.DataFrame({"module": [""]}), {"module": []}, None):
        with pytest.raises(UnknownNameError, match=r"no column 'time_ms': pass the result of graph.profile\(\)"):
            widget.show_profile(wrong)
    widget.color_by = "none"
    widget.refresh(net, x)
    assert "time" not in widget.payload["columns"]
    widget.close()


def nested() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU())), nn.Linear(8, 2))


def test_what_is_open_is_listed_with_what_it_stands_in() -> None:
    graph = mk.ModelGraph(nested())
    graph.expanded = ["0.1", "1", ""]  # a layer has nothing in it, and the model is always open
    assert graph.expanded == ["0", "0.1"]
    graph.collapse("0")
    assert graph.expanded == []


def test_a_page_says_what_it_has_opened_and_that_is_no_choice() -> None:
    graph = mk.ModelGraph(nested())
    told = {"kind": "opened", "fit": True, "known": graph.expanded}
    graph._handle_custom_msg({**told, "paths": ["0"]}, [])
    assert (graph.expanded, graph.open_to_fit) == (["0"], True)
    graph.expanded = ["0", "0.1"]
    graph._handle_custom_msg({**told, "paths": []}, [])  # it has not heard of the choice yet
    assert (graph.expanded, graph.open_to_fit) == (["0", "0.1"], False)
    graph._handle_custom_msg({"kind": "opened", "fit": False, "known": ["0"], "paths": []}, [])  # nor of this one
    assert graph.expanded == ["0", "0.1"]
    graph._handle_custom_msg({"kind": "opened", "fit": False, "known": ["0", "0.1"], "paths": ["0"]}, [])
    assert graph.expanded == ["0"]


@pytest.mark.parametrize("paths", [None, 3, [3], ["nowhere"], [["0"]]])
def test_a_page_that_says_nonsense_is_not_believed(paths: Any) -> None:
    graph = mk.ModelGraph(nested(), expanded=[])
    graph._handle_custom_msg({"kind": "opened", "known": [], "paths": paths}, [])
    assert graph.expanded == []


def cut(model: nn.Module, x: Any) -> None:
    mk.plan(mk.trace(model, x), ratio=0.5).cut(model)


def mask(model: nn.Module, x: Any) -> None:
    mk.plan(mk.trace(model, x), ratio=0.5).mask(model)


def train(model: nn.Module, x: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()


def replace(model: nn.Module, x: Any) -> None:
    model[1] = nn.Linear(8, 2)


def double(model: nn.Module, x: Any) -> None:
    model.double()


CHANGES = [
    (cut, SIZES_CHANGED),
    (mask, WEIGHTS_CHANGED),
    (train, WEIGHTS_CHANGED),
    (replace, WEIGHTS_CHANGED),
    (double, SIZES_CHANGED),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
@pytest.mark.parametrize("make", [mk.ModelGraph, mk.MaskEditor, mk.ForwardPlayer])
def test_a_widget_says_that_its_model_has_changed(make: Any, change: Any, words: str) -> None:
    model, x = nested(), torch.ones(2, 4)
    widget = make(model, x)
    before = [(p, p.clone()) for p in model.parameters()]
    widget._check_outdated()
    assert widget.outdated == ""
    assert all(p is one and torch.equal(p, copy) for p, (one, copy) in zip(model.parameters(), before, strict=True))
    change(model, x)
    widget._check_outdated()
    if make is mk.ModelGraph and words == WEIGHTS_CHANGED:
        words = ""  # it shows no values
    assert widget.outdated == words
    widget.set_state({"outdated": "of a page"})  # no page says so
    assert widget.outdated == words
    if change is not double:  # which takes another input
        widget._handle_custom_msg({"kind": "refresh"}, [])
        assert widget.outdated == ""
    widget.close()


class Settings(nn.Module):
    """Its output has the size that an attribute says, and it counts its calls."""

    def __init__(self, factor: int = 2) -> None:
        super().__init__()
        self.factor, self.calls = factor, 0
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.second(self.first(self.conv(x))).repeat(1, 1, self.factor)


def change_stride(model: nn.Module) -> None:
    model[0].conv.stride = (2,)


def change_factor(model: nn.Module) -> None:
    model[0] = Settings(3)


def share_weights(model: nn.Module) -> None:
    model[0].second.weight = model[0].first.weight


def share_modules(model: nn.Module) -> None:
    model[0].second = model[0].first


def change_forward(model: nn.Module) -> None:
    model[0].forward = lambda x: x


def remake(model: nn.Module) -> None:
    model[0] = Settings()


def call(model: nn.Module) -> None:
    model.train()(torch.zeros(1, 1, 4))
    model.eval()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((each, SIZES_CHANGED) for each in (change_stride, change_factor, share_weights, share_modules)),
        (change_forward, SIZES_CHANGED),
        (remake, ""),
        (call, ""),
    ],
)
def test_a_graph_is_outdated_once_its_structure_is_another(change: Any, words: str) -> None:
    model = nn.Sequential(Settings())
    graph = mk.ModelGraph(model, torch.zeros(1, 1, 4))
    assert graph.error is None
    change(model)
    graph._check_outdated()
    assert graph.outdated == words


class Routed(nn.Module):
    """Its weights decide how many rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[torch.nonzero(self.gate(x)[:, 0] > 0)[:, 0]] * 2


def test_a_schedule_of_training_makes_no_graph_outdated() -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.BatchNorm1d(2), nn.Dropout(0.1)).train()
    model[1].eps = float("nan")  # unequal to itself
    graph = mk.ModelGraph(model, torch.zeros(2, 1, 4))
    model(torch.zeros(2, 1, 4)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    model[1].momentum, model[2].p = 0.01, 0.5
    graph._check_outdated()
    assert graph.outdated == ""


def test_a_graph_whose_flow_depends_on_values_is_outdated_by_training() -> None:
    model, x = Routed(), torch.ones(2, 4)
    graph = mk.ModelGraph(model, x)
    assert graph.payload["flow"]["on"] == "real"
    nn.init.ones_(model.gate.weight)
    graph._check_outdated()
    assert graph.outdated == WEIGHTS_CHANGED
    structure = mk.ModelGraph(model)  # without a forward
    nn.init.zeros_(model.gate.weight)
    structure._check_outdated()
    assert structure.outdated == ""


def test_a_graph_that_is_outdated_says_so_in_one_line_and_shows_the_model_as_it_is() -> None:
    model, x = nested(), torch.ones(2, 4)
    graph = mk.ModelGraph(model, x, selected="1")
    cut(model, x)
    assert repr(graph) == "<ModelGraph of Sequential: 6 modules, selected='1', outdated>"
    graph._refresh_shown()
    assert repr(graph) == "<ModelGraph of Sequential: 6 modules, selected='1'>"
    assert [4, 4] in [shape for row in graph.payload["entities"]["tensors"] for _, _, shape in row]


@pytest.mark.slow
def test_a_graph_keeps_no_model() -> None:
    model = nested()
    graph, reference = mk.ModelGraph(model), weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    graph._check_outdated()
    graph._refresh_shown()
    assert graph.outdated.startswith("The model no longer exists")


def test_what_an_editor_does_is_no_news_to_it_and_its_graphs() -> None:
    model, x = nested(), torch.ones(2, 4)
    bench = mk.Workbench(model, x)
    bench.editor.plan = mk.plan(bench.editor.graph, ratio=0.5)
    for act in (bench.editor.mask, bench.editor.cut, bench.editor.undo):
        act()
        for widget in (bench.editor, bench.graph):
            widget._check_outdated()
            assert widget.outdated == ""
    bench.close()
