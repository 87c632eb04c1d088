"""What the code of classes may write while it runs, read off without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from modulekg_widgets.engine.torch_runtime.isolation.attribute_writes import find_attribute_writes


def fill(module: Any) -> None:
    module.by_function = 1


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(self: Any) -> Any:
        self.by_decorator = 1
        return function(self)

    return around


class Base:
    def helper(self) -> None:
        self.by_helper = 1


class Sample(Base):
    def __init__(self) -> None:
        self.made = 1
        self.build()

    def build(self) -> None:
        self.built = 1

    def unused(self) -> None:
        self.by_unused = 1

    @property
    def value(self) -> int:
        self.by_property = 1
        return 1

    @functools.cached_property
    def remembered(self) -> int:
        return 1

    @staticmethod
    def still(other: Any) -> None:
        other.by_static = 1

    def train(self) -> None:
        self.by_train = 1

    def put(self, key: int) -> None:
        self.items[key] = key

    def add(self) -> None:
        self.rows.append(1)

    def read(self) -> Any:
        return self.constant[0]

    @decorated
    def forward(self) -> Any:
        self.helper()
        self.still(self)
        fill(self)
        self.put(1)
        self.add()
        del self.deleted
        return self.value, self.read(), [setter() for setter in (lambda: self.read(),)]


WRITTEN = find_attribute_writes([Sample])


@pytest.mark.parametrize(
    "name",
    ["by_helper", "by_property", "remembered", "by_static", "by_train", "by_function", "by_decorator", "deleted"],
)
def test_what_forward_leads_to_is_written(name: str) -> None:
    assert WRITTEN.may_write((name,), inside=False)


@pytest.mark.parametrize("name", ["made", "built", "by_unused", "constant", "items", "rows"])
def test_what_only_the_constructor_or_nobody_sets_is_not(name: str) -> None:
    assert not WRITTEN.may_write((name,), inside=False)


@pytest.mark.parametrize(("name", "may"), [("items", True), ("rows", True), ("constant", False)])
def test_containers_that_are_filled(name: str, may: bool) -> None:
    assert WRITTEN.may_write((name,), inside=True) is may


def test_a_computed_name_may_be_any() -> None:
    class Setting:
        def forward(self) -> None:
            setattr(self, "a" + "b", 1)

    assert find_attribute_writes([Setting]).may_write(("anything",), inside=False)


def test_a_bystander_sets_its_own_by_computed_names() -> None:
    class Config:
        def update(self, given: dict[str, int]) -> None:
            for name, value in given.items():
                setattr(self, name, value)
            self.named = 1

    class Model:
        def forward(self) -> None:
            self.config.update({})

    written = find_attribute_writes([Model], bystanders=[Config])
    assert not written.may_write(("anything",), inside=False)
    assert written.may_write(("named",), inside=False)
    assert find_attribute_writes([Model, Config]).may_write(("anything",), inside=False)


@pytest.mark.parametrize("writes", [False, True])
def test_a_dictionary_of_attributes_counts_where_it_is_written(writes: bool) -> None:
    class Reading:
        def forward(self) -> Any:
            return self.__dict__["table"]

    class Writing:
        def forward(self) -> None:
            self.__dict__["table"] = 1

    assert find_attribute_writes([Writing if writes else Reading]).may_write(("table",), inside=False) is writes


def test_a_function_on_an_instance_counts() -> None:
    def forward(self: Any) -> None:
        self.patched = 1

    assert not find_attribute_writes([Base]).may_write(("patched",), inside=False)
    assert find_attribute_writes([Base], [forward]).may_write(("patched",), inside=False)
