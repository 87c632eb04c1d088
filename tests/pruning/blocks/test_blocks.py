"""Whole residual blocks: found without names, removed, planned together with widths, and back byte for byte."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from models.transformers_models import build
from modulekg_widgets.engine.errors import CutError


class Inner(nn.Module):
    """A branch: a normalisation, a layer, and an output layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.into(self.norm(x)).relu())


class Residual(nn.Module):
    def __init__(self, width: int, scaled: bool = False) -> None:
        super().__init__()
        self.f = Inner(width)
        self.scale = nn.Parameter(torch.full((width,), 0.5)) if scaled else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.f(x)
        return x + (out if self.scale is None else self.scale * out)


class Iterated(nn.Module):
    """Its layers are gone through; the number of each is known to it, and the count to nobody."""

    def __init__(self, width: int = 6, depth: int = 3) -> None:
        super().__init__()
        self.into = nn.Linear(4, width)
        self.layers = nn.ModuleList(Residual(width, scaled=at == 1) for at in range(depth))
        for at, layer in enumerate(self.layers):
            layer.place = at  # pyright: ignore[reportArgumentType]
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Indexed(Iterated):
    """It takes its layers by number, so that each place has to stay."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for at in range(3):
            x = self.layers[at](x)
        return self.head(x)


class PostNorm(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.f, self.norm = Inner(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.f(x))


class Leaking(Residual):
    """What its branch computes is used behind the block too."""

    def forward(self, x: torch.Tensor) -> Any:
        out = self.f(x)
        return x + out, out


class WithLeak(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Leaking(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, other = self.block(x)
        return x * other


def paths(model: nn.Module, *args: Any, **kwargs: Any) -> list[str]:
    return list(mk.trace(model.eval(), args, kwargs).blocks()["path"])


@pytest.mark.parametrize(
    ("make", "width", "expected"),
    [
        (Iterated, 4, ["layers.0", "layers.1", "layers.2"]),
        (Indexed, 4, ["layers.0", "layers.1", "layers.2"]),
        (lambda: nn.Sequential(nn.Linear(4, 6), Residual(6), nn.Linear(6, 2)), 4, ["1"]),
        (lambda: nn.Sequential(PostNorm(), PostNorm()), 6, ["0.f", "1.f"]),
        (WithLeak, 6, []),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), 4, []),
    ],
)
def test_blocks_are_found_in_the_data_flow(make: Any, width: int, expected: list[str]) -> None:
    assert paths(make(), torch.randn(3, width)) == expected


def test_a_row_has_the_parameters_and_flops_that_go() -> None:
    graph = mk.trace(Iterated(), torch.randn(3, 4))
    table = graph.blocks()
    assert list(table.columns) == ["path", "params", "flops"]
    layer = graph.model.get_submodule("layers.1")
    assert table["params"][1] == sum(each.numel() for each in layer.parameters())
    assert table["flops"][1] == int(graph.modules["layers.1"].flops())


def state_of(model: nn.Module) -> list[Any]:
    every = [*model.state_dict().items()]
    return [[name for name, _ in model.named_modules()], [(name, tensor.clone()) for name, tensor in every],
            [{name: value for name, value in vars(module).items() if type(value) in (int, str, float, bool)}
             for module in model.modules()]]  # fmt: skip


def same(left: list[Any], right: list[Any]) -> bool:
    tensors = all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(left[1], right[1], strict=True))
    return tensors and left[0] == right[0] and left[2] == right[2]


def output_of(result: Any) -> torch.Tensor:
    first = next(iter(result.values())) if isinstance(result, dict) else result
    return first if isinstance(first, torch.Tensor) else first[0]


def check_each_block(model: nn.Module, args: Any, kwargs: dict[str, Any]) -> int:
    """Every block alone: the model runs, its outputs keep their shapes, and all comes back; how many there are."""
    graph = mk.trace(model, args, kwargs)
    before, whole = state_of(model), output_of(model(*args, **kwargs))
    found = list(graph.blocks()["path"])
    for path in found:
        plan = mk.plan(graph, blocks=[path])
        assert plan.blocks == (path,)
        receipt = plan.cut(model)
        assert sum(each.numel() for each in model.parameters()) <= plan.params[0]
        assert output_of(model(*args, **kwargs)).shape == whole.shape, path
        receipt.undo()
        assert same(before, state_of(model)), path
    assert torch.equal(output_of(model(*args, **kwargs)), whole)
    return len(found)


@pytest.mark.parametrize("make", [Iterated, Indexed])
def test_every_block_alone_runs_and_comes_back(make: Any) -> None:
    assert check_each_block(make().eval(), (torch.randn(3, 4),), {}) == 3


@pytest.mark.parametrize(("name", "count"), [("llama", 6), ("bert", 4), ("t5", 14), ("gptj", 6)])
@torch.no_grad()
@pytest.mark.slow
def test_every_block_of_a_transformer(name: str, count: int) -> None:
    model, kwargs = build(name)
    assert check_each_block(model.eval(), (), kwargs) == count


def zeroed(model: nn.Module, path: str) -> None:
    """Set the last layer of a block to zero, so that its branch gives zeros."""
    for layer in model.get_submodule(path).modules():
        last = getattr(layer, "out", None) or getattr(layer, "conv2", None)
        if isinstance(last, nn.Module):
            for parameter in last.parameters():
                nn.init.zeros_(parameter)
        if isinstance(norm := getattr(layer, "bn2", None), nn.Module):
            nn.init.zeros_(norm.bias)  # pyright: ignore[reportArgumentType]
            norm.running_mean.zero_()  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue, reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("model", "path", "shape"),
    [
        (Iterated(), "layers.0", (3, 4)),
        (Indexed(), "layers.1", (3, 4)),
        (nn.Sequential(PostNorm(), PostNorm()), "1.f", (3, 6)),
        (torchvision.models.resnet18(), "layer1.0", (1, 3, 64, 64)),  # its input comes of a relu and a maximum
        (torchvision.models.resnet18(), "layer3.1", (1, 3, 64, 64)),
    ],
)
@torch.no_grad()
def test_a_block_that_does_nothing_changes_nothing(model: nn.Module, path: str, shape: tuple[int, ...]) -> None:
    model = copy.deepcopy(model).double().eval()
    zeroed(model, path)
    x = torch.randn(shape, dtype=torch.float64)
    whole = model(x)
    mk.plan(mk.trace(model, x), blocks=[path]).cut(model)
    assert torch.allclose(model(x), whole, rtol=0, atol=1e-9)


def test_the_modules_behind_move_up_and_know_their_place() -> None:
    model = Iterated().eval()
    last = model.layers[2]
    receipt = mk.plan(mk.trace(model, torch.randn(3, 4)), blocks=["layers.1"]).cut(model)
    assert len(model.layers) == 2
    assert model.layers[1] is last
    assert [layer.place for layer in model.layers] == [0, 1]
    receipt.undo()
    assert [layer.place for layer in model.layers] == [0, 1, 2]


def test_caches_and_configurations_follow() -> None:
    built, kwargs = build("llama")
    model: Any = built
    model.eval()
    plan = mk.plan(mk.trace(model, kwargs=kwargs), blocks=["model.layers.0"])
    receipt = plan.cut(model)
    assert model.config.num_hidden_layers == 1
    assert model.model.layers[0].self_attn.layer_idx == 0
    start = kwargs["input_ids"]
    with_cache, without = (
        model.generate(start, max_new_tokens=4, do_sample=False, use_cache=use) for use in (True, False)
    )
    assert torch.equal(with_cache, without)
    receipt.undo()
    assert model.config.num_hidden_layers == 2


@pytest.mark.parametrize("how", [{"ratio": 0.5}, {"target": {"params": 0.3}}, {"target": {"flops": 0.9}}])
def test_widths_and_blocks_in_one_plan(how: dict[str, Any], tmp_path: Path) -> None:
    model = Iterated(width=16).eval()
    x = torch.randn(3, 4)
    graph = mk.trace(model, x)
    before = state_of(model)
    plan = mk.plan(graph, blocks=1, **how)
    assert len(plan.blocks) == 1
    assert repr(mk.plan(graph, blocks=1, **how)) == repr(plan)
    plan.save(tmp_path / "plan.json")
    read = mk.load_plan(tmp_path / "plan.json")
    assert (read.edits, read.blocks, read.params) == (plan.edits, plan.blocks, plan.params)
    receipt = read.cut(model)
    assert sum(each.numel() for each in model.parameters()) == plan.params[1]
    if "target" in how:
        unit, share = next(iter(how["target"].items()))
        assert getattr(plan, unit)[1] <= share * getattr(plan, unit)[0] * 1.01
    assert model(x).shape == (3, 2)
    assert int(mk.trace(model, x).flops()) == plan.flops[1]
    receipt.undo()
    assert same(before, state_of(model))


def test_copies_pickles_and_train_mode() -> None:
    model = Indexed()
    x = torch.randn(3, 4)
    plan = mk.plan(mk.trace(model, x), blocks=["layers.1"], ratio=0.25)
    twin = copy.deepcopy(model)
    average = copy.deepcopy(model)
    receipt = plan.cut(model, copies=[average])
    plan.cut(twin)
    for other in (twin, average, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
    model.train()(x).sum().backward()
    receipt.undo()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), average.parameters(), strict=True))


def test_what_stands_in_exports() -> None:
    model = Indexed().eval()
    x = torch.randn(3, 4)
    mk.plan(mk.trace(model, x), blocks=["layers.1"]).cut(model)
    exported = torch.export.export(model, (x,)).module()
    assert torch.allclose(exported(x), model(x))


# ---------------------------------------------------------------- importance


def with_idle_block(idle: int) -> Iterated:
    model = Iterated().eval()
    with torch.no_grad():
        for parameter in model.get_submodule(f"layers.{idle}.f.out").parameters():
            parameter *= 1e-3
    return model


@pytest.mark.parametrize("idle", [0, 1, 2])
def test_the_block_that_does_least_goes_first(idle: int) -> None:
    torch.manual_seed(0)
    model = with_idle_block(idle)
    batches = [torch.randn(5, 4) for _ in range(2)]
    graph = mk.trace(model, batches[0])
    influence = mk.pruning.BlockInfluence(batches)
    taylor = mk.pruning.Taylor([(x, torch.zeros(5, dtype=torch.long)) for x in batches], nn.functional.cross_entropy)
    for importance in (influence, taylor):
        assert mk.plan(graph, blocks=1, importance=importance).blocks == (f"layers.{idle}",)


def test_block_influence_is_one_minus_the_cosine() -> None:
    model = Iterated().eval()
    x = torch.randn(5, 4)
    graph = mk.trace(model, x)
    from modulekg_widgets.engine.residuals.removable_blocks import residual_blocks

    scores = mk.pruning.BlockInfluence([x]).block_scores(graph, residual_blocks(graph))
    value = model.into(x)
    for at, layer in enumerate(model.layers):
        out = layer(value)
        expected = 1 - torch.nn.functional.cosine_similarity(value.double(), out.double(), dim=-1).mean().detach()
        assert abs(scores[f"layers.{at}"] - float(expected)) < 1e-6
        value = out


# ------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (0, "has 3 removable blocks"), (4, "has 3 removable blocks"), (-1, "3 removable"), (1.5, "between 0 and 1"),
        (True, "pass a number"), ("layers.1", "pass a number"), ([], "empty"), (["head"], "not a removable"),
        (["layers.9"], "not a module"), ([3], "has 3 in it"),
    ],
)  # fmt: skip
def test_what_names_no_blocks_is_refused(blocks: Any, message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        mk.plan(mk.trace(Iterated(), torch.randn(3, 4)), blocks=blocks)


def test_an_importance_of_indices_alone_is_refused_by_name() -> None:
    graph = mk.trace(Iterated(), torch.randn(3, 4))
    with pytest.raises(mk.ModuleKGError, match="BlockInfluence"):
        mk.plan(graph, blocks=1, importance="fpgm")
    assert mk.plan(graph, blocks=["layers.1"], importance="fpgm").blocks == ("layers.1",)


def test_a_mask_takes_no_blocks() -> None:
    model = Iterated()
    plan = mk.plan(mk.trace(model, torch.randn(3, 4)), blocks=1)
    with pytest.raises(mk.ModuleKGError, match=r"plan\.cut"):
        plan.mask(model)


def test_a_cut_of_another_model_or_a_changed_one_is_refused() -> None:
    model = Iterated()
    plan = mk.plan(mk.trace(model, torch.randn(3, 4)), blocks=["layers.2"])
    with pytest.raises(mk.ModuleKGError, match=r"layers\.2"):
        plan.cut(Iterated(depth=2))
    receipt = plan.cut(model)
    model.layers.append(Residual(6))
    with pytest.raises(mk.ModuleKGError, match="since the cut"):
        receipt.undo()
    del model.layers[2]
    receipt.undo()
    assert len(model.layers) == 3


class Keeping(nn.Module):
    """A block that computes a table when it is called first, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(4.0).mul(2).add(1)
        return x + self.layer(x * self.table)


def test_a_block_goes_when_modules_have_kept_since_the_trace_what_they_computed() -> None:
    model, x = nn.Sequential(Keeping(), Keeping(), Keeping()).eval(), torch.randn(3, 4)
    graph = mk.trace(model, x)
    model(x)
    mk.plan(graph, blocks=["1"]).cut(model)
    assert len(model) == 2


# ------------------------------------------------------------- modes of a call


class Encoder(nn.Module):
    def __init__(self, norm_first: bool, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0, norm_first=norm_first)
        self.table, self.head = nn.Embedding(20, 16), nn.Linear(16, 4)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.table(tokens), src_key_padding_mask=tokens == 0))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("norm_first", "nested"), [(False, False), (False, True), (True, False)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_cut_model_runs_in_each_mode(training: bool, norm_first: bool, nested: bool) -> None:
    torch.manual_seed(0)
    model = Encoder(norm_first, nested).train(training)
    tokens = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    graph = mk.trace(model, tokens)
    before = copy.deepcopy(model)
    paths = list(graph.blocks()["path"])
    assert {f"encoder.layers.{at}.{name}" for at in (0, 1) for name in ("self_attn", "linear2")} <= set(paths)
    for path in paths:
        receipt = mk.plan(graph, blocks=[path]).cut(model)
        outputs = []
        for mode, gradients in itertools.product((True, False), repeat=2):
            with torch.set_grad_enabled(gradients):
                outputs.append(model.train(mode)(tokens)[tokens > 0])
        assert all(torch.allclose(output, outputs[0], atol=1e-5) for output in outputs)
        model.train(training)
        receipt.undo()
        for one, other in zip(model.modules(), before.modules(), strict=True):
            assert getattr(one, "activation_relu_or_gelu", 0) == getattr(other, "activation_relu_or_gelu", 0)
            assert getattr(one, "use_nested_tensor", 0) == getattr(other, "use_nested_tensor", 0)


class Fused(nn.Module):
    """Computes with the weight of a part by itself, in the modes that `when` names."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.part, self.last, self.when = nn.Linear(6, 6), nn.Linear(6, 6), when

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        modes = {"eval": not self.training, "train": self.training, "no_grad": not torch.is_grad_enabled()}
        if modes.get(self.when, False):
            return self.last(x + x @ self.part.weight.T + self.part.bias)
        return self.last(x + self.part(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("when", "can_go"), [("eval", False), ("train", False), ("no_grad", False), ("never", True)])
def test_a_block_whose_weights_some_mode_reads_past_it_stays(when: str, can_go: bool, training: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 6), Fused(when), nn.Linear(6, 2)).train(training)
    graph = mk.trace(model, torch.randn(3, 4))
    assert ("1.part" in list(graph.blocks()["path"])) is can_go
    if not can_go:
        with pytest.raises(mk.ModuleKGError, match=r"1\.part"):
            mk.plan(graph, blocks=["1.part"])


def test_modes_that_the_whole_model_stops_in_do_not_count() -> None:
    class OnlyEval(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise RuntimeError("the targets are missing")
            return self.last(x + self.part(x))

    model = nn.Sequential(nn.Linear(4, 6), OnlyEval(), nn.Linear(6, 2)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert "1.part" in list(mk.trace(model, torch.randn(3, 4)).blocks()["path"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_keep_spares_blocks_and_what_is_in_them() -> None:
    torch.manual_seed(0)
    graph = mk.trace(Iterated(), torch.randn(2, 4))
    for keep in (
        "layers.0",
        ["layers.0.f.into"],
        "layers.0.f.out.weight",
        graph.model.get_submodule("layers.0"),
        "layers.0*",
    ):
        plan = mk.plan(graph, blocks=2, keep=keep)
        assert plan.blocks == ("layers.1", "layers.2")
        with pytest.raises(CutError, match=r"keep protects 'layers\.0"):
            mk.plan(graph, blocks=["layers.0"], keep=keep)
    with pytest.raises(CutError, match="keep=… leaves 2, 3 are asked for"):
        mk.plan(graph, blocks=3, keep="layers.1")
    with pytest.raises(CutError, match="keep=… leaves 0"):
        mk.plan(graph, blocks=1, keep="layers")
    plan = mk.plan(graph, blocks=1, ratio=0.5, keep=["layers.0.f.into", "layers.1.scale"])
    assert plan.blocks == ("layers.2",)
    assert [axis.name for axis in plan.axes] == ["layers.1.f.into.out"]
