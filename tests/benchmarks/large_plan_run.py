"""A process of its own: a Llama of 8 B parameters without weights is traced and planned; prints seconds and MB."""

from __future__ import annotations

import json
import resource
import time

import torch
import transformers

import modulekg_widgets as mk

SIZES = {"vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192}  # fmt: skip
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip


def model_of(sizes: dict[str, int]) -> torch.nn.Module:
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()


def planned(model: torch.nn.Module) -> mk.PruningPlan:
    ids = torch.ones(1, 8, dtype=torch.long, device="meta")
    graph = mk.trace(model, (), {"input_ids": ids})
    return mk.plan(graph, target={"flops": 0.5}, blocks=0.25, layers="uniform", importance="random")


def main() -> None:
    torch.set_num_threads(1)
    planned(model_of(SMALL))  # what is imported late
    model = model_of(SIZES)
    start = time.process_time()
    plan = planned(model)
    seconds = time.process_time() - start
    print(json.dumps({
        "parameters": sum(each.numel() for each in model.parameters()),
        "seconds": seconds,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "flops": plan.flops[1] / plan.flops[0],
        "blocks": len(plan.blocks),
        "notes": list(plan.notes),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
