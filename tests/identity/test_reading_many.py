"""Modules are read many at a time: that must not hide a difference, nor make one."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from models.nasty import nasty_module
from models.zoo import zoo_model
from modulekg_widgets.engine.identity.encoding.module_digests import BATCH_SIZE
from modulekg_widgets.engine.identity.fingerprint import Identities, fast_tree_digest
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

FEW = BATCH_SIZE + 3  # the odd one stands in a second helping


def linear() -> nn.Linear:
    return nn.Linear(2, 3, device="meta")


def changed(change: Callable[[Any], None]) -> nn.Module:
    module = linear()
    change(module)
    return module


def renamed(registry: str) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        held = vars(module)[registry]
        held["other"] = held.pop("bias", None)

    return change


def swapped_attribute(module: Any) -> None:
    del vars(module)["_is_full_backward_hook"]  # as many attributes as before
    module.extra = 1


def other_kind(name: str, value: Any) -> Callable[[Any], None]:
    return lambda module: vars(module).update({name: value})


ODD: dict[str, nn.Module] = {
    "value": nn.Linear(2, 3, bias=False, device="meta"),
    "shape": nn.Linear(3, 2, device="meta"),
    "kind of number": linear().to(torch.complex64),
    "one attribute for another": changed(swapped_attribute),
    "type of a value": changed(other_kind("in_features", 2.0)),
    "truth for a number": changed(other_kind("in_features", True)),
    "another name of a parameter": changed(renamed("_parameters")),
    "a buffer more": changed(lambda module: module.register_buffer("extra", torch.ones(1))),
    "a parameter that is a buffer": changed(
        lambda module: vars(module)["_buffers"].update(bias=vars(module)["_parameters"].pop("bias"))
    ),
    "an empty parameter": changed(lambda module: vars(module)["_parameters"].update(bias=None)),
    "a value of its own kind": changed(other_kind("extra", nn.ReLU)),
    "class": nn.Bilinear(1, 2, 3, device="meta"),
}


@pytest.mark.parametrize("place", [0, 1, FEW - 2, FEW - 1])
@pytest.mark.parametrize("name", ODD)
def test_one_among_many_is_told_apart(name: str, place: int) -> None:
    model = nn.Sequential(*[linear() for _ in range(FEW)])
    model[place] = copy.deepcopy(ODD[name])
    fingerprints = [record.fingerprint for record in mk.hierarchy(model).root.children]
    assert fingerprints[place] == mk.fingerprint(ODD[name])
    assert set(fingerprints[:place] + fingerprints[place + 1 :]) == {mk.fingerprint(linear())}
    assert fingerprints[place] != mk.fingerprint(linear())
    assert mk.fingerprint(model) == mk.hierarchy(model).root.fingerprint
    assert mk.fingerprint(model) != mk.fingerprint(nn.Sequential(*[linear() for _ in range(FEW)]))


def test_with_and_without_tensors_in_turn() -> None:
    bare, full = nn.BatchNorm1d(2, affine=False, track_running_stats=False), nn.BatchNorm1d(2)
    vars(full).update(affine=False, track_running_stats=False)  # their attributes do not tell them apart
    model = nn.Sequential(*[copy.deepcopy(m) for m in (bare, full, bare)])
    first, second, third = (record.fingerprint for record in mk.hierarchy(model).root.children)
    assert first == third != second
    assert second == mk.fingerprint(full)


def in_other_order(module: Any) -> None:
    state = vars(module)
    items = sorted(state.items(), reverse=True)
    state.clear()
    state.update(items)


SAME: dict[str, nn.Module] = {
    "attributes in another order": changed(in_other_order),
    "precision": linear().half(),
    "registries as older torch makes them": changed(
        lambda module: vars(module).update({r: OrderedDict(vars(module)[r]) for r in ("_parameters", "_buffers")})
    ),
    "children as older torch keeps them": changed(other_kind("_modules", OrderedDict())),
    "a plain tensor for a parameter": changed(
        lambda module: vars(module)["_parameters"].update(bias=module.bias.detach())
    ),
    "an attribute that every module may carry": changed(other_kind("_is_fsdp_managed_module", True)),
}


@pytest.mark.parametrize("name", SAME)
def test_one_among_many_is_the_same(name: str) -> None:
    model = nn.Sequential(linear(), copy.deepcopy(SAME[name]), linear())
    assert len({record.fingerprint for record in mk.hierarchy(model).root.children}) == 1
    assert mk.fingerprint(model) == mk.fingerprint(nn.Sequential(linear(), linear(), linear()))


@pytest.mark.slow
def test_every_model_has_one_digest_however_it_is_read() -> None:
    models = [zoo_model(name) for name in torchvision_builders()]
    regular = 0
    for model in models:
        whole = mk.hierarchy(model).root.fingerprint
        assert mk.fingerprint(model) == whole
        assert mk.fingerprint(model).opaque_paths == whole.opaque_paths
        regular += fast_tree_digest(model) is not None
    assert regular > 0.9 * len(models)  # the quick way serves them, not its substitute


@pytest.mark.nightly
def test_many_at_a_time_have_the_digests_of_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [*map(zoo_model, torchvision_builders()), *map(nasty_module, sorted(NASTY)), *ODD.values(), *SAME.values()]
    models = [model for model in models if _has_identity(model)]
    many = [Identities(walk(model)).digests for model in models]
    monkeypatch.setattr("modulekg_widgets.engine.identity.encoding.module_digests._Layout.columns", lambda *_: None)
    assert [Identities(walk(model)).digests for model in models] == many


def _has_identity(model: nn.Module) -> bool:
    with suppress(mk.ModuleKGError):
        return bool(Identities(walk(model)).digests)
    return False


@pytest.mark.parametrize("name", sorted(NASTY))
def test_nasty_modules_have_one_digest_however_they_are_read(name: str) -> None:
    module = nasty_module(name)
    try:
        whole = mk.hierarchy(module).root.fingerprint
    except mk.ModuleKGError as error:
        with pytest.raises(type(error)):
            mk.fingerprint(module)
    else:
        assert mk.fingerprint(module) == whole
        assert mk.fingerprint(module).opaque_paths == whole.opaque_paths


@pytest.mark.slow
def test_what_is_irregular_is_left_to_the_walk() -> None:
    shared = nn.Sequential(nn.ReLU())
    cycle = nn.Sequential(nn.Sequential())
    cycle[0].add_module("up", cycle)
    empty = nn.Sequential(nn.ReLU())
    empty.register_module("none", None)
    for model in (nn.Sequential(shared, shared), cycle, empty, torch.compile(nn.ReLU())):
        assert fast_tree_digest(model) is None  # type: ignore[arg-type]
        assert mk.fingerprint(model) == mk.hierarchy(model).root.fingerprint  # type: ignore[arg-type]


def test_sharing_at_every_level_takes_no_exponential_time() -> None:
    model: nn.Module = nn.ReLU()
    for _ in range(60):
        model = nn.Sequential(model, model)
    digests = mk.fingerprint(model).hexdigest, mk.hierarchy(model).root.fingerprint.hexdigest
    assert digests[0] == digests[1]  # the model itself must not stand here: its repr takes for ever
