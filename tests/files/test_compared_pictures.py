"""The picture of a comparison says of modules what mk.diff says of tensors: the same pairs, and no other counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk

State = dict[str, torch.Tensor]
KINDS = ("files", "file and model", "model and file", "models by tensors")


class Net(nn.Module):
    def __init__(self, classes: int = 4, extra: bool = False) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 8))
        self.body = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8))
        if extra:
            self.pooling = nn.Sequential(nn.ReLU(), nn.Linear(8, 24))
        self.head = nn.Linear(8, classes)


class Plain(Net):
    """The same, and no tensor of the root's own."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__(classes)
        del self.token


class Around(nn.Module):
    def __init__(self, model: nn.Module, name: str = "model") -> None:
        super().__init__()
        self.add_module(name, model)


class Deeper(Plain):
    """What is in `body` stands in `body.inner`, as a wrapper around one part does it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Around(self.body, "inner")


class Other(Plain):
    """`svg_header` has another name."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = self.head
        del self.head


class Inserted(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.body.insert(1, nn.Linear(8, 8))


class Checkpoint(Around):
    """Beside the model its average, of which no tensor is in the other."""

    def __init__(self) -> None:
        super().__init__(Plain(5), "state")
        self.average = Plain(6)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], dict[str, int]]] = {
    "the same": (Net, Net, {}),
    "prefix": (Plain, lambda: Around(Plain(), "module"), {"renamed": 1, "added": 1}),
    "prefix, and tensors in the root": (Net, lambda: Around(Net()), {"renamed": 1, "added": 1}),
    "prefix and another size": (Plain, lambda: Around(Plain(5)), {"renamed": 1, "changed": 1, "added": 1}),
    "two prefixes": (Plain, lambda: Around(Around(Plain(5)), "module"), {"renamed": 1, "changed": 1, "added": 2}),
    "wrapper around a part": (Plain, Deeper, {"renamed": 3, "added": 1}),
    "renamed child": (Plain, Other, {"renamed": 1}),
    "renamed child behind a prefix": (Plain, lambda: Around(Other()), {"renamed": 2, "added": 1}),
    "another size": (Net, lambda: Net(5), {"changed": 1}),
    "inserted": (Net, lambda: Net(extra=True), {"added": 1}),
    "inserted in a sequence": (Plain, Inserted, {"renamed": 1, "changed": 1, "added": 1}),  # by the names
    "a model in a checkpoint": (Plain, Checkpoint, {"renamed": 1, "changed": 1, "added": 2}),
}


def saved(model: nn.Module, path: Path) -> mk.ModelFile:
    torch.save(model.state_dict(), path)
    return mk.open_file(path)


def compared(kind: str, left: nn.Module, right: nn.Module, folder: Path) -> tuple[object, object]:
    return (
        saved(left, folder / "left.pt") if kind in ("files", "file and model") else left,
        saved(right, folder / "right.pt") if kind in ("files", "model and file") else right,
    )


def module_of(name: str) -> str:
    return name.rpartition(".")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("is_turned", [False, True], ids=["", "turned"])
def test_modules_are_paired_as_their_tensors_are(case: str, kind: str, is_turned: bool, tmp_path: Path) -> None:
    make_left, make_right, _ = CASES[case]
    left, right = (make_right(), make_left()) if is_turned else (make_left(), make_right())
    with torch.no_grad():
        right.load_state_dict({name: torch.zeros_like(value) for name, value in right.state_dict().items()})
        left.load_state_dict({name: torch.zeros_like(value) for name, value in left.state_dict().items()})
    ends = compared(kind, left, right, tmp_path)
    text = mk.diff(*ends, weights=kind == "models by tensors")
    tree = text.structure
    paths = {
        (None if pair.left is None else tree.left[pair.left].path): (
            None if pair.right is None else tree.right[pair.right].path
        )
        for pair in tree.pairs
        if pair.left is not None
    }
    status = {
        path: {side[i].path: one for i, one in enumerate(of_side)}
        for path, side, of_side in (("left", tree.left, tree.left_status), ("right", tree.right, tree.right_status))
    }
    said: dict[str, set[str]] = {}
    for pair in text.pairs:
        if pair.left and pair.right:
            assert paths[module_of(pair.left.name)] == module_of(pair.right.name), pair
        for side, end in (("left", pair.left), ("right", pair.right)):
            if end is not None:
                said.setdefault(f"{side} {module_of(end.name)}", set()).add(pair.status)
    for place, statuses in said.items():
        side, _, path = place.partition(" ")
        what = status[side][path]
        if statuses == {"same"}:
            assert what in ("same", "changed"), place  # changed inside
        elif statuses == {"renamed"}:
            assert what in ("renamed", "changed"), place
        elif statuses & {"reshaped", "retyped"}:
            assert what == "changed", place
        else:
            assert statuses == {what}, place  # removed and added
    assert set(tree.counts) <= {"renamed", "changed", "removed", "added"}
    assert tree.identical == text.identical


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_picture_is_that_of_the_text(case: str, kind: str, tmp_path: Path) -> None:
    make_left, make_right, counts = CASES[case]
    ends = compared(kind, make_left(), make_right(), tmp_path)
    text = mk.diff(*ends)
    compare = mk.ModelGraph(ends[0], compare=ends[1]).payload["compare"]
    assert text.structure.counts == counts
    assert compare["tensors"] == str(text).splitlines()[-1]
    assert compare["pairs"] == [
        [pair.left, pair.right] for pair in text.structure.pairs if pair.left is not None and pair.right is not None
    ]
    assert compare["left"] == text.structure.left_status
    assert compare["right"] == text.structure.right_status


WRAPPED: dict[str, tuple[nn.Module, nn.Module, list[str]]] = {
    "the same inside": (Plain(), Around(Plain()), ["moved  → model", "added - "]),
    "changed inside": (Plain(), Around(Plain(5)), ["changed head → model.head", "added - "]),
    "gone": (Around(Plain()), Plain(5), ["removed  -", "changed model.head → head"]),
    "around a part": (Plain(), Deeper(), ["changed  → ", "changed body → body", "added - body.inner"]),
    "with something new": (
        Plain(),
        nn.Sequential(Plain(5), nn.Softmax(-1)),
        ["changed head → 0.head", "added - ", "added - 1"],
    ),
    "a part of a larger one": (
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)),
        Around(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))),
        ["changed 1 → model.1", "added - "],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRAPPED.values(), ids=WRAPPED)
def test_live_models_are_compared_with_what_is_wrapped(case: tuple[nn.Module, nn.Module, list[str]]) -> None:
    left, right, expected = case
    found = mk.diff(left, right)

    def line(pair: object) -> str:
        ends = [None if i is None else side[i].path for side, i in ((found.left, pair.left), (found.right, pair.right))]
        there = " → " if None not in ends else " -" if ends[1] is None else "- "
        return f"{pair.status} {ends[0] or ''}{there}{ends[1] or ''}"

    assert [line(pair) for pair in found.differences] == expected
    assert mk.ModelGraph(left, compare=right).payload["compare"]["left"] == found.left_status
    assert found.structure is found
    assert Counter(pair.status for pair in found.differences) == Counter(found.counts)
