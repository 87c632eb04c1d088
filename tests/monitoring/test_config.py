"""What a configuration may look like, which modules and metrics it means, and how it is refused."""

import fnmatch
from collections import OrderedDict
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError, a_type
from modulekg_widgets.engine.monitoring.config import measurements, root_of
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.schedule import ScheduleError, schedule
from monitoring.surroundings import global_hooks, own_metrics

ConfigError = mk.monitoring.ConfigError


class Special(nn.Conv2d):
    """A subclass."""


class Conv(nn.Module):
    """A class whose name is also the name of a child of the net."""


def net() -> nn.Module:
    model = nn.Module()
    model.layer1 = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
    model.layer2 = nn.Sequential(Special(2, 2, 1), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    model.head = nn.Linear(2, 2)
    model.Conv = Conv()
    return model


ALL = ["", "layer1", "layer1.0", "layer1.1", "layer2", "layer2.0", "layer2.1", "layer2.2", "layer2.2.0", "head", "Conv"]


def chosen(config: Any, model: nn.Module | None = None) -> list[tuple[str, str]]:
    return [(each.path, each.metric.name) for each in measurements(net() if model is None else model, config)]


def paths(key: Any) -> list[str]:
    return [path for path, _ in chosen({key: ["WeightNorm"]})]


# ------------------------------------------------------------------ modules


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("layer1.0", ["layer1.0"]),
        ("layer2.2.0", ["layer2.2.0"]),
        ("", [""]),
        ("module.layer1.0", ["layer1.0"]),
        ("_orig_mod.head", ["head"]),
        (nn.Conv2d, ["layer1.0", "layer2.0"]),
        (Special, ["layer2.0"]),
        (nn.Module, ALL),
        ("Conv2d", ["layer1.0"]),
        ("Special", ["layer2.0"]),
        ("Linear", ["layer2.2.0", "head"]),
        ("Conv", ["Conv"]),
        ("*", ALL),
        ("layer*", ALL[1:9]),
        ("layer*.0", ["layer1.0", "layer2.0", "layer2.2.0"]),
        ("layer?.1", ["layer1.1", "layer2.1"]),
        ("layer[2-9].*", ["layer2.0", "layer2.1", "layer2.2", "layer2.2.0"]),
        ("*.2.*", ["layer2.2.0"]),
        ("h*d", ["head"]),
    ],
)
def test_the_modules_of_a_key(key: Any, expected: list[str]) -> None:
    assert paths(key) == expected


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("layer1.2", r"layer1\.1"),
        ("layer3", "layer"),
        ("heads", "head"),
        ("layer1.0.weight", r"layer1\.0"),
        ("Conv3d", "Conv2d"),
        ("conv2d", "Conv2d"),
        ("nn.Conv2d", "Conv2d"),
        ("layer9*", "known|mean"),
        ("[", "known|mean"),
        (".", "known|mean"),
        ("..", "known|mean"),
        (" head", "head"),
        ("head.", "head"),
        ("h\x00ad", "head"),
        ("x" * 100_000, "known|mean"),
        (nn.Conv1d, "Conv2d"),
        (nn.LazyLinear, "Linear"),
    ],
)
def test_an_unknown_module_is_answered_with_the_nearest(key: Any, hint: str) -> None:
    with pytest.raises(UnknownPathError, match=hint) as caught:
        chosen({key: ["WeightNorm"]})
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_an_exact_path_goes_before_a_class_and_a_pattern() -> None:
    model = nn.Module()
    model._modules["*"] = nn.Linear(1, 1)
    model._modules["Linear"] = nn.ReLU()
    model._modules["a[0]"] = nn.Identity()
    assert [path for path, _ in chosen({"*": ["WeightNorm"]}, model)] == ["*"]
    assert [path for path, _ in chosen({"Linear": ["WeightNorm"]}, model)] == ["Linear"]
    assert [path for path, _ in chosen({"a[0]": ["WeightNorm"]}, model)] == ["a[0]"]


@given(st.text(alphabet="layer12.*?[]!-0headC", max_size=12))
@settings(deadline=None, max_examples=300)
def test_a_pattern_means_what_fnmatch_says(key: str) -> None:
    expected = [path for path in ALL if path == key] or [path for path in ALL if fnmatch.fnmatchcase(path, key)]
    if not expected or not (set("*?[") & set(key) or key in ALL):
        with pytest.raises(UnknownPathError):
            paths(key)
    else:
        assert paths(key) == expected


def test_a_module_with_two_names_is_measured_once() -> None:
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"a": shared, "b": shared})
    assert chosen({"Linear": ["WeightNorm"]}, model) == [("a", "WeightNorm")]
    assert chosen({"b": ["WeightNorm"]}, model) == [("a", "WeightNorm")]
    assert chosen({"a": ["WeightNorm"], "b": ["OutputSndNorm"]}, model) == [("a", "WeightNorm"), ("a", "OutputSndNorm")]


def test_wrappers_are_looked_through() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    compiled = torch.compile(model, backend="eager")
    assert root_of(compiled) is model
    assert chosen({"0": ["WeightNorm"]}, compiled) == [("0", "WeightNorm")]


# ------------------------------------------------------------------ metrics


def of_the_weight(w: torch.Tensor, power: int = 2) -> torch.Tensor:
    return w.abs().pow(power).sum()


class OfTheOutput:
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def compute(self, y: torch.Tensor) -> torch.Tensor:
        return y.sum() * self.scale


FUNCTION, CLASS = "Function of the weight", "Class of the output"


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    with own_metrics():
        mk.metric(FUNCTION, needs="Weight")(of_the_weight)
        mk.metric(CLASS, needs="ForwardOutput")(OfTheOutput)
        yield


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("WeightNorm", [("WeightNorm", "linear()")]),
        (["WeightNorm"], [("WeightNorm", "linear()")]),
        (("WeightNorm",), [("WeightNorm", "linear()")]),
        ([["WeightNorm"]], [("WeightNorm", "linear()")]),
        ([[["WeightNorm"]]], [("WeightNorm", "linear()")]),
        (["WeightNorm", "linear(5,2)"], [("WeightNorm", "linear(5,2)")]),
        ([["WeightNorm", "linear(5,2)"]], [("WeightNorm", "linear(5,2)")]),
        (["WeightNorm", "OutputSndNorm"], [("WeightNorm", "linear()"), ("OutputSndNorm", "linear()")]),
        (
            ["WeightNorm", "linear(5,2)", "OutputSndNorm", ["InputMean", "steps(3)"], "RankMe"],
            [
                ("WeightNorm", "linear(5,2)"),
                ("OutputSndNorm", "linear()"),
                ("InputMean", "steps(3)"),
                ("RankMe", "linear()"),
            ],
        ),
        (
            [["WeightNorm", ["OutputSndNorm", "linear(2)"]], "RankMe"],
            [("WeightNorm", "linear()"), ("OutputSndNorm", "linear(2)"), ("RankMe", "linear()")],
        ),
        ([METRICS["WeightNorm"]], [("WeightNorm", "linear()")]),
        ([METRICS["WeightNorm"], schedule("linear(3)")], [("WeightNorm", "linear(3)")]),
        ([mk.monitoring.Metric("OutlierRatio", sigmas=3.0), "window(2)"], [("OutlierRatio", "window(2)")]),
        ([of_the_weight, "linear(2)"], [(FUNCTION, "linear(2)")]),
        (OfTheOutput, [(CLASS, "linear()")]),
        ([FUNCTION, CLASS], [(FUNCTION, "linear()"), (CLASS, "linear()")]),
        ([], []),
        ([[], []], []),
    ],
)
def test_the_forms_of_the_metrics(value: Any, expected: list[tuple[str, str]]) -> None:
    found = measurements(net(), {"head": value})
    assert [(each.metric.name, each.schedule) for each in found] == [(name, schedule(when)) for name, when in expected]
    assert {each.path for each in found} <= {"head"}


def test_settings_reach_the_metric() -> None:
    model, Metric = net(), mk.monitoring.Metric  # noqa: N806
    config = {"head": [Metric(FUNCTION, power=1), METRICS[CLASS](scale=10.0)]}
    with mk.Monitor(model, config) as monitor:
        y = model.head(torch.ones(1, 2))
        monitor.track(0)
    values = monitor.get_output()["head"]
    assert values[FUNCTION][0] == pytest.approx(float(model.head.weight.detach().abs().sum()))
    assert values[CLASS][0] == pytest.approx(10 * float(y.detach().sum()), abs=1e-5)


@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        ("WeightNrom", UnknownNameError, "WeightNorm"),
        (["weightnorm"], UnknownNameError, "WeightNorm|known"),
        (["WeightNorm", "OutputSndNrom", "linear(2)"], UnknownNameError, "OutputSndNorm"),
        (["WeightNorm", "linear(5"], ScheduleError, r"linear\("),
        (["WeightNorm", "linear(a)"], ScheduleError, r"linear\("),
        (["WeightNorm", "linear"], ScheduleError, r"linear\("),
        (["WeightNorm", "WeightNorm()"], ScheduleError, r"linear\("),
        (["linear(5)", "WeightNorm"], ConfigError, "before"),
        ("linear(5)", ConfigError, "before"),
        (["WeightNorm", "linear(5)", "linear(3)"], ConfigError, "before"),
        ([["WeightNorm"], "linear(5)"], ConfigError, "before"),
        (None, ConfigError, "None was passed"),
        (3, ConfigError, "int"),
        (["WeightNorm", 5], ConfigError, "int"),
        ({"WeightNorm": "linear(5)"}, ConfigError, "dict"),
        ([{"WeightNorm": "linear(5)"}], ConfigError, "dict"),
        ({"WeightNorm"}, ConfigError, "set"),
        (b"WeightNorm", ConfigError, "bytes"),
        (torch.nn.ReLU, ConfigError, "type"),
        (lambda w: w, ConfigError, "function"),
        (torch.zeros(2), ConfigError, "Tensor"),
        ("", UnknownNameError, "known|mean"),
        ("M" * 100_000, UnknownNameError, "known|mean"),
        ("\ud800", UnknownNameError, "known|mean"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_metrics_that_are_none(value: Any, kind: type[Exception], hint: str) -> None:
    before = global_hooks()
    with pytest.raises(kind, match=hint) as caught:
        mk.Monitor(net(), {"head": ["OutputSndNorm"], "layer1.0": value})
    assert isinstance(caught.value, mk.ModuleKGError)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()
    assert global_hooks() == before


@pytest.mark.parametrize(
    "config", ["WeightNorm", ["WeightNorm"], 3, {("head", "WeightNorm")}, [("head", ["WeightNorm"])]]
)
def test_configurations_that_are_none(config: Any) -> None:
    with pytest.raises(ConfigError, match=type(config).__name__):
        mk.Monitor(net(), config)


@pytest.mark.parametrize("key", [3, None, ("head",), 1.5, int, b"head", torch.relu, nn.Linear(1, 1)])
def test_keys_that_are_none(key: Any) -> None:
    with pytest.raises(ConfigError, match=f"a class: {a_type(key)} was passed"):
        mk.Monitor(net(), {key: ["WeightNorm"]})


@pytest.mark.parametrize("model", [None, 3, "net", nn.Linear, [nn.Linear(1, 1)], torch.zeros(3), lambda x: x])
def test_models_that_are_none(model: Any) -> None:
    with pytest.raises(mk.ModuleKGError):
        mk.Monitor(model, {"*": ["WeightNorm"]})


@pytest.mark.parametrize("made", [dict, OrderedDict, MappingProxyType])
def test_any_mapping_is_a_configuration(made: Any) -> None:
    assert chosen(made({"head": "WeightNorm"})) == [("head", "WeightNorm")]
    assert chosen(made({})) == []


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("DeadNeuronFraction", {"treshold": 0.1}, "threshold"),
        ("OutlierRatio", {"sigma": 3}, "sigmas"),
        ("LossSpike", {"size": 3}, "window"),
        ("WeightNorm", {"anything": 3}, "anything"),
        (FUNCTION, {"exponent": 3}, "power"),
        (FUNCTION, {"w": 3}, "w"),
    ],
)
def test_a_setting_that_a_metric_does_not_have_is_refused_before_the_training(name: str, wrong: Any, hint: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=hint):
        mk.Monitor(net(), {"head": [mk.monitoring.Metric(name, **wrong)]})
    with pytest.raises(mk.ModuleKGError, match=hint):
        mk.Monitor(net(), {"head": [METRICS[name](**wrong)]})


def test_a_configuration_is_not_changed_and_not_kept() -> None:
    inner = ["WeightNorm", "linear(2)"]
    config = {"head": [inner], nn.Conv2d: ["OutputSndNorm"]}
    monitor = mk.Monitor(net(), config)
    assert config == {"head": [["WeightNorm", "linear(2)"]], nn.Conv2d: ["OutputSndNorm"]}
    inner.clear()
    config.clear()
    with monitor:
        for step in range(3):
            monitor.track(step)
    assert list(monitor.get_output()["head"]["WeightNorm"]) == [0, 2]


def test_every_metric_can_be_configured_by_its_name() -> None:
    for name in METRICS:
        assert chosen({"head": name}) == [("head", name)]
