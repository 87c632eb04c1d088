"""mk.diff with files: every tensor in one pair, and what differs by its right name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import NotAModuleError

safetensors = pytest.importorskip("safetensors.torch")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.act = nn.BatchNorm1d(width), nn.Linear(width, 2 * width), nn.GELU()


def model(width: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, width), Block(width), Block(width), nn.Linear(width, 3))


def saved(net: nn.Module | dict[str, torch.Tensor], path: Path) -> mk.ModelFile:
    state = net.state_dict() if isinstance(net, nn.Module) else net
    safetensors.save_file({name: tensor.clone() for name, tensor in state.items()}, path)
    return mk.open_file(path)


def test_a_file_is_the_model_that_it_was_saved_from(tmp_path: Path) -> None:
    net = model()
    file = saved(net, tmp_path / "x.safetensors")
    for found in (mk.diff(file, net), mk.diff(net, file), mk.diff(file, file), mk.diff(file, net, weights=True)):
        assert found.identical
        assert found.counts == {}
        assert len(found.pairs) == len(net.state_dict())
        assert found.structure.identical
    assert "and values" in str(mk.diff(file, net, weights=True))


def test_each_kind_of_difference_has_its_name(tmp_path: Path) -> None:
    net, other = model(), model()
    state = dict(other.state_dict())
    state["head.weight"] = state.pop("3.weight")
    state["1.up.weight"] = state["1.up.weight"][:4].clone()
    state["1.up.bias"] = state["1.up.bias"].half()
    state["2.up.bias"] = state["2.up.bias"] + torch.tensor([0.0] * 11 + [0.25])
    del state["2.norm.running_mean"]
    state["extra"] = torch.zeros(5)
    left, right = saved(net, tmp_path / "a.safetensors"), saved(state, tmp_path / "b.safetensors")
    found = mk.diff(left, right, weights=True)
    assert not found.identical
    told = {(pair.left or pair.right).name: pair for pair in found.differences}
    assert {name: pair.status for name, pair in told.items()} == {
        "3.weight": "renamed",
        "1.up.weight": "reshaped",
        "1.up.bias": "retyped",
        "2.up.bias": "changed",
        "2.norm.running_mean": "removed",
        "extra": "added",
    }
    assert told["3.weight"].right.name == "head.weight"
    assert told["2.up.bias"].difference == pytest.approx(0.25)
    assert found.counts == dict.fromkeys(("renamed", "reshaped", "retyped", "changed", "removed", "added"), 1)
    names = {end.name for pair in found.pairs for end in (pair.left, pair.right) if end}
    assert names == net.state_dict().keys() | state.keys()
    table = found.table()
    assert list(table.columns[:3]) == ["status", "left", "right"]
    assert len(table) == len(found.pairs)
    without = mk.diff(left, right)
    assert "changed" not in without.counts


def test_a_prefix_is_a_renaming(tmp_path: Path) -> None:
    net = model()
    prefixed = {f"module.{name}": tensor for name, tensor in net.state_dict().items()}
    found = mk.diff(saved(prefixed, tmp_path / "x.safetensors"), net, weights=True)
    assert found.counts == {"renamed": len(prefixed)}
    assert all(pair.left.name == f"module.{pair.right.name}" for pair in found.pairs)


def test_tied_tensors_of_which_a_file_has_one_are_not_missing(tmp_path: Path) -> None:
    net = nn.ModuleDict({"embed": nn.Embedding(7, 4), "head": nn.Linear(4, 7, bias=False)})
    net["head"].weight = net["embed"].weight
    file = saved({"embed.weight": net["embed"].weight.detach()}, tmp_path / "x.safetensors")
    assert mk.diff(file, net, weights=True).identical
    assert mk.diff(net, file).identical


def test_values_of_two_live_models_are_compared_as_well() -> None:
    net, other = model(), model()
    assert isinstance(mk.diff(net, other), type(mk.diff(net, net)))
    assert mk.diff(net, other, weights=True).identical
    with torch.no_grad():
        other[3].weight[0, 0] = float("nan")
    found = mk.diff(net, other, weights=True)
    assert found.counts == {"changed": 1}
    assert found.differences[0].difference != found.differences[0].difference  # NaN


def test_the_same_nans_and_infinities_are_no_change(tmp_path: Path) -> None:
    net = model()
    with torch.no_grad():
        net[3].weight[0] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0])
    file = saved(net, tmp_path / "x.safetensors")
    assert mk.diff(file, net, weights=True).identical
    with torch.no_grad():
        net[3].weight[0, 5] = 2.0
    assert mk.diff(file, net, weights=True).differences[0].difference == 1.0


def test_values_that_there_are_not_are_told_as_unread(tmp_path: Path) -> None:
    file = saved(model(), tmp_path / "x.safetensors")
    found = mk.diff(file, model().to("meta"), weights=True)
    assert found.counts == {"unread": len(file.tensors())}
    assert not found.identical
    assert mk.diff(file, model().to("meta")).identical


def test_buffers_that_no_file_has_are_not_missing(tmp_path: Path) -> None:
    net = model()
    net[1].register_buffer("cache", torch.zeros(3), persistent=False)
    assert mk.diff(saved(net, tmp_path / "x.safetensors"), net).identical


def test_the_trees_of_a_file_and_a_model_are_compared_without_classes(tmp_path: Path) -> None:
    net = model()
    file = saved(net, tmp_path / "x.safetensors")
    net[1].up = nn.Linear(6, 13)
    structure = mk.diff(file, net).structure
    assert structure.counts == {"changed": 1}
    assert "1.up" in str(structure)
    graph = mk.ModelGraph(file, compare=net)
    assert graph.view == "diff"
    assert graph.payload["compare"]["left"].count("changed") == 3  # with what it stands in


def test_nothing_is_written_to_a_model_that_is_compared(tmp_path: Path) -> None:
    net = model()
    file = saved(net, tmp_path / "x.safetensors")
    before, state = mk.weight_fingerprint(net), {name: id(value) for name, value in vars(net).items()}
    mk.diff(file, net, weights=True)
    assert mk.weight_fingerprint(net) == before
    assert {name: id(value) for name, value in vars(net).items()} == state


def test_other_things_are_refused(tmp_path: Path) -> None:
    file = saved(model(), tmp_path / "x.safetensors")
    with pytest.raises(NotAModuleError):
        mk.diff(file, "model")  # type: ignore[arg-type]


def test_large_tensors_are_compared_a_part_at_a_time(tmp_path: Path) -> None:
    one = torch.zeros(3, 1 << 22)
    other = one.clone()
    other[2, -1] = 0.5
    left, right = saved({"x": one}, tmp_path / "a.safetensors"), saved({"x": other}, tmp_path / "b.safetensors")
    assert mk.diff(left, right, weights=True).differences[0].difference == 0.5
    assert mk.diff(left, left, weights=True).identical


def test_constants_of_code_count_between_files_and_not_beside_a_model(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.fc, self.size = nn.Linear(4, 4), size

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x) * torch.arange(self.size, dtype=torch.float32).sum()

    files = []
    for size in (3, 5):
        torch.jit.freeze(torch.jit.trace(Scaled(size).eval(), torch.zeros(1, 4))).save(tmp_path / f"{size}.pt")
        files.append(mk.open_file(tmp_path / f"{size}.pt"))
    assert len(files[0].tensors()) > 0
    assert not mk.diff(*files, weights=True).identical
    assert "removed" not in mk.diff(files[0], Scaled(3)).counts


def test_operators_of_two_graphs_are_compared(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self, act: nn.Module, swapped: bool = False) -> None:
            super().__init__()
            self.act, self.swapped = act, swapped

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x, y = (y, x) if self.swapped else (x, y)
            return self.act(x) - y.sin()

    def export(name: str, *args: object) -> mk.ModelFile:
        torch.export.save(torch.export.export(Two(*args), (torch.zeros(3), torch.ones(3))), tmp_path / name)
        return mk.open_file(tmp_path / name)

    relu, again, gelu = export("a.pt2", nn.ReLU()), export("b.pt2", nn.ReLU()), export("c.pt2", nn.GELU())
    leaky = [export(f"{i}.pt2", nn.LeakyReLU(slope)) for i, slope in enumerate((0.1, 0.2))]
    swapped = export("s.pt2", nn.ReLU(), True)
    same = mk.diff(relu, again)
    assert same.identical
    assert same.operators == []
    assert "operators" in str(same)
    other = mk.diff(relu, gelu)
    assert not other.identical
    assert other.counts == {"operators removed": 1, "operators added": 1}
    assert "relu" in str(other)
    assert mk.diff(*leaky).counts == {"operators removed": 1, "operators added": 1}
    assert set(mk.diff(relu, swapped).counts) == {"operators rewired"}
    assert mk.diff(relu, Two(nn.ReLU())).operators is None


def test_a_model_in_a_checkpoint_is_found_behind_its_prefix(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    net[3](torch.zeros(1, 6)).sum().backward()
    optimizer.step()
    average = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state = {"state_dict": net.state_dict(), "state_dict_ema": average, "optimizer": optimizer.state_dict()}
    torch.save(state, tmp_path / "run.pth")
    found = mk.diff(mk.open_file(tmp_path / "run.pth"), net, weights=True)
    assert found.counts["renamed"] == len(average)
    assert "added" not in found.counts
    assert {pair.left.name.partition(".")[0] for pair in found.pairs if pair.status == "renamed"} == {"state_dict"}


def test_tensors_that_only_happen_to_have_a_size_in_common_are_not_renamed(tmp_path: Path) -> None:
    one = {f"encoder.layer_{i}.ln_{k}.weight": torch.ones(8) for i in range(3) for k in (1, 2)}
    other = {f"blocks.{i}.{part}.LayerNorm.weight": torch.ones(8) for i in range(3) for part in ("in", "out")}
    found = mk.diff(saved(one, tmp_path / "a.safetensors"), saved(other, tmp_path / "b.safetensors"))
    assert found.counts == {"removed": 6, "added": 6}


@pytest.mark.parametrize("ending", [".pt2", ".script.pt", ".pt", ".pth", ".safetensors"])
@pytest.mark.slow
def test_the_tree_of_a_file_is_that_of_its_model(ending: str, tmp_path: Path) -> None:
    from files.exports import WRITERS

    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    net = timm.create_model("mobilenetv3_small_050", pretrained=False).eval()
    path = tmp_path / f"net{ending}"
    with torch.no_grad():
        WRITERS[ending]((net, (torch.zeros(1, 3, 32, 32),)), path)
    found = mk.diff(mk.open_file(path), net)
    assert found.identical, str(found)
    assert found.structure.identical, str(found.structure)
