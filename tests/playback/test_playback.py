"""A forward pass call by call: what is recorded of it, and that model, inputs and process stay as they were."""

from __future__ import annotations

import warnings
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from checks.model_state import surroundings, unchanged
from models.functional import Lambda
from models.nasty import nasty_module
from models.zoo import zoo_model
from modulekg_widgets.engine.playback import player as playback
from modulekg_widgets.engine.playback import steps as playing
from modulekg_widgets.engine.playback.player import Playback


def small_cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 70, 3), nn.BatchNorm2d(70), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(280, 10),
    )  # fmt: skip


def shapes(played: Playback) -> list[tuple[str, list[tuple[int, ...]], list[tuple[int, ...]]]]:
    return [(s.path, [i.sizes for i in s.inputs], [o.sizes for o in s.outputs]) for s in played.steps]


def test_a_cnn_in_training_call_by_call() -> None:
    model, x = small_cnn(), torch.randn(4, 3, 16, 16)
    torch.manual_seed(5)
    with unchanged(model, x):
        played = Playback(model, x)
    assert shapes(played) == [
        ("", [(4, 3, 16, 16)], [(4, 10)]),
        ("0", [(4, 3, 16, 16)], [(4, 70, 14, 14)]),
        ("1", [(4, 70, 14, 14)], [(4, 70, 14, 14)]),
        ("2", [(4, 70, 14, 14)], [(4, 70, 14, 14)]),
        ("3", [(4, 70, 14, 14)], [(4, 70, 14, 14)]),
        ("4", [(4, 70, 14, 14)], [(4, 70, 2, 2)]),
        ("5", [(4, 70, 2, 2)], [(4, 280)]),
        ("6", [(4, 280)], [(4, 10)]),
    ]
    assert [step.depth for step in played.steps] == [0] + 7 * [1]
    assert [step.class_name for step in played.steps[:3]] == ["Sequential", "Conv2d", "BatchNorm2d"]
    # what the model gives with the same random state; ReLU writes into what the norm gave
    torch.manual_seed(5)
    outputs: list[torch.Tensor] = []
    handles = [layer.register_forward_hook(lambda m, a, out: outputs.append(out.clone())) for layer in model]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    for step, output in zip(played.steps[1:], outputs, strict=True):
        found = step.statistics
        assert found is not None
        expected = [output.min(), output.max(), output.mean(), output.std(correction=0), (output == 0).float().mean()]
        got = [found.minimum, found.maximum, found.mean, found.std, found.zeros]
        assert got == pytest.approx([float(value) for value in expected], rel=1e-5, abs=1e-6)
        assert (found.non_finite, found.count) == (0, output.numel())
    assert (outputs[3] == 0).float().mean() > 0.6  # dropout took part


def test_values_are_followed_from_step_to_step() -> None:
    played = Playback(small_cnn(), torch.randn(4, 3, 16, 16))
    root, *layers = played.steps
    for before, after in pairwise(layers):
        assert after.sources == (before.value,)
    assert layers[0].sources == root.sources
    assert root.value == layers[-1].value
    assert len({step.value for step in layers}) == 7  # also where a layer writes in place


def test_the_largest_outputs() -> None:
    model, x = small_cnn().eval(), torch.randn(4, 3, 16, 16)
    played = Playback(model, (x,))
    with torch.no_grad():
        conv, logits = model[0](x[:1])[0], model(x)[0]
    channels = played.steps[1].top
    assert channels is not None
    assert channels.kind == "channel"
    assert [index[0] for index, _, _ in channels.entries] == conv.amax((1, 2)).topk(5).indices.tolist()
    assert all(float(conv[index]) == pytest.approx(value) for index, value, _ in channels.entries)
    classes = played.steps[-1].top
    assert classes is not None
    assert classes.kind == "class"
    assert classes == played.steps[0].top
    assert [index for index, _, _ in classes.entries] == [(i,) for i in logits.topk(5).indices.tolist()]
    assert [share for _, _, share in classes.entries] == pytest.approx(logits.softmax(0).topk(5).values.tolist())


def test_resnet18_and_a_vision_transformer() -> None:
    import torchvision

    model, x = torchvision.models.resnet18(), torch.randn(2, 3, 64, 64)
    with unchanged(model, x):
        played = Playback(model, x)
    assert len(played) == 76  # each ReLU of the eight blocks is called twice, no module is left out
    assert [step.path for step in played.steps].count("layer1.0.relu") == 2
    assert {step.path for step in played.steps} == {name for name, _ in model.named_modules()}
    assert played.steps[-1].outputs[0].sizes == (2, 1000)

    vit = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32).eval()
    played = Playback(vit, torch.randn(2, 3, 32, 32))
    called = {step.path: step for step in played.steps}
    assert called["encoder.layers.encoder_layer_1.self_attention"].outputs[0].sizes == (2, 17, 16)
    assert called["encoder.layers.encoder_layer_1.mlp.0"].class_name == "Linear"
    maps = played.picture(called["encoder.ln"].index, 1)
    assert maps is not None
    assert (maps[0].form, maps[0].height, maps[0].width, maps[2]) == ("heat", 17, 16, 1)


def test_the_fast_path_does_not_hide_the_layers() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    x = torch.randn(2, 5, 8)
    with unchanged(model, x):
        played = Playback(model, x)
    assert [step.path for step in played.steps].count("layers.1.linear1") == 1
    assert torch.backends.mha.get_fastpath_enabled()


def test_tuples_dicts_none_and_keywords() -> None:
    lstm = nn.LSTM(4, 6, 2)
    (step,) = Playback(lstm, torch.randn(5, 3, 4)).steps
    assert [(o.name, o.sizes) for o in step.outputs] == [
        ("[0]", (5, 3, 6)),
        ("[1][0]", (2, 3, 6)),
        ("[1][1]", (2, 3, 6)),
    ]
    assert step.batch_dim == 1

    def forward(module: nn.Module, *, ids: torch.Tensor, mask: Any = None) -> dict[str, Any]:
        return {"none": None, "logits": module.embed(input=ids), "mask": mask}

    model = Lambda(forward, embed=nn.Embedding(9, 4))
    played = Playback(model, kwargs={"ids": torch.tensor([[1, 2, 3]])})
    root, embed = played.steps
    assert [(i.name, i.sizes, i.dtype) for i in embed.inputs] == [(".input", (1, 3), "int64")]
    assert [(o.name, o.sizes) for o in root.outputs] == [(".logits", (1, 3, 4))]
    assert Playback(model, {"ids": torch.tensor([[1]]), "mask": torch.tensor([True])}).error is None
    silent = Playback(Lambda(lambda module, x: None), torch.ones(2))
    assert (silent.steps[0].outputs, silent.steps[0].statistics) == ((), None)
    assert silent.picture(0) == (silent.picture(0)[0], None, 0)  # type: ignore[index]


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([[True, False]]),
        torch.tensor([[1 + 1j, 2]]),
        torch.tensor([[1.0, 2.0]], dtype=torch.float16),
        torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16),
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.empty(2, 0),
        torch.full((2, 3), float("nan")),
        torch.tensor([[float("inf"), 1.0]]),
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.ones(1, 2, 3, 4, 5),
        torch.ones(1, 2, 3, 4, 5, 6),
        torch.full((2, 2), 3e38),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.dtype}-{tensor.layout}-{tensor.device}",
)
def test_outputs_of_every_kind(output: torch.Tensor) -> None:
    played = Playback(Lambda(lambda module, x: output), torch.ones(1))
    (step,) = played.steps
    assert played.error is None
    assert step.outputs[0].sizes == tuple(output.shape)
    found = played.picture(0)
    assert found is not None
    maps = found[0]
    readable = output.layout is torch.strided and not output.is_meta
    assert (step.statistics is not None) == readable
    assert (maps.form == "none") == (not readable or not output.numel() or output.dim() > 5)
    assert len(maps.pixels) == maps.width * maps.height * len(maps.ranges)
    if readable and output.numel():
        count = int((~torch.isfinite(output.abs().double() if output.is_complex() else output.dequantize())).sum())
        assert step.statistics is not None
        assert step.statistics.non_finite == count


def test_nothing_finite_is_no_number() -> None:
    played = Playback(Lambda(lambda module, x: x), torch.full((1, 2), float("nan")))
    maps, largest, _ = played.picture(0)  # type: ignore[misc]
    assert str(played.steps[0].statistics) == (
        "Statistics(minimum=nan, maximum=nan, mean=nan, std=nan, zeros=0.0, non_finite=2, count=2)"
    )
    assert maps.pixels == bytes([255, 255])
    assert largest is not None
    assert largest.entries == ()


# ------------------------------------------------------------------ errors


class Stops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.norm(x)
        raise ValueError("no further <b>\n")


def test_a_forward_that_raises_ends_there() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), Stops()), nn.Linear(4, 2)), torch.randn(2, 4)
    with unchanged(model, x):
        played = Playback(model, x)
    assert [step.path for step in played.steps] == ["", "0", "1", "1.0", "1.1", "1.1.norm"]
    assert played.error == "ValueError: no further <b>"
    assert played.failed == 4
    assert [step.error for step in played.steps] == [played.error, None, played.error, None, played.error, None]
    assert played.steps[4].outputs == ()
    assert played.picture(5) is not None


def test_an_error_that_the_model_catches_is_none() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with suppress(ValueError):
            module.stops(x)
        return module.linear(x)

    played = Playback(Lambda(forward, stops=Stops(), linear=nn.Linear(4, 4)), torch.randn(2, 4))
    assert (played.error, played.failed) == (None, None)
    assert [step.error is None for step in played.steps] == [True, False, True, True]


def test_an_error_without_a_readable_text() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def forward(module: nn.Module, x: torch.Tensor) -> None:
        raise SilentError

    played = Playback(Lambda(forward), torch.ones(1))
    assert (played.error, played.failed) == ("SilentError: its text cannot be read", 0)


def test_an_interrupt_ends_it_and_leaves_nothing() -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> None:
        module.norm(x)
        raise KeyboardInterrupt

    model, x = nn.Sequential(Lambda(forward, norm=nn.BatchNorm1d(4))), torch.randn(2, 4)
    with unchanged(model, x), pytest.raises(KeyboardInterrupt):
        Playback(model, x)


@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (nn.Sequential(nn.LazyLinear(3)), torch.ones(1, 2), r"'0\.weight' has no shape yet"),
        (nn.Linear(2, 2, device="meta"), torch.ones(1, 2), "'weight' is on the meta device"),
        (nn.Linear(2, 2), torch.ones(1, 2, device="meta"), "input 'input' is on the meta device"),
        (nn.Linear(2, 2), (1, 2, 3), "the inputs do not fit forward"),
        (nn.ModuleList(), (), "has no forward"),
        (3, (), "got an int: pass an instance of torch.nn.Module"),
    ],
)
def test_what_cannot_run_is_refused(model: Any, args: Any, message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        Playback(model, args)


# ------------------------------------------------------ the same once more


def test_pictures_that_were_not_kept_come_from_the_same_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = small_cnn(), torch.randn(4, 3, 16, 16)
    kept = Playback(model, x)
    state = torch.get_rng_state()
    pictures = [kept.picture(step.index, 2) for step in kept.steps]
    monkeypatch.setattr(playback, "CACHE_BYTES", 4 * 70 * 14 * 14 * 4)  # one of the large outputs
    again = Playback(model, x)
    monkeypatch.setattr(playback, "CACHE_BYTES", 1000)
    torch.manual_seed(99)
    assert torch.equal(state, again._random[torch.device("cpu")])
    with unchanged(model, x):
        assert again.picture(3, 2, may_run=False) is None
        assert [again.picture(step.index, 2) for step in again.steps] == pictures
        assert again.picture(3, 2) == pictures[3]  # one item alone is kept of what is too large
        assert again.picture(3, 1) == kept.picture(3, 1)


def test_a_model_that_has_changed_is_told_from_the_one_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playback, "CACHE_BYTES", 0)
    model, x = small_cnn(), torch.randn(4, 3, 16, 16)
    played = Playback(model, x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(mk.ModuleKGError, match="outputs have changed since the run"):
        played.picture(1)
    assert played.picture(2) is not None  # the norm takes the factor out again


def test_inputs_are_copied_and_let_go() -> None:
    x = torch.ones(1, 4)
    played = Playback(nn.Linear(4, 2), x)
    x.fill_(float("nan"))
    assert played._inputs[0][0].tolist() == [[1.0, 1.0, 1.0, 1.0]]
    played.close()
    with pytest.raises(mk.ModuleKGError, match="the player was closed"):
        played.picture(0)


def test_many_channels_items_and_pages() -> None:
    played = Playback(nn.Conv2d(3, 70, 3), torch.randn(2, 3, 200, 100))
    maps, _, number = played.picture(0, sample=9, page=1)  # type: ignore[misc]
    assert (maps.first, maps.total, len(maps.ranges), maps.height, maps.width, number) == (64, 70, 6, 64, 32, 1)
    assert maps.sizes == (198, 98)
    assert played.picture(0, 1, 99) == played.picture(0, 1, 1)
    first = played.picture(0, 1, 0)
    assert first is not None
    assert len(first[0].pixels) == 64 * 64 * 32


def test_bytes_of_a_map_are_its_values() -> None:
    values = torch.tensor([[[[0.0, 1.0], [float("nan"), 2.0]], [[5.0, 5.0], [5.0, 5.0]]]])
    maps, _, _ = Playback(Lambda(lambda module, x: x), values).picture(0)  # type: ignore[misc]
    assert maps.pixels == bytes([0, 127, 255, 254, 0, 0, 0, 0])
    assert maps.ranges == ((0.0, 2.0), (5.0, 5.0))
    strip, _, _ = Playback(Lambda(lambda module, x: x), torch.arange(100.0)[None]).picture(0)  # type: ignore[misc]
    assert (strip.form, strip.width, strip.height, strip.total) == ("strip", 64, 2, 100)
    assert len(strip.pixels) == 128


# ---------------------------------------------- modules of every other kind


@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k"}))
def test_every_nasty_module(name: str) -> None:
    model = nasty_module(name)
    given = (NASTY[name]["inp"] or tuple)() or ()
    with unchanged(model, given), suppress(mk.ModuleKGError):  # any other error fails the test
        played = Playback(model, given)
        for step in played.steps[:50]:
            assert played.picture(step.index) is not None


def test_scripted_and_shared_modules_and_repeated_calls() -> None:
    shared = nn.Linear(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    model = nn.Sequential(shared, scripted, nn.Sequential(shared))
    played = Playback(model, torch.randn(2, 4))
    assert [step.path for step in played.steps] == ["", "0", "1", "2", "0"]
    assert played.first_step("2.0") == 1  # a shared module stands at the first of its paths
    for path in ("3", "1.0"):  # TorchScript is one opaque module
        with pytest.raises(mk.ModuleKGError, match=f"no module '{path}'"):
            played.first_step(path)


def test_compiled_modules_run_as_they_are_written() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model = nn.Sequential(torch.compile(inner, backend="eager"), nn.Linear(4, 2))  # type: ignore[arg-type]
    x = torch.randn(2, 4)
    before = surroundings()
    assert [step.path for step in Playback(model, x).steps] == ["", "0", "0.0", "0.1", "1"]
    assert surroundings() == before
    assert Playback(torch.compile(inner, backend="eager"), x).steps[1].path == "0"  # type: ignore[arg-type]


@pytest.mark.slow
def test_thousands_of_calls_are_listed_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3000):
            x = module.layer(x)
        return x

    assert len(Playback(Lambda(forward, layer=nn.Identity()), torch.ones(2, 2))) == 3001
    monkeypatch.setattr(playing, "MAX_STEPS", 100)
    played = Playback(Lambda(forward, layer=nn.Identity()), torch.ones(2, 2))
    assert (len(played), played.dropped) == (100, 2901)


def test_a_model_of_the_zoo_on_meta_is_refused() -> None:
    with pytest.raises(mk.ModuleKGError, match="on the meta device: give the model weights first"):
        Playback(zoo_model("alexnet"), torch.ones(1, 3, 224, 224))
