"""ModelGraph with inputs: what a forward pass adds to the payload, and what happens when it fails."""

import gc
import json
import re
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import list_models, resnet18, resnet152
from traitlets import TraitError

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from widgets.golden_models import Branches, Stopping

IMAGE = (torch.zeros(1, 3, 64, 64),)
BYTES = 400_000  # of all that showing resnet152 may cost
SAMPLE = ["vit_b_16", "swin_t", "googlenet", "shufflenet_v2_x1_0"]


class Telling(nn.Linear):
    """Prints that its forward is called: a look leaves nothing in classes and lists."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        print("forward")
        return super().forward(input)


def check(payload: dict[str, Any]) -> None:
    """Lists that stand side by side have one length, every number leads somewhere, and time runs one way."""
    flow, axes = payload["flow"], payload["axes"]
    of_each = {name: column for name, column in flow["steps"].items() if name not in ("view", "square")}
    for table in (flow["calls"], flow["values"], of_each):
        assert len({len(column) for column in table.values()}) == 1
    nodes, count = len(payload["nodes"]["name"]), len(flow["values"]["step"])
    assert all(0 <= node < nodes for node in flow["calls"]["node"])
    assert all(parent < call for call, parent in enumerate(flow["calls"]["parent"]))
    for values in (*flow["calls"]["inputs"], *flow["calls"]["outputs"], *flow["steps"]["inputs"], flow["outputs"]):
        assert all(0 <= value < count for value in values)
    for step, values in enumerate(flow["steps"]["inputs"]):
        assert all(flow["values"]["step"][value] < step for value in values)  # read after they were made
    calls = flow["steps"]["call"]
    assert all(0 <= call < len(flow["calls"]["node"]) for call in calls)
    for source, target, shape in payload["edges"]:
        assert -1 <= source < nodes
        assert -1 <= target < nodes
        assert source != target
        assert isinstance(shape, str)
    assert len(axes["dims"]) == len(flow["tensors"]["node"]) == len(flow["tensors"]["name"])
    assert len({len(axes[key]) for key in ("name", "label", "size", "role", "frozen")}) == 1
    assert len(set(axes["name"])) == len(axes["name"])
    json.dumps(payload, allow_nan=False, ensure_ascii=False).encode("utf-8")


def named_edges(graph: Any) -> set[tuple[str, str, str]]:
    """The edges by dotted paths; "*" is the model's input and output."""

    def named(node: int) -> str:
        return "*" if node < 0 else graph._paths.path(node)

    return {(named(source), named(target), shape) for source, target, shape in graph.payload["edges"]}


@pytest.fixture(scope="module")
def graph() -> Any:
    return mk.ModelGraph(resnet18(weights=None), IMAGE)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.nightly) for n in list_models()]
)
def test_payloads_of_torchvision_models(name: str) -> None:
    builders = torchvision_builders()
    of_video = builders[name].__module__.startswith("torchvision.models.video")
    with meta_weights():
        model = builders[name]().eval()
    graph = mk.ModelGraph(model, (torch.zeros((1, 3, 16, 112, 112) if of_video else (1, 3, 224, 224)),))
    if graph.error is None:
        check(graph.payload)
    else:  # some take other inputs: the structure is there, and the reason
        assert graph.payload["axes"] is None


def test_edges_follow_the_data_and_carry_shapes(graph: Any) -> None:
    check(graph.payload)
    assert graph.payload["traced"] is True
    found = named_edges(graph)
    assert {
        ("*", "conv1", "1×3×64×64"),
        ("conv1", "bn1", "1×64×32×32"),
        ("layer2.0.bn2", "layer2.0.relu", "1×128×8×8"),
        ("layer2.0.downsample.1", "layer2.0.relu", "1×128×8×8"),  # the residual sum is code between the modules
        ("layer1.1.relu", "layer2.0.downsample.0", "1×64×16×16"),
        ("avgpool", "fc", "1×512×1×1"),
        ("fc", "*", "1×1000"),
    } <= found
    assert ("layer1", "layer2") not in {edge[:2] for edge in found}


def test_a_chain_of_residual_sums_has_edges_in_proportion() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.mix = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mix(self.norm(x))

    counts = []
    for length in (8, 32):
        model = nn.Sequential(*(Residual() for _ in range(length)))
        counts.append(len(mk.ModelGraph(model, (torch.zeros(1, 4),)).payload["edges"]))
    assert counts[1] <= 4.2 * counts[0]
    graph = mk.ModelGraph(model, (torch.zeros(1, 4),))
    assert {("0.mix", "1.norm", "1×4"), ("31.mix", "*", "1×4")} <= named_edges(graph)
    assert "1" not in {target for _, target, _ in named_edges(graph)}  # what its modules read says it all


def test_what_only_the_code_of_a_container_reads_goes_to_the_container() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weigh = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.weigh(x).sigmoid() * y

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.gate, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), Gate(), nn.LayerNorm(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.gate(self.left(x), self.right(x)))

    graph = mk.ModelGraph(Gated(), (torch.zeros(1, 4),))
    assert named_edges(graph) == {
        (source, target, "1×4")
        for source, target in (
            ("*", "left"), ("*", "right"), ("left", "gate.weigh"), ("right", "gate"), ("gate.weigh", "norm"),
            ("norm", "*"),
        )
    }  # fmt: skip


def test_columns_come_with_the_trace(graph: Any) -> None:
    columns = graph.payload["columns"]
    assert columns["flops"][0] == graph.payload["columns"]["flops"][0] > 10**8
    conv = graph._paths.find("conv1")
    assert columns["flops"][conv] == 2 * 64 * 3 * 7 * 7 * 32 * 32
    assert columns["output_bytes"][conv] == 4 * 64 * 32 * 32
    for name in ("flops", "bytes", "output_bytes"):
        graph.color_by = name
    graph.color_by = "none"


def test_modules_that_are_not_called_are_marked_and_have_no_zero() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)
            self.spare = nn.Sequential(nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]

    payload = mk.ModelGraph(Attending(), (torch.zeros(3, 1, 4),)).payload
    names = payload["nodes"]["name"]
    marks = {names[int(node)]: texts for node, texts in payload["marks"].items()}
    assert marks == {
        "out_proj": ["not called: other code uses its tensors"],
        "spare": ["not called in this forward pass"],
    }
    assert payload["columns"]["flops"][names.index("spare")] is None


def test_an_operator_without_a_formula_is_no_zero() -> None:
    library = torch.library.Library("mkgwidgets", "DEF")
    library.define("odd(Tensor x) -> Tensor")
    library.impl("odd", lambda x: x.clone(), "CompositeExplicitAutograd")

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.mkgwidgets.odd(x)

    payload = mk.ModelGraph(nn.Sequential(Odd(), nn.Linear(4, 4)), (torch.zeros(1, 4),)).payload
    flow = payload["flow"]
    step = flow["steps"]["name"].index(flow["names"].index("mkgwidgets::odd"))
    assert flow["steps"]["flops"][step] is None
    assert payload["columns"]["flops"][1] is None
    assert payload["columns"]["flops"][0] == payload["columns"]["flops"][2] > 0


# ------------------------------------------------------------------ axes


def test_every_dimension_is_written_by_axes(graph: Any) -> None:
    traced = mk.trace(resnet18(weights=None), IMAGE)
    axes, flow = graph.payload["axes"], graph.payload["flow"]
    for place, (node, name) in enumerate(zip(flow["tensors"]["node"], flow["tensors"]["name"], strict=True)):
        full = ".".join(filter(None, (graph._paths.path(node), flow["tensors"]["attributes"][name])))
        written = " ".join(axes["written"][dim] for dim in axes["dims"][place])
        numbers = [int(number) for number in dict.fromkeys(re.findall(r"\{(\d+)\}", written))]
        labels = [axes["label"][number] for number in numbers]
        for number in numbers:  # where two would read the same, both go by their full names
            short = axes["label"][number]
            label = short if labels.count(short) == 1 else axes["name"][number]
            written = written.replace(f"{{{number}}}", f"{label}={axes['size'][number]}")
        assert written == traced.axes.expression(full)


def test_an_axis_is_a_name_of_the_trace(graph: Any) -> None:
    assert graph.axis is None
    graph.axis = "conv1.out"
    assert graph.get_state("axis") == {"axis": "conv1.out"}
    with pytest.raises(mk.ModuleKGError, match=r"no axis 'conv1\.ot': did you mean 'conv1\.out'") as caught:
        graph.axis = "conv1.ot"
    assert isinstance(caught.value, KeyError)
    with pytest.raises(TraitError):
        graph.axis = 3
    assert graph.axis == "conv1.out"
    graph.set_state({"axis": None})  # what the browser sends
    assert graph.axis is None


@pytest.mark.parametrize(("trait", "value"), [("axis", "0.out"), ("view", "dataflow"), ("view", "operators")])
def test_what_needs_inputs_says_so(trait: str, value: str) -> None:
    wanted: dict[str, Any] = {trait: value}
    with pytest.raises(mk.ModuleKGError, match="pass the model's inputs as args="):
        mk.ModelGraph(nn.Sequential(nn.Linear(2, 3)), **wanted)
    with pytest.raises(mk.ModuleKGError, match=r"the trace is incomplete, see \.error"):
        mk.ModelGraph(nn.Sequential(nn.Linear(2, 3)), "no tensor", **wanted)
    graph = mk.ModelGraph(nn.Sequential(nn.Linear(2, 3)), (torch.zeros(1, 2),), **wanted)
    assert getattr(graph, trait) == value


# ------------------------------------------------------------------ inputs


def test_without_inputs_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    graph = mk.ModelGraph(nn.Sequential(Telling(2, 2)))
    assert not capsys.readouterr().out
    assert (graph.payload["traced"], graph.payload["flow"], graph.error) == (False, None, None)
    mk.ModelGraph(nn.Sequential(Telling(2, 2)), (torch.zeros(1, 2),))
    assert "forward" in capsys.readouterr().out


@pytest.mark.parametrize("given", [{"args": (torch.zeros(2, 3),), "kwargs": {"y": torch.zeros(2, 5)}},
                                   {"kwargs": {"x": torch.zeros(2, 3), "y": torch.zeros(2, 5)}}])  # fmt: skip
def test_inputs_by_place_and_by_name(given: dict[str, Any]) -> None:
    graph = mk.ModelGraph(Branches(), **given)
    assert graph.error is None
    check(graph.payload)
    assert [name for name, _ in graph.payload["flow"]["inputs"]] == ["x", "y"]


class Named(nn.Module):
    """A dictionary of what two modules give, one of which takes a list and a keyword."""

    class Pair(nn.Module):
        def forward(self, features: list[torch.Tensor], *, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return features[0] * scale, features[1] + scale

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.fc = self.Pair(), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, wrap: int = 0) -> Any:
        first, second = self.pair([x, x + 1], scale=x.mean())
        given = {"boxes": self.fc(first), "scores": second}
        return [[given], given["boxes"], (given["boxes"], second)][wrap]


@pytest.mark.parametrize(("wrap", "names"), [(0, ["boxes", "scores"]), (1, [""]), (2, ["[0]", "[1]"])])
def test_outputs_have_the_names_of_what_forward_returned(wrap: int, names: list[str]) -> None:
    payload = mk.ModelGraph(Named(), (torch.zeros(2, 3), wrap)).payload
    check(payload)
    assert payload["value_names"]["results"] == names


def test_values_of_calls_have_the_names_of_parameters_and_of_returned_places() -> None:
    payload = mk.ModelGraph(Named(), torch.zeros(2, 3)).payload
    names, called = payload["value_names"], payload["flow"]["calls"]["node"]
    paths = payload["nodes"]["name"]
    found = {
        paths[node]: (names["labels"][names["inputs"][at]], names["labels"][names["outputs"][at]])
        for at, node in enumerate(called)
    }
    assert found["pair"] == (["features[0]", "features[1]", "scale"], ["[0]", "[1]"])
    assert found["fc"] == (["input"], [""])


class Nested(nn.Module):
    """A batch as a dictionary and a nested tuple, of which one value is given back under two names."""

    class Part(nn.Module):
        def forward(self, batch: dict[str, torch.Tensor], state: Any, *more: torch.Tensor) -> dict[str, torch.Tensor]:
            total = batch["image"] + batch["mask"] + state[0][1] + more[0]
            return {"total": total, "same": total}

    def __init__(self) -> None:
        super().__init__()
        self.part = self.Part()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.part({"image": x, "mask": x + 1}, ((x * 2, x * 3), x), x * 4)


def test_values_in_dictionaries_and_nested_tuples_are_called_by_their_places() -> None:
    payload = mk.ModelGraph(Nested(), torch.zeros(3)).payload
    names = payload["value_names"]
    assert names["labels"][names["inputs"][1]] == [
        'batch["image"]',
        'batch["mask"]',
        "state[0][0]",
        "state[0][1]",
        "state[1]",
        "",
    ]
    assert [names["labels"][names["outputs"][at]] for at in (0, 1)] == [["total", "same"]] * 2
    first, second = payload["flow"]["calls"]["outputs"][1]
    assert first == second  # one value, listed under both names


class Unhashable:
    """A forward that compares with others, and so has no hash."""

    def __call__(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left * right

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_forward_without_a_hash_has_the_names_of_its_parameters() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product, self.sum = nn.Identity(), nn.Identity()
            self.product.forward = Unhashable()
            self.sum.forward = lambda one, other: one + other

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.sum(x, self.product(x, x + 1))

    names = mk.ModelGraph(Outer(), torch.zeros(2)).payload["value_names"]
    assert ["left", "right"] in names["labels"]
    assert ["one", "other"] in names["labels"]


def test_a_model_without_arguments_is_traced_with_an_empty_tuple() -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self) -> torch.Tensor:
            return self.scale * torch.ones(3)

    assert mk.ModelGraph(Noise()).payload["traced"] is False
    assert mk.ModelGraph(Noise(), ()).payload["traced"] is True


@pytest.mark.slow
def test_the_model_is_not_touched_and_not_kept() -> None:
    model = resnet18(weights=None).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    graph = mk.ModelGraph(model, IMAGE, compare=model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(module.training and not module._forward_hooks for module in model.modules())
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None
    assert graph.payload["traced"]


# ------------------------------------------------------------------ failures


def test_a_forward_pass_that_fails_leaves_what_ran_before() -> None:
    graph = mk.ModelGraph(Stopping(), (torch.zeros(1, 3),))
    assert "stopped in 'second.1'" in (graph.error or "")
    payload = graph.payload
    assert payload["traced"] is True
    assert payload["axes"] is None
    assert named_edges(graph) == {("*", "first", "1×3"), ("first", "second.0", "1×4")}
    broken = graph._paths.find("second.1")
    assert payload["marks"] == {str(broken): ["the forward pass stopped here"]}
    graph.view = "operators"
    assert len(graph.payload["nodes"]["name"]) == 6


@pytest.mark.parametrize("args", ["text", 3, object(), [1, 2, 3], {"unknown": 1}, (), (None,), (torch.zeros(7),)])
def test_inputs_that_do_not_fit_are_told_and_do_not_raise(args: Any) -> None:
    graph = mk.ModelGraph(Stopping(), args)
    assert graph.error
    assert len(graph.payload["nodes"]["name"]) == 6
    json.dumps(graph.get_state(), allow_nan=False, default=str).encode("utf-8")


def test_keyword_arguments_of_the_wrong_kind_and_lazy_modules_are_told() -> None:
    assert "kwargs" in (mk.ModelGraph(Stopping(), kwargs=[1]).error or "")
    assert "has no shape yet" in (mk.ModelGraph(nn.LazyLinear(2), (torch.zeros(1, 2),)).error or "")


def test_an_error_with_hostile_text_is_text() -> None:
    class Hostile(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("<img src=x onerror=alert(1)>\ud800")

    error = mk.ModelGraph(Hostile(), (torch.zeros(1),)).get_state("payload")["payload"]["error"]
    error.encode("utf-8")
    assert "<img" in error


# ------------------------------------------------------------------ sizes and other forms


def test_what_is_sent_of_resnet152_is_small() -> None:
    with meta_weights():
        graph = mk.ModelGraph(resnet152(weights=None), (torch.zeros(1, 3, 224, 224),))
    check(graph.payload)
    assert len(json.dumps(graph.get_state()["payload"])) <= BYTES / 2
    assert len(graph._repr_mimebundle_()["image/svg+xml"].encode()) <= 100_000


def test_files_have_the_data_flow(graph: Any, tmp_path: Any) -> None:
    dot = graph.export(tmp_path / "graph.dot").read_text("utf-8")
    assert 'label="1×64×32×32"' in dot
    assert "input ->" in dot
    assert "dashed" not in dot
    assert "1×64×32×32" in graph.export(tmp_path / "graph.svg").read_text("utf-8")
    page = graph.export(tmp_path / "graph.html").read_text("utf-8")
    widgets = json.loads(page.split('id="mkg-page">')[1].split("</script>")[0])["widgets"]
    assert ["axis" in widget["state"] for widget in widgets if widget["kind"] == "ModelGraph"] == [True]


def test_ipycytoscape_gets_data_edges(graph: Any) -> None:
    edges = {edge.data["id"]: edge.data.get("label") for edge in graph.to_ipycytoscape().graph.edges}
    assert edges["e1-2"] == "1×64×32×32"
    assert all(label is not None for label in edges.values())


def test_an_input_that_a_module_hands_on_comes_from_the_input() -> None:
    graph = mk.ModelGraph(nn.Sequential(nn.Identity(), nn.Linear(4, 3)).eval(), (torch.zeros(2, 4),))
    flow = graph.payload["flow"]
    (_, value), *rest = flow["inputs"]
    assert rest == []
    assert flow["values"]["step"][value] == -1  # no step has made it
    assert value in flow["steps"]["inputs"][0]
    assert named_edges(graph) == {("*", "0", "2×4"), ("0", "1", "2×4"), ("1", "*", "2×3")}


# -------------------------------------------------------------------- blocks


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.f(x)


def test_residual_blocks_are_named() -> None:
    graph = mk.ModelGraph(
        nn.Sequential(Sum(), nn.Linear(4, 4), nn.Sequential(Sum(), nn.LayerNorm(4))), torch.zeros(2, 4)
    )
    said = {graph._paths.path(int(node)): text for node, text in graph.payload["blocks"].items()}
    assert said == dict.fromkeys(["0", "2.0"], "Residual block: can be removed as a whole")


def test_there_are_no_blocks_without_a_trace() -> None:
    assert mk.ModelGraph(Sum()).payload["blocks"] == {}
