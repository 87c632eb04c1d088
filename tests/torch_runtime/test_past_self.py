"""What forwards keep past self, in globals, functions, classes: a look leaves nothing there, or what a pass would."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from modulekg_widgets.engine.torch_runtime.isolation.shadow import Shadow

TABLES: dict[int, torch.Tensor] = {}
LOG: list[int] = []
SCALE = torch.ones(1)
TABLE: torch.Tensor | None = None


def made(size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) / size


def in_a_dictionary(module: Any, size: int) -> torch.Tensor:
    LOG.append(size)
    SCALE.add_(1)
    if size not in TABLES:
        TABLES[size] = made(size)
    return TABLES[size]


def helped(size: int) -> torch.Tensor:
    return in_a_dictionary(None, size)


def remembered(function: Callable[[int], torch.Tensor]) -> Callable[[int], torch.Tensor]:
    known: dict[int, torch.Tensor] = {}

    @functools.wraps(function)
    def inner(size: int) -> torch.Tensor:
        if size not in known:
            known[size] = function(size)
        return known[size]

    inner.known = known  # type: ignore[attr-defined]
    return inner


by_a_decorator: Any = remembered(made)


def by_an_attribute(size: int) -> torch.Tensor:
    if not hasattr(by_an_attribute, "table"):
        by_an_attribute.table = made(size)  # type: ignore[attr-defined]
    return by_an_attribute.table  # type: ignore[attr-defined]


def by_a_name(module: Any, size: int) -> torch.Tensor:
    global TABLE
    if TABLE is None:
        TABLE = made(size)
    return TABLE


class Tables:
    """An object that keeps tables for everybody."""

    def __init__(self) -> None:
        self.tables: dict[int, torch.Tensor] = {}

    def get(self, size: int) -> torch.Tensor:
        if size not in self.tables:
            table = torch.zeros(size)
            table[1:] += made(size)[1:]
            self.tables[size] = table
        return self.tables[size]


KEEPER = Tables()


class Net(nn.Module):
    tables: ClassVar[dict[int, torch.Tensor]] = {}
    seen: ClassVar[list[int]] = []
    one: ClassVar[torch.Tensor | None] = None
    calls: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu()) + self.table(3)

    def table(self, size: int) -> torch.Tensor:
        return in_a_dictionary(self, size)


class Helped(Net):
    def table(self, size: int) -> torch.Tensor:
        return helped(size)


class Static(Net):
    table = staticmethod(helped)  # type: ignore[assignment]


class Above(Net):
    def table(self, size: int) -> torch.Tensor:
        return super().table(size)


class Computed(Net):
    @property
    def value(self) -> torch.Tensor:
        return helped(3)

    def table(self, size: int) -> torch.Tensor:
        return self.value


class Decorated(Net):
    def table(self, size: int) -> torch.Tensor:
        return by_a_decorator(size) + by_an_attribute(size)


class Named(Net):
    table = by_a_name  # type: ignore[assignment]


class OfTheClass(Net):
    def table(self, size: int) -> torch.Tensor:
        self.seen.append(size)
        return self.tables.setdefault(size, made(size))


class ByItsClass(Net):
    def table(self, size: int) -> torch.Tensor:
        type(self).calls += 1
        Net.seen.append(size)
        return Net.tables.setdefault(size, made(size))


class SetOnTheClass(Net):
    def table(self, size: int) -> torch.Tensor:
        if Net.one is None:
            Net.one = made(size)
        return Net.one


class ByTheClass(Net):
    @classmethod
    def table(cls, size: int) -> torch.Tensor:  # type: ignore[override]
        return cls.tables.setdefault(size, made(size))


class ByAnObject(Net):
    def table(self, size: int) -> torch.Tensor:
        return KEEPER.get(size)


# those that code of another place than a method's keeps: what is there afterwards is what a real pass makes
AFTERWARDS = (Above, Computed, ByAnObject)
EVERY = [Net, Helped, Static, Decorated, Named, OfTheClass, ByItsClass, SetOnTheClass, ByTheClass, *AFTERWARDS]


def everything() -> list[Any]:
    return [
        dict(TABLES), list(LOG), SCALE.item(), TABLE, dict(by_a_decorator.known), dict(vars(by_an_attribute)),
        dict(Net.tables), list(Net.seen), Net.one, Net.calls, ByItsClass.calls, dict(KEEPER.tables),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    global TABLE
    yield
    TABLE = Net.one = None
    Net.calls = 0
    vars(by_an_attribute).pop("table", None)
    SCALE.fill_(1)
    for held in (TABLES, LOG, by_a_decorator.known, Net.tables, Net.seen, KEEPER.tables):
        held.clear()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("cls", EVERY)
def test_what_forward_keeps(cls: type[Net], warm: bool) -> None:
    model, x = cls().eval(), torch.randn(5, 4)
    if warm:
        model(x)
    before = everything()
    with unchanged(model, x):
        graph = mk.trace(model, x)
        assert mk.plan(graph, ratio=0.5).axes
        assert graph.axes.verify().ok
        assert mk.ForwardPlayer(model, x).error is None
        mk.plan(graph, ratio=0.5, importance=mk.pruning.Taylor([(x, x[:, :3])], nn.functional.mse_loss))
    assert graph.notes == []
    if warm or cls not in AFTERWARDS:
        assert str(everything()) == str(before)
    kept = everything()
    expected = model.b(model.a(x).relu()) + made(3) * (2 if cls is Decorated else 1)
    assert torch.equal(model(x), expected)
    assert (
        not warm or str(kept) != str(everything()) or cls in (Decorated, Named, SetOnTheClass, ByTheClass, ByAnObject)
    )


class KeepsResults(Net):
    kept: ClassVar[Any] = None

    def table(self, size: int) -> torch.Tensor:
        KEEPER.tables[0] = self.a.weight.detach() * 2
        return made(size)


LOCAL = threading.local()
CURRENT: ContextVar[Any] = ContextVar("CURRENT", default=None)


class Registry:
    module: ClassVar[Any] = None


def in_a_thread(layer: nn.Module) -> Any:
    LOCAL.module = getattr(LOCAL, "module", layer)
    return LOCAL.module


def in_a_context(layer: nn.Module) -> Any:
    if CURRENT.get() is None:
        CURRENT.set(layer)
    return CURRENT.get()


def in_another_class(layer: nn.Module) -> Any:
    Registry.module = Registry.module or layer
    return Registry.module


def in_a_bound_method(layer: nn.Module) -> Any:
    LOCAL.method = getattr(LOCAL, "method", layer.forward)
    return LOCAL.method


class Logs(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        LOG.append(len(input))
        return super().forward(input)


@pytest.mark.parametrize("keep", [in_a_thread, in_a_context, in_another_class, in_a_bound_method])
def test_a_module_that_no_copy_can_keep_serves_as_the_models_own(keep: Callable[[nn.Module], Any]) -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Logs(4, 6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(keep(self.a)(x))

    model, x = Keeping(), torch.randn(5, 4)
    mk.plan(mk.trace(model, x), ratio=0.5)
    with torch.no_grad():
        model.a.weight.mul_(2)
    model.double()
    assert torch.equal(model(x.double()), model.b(model.a(x.double())))


@pytest.mark.slow
def test_what_no_copy_can_keep_is_said() -> None:
    """A result of weights: what is left there has no data."""
    (note,) = mk.trace(KeepsResults(), torch.randn(5, 4)).notes
    assert "forward keeps a tensor outside of the model" in note
    assert "test_past_self.py" in note


@pytest.mark.slow
def test_looks_beside_a_thread_that_fills_the_same_cache() -> None:
    model, x = Net().eval(), torch.randn(5, 4)
    expected, over, errors = model(x), threading.Event(), []

    def work() -> None:
        while not over.is_set():
            TABLES.clear()
            try:
                assert torch.equal(model(x), expected)
            except Exception as error:  # noqa: BLE001 - told below
                errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            graph = mk.trace(model, x)
            assert graph.axes.verify().ok
    finally:
        over.set()
        thread.join()
    assert errors == []
    assert all(not table.is_meta for table in TABLES.values())


REGISTER: list[nn.Module] = []


class Registered(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(REGISTER[0].a(x).relu())  # type: ignore[operator]


def test_a_model_that_finds_itself_in_a_global_list() -> None:
    model, x = Registered(), torch.randn(5, 4)
    REGISTER.append(model)
    try:
        with unchanged(model, x):
            graph = mk.trace(model, x)
            assert mk.plan(graph, ratio=0.5).axes
        assert graph.notes == []
    finally:
        REGISTER.clear()


def test_a_name_that_is_an_attribute_is_no_global_name() -> None:
    """`x.data` reads nothing of a global `data`."""
    scope: dict[str, Any] = {"data": [object()] * 3}
    exec("def forward(self, x):\n    return self.a(x.data)", scope)
    cls = type("Own", (Net,), {"forward": scope["forward"], "__module__": "users"})
    assert "forward" not in vars(Shadow(cls()).model)
