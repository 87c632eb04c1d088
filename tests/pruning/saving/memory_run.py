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


def built() -> transformers.LlamaForCausalLM:
    torch.set_default_dtype(torch.bfloat16)
    with initialization.no_init_weights():
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        for each in model.parameters():
            each.uniform_(-0.02, 0.02)
    return model


def planned(model: torch.nn.Module) -> mk.PruningPlan:
    graph = mk.trace(model, (), {"input_ids": torch.ones(1, 8, dtype=torch.long)})
    return mk.plan(graph, ratio=0.5, layers="uniform")


def save(folder: str) -> dict[str, float | bool]:
    """What stays of a whole model."""
    start = now()
    model = built()
    plan = planned(model)
    before = peak()
    saved = plan.save_pretrained(model, folder)
    return {"size": size_of(model), "all": peak() - start, "saving": peak() - before, "plain": saved.plain}


def cut(folder: str) -> dict[str, float | bool]:
    """A model that is cut and saved; nothing is kept to go back to."""
    start = now()
    model = built()
    size = size_of(model)
    saved = planned(model).cut(model, undo=False).save_pretrained(folder)
    return {"size": size, "left": size_of(model), "all": peak() - start, "plain": saved.plain}


def load(folder: str) -> dict[str, float | bool]:
    mk.load_pretrained  # noqa: B018 - with all that it imports
    start = now()
    model = mk.load_pretrained(folder)
    return {"size": size_of(model), "all": peak() - start}


if __name__ == "__main__":
    print(json.dumps({"save": save, "cut": cut, "load": load}[sys.argv[1]](sys.argv[2])))
