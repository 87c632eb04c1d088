"""Nothing of the user's runs: every special method of every value and module raises, and none is called."""

import array
import collections
import fractions
import functools
import pathlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, untouched

METHODS = [
    "__repr__",
    "__str__",
    "__eq__",
    "__hash__",
    "__len__",
    "__bool__",
    "__iter__",
    "__getattr__",
    "__getattribute__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__format__",
    "__contains__",
    "__getitem__",
    "__index__",
    "__int__",
    "__float__",
    "__call__",
    "__get__",
    "__sizeof__",
    "__dir__",
    "__lt__",
    "__array__",
    "__fspath__",
    "__copy__",
    "__deepcopy__",
    "__buffer__",
]


class Alarm:
    """Methods that raise once the alarm is set."""

    def __init__(self) -> None:
        self.is_set = False
        self.rung: list[str] = []

    def method(self, name: str) -> Callable[..., Any]:
        def ring(owner: Any, *args: Any, **keywords: Any) -> Any:
            if self.is_set:
                self.rung.append(name)
                raise RuntimeError(f"{name} was called")
            inherited = getattr(nn.Module, name, None) if issubclass(type(owner), nn.Module) else None
            return (inherited or getattr(object, name))(owner, *args, **keywords)

        return ring

    def cls(self, *bases: type, methods: list[str] = METHODS) -> Any:
        namespace: dict[str, Any] = {name: self.method(name) for name in methods}
        namespace |= {"__class__": property(self.method("__class__")), "prop": property(self.method("prop"))}
        return type("Evil", bases, namespace)


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    made = Alarm()
    yield made
    made.is_set = False


def as_tensor(alarm: Alarm) -> Any:
    methods = {name: alarm.method(name) for name in METHODS}
    methods["__torch_function__"] = classmethod(alarm.method("__torch_function__"))
    return torch.ones(2).as_subclass(type("Evil", (torch.Tensor,), methods))


VALUES: dict[str, Callable[[Alarm], Any]] = {
    "object": lambda a: a.cls(object)(),
    "int": lambda a: int.__new__(a.cls(int), 1),
    "str": lambda a: str.__new__(a.cls(str), "a"),
    "float": lambda a: float.__new__(a.cls(float), 1.5),
    "complex": lambda a: complex.__new__(a.cls(complex), 1j),
    "bytes": lambda a: bytes.__new__(a.cls(bytes), b"a"),
    "bytearray": lambda a: a.cls(bytearray)(b"a"),
    "list": lambda a: a.cls(list)([1]),
    "tuple": lambda a: tuple.__new__(a.cls(tuple), (1,)),
    "dict": lambda a: a.cls(dict)(a=1),
    "set": lambda a: a.cls(set)({1}),
    "frozenset": lambda a: a.cls(frozenset)({1}),
    "OrderedDict": lambda a: a.cls(collections.OrderedDict)(),
    "deque": lambda a: a.cls(collections.deque)(),
    "Counter": lambda a: a.cls(collections.Counter)(),
    "Fraction": lambda a: a.cls(fractions.Fraction)(1, 2),
    "path": lambda a: a.cls(pathlib.PurePosixPath)("a"),
    "partial": lambda a: a.cls(functools.partial)(int),
    "array": lambda a: a.cls(array.array)("b", b"a"),
    "exception": lambda a: a.cls(Exception)(),
    "numpy array": lambda a: np.ones(3).view(a.cls(np.ndarray)),
    "tensor": as_tensor,
    "descriptor in a class": lambda a: type("Plain", (), {"field": a.cls(object)()})(),
}
LOOKS: dict[str, Callable[[nn.Module], Any]] = {
    "fingerprint": mk.fingerprint,
    "seed": lambda m: mk.fingerprint(m, "seed"),
    "weights": mk.weight_fingerprint,
    "fold": lambda m: str(mk.hierarchy(m).fold()),
    "graph": lambda m: mk.KnowledgeGraph().add_model(m),
    "diff": lambda m: str(mk.diff(m, m)),
}


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (v,)}], ids=["bare", "list", "dict"])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_no_method_of_a_value_runs(value: Callable[[Alarm], Any], wrap: Callable[[Any], Any], alarm: Alarm) -> None:
    model = nn.Sequential(Holder(x=wrap(value(alarm))))
    for look in LOOKS.values():
        alarm.is_set = True
        with suppress(mk.ModuleKGError):
            look(model)
        assert alarm.rung == []


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("base", [nn.Module, nn.Linear, nn.Sequential, nn.ModuleList, nn.Identity])
def test_no_method_of_a_module_runs(base: type[nn.Module], look: Callable[[nn.Module], Any], alarm: Alarm) -> None:
    kept = [name for name in METHODS if name not in ("__getitem__", "__iter__", "__len__", "__hash__", "__index__")]
    cls = alarm.cls(base, methods=kept)
    evil = cls(2, 2) if base is nn.Linear else cls()
    model = nn.Module()
    model._modules["evil"] = evil
    model.__dict__["_hidden"] = [evil]
    alarm.is_set = True
    look(model)
    look(evil)
    assert alarm.rung == []


def test_a_mode_of_torch_has_no_say() -> None:
    class Raising(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError("the mode was asked")

    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    expected = mk.fingerprint(model), mk.weight_fingerprint(model)
    with Raising():
        assert (mk.fingerprint(model), mk.weight_fingerprint(model)) == expected


def test_equal_values_of_such_classes_are_the_same(alarm: Alarm) -> None:
    cls = alarm.cls(list)
    first, second, third = Holder(x=cls([1])), Holder(x=cls([1])), Holder(x=cls([2]))
    alarm.is_set = True
    digests = [mk.fingerprint(model).hexdigest for model in (first, second, third)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_look_leaves_the_model_as_it_was(look: Callable[[nn.Module], Any]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), nn.LSTM(4, 4), nn.LazyLinear(2))
    model[0].register_forward_hook(lambda *_: None)
    model[0](torch.ones(1, 3, 4, 4)).sum().backward()
    assert untouched(model, look)
