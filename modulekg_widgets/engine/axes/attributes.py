"""Attributes of modules that follow from the sizes of tensors, as `out_channels`: a table by class, open to users."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from torch import nn

from modulekg_widgets.engine.axes.algebra import Term, atoms
from modulekg_widgets.engine.axes.expression import leading, remaining
from modulekg_widgets.engine.errors import (
    CutError,
    DuplicateNameError,
    ModuleKGError,
    NotAModuleError,
    UnknownNameError,
    nearest,
    shown,
)
from modulekg_widgets.engine.registry import check_function, is_new_version
from modulekg_widgets.engine.torch_runtime.private import AnyNorm, ConvNd, InstanceNorm, dims_without_batch, modules_of
from modulekg_widgets.engine.torch_runtime.state import module_state
from modulekg_widgets.engine.tracing.dataflow import RESULT, DataNode, ModuleNode

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.axis import Axes

Counts = Mapping[Term, int]  # how many indices stay of an axis, where some go


class Sizes:
    """The sizes of a module's tensors once a cut is made."""

    def __init__(self, axes: Axes, counts: Counts, node: ModuleNode) -> None:
        self._axes = axes
        self._counts = counts
        self._node = node
        self.module = node.module

    @cached_property
    def _tensors(self) -> dict[str, DataNode]:
        """The module's own tensors; one that is computed from others goes by the name that forward reads it by."""
        found = dict(self._node.params)
        prefix = f"{self._node.path}." if self._node.path else ""
        wrapped = modules_of(self.module).get("parametrizations")
        for name in () if wrapped is None else modules_of(wrapped):
            for original in ("original", "original1", "original0"):  # of weight_norm's two, the second has the shape
                node = self._axes.graph.state.get(f"{prefix}parametrizations.{name}.{original}")
                if node is not None:
                    found.setdefault(name, node)
        for name, node in self._node.params.items():
            for suffix in ("_orig", "_v"):  # as torch.nn.utils.prune and the old weight_norm call what they wrap
                if name.endswith(suffix):
                    found.setdefault(name.removesuffix(suffix), node)
        return found

    def parameter(self, name: str, dim: int) -> int:
        """The size of a dimension of one of the module's own parameters or buffers.

        Raises `UnknownNameError` for a tensor that it does not have, `CutError` for a dimension.
        """
        return remaining(self._term(self._tensor(name), dim), self._counts)

    def has(self, name: str) -> bool:
        """Whether the module has a parameter or buffer of that name."""
        return name in self._tensors

    def input(self, dim: int) -> int | None:
        """The size of a dimension of the first tensor that the module was called with; None when it was not called."""
        inputs = self._node.inputs
        return remaining(self._term(inputs[0], dim), self._counts) if inputs else None

    def groups(self, name: str, dim: int, count: int) -> int:
        """How many of `count` groups stay that a dimension of a parameter falls into, the outermost in it."""
        return self._groups(self._term(self._tensor(name), dim), count)

    def input_groups(self, dim: int, count: int) -> int | None:
        """The same of the first tensor that the module was called with; None when it was not called."""
        inputs = self._node.inputs
        return self._groups(self._term(inputs[0], dim), count) if inputs else None

    def of_role(self, role: str, name: str, dim: int) -> int | None:
        """How many indices stay of the axis with a role in a dimension of a parameter."""
        for atom in atoms(self._term(self._tensor(name), dim)):
            if self._axes.inference.roles.get(atom) == role:
                return self._counts.get(atom, atom.size)
        return None

    def _groups(self, term: Term, count: int) -> int:
        outer = leading(term, count)
        return count if outer is None else remaining(outer, self._counts)

    def _tensor(self, name: str) -> DataNode:
        if name not in self._tensors:
            owner = shown(self._node.path or type(self.module).__name__)
            raise UnknownNameError(f"{owner} has no tensor {shown(str(name))!r}: {nearest(str(name), self._tensors)}")
        return self._tensors[name]

    def _term(self, node: DataNode, dim: int) -> Term:
        dims = self._axes.inference.dims(node)
        if not -len(dims) <= dim < len(dims):
            raise CutError(f"{shown(node.name)} has the shape {list(node.shape)}: there is no dimension {dim}")
        return dims[dim]


Adapter = Callable[[Sizes], Mapping[str, Any]]
_adapters: dict[type, Adapter] = {}
_homes: dict[type, str | None] = {}  # the module that registered each


def adapter(*classes: type) -> Callable[[Adapter], Adapter]:
    """Register, for module classes and their subclasses, a function from `Sizes` to the attributes' values.

    The function is asked when a cut changes a tensor of such a module: `@mk.adapter(MyConv)` over
    `def sizes_of(sizes): return {"out_channels": sizes.parameter("weight", 0)}`. The values are whole numbers, or
    tuples or lists of them; None, and an attribute that the module does not have, are passed over. The nearest class
    in a module's ancestry decides. A notebook's cell may run again. Raises `NotAModuleError` and `DuplicateNameError`;
    a plan raises `CutError` when the function fails, or does not give what the module has before the cut.
    """
    home = sys._getframe(1).f_globals.get("__name__")
    if not classes:
        raise NotAModuleError("adapters are for subclasses of torch.nn.Module: name them, as @mk.adapter(MyConv)")
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            raise NotAModuleError(f"adapters are for subclasses of torch.nn.Module, got {shown(str(cls))}")
    _refuse_taken(classes, home)

    def decorate(sizes_of: Adapter) -> Adapter:
        check_function(sizes_of, "the adapter")
        _refuse_taken(classes, home)
        _adapters.update(dict.fromkeys(classes, sizes_of))
        _homes.update(dict.fromkeys(classes, home))
        return sizes_of

    return decorate


def _refuse_taken(classes: Iterable[type], home: str | None) -> None:
    for cls in classes:
        if cls in _adapters and not is_new_version(_homes.get(cls), home):
            raise DuplicateNameError(f"{shown(cls.__name__)} has an adapter already: make a subclass")


def adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter of the nearest class in the module's ancestry."""
    return next((_adapters[cls] for cls in type(module).__mro__ if cls in _adapters), None)


def changed_attributes(axes: Axes, counts: Counts) -> dict[str, tuple[Any, Any]]:
    """The attributes that a cut changes, as {"conv1.out_channels": (before, after)}."""
    changed: dict[str, tuple[Any, Any]] = {}
    for path, node in axes.graph.modules.items():
        sizes_of = adapter_of(node.module)
        touched = {*node.params.values(), *(n for n in node.inputs if n.kind == RESULT)}
        if sizes_of is None or not any(_touches(axes, each, counts) for each in touched):
            continue
        state = module_state(node.module)
        found = _values(sizes_of, Sizes(axes, counts, node), state)
        now = _values(sizes_of, Sizes(axes, {}, node), state) if found else {}
        for name, after in found.items():
            if now.get(name) != state[name]:
                if sizes_of.__module__ == __name__:
                    continue  # a subclass of a standard module that means something else by the name
                wrong = f"gives {name}={now.get(name)} before the cut, where it is {state[name]!r}"
                raise _failed(sizes_of, node, wrong)
            if after != state[name]:
                changed[f"{path}.{name}" if path else name] = (state[name], after)
    return changed


def _values(sizes_of: Adapter, sizes: Sizes, state: Mapping[str, Any]) -> dict[str, Any]:
    """What an adapter says of the attributes that there are, each of the type that it has; raises `CutError`."""
    try:
        found = dict(sizes_of(sizes))
        return {
            name: _as_whole(value, type(state[name]))
            for name, value in found.items()
            if value is not None and state.get(name) is not None
        }
    except ModuleKGError as error:
        raise _failed(sizes_of, sizes._node, f"fails: {error}") from error
    except Exception as error:  # whatever a user's function raises
        raise _failed(sizes_of, sizes._node, f"fails: {type(error).__name__}: {shown(str(error))}") from error


def _as_whole(value: Any, kind: type) -> Any:
    if isinstance(value, tuple | list):
        parts = [operator.index(part) for part in value]
        return parts if issubclass(kind, list) else tuple(parts)
    return operator.index(value)


def _failed(sizes_of: Adapter, node: ModuleNode, what: str) -> CutError:
    owner = f"{shown(node.path or 'the model')}, a {shown(type(node.module).__name__)}"
    name = shown(str(getattr(sizes_of, "__name__", type(sizes_of).__name__)))
    return CutError(f"the adapter for {owner}, {what}. Correct {name}, which @mk.adapter registered")


def _touches(axes: Axes, node: DataNode, counts: Counts) -> bool:
    return any(atom in counts for term in axes.inference.dims(node) for atom in atoms(term))


# ------------------------------------------------------- the standard modules


def _with(tensor: str, *classes: type) -> Callable[[Adapter], Adapter]:
    """An adapter for instances that have a tensor: a subclass may have put others in its place."""

    def decorate(sizes_of: Adapter) -> Adapter:
        @wraps(sizes_of)
        def where_there(sizes: Sizes) -> Mapping[str, Any]:
            return sizes_of(sizes) if sizes.has(tensor) else {}

        return adapter(*classes)(where_there)

    return decorate


@_with("weight", ConvNd)
def convolution(sizes: Sizes) -> dict[str, Any]:
    """The weight has (out, in/groups), or (in, out/groups) when it is transposed."""
    first, second = sizes.parameter("weight", 0), sizes.parameter("weight", 1)
    groups = sizes.groups("weight", 0, sizes.module.groups)  # type: ignore[arg-type]
    if getattr(sizes.module, "transposed", False):
        return {"in_channels": first, "out_channels": second * groups, "groups": groups}
    return {"in_channels": second * groups, "out_channels": first, "groups": groups}


@_with("weight", nn.Linear)
def linear(sizes: Sizes) -> dict[str, Any]:
    """The weight has (out, in)."""
    return {"out_features": sizes.parameter("weight", 0), "in_features": sizes.parameter("weight", 1)}


@_with("weight", nn.Bilinear)
def bilinear(sizes: Sizes) -> dict[str, Any]:
    """The weight has (out, in1, in2)."""
    names = ("out_features", "in1_features", "in2_features")
    return {name: sizes.parameter("weight", at) for at, name in enumerate(names)}


@adapter(AnyNorm)
def batch_norm(sizes: Sizes) -> dict[str, Any]:
    """Every tensor has one entry per channel."""
    named = next((name for name in ("weight", "running_mean") if sizes.has(name)), None)
    return {"num_features": sizes.parameter(named, 0) if named else sizes.input(1)}


@adapter(InstanceNorm)
def instance_norm(sizes: Sizes) -> dict[str, Any]:
    """As a batch normalisation, but there may be no batch before the channels."""
    if sizes.has("weight") or sizes.has("running_mean"):
        return {**batch_norm(sizes)}
    return {"num_features": sizes.input(-dims_without_batch(sizes.module)())}  # type: ignore[operator]


@adapter(nn.LayerNorm, nn.RMSNorm)
def layer_norm(sizes: Sizes) -> dict[str, Any]:
    """The normalised shape is that of the gain, or of the last dimensions."""
    count = len(sizes.module.normalized_shape)  # type: ignore[arg-type]
    if sizes.has("weight"):
        return {"normalized_shape": tuple(sizes.parameter("weight", at) for at in range(count))}
    found = [sizes.input(at - count) for at in range(count)]
    return {"normalized_shape": None if None in found else tuple(found)}


@adapter(nn.GroupNorm)
def group_norm(sizes: Sizes) -> dict[str, Any]:
    """Channels in groups of equal size."""
    count: Any = sizes.module.num_groups
    if sizes.has("weight"):
        return {"num_channels": sizes.parameter("weight", 0), "num_groups": sizes.groups("weight", 0, count)}
    return {"num_channels": sizes.input(1), "num_groups": sizes.input_groups(1, count)}


@_with("weight", nn.Embedding, nn.EmbeddingBag)
def embedding(sizes: Sizes) -> dict[str, Any]:
    """The table has (vocabulary, width)."""
    return {"num_embeddings": sizes.parameter("weight", 0), "embedding_dim": sizes.parameter("weight", 1)}


@_with("weight", nn.PReLU)
def prelu(sizes: Sizes) -> dict[str, Any]:
    """A slope per channel, or one."""
    return {"num_parameters": sizes.parameter("weight", 0)}


@_with("weight_hh_l0", nn.RNNBase)
def recurrent(sizes: Sizes) -> dict[str, Any]:
    """w_ih has (gates·hidden, input), w_hh (gates·hidden, hidden or projection)."""
    gates = {"LSTM": 4, "GRU": 3}.get(str(sizes.module.mode), 1)
    projected = sizes.parameter("weight_hr_l0", 0) if sizes.has("weight_hr_l0") else 0
    return {
        "input_size": sizes.parameter("weight_ih_l0", 1),
        "hidden_size": sizes.parameter("weight_hh_l0", 0) // gates,
        "proj_size": projected,
    }


@_with("weight_hh", nn.RNNCellBase)
def recurrent_cell(sizes: Sizes) -> dict[str, Any]:
    """As a layer of one step."""
    return {"input_size": sizes.parameter("weight_ih", 1), "hidden_size": sizes.parameter("weight_hh", 1)}


@adapter(nn.MultiheadAttention)
def multihead_attention(sizes: Sizes) -> dict[str, Any]:
    """in_proj has (3·heads·head_dim, embed) in one tensor, or in three where kdim or vdim is given."""
    if sizes.has("in_proj_weight"):
        query, parts = "in_proj_weight", 3
        found = {"embed_dim": sizes.parameter(query, 1)}
        found |= {"kdim": found["embed_dim"], "vdim": found["embed_dim"]}
    elif sizes.has("q_proj_weight"):
        query, parts = "q_proj_weight", 1
        found = {"embed_dim": sizes.parameter(query, 1), "kdim": sizes.parameter("k_proj_weight", 1),
                 "vdim": sizes.parameter("v_proj_weight", 1)}  # fmt: skip
    else:
        return {}
    heads: Any = sizes.of_role("heads", query, 0) or sizes.module.num_heads  # one head is no axis
    return found | {"num_heads": heads, "head_dim": sizes.parameter(query, 0) // parts // heads}
