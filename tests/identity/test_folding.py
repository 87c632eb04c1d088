"""Folding: which siblings become one row, and what the row says."""

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import Outer


def rows(model: nn.Module, families: bool = True) -> list[str]:
    return [str(row) for row in mk.hierarchy(model).fold(families)]


def test_siblings_of_the_same_structure_become_one_row() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(35)))
    assert rows(model) == [
        "0 Sequential ×35 · identical structure, separate weights", "0 Linear", "1 ReLU"
    ]  # fmt: skip


def test_siblings_whose_sizes_vary_are_a_family() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, 2), nn.ReLU()) for width in (256, 1000, 1760)))
    assert rows(model) == ["≈ 0 Sequential ×3 · in_features 256…1760", "0 Linear", "1 ReLU"]
    assert len(rows(model, families=False)) == 9


def test_a_family_may_share_a_module() -> None:
    shared = nn.ReLU()
    model = nn.Sequential(*(nn.Sequential(nn.Sequential(shared, nn.Linear(width, 2))) for width in (3, 5, 4)))
    assert rows(model)[0] == "≈ 0 Sequential ×3 · in_features 3…5"
    assert mk.ModelGraph(model).selected is None  # the picture folds alike


def test_only_consecutive_siblings_fold() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    assert rows(model) == ["0 ReLU", "1 Linear", "2 ReLU"]


def test_nothing_folds_across_containers() -> None:
    model = Outer(a=nn.Sequential(nn.ReLU()), b=nn.ModuleList([nn.ReLU()]))
    assert rows(model) == ["a Sequential", "0 ReLU", "b ModuleList", "0 ReLU"]


@pytest.mark.parametrize(
    "other", [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.SiLU()), nn.Linear(2, 2)]
)
def test_another_skeleton_is_no_family(other: nn.Module) -> None:
    assert len(mk.hierarchy(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), other)).fold().root.children) == 2


def test_a_module_that_is_reused_says_how_often_it_is_called() -> None:
    layer = nn.Linear(2, 2)
    lines = rows(nn.Sequential(layer, nn.ReLU(), layer, layer, layer))
    assert lines[0] == "0 Linear · called ×4"


def test_tied_parameters_name_each_other() -> None:
    model = Outer(embedding=nn.Embedding(10, 8), head=nn.Linear(8, 10, bias=False))
    model.head.weight = model.embedding.weight
    assert rows(model) == ["embedding Embedding · shared with head", "head Linear · shared with embedding"]
    assert mk.hierarchy(model).root.parameters == 80


def test_ten_thousand_tied_modules() -> None:
    layers = [nn.Linear(1, 1, bias=False) for _ in range(10_000)]
    for layer in layers:
        layer.weight = layers[0].weight
    found = mk.hierarchy(nn.Sequential(*layers))
    assert found.root.parameters == 1
    folded = found.fold()
    assert sum(row.count for row in folded) == 10_000
    assert max(len(row.shared_with) for row in folded) <= 100


def test_rows_stand_for_all_their_members() -> None:
    found = mk.hierarchy(nn.Sequential(*(nn.ReLU() for _ in range(4)), nn.SiLU()))
    folded = found.fold()
    assert [row.paths for row in folded] == [("0", "1", "2", "3"), ("4",)]
    assert folded[0].path == "0"
    assert folded[0].count == 4
    assert repr(folded) == "<2 rows for 6 modules>"


def test_the_outline_is_indented() -> None:
    assert str(mk.hierarchy(nn.Sequential(nn.Sequential(nn.ReLU()))).fold()).splitlines() == [
        "Sequential", "  0 Sequential", "    0 ReLU"
    ]  # fmt: skip
