"""Masks from NNI dictionaries, mask files, or torch.nn.utils.prune, checked against a model.

NNI's layout is `{"layer.path": {"weight": zeros and ones, "bias": zeros and ones or None}}`. A mask has the shape of
its tensor, or one entry for each output channel (each input channel with `conv_prune_dim=1`). Targets `_input_0` and
`_output_0` of NNI 3 mask the activations of a module. Any other target is a parameter or buffer of the module.
`{"layer.path.weight": zeros and ones}`, as `plan.masks()` returns it, is read as well.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.errors import CutError, UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.pruning.nni.weight_channels import Side, WeightChannels
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, PARAMETERS
from modulekg_widgets.engine.tracing.dataflow import DataNode, split_name

Tensor = torch.Tensor
MaskDict = dict[str, dict[str, Tensor | None]]
MasksByModule = Mapping[str, Mapping[str, Tensor | None]]
MaskSource = MasksByModule | str | os.PathLike[str] | None
INPUT, OUTPUT = "_input_", "_output_"  # with a number: what a module takes and gives
PRUNE = "prune"  # in the place of a path: the masks that the model carries
BYTES_PER_WEIGHT, BYTES_OVERHEAD = 16, 1 << 26  # no file of masks is larger
LAYOUT_HINT = 'masks are {"layer.path": {"weight": zeros and ones, "bias": zeros and ones or None}}'


@dataclass(frozen=True, slots=True)
class TensorMask:
    """The mask of one tensor of a module; `keep` is True where an entry stays."""

    module: str
    target: str  # as it was given: "weight", "bias", "_output_0"
    node: DataNode  # the parameter, buffer or value that it lies on
    keep: Tensor = field(repr=False)  # bool, on the CPU, in the shape of the node

    @property
    def name(self) -> str:
        return f"{self.module}.{self.target}" if self.module else self.target

    @property
    def is_on_activation(self) -> bool:
        """True if it masks an input or output of the module."""
        return self.target.startswith((INPUT, OUTPUT)) and self.target.rpartition("_")[2].isdigit()

    @property
    def slices(self) -> dict[int, list[int]]:
        """The fully masked positions by dimension."""
        positions = {}
        for at in range(self.keep.dim()):
            removed = ~self.keep.movedim(at, 0).flatten(1).any(1) if self.keep.dim() > 1 else ~self.keep
            if bool(removed.any()):
                positions[at] = removed.nonzero().flatten().tolist()
        return positions

    @property
    def zeros(self) -> int:
        return int((~self.keep).sum())


class MaskReading:
    """Masks that were checked against a model; iterates over one `TensorMask` for each tensor."""

    def __init__(self, axes: Axes, masks: list[TensorMask], source: MaskDict, layers: Layers) -> None:
        self.axes = axes
        self.masks = masks
        self.source = source  # unchanged, so that results have the same layout
        self.layers = layers
        self.sides = {
            layer: sides for layer in layers if (sides := WeightChannels.of(layer, axes.inference)) is not None
        }
        self.keep: dict[DataNode, Tensor] = {}  # a tied tensor is zero where one of its masks says so
        for mask in masks:
            before = self.keep.get(mask.node)
            self.keep[mask.node] = mask.keep if before is None else before & mask.keep

    def __iter__(self) -> Iterator[TensorMask]:
        return iter(self.masks)

    @property
    def outputs(self) -> dict[str, list[int]]:
        """The output channels of each layer whose weights are all masked; the bias follows the weight."""
        return self._channels("out")

    @property
    def inputs(self) -> dict[str, list[int]]:
        """The input channels of each layer whose weights are all masked."""
        return self._channels("into")

    def _channels(self, side: Side) -> dict[str, list[int]]:
        channels = {}
        for layer, sides in self.sides.items():
            keep = self.keep.get(layer.weight)
            removed = [] if keep is None else (~sides.unmasked_channels(keep, side)).nonzero()[0].tolist()
            if removed:
                channels[layer.name] = removed
        return channels

    @property
    def fine_grained(self) -> dict[str, int]:
        """The number of masked entries of each tensor outside of fully masked slices; no cut removes these."""
        counts = {}
        for mask in self.masks:
            rest = ~mask.keep
            own = [sides for layer, sides in self.sides.items() if layer.weight is mask.node]
            for sides in own:
                rest &= sides.expand_to_weight(sides.unmasked_channels(mask.keep, "out"), "out")
                rest &= sides.expand_to_weight(sides.unmasked_channels(mask.keep, "into"), "into")
            for at, positions in () if own else mask.slices.items():
                rest.index_fill_(at, torch.tensor(positions, device="cpu"), False)
            if bool(rest.any()):
                counts[mask.name] = int(rest.sum())
        return counts

    def __str__(self) -> str:
        lines = [f"masks of {len(self.masks)} tensors"]
        for title, channels in (("output", self.outputs), ("input", self.inputs)):
            lines += [f"{printable(name)}: {len(own)} {title} channels are zero" for name, own in channels.items()]
        for name, count in self.fine_grained.items():
            lines.append(f"{printable(name)}: fine-grained, {count} zeros that cannot be cut")
        return "\n".join(lines)


def read_masks(axes: Axes | DataflowGraph, masks: MaskSource = None, conv_prune_dim: int | None = 0) -> MaskReading:
    """Read masks and check them against a traced model; nothing is changed.

    Parameters
    ----------
    axes : DataflowGraph or Axes
        The traced model.
    masks : dict, path, "prune" or None
        NNI's dict or that of `plan.masks()`, the path of a file of it (loaded with `weights_only=True`), or None or
        `"prune"` for the masks that `torch.nn.utils.prune` left on the model. A mask with one entry per channel is one
        of output channels, or of input channels when `conv_prune_dim` is 1.
    conv_prune_dim : {0, 1, None}, default 0
        Whether output channels (0), input channels (1) or both (None) are pruned.

    Returns
    -------
    MaskReading
        The masks, in order; `.fine_grained` counts zeros that no cut removes.

    Raises
    ------
    CutError
        For what is not a mask of these tensors.
    UnknownPathError
        For a layer or target that the model does not have.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> graph = mk.trace(model, torch.randn(1, 4))
    >>> mask = torch.ones(3, 4)
    >>> mask[1] = 0
    >>> [mask.module for mask in mk.pruning.read_masks(graph, {"0": {"weight": mask}})]
    ['0']
    """
    axes = axes_of_graph(axes)
    check_dim(conv_prune_dim)
    source = _source_masks(axes, masks)
    layers = Layers(axes.inference)
    side: Side = "into" if conv_prune_dim == 1 else "out"
    checked = []
    for path, targets in _entries(source):
        if path not in axes.graph.modules:
            hint = closest_match_hint(path[:200], axes.graph.modules)
            raise UnknownPathError(
                f"the masks name the layer {printable(path)!r}, which the model does not have: {hint}"
            )
        for target, mask in targets:
            node = _masked_tensor(axes, path, target, mask)
            name = f"{path}.{target}" if path else target
            checked.append(TensorMask(path, target, node, _checked(mask, node, name, layers, side)))
    return MaskReading(axes, checked, {path: dict(targets) for path, targets in source.items()}, layers)


def axes_of_graph(axes: Axes | DataflowGraph) -> Axes:
    """The axes of a graph, or the axes themselves."""
    every = axes.axes if isinstance(axes, DataflowGraph) else axes
    if not isinstance(every, Axes):
        raise CutError(f"masks are read against the graph of mk.trace(model, args), got {a_type(axes)}")
    return every


def check_dim(conv_prune_dim: int | None) -> None:
    """Raise `CutError` unless output channels (0), input channels (1) or both (None) are meant."""
    if conv_prune_dim is not None and (isinstance(conv_prune_dim, bool) or conv_prune_dim not in (0, 1)):
        raise CutError(
            f"conv_prune_dim is 0 for output channels, 1 for input channels or None for both, "
            f"got {printable(repr(conv_prune_dim))}"
        )


# --------------------------------------------------------------- where from


def _source_masks(axes: Axes, masks: MaskSource) -> MasksByModule:
    if masks is None or (isinstance(masks, str) and masks == PRUNE):
        carried = prune_masks_of(axes)
        if not carried:
            raise CutError(
                "no masks are given and the model carries none of torch.nn.utils.prune: pass a dict of masks"
            )
        return carried
    if isinstance(masks, str | os.PathLike):
        held = sum(node.numel() for node in dict.fromkeys(axes.graph.state.values()))
        masks = load_masks(masks, BYTES_OVERHEAD + BYTES_PER_WEIGHT * held)
    return _by_module(axes, masks)


def _by_module(axes: Axes, masks: MasksByModule) -> MasksByModule:
    """Masks by full parameter names in NNI's layout; others unchanged."""
    flat = (
        {name: mask for name, mask in masks.items() if isinstance(mask, Tensor)} if isinstance(masks, Mapping) else {}
    )
    if not flat or len(flat) < len(masks) or not all(name in axes.graph.state for name in flat):
        return masks
    by_module: MaskDict = {}
    for name, mask in flat.items():
        path, target = split_name(axes.graph, name)
        by_module.setdefault(path, {})[target] = mask
    return by_module


def prune_masks_of(axes: Axes) -> MaskDict:
    """The masks that `torch.nn.utils.prune` keeps in buffers beside `weight_orig`, in NNI's layout."""
    masks: MaskDict = {}
    seen: set[int] = set()
    for path, node in axes.graph.modules.items():
        state = module_state(node.module)
        if id(node.module) in seen:
            continue
        seen.add(id(node.module))
        for name, mask in state[BUFFERS].items():
            target = name.removesuffix("_mask")
            if name.endswith("_mask") and f"{target}_orig" in state[PARAMETERS]:
                masks.setdefault(path, {})[target] = mask
    return masks


def load_masks(path: str | os.PathLike[str], most: int = BYTES_OVERHEAD) -> MaskDict:
    """The masks that a file holds, loaded with `weights_only=True`.

    Parameters
    ----------
    path : str or path
        A file that `torch.save(masks, path)` wrote.
    most : int
        The number of bytes that it may have, packed and unpacked.

    Returns
    -------
    dict
        `{layer: {target: mask}}`, on the CPU.

    Raises
    ------
    CutError
        When it is not a file of masks.

    Examples
    --------
    >>> import tempfile, torch
    >>> import modulekg_widgets as mk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"0": {"weight": torch.ones(3, 4)}}, f"{folder}/masks.pth")
    ...     mk.pruning.load_masks(f"{folder}/masks.pth")["0"]["weight"].shape
    torch.Size([3, 4])
    """
    name = printable(os.fspath(path))
    file = Path(path)
    if not file.is_file():
        raise CutError(f"there is no file {name!r} of masks: save them with torch.save(masks, path)")
    try:
        size = file.stat().st_size
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as packed:
                size = max(size, sum(entry.file_size for entry in packed.infolist()))
        if size > most:
            raise CutError(f"{name!r} unpacks to {size} bytes, and masks of this model have {most} at most")
        content = torch.load(file, map_location="cpu", weights_only=True)
    except CutError:
        raise
    except Exception as error:  # a broken or hostile file may raise anything
        raise CutError(
            f"{name!r} cannot be loaded as masks ({type(error).__name__}): it may hold a dict of tensors and nothing "
            "else, as torch.save(masks, path) writes it"
        ) from error
    return content


# ------------------------------------------------------------------ checks


def _entries(source: object) -> Iterator[tuple[str, list[tuple[str, Tensor]]]]:
    """The masks by layer and target, without those that are None."""
    if not isinstance(source, Mapping):
        raise CutError(f"{LAYOUT_HINT}; got {a_type(source)}")
    if not source:
        raise CutError(f"the masks name no layer: {LAYOUT_HINT}")
    for path, targets in source.items():
        if not isinstance(path, str):
            raise CutError(f"{LAYOUT_HINT}; a layer is named by text, got {a_type(path)}")
        if not isinstance(targets, Mapping):
            raise CutError(f"{LAYOUT_HINT}; under {printable(path)!r} stands {a_type(targets)}")
        named = []
        for target, mask in targets.items():
            if not isinstance(target, str):
                raise CutError(f"{LAYOUT_HINT}; {printable(path)!r} has a target that is {a_type(target)}")
            if mask is None:
                continue
            if not isinstance(mask, Tensor):
                where = printable(f"{path}.{target}")
                raise CutError(f"{LAYOUT_HINT}; the mask of {where!r} is {a_type(mask)}, not a tensor")
            named.append((target, mask))
        yield path, named


def _masked_tensor(axes: Axes, path: str, target: str, mask: Tensor) -> DataNode:
    """The tensor of a mask; for a computed tensor its source parameter."""
    state, module = axes.graph.state, axes.graph.modules[path]
    prefix = f"{path}." if path else ""
    for name in (f"{prefix}{target}", f"{prefix}{target}_orig", f"{prefix}{target}_v"):
        if name in state:
            return state[name]
    inside = f"{prefix}parametrizations.{target}."
    originals = [node for name, node in state.items() if name.startswith(inside)]
    for node in originals:
        if node.shape == tuple(mask.shape) or len(originals) == 1:
            return node
    values = {f"{INPUT}{at}": node for at, node in enumerate(module.inputs)}
    values |= {f"{OUTPUT}{at}": node for at, node in enumerate(module.outputs)}
    if target in values:
        return values[target]
    hint = closest_match_hint(target[:200], [*module.params, *values])
    raise UnknownPathError(
        f"the masks name {printable(target)!r} of {printable(path)!r}, which has no such tensor: {hint}"
    )


def _checked(mask: Tensor, node: DataNode, name: str, layers: Layers, side: Side) -> Tensor:
    """The mask as bool in the shape of its tensor."""
    named = printable(name)
    if mask.layout is not torch.strided or mask.is_meta or mask.is_quantized or mask.is_complex():
        raise CutError(
            f"the mask of {named!r} is {mask.dtype} with layout {mask.layout} on {mask.device}: pass plain tensors of "
            "zeros and ones with data"
        )
    keep = _in_tensor_shape(mask.detach(), node, named, layers, side)  # before any work: a view may seem huge
    if not bool(((keep == 0) | (keep == 1)).all()):
        low, high = keep.min().item(), keep.max().item()
        raise CutError(
            f"the mask of {named!r} holds numbers from {low} to {high}: a mask is 0 where a weight is removed, else 1"
        )
    return keep != 0


def _in_tensor_shape(mask: Tensor, node: DataNode, named: str, layers: Layers, side: Side) -> Tensor:
    shape = tuple(mask.shape)
    if shape == node.shape:
        return mask.cpu()
    wanted = f"shape {list(node.shape)}"
    if node.producer is not None or node.kind == "input":
        fits = len(shape) <= node.dim() and all(
            a in (1, b) for a, b in zip(shape[::-1], node.shape[::-1], strict=False)
        )
        if fits:
            return mask.cpu().expand(node.shape)
        wanted += " or one that broadcasts to it"
    elif len(shape) == 1:
        for layer in layers:
            sides = WeightChannels.of(layer, layers.inference) if layer.weight is node else None
            if sides is not None and shape[0] == sides.size(side):
                return sides.expand_to_weight(mask.cpu(), side)
            if sides is not None:
                wanted += f", or [{sides.size(side)}] for its {'output' if side == 'out' else 'input'} channels"
    raise CutError(
        f"the mask of {named!r} has shape {list(shape)[:8]}, its tensor {wanted}: pass the masks of this model"
    )
