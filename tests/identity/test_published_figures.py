"""The figures that ModuleKG published come out exactly under the seed's scheme, and ours beside them."""

from collections import Counter

import pytest

import modulekg_widgets as mk
from models.zoo import zoo_model
from modulekg_widgets.engine.identity.fingerprint import seed_fingerprints
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

# fmt: off
ELEVEN = [
    "resnet18", "resnet34", "resnet101", "resnet152", "googlenet", "vgg11_bn", "vgg13_bn", "vgg16", "vgg19",
    "squeezenet1_0", "squeezenet1_1",
]
# fmt: on

# the second table: display name and number of occurrences over the eleven models
TOP_TEN = {
    "ReLU854": 218,
    "BatchNorm2d187": 148,
    "Conv2d578": 78,
    "BatchNorm2d255": 61,
    "Conv2d455": 59,
    "Conv2d878": 57,
    "Bottleneck304": 57,
    "BatchNorm2d848": 46,
    "BatchNorm2d630": 41,
    "Conv2d361": 30,
}
TOP_OF_RESNET152 = {
    "BatchNorm2d187": 76,
    "ReLU854": 51,
    "BatchNorm2d255": 37,
    "Conv2d455": 36,
    "Conv2d878": 35,
    "Conv2d578": 35,
    "Bottleneck304": 35,
}


def graph_of(names: list[str], scheme: str) -> mk.KnowledgeGraph:
    graph = mk.KnowledgeGraph(scheme=scheme)
    for name in names:
        graph.add_model(zoo_model(name), name)
    return graph


@pytest.fixture(scope="module")
def seed() -> mk.KnowledgeGraph:
    return graph_of(ELEVEN, "seed")


@pytest.fixture(scope="module")
def ours() -> mk.KnowledgeGraph:
    return graph_of(ELEVEN, "structure")


@pytest.mark.parametrize("scheme", ["seed", "structure"])
def test_resnet152(scheme: str) -> None:
    graph = graph_of(["resnet152"], scheme)
    assert (graph.module_count, graph.unique_count) == (423, 50)
    counts = list(graph.most_used(7)["count"])
    assert counts == sorted(TOP_OF_RESNET152.values(), reverse=True)


def test_names_of_resnet152() -> None:
    table = graph_of(["resnet152"], "seed").most_used(7)
    assert dict(zip(table["name"], table["count"], strict=True)) == TOP_OF_RESNET152


def test_eleven_models(seed: mk.KnowledgeGraph, ours: mk.KnowledgeGraph) -> None:
    assert (seed.module_count, seed.unique_count) == (1444, 274)
    assert (ours.module_count, ours.unique_count) == (1444, 283)


def test_top_ten_of_the_eleven(seed: mk.KnowledgeGraph) -> None:
    table = seed.most_used(10)
    assert dict(zip(table["name"], table["count"], strict=True)) == TOP_TEN
    assert list(table["count"]) == sorted(TOP_TEN.values(), reverse=True)


def test_fingerprint_by_fingerprint() -> None:
    """`mk.fingerprint` of each module alone agrees with the graph."""
    modules = [m for name in ("resnet18", "squeezenet1_0") for m in zoo_model(name).modules()]
    graph = graph_of(["resnet18", "squeezenet1_0"], "seed")
    names = Counter(mk.fingerprint(m, scheme="seed").display_name for m in modules)
    assert len({mk.fingerprint(m, scheme="seed") for m in modules}) == graph.unique_count
    assert names["ReLU854"] == 9 + 26


@pytest.mark.parametrize(("scheme", "count"), [("seed", 78), ("structure", 71)])
def test_seven_convolutions_have_a_bias(scheme: str, count: int) -> None:
    """The seed merges 256 → 256, 3×3 with and without a bias."""
    table = graph_of(ELEVEN, scheme).most_used(400, level="op")
    wanted = {"in_channels": 256, "out_channels": 256, "kernel_size": "(3, 3)", "stride": "(1, 1)", "groups": 1}
    fits = table["hyperparameters"].map(lambda values: wanted.items() <= values.items())
    assert table[fits & (table["class"] == "Conv2d")]["count"].max() == count


def test_nine_names_collide_at_three_digits() -> None:
    prints = {f for name in ELEVEN for f in seed_fingerprints(mk.hierarchy(zoo_model(name)).walk)}
    uses = Counter(f.display_name for f in prints)
    assert (len(prints), sum(1 for count in uses.values() if count > 1)) == (274, 9)


def test_colliding_names_are_lengthened(seed: mk.KnowledgeGraph) -> None:
    names = seed.names()
    assert len(set(names.values())) == 274
    assert not {"Conv2d724", "Sequential580"} & set(names.values())


@pytest.mark.nightly
def test_the_whole_of_torchvision() -> None:
    seed_scheme, structure = set(), set()
    count = 0
    for name in torchvision_builders():
        modules = mk.hierarchy(zoo_model(name))
        count += len(modules)
        seed_scheme |= {f.hexdigest for f in seed_fingerprints(modules.walk)}
        structure |= set(modules.identities.digests)
    assert len(torchvision_builders()) == 121
    assert (count, len(seed_scheme)) == (37_528, 6_318)
    # never coarser than the seed by accident: what we keep apart beyond it are biases, shapes and order
    assert len(structure) > len(seed_scheme)


@pytest.mark.parametrize(
    ("name", "families", "rows"),
    [("resnet152", True, 86), ("vit_b_16", True, 19), ("densenet201", False, 712), ("densenet201", True, 54)],
)
def test_rows_of_the_folded_hierarchy(name: str, families: bool, rows: int) -> None:
    assert len(mk.hierarchy(zoo_model(name)).fold(families=families)) == rows
