"""The table of traits: every operator in it is one of torch's, and rules and traits say the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modulekg_widgets.engine.axes.inference.inference import find_rule
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.operators import traits
from modulekg_widgets.engine.operators.signature import base_name, overloads_of
from modulekg_widgets.engine.operators.traits import operators_with, size_argument, traits_named, traits_of

# in the tables of this project for other versions of torch
OTHER_VERSIONS = {"aten::cholesky"}
# pointwise, and with a rule of its own: it marks where an index was chosen
MARKS_THE_CHOSEN = {"aten::eq"}


def of_aten() -> list[Any]:
    names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}
    return [overload for name in sorted(names) for overload in overloads_of(name)]


def test_every_operator_in_it_exists() -> None:
    ours = [name for name in traits._table if name.startswith("aten::")]
    missing = {name for name in ours if not overloads_of(name) and not overloads_of(f"{name}_")}
    assert missing - OTHER_VERSIONS == set()


def test_pointwise_is_what_the_elementwise_rule_is_for() -> None:
    differ = [each for each in of_aten() if traits_of(each).pointwise != (find_rule(each) is rules["aten::clone"])]
    assert {base_name(each._schema.name) for each in differ} == MARKS_THE_CHOSEN
    assert all(traits_of(each).pointwise for each in differ)


@pytest.mark.parametrize("trait", ["index", "sizes", "triangle"])
def test_the_arguments_that_it_names_exist(trait: str) -> None:
    for name, value in operators_with(trait).items():
        named = {"index": lambda v: [v], "sizes": lambda v: [each for each, _ in v], "triangle": lambda v: [v[0]]}
        known = {argument.name for overload in overloads_of(name) for argument in overload._schema.arguments}
        assert known & set(named[trait](value)) or name in {*OTHER_VERSIONS, "aten::linalg_matrix_rank"}


def test_what_is_in_a_row_has_a_rule() -> None:
    lists = {name: value for name, value in vars(traits).items() if name.isupper() and isinstance(value, tuple)}
    assert len(lists) > 30
    for names in lists.values():
        for name in names:
            # eigh and its like come as other operators
            assert name in rules or base_name(name) in rules or name == "aten::empty"


def test_every_kind_of_layer_has_what_finds_it() -> None:
    assert set(operators_with("layer").values()) == set(Layers._FINDERS)


def test_writing_in_place_has_the_traits_of_its_namesake() -> None:
    assert traits_of(torch.ops.aten.mul_.Tensor) is traits_of(torch.ops.aten.mul.Tensor)
    assert traits_named("aten::squeeze_").moves
    assert traits_of(torch.ops.aten.gelu_.default).pointwise


def test_an_operator_that_nobody_listed_has_none() -> None:
    assert traits_of(torch.ops.aten.nonzero.default) == traits.NO_TRAITS
    assert traits_named("mylib::unheard_of") == traits.NO_TRAITS


def test_sizes_go_by_what_they_count() -> None:
    class Call(dict[str, Any]):
        overload = torch.ops.aten.native_group_norm.default
        has = dict.__contains__

    call = Call(group=4, C=8)
    assert size_argument(call, traits.GROUPS) == "group"  # type: ignore[arg-type]
    assert size_argument(call, traits.CHANNELS) == "C"  # type: ignore[arg-type]
