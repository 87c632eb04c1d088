"""Files that are no plans, almost plans, or plans that somebody hostile wrote: a typed error soon, and no harm."""

from __future__ import annotations

import copy
import itertools
import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import modulekg_widgets as mk
from pruning.battery import differs, state_of
from pruning.plan_samples import planned

# ---------------------------------------------------------------- other files


def refused(path: Any, says: str, seconds: float = 1.0) -> None:
    begin = time.perf_counter()
    with pytest.raises(mk.ModuleKGError) as caught:
        mk.load_plan(path)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    assert time.perf_counter() - begin < seconds


def test_what_is_no_ordinary_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "absent.json", "cannot be read")
    refused(tmp_path, "not a regular file")
    refused(tmp_path / "pipe", "not a regular file")
    refused("/dev/zero", "not a regular file")
    refused("a\0b", "cannot be read")
    for path in (None, 3, b"plan.json", 0.5):
        refused(path, "named by the path of a file")


def test_what_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # no block of it is on the disk
    refused(path, "larger than 64 MB")
    path.write_bytes(b"[" * 3_000_000)
    refused(path, "more than 1,000,000 lists")
    path.write_bytes(b"[" * 1_000_000)
    refused(path, "is not JSON")
    path.write_bytes(b'{"a":' * 900_000)
    refused(path, "is not JSON")
    path.write_bytes(b"[" + b"9" * 1_000_000 + b"]")
    refused(path, "is not JSON")


def test_memory_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": ["x" * 100] * 100_000, "version": 1}))
    tracemalloc.start()
    refused(path, "its format is a list of 100000", 10.0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * path.stat().st_size


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """The document as text with another value at a path such as "tensors.0.names"."""
    document = copy.deepcopy(document)
    *above, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place: Any = document
    for part in above:
        place = place[part]
    place[last] = value
    return json.dumps(document)


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    planned("ratio")[1].save(tmp_path / "plan.json")
    return json.loads((tmp_path / "plan.json").read_text())


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("format", "other", "its format is 'other', not 'modulekg-plan'"),
        ("version", 2, "blocks is not a list"),
        ("version", 3, "its version is 3, this release reads 1 and 2"),
        ("version", True, "its version is True"),
        ("version", 1.0, "its version is 1.0"),
        ("params", [1], "params is a list of 1, not a list of 2"),
        ("params", [-1, 0], "params has -1, not a size"),
        ("flops", [10**31, 0], "not a size"),
        ("positions.0", [3, 2], "positions are not ascending"),
        ("positions.0", [2, 2], "positions are not ascending"),
        ("positions.0", [0.5], "positions are not whole numbers"),
        ("tensors.0.names", [], "a tensor has no name"),
        ("tensors.0.names", ["0.bias"], "a tensor is listed twice"),
        ("tensors.0.names", ["0.weight", "0.weight"], "a tensor is listed twice"),
        ("tensors.0.kept", {"4": 0}, "has no dimension 4"),
        ("tensors.0.kept", {"-1": 0}, "has no dimension -1"),
        ("tensors.0.kept", {"00": 0}, "has no dimension 00"),
        ("tensors.0.kept", {"0": 99}, "or positions 99"),
        ("tensors.0.kept", {"0": True}, "or positions True"),
        ("tensors.0.kept", {"2": 0}, "keeps positions that its shape (8, 3, 3, 3) does not have"),
        ("tensors.0.shape", [1] * 65, "more than 64 dimensions"),
        ("tensors.0.produced", [3], "makes what it does not keep"),
        ("axes.0.dropped", [0, 1], "an axis of 2 drops 2"),
        ("axes.0.dropped", [2], "an axis of 2 drops 1, the last of them [2]"),
        ("axes.0.name", "x" * 10_001, "not text of at most 10,000 letters"),
        ("attributes", {"0.__class__": [8, 4]}, "0.__class__ is not an attribute that holds a size"),
        ("attributes", {"__dict__.x": [8, 4]}, "is not an attribute"),
        ("attributes", {"": [8, 4]}, "is not an attribute"),
        ("attributes", {"0..x": [8, 4]}, "is not an attribute"),
        ("attributes", {"0.x": [8, [4]]}, "0.x changes from 8 to a list of 1"),
        ("attributes", {"0.x": [[8], {"tuple": [4]}]}, "0.x changes from a list of 1"),
        ("attributes", {"0.x": [[8], [4, 4]]}, "0.x changes from a list of 1"),
        ("attributes", {"0.x": ["8", 4]}, "0.x has '8', not a size"),
        ("attributes", {"0.x": [True, 4]}, "0.x has True, not a size"),
        ("attributes", {"0.x": [8]}, "0.x is a list of 1, not a list of 2"),
        ("changes", [{"kind": "tie"}], "what is None"),
    ],
)
def test_one_thing_wrong(document: dict[str, Any], path: str, value: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text(changed(document, path, value))
    refused(tmp_path / "wrong.json", says)


@pytest.mark.parametrize(
    "name", ["format", "version", "params", "flops", "macs", "axes", "changes", "attributes", "tensors", "positions"]
)
def test_nothing_may_be_missing_or_stand_twice(document: dict[str, Any], name: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    twice = json.dumps({**document, "again": document[name]}).replace('"again"', f'"{name}"')
    path.write_text(twice)
    refused(path, "a name stands twice")
    del document[name]
    path.write_text(json.dumps(document))
    refused(path, "is not a plan")


@pytest.mark.parametrize(
    "raw",
    [b"", b" ", b"\0", b"null", b"[]", b"{}", b"1", b'"plan"', b"\xef\xbb\xbf{}", b"\xff\xfe{}", b"{'a': 1}", b"[NaN]"],
)
def test_other_files(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_bytes(raw)
    refused(tmp_path / "wrong.json", "wrong.json")


# --------------------------------------------------------------- another model


def test_a_plan_for_another_model_changes_nothing() -> None:
    for name, other in itertools.permutations(("ratio", "attention", "attributes", "ties"), 2):
        plan, victim = planned(name)[1], copy.deepcopy(planned(other)[0])
        before = state_of(victim)
        for act in (plan.cut, plan.mask):
            with pytest.raises(mk.ModuleKGError, match="plan"):
                act(victim)
        assert not differs(before, state_of(victim))
