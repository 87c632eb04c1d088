"""Mixtures of experts of transformers, tiny and with random weights, and a router that cannot choose some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

SIZES = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 12}
LATENT = {"kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "n_shared_experts": 1,
          "first_k_dense_replace": 1}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("Mixtral", {"num_local_experts": 6}),
    "qwen2_moe": ("Qwen2Moe", {**ROUTED, "num_experts": 6, "shared_expert_intermediate_size": 12}),
    "qwen3_moe": ("Qwen3Moe", {**ROUTED, "num_experts": 6, "head_dim": 8}),
    "olmoe": ("Olmoe", {"num_experts": 6, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOss", {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 8,
                           "layer_types": ["full_attention"] * 2}),
    "deepseek_v2": ("DeepseekV2", {**ROUTED, **LATENT, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
                                   "topk_method": "group_limited_greedy", "q_lora_rank": None}),
    "deepseek_v3": ("DeepseekV3", {**ROUTED, **LATENT, "n_routed_experts": 12, "n_group": 4, "topk_group": 2,
                                   "q_lora_rank": 8}),
    "deepseek_v3 in one group": ("DeepseekV3", {**ROUTED, **LATENT, "n_routed_experts": 6, "n_group": 1,
                                                "topk_group": 1, "q_lora_rank": 8}),
}  # fmt: skip


def build(name: str, implementation: str = "grouped_mm") -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model of a case in eval mode, and its inputs as keywords."""
    import transformers

    family, options = CASES[name]
    model_class = getattr(transformers, f"{family}ForCausalLM")
    config = model_class.config_class(**SIZES, **options)
    model = model_class(config).eval()
    model.set_experts_implementation(implementation)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / tensor.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if "correction" in name:
                buffer.copy_(torch.rand(buffer.shape, generator=generator) / 10)
    return model, {"input_ids": torch.arange(1, 19).view(2, 9) * 7 % 60}


class _NeverChosen(TorchFunctionMode):
    """The logits of some rows of a router are minus infinity."""

    def __init__(self, router: nn.Module, gone: list[int]) -> None:
        super().__init__()
        self.weight, self.gone = router.weight, gone

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is nn.functional.linear and torch.equal(args[1].double(), self.weight.double()):
            out = out.index_fill(-1, torch.tensor(self.gone), -torch.inf)
        return out


@contextmanager
def never_chosen(router: nn.Module, gone: list[int]) -> Iterator[None]:
    """The router cannot choose these experts: their logits, or what corrects their scores, are minus infinity."""
    correction = dict(router.named_buffers()).get("e_score_correction_bias")
    if correction is None:
        with _NeverChosen(router, gone):
            yield
        return
    before = correction.clone()
    correction[gone] = -torch.inf
    try:
        yield
    finally:
        correction.copy_(before)
