"""What a comparison says about two models."""

import random
from collections import OrderedDict

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, Outer
from models.zoo import zoo_model
from modulekg_widgets.engine.identity.diff import HierarchyDiff, Pair


class Block(nn.Module):
    def __init__(self, scale: int = 1, extra: nn.Module | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.inner = nn.Linear(2, 2)
        self.extra = extra


def listed(comparison: HierarchyDiff) -> list[str]:
    """The pairs that are neither the same nor changed by their children alone, as `status left → right`."""

    def path(side: mk.Hierarchy, index: int | None) -> str:
        return "-" if index is None else side[index].path or "(root)"

    return [
        f"{pair.status} {path(comparison.left, pair.left)} {path(comparison.right, pair.right)}"
        for pair in comparison.differences
    ]


def sequence(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def named(**layers: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(layers))


L12, L23, RELU, SILU = nn.Linear(1, 2), nn.Linear(2, 3), nn.ReLU(), nn.SiLU()
CASES: dict[str, tuple[nn.Module, nn.Module, list[str]]] = {
    "same": (sequence(L12, RELU), sequence(L12, RELU), []),
    "changed": (sequence(L12, RELU), sequence(L12, SILU), ["changed 1 1"]),
    "changed size": (sequence(L12), sequence(nn.Linear(1, 3)), ["changed 0 0"]),
    "appended": (sequence(L12), sequence(L12, RELU), ["added - 1"]),
    "removed at the end": (sequence(L12, RELU), sequence(L12), ["removed 1 -"]),
    "inserted": (
        sequence(L12, nn.ReLU(), L23, nn.ReLU()),
        sequence(L12, nn.BatchNorm1d(2), nn.Dropout(), nn.ReLU(), L23, nn.ReLU()),
        ["renamed 1 3", "renamed 2 4", "renamed 3 5", "added - 1", "added - 2"],
    ),
    "removed within": (
        sequence(L12, nn.ReLU(), L23, nn.ReLU()),
        sequence(L12, L23, nn.ReLU()),
        ["removed 1 -", "renamed 2 1", "renamed 3 2"],
    ),
    "removed by name": (
        named(a=Block(), b=Block(), c=Block()),
        named(a=Block(), c=Block()),
        ["removed b -"],
    ),
    "renamed": (named(a=L12, b=RELU), named(a=L12, c=RELU), ["renamed b c"]),
    "swapped in a sequence": (sequence(L12, L23), sequence(L23, L12), ["renamed 0 1", "renamed 1 0"]),
    "swapped by name": (named(a=L12, b=RELU), named(b=RELU, a=L12), ["moved a a"]),
    "moved elsewhere": (
        Outer(head=sequence(Block(7)), tail=sequence(RELU)),
        Outer(head=sequence(), tail=sequence(RELU, Block(7))),
        ["moved head.0 tail.1"],
    ),
    "attribute of a container": (sequence(Block(1), Block(1)), sequence(Block(1), Block(2)), ["changed 1 1"]),
    "class of a container": (sequence(L12, RELU), nn.ModuleList([L12, SILU]), ["changed (root) (root)", "changed 1 1"]),
    "filled slot": (Block(), Block(extra=RELU), ["added - extra"]),
    "emptied slot": (Outer(a=None, b=RELU), Outer(b=RELU), ["changed (root) (root)"]),
    "a new subtree": (sequence(), sequence(sequence(L12, RELU)), ["added - 0"]),
    "deep": (sequence(sequence(Block(1))), sequence(sequence(Block(3))), ["changed 0.0 0.0"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_told(case: tuple[nn.Module, nn.Module, list[str]]) -> None:
    left, right, expected = case
    comparison = mk.diff(left, right)
    assert listed(comparison) == expected
    assert comparison.identical == (expected == [])
    assert sum(comparison.counts.values()) == len(expected)


def test_every_module_of_either_side_stands_in_one_pair() -> None:
    for left, right, _ in CASES.values():
        comparison = mk.diff(left, right)
        for side, indices in (
            (comparison.left, [p.left for p in comparison.pairs if p.left is not None]),
            (comparison.right, [p.right for p in comparison.pairs if p.right is not None]),
        ):
            assert sorted(indices) == list(range(len(side)))


def test_a_deeper_resnet_has_more_blocks() -> None:
    comparison = mk.diff(zoo_model("resnet18"), zoo_model("resnet34"))
    blocks = {1: [2], 2: [2, 3], 3: [2, 3, 4, 5], 4: [2]}
    assert listed(comparison) == [f"added - layer{layer}.{i}" for layer, added in blocks.items() for i in added]
    assert str(comparison).splitlines()[-1] == "8 differences: 8 added"


def test_an_inserted_stage_renames_what_follows() -> None:
    layers = [nn.Linear(i, i + 1) for i in range(1, 30)]
    with_one_more = [*layers[:10], nn.Dropout(), *layers[10:]]
    statuses = [pair.status for pair in mk.diff(sequence(*layers), sequence(*with_one_more)).pairs]
    assert [statuses.count(s) for s in ("same", "renamed", "added")] == [10, 19, 1]


def test_shuffled_layers_are_all_found_again() -> None:
    layers = [nn.Linear(i, i) for i in range(1, 200)]
    shuffled = random.Random(1).sample(layers, len(layers))
    comparison = mk.diff(sequence(*layers), sequence(*shuffled))
    for pair in comparison.pairs[1:]:
        assert pair.status in ("same", "renamed")
        assert comparison.left[pair.left].module is comparison.right[pair.right].module


@pytest.mark.slow
def test_twenty_thousand_renamed_siblings() -> None:
    def wide(prefix: str) -> nn.Module:
        model = nn.Module()
        model._modules.update({f"{prefix}{i}": nn.Identity() for i in range(20_000)})
        return model

    statuses = [pair.status for pair in mk.diff(wide("a"), wide("b")).pairs]
    assert statuses.count("renamed") == 20_000


def test_the_text_names_what_differs_and_counts_it() -> None:
    text = str(mk.diff(sequence(L12, RELU), sequence(L12, SILU)))
    assert text.splitlines()[0].startswith("! changed  1 ReLU")
    assert text.splitlines()[-1] == "1 difference: 1 changed"
    assert repr(mk.diff(sequence(L12, RELU), sequence(L12))) == "<HierarchyDiff: 1 difference: 1 removed>"
    assert str(mk.diff(sequence(L12), sequence(L12))) == "same structure: 2 modules"


def test_models_of_nothing_in_common() -> None:
    comparison = mk.diff(nn.ReLU(), Holder(a=1))
    assert comparison.pairs == [Pair(0, 0, "changed")]


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(mk.ModuleKGError, match="Linear: pass an instance"):
        mk.diff(nn.ReLU(), nn.Linear)  # type: ignore[arg-type]
