"""Every residual block of many models, each removed alone; run as a program with `--write` it writes docs/blocks.md.

A model is called uncut, then without each of its blocks, whose outputs must keep their shapes; after `undo` all names,
bytes and plain attributes must be those of before.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from models.transformers_models import CASES, build
from models.zoo import float_models, timm_families, zoo_case
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.pruning.cut.edits import is_plain_object
from modulekg_widgets.engine.residuals.blocks import block_parameters
from modulekg_widgets.engine.residuals.removable_blocks import residual_blocks
from modulekg_widgets.engine.torch_runtime.pytree import tensors, with_tensors

Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
LARGEST_SIDE, MOST_PARAMETERS = 512, 150_000_000
HEAD = """# Residual blocks

Written by `(cd tests && python -m pruning.blocks.every_block --write)`: the blocks that `graph.blocks()` finds. Each
block was removed alone: the model ran, its output kept its shape, and `receipt.undo()` restored everything. `*` stands
for numbers. For timm, this is one small model per file, with at most 150 M parameters and images of 512 pixels."""
TABLE = Path(__file__).resolve().parents[3] / "docs" / "blocks.md"


def timm_names() -> list[str]:
    """A small model of each of timm's files, where there is one of which a call takes seconds, not minutes."""
    import timm

    def is_small(name: str) -> bool:
        config = timm.get_pretrained_cfg(name)
        side = max((config.input_size or (3, 224, 224))[1:]) if config is not None else 224
        with meta_weights():
            count = sum(each.numel() for each in timm.create_model(name, pretrained=False).parameters())
        return side <= LARGEST_SIDE and count <= MOST_PARAMETERS

    return sorted(filter(is_small, timm_families().values()))


def torchvision_case(name: str) -> Case:
    model, args = zoo_case(name)
    return model, args, {}


def transformers_case(name: str) -> Case:
    model, kwargs = build(name)
    return model.eval(), (), kwargs


def timm_case(name: str) -> Case:
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))
    return model, (torch.rand(1, *size),), {}


SOURCES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Case]]] = {
    "torchvision": (float_models, torchvision_case),
    "transformers": (lambda: list(CASES), transformers_case),
    "timm": (timm_names, timm_case),
}


def state_of(model: nn.Module) -> tuple[Any, ...]:
    """Names, memory and numbers of all that a model is."""
    own = [(name, id(module), {key: _plain(value) for key, value in vars(module).items() if not key.startswith("_")})
           for name, module in model.named_modules()]  # fmt: skip
    held = [*model.named_parameters(), *model.named_buffers()]
    return own, [(name, id(tensor), tensor._version, tensor.shape) for name, tensor in held], weights_of(model)


def weights_of(model: nn.Module) -> str:
    """A digest of all bytes."""
    return str(mk.weight_fingerprint(model))


def _plain(value: Any, depth: int = 4) -> Any:
    """Numbers, texts, lists, and what plain objects as configurations hold, with the identity of these."""
    if type(value) in (int, str, float, bool, type(None)):
        return value
    if isinstance(value, torch.Tensor):
        return "a tensor"  # some code keeps what it computed in the last call
    if isinstance(value, list | tuple) and depth:
        return [_plain(part, depth - 1) for part in value]
    if isinstance(value, dict) and depth:
        return {str(key): _plain(part, depth - 1) for key, part in value.items()}
    is_object = is_plain_object(value) and depth
    return id(value), {key: _plain(part, depth - 1) for key, part in vars(value).items()} if is_object else None


def shapes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Of the first output, which all models keep; caches and hidden states get fewer."""
    with torch.no_grad():
        found = [tensor.shape for _, tensor in tensors(model(*args, **kwargs))]
    return found[:1]


def removed_alone(case: Case, every: bool = True) -> list[str]:
    """The paths of all blocks, each removed alone; raises `AssertionError` naming the first that does not fit."""
    model, args, kwargs = case
    graph = mk.trace(model, args, kwargs)
    paths = list(graph.blocks()["path"])
    whole = shapes(model, args, kwargs)  # some code keeps what it has computed once
    known = len if graph.data_dependent else list  # how many things a detector finds depends on what it computes
    before = state_of(model)
    for path in paths if every else paths[:1] + paths[-1:]:
        receipt = mk.plan(graph, blocks=[path]).cut(model)
        assert list(map(known, shapes(model, args, kwargs))) == list(map(known, whole)), path
        receipt.undo()
        assert state_of(model) == before, path
    return paths


def change_without_zeros(case: Case, path: str) -> float:
    """How far the output moves, relative to its largest number, when a block goes whose weights are all zero.

    In float64, but where a residual stream is kept in float32. Of a weight that is normalised its length is zero, not
    its direction.
    """
    model, args, kwargs = in_float64(case)
    found = [block for block in residual_blocks(mk.trace(model, args, kwargs)) if block.path == path]
    if not found:
        model, args, kwargs = copy.deepcopy(case)
        found = [block for block in residual_blocks(mk.trace(model, args, kwargs)) if block.path == path]
    (block,) = found
    with torch.no_grad():
        for inside in block.modules:
            for name, tensor in model.get_submodule(inside).named_parameters():
                if not name.endswith("weight.original1"):
                    tensor.zero_()
    before = first_output(model, args, kwargs)
    mk.plan(mk.trace(model, args, kwargs), blocks=[path]).cut(model)
    after = first_output(model, args, kwargs)
    return float((before - after).abs().max() / before.abs().max().clamp_min(1e-30))


def in_float64(case: Case) -> Case:
    model, args, kwargs = copy.deepcopy(case)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the others know no float64
    args, kwargs = with_tensors((args, kwargs), lambda t: t.double() if t.is_floating_point() else t)
    return model.double(), args, kwargs


def blocks_with_weights(case: Case) -> list[str]:
    """The first and the last block that has some."""
    graph = mk.trace(*case)
    paths = [block.path for block in residual_blocks(graph) if block_parameters(graph, block)]
    return paths[:1] + paths[-1:]


def first_output(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        return next(tensor for _, tensor in tensors(model(*args, **kwargs)))


def kinds(paths: list[str]) -> str:
    """The paths with numbers left out, and how many there are of each."""
    counts = Counter(re.sub(r"\d+", "*", path) for path in paths)
    listed = [f"`{kind}` {count}" for kind, count in counts.items()]
    return ", ".join(listed[:6]) + (f", … ({len(listed)} kinds)" if len(listed) > 6 else "")


def rows(source: str) -> Iterator[tuple[str, int, str]]:
    names, make = SOURCES[source]
    for name in names():
        try:
            paths = removed_alone(make(name))
        except mk.ModuleKGError as error:
            print(source, name, type(error).__name__, str(error)[:200], file=sys.stderr)
            continue
        print(source, name, len(paths), file=sys.stderr, flush=True)
        yield name, len(paths), kinds(paths)


def table(found_in: Callable[[str], Iterable[tuple[str, int, str]]] = rows) -> str:
    """The whole of the document; `found_in` gives the rows of a source."""
    lines = [HEAD]
    for source in SOURCES:
        found = list(found_in(source))
        total = sum(count for _, count, _ in found)
        lines += ["", f"## {source}", "", f"{total} blocks in {len(found)} models.", "", "| model | blocks | kinds |"]
        lines += ["|---|---|---|", *(f"| {name} | {count} | {listed or '–'} |" for name, count, listed in found)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    text = table()
    if "--write" in sys.argv:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text)
