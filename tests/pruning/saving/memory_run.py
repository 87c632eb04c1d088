"""A process of its own: a model of a billion parameters is planned and saved, or loaded; prints memory in MB."""

from __future__ import annotations

import json
import os
import resource
import sys

import torch
import transformers
from transformers import initialization

import modulekg_widgets as mk

SIZES = {"vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 2048}  # fmt: skip


def now() -> float:
    """What is resident."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def size_of(model: torch.nn.Module) -> float:
    return sum(each.nbytes for each in model.parameters()) / 1e6


def save(folder: str) -> dict[str, float | bool]:
    start = now()
    torch.set_default_dtype(torch.bfloat16)
    with initialization.no_init_weights():
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        for each in model.parameters():
            each.uniform_(-0.02, 0.02)
    plan = mk.plan(mk.trace(model, (), {"input_ids": torch.ones(1, 8, dtype=torch.long)}), ratio=0.5)
    before = peak()
    saved = plan.save_pretrained(model, folder)
    return {"size": size_of(model), "all": peak() - start, "saving": peak() - before, "plain": saved.plain}


def load(folder: str) -> dict[str, float | bool]:
    mk.load_pretrained  # noqa: B018 - with all that it imports
    start = now()
    model = mk.load_pretrained(folder)
    return {"size": size_of(model), "all": peak() - start}


if __name__ == "__main__":
    print(json.dumps({"save": save, "load": load}[sys.argv[1]](sys.argv[2])))
