"""Attention of well-known models: what is found, how their weights print, and what hangs together."""

from __future__ import annotations

import pytest
import torch

import modulekg_widgets as mk

IDS = torch.zeros(1, 7, dtype=torch.long)


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def llama(request: pytest.FixtureRequest) -> mk.DataflowGraph:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=100, attn_implementation=request.param,
    )  # fmt: skip
    return mk.trace(LlamaForCausalLM(config).eval(), (IDS,), {"use_cache": False})


def test_a_llama_prints_as_its_authors_would_write_it(llama: mk.DataflowGraph) -> None:
    attn, axes = "model.layers.0.self_attn", llama.axes
    assert axes.expression(f"{attn}.q_proj.weight") == "(kv_heads=2 group=4 (rot=4 + rot=4)) hidden=64"
    assert axes.expression(f"{attn}.k_proj.weight") == "(kv_heads=2 (rot=4 + rot=4)) hidden=64"
    assert axes.expression(f"{attn}.v_proj.weight") == "(kv_heads=2 v_head_dim=8) hidden=64"
    assert axes.expression(f"{attn}.o_proj.weight") == "hidden=64 (kv_heads=2 group=4 v_head_dim=8)"
    assert axes.expression("model.layers.1.mlp.down_proj.weight") == "hidden=64 out=96"
    assert axes.expression("model.embed_tokens.weight") == "vocabulary=100 hidden=64"
    assert axes[f"{attn}.rot"].indices(f"{attn}.k_proj.weight")[0].tolist() == [0, 4, 8, 12]


def test_a_llama_has_four_projections_per_layer_and_a_cut_in_its_stream_meets_them_all(llama: mk.DataflowGraph) -> None:
    view = llama.attention_dependency()
    assert view.dependency_sets == [
        [f"model.layers.{layer}.self_attn.{part}_proj" for part in "qkvo"] for layer in range(2)
    ]
    assert [(a.heads, a.kv_heads, a.head_dim) for a in view.attentions] == [(8, 2, 8)] * 2
    stream = {"model.embed_tokens", *(f"model.layers.{n}.{part}" for n in range(2) for part in ("self_attn.o_proj",
              "mlp.down_proj"))}  # fmt: skip
    found = llama.channel_dependency().dependency_sets
    assert stream in found
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        assert {f"{prefix}.self_attn.q_proj", f"{prefix}.self_attn.k_proj"} in found
        assert {f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"} in found


def test_a_fused_layer_of_grouped_queries_is_taken_apart() -> None:
    from transformers import GPTBigCodeConfig, GPTBigCodeModel

    config = GPTBigCodeConfig(n_embd=32, n_layer=1, n_head=4, vocab_size=20, n_positions=16, bos_token_id=0,
                              eos_token_id=0)  # fmt: skip
    graph = mk.trace(GPTBigCodeModel(config).eval(), (IDS,), {"use_cache": False})
    (found,) = graph.attention_dependency().attentions
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 1, 8)
    assert graph.axes.expression("h.0.attn.c_attn.weight") == (
        "((heads=4 head_dim=8) + head_dim=8 + v_head_dim=8) hidden=32"
    )


def test_transposed_weights_of_gpt2_have_their_sides_named_right() -> None:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=20, n_positions=16, bos_token_id=0, eos_token_id=0)
    graph = mk.trace(GPT2Model(config).eval(), (IDS,), {"use_cache": False})
    assert graph.axes.expression("h.0.attn.c_attn.weight") == (
        "hidden=32 ((heads=4 head_dim=8) + (heads=4 head_dim=8) + (heads=4 v_head_dim=8))"
    )
    assert graph.axes.expression("h.0.mlp.c_fc.weight") == "hidden=32 out=128"


def test_neighbours_that_are_rotated_together_are_pairs() -> None:
    from transformers import GPTJConfig, GPTJModel

    config = GPTJConfig(n_embd=32, n_layer=1, n_head=2, vocab_size=20, n_positions=16, rotary_dim=8, bos_token_id=0,
                        eos_token_id=0)  # fmt: skip
    graph = mk.trace(GPTJModel(config).eval(), (IDS,), {"use_cache": False})
    assert graph.axes.expression("h.0.attn.q_proj.weight") == "(heads=2 ((rot=4 pair=2) + head_dim=8)) hidden=32"


def test_encoder_and_decoder_of_t5_meet_in_cross_attention() -> None:
    from transformers import T5Config, T5Model

    config = T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=20)
    graph = mk.trace(T5Model(config).eval(), (IDS,), {"decoder_input_ids": IDS, "use_cache": False})
    found = graph.attention_dependency().attentions
    assert [a.module.rpartition(".")[2] for a in found] == ["SelfAttention", "SelfAttention", "EncDecAttention"]
    for attention in found:
        assert attention.projections == {
            part: [f"{attention.module}.{part[0]}"] for part in ("q", "k", "v", "out")
        }  # fmt: skip


def timm_graph(name: str, size: int = 224) -> mk.DataflowGraph:
    import timm

    with torch.device("meta"):
        return mk.trace(timm.create_model(name).eval(), torch.zeros(1, 3, size, size, device="meta"))


def test_heads_that_talk_to_each_other_are_still_heads() -> None:
    graph = timm_graph("cait_xxs24_224")
    found = graph.attention_dependency().attentions
    assert len(found) == 26
    assert found[0].projections == {part: ["blocks.0.attn.qkv"] for part in "qkv"} | {"out": ["blocks.0.attn.proj"]}
    assert {(a.heads, a.head_dim) for a in found} == {(4, 48)}


def test_attention_between_channels_has_heads_and_channels() -> None:
    graph = timm_graph("xcit_nano_12_p16_224")
    found = graph.attention_dependency().attentions
    assert len(found) == 14
    assert {(a.heads, a.head_dim) for a in found} == {(4, 32)}
    assert graph.axes.expression("blocks.0.attn.qkv.weight") == "(qkv=3 heads=4 head_dim=32) hidden=128"


def test_pooled_queries_lead_back_to_the_projection_and_not_to_the_pooling() -> None:
    from torchvision import models

    with torch.device("meta"):
        model = models.video.mvit_v2_s().eval()
    found = mk.trace(model, torch.zeros(1, 3, 16, 224, 224, device="meta")).attention_dependency()
    assert found.dependency_sets == [[f"blocks.{n}.attn.qkv", f"blocks.{n}.attn.project.0"] for n in range(16)]


def test_windows_of_a_swin_do_not_hide_its_heads() -> None:
    from torchvision import models

    model = models.SwinTransformer([4, 4], 24, [2, 2], [3, 6], [4, 4])
    graph = mk.trace(model.eval(), torch.zeros(1, 3, 64, 64))
    view = graph.attention_dependency()
    blocks = [f"features.{stage}.{block}.attn" for stage in (1, 3) for block in range(2)]
    assert view.dependency_sets == [[f"{block}.qkv", f"{block}.proj"] for block in blocks]
    assert [(a.heads, a.head_dim) for a in view.attentions] == [(3, 8), (3, 8), (6, 8), (6, 8)]
    table = graph.axes["features.3.1.attn.relative_position_bias_table", 1]
    assert table.name == "features.3.1.attn.heads"


def test_a_vit_has_twelve_attentions_of_twelve_heads() -> None:
    from torchvision import models

    with torch.device("meta"):
        graph = mk.trace(models.vit_b_16().eval(), torch.zeros(1, 3, 224, 224, device="meta"))
    found = graph.attention_dependency().attentions
    assert [(a.heads, a.head_dim) for a in found] == [(12, 64)] * 12
    prefix = "encoder.layers.encoder_layer_3.self_attention"
    assert found[3].projections == {part: [prefix] for part in "qkv"} | {"out": [f"{prefix}.out_proj"]}
    assert graph.axes.expression(f"{prefix}.in_proj_weight") == "(qkv=3 heads=12 head_dim=64) hidden=768"
    assert graph.axes[f"{prefix}.heads"].size == 12
