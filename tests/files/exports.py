"""Architectures, and what writes them to files of each format."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn

Example = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Up(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(inside, outside, 2, 2)
        self.conv = nn.Sequential(nn.Conv2d(2 * outside, outside, 3, padding=1), nn.GroupNorm(2, outside), nn.SiLU())

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([self.up(x), skip], 1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)])
        self.up = nn.ModuleDict({"deep": Up(16, 8), "shallow": Up(8, 4)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](a)
        return self.up["shallow"](self.up["deep"](self.down[2](b), b), a)


class Tied(nn.Module):
    """Embedding and head are one tensor, and one module is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.block(self.embed(tokens) * self.scale)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def pictures(name: str, side: int = 64, **settings: Any) -> Callable[[], Example]:
    def build() -> Example:
        return getattr(torchvision.models, name)(weights=None, **settings).eval(), (torch.rand(1, 3, side, side),)

    return build


def of_transformers(kind: str, words: dict[str, Any], model: str) -> Callable[[], Example]:
    def build() -> Example:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**words, use_cache=False)
        return getattr(transformers, model)(config).eval(), (torch.randint(0, 50, (1, 7)),)

    return build


SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
ARCHITECTURES: dict[str, Callable[[], Example]] = {
    "resnet18": pictures("resnet18"),
    "unet": lambda: (UNet().eval(), (torch.rand(1, 3, 32, 32),)),
    "tied": lambda: (Tied().eval(), (torch.randint(0, 20, (1, 5)),)),
    "recurrent": lambda: (Recurrent().eval(), (torch.rand(1, 4, 6),)),
    "mobilenet_v3_small": pictures("mobilenet_v3_small"),
    "shufflenet_v2_x0_5": pictures("shufflenet_v2_x0_5"),
    "squeezenet1_1": pictures("squeezenet1_1"),
    "densenet121": pictures("densenet121"),
    "googlenet": pictures("googlenet", init_weights=False, aux_logits=False),
    "efficientnet_b0": pictures("efficientnet_b0"),
    "regnet_y_400mf": pictures("regnet_y_400mf"),
    "convnext_tiny": pictures("convnext_tiny"),
    "swin_t": pictures("swin_t"),
    "vit_b_32": pictures("vit_b_32", image_size=64),
    "mnasnet0_5": pictures("mnasnet0_5"),
    "vgg11_bn": pictures("vgg11_bn"),
    "alexnet": pictures("alexnet"),
    "bert": of_transformers("Bert", SMALL, "BertModel"),
    "gpt2": of_transformers("GPT2", {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2}, "GPT2Model"),
    "llama": of_transformers("Llama", SMALL, "LlamaModel"),
    "distilbert": of_transformers(
        "DistilBert", {"vocab_size": 60, "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2}, "DistilBertModel"
    ),
}


def write_safetensors(example: Example, path: Path) -> None:
    from safetensors.torch import save_model

    save_model(example[0], str(path))


def write_state(example: Example, path: Path) -> None:
    torch.save(example[0].state_dict(), path)


def write_model(example: Example, path: Path) -> None:
    torch.save(example[0], path)


def write_script(example: Example, path: Path) -> None:
    torch.jit.trace(example[0], example[1], strict=False, check_trace=False).save(path)


def write_export(example: Example, path: Path) -> None:
    torch.export.save(torch.export.export(*example, strict=False), path)


def write_onnx(example: Example, path: Path) -> None:
    torch.onnx.export(*example, path, dynamo=True, verbose=False, external_data=False, optimize=False)


def write_gguf(example: Example, path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "test")
    for name, tensor in example[0].state_dict().items():
        writer.add_tensor(name, tensor.float().numpy() if tensor.dim() else tensor.float().reshape(1).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


WRITERS: dict[str, Callable[[Example, Path], None]] = {
    ".safetensors": write_safetensors,
    ".pth": write_state,
    ".pt": write_model,
    ".script.pt": write_script,
    ".pt2": write_export,
    ".onnx": write_onnx,
    ".gguf": write_gguf,
}


def write_index(example: Example, path: Path) -> None:
    """Three files, their index and a config, as transformers writes them."""
    from safetensors.torch import save_file

    tensors = {name: tensor.clone().contiguous() for name, tensor in example[0].state_dict().items()}
    shards = [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]
    listed = {name: shards[at % 3] for at, name in enumerate(tensors)}
    for shard in shards:
        save_file({name: tensors[name] for name in tensors if listed[name] == shard}, path.with_name(shard))
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}))
    config = {"architectures": [type(example[0]).__name__], "text_config": {"sizes": [1, 2.5, None]}}
    path.with_name("config.json").write_text(json.dumps(config))


def write_onnx_in_two(example: Example, path: Path) -> None:
    """With the weights in another file."""
    import onnx

    write_onnx(example, path)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)


def write_legacy(example: Example, path: Path) -> None:
    torch.save(example[0].state_dict(), path, _use_new_zipfile_serialization=False)


def write_quantised(example: Example, path: Path) -> None:
    torch.save(torch.ao.quantization.quantize_dynamic(example[0], {nn.Linear}).state_dict(), path)


def write_distributed(example: Example, path: Path) -> None:
    """The metadata of a checkpoint of torch.distributed.checkpoint, with its shard beside it."""
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"model": example[0].state_dict(), "step": 3}, checkpoint_id=path.parent)
    path.with_name(".metadata").rename(path)


def write_big_gguf(example: Example, path: Path) -> None:
    """In the other order of bytes, with a type whose number readers use differently."""
    from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter

    writer = GGUFWriter(path, "test", endianess=GGUFEndian.BIG)
    for name, tensor in example[0].state_dict().items():
        writer.add_tensor(name, tensor.float().numpy() if tensor.dim() else tensor.float().reshape(1).numpy())
    writer.add_tensor("mx", np.zeros((2, 34), dtype=np.uint8), raw_dtype=GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_int8_onnx(example: Example, path: Path) -> None:
    """With weights of eight bits, and numbers in lists of their type."""
    from onnxruntime.quantization import quantize_dynamic

    whole = path.with_name("whole.onnx")
    write_onnx(example, whole)
    quantize_dynamic(whole, path)
    whole.unlink()


# what else is tampered with: other ways to write the same formats, some of them in several files
OTHER_WRITERS: dict[str, Callable[[Example, Path], None]] = {
    ".safetensors.index.json": write_index,
    ".external.onnx": write_onnx_in_two,
    ".legacy.pt": write_legacy,
    ".quantised.pt": write_quantised,
    ".metadata": write_distributed,
    ".big.gguf": write_big_gguf,
    ".int8.onnx": write_int8_onnx,
}


def called_in(example: Example) -> set[str]:
    """The paths of the modules that a forward pass calls, but for those that only hand on what they get."""
    net, called = example[0], set()
    paths = {module: path for path, module in net.named_modules()}

    def note(module: nn.Module, args: tuple, output: object) -> None:
        if not any(output is each for each in args):
            called.add(paths[module])

    handles = [module.register_forward_hook(note) for module in paths]
    net(*example[1])
    for handle in handles:
        handle.remove()
    return called


def written(architecture: str, ending: str, folder: Path) -> tuple[nn.Module, Path, set[str]]:
    """The live model, the file that it was exported to, and the modules that its forward calls."""
    torch.manual_seed(0)
    example = ARCHITECTURES[architecture]()
    path = folder / f"{architecture}{ending}"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporters, on what they will no longer do
        (WRITERS | OTHER_WRITERS)[ending](example, path)
        return example[0], path, called_in(example)
