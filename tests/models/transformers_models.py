"""Architectures of transformers in every family, small and with random weights: (class, configuration, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = tuple[str, dict[str, Any], Callable[[], dict[str, torch.Tensor]]]

SIZES = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 64,
}
STATES = {"vocab_size": 100, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}
PAIR = {"vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "pad_token_id": 0}  # fmt: skip
AUDIO = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "conv_dim": [16] * 3, "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3], "num_conv_pos_embeddings": 16,
         "num_conv_pos_embedding_groups": 4}  # fmt: skip
STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}


def ids() -> torch.Tensor:
    return torch.arange(7)[None] * 11 % 90


def words() -> dict[str, torch.Tensor]:
    return {"input_ids": ids()}


def two_texts() -> dict[str, torch.Tensor]:
    return {"input_ids": ids(), "decoder_input_ids": ids()}


def image(size: int = 64) -> torch.Tensor:
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))


def picture() -> dict[str, torch.Tensor]:
    return {"pixel_values": image()}


def sound() -> dict[str, torch.Tensor]:
    return {"input_values": torch.rand(1, 2000, generator=torch.Generator().manual_seed(0))}


CASES: dict[str, Case] = {
    # decoders with grouped queries
    "llama": ("LlamaForCausalLM", GROUPED, words),
    "mistral": ("MistralForCausalLM", GROUPED, words),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, words),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}, words),
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 8}, words),
    "nemotron": ("NemotronForCausalLM", {**GROUPED, "head_dim": 8}, words),
    "phi3": ("Phi3ForCausalLM", {**GROUPED, "pad_token_id": 0}, words),
    # decoders with a head of keys per head of queries, or one for all
    "phi": ("PhiForCausalLM", SIZES, words),
    "gpt2": ("GPT2LMHeadModel", GPT, words),
    "gptj": ("GPTJForCausalLM", {**GPT, "rotary_dim": 4}, words),
    "gpt_neox": ("GPTNeoXForCausalLM", SIZES, words),
    "falcon": ("FalconForCausalLM", SIZES, words),
    "bloom": ("BloomForCausalLM", {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4}, words),
    "opt": ("OPTForCausalLM", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}, words),
    # mixtures of experts
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}, words),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**GROUPED, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                                         "moe_intermediate_size": 16}, words),
    # state spaces and recurrences
    "mamba": ("MambaForCausalLM", STATES, words),
    "mamba2": ("Mamba2ForCausalLM", {**STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}, words),
    "rwkv": ("RwkvForCausalLM", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}, words),
    # encoders
    "bert": ("BertForSequenceClassification", SIZES, words),
    "roberta": ("RobertaForSequenceClassification", SIZES, words),
    "distilbert": ("DistilBertForSequenceClassification",
                   {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, words),
    "deberta_v2": ("DebertaV2ForSequenceClassification", SIZES, words),
    "electra": ("ElectraForSequenceClassification", {**SIZES, "embedding_size": 16}, words),
    "albert": ("AlbertForSequenceClassification", {**SIZES, "embedding_size": 16}, words),
    "xlnet": ("XLNetForSequenceClassification", {"vocab_size": 100, "d_model": 32, "n_layer": 2, "n_head": 4,
                                                 "d_inner": 48}, words),
    "longformer": ("LongformerForSequenceClassification", {**SIZES, "attention_window": 8}, words),
    "fnet": ("FNetForSequenceClassification", SIZES, words),
    "funnel": ("FunnelForSequenceClassification", {"vocab_size": 100, "d_model": 32, "n_head": 4, "d_head": 8,
                                                   "d_inner": 48, "block_sizes": [1, 1]}, words),
    # encoder and decoder
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
                                          "num_heads": 4, "decoder_start_token_id": 0}, two_texts),
    "bart": ("BartForConditionalGeneration", PAIR, two_texts),
    "marian": ("MarianMTModel", PAIR, two_texts),
    "led": ("LEDForConditionalGeneration", {**PAIR, "attention_window": 4, "max_encoder_position_embeddings": 64,
                                            "max_decoder_position_embeddings": 64},
            lambda: {"input_ids": torch.arange(8)[None] * 11 % 90, "decoder_input_ids": ids()}),
    "prophetnet": ("ProphetNetForConditionalGeneration",
                   {"vocab_size": 100, "hidden_size": 32, "encoder_ffn_dim": 48, "num_encoder_layers": 2,
                    "num_encoder_attention_heads": 4, "decoder_ffn_dim": 48, "num_decoder_layers": 2,
                    "num_decoder_attention_heads": 4, "max_position_embeddings": 64, "num_buckets": 8}, two_texts),
    # images
    "vit": ("ViTForImageClassification", VISION, picture),
    "swin": ("SwinForImageClassification", {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4],
                                            "window_size": 4}, picture),
    "beit": ("BeitForImageClassification", VISION, picture),
    "dinov2": ("Dinov2ForImageClassification", {**VISION, "image_size": 70, "patch_size": 14},
               lambda: {"pixel_values": image(70)}),
    "convnext": ("ConvNextForImageClassification", STAGES, picture),
    "resnet": ("ResNetForImageClassification", STAGES, picture),
    "segformer": ("SegformerForSemanticSegmentation", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
                  "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 32}, picture),
    # sound
    "wav2vec2": ("Wav2Vec2ForCTC", AUDIO, sound),
    "hubert": ("HubertForCTC", AUDIO, sound),
    "wavlm": ("WavLMForCTC", {**AUDIO, "num_buckets": 16, "max_bucket_distance": 32}, sound),
    "whisper": ("WhisperForConditionalGeneration",
                {**PAIR, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 30, "bos_token_id": 1,
                 "eos_token_id": 2, "decoder_start_token_id": 1},
                lambda: {"input_features": torch.rand(1, 16, 40), "decoder_input_ids": ids()}),
    # images and text
    "clip": ("CLIPModel", {"text_config": SIZES, "vision_config": VISION, "projection_dim": 16},
             lambda: {**words(), **picture()}),
    "blip": ("BlipForConditionalGeneration", {"text_config": {**SIZES, "encoder_hidden_size": 32},
             "vision_config": VISION}, lambda: {**words(), **picture()}),
}  # fmt: skip


def build(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model of a case in eval mode, and its inputs as keywords."""
    import transformers

    cls, options, inputs = CASES[name]
    model_class = getattr(transformers, cls)
    torch.manual_seed(0)
    return model_class(model_class.config_class(**options)).eval(), inputs()
