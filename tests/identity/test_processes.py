"""The same fingerprints in every process and under every hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import modulekg_widgets as mk
from identity.structures import ZOO

SEEDS = ["0", "1", "4242"]
CI_SAMPLE = [*ZOO, "googlenet", "convnext_tiny", "quantized_resnet18"]
PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])
import modulekg_widgets as mk
from cases.nasty_modules import NASTY
from identity.structures import STRUCTURES, structure
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

names = sys.argv[3:] or list(torchvision_builders())
found = {name: mk.fingerprint(structure(name)).hexdigest for name in [*STRUCTURES, *names]}
for name, entry in NASTY.items():
    if entry["hash_"] != "refuse" and not entry["slow"]:
        fingerprint = mk.fingerprint(entry["make"]())
        found[name] = [fingerprint.hexdigest, *fingerprint.opaque_paths]
print(json.dumps(found))
"""


def fingerprints(seed: str, *names: str) -> dict[str, object]:
    paths = [str(Path(__file__).parents[1]), str(Path(mk.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths, *names],
        capture_output=True, text=True, timeout=280, check=False, env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_all_the_same(results: list[dict[str, object]]) -> None:
    for result in results[1:]:
        assert {name: digest for name, digest in result.items() if digest != results[0][name]} == {}
        assert result.keys() == results[0].keys()


def test_a_sample_of_models_in_three_processes() -> None:
    assert_all_the_same([fingerprints(seed, *CI_SAMPLE) for seed in SEEDS])


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_all_of_torchvision_in_three_processes_under_three_hash_seeds() -> None:
    results = [fingerprints(seed) for seed in SEEDS for _ in range(3)]
    assert len(results[0]) > 121
    assert_all_the_same(results)
