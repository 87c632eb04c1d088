"""The axes of torch's own operator samples: none is wrong, nothing ends in an error that is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from modulekg_widgets.engine.axes.proof.operator_proofs import proved_operators

TESTS = Path(__file__).resolve().parents[1]
# operators on sparse tensors have no axes that could be cut
SPARSE = {"sparse.sampled_addmm", "sparse.mm.reduce", "to_sparse"}
Report = dict[str, list[Any]]  # per operator: how many samples had which verdict, the first of each, operators proved


def report(*arguments: str) -> Report:
    """What the program says, which runs alone: to import torch's table patches torch."""
    program = [sys.executable, str(TESTS / "axes" / "operator_samples.py"), *arguments]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))}
    ended = subprocess.run(program, env=given, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def check(verdicts: Report) -> Counter[str]:
    """No sample is wrong, none ends in an error of another kind than ours; gives the counts of all."""
    counts: Counter[str] = Counter()
    problems = {}
    for name, (own, first, _) in verdicts.items():
        counts.update(own)
        allowed = {"proved", "nothing free", "the sample itself raises"}
        found = {kind: first[kind] for kind in own if kind not in allowed}
        if found and not (name in SPARSE and found.keys() == {"unknown operator"}):
            problems[name] = found
    assert problems == {}
    return counts


@pytest.mark.slow
def test_a_sample_of_every_operator_is_proved() -> None:
    verdicts = report("--share", "0.1", "--seed", "0")
    assert len(verdicts) > 600
    counts = check(verdicts)
    assert counts["proved"] > 1000
    found = {name for _, _, proved in verdicts.values() for name in proved}
    assert len(found) > 200
    assert found - proved_operators() == set(), "write the list anew: python tests/axes/operator_samples.py --write"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_sample_of_every_operator_is_proved() -> None:
    verdicts = report()
    counts = check(verdicts)
    assert counts["proved"] > 10_000
    assert counts["the sample itself raises"] < 200
    found = {name for _, _, proved in verdicts.values() for name in proved}
    assert found - proved_operators() == set(), "write the list anew: python tests/axes/operator_samples.py --write"


def test_the_list_has_what_models_are_made_of() -> None:
    names = proved_operators()
    assert {"aten::addmm", "aten::convolution", "aten::native_layer_norm", "aten::embedding", "aten::cat"} <= names
    assert all("::" in name and not name.endswith("_") for name in names)
