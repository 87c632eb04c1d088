"""Plans as files: what is saved is what is loaded, and a file is written wholly or not at all."""

from __future__ import annotations

import copy
import errno
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import modulekg_widgets as mk
from models import seeded
from modulekg_widgets.engine.pruning.plan.saved import plan_file
from pruning.battery import differs, state_of
from pruning.plan_samples import PLANS, ROWS, content, planned
from pruning.test_faults import broken_off

# -------------------------------------------------------------- there and back


@pytest.mark.parametrize("name", PLANS)
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    model, plan = planned(name)
    plan.save(tmp_path / "plan.json")
    found = mk.load_plan(tmp_path / "plan.json")
    assert found == plan
    assert found.edits.attributes == plan.edits.attributes != {}
    assert (str(found), found._repr_html_()) == (str(plan), plan._repr_html_())
    assert eval(repr(found), {"mk": mk}) == plan
    one, other = copy.deepcopy(model), copy.deepcopy(model)
    before = state_of(other)
    plan.cut(one)
    receipt = found.cut(other)
    assert content(one) == content(other) != content(model)
    receipt.undo()
    assert not differs(before, state_of(other))
    masked = copy.deepcopy(model)
    plan.mask(masked)
    found.mask(other)
    assert content(masked) == content(other) != content(model)
    found.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_the_repr_of_a_loaded_plan_is_python_for_any_path(tmp_path: Path) -> None:
    _, plan = planned("ratio")
    for name in ("it's.json", 'a "plan" \\ é.json', "new\nline", "x" * 250):
        for path in (tmp_path / name, str(tmp_path / name)):
            plan.save(path)
            assert eval(repr(mk.load_plan(path)), {"mk": mk}) == plan
    assert sorted(os.listdir(tmp_path)) == sorted(["it's.json", 'a "plan" \\ é.json', "new\nline", "x" * 250])


def test_sizes_that_numpy_computed(tmp_path: Path) -> None:
    wide: Any = np.int64(8)
    model = seeded(lambda: nn.Sequential(nn.Linear(6, wide), nn.ReLU(), nn.Linear(wide, 3)))
    plan = mk.plan(mk.trace(model, ROWS), ratio=0.5)
    plan.save(tmp_path / "plan.json")
    found = mk.load_plan(tmp_path / "plan.json")
    assert found == plan
    receipt = found.cut(model)
    assert model[0].out_features == model[2].in_features == 4
    receipt.undo()
    assert type(model[0].out_features) is np.int64


# ----------------------------------------------------------------- wholly or not


OLD = "what was there before"


def save_over(path: Path) -> Callable[[], None]:
    path.write_text(OLD)
    return lambda: planned("ratio")[1].save(path)


def test_a_fault_at_every_line_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save = save_over(path)
    at, seen = 0, set()
    while True:
        path.write_text(OLD)
        came_to_its_end = not broken_off(save, at, KeyboardInterrupt)
        assert os.listdir(tmp_path) == ["plan.json"], f"line {at}"
        seen.add(path.read_text() == OLD)
        assert path.read_text() == OLD or mk.load_plan(path) == planned("ratio")[1]
        if came_to_its_end:
            break
        at += 1
    assert seen == {True, False}
    assert at > 20


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt(), MemoryError()])
def test_a_disk_that_fails(step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error

    save = save_over(tmp_path / "plan.json")
    monkeypatch.setattr(plan_file.os, step, fail)
    with pytest.raises(mk.ModuleKGError if isinstance(error, OSError) else type(error)):
        save()
    assert os.listdir(tmp_path) == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == OLD


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    save = save_over(tmp_path / "plan.json")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may be larger
    try:
        with pytest.raises(mk.ModuleKGError, match=r"plan\.json cannot be written: .*File too large"):
            save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == OLD


def test_places_that_no_file_can_be_written_to(tmp_path: Path) -> None:
    plan = planned("ratio")[1]
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    for path in ("absent/plan.json", "folder", "pipe", "x" * 300, "nul\0l"):
        with pytest.raises(mk.ModuleKGError, match=r"cannot be written|not a regular file"):
            plan.save(tmp_path / path)
    for path in ("", "/dev/null", "."):
        with pytest.raises(mk.ModuleKGError, match=r"cannot be written|not a regular file"):
            plan.save(path)
    for path in (None, 3, b"plan.json", ["plan.json"]):
        with pytest.raises(mk.ModuleKGError, match="named by the path of a file"):
            plan.save(path)
    assert sorted(os.listdir(tmp_path)) == before
    assert not Path("/dev/null").is_file()


def test_many_write_one_file_at_once(tmp_path: Path) -> None:
    plans = [planned("ratio")[1], planned("attention")[1]]

    def write(plan: mk.PruningPlan) -> None:
        for _ in range(10):
            plan.save(tmp_path / "plan.json")
            assert mk.load_plan(tmp_path / "plan.json") in plans

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, plans * 2)) == [None] * 4
    assert os.listdir(tmp_path) == ["plan.json"]
