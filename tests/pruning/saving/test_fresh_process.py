"""Cut, saved, loaded in a fresh process: bit-equal outputs, for every architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from pruning.saving.fresh import TIMM, TIMM_IN_CI, answers, ask, timm_case

Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
nightly = pytest.mark.nightly
IN_CI = {"free": ("mamba",), "uniform": ("llama",)}  # what CI has the time for
LEAST_PLAIN = 0.8  # of all, where repeated layers keep one size


def saved(model: nn.Module, args: Any, kwargs: Any, place: Path, **how: Any) -> bool:
    """Cut and save a model beside what it gives; whether its library can load it by itself."""
    graph = mk.trace(model, args, kwargs)
    receipt = mk.plan(graph, **{"ratio": 0.5, **how}).cut(model)
    plain = receipt.save_pretrained(place / "folder").plain
    ask(model, args, kwargs, place)
    return plain


def check(places: list[Path]) -> None:
    found = answers(places)
    wrong = {Path(place).name: each for place, each in found.items() if not each.get("equal") or each["training"]}
    assert wrong == {}
    assert all(each.get("plain", True) for each in found.values()), found


UNIFORM = {"layers": "uniform"}
WAYS = [pytest.param({}, id="free", marks=nightly), pytest.param(UNIFORM, id="uniform")]


def save_transformers(names: Iterable[str], place: Path, **how: Any) -> list[str]:
    """The names of those that the library loads by itself."""
    plain = []
    for name in names:
        model, kwargs = transformers_models.build(name)
        if saved(model, (), kwargs, place / name, **how):
            plain.append(name)
    return plain


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.slow
def test_some_transformers(tmp_path: Path, how: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    names = IN_CI["uniform" if how else "free"]
    plain = save_transformers(names, tmp_path, **how)
    assert set(plain) >= (set(names) if how else set())
    check([tmp_path / name for name in names])


@nightly
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.timeout(3600)
def test_all_transformers(tmp_path: Path, how: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    names = list(transformers_models.CASES)
    plain = save_transformers(names, tmp_path, **how)
    print(f"{len(plain)} of {len(names)} by from_pretrained with {how}: {', '.join(plain)}")
    assert len(plain) >= (LEAST_PLAIN * len(names) if how else 0)
    check([tmp_path / name for name in names])


def save_timm(name: str, place: Path) -> None:
    model, args = timm_case(name)
    saved(model, args, {}, place)


@pytest.mark.parametrize("names", [TIMM_IN_CI, pytest.param(TIMM, marks=nightly)], ids=["some", "all"])
@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_timm(tmp_path: Path, names: tuple[str, ...]) -> None:
    pytest.importorskip("timm")
    for name in names:
        save_timm(name, tmp_path / name)
    check([tmp_path / name for name in names])


WITHOUT_BLOCKS_IN_CI = ("swin", "mamba2", "qwen2")


def save_without_blocks(names: Iterable[str], build: Callable[[str], Case], place: Path) -> tuple[list[Path], int]:
    """Save models without a quarter of their blocks, and with uniform layers, and count those that are plain then.

    Those that have no block are left out.
    """
    places, plain = [], 0
    for name in names:
        model, args, kwargs = build(name)
        if len(mk.trace(model, args, kwargs).blocks()):
            plain += saved(model, args, kwargs, place / name, ratio=None, blocks=0.25, **UNIFORM)
            places.append(place / name)
    return places, plain


def of_transformers(name: str) -> Case:
    model, kwargs = transformers_models.build(name)
    return model, (), kwargs


def of_timm(name: str) -> Case:
    model, args = timm_case(name)
    return model, args, {}


@pytest.mark.nightly
def test_some_without_blocks(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    places, plain = save_without_blocks(WITHOUT_BLOCKS_IN_CI, of_transformers, tmp_path)
    assert plain == len(places)
    check(places)


@nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("names", "build", "least"), [([*transformers_models.CASES], of_transformers, 44), (TIMM, of_timm, 18)],
    ids=["transformers", "timm"],
)  # fmt: skip
def test_all_without_blocks(tmp_path: Path, names: Sequence[str], build: Callable[[str], Case], least: int) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("timm")
    places, plain = save_without_blocks(names, build, tmp_path)
    print(f"{plain} of {len(places)} by from_pretrained")
    assert len(places) >= least
    assert plain >= (LEAST_PLAIN * len(names) if build is of_transformers else 0)
    check(places)


@nightly
@pytest.mark.timeout(3600)
def test_uniform_timm(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    for name in TIMM:
        saved(*of_timm(name), tmp_path / name, **UNIFORM)
    check([tmp_path / name for name in TIMM])
