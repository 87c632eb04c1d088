"""The 25 models of test_legibility.py, by name: each function gives a model and what its forward takes.

What a model is, its function says in one line, which docs/pictures.md has as its caption.

`python -m browser.legibility_models FOLDER`, run in tests/, writes what the page gets of each as FOLDER/<name>.json.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn
from torchvision import models

from browser import legibility_nets as nets

Made: TypeAlias = tuple[nn.Module, tuple[Any, ...]]

MODELS: dict[str, Callable[[], Made]] = {}


def model(make: Callable[[], Made]) -> Callable[[], Made]:
    MODELS[make.__name__] = make
    return make


def build(name: str) -> Made:
    """The model of a name, in eval mode, always the same; on the CPU."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, on how they begin their weights
        made, args = MODELS[name]()
    return made.eval(), args


def images(size: int = 224, count: int = 1) -> torch.Tensor:
    return torch.zeros(count, 3, size, size)


def tokens(length: int, largest: int = 100) -> torch.Tensor:
    return (torch.arange(length) % largest)[None]


@model
def vgg16() -> Made:
    """VGG-16: a chain."""
    return models.vgg16(weights=None, init_weights=False), (images(),)


@model
def resnet18() -> Made:
    """ResNet-18: residual blocks, some with a convolution on the shortcut."""
    return models.resnet18(weights=None), (images(),)


@model
def resnet152() -> Made:
    """ResNet-152: 50 blocks in four stages."""
    return models.resnet152(weights=None), (images(),)


@model
def densenet201() -> Made:
    """DenseNet-201: each layer reads the outputs of all layers before it."""
    return models.densenet201(weights=None), (images(),)


@model
def googlenet() -> Made:
    """GoogLeNet: four parallel branches, nine times."""
    return models.googlenet(weights=None, aux_logits=False, init_weights=False), (images(),)


@model
def hrnet() -> Made:
    """HRNet: branches of four resolutions that exchange features."""
    import timm

    return timm.create_model("hrnet_w18_small", pretrained=False), (images(),)


@model
def unet() -> Made:
    """U-Net: encoder, decoder, and a skip connection at each level."""
    return nets.UNet(), (images(128),)


@model
def mask_rcnn() -> Made:
    """Mask R-CNN: backbone, pyramid, proposals, boxes and masks."""
    made = models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, min_size=224, max_size=224)
    return made, ([images()[0]],)


@model
def fpn() -> Made:
    """ResNet-50 with a feature pyramid: five outputs."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    return resnet_fpn_backbone(backbone_name="resnet50", weights=None), (images(),)


@model
def swin() -> Made:
    """Swin-T: attention in windows, patches merged between stages."""
    return models.swin_t(weights=None), (images(),)


@model
def vit() -> Made:
    """ViT-B/16: patches, a class token, twelve blocks."""
    return models.vit_b_16(weights=None), (images(),)


@model
def llama() -> Made:
    """Llama: eight decoder layers with rotary positions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config), (tokens(16),)


@model
def t5() -> Made:
    """T5: encoder and decoder."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=6, num_heads=4, use_cache=False)
    return T5ForConditionalGeneration(config), (tokens(12), None, tokens(8))


@model
def clip() -> Made:
    """CLIP: a text encoder and an image encoder."""
    from transformers import CLIPConfig, CLIPModel

    tower = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 6}
    config = CLIPConfig(
        text_config={**tower, "vocab_size": 100, "eos_token_id": 99, "bos_token_id": 98, "pad_token_id": 97},
        vision_config={**tower, "image_size": 64, "patch_size": 16},
        projection_dim=32,
    )
    return CLIPModel(config), (tokens(12), images(64))


@model
def experts_as_list() -> Made:
    """Mixture of 30 experts in a ModuleList."""
    return nets.ExpertList(), (torch.zeros(4, 32),)


@model
def experts_fused() -> Made:
    """Mixture of experts as stacked parameters."""
    return nets.FusedMixture(), (tokens(10),)


@model
def lstm_tagger() -> Made:
    """Word tagger: embeddings, characters, LSTMs."""
    return nets.Tagger(), (tokens(12), torch.zeros(1, 12, 9, dtype=torch.long))


@model
def gan() -> Made:
    """GAN: generator and discriminator in one module."""
    return nets.GAN(), (torch.zeros(2, 32, 1, 1), images(32, 2))


@model
def nas_cells() -> Made:
    """Architecture search cells: mixed operations, each cell with the two before it as inputs."""
    return nets.NASNetwork(), (images(32),)


@model
def transformer() -> Made:
    """Transformer: torch.nn.Transformer, six layers each."""
    made = nn.Transformer(32, 4, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=64, batch_first=True)
    return made, (torch.zeros(2, 10, 32), torch.zeros(2, 7, 32))


@model
def siamese() -> Made:
    """Siamese network: one encoder for two images."""
    return nets.Siamese(), (images(64), images(64))


@model
def looped_cell() -> Made:
    """GRU cell in a loop of twelve steps."""
    return nets.LoopedCell(), (tokens(12),)


@model
def wide() -> Made:
    """400 parallel branches."""
    return nets.Wide(), (torch.zeros(2, 8),)


@model
def deep() -> Made:
    """5,000 modules in a row."""
    return nets.deep(), (torch.zeros(2, 4),)


@model
def many_ends() -> Made:
    """Four inputs and three outputs."""
    return nets.ManyEnds(), (images(32), tokens(9), torch.zeros(1, 6), torch.zeros(1, 1))


def dump(folder: Path) -> None:
    """Write the payload of each model as the page gets it, and in opened/ the paths that are open at first."""
    import modulekg_widgets as mk

    (folder / "opened").mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        made, args = build(name)
        begin = time.perf_counter()
        graph = mk.ModelGraph(made, args=args)
        seconds = time.perf_counter() - begin
        (folder / f"{name}.json").write_text(json.dumps(graph.payload, ensure_ascii=False), "utf-8")
        (folder / "opened" / f"{name}.json").write_text(json.dumps(graph.expanded, ensure_ascii=False), "utf-8")
        size = (folder / f"{name}.json").stat().st_size
        modules = len(graph.payload["nodes"]["name"])
        print(f"{name:<16} {seconds:6.2f} s {modules:>6} modules {size:>10,} bytes  {graph.error or ''}", flush=True)


if __name__ == "__main__":
    dump(Path(sys.argv[1]))
