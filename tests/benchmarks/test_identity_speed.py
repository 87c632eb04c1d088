"""Times of identity and of ModelGraph in the kernel.

Run with `pytest -m nightly tests/benchmarks/test_identity_speed.py -s`.

CPU time on one thread. Ratios are taken within a round, the parties in turn, so that a machine that slows down slows
both; the table gives the median and the range over the rounds.
"""

import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.views.payload import model_payload

ROUNDS = 5


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, str, str]]]:
    """Rows of (measure, value, goal), printed at the end."""
    rows: list[tuple[str, str, str]] = []
    torch.set_num_threads(1)
    yield rows
    print(f"\n{'measure':<52} {'median (range)':<26} goal")
    for measure, value, goal in rows:
        print(f"{measure:<52} {value:<26} {goal}")


def cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def spread(values: list[float], unit: str = "") -> str:
    return f"{statistics.median(values):.3g}{unit} ({min(values):.3g}–{max(values):.3g})"


def ratios(action: Callable[[], object], floor: Callable[[], object]) -> list[float]:
    action(), floor()  # warm
    return [cpu_seconds(action) / cpu_seconds(floor) for _ in range(ROUNDS)]


def bare_walk(*models: nn.Module) -> int:
    return sum(1 for model in models for _ in model.modules())


def million_modules() -> nn.Module:
    """The layers of real networks at their real depth, a model within a model until there are a million."""
    with meta_weights():
        parts = [torchvision_builders()[name]() for name in ("resnet50", "vit_b_16", "mobilenet_v3_small", "swin_t")]
    root = nn.Module()
    count = 1
    while count < 1_000_000:
        part = parts[len(root._modules) % len(parts)]
        root._modules[str(len(root._modules))] = copy.deepcopy(part)
        count += bare_walk(part)
    return root


def test_a_million_modules(table: list[tuple[str, str, str]]) -> None:
    model = million_modules()
    values = ratios(lambda: mk.fingerprint(model), lambda: bare_walk(model))
    table.append((f"fingerprint {bare_walk(model):,} modules / bare walk", spread(values, "×"), "≤ 2.5×"))


def test_all_of_torchvision(table: list[tuple[str, str, str]]) -> None:
    with meta_weights():
        models = [build() for build in torchvision_builders().values()]
    assert len(models) >= 121
    values = ratios(lambda: [mk.fingerprint(m) for m in models], lambda: bare_walk(*models))
    table.append((f"fingerprint {len(models)} torchvision models / walk", spread(values, "×"), "≤ 8×"))


@pytest.mark.parametrize("name", ["densenet201", "resnet152"])
def test_payload(table: list[tuple[str, str, str]], name: str) -> None:
    with meta_weights():
        model = torchvision_builders()[name]()
    model_payload(hierarchy(model))
    times = [cpu_seconds(lambda: model_payload(hierarchy(model))) * 1000 for _ in range(ROUNDS)]
    table.append((f"payload of {name}", spread(times, " ms"), "≤ 50 ms"))
    graph = mk.ModelGraph(model)
    size = len(json.dumps(graph.get_state()["payload"], separators=(",", ":")))
    table.append((f"payload of {name}, bytes", f"{size:,}", "≤ 200,000"))
    picture = len(graph._repr_mimebundle_()["image/svg+xml"].encode())
    table.append((f"static picture of {name}, bytes", f"{picture:,}", "≤ 100,000"))


def test_a_record(table: list[tuple[str, str, str]]) -> None:
    """Levels by repetition beside those by depth, which take next to nothing."""
    with meta_weights():
        resnet = torchvision_builders()["resnet152"]()
    inner = [nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Dropout()) for _ in range(2_000)]
    many = nn.Sequential(*(nn.Sequential(*inner[start : start + 20]) for start in range(0, 2_000, 20)))
    for name, model in (("resnet152", resnet), (f"{bare_walk(many):,} modules", many)):
        values = ratios(lambda m=model: model_record(m), lambda m=model: model_record(m, levels="depth"))
        table.append((f"record of {name} / with levels by depth", spread(values, "×"), "≤ 1.3×"))


def test_wide_and_deep(table: list[tuple[str, str, str]]) -> None:
    wide = nn.Module()
    wide._modules.update({str(i): nn.Identity() for i in range(100_000)})
    deep: nn.Module = nn.Identity()
    for _ in range(5_000):
        outer = nn.Module()
        outer._modules["inner"] = deep
        deep = outer
    for name, model in (("100,000 wide", wide), ("5,000 deep", deep)):
        walk = [cpu_seconds(lambda m=model: mk.hierarchy(m)) for _ in range(ROUNDS)]
        table.append((f"hierarchy, {name}", spread(walk, " s"), "≤ 2 s"))
        whole = [cpu_seconds(lambda m=model: mk.ModelGraph(m).close()) for _ in range(ROUNDS)]
        table.append((f"ModelGraph in the kernel, {name}", spread(whole, " s"), "≤ 5 s"))
    while "inner" in deep._modules:  # torch would delete them one within the other
        deep = deep._modules.pop("inner")


def test_import(table: list[tuple[str, str, str]]) -> None:
    program = (
        "import time, torch; start = time.perf_counter(); import modulekg_widgets; print(time.perf_counter() - start)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    table.append(("import modulekg_widgets after torch", spread(times, " s"), "< 0.3 s"))
