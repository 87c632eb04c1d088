"""Names of communities: distinct, the same in any order and with any hashes, and of what is particular."""

import os
import subprocess
import sys

import pytest
from torch import nn

from knowledge.graphs import contents_of, key, made_up, zoo_contents
from modulekg_widgets.engine.knowledge.analysis.communities import (
    MAX_TERM_LENGTH,
    communities,
    community_names,
    detect_communities,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents

FAMILY = ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "resnet18", "resnet50")


def names_of(contents: Contents, method: str = "louvain") -> list[str]:
    return community_names(contents, detect_communities(contents, method)[0])


@pytest.mark.parametrize("method", ["louvain", "leiden"])
@pytest.mark.parametrize("models", [FAMILY, ("resnet18", "squeezenet1_1", "densenet121")], ids=len)
def test_no_two_communities_have_one_name(models: tuple[str, ...], method: str) -> None:
    contents = zoo_contents(models)
    number_of, _ = detect_communities(contents, method)
    found = community_names(contents, number_of)
    assert len(found) == max(number_of.values()) + 1 > 3
    assert len(set(found)) == len(found)
    assert all(found)


def test_many_communities_of_one_family_are_told_apart_by_their_models() -> None:
    found = names_of(zoo_contents(FAMILY))
    assert sum("EfficientNet" in name for name in found) <= 2
    assert sum("efficientnet_b" in name for name in found) >= 2


def test_families_name_communities_of_their_own_and_shared_ones_together() -> None:
    slots = {"a": ["b", "c"], "d": ["e", "f"], "g": ["e", "h"], "b": [], "c": [], "e": [], "f": [], "h": []}
    models = {"n1": dict.fromkeys("abc", 1), "v1": dict.fromkeys("def", 1), "s1": dict.fromkeys("geh", 1)}
    contents = made_up(slots, models, {"a": "Net", "d": "Vit", "g": "Swin"})
    number_of = {key(name): int(name not in "abc") for name in slots}
    assert community_names(contents, number_of) == ["Net", "Vit + Swin"]


# two communities of the same family and models: only their classes and sizes differ
SLOTS = {"a": [], "b": [], "c": [], "d": [], "e": [], "f": [], "g": []}
USES = {"net": dict.fromkeys(SLOTS, 1), "other": dict.fromkeys(SLOTS, 1)}


def test_where_models_do_not_tell_apart_classes_and_sizes_do() -> None:
    classes = {"a": "Conv2d", "b": "Conv2d", "c": "Linear", "d": "Linear", "e": "Linear", "f": "Linear", "g": "Linear"}
    contents = made_up(SLOTS, USES, classes)
    number_of = {key(name): number for name, number in zip("abcdefg", (0, 0, 1, 1, 1, 2, 2), strict=True)}
    assert community_names(contents, number_of) == [
        "net Conv2d", "net Linear, 3 structures", "net Linear, 2 structures",
    ]  # fmt: skip


def test_where_nothing_tells_apart_a_number_does() -> None:
    contents = made_up(SLOTS, USES, dict.fromkeys(SLOTS, "Linear"))
    number_of = {key(name): number for name, number in zip("abcdef", (0, 0, 1, 1, 2, 2), strict=True)}
    same = "net Linear, 2 structures"
    assert community_names(contents, number_of) == [f"{same}, no. {number}" for number in range(3)]


def test_a_model_may_be_called_as_a_community_would_be() -> None:
    same = "net Linear, 1 structure"
    contents = made_up(
        SLOTS, {"net": {"a": 1, "b": 1, "c": 1}, f"{same}, no. 0": {"d": 1}}, dict.fromkeys(SLOTS, "Linear")
    )
    number_of = {key(name): number for number, name in enumerate("abcd")}
    found = community_names(contents, number_of)
    assert len(set(found)) == 4
    assert f"{same}, no. 0" in found


def test_what_two_terms_share_is_said_once_and_long_ones_are_cut() -> None:
    long = ["x" * 200 + end for end in ("1", "2")]
    contents = made_up(SLOTS, {"swin_v2_b": {"a": 1, "b": 1}, "swin_v2_s": {"c": 1, "d": 1}, long[0]: {"e": 1, "f": 1}})
    number_of = {key(name): number for name, number in zip("abcdef", (0, 0, 0, 0, 1, 1), strict=True)}
    merged = dict.fromkeys(number_of, 0)
    assert "swin_v2_b + s" in _by_models(contents, number_of)
    assert all(len(name) <= 2 * MAX_TERM_LENGTH + 60 for name in community_names(contents, merged))


def _by_models(contents: Contents, number_of: dict[str, int]) -> list[str]:
    """Names where all roots are of one class, so that families say nothing."""
    same = dict.fromkeys(SLOTS, "Net")
    models = {
        model.name: {name: 1 for name in SLOTS if key(name) in {k for k, _ in model.occurrences}}
        for model in contents.models.values()
    }
    return community_names(made_up(SLOTS, models, same), number_of)


@pytest.mark.nightly
def test_neither_order_nor_hashes_count() -> None:
    contents = zoo_contents(FAMILY)
    turned = Contents(modules=dict(reversed(contents.modules.items())), models=dict(reversed(contents.models.items())))
    expected = names_of(contents)
    assert names_of(turned) == expected
    script = (
        "from knowledge.test_community_names import names_of, zoo_contents, FAMILY\n"
        "print(names_of(zoo_contents(FAMILY)))"
    )
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert other.stdout.strip() == str(expected)


def test_the_table_and_its_plot_have_the_names() -> None:
    contents = contents_of(one=nn.Sequential(nn.ReLU()), two=nn.Sequential(nn.Sequential(nn.GELU())))
    table = communities(contents)
    assert table.attrs["names"] == names_of(contents)
    assert communities(Contents()).attrs["names"] == []
