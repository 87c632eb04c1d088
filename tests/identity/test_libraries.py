"""Models of timm and transformers: nothing opaque, the same when built again, copied, halved."""

import copy
import logging
from collections.abc import Callable, Iterator

import pytest
from torch import nn

import modulekg_widgets as mk
from identity.samples import same
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights

pytestmark = pytest.mark.filterwarnings("ignore")
TIMM = [
    "vit_tiny_patch16_224",
    "convnext_atto",
    "efficientnet_b0",
    "mixer_s32_224",
    "beit_base_patch16_224",
    "coatnet_0_rw_224",
    "mobilevit_xxs",
    "levit_128s",
    "poolformer_s12",
    "regnetx_002",
    "edgenext_xx_small",
    "nfnet_f0",
    "xcit_nano_12_p16_224",
    "crossvit_tiny_240",
    "fastvit_t8",
    "repvgg_a0",
    "volo_d1_224",
    "dpn68",
]
TRANSFORMERS = [
    "Bert",
    "GPT2",
    "Llama",
    "Mistral",
    "Mixtral",
    "Qwen2",
    "Gemma2",
    "Falcon",
    "GPTNeoX",
    "OPT",
    "Bloom",
    "T5",
    "Bart",
    "Roberta",
    "DistilBert",
    "Electra",
    "DebertaV2",
    "XLNet",
    "Mamba",
    "ViT",
    "CLIP",
    "Wav2Vec2",
    "Beit",
    "Segformer",
    "Albert",
    "Funnel",
    "Longformer",
    "Rwkv",
    "Dinov2",
    "ConvNext",
]
OF_OWN_SIZES = {"XLNet", "Segformer", "Funnel"}
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def of_timm(name: str) -> Callable[[], nn.Module]:
    import timm

    return lambda: timm.create_model(name)


def of_transformers(name: str) -> Callable[[], nn.Module]:
    import transformers

    config = getattr(transformers, f"{name}Config")
    return lambda: getattr(transformers, f"{name}Model")(config(**({} if name in OF_OWN_SIZES else SMALL)))


def check(build: Callable[[], nn.Module]) -> None:
    with meta_weights():
        first, second = build(), build()
    assert same(first, second)
    assert mk.fingerprint(first).opaque_paths == ()
    assert same(copy.deepcopy(first), second)
    assert same(first.half().eval(), second)
    assert len(mk.hierarchy(first)) == sum(1 for _ in first.modules())


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str, require: Callable[..., None]) -> None:
    require("timm")
    check(of_timm(name))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str, require: Callable[..., None]) -> None:
    require("transformers")
    check(of_transformers(name))
