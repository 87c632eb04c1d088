"""Fingerprints, hierarchies, levels and differences of models of all libraries, mostly on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from goldens.digests import Case
from goldens.nets import NETS, exact, exact_net, local_net, net_of

TORCHVISION = [
    "alexnet", "convnext_tiny", "deeplabv3_mobilenet_v3_large", "densenet121", "efficientnet_b0", "efficientnet_v2_s",
    "fasterrcnn_mobilenet_v3_large_fpn", "fcn_resnet50", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
    "mvit_v1_b", "r3d_18", "raft_small", "resnet18", "resnet50", "resnext50_32x4d", "retinanet_resnet50_fpn",
    "s3d", "shufflenet_v2_x0_5", "squeezenet1_1", "ssdlite320_mobilenet_v3_large", "swin_t", "swin_v2_t", "vgg11_bn",
    "vit_b_16", "wide_resnet50_2",
]  # fmt: skip
TIMM = [
    "test_byobnet", "test_convnext", "test_efficientnet", "test_mambaout", "test_nfnet", "test_resnet", "test_vit",
    "test_vit2", "ghostnet_100", "mobilevit_xxs", "resnest14d", "mixer_s32_224", "edgenext_xx_small", "levit_128s",
]  # fmt: skip
TRANSFORMERS = [
    "bert", "roberta", "distilbert", "albert", "electra", "gpt2", "gptj", "bloom", "opt", "llama", "mistral", "qwen2",
    "gemma2", "phi", "falcon", "mixtral", "mamba", "t5", "bart", "vit", "swin", "segformer", "wav2vec2", "whisper",
    "clip",
]  # fmt: skip
HIERARCHIES = [
    "residual", "attending", "tied", "torchvision/resnet18", "torchvision/squeezenet1_1", "timm/test_vit",
    "transformers/llama", "transformers/t5",
]  # fmt: skip


def on_meta(name: str) -> nn.Module:
    """A model of torchvision or timm on tensors without data."""
    library, _, model = name.partition("/")
    builders = mk.torchvision_builders() if library == "torchvision" else mk.timm_builders([model])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with torch.device("meta"):
            return builders[model]()


def printed(model: nn.Module) -> dict[str, Any]:
    """The fingerprints of a model."""
    structure = mk.fingerprint(model)
    try:
        seed = mk.fingerprint(model, scheme="seed").display_name
    except mk.ModuleKGError as error:
        seed = str(error)
    return {
        "structure": structure.hexdigest, "name": structure.display_name, "seed": seed,
        "opaque": structure.opaque_paths, "str": str(structure),
    }  # fmt: skip


def library_model(name: str) -> dict[str, Any]:
    """Of a model of a library."""
    return printed(on_meta(name) if not name.startswith("transformers/") else net_of(name)[0])


def local_model(name: str) -> dict[str, Any]:
    """Of a small net, with its weights."""
    model = local_net(name)[0]
    exact(model)
    return {**printed(model), "weights": str(mk.weight_fingerprint(model))}


def every_module() -> dict[str, str]:
    """Of each module of a net."""
    return {path or "(root)": mk.fingerprint(each).hexdigest for path, each in local_net("residual")[0].named_modules()}


def exact_weights() -> dict[str, str]:
    """Of weights that are the same everywhere, and of changed ones."""
    before = str(mk.weight_fingerprint(exact_net()))
    changed = exact_net()
    with torch.no_grad():
        changed.get_parameter("2.bias").add_(1)
    kinds = {str(kind): str(mk.weight_fingerprint(exact_net().to(kind))) for kind in (torch.bfloat16, torch.float64)}
    return {"before": before, "changed": str(mk.weight_fingerprint(changed)), **kinds}


def hierarchy(name: str) -> dict[str, Any]:
    """A hierarchy in all that one sees of it."""
    tree = mk.hierarchy(net_of(name)[0])
    return {
        "str": str(tree), "levels": tree.levels(), "by depth": tree.levels("depth"), "folded": str(tree.fold()),
        "exact folds": str(tree.fold(families=False)), "shared": tree.shared, "tied": tree.tied,
        "table": mk.levels(net_of(name)[0]),
    }  # fmt: skip


def _wider() -> nn.Module:
    model = local_net("residual")[0]
    model.get_submodule("first").add_module("0", nn.Conv2d(8, 12, 5, padding=2))
    model.add_module("extra", nn.Dropout(0.25))
    return model


def _trained() -> nn.Module:
    model = exact_net()
    with torch.no_grad():
        model.get_parameter("0.bias")[2] += 0.5
    return model


DIFFERENCES: dict[str, Callable[[], Any]] = {
    "same": lambda: mk.diff(local_net("residual")[0], local_net("residual")[0]),
    "wider": lambda: mk.diff(local_net("residual")[0], _wider()),
    "other": lambda: mk.diff(local_net("residual")[0], local_net("u_net")[0]),
    "resnets": lambda: mk.diff(on_meta("torchvision/resnet18"), on_meta("torchvision/resnet34")),
    "weights": lambda: mk.diff(exact_net(), _trained(), weights=True),
}


def difference(name: str) -> str:
    """Two models compared, as text."""
    return str(DIFFERENCES[name]())


def cases() -> dict[str, Case]:
    """All of this subject."""
    names = [
        *(f"torchvision/{name}" for name in TORCHVISION),
        *(f"timm/{name}" for name in TIMM),
        *(f"transformers/{name}" for name in TRANSFORMERS),
    ]
    return {
        **{name: Case(partial(library_model, name)) for name in names},
        **{f"local {name}": Case(partial(local_model, name)) for name in NETS},
        "every module": Case(every_module),
        "exact weights": Case(exact_weights),
        **{f"hierarchy of {name}": Case(partial(hierarchy, name)) for name in HIERARCHIES},
        **{f"difference: {name}": Case(partial(difference, name)) for name in DIFFERENCES},
    }
