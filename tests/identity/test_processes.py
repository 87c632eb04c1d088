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


@pytest.mark.slow
def test_a_sample_of_models_in_three_processes() -> None:
    assert_all_the_same([fingerprints(seed, *CI_SAMPLE) for seed in SEEDS])


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_all_of_torchvision_in_three_processes_under_three_hash_seeds() -> None:
    results = [fingerprints(seed) for seed in SEEDS for _ in range(3)]
    assert len(results[0]) > 121
    assert_all_the_same(results)


GENERATING = """
import modulekg_widgets as mk
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

llama = LlamaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30)
gpt = GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=16)
print(mk.fingerprint(LlamaForCausalLM(llama)).hexdigest, mk.fingerprint(GPT2LMHeadModel(gpt)).hexdigest)
"""


@pytest.mark.slow
def test_models_that_keep_hashes_of_their_settings() -> None:
    """transformers' generating models: their settings remember what `hash` gave in this process."""
    printed = set()
    for seed in SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", GENERATING], capture_output=True, text=True, timeout=280, check=True, env=environment
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    assert len(set(printed.pop().split())) == 2
