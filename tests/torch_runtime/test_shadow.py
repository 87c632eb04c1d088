"""Shadows: what a forward can reach leads to the copy, and nothing that is done there reaches the model."""

from __future__ import annotations

import functools
import gc
import operator
import threading
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from checks.model_state import unchanged
from models.functional import Lambda
from models.nasty import nasty_module
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, SHARED, UNREGISTERED, Shadow


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).eval()


# ----------------------------------------------------------------- tensors


def test_whose_memory_it_is() -> None:
    model = Lambda(lambda module, x: x, linear=nn.Linear(2, 2), loose=torch.zeros(3))
    model.register_buffer("buffer", torch.zeros(2))
    for own, shares in (
        (SHARED, (True, True, True)),
        (UNREGISTERED, (True, True, False)),
        (ALL, (False, False, False)),
    ):
        copy = Shadow(model, own_memory=own).model
        pairs = [(model.linear.weight, copy.linear.weight), (model.buffer, copy.buffer), (model.loose, copy.loose)]
        assert tuple(a.data_ptr() == b.data_ptr() for a, b in pairs) == shares
        assert all(a is not b and type(a) is type(b) and torch.equal(a, b) for a, b in pairs)
        assert copy.linear.weight.requires_grad
        versions = [a._version for a, _ in pairs]
        with torch.no_grad():
            for _, b in pairs:
                b.add_(0)
        assert [a._version for a, _ in pairs] == versions


def test_tensors_that_share_memory_do_so_in_the_copy() -> None:
    flat = torch.arange(6.0)
    model = Lambda(
        lambda module, x: x, flat=flat, part=flat[2:4], turned=flat.view(2, 3).t(), data=torch.zeros(9, 9)[0]
    )
    copy = Shadow(model, own_memory=ALL).model
    copy.flat.zero_()
    assert copy.part.tolist() == [0, 0]
    assert copy.turned.stride() == model.turned.stride()
    assert flat.tolist() == [0, 1, 2, 3, 4, 5]


def test_one_sample_of_a_large_data_set_is_copied_alone() -> None:
    data = torch.zeros(1000, 1000)
    copy = Shadow(Lambda(lambda module, x: x, sample=data[3]), own_memory=ALL).model
    assert copy.sample.untyped_storage().nbytes() == 4000


def test_ties_and_shared_modules_stay() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    model.again = model[0]
    copy = Shadow(model).model
    assert copy[2].weight is copy[0].weight
    assert copy.again is copy[0]
    assert list(copy.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("own", [SHARED, ALL])
@pytest.mark.parametrize("name", sorted(set(NASTY) - {"wide_100k", "lazy"}))
def test_every_nasty_module(name: str, own: int) -> None:
    model = nasty_module(name)
    with unchanged(model):
        shadow = Shadow(model, own_memory=own)
        assert type(shadow.model) is type(model)
        assert isinstance(model, torch.jit.ScriptModule) or shadow.model is not model
        shadow.release()


# --------------------------------------------------------------- structure


class Holder:
    """An object that is no module, with slots below attributes."""

    __slots__ = ("__dict__", "module", "unset")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: list[Any] = []

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return self.module(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holder) and self.module is other.module

    def __hash__(self) -> int:
        return hash(id(self.module))  # needs what is inside


class Pair(NamedTuple):
    first: Any
    second: Any


class Named(OrderedDict):  # type: ignore[type-arg]
    """A mapping of one's own, as the outputs of transformers are."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(parts)
        self.__dict__.update(parts)


def closing_over(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    count = 0

    def call(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return module(x) * count

    def outer(x: torch.Tensor) -> torch.Tensor:
        return call(x) + call(x) / count

    return outer


def recursive(module: nn.Module) -> Callable[..., torch.Tensor]:
    def again(x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return again(module(x), depth - 1) if depth else x

    return again


class Raises:
    """Cannot be copied as copies are made."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.lock = module, threading.Lock()

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no deep copy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("no pickle")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with self.lock:
            return self.module(x)


WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "a closure": closing_over,
    "a function that calls itself": recursive,
    "a default": lambda module: lambda x, layer=module: layer(x),
    "a keyword's default": lambda module: lambda x, *, layer=module: layer(x),
    "a bound method": lambda module: module.forward,
    "a function bound to it": lambda module: functools.partial(type(module).forward, module),
    "a partial": lambda module: functools.partial(lambda layer, x: layer(x), module),
    "a callable object": Holder,
    "a bound method of an object": lambda module: Holder(module).__call__,
    "an object that refuses to be copied": Raises,
    "a reference": lambda module: (lambda ref: lambda x: ref()(x))(weakref.ref(module)),
    "a reference to a method": lambda module: (lambda ref: lambda x: ref()(x))(weakref.WeakMethod(module.forward)),
    "a proxy": lambda module: (lambda proxy: lambda x: proxy(x))(weakref.proxy(module)),
    "a proxy in an object": lambda module: Holder(weakref.proxy(module)),
    "a cached function": lambda module: (lambda get: lambda x: get(1)(x))(functools.lru_cache(lambda _: module)),
    "a list": lambda module: (lambda parts: lambda x: parts[0](x))([module]),
    "a tuple": lambda module: (lambda parts: lambda x: parts.second[0](x))(Pair(1, (module,))),
    "a set": lambda module: (lambda parts: lambda x: next(iter(parts))(x))({module}),
    "a set of objects": lambda module: (lambda parts: lambda x: next(iter(parts))(x))({Holder(module)}),
    "a dictionary by module": lambda module: (lambda parts: lambda x: next(iter(parts))(x))({module: 1}),
    "a dictionary of one's own": lambda module: (lambda parts: lambda x: parts.layer(x))(Named(layer=module)),
    "a dictionary with a default": lambda module: (lambda parts: lambda x: parts["a"](x))(defaultdict(lambda: module)),
    "a queue": lambda module: (lambda parts: lambda x: parts[0](x))(deque([module], maxlen=2)),
    "a namespace": lambda module: (lambda space: lambda x: space.a.b(x))(SimpleNamespace(a=SimpleNamespace(b=module))),
    "a dictionary of weak values": lambda module: (lambda parts: lambda x: parts["a"](x))(
        weakref.WeakValueDictionary({"a": module})
    ),
    "a dictionary of weak keys": lambda module: (lambda parts: lambda x: next(iter(parts))(x))(
        weakref.WeakKeyDictionary({module: 1})
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_module_leads_to_its_copy(way: str) -> None:
    inner = nn.Linear(4, 4)
    model = Lambda(lambda module, x: module.call(x), inner=inner, call=WAYS[way](inner))
    x = torch.randn(2, 4)
    copy = Shadow(model, own_memory=ALL).model
    with torch.no_grad():
        expected = model(x)
        model2 = Shadow(model, own_memory=ALL).model
        copy.inner.weight.zero_(), copy.inner.bias.zero_()
        assert not copy(x).any()
        assert torch.equal(model2.inner.weight, inner.weight)
    assert expected.any()
    with unchanged(model, x):
        graph = mk.trace(model, x)
    assert graph.notes == []
    assert graph.traced_on == "meta"
    assert {"inner.weight"} <= {node.label for operator in graph.operators for node in operator.params}


class Cleans(nn.Module):
    """Ends what it holds when it goes."""

    ended: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.held = CleansToo()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def __del__(self) -> None:
        self.ended.append("module")


class CleansToo:
    def __del__(self) -> None:
        Cleans.ended.append("object")


@pytest.mark.slow
def test_what_cleans_up_at_its_end_is_left_to_the_model() -> None:
    model = Cleans()
    mk.trace(model, torch.randn(2, 4))
    gc.collect()
    assert Cleans.ended == []
    del model
    gc.collect()
    assert sorted(Cleans.ended) == ["module", "object"]
    Cleans.ended.clear()


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.slow
def test_that_is_so_too_where_the_model_itself_has_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(module: Any) -> Any:
        raise RuntimeError(f"{type(module).__name__} cannot be copied")

    monkeypatch.setattr("modulekg_widgets.engine.torch_runtime.isolation.shadow.copy.deepcopy", fails)
    model = nn.Sequential(Cleans(), torch.jit.script(nn.Linear(4, 4)))
    (note,) = mk.trace(model, torch.randn(2, 4)).notes
    assert "RecursiveScriptModule cannot be copied" in note
    gc.collect()
    assert Cleans.ended == []
    del model
    gc.collect()
    Cleans.ended.clear()


def test_numbers_outside_of_python_are_copied() -> None:
    model = Lambda(lambda module, x: x, array=np.zeros(3), generator=torch.Generator(), numpys=np.random.default_rng(0))
    with unchanged(model):
        copy = Shadow(model).model
        copy.array += 1
        torch.rand(2, generator=copy.generator), copy.numpys.random()
    state = np.random.default_rng(0).bit_generator.state
    assert model.numpys.bit_generator.state == state


def test_compiled_parts_are_those_that_were_written() -> None:
    inner = nn.Linear(4, 4)
    model = nn.Sequential(torch.compile(inner, backend="eager"))  # type: ignore[arg-type]
    model.compile(backend="eager")
    model.function = torch.compile(lambda x: inner(x), backend="eager")
    copy = Shadow(model).model
    assert type(copy[0]) is nn.Linear
    assert copy._compiled_call_impl is None
    copy[0].weight = nn.Parameter(torch.zeros(4, 4))
    copy[0].bias = None
    assert not copy.function(torch.ones(1, 4)).any()


def test_scripted_parts_have_a_copy_of_their_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))))
    x = torch.randn(3, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = mk.trace(model, x, training=True)
    assert [operator.name for operator in graph.operators].count("aten::addmm") == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_lock_that_is_held_is_shared() -> None:
    """A copy would be another lock, and a forward that takes it would not wait."""
    model = Lambda(lambda module, x: x, lock=threading.RLock(), event=threading.Event())
    copy = Shadow(model).model
    assert copy.lock is model.lock
    assert copy.event is model.event


@pytest.mark.slow
def test_a_shadow_goes_at_once() -> None:
    model = net()
    gc.collect()
    gc.disable()
    try:
        shadow = Shadow(model, own_memory=ALL)
        gone = weakref.ref(shadow.model[0])
        shadow.release()
        del shadow
        assert gone() is None
    finally:
        gc.enable()


class Handle(bytearray):
    """What a copy of it is, as pickle sees it, is a module that stands elsewhere."""

    home = SimpleNamespace(module=nn.Linear(4, 4))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return operator.attrgetter("home.module"), (Handle,)


def test_what_is_given_for_a_copy_stays_as_it_is() -> None:
    module = Handle.home.module
    before = dict(vars(module))
    mk.trace(Lambda(lambda module, x: x + 1, handle=Handle()), torch.randn(2, 4))
    assert vars(module) == before


def test_thousands_of_modules_in_each_other() -> None:
    model: nn.Module = nn.Linear(1, 1)
    for _ in range(5000):
        model = nn.Sequential(model)
    copy, depth = Shadow(model).model, 0
    while isinstance(copy, nn.Sequential):
        copy, depth = copy[0], depth + 1
    assert depth == 5000
    while isinstance(model, nn.Sequential):  # taken apart by hand: Python's own way is recursive
        model = model._modules.pop("0")  # type: ignore[assignment]


def test_tensors_without_data_in_the_records_of_an_exported_model() -> None:
    model = torch.export.export(net(), (torch.randn(3, 4),)).module()
    x = torch.randn(3, 4)
    assert mk.trace(model, x).notes == []
    assert mk.ForwardPlayer(model, x).error is None


def test_what_is_kept_by_an_address() -> None:
    inner = nn.Linear(4, 4)
    scales = {id(inner): 2.0, 7: 1.0}
    model = Lambda(lambda module, x: module.inner(x) * module.scales[id(module.inner)], inner=inner, scales=scales)
    assert mk.trace(model, torch.randn(2, 4)).notes == []
    assert set(model.scales) == {id(inner), 7}


def test_a_model_that_cannot_be_copied_is_looked_at_as_it_is() -> None:
    model, nested = net(), (torch.zeros(1),)
    for _ in range(5000):
        nested = (nested,)
    model.nested = nested
    (note,) = mk.trace(model, torch.randn(3, 4)).notes
    assert "it cannot be copied (RecursionError" in note
    model.nested = None
