"""The walk: order, paths, sharing, cycles, empty slots, depth and width, and what it refuses."""

from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, Outer, same
from modulekg_widgets.engine.errors import (
    BrokenModuleError,
    NotAModuleError,
    UninitializedModuleError,
    UnknownPathError,
)


def chain(levels: int, back_to_root: bool = False) -> nn.Module:
    root = module = nn.Module()
    for _ in range(levels):
        inner = nn.Module()
        module._modules["i"] = inner
        if back_to_root:
            inner._modules["root"] = root
        module = inner
    return root


def wide(count: int) -> nn.Module:
    root = nn.Module()
    root._modules.update({str(i): nn.Identity() for i in range(count)})
    return root


def cyclic(width: int = 2) -> nn.Module:
    model = Outer(child=nn.Linear(width, 2))
    model.child.parent = model
    return model


def test_modules_come_in_the_order_of_torch() -> None:
    layer = nn.Linear(2, 2)
    model = Outer(a=nn.Sequential(layer, nn.ReLU()), none=None, b=layer, c=nn.Sequential(nn.Sequential(nn.ReLU())))
    assert [(r.path, r.module) for r in mk.hierarchy(model)] == list(model.named_modules())


def test_a_module_is_found_under_each_of_its_paths() -> None:
    layer = nn.Linear(2, 2)
    found = mk.hierarchy(Outer(a=nn.Sequential(layer), b=layer))
    assert found["a.0"] == found["b"]
    assert found["b"].path == "a.0"
    assert "b" in found
    assert "c" not in found


def test_names_that_hold_dots_are_found() -> None:
    model = nn.Module()
    names = ["a", "a.b", "a.b.c", "..", "", "x."]
    model._modules.update({name: nn.Sequential(nn.ReLU()) for name in names})
    model._modules["a"]._modules["b.d"] = nn.SiLU()
    found = mk.hierarchy(model)
    for record in found:
        assert found[record.path].path == record.path
    assert found["a.b.d"].class_name == "SiLU"


def test_every_one_of_many_siblings_is_found() -> None:
    found = mk.hierarchy(wide(20_000))
    assert [found.find(record.path) for record in found] == list(range(20_001))


def test_a_cycle_has_a_stable_fingerprint() -> None:
    assert same(cyclic(), cyclic())
    assert not same(cyclic(2), cyclic(3))
    assert not same(cyclic(), Outer(child=nn.Linear(2, 2)))
    assert len(mk.hierarchy(cyclic())) == 2


def test_a_cycle_counts_by_how_far_up_it_leads() -> None:
    near, far = (Outer(a=Outer(b=Outer())) for _ in range(2))
    near.a.b.up = near.a
    far.a.b.up = far
    assert not same(near, far)


@pytest.mark.parametrize("back_to_root", [False, True], ids=["chain", "cycles"])
@pytest.mark.slow
def test_five_thousand_levels(back_to_root: bool) -> None:
    model = chain(5_000, back_to_root)
    found = mk.hierarchy(model)
    assert found.root.fingerprint == mk.fingerprint(chain(5_000, back_to_root))
    assert found.root.fingerprint != mk.fingerprint(chain(4_999, back_to_root))
    assert found[5_000].path == ".".join("i" * 5_000)
    assert found[found[5_000].path].depth == 5_000
    assert found.root.parameters == found[5_000].parameters == 0
    assert len(found.fold()) >= 5_000
    unwind(model)


def unwind(module: nn.Module) -> None:
    # torch deletes nested modules one within the other, which overflows the stack
    waiting = [module]
    while waiting:
        inside = waiting.pop()._modules
        waiting += [child for child in inside.values() if child is not None]
        inside.clear()


@pytest.mark.nightly
def test_a_hundred_thousand_children() -> None:
    found = mk.hierarchy(wide(100_000))
    assert len(found) == 100_001
    assert len({record.fingerprint for record in list(found)[1:100]}) == 1
    assert len(found.fold()) == 1


def test_parameters_are_counted_once() -> None:
    shared = nn.Linear(3, 3, bias=False)
    model = Outer(a=nn.Sequential(shared), b=shared, c=nn.Sequential(nn.Linear(3, 3)))
    model.c[0].weight = shared.weight
    found = mk.hierarchy(model)
    assert {r.path: r.parameters for r in found} == {"": 12, "a": 9, "a.0": 9, "c": 12, "c.0": 12}


def test_in_a_cycle_each_holds_what_all_hold() -> None:
    model = Outer(a=nn.Linear(2, 2), b=Outer(c=nn.Linear(3, 3)))
    model.b.up = model
    assert {r.path: r.parameters for r in mk.hierarchy(model)} == {"": 18, "a": 6, "b": 18, "b.c": 12}


def test_levels_by_depth() -> None:
    modules = mk.hierarchy(Outer(op=nn.ReLU(), stage=nn.Sequential(nn.Sequential(nn.ReLU()))))
    levels = {record.path: modules.level(record.index, "depth") for record in modules}
    assert levels == {"": "model", "op": "op", "stage": "stage", "stage.0": "block", "stage.0.0": "op"}


class NoSuper(nn.Module):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("thing", "error", "text"),
    [
        (nn.Linear, NotAModuleError, "Linear: pass an instance"),
        (None, NotAModuleError, "got None"),
        ("resnet", NotAModuleError, "str"),
        ({"a": nn.ReLU()}, NotAModuleError, "dict"),
        (NoSuper(), BrokenModuleError, "NoSuper"),
        (nn.LazyLinear(2), UninitializedModuleError, "'weight' of LazyLinear"),
        (nn.Sequential(nn.ReLU(), nn.LazyConv2d(2, 3)), UninitializedModuleError, "'1.weight' of LazyConv2d"),
    ],
    ids=["class", "None", "text", "dict", "no super().__init__()", "lazy", "lazy inside"],
)
@pytest.mark.parametrize("look", [mk.fingerprint, mk.weight_fingerprint, lambda m: mk.KnowledgeGraph().add_model(m)])
def test_what_is_refused_is_named(thing: Any, error: type[Exception], text: str, look: Any) -> None:
    if look is mk.weight_fingerprint and error is UninitializedModuleError:
        text = text.split(" of ")[0].replace("weight'", "")  # it names the first tensor by name
    with pytest.raises(error, match=text.replace("(", r"\(").replace(")", r"\)")) as caught:
        look(thing)
    assert isinstance(caught.value, mk.ModuleKGError)


def test_a_lazy_part_refuses_only_what_holds_it() -> None:
    lazy = nn.LazyLinear(2)
    found = mk.hierarchy(Outer(a=nn.ReLU(), b=nn.Sequential(lazy), c=nn.Sequential(lazy)))
    assert found["a"].fingerprint == mk.fingerprint(nn.ReLU())
    for path in ("", "b", "c"):
        with pytest.raises(UninitializedModuleError):
            _ = found[path].fingerprint


def broken(registry: str, name: Any, value: Any) -> nn.Module:
    model = nn.Sequential(nn.ReLU())
    model[0].__dict__[registry][name] = value
    return model


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (broken("_modules", 0, nn.ReLU()), "'0' is named by an int"),
        (broken("_modules", "x", 5), "'0.x' is an int"),
        (broken("_parameters", 0, None), "of '0' is not named by a text"),
    ],
    ids=["number as name of a child", "number as child", "number as name of a parameter"],
)
def test_registries_that_hold_nonsense_are_refused(model: nn.Module, text: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=text):
        mk.fingerprint(model)


def test_odd_attributes_are_no_obstacle() -> None:
    model = Holder()
    model.__dict__[5] = "not a name"
    del model.__dict__["_buffers"]
    model.__dict__["_parameters"]["w"] = "no tensor"
    assert mk.fingerprint(model) == mk.fingerprint(model)


@pytest.mark.parametrize("key", ["missing", "0.missing", "layer.0", 5.0, None])
def test_unknown_paths_are_refused_with_a_hint(key: Any) -> None:
    with pytest.raises(UnknownPathError):
        mk.hierarchy(nn.Sequential(nn.Linear(2, 2)))[key]


def test_an_unknown_scheme_is_refused_with_a_hint() -> None:
    with pytest.raises(mk.ModuleKGError, match=r"did you mean 'seed'"):
        mk.fingerprint(nn.ReLU(), scheme="sead")


@pytest.mark.slow
def test_the_seed_scheme_refuses_a_cycle_and_what_has_no_text() -> None:
    with pytest.raises(mk.ModuleKGError, match=r"child\.parent"):
        mk.fingerprint(cyclic(), scheme="seed")
    for value in ([object()], 10**5000, [[1] * 1000] * 1_000_000):
        with pytest.raises(mk.ModuleKGError, match=r"'0\.huge'"):
            mk.fingerprint(nn.Sequential(Holder(huge=value)), scheme="seed")


def test_records_of_two_hierarchies_differ() -> None:
    model = nn.Sequential(nn.ReLU())
    first, second = mk.hierarchy(model), mk.hierarchy(model)
    assert first["0"] == first[1] != second["0"]


def test_a_root_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10, 10))
    assert mk.hierarchy(model).root.parameters == 110
