"""Other widths for a model: its layers with scaled channel counts, of which one forward pass tells the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from modulekg_widgets.engine.torch_runtime.private import RESET_PARAMETERS, AnyNorm, ConvNd, buffers_of, parameters_of
from modulekg_widgets.engine.torch_runtime.state import module_state

Shape = tuple[int, ...]
STEP = 8  # channel counts are multiples of it


@dataclass(frozen=True, slots=True)
class Resized:
    """One module's new attributes and shapes of tensors."""

    path: str
    attributes: tuple[tuple[str, Any], ...]
    shapes: tuple[tuple[str, Shape], ...]

    def apply(self, model: nn.Module) -> None:
        module = model.get_submodule(self.path)
        for name, value in self.attributes:
            setattr(module, name, value)
        for name, shape in self.shapes:
            _put(module, name, shape)
        reset(module, below=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Channel counts times a factor, to multiples of eight; `kept` is the number of the model's outputs."""

    factor: float
    kept: int

    def __call__(self, channels: int) -> int:
        if channels == self.kept or channels < STEP:
            return channels
        return max(STEP, STEP * round(channels * self.factor / STEP))


def reset(module: nn.Module, below: bool = True) -> None:
    """New weights from the modules' own initialisation, where they have one and their tensors are real."""
    for each in module.modules() if below else (module,):
        again = getattr(each, "reset_parameters", None) or getattr(each, RESET_PARAMETERS, None)
        if callable(again) and not any(tensor.is_meta for tensor in _own_tensors(each).values()):
            again()


def resized(model: nn.Module, inputs: Sequence[Shape], factor: float, outputs: int) -> list[Resized] | None:
    """The changes that scale a model without weights, which has them afterwards; None where they do not fit together.

    The inputs of each layer are what arrives in a forward pass, its outputs are scaled; what the code of the model
    itself holds of channel counts, own parameters and then whole numbers, is scaled where that is needed.
    """
    scale = Scale(factor, outputs)
    training = True  # in which heads run that are for training alone
    before = _arriving(model, inputs, training)
    if before is None:
        training, before = False, _arriving(model, inputs, False)
    for attributes_too in (False, True):
        changes = _attempt(deepcopy(model), inputs, training, before, scale, attributes_too) if before else None
        if changes is not None:
            for change in changes:
                change.apply(model)
            return changes
    return None


def _attempt(
    model: nn.Module,
    inputs: Sequence[Shape],
    training: bool,
    before: dict[str, Shape],
    scale: Scale,
    attributes_too: bool,
) -> list[Resized] | None:
    places = {id(module): path for path, module in model.named_modules()}
    found: dict[str, list[Resized]] = {}
    widths = {size for module in model.modules() for size in _widths(module)}
    found[""] = []
    for module in model.modules():
        if _rule(module) is None:
            found[""] += _own(module, places[id(module)], widths, scale, attributes_too)
        elif places[id(module)] not in before:
            found[""] += _uncalled(module, places[id(module)], scale)
    for change in found[""]:
        change.apply(model)

    def arrive(module: nn.Module, args: tuple[Any, ...]) -> None:
        rule, path = _rule(module), places[id(module)]
        if rule is not None and path not in found and args and isinstance(args[0], Tensor):
            found[path] = rule(module, path, tuple(args[0].shape), before.get(path, ()), scale)
            for change in found[path]:
                change.apply(model)

    hooks = [module.register_forward_pre_hook(arrive) for module in model.modules()]
    try:
        through = runs(model, inputs, training)
        return [change for each in found.values() for change in each] if through else None
    finally:
        for hook in hooks:
            hook.remove()


def runs(model: nn.Module, inputs: Sequence[Shape], training: bool) -> bool:
    """Whether a model without weights runs in that mode; for training with twice the batch, of which norms need two."""
    shapes = [(2 * shape[0], *shape[1:]) if training and shape else shape for shape in inputs]
    try:
        with torch.no_grad():
            model.train(training)(*(torch.empty(shape, device="meta") for shape in shapes))
    except Exception:  # noqa: BLE001 - whatever a forward pass raises, it does not run
        return False
    return True


def _arriving(model: nn.Module, inputs: Sequence[Shape], training: bool) -> dict[str, Shape] | None:
    """The shape of the first tensor with which each module is called, by its path; None where the model fails."""
    shapes: dict[str, Shape] = {}
    places = {id(module): path for path, module in model.named_modules()}

    def arrive(module: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            shapes.setdefault(places[id(module)], tuple(args[0].shape))

    hooks = [module.register_forward_pre_hook(arrive) for module in model.modules()]
    try:
        return shapes if runs(model, inputs, training) else None
    finally:
        for hook in hooks:
            hook.remove()


# --------------------------------------------------------------------- rules

Rule = Callable[[Any, str, Shape, Shape, Scale], list[Resized]]


def _convolution(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    kernel = tuple(module.kernel_size)
    inputs, old = shape[-len(kernel) - 1], module.in_channels
    outputs, groups = scale(module.out_channels), 1
    if module.groups == old and module.out_channels % old == 0 and old > 1:
        outputs, groups = inputs * (module.out_channels // old), inputs
    elif module.groups > 1:
        groups = _divisor(math.gcd(inputs, outputs), inputs * module.groups / old)
    sides = (inputs, outputs // groups) if module.transposed else (outputs, inputs // groups)
    attributes = (("in_channels", inputs), ("out_channels", outputs), ("groups", groups))
    shapes = [("weight", (*sides, *kernel))] + ([("bias", (outputs,))] if module.bias is not None else [])
    return [Resized(path, attributes, tuple(shapes))]


def _linear(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    return [_linear_of(module, path, shape[-1], scale(module.out_features))]


def _linear_of(module: nn.Linear, path: str, inputs: int, outputs: int) -> Resized:
    shapes = [("weight", (outputs, inputs))] + ([("bias", (outputs,))] if module.bias is not None else [])
    return Resized(path, (("in_features", inputs), ("out_features", outputs)), tuple(shapes))


def _uncalled(module: Any, path: str, scale: Scale) -> list[Resized]:
    """A layer that did not run, or whose weight the code around it reads: its inputs are scaled like outputs."""
    if isinstance(module, nn.Linear):
        inputs, times = scale(module.in_features), module.out_features // module.in_features
        exact = times and module.out_features % module.in_features == 0  # as of queries, keys and values in one
        return [_linear_of(module, path, inputs, inputs * times if exact else scale(module.out_features))]
    if isinstance(module, ConvNd):
        return _convolution(module, path, (1, scale(module.in_channels), *module.kernel_size), (), scale)
    if isinstance(module, AnyNorm):
        return _batch_norm(module, path, (1, scale(module.num_features)), (), scale)
    return []


def _batch_norm(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    count = shape[1]
    names = ("weight", "bias", "running_mean", "running_var")
    shapes = tuple((name, (count,)) for name in names if getattr(module, name) is not None)
    return [Resized(path, (("num_features", count),), shapes)]


def _layer_norm(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    if len(module.normalized_shape) != 1 or len(before) != len(shape):
        return []
    own = module.normalized_shape[0]
    dims = [dim for dim in range(len(before) - 1, -1, -1) if before[dim] == own]
    if not dims:
        return []
    count = shape[dims[0]]
    names = [name for name in ("weight", "bias") if getattr(module, name, None) is not None]
    return [Resized(path, (("normalized_shape", (count,)),), tuple((name, (count,)) for name in names))]


def _group_norm(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    count = shape[1]
    shapes = tuple((name, (count,)) for name in ("weight", "bias") if getattr(module, name) is not None)
    return [Resized(path, (("num_channels", count), ("num_groups", _divisor(count, module.num_groups))), shapes)]


def _attention(module: Any, path: str, shape: Shape, before: Shape, scale: Scale) -> list[Resized]:
    if module.in_proj_weight is None or module.bias_k is not None:
        return []
    size = shape[-1]
    heads = _divisor(size, module.num_heads)
    attributes = tuple({
        "embed_dim": size, "kdim": size, "vdim": size, "num_heads": heads, "head_dim": size // heads,
    }.items())  # fmt: skip
    shapes: list[tuple[str, Shape]] = [("in_proj_weight", (3 * size, size))]
    if module.in_proj_bias is not None:
        shapes.append(("in_proj_bias", (3 * size,)))
    # its forward reads the weight of out_proj and never calls it; reset after it, since it initialises both
    return [_linear_of(module.out_proj, f"{path}.out_proj", size, size), Resized(path, attributes, tuple(shapes))]


_RULES: tuple[tuple[type, Rule], ...] = (
    (ConvNd, _convolution),
    (nn.Linear, _linear),
    (AnyNorm, _batch_norm),
    (nn.LayerNorm, _layer_norm),
    (nn.RMSNorm, _layer_norm),
    (nn.GroupNorm, _group_norm),
    (nn.MultiheadAttention, _attention),
)


def _rule(module: nn.Module) -> Rule | None:
    return next((rule for kind, rule in _RULES if isinstance(module, kind)), None)


def _divisor(number: int, wanted: float) -> int:
    """The divisor of `number` that is nearest to `wanted`, by ratio."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: abs(math.log(d / wanted)))


# ------------------------------------------------------- the models' own code


def _widths(module: nn.Module) -> list[int]:
    """The channel counts of a layer."""
    names = ("in_channels", "out_channels", "in_features", "out_features", "embed_dim")
    values = [module_state(module).get(name) for name in names] if _rule(module) is not None else []
    return [value for value in values if type(value) is int and value >= STEP]


def _own(module: nn.Module, path: str, widths: set[int], scale: Scale, attributes_too: bool) -> list[Resized]:
    shapes: list[tuple[str, Shape]] = []
    for name, tensor in _own_tensors(module).items():
        new = tuple(scale(size) if size in widths else size for size in tensor.shape)
        if new != tuple(tensor.shape) and name in parameters_of(module):
            shapes.append((name, new))
    attributes: list[tuple[str, Any]] = []
    if attributes_too and not type(module).__module__.startswith("torch.nn."):
        state = module_state(module)
        attributes = [(n, scale(v)) for n, v in state.items() if type(v) is int and v in widths and scale(v) != v]
    return [Resized(path, tuple(attributes), tuple(shapes))] if shapes or attributes else []


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    every = {**parameters_of(module), **buffers_of(module)}
    return {name: tensor for name, tensor in every.items() if tensor is not None}


def _put(module: nn.Module, name: str, shape: Shape) -> None:
    """A tensor of another shape under that name; it repeats the values of the one before."""
    old = getattr(module, name)
    if tuple(old.shape) == shape:
        return
    new = old.detach()
    if new.is_meta or new.dim() != len(shape):
        new = torch.empty(shape, dtype=old.dtype, device=old.device)
    else:
        for dim, size in enumerate(shape):
            new = new.index_select(dim, torch.arange(size, device=new.device) % new.shape[dim])
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new.clone(), requires_grad=old.requires_grad)
    setattr(module, name, new)
