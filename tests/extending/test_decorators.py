"""The five decorators behave the same way: names, duplicates, cells that run again, failures, docstrings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.adapters import adapters
from modulekg_widgets.engine.axes.terms.call import rules
from modulekg_widgets.engine.errors import DuplicateNameError
from modulekg_widgets.engine.knowledge.exchange import exporters
from modulekg_widgets.engine.monitoring.metric import ConfigError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.operators.user_operators import user_operators
from modulekg_widgets.engine.pruning.importance.importance import criteria

pytestmark = pytest.mark.usefixtures("open_registries")
_count = itertools.count()


class First(nn.Module):
    """A layer of its own kind, with a number that follows its size."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 4
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Second(First):
    pass


class Extension(NamedTuple):
    """One decorator: how it is written, two free names and one that is taken, and where entries go."""

    call: str  # {} stands for the names
    names: tuple[Any, Any, Any]
    table: Any
    found: Callable[[Any, Any], Any] = lambda table, name: table[name]

    def of(self, *names: Any, home: str = __name__) -> Callable[[Any], Any]:
        """The decorator, as code of the module `home` writes it."""
        scope = {"__name__": home, "mk": mk, "names": names}
        return eval(self.call.format("*names"), scope)


EXTENSIONS = {
    "axis_rule": Extension(
        "mk.axis_rule({})", ("mkgext::a", "mkgext::b", "aten::relu"), rules,
        lambda table, name: getattr(table[name], "__wrapped__", table[name]),
    ),
    "adapter": Extension("mk.adapter({})", (First, Second, nn.Linear), adapters),
    "importance": Extension("mk.importance({})", ("first", "second", "l1"), criteria),
    "metric": Extension(
        'mk.metric({}, needs="Weight")', ("First", "Second", "RankMe"), METRICS,
        lambda table, name: table[name].function,
    ),
    "exporter": Extension("mk.exporter({})", ("first", "second", "dot"), exporters),
}  # fmt: skip
each = pytest.mark.parametrize("extension", EXTENSIONS.values(), ids=EXTENSIONS.keys())


def function(home: str) -> Callable[[Any], Any]:
    """A new function of the module `home`."""
    scope: dict[str, Any] = {"__name__": home}
    exec("def made(given): ...", scope)
    return scope["made"]


def content(table: Any) -> dict[Any, Any]:
    return dict(getattr(table, "entries", table))


@each
def test_several_names_and_the_function_comes_back(extension: Extension) -> None:
    made, (first, second, _) = function("theirs"), extension.names
    assert extension.of(first, second)(made) is made
    assert extension.found(extension.table, first) is extension.found(extension.table, second) is made


@each
def test_a_taken_name_is_refused_and_nothing_is_registered(extension: Extension) -> None:
    first, second, taken = extension.names
    before, operators = content(extension.table), content(user_operators)
    for names in [(taken,), (first, taken), (taken, second)]:
        with pytest.raises(DuplicateNameError, match="already"):
            extension.of(*names)(function("theirs"))
        assert content(extension.table) == before
    assert content(user_operators) == operators


@each
@pytest.mark.parametrize("given", [3, None, "name"])
def test_what_cannot_be_called_is_refused(extension: Extension, given: Any) -> None:
    before, operators = content(extension.table), content(user_operators)
    with pytest.raises(mk.ModuleKGError, match="put the decorator over a function"):
        extension.of(extension.names[0])(given)
    assert content(extension.table) == before
    assert content(user_operators) == operators


@each
def test_the_second_package_is_refused_and_the_first_stays(extension: Extension) -> None:
    made, name = function("theirs"), extension.names[0]
    extension.of(name, home="theirs")(made)
    for home in ("others", "__main__"):
        with pytest.raises(DuplicateNameError):
            extension.of(name, home=home)(function(home))
    assert extension.found(extension.table, name) is made


@each
def test_of_two_decorators_that_are_held_the_second_is_refused(extension: Extension) -> None:
    made, name = function("theirs"), extension.names[0]
    held = [extension.of(name, home=home) for home in ("theirs", "others")]
    held[0](made)
    with pytest.raises(DuplicateNameError):
        held[1](function("others"))
    assert extension.found(extension.table, name) is made


@each
def test_a_cell_may_run_again_with_another_function(extension: Extension) -> None:
    name = extension.names[0]
    for _ in range(3):
        made = function("__main__")
        extension.of(name, home="__main__")(made)
        assert extension.found(extension.table, name) is made
    with pytest.raises(DuplicateNameError):
        extension.of(name, home="theirs")(function("theirs"))
    assert extension.found(extension.table, name) is made


@each
def test_a_cell_that_registers_a_librarys_function_may_run_again(extension: Extension) -> None:
    made, name = function("theirs"), extension.names[0]
    for _ in range(2):
        extension.of(name, home="__main__")(made)
    assert extension.found(extension.table, name) is made


@each
def test_without_a_name_or_parentheses_the_remedy_is_told(extension: Extension) -> None:
    before = content(extension.table)
    for names in [(), (function("theirs"),), (3,), (None,), ("",)]:
        with pytest.raises(mk.ModuleKGError):
            extension.of(*names)
    assert content(extension.table) == before


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_docstring_has_an_example_and_the_errors(name: str) -> None:
    text = getattr(mk, name).__doc__
    assert f"@mk.{name}(" in text
    assert "def " in text
    assert re.search(r"Raises( `|\n +------)", text)


@pytest.mark.parametrize("extension", [".dot2", "Upper", "a.b", "a/b", "a\\b", "a b", "\n", 3])
def test_what_can_be_no_extension_is_refused(extension: Any) -> None:
    with pytest.raises(mk.ModuleKGError, match=r'in small letters and without a dot.*@mk\.exporter\("ext"\)'):
        mk.exporter(extension)


def test_a_metric_class_without_compute_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Nothing has no compute\(\)"):
        mk.metric("First", "Second", needs="Weight")(type("Nothing", (), {"update": lambda self, weight: None}))
    assert "First" not in METRICS


# ------------------------------------------------------------------ failures


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), First(), nn.Linear(4, 2))


def wrong_function(given: Any) -> Any:
    raise RuntimeError("so it goes\n")


def test_a_failing_rule_is_named_and_freezes() -> None:
    name = f"mkgext::op{next(_count)}"
    operator = torch.library.custom_op(name, lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(torch.empty_like)
    mk.axis_rule(name)(wrong_function)
    model = net()
    model[1].forward = operator
    graph = mk.trace(model, torch.randn(2, 3))
    (record,) = graph.unknown
    assert record.operator == name
    assert "its rule failed" in record.remedy
    assert "wrong_function stopped, RuntimeError: so it goes" in record.remedy
    assert "wrong_function" in str(graph.axes["0.weight", 0].frozen)


def test_a_failing_adapter_is_named() -> None:
    mk.adapter(First)(wrong_function)
    with pytest.raises(mk.ModuleKGError, match=r"1, a First, fails: RuntimeError.*Correct wrong_function") as caught:
        mk.plan(mk.trace(net(), torch.randn(2, 3)), ratio=0.5)
    assert isinstance(caught.value.__cause__, RuntimeError)


def criterion(scores: Any = None, **methods: Any) -> type:
    return type("Mine", (mk.pruning.L1,), {**({"scores": scores} if scores else {}), **methods})


def needs_more(self: Any, more: int) -> None: ...


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (wrong_function, r"importance 'first' stopped on axis '0.out': RuntimeError: so it goes"),
        (criterion(lambda self, axes, terms: 1 // 0), r"importance 'first' stopped: ZeroDivisionError"),
        (criterion(__init__=needs_more), r"importance 'first' cannot be made without arguments: TypeError.*an object"),
    ],
)
def test_a_failing_importance_is_named(made: Any, message: str) -> None:
    mk.importance("first")(made)
    with pytest.raises(mk.ModuleKGError, match=message) as caught:
        mk.plan(mk.trace(net(), torch.randn(2, 3)), ratio=0.5, importance="first")
    assert caught.value.__cause__ is not None


def test_a_failing_metric_is_named_and_the_training_goes_on() -> None:
    mk.metric("First", needs="Weight")(wrong_function)
    model = net()
    monitor = mk.Monitor(model, {"0": ["First", "WeightNorm"]})

    def train() -> None:
        for step in range(3):
            model(torch.randn(2, 3)).sum().backward()
            monitor.track(step)

    message = "the metric First of '0' has no value: RuntimeError: so it goes"
    with monitor, pytest.warns(RuntimeWarning, match=message) as warned:
        train()
    assert len(warned) == 1
    assert len(monitor.get_output()["0"]["WeightNorm"]) == 3


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (wrong_function, "RuntimeError: so it goes"),
        (lambda graph: None, "TypeError"),
        (lambda graph: [1, 2], "TypeError"),
        (int, "TypeError"),
    ],
)
def test_a_failing_exporter_is_named_and_the_file_stays(lines: Any, reason: str, tmp_path: Path) -> None:
    mk.exporter("first")(lines)
    graph = mk.KnowledgeGraph()
    graph.add_model(nn.ReLU(), name="relu")
    path = tmp_path / "graph.first"
    path.write_text("old")
    with pytest.raises(mk.ModuleKGError, match=rf"is not written: the exporter \S+ fails: {reason}") as caught:
        graph.export(path)
    assert isinstance(caught.value, OSError)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("graph.first", "old")]
