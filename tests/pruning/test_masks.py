"""Reading masks: NNI's dict in all its forms, files of it, torch's own masks, and what no mask is."""

from __future__ import annotations

import copy
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.nni.mask_files import load_masks, read_masks
from modulekg_widgets.engine.pruning.nni.mask_inference import infer_masks
from pruning.mask_samples import Depthwise, Grouped, Residual, channels, image, rows, trained

Masks = dict[str, Any]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return trained(Residual)


@pytest.fixture(scope="module")
def graph(model: nn.Module) -> mk.DataflowGraph:
    return mk.trace(model, image())


# ------------------------------------------------------------------ layouts


def test_channels_of_both_sides(model: nn.Module, graph: mk.DataflowGraph) -> None:
    masks = channels(model, {"conv2": [1, 5]})
    masks["conv4"] = channels(model, {"conv4": [2]}, dim=1)["conv4"]
    reading = read_masks(graph, masks)
    assert (reading.outputs, reading.inputs, reading.fine_grained) == ({"conv2": [1, 5]}, {"conv4": [2]}, {})
    weight = next(mask for mask in reading if mask.name == "conv2.weight")
    assert (weight.slices, weight.zeros) == ({0: [1, 5]}, 2 * 8 * 9)
    assert "conv2: 2 output channels are zero" in str(reading)


def test_fine_grained_masks_say_so(model: nn.Module, graph: mk.DataflowGraph) -> None:
    masks = channels(model, {"conv2": [1]})
    masks["conv2"]["weight"][4, :, 0, 0] = 0
    masks["fc"] = {"weight": torch.eye(5, 8)}
    reading = read_masks(graph, masks)
    # of the unit matrix the last three columns are zero, of what is left 20 single numbers
    assert reading.fine_grained == {"conv2.weight": 8, "fc.weight": 20}
    assert reading.outputs == {"conv2": [1]}
    assert "fc.weight: fine-grained, 20 zeros that cannot be cut" in str(reading)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float16, torch.float64])
def test_masks_of_any_type(model: nn.Module, graph: mk.DataflowGraph, dtype: torch.dtype) -> None:
    weight = channels(model, {"conv2": [0, 7]})["conv2"]["weight"]
    assert weight is not None
    assert read_masks(graph, {"conv2": {"weight": weight.to(dtype)}}).outputs == {"conv2": [0, 7]}
    assert read_masks(graph, {"conv2": {"weight": weight[:, 0, 0, 0].to(dtype)}}).outputs == {"conv2": [0, 7]}


class Sorts(nn.Module):
    """One layer of each kind, square where that hides the sides."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.square = nn.Linear(6, 6)
        self.turned = nn.Parameter(torch.randn(6, 6))  # (in, out), as in GPT-2
        self.mixing = nn.Parameter(torch.randn(6, 6))  # (out, in)
        self.up = nn.ConvTranspose1d(6, 4, 2, groups=2)
        self.grouped = nn.Conv1d(4, 6, 1, groups=2)
        self.both = nn.Bilinear(6, 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        y = y + self.square(y).tanh() @ self.turned
        y = y + (self.mixing @ y.transpose(1, 2)).transpose(1, 2)
        y = self.grouped(self.up(y.transpose(1, 2)).relu()).transpose(1, 2)
        return self.both(y, y)


def _zeros(shape: tuple[int, ...], where: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    mask = torch.ones(shape)
    where(mask).zero_()
    return mask


SIDES: list[tuple[str, torch.Tensor, dict[str, list[int]], dict[str, list[int]]]] = [
    ("table.weight", _zeros((7, 6), lambda m: m[:, 2]), {"table": [2]}, {}),
    ("square.weight", _zeros((6, 6), lambda m: m[1]), {"square": [1]}, {}),
    ("square.weight", _zeros((6, 6), lambda m: m[:, 1]), {}, {"square": [1]}),
    (".turned", _zeros((6, 6), lambda m: m[1]), {}, {"turned": [1]}),
    (".turned", _zeros((6, 6), lambda m: m[:, 1]), {"turned": [1]}, {}),
    (".mixing", _zeros((6, 6), lambda m: m[1]), {"mixing": [1]}, {}),
    # (in, out of a group): the outputs of group 1 are 2 and 3
    ("up.weight", _zeros((6, 2, 2), lambda m: m[3:, 0]), {"up": [2]}, {}),
    ("up.weight", _zeros((6, 2, 2), lambda m: m[4]), {}, {"up": [4]}),
    # (out, in of a group): the inputs of group 1 are 2 and 3
    ("grouped.weight", _zeros((6, 2, 1), lambda m: m[4]), {"grouped": [4]}, {}),
    ("grouped.weight", _zeros((6, 2, 1), lambda m: m[3:, 1]), {}, {"grouped": [3]}),
    ("both.weight", _zeros((3, 6, 6), lambda m: m[2]), {"both": [2]}, {}),
]


@pytest.fixture(scope="module")
def sorts() -> mk.DataflowGraph:
    return mk.trace(seeded(Sorts), torch.randint(7, (2, 5)))


@pytest.mark.parametrize(
    ("name", "mask", "outputs", "inputs"), SIDES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_sides_of_every_kind_of_layer(
    sorts: mk.DataflowGraph, name: str, mask: torch.Tensor, outputs: dict[str, list[int]], inputs: dict[str, list[int]]
) -> None:
    path, _, target = name.rpartition(".")
    reading = read_masks(sorts, {path: {target: mask}})
    assert (reading.outputs, reading.inputs, reading.fine_grained) == (outputs, inputs, {})


@pytest.mark.parametrize(
    ("layer", "dim", "size"), [("up", 0, 4), ("up", 1, 6), ("grouped", 0, 6), ("grouped", 1, 4), ("table", 0, 6)]
)
def test_one_entry_per_channel(sorts: mk.DataflowGraph, layer: str, dim: int, size: int) -> None:
    mask = torch.ones(size)
    mask[1] = mask[-1] = 0
    reading = read_masks(sorts, {layer: {"weight": mask}}, dim)
    found = reading.inputs if dim else reading.outputs
    assert found == {layer: [1, size - 1]}


def test_targets_of_nni_3(model: nn.Module, graph: mk.DataflowGraph) -> None:
    gone = torch.ones(8, 1, 1).index_fill(0, torch.tensor([3]), 0)
    made = infer_masks(graph, {"bn2": {"_output_0": gone}, "conv1": {"_output_0": gone}, "conv4": {"_output_0": gone}})
    assert made.parameters == infer_masks(graph, channels(model, {"conv1": [3], "conv2": [3], "conv4": [3]})).parameters
    # conv4 alone reads what conv3 makes
    taken = torch.ones(1, 6, 1, 1).index_fill(1, torch.tensor([0, 2]), 0)
    assert infer_masks(graph, {"conv4": {"_input_0": taken}}).parameters["conv3.weight"] == {0: [0, 2]}
    # and the sum is read by others than conv3
    assert infer_masks(graph, {"conv3": {"_input_0": gone}}).parameters == {}


def test_a_tied_weight_has_the_zeros_of_all_its_masks() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 2)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.c(self.a(x) + self.b(x))

    graph = mk.trace(seeded(Tied), torch.randn(3, 4))
    masks = {"a": {"weight": _zeros((6, 4), lambda m: m[1])}, "b": {"weight": _zeros((6, 4), lambda m: m[4])}}
    assert infer_masks(graph, masks).parameters["c.weight"] == {1: [1, 4]}


# -------------------------------------------------------------- torch's own


def test_masks_that_torch_left_on_the_model() -> None:
    model = trained(Grouped)
    prune.ln_structured(model.conv1, "weight", 0.25, 2, 0)  # type: ignore[arg-type]
    prune.l1_unstructured(model.fc, "weight", 4)  # type: ignore[arg-type]
    prune.identity(model.conv3, "bias")  # type: ignore[arg-type]
    graph = mk.trace(model, image())
    reading = read_masks(graph)
    assert [mask.name for mask in reading] == ["conv1.weight", "conv3.bias", "fc.weight"]
    assert {name: len(gone) for name, gone in reading.outputs.items()} == {"conv1": 2}
    assert reading.fine_grained == {"fc.weight": 4}
    assert read_masks(graph, "prune").outputs == reading.outputs
    assert str(model.conv1.weight_mask.dtype) in str(reading.source["conv1"]["weight"].dtype)  # type: ignore[union-attr]


def test_masks_of_a_weight_that_is_computed() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 6)), nn.Linear(6, 2))
    graph = mk.trace(model, torch.randn(3, 4))
    masks = {"0": {"weight": _zeros((6, 4), lambda m: m[2])}}
    assert infer_masks(graph, masks).parameters["1.weight"] == {1: [2]}


def test_a_model_without_masks_is_told(graph: mk.DataflowGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="carries none of torch"):
        read_masks(graph)


# -------------------------------------------------------------------- files


def test_a_file_of_masks(tmp_path: Path, model: nn.Module, graph: mk.DataflowGraph) -> None:
    masks = channels(model, {"conv1": [0, 4], "conv3": [5]})
    torch.save(masks, tmp_path / "masks.pth")
    assert read_masks(graph, tmp_path / "masks.pth").outputs == {"conv1": [0, 4], "conv3": [5]}
    assert read_masks(graph, str(tmp_path / "masks.pth")).outputs == {"conv1": [0, 4], "conv3": [5]}
    torch.save(masks, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert read_masks(graph, tmp_path / "old.pth").outputs == {"conv1": [0, 4], "conv3": [5]}


class _Runs:
    ran = False

    def __reduce__(self) -> Any:
        return setattr, (_Runs, "ran", True)


def test_a_file_runs_no_code(tmp_path: Path, graph: mk.DataflowGraph) -> None:
    torch.save({"conv1": {"weight": _Runs()}}, tmp_path / "evil.pth")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"conv1": _Runs()}))
    for name in ("evil.pth", "evil.pkl"):
        with pytest.raises(mk.ModuleKGError, match="cannot be loaded as masks"):
            read_masks(graph, tmp_path / name)
    assert not _Runs.ran


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04broken", b"not masks at all" * 100])
def test_a_broken_file_is_told(tmp_path: Path, graph: mk.DataflowGraph, content: bytes) -> None:
    (tmp_path / "masks.pth").write_bytes(content)
    with pytest.raises(mk.ModuleKGError, match="masks"):
        read_masks(graph, tmp_path / "masks.pth")


def test_files_that_are_none_or_too_large(tmp_path: Path, model: nn.Module, graph: mk.DataflowGraph) -> None:
    with pytest.raises(mk.ModuleKGError, match="there is no file"):
        read_masks(graph, tmp_path / "none.pth")
    with pytest.raises(mk.ModuleKGError, match="there is no file"):
        read_masks(graph, tmp_path)
    torch.save(channels(model, {"conv2": [0]}), tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry))
        bomb.writestr("archive/data/9", bytes(1 << 20))
    assert (tmp_path / "bomb.pth").stat().st_size < 1 << 16
    with pytest.raises(mk.ModuleKGError, match="unpacks to"):
        load_masks(tmp_path / "bomb.pth", most=1 << 16)


# ------------------------------------------------------------ what no mask is

HUGE = torch.ones(1).expand(1 << 40)
REFUSED: list[tuple[Any, str]] = [
    ([], "got a list"),
    (7, "got an int"),
    ({}, "name no layer"),
    ({1: {"weight": torch.ones(8)}}, "a layer is named by text"),
    ({"conv2": torch.ones(8)}, "stands a Tensor"),
    ({"conv2": {2: torch.ones(8)}}, "a target that is an int"),
    ({"conv2": {"weight": [1, 0]}}, "is a list, not a tensor"),
    ({"conv2": {"weight": {"weight": torch.ones(8)}}}, "is a dict, not a tensor"),
    ({"conv22": {"weight": torch.ones(8)}}, "did you mean 'conv2'"),
    ({"module.conv2" + "x" * 100000: {"weight": torch.ones(8)}}, "which the model does not have"),
    ({"conv2\x1b[2J": {"weight": torch.ones(8)}}, "x1b"),
    ({"conv2": {"wieght": torch.ones(8)}}, "did you mean 'weight'"),
    ({"conv2": {"_output_1": torch.ones(8)}}, "no such tensor"),
    ({"conv1": {"bias": torch.ones(8)}}, "no such tensor"),
    ({"conv2": {"weight": torch.ones(7)}}, r"shape \[7\].*or \[8\] for its output"),
    ({"conv2": {"weight": torch.ones(8, 8)}}, r"shape \[8, 8\]"),
    ({"conv2": {"weight": torch.tensor(1.0)}}, r"shape \[\]"),
    ({"conv2": {"weight": HUGE}}, "shape"),
    ({"conv2": {"_output_0": torch.ones(8)}}, "broadcasts"),
    ({"conv2": {"weight": torch.full((8,), 0.5)}}, "from 0.5 to 0.5"),
    ({"conv2": {"weight": torch.full((8,), float("nan"))}}, "from nan"),
    ({"conv2": {"weight": -torch.ones(8)}}, "from -1.0"),
    ({"conv2": {"weight": torch.ones(8, dtype=torch.complex64)}}, "complex"),
    ({"conv2": {"weight": torch.ones(8).to_sparse()}}, "sparse"),
    ({"conv2": {"weight": torch.ones(8, device="meta")}}, "on meta"),
]  # fmt: skip


@pytest.mark.parametrize(("masks", "message"), REFUSED, ids=[message[:20] for _, message in REFUSED])
def test_what_is_no_mask_is_refused_with_advice(graph: mk.DataflowGraph, masks: Any, message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message) as caught:
        read_masks(graph, masks)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("dim", [2, -1, "0", True, 0.5])
def test_other_dimensions_are_refused(model: nn.Module, graph: mk.DataflowGraph, dim: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match="conv_prune_dim is 0 for output channels"):
        read_masks(graph, channels(model, {"conv2": [0]}), dim)


def test_something_else_than_a_graph_is_refused(model: nn.Module) -> None:
    with pytest.raises(mk.ModuleKGError, match=r"mk.trace\(model, args\), got a Residual"):
        read_masks(model, channels(model, {"conv2": [0]}))  # type: ignore[arg-type]


def test_masks_without_zeros_say_nothing(model: nn.Module, graph: mk.DataflowGraph) -> None:
    masks = channels(model, {"conv2": [], "fc": []})
    masks["bn1"] = {"weight": None, "bias": None}
    reading = read_masks(graph, masks)
    assert (reading.outputs, reading.inputs, reading.fine_grained) == ({}, {}, {})
    assert infer_masks(graph, masks).parameters == {}


# ---------------------------------------------------------------- inference


def test_masks_of_all_other_modules_follow() -> None:
    model = trained(Depthwise)
    graph = mk.trace(model, image())
    masks = channels(model, {"conv2": [0, 7]})
    before = copy.deepcopy(masks)
    found = infer_masks(graph, masks)
    gone = {0: [0, 7]}
    norm = {f"bn{at}.{name}": gone for at in (2, 3) for name in ("weight", "bias", "running_mean", "running_var")}
    assert found.parameters == {
        "conv2.weight": gone, "conv2.bias": gone, "conv3.weight": gone, "conv3.bias": gone, **norm,
        "conv4.weight": {1: [0, 7]},
    }  # fmt: skip
    assert found.axes == {"conv2.out": [0, 7]}
    assert found.values[graph.modules["conv3"].outputs[0].name] == {1: [0, 7]}
    assert found.left == {}
    assert list(found.modules) == ["conv2", "bn2", "conv3", "bn3", "conv4"]
    assert rows(found.modules, "conv3") == [0, 7]
    assert rows(found.modules, "conv4", 1) == [0, 7]
    assert found.modules["conv4"]["bias"].all()  # type: ignore[union-attr]
    for name, targets in masks.items():
        for target, mask in targets.items():
            assert torch.equal(mask, before[name][target])  # type: ignore[arg-type]
            assert torch.equal(found.modules[name][target], mask)  # type: ignore[arg-type]


def test_inferred_masks_are_saved_and_read_again(tmp_path: Path) -> None:
    model = trained(Grouped)
    graph = mk.trace(model, image())
    masks = channels(model, {"conv1": [0, 4], "conv3": [2]})
    masks["conv3"]["weight"][5, :3] = 0  # type: ignore[index]
    found = infer_masks(graph, masks)
    assert found.left == {"conv3.weight": 3}
    found.save(tmp_path / "masks.pth")
    loaded = torch.load(tmp_path / "masks.pth", weights_only=True)
    assert {name: sorted(targets) for name, targets in loaded.items()} == {
        name: ["bias", "weight"] for name in ("conv1", "bn1", "conv2", "conv3", "bn3", "fc")
    }
    again = infer_masks(graph, tmp_path / "masks.pth")
    assert (again.parameters, again.left) == (found.parameters, {"conv3.weight": 3})
    # what was inferred says the same from the side of the readers
    assert infer_masks(graph, tmp_path / "masks.pth", 1).parameters == found.parameters
    assert infer_masks(graph, tmp_path / "masks.pth", None).parameters == found.parameters


def test_masked_readers_take_what_is_made_for_them_alone(model: nn.Module, graph: mk.DataflowGraph) -> None:
    found = infer_masks(graph, channels(model, {"conv4": [1, 3]}, dim=1), 1)
    assert found.parameters["conv3.weight"] == found.parameters["bn3.weight"] == {0: [1, 3]}
    assert found.parameters["conv4.weight"] == {1: [1, 3]}
    # the same zeros are no output channels
    assert infer_masks(graph, channels(model, {"conv4": [1, 3]}, dim=1), 0).parameters == {}


def test_a_masked_batch_norm_closes_the_way(model: nn.Module, graph: mk.DataflowGraph) -> None:
    found = infer_masks(graph, {"bn3": {"weight": torch.tensor([1.0, 0, 1, 1, 1, 0])}})
    assert found.parameters["conv3.weight"] == {0: [1, 5]}
    assert found.modules["bn3"]["bias"].tolist() == [1, 0, 1, 1, 1, 0]  # type: ignore[union-attr]
    # a shift that is zero closes nothing
    assert infer_masks(graph, {"bn3": {"bias": torch.tensor([1.0, 0, 1, 1, 1, 0])}}).left == {"bn3.bias": 2}


def test_reading_leaves_the_model_alone(model: nn.Module, graph: mk.DataflowGraph) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    infer_masks(graph, channels(model, {"conv3": [0, 1]}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.conv3.out_channels == 6
