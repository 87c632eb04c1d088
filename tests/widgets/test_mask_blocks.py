"""Blocks in a MaskEditor: rows of their own, from the page's bits to the plan, the cut and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownPathError
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.session import PruningSession
from modulekg_widgets.engine.views.pictures.masks import draw_masks
from modulekg_widgets.engine.views.pictures.svg import svg_text
from widgets.golden_masks import Layered
from widgets.mask_page import Page

X = torch.zeros(2, 5, 6)
PATHS = [path for at in range(3) for path in (f"layers.{at}", f"layers.{at}.mix", f"layers.{at}.feed")]


def net(count: int = 3) -> Layered:
    torch.manual_seed(0)
    model = Layered().eval()
    del model.layers[count:]
    return model


def bytes_of(model: nn.Module) -> dict[str, bytes]:
    return {name: t.detach().numpy().tobytes() for name, t in model.state_dict().items()}


@pytest.fixture
def model() -> Layered:
    return net()


@pytest.fixture
def editor(model: nn.Module) -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(model, X)
    yield made
    made.close()


def removing(editor: mk.MaskEditor, *paths: str) -> dict[str, object]:
    """What a page draws that removes these blocks."""
    blocks = editor.payload["blocks"]["path"]
    bits = sum(1 << blocks.index(path) for path in paths).to_bytes((len(blocks) + 7) // 8, "little")
    return {"axes": [len(editor.payload["axes"]["name"])], "bits": memoryview(bits)}


def test_the_payload_has_the_blocks_of_the_graph(editor: mk.MaskEditor) -> None:
    blocks, table = editor.payload["blocks"], editor.graph.blocks()
    assert blocks["path"] == list(table["path"]) == PATHS
    assert (blocks["params"], blocks["flops"]) == (list(table["params"]), list(table["flops"]))
    assert blocks["within"] == [-1, 0, 0, -1, 3, 3, -1, 6, 6]
    assert blocks["importance"] == "l2"
    scores = {
        path: torch.cat([p.detach().double().flatten() for p in editor.graph.model.get_submodule(path).parameters()])
        .square()
        .mean()
        .item()
        for path in ("layers.0", "layers.1.mix")
    }
    assert {path: blocks["score"][PATHS.index(path)] for path in scores} == pytest.approx(scores)
    json.dumps(editor.payload, allow_nan=False)


def test_what_the_page_removes_is_the_plan(editor: mk.MaskEditor, page: Page) -> None:
    assert page.draw({}, **removing(editor, "layers.1", "layers.2.feed")) == []
    assert editor.plan == mk.plan(editor.graph, blocks=["layers.1", "layers.2.feed"])
    assert repr(editor.plan) == "mk.plan(graph, blocks=['layers.1', 'layers.2.feed'])"
    assert eval(repr(editor.plan), {"mk": mk, "graph": editor.graph}) == editor.plan
    assert "2 blocks removed" in repr(editor)
    assert editor.report["params"] == list(editor.plan.params)
    assert editor.draft["axes"] == [len(editor.payload["axes"]["name"])]


def test_blocks_and_indices_are_one_plan_and_nothing_is_counted_twice(editor: mk.MaskEditor) -> None:
    graph = editor.graph
    cut = graph.cut_analysis("stem.weight", index=[0, 3], dim=0)
    editor.plan = mk.plan(graph, blocks=["layers.0"], cuts=[cut])
    assert (editor._draft.dropped, editor._draft.removed_paths) == ({"stem.out": [0, 3]}, ["layers.0"])
    drawn = {"stem.out": [0, 3], "layers.0.mix.0.out": [1, 2], "layers.2.feed.0.out": [5]}
    editor._draft.set_indices(drawn, ["layers.0"])
    plan = editor.plan
    assert plan is not None
    assert {axis.name: list(axis.dropped) for axis in plan.axes} == {"stem.out": [0, 3], "layers.2.feed.0.out": [5]}
    assert eval(repr(plan), {"mk": mk, "graph": graph}) == plan
    after = editor._draft.sizes()[1]
    assert (after.params, after.flops, after.bytes) == (plan.params[1], plan.flops[1], plan.bytes and plan.bytes[1])
    assert (editor.report["kept"], editor.report["taken"]) == ([], [])
    editor._draft.set_indices(drawn, ())
    assert editor._draft.dropped == drawn  # what was drawn comes back with the block


class Attending(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x, x, x, need_weights=False)[0]


def test_an_axis_that_has_another_name_without_the_blocks_is_the_same_one() -> None:
    model = net()
    for layer in model.layers:
        layer.mix = Attending(8)
    graph = mk.trace(model.eval(), X)
    cut = graph.cut_analysis("stem.weight", index=[0, 3], dim=0)
    removed = ["layers.0", "layers.1", "layers.2"]
    wanted = mk.plan(graph, blocks=removed, cuts=[cut])
    assert [axis.name for axis in wanted.axes] == ["stem.out"]
    assert mk.plan(graph, blocks=removed, per_axis={"stem.hidden": [0, 3]}) == wanted
    draft = Draft(graph)
    draft.adopt_plan(wanted)
    assert (draft.dropped, draft.removed_paths) == ({"stem.hidden": [0, 3]}, removed)
    draft.set_indices(draft.dropped, removed)
    assert draft.plan() == wanted
    report = draft.report()
    assert report is not None
    assert (report.kept, report.added) == ({}, {})


@pytest.mark.parametrize("removed", [[path] for path in PATHS] + [PATHS, PATHS[1:3], PATHS[4:]])
def test_the_sizes_of_every_draft_are_those_of_its_plan(editor: mk.MaskEditor, removed: list[str]) -> None:
    editor._draft.set_indices({"stem.out": [1], "layers.1.mix.0.out": [0, 1, 2]}, removed)
    plan, after = editor.plan, editor._draft.sizes()[1]
    assert plan is not None
    assert (plan.params[1], plan.flops[1]) == (after.params, after.flops)
    assert list(plan.blocks) == editor._draft.removed_paths


def test_a_block_within_another_that_goes_is_not_named_beside_it(editor: mk.MaskEditor, page: Page) -> None:
    page.draw({}, **removing(editor, "layers.0", "layers.0.mix", "layers.1.mix"))
    assert editor._draft.removed_paths == ["layers.0", "layers.1.mix"]
    gone = ("layers.0", "layers.0.mix", "layers.0.feed", "layers.1.mix")
    assert editor._draft.removed_blocks == {PATHS.index(path) for path in gone}
    page.draw({}, **removing(editor, "layers.0.mix", "layers.1.mix"))
    assert editor._draft.removed_paths == ["layers.0.mix", "layers.1.mix"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": memoryview(b"\x01")}, "have 2 bytes of bits: 1 came"),
        ({"bits": memoryview(b"\x01\x80")}, "the list of blocks has 9 blocks: there are bits beyond them"),
        ({"axes": [99]}, "a drawing names each axis once"),
    ],
)
def test_bits_of_no_block_change_nothing(
    editor: mk.MaskEditor, page: Page, change: dict[str, object], said: str
) -> None:
    (answer,) = page.draw({}, **{**removing(editor, "layers.0"), **change})
    assert (answer["type"], answer["action"]) == ("failed", "draw")
    assert said in answer["text"]
    assert editor.plan is None


def test_a_cut_takes_the_blocks_and_undo_brings_the_draft_back(
    editor: mk.MaskEditor, page: Page, model: Layered
) -> None:
    before, keys = bytes_of(model), list(model.state_dict())
    graph = mk.ModelGraph(model, X)
    mk.link(editor, graph)
    page.draw({}, **removing(editor, "layers.1"))
    (answer,) = page.say({"type": "cut"})
    assert (answer["type"], "1 block" in answer["text"]) == ("done", True)
    assert len(model.layers) == 2
    assert editor.payload["blocks"]["path"] == [path for path in PATHS if not path.startswith("layers.2")]
    assert editor.draft["axes"] == []
    # what was the third layer has as much as it had, and the list has lost one
    own = sum(p.numel() for p in model.layers[0].parameters())
    assert editor.uncut["layers"] == own
    assert sum(editor.uncut.values()) == sum(map(len, before.values())) // 4
    assert {path for path in editor.uncut if path.startswith("layers.1.")} == {
        path.replace("layers.0", "layers.1") for path in editor.uncut if path.startswith("layers.0.")
    }
    with pytest.raises(UnknownPathError):
        graph.selected = "layers.2"
    assert page.say({"type": "undo"})[-1]["type"] == "done"
    assert (bytes_of(model), list(model.state_dict()), editor.uncut) == (before, keys, {})
    assert editor._draft.removed_paths == ["layers.1"]
    assert editor.plan is not None
    graph.close()


def test_cuts_on_top_of_each_other_keep_what_each_module_had(model: Layered) -> None:
    pruning = PruningSession(model, X, None, None)
    whole = sum(p.numel() for p in model.parameters())
    for path in ("layers.0", "layers.1.mix"):
        plan = mk.plan(pruning.draft.graph, blocks=[path], ratio=0.5)
        pruning.cut(plan)
        pruning.retrace(None)
    assert sum(pruning.original_sizes.values()) == whole
    assert set(pruning.original_sizes) <= {path for path, _ in model.named_modules()}
    pruning.undo()
    pruning.undo()
    assert pruning.original_sizes == {}


def test_a_mask_of_blocks_is_refused_in_words_and_an_earlier_one_stays(
    editor: mk.MaskEditor, page: Page, model: Layered
) -> None:
    editor.plan = mk.plan(editor.graph, per_axis={"stem.out": [0]})
    editor.mask()
    masked = bytes_of(model)
    page.draw({}, **removing(editor, "layers.1"))
    (answer,) = page.say({"type": "mask"})
    assert (answer["type"], answer["action"]) == ("failed", "mask")
    assert answer["text"] == (
        "a mask sets slices of weights to zero, and layers.1 are removed as a whole: cut instead, plan.cut(model)"
    )
    assert (bytes_of(model), editor.stage) == (masked, "masked")
    with pytest.raises(CutError, match="as a whole"):
        editor.mask()


def test_a_plan_with_blocks_is_saved_and_loaded(editor: mk.MaskEditor, page: Page, tmp_path: Path) -> None:
    editor.plan = mk.plan(editor.graph, blocks=["layers.2"], per_axis={"stem.out": [4]})
    editor.save(tmp_path / "plan.json")
    editor.plan = None
    editor.load(tmp_path / "plan.json")
    assert (editor._draft.removed_paths, editor._draft.dropped) == (["layers.2"], {"stem.out": [4]})
    other = mk.MaskEditor(net(2), X)
    with pytest.raises(UnknownPathError, match=r"'layers\.2' is not a removable residual block"):
        other.load(tmp_path / "plan.json")
    assert other.plan is None
    other.close()


def test_influence_is_shown_where_there_are_batches_and_draws_no_random_numbers(model: Layered) -> None:
    loader = DataLoader([torch.randn(5, 6) for _ in range(40)], batch_size=4, shuffle=True)
    state = torch.get_rng_state()
    editor = mk.MaskEditor(model, X, batches=loader)
    assert torch.equal(torch.get_rng_state(), state)
    blocks = editor.payload["blocks"]
    assert blocks["importance"] == "block influence"
    assert all(0 < score < 2 for score in blocks["score"])
    editor.close()


def test_batches_that_do_not_fit_leave_the_weights_to_tell(model: Layered) -> None:
    editor = mk.MaskEditor(model, X, batches=[torch.zeros(2, 5, 7)])
    assert editor.payload["blocks"]["importance"] == "l2"
    editor.close()


def test_a_model_without_blocks_has_none() -> None:
    editor = mk.MaskEditor(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), torch.zeros(1, 6))
    assert (editor.payload["blocks"]["path"], editor._draft.entry_count) == ([], len(editor._draft.axes))
    editor.close()


def test_the_static_picture_names_the_blocks_that_go(editor: mk.MaskEditor) -> None:
    editor.plan = mk.plan(editor.graph, blocks=["layers.1"])
    picture = svg_text(draw_masks(editor._draft, "Net"))
    assert ">layers.1<" in picture
    assert ">removed as a whole<" in picture
