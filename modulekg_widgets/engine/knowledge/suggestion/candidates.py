"""Candidates of suggestion and generation in a ranking, and forward runs of models on meta tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Generic, Protocol, TypeVar, overload

import pandas as pd
import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, PredictionError, printable
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, Occurrence
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments
from modulekg_widgets.engine.knowledge.prediction.data.datasets import image_size, is_imagenet, whole_number
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.torch_runtime.private import modules_of
from modulekg_widgets.engine.torch_runtime.pytree import tensors
from modulekg_widgets.engine.tracing.dataflow import Dataflow
from modulekg_widgets.engine.tracing.trace import trace_dataflow

# -------------------- Replacement of the last layer of a model for another number of classes


HEAD_LAYERS = (nn.Linear, nn.Conv2d, nn.Conv1d)
RESHAPING_OPERATORS = ("view", "_unsafe_view", "reshape", "flatten", "squeeze", "clone", "alias")


def replace_head(model: nn.Module, call: CallArguments, classes: int) -> nn.Module:
    """Returns the model with a new last layer for `classes` classes.

    Raises `PredictionError` where the output does not come of one layer of its own.
    """
    args, kwargs = call
    try:
        path = find_head(trace_dataflow(model, args, dict(kwargs), training=False))
    except ModuleKGError as error:
        raise PredictionError(f"its head cannot be found, for it does not run: {printable(str(error), 200)}") from error
    if path is None:
        raise PredictionError(
            f"the output of {printable(type(model).__name__)} comes from no layer that could be replaced: "
            "pass a "
            "builder that takes num_classes"
        )
    parent, _, name = path.rpartition(".")
    layer = model.get_submodule(path)
    if getattr(layer, "out_features", getattr(layer, "out_channels", None)) == classes:
        return model
    modules_of(model.get_submodule(parent))[name] = _resized_layer(layer, classes).train(layer.training)
    return model


def find_head(graph: Dataflow) -> str | None:
    """Returns the path of the layer that computes the first output and shares no weight; None if there is none."""
    outputs = graph.fixed_outputs
    producer = outputs[0].producer if outputs else None
    while (
        producer is not None and OperatorCall(producer).name in RESHAPING_OPERATORS
    ):  # of a layer on tokens, or around it
        producer = producer.inputs[0].producer
    node = graph.modules.get(producer.module) if producer is not None else None
    if node is None or not isinstance(node.module, HEAD_LAYERS) or len(node.calls) != 1:
        return None
    own = [tensor for tensor in graph.state.values() if any(name.startswith(f"{node.path}.") for name in tensor.names)]
    return None if not node.path or any(len(tensor.names) > 1 for tensor in own) else node.path


def _resized_layer(layer: nn.Module, classes: int) -> nn.Module:
    has_bias, place = layer.bias is not None, {"device": layer.weight.device, "dtype": layer.weight.dtype}
    if isinstance(layer, nn.Linear):
        return nn.Linear(layer.in_features, classes, has_bias, **place)  # type: ignore[arg-type]
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    settings: dict[str, object] = {
        name: getattr(layer, name) for name in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    }
    return type(layer)(layer.in_channels, classes, bias=has_bias, **settings, **place)


# ----------------------------------------


Builder = Callable[..., nn.Module]
Shape = tuple[int, ...]
DEFAULT_IMAGE_SIZE = 224  # pixels of an image where nothing else is known
MAX_ROW_WIDTHS = 8  # widths of rows that are tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """A known model, or a block of one, with its predicted value in percent; `flops` count a multiply-add as 2.

    `inputs` are the shapes of the tensors with which it was seen to run, on meta tensors.
    """

    name: str
    kind: str  # "model" or "block"
    value: float
    std: float
    parameters: int
    flops: int | None
    why: str
    path: str = ""  # of a block, in the model `holder`
    holder: str = ""
    inputs: tuple[Shape, ...] = ()
    classes: int | None = None
    builder: Builder | None = field(default=None, repr=False)
    latency: float | None = None  # ms, where a device is asked for
    latency_std: float | None = None

    @property
    def buildable(self) -> bool:
        return self.builder is not None

    def build(self, num_classes: int | None = None) -> nn.Module:
        """Builds the module, with the number of classes of the data set or `num_classes`.

        `num_classes` overrides that number. Raises `PredictionError` when nobody told how to build it.
        """
        if self.builder is None:
            raise PredictionError(
                f"nothing is known that builds {printable(self.holder or self.name)!r}: pass builders={{name: "
                "function}}"
            )
        if self.kind == "block":
            return self.builder().get_submodule(self.path)
        wanted = self.classes if num_classes is None else num_classes
        return build_model(self.builder, wanted, meta_call(self.inputs), required=num_classes is not None)

    def row(self) -> dict[str, object]:
        return {
            "name": self.name, "kind": self.kind, "value": self.value, "std": self.std,
            "parameters": self.parameters, "flops": self.flops,
            **({} if self.latency is None else {"latency": self.latency, "latency_std": self.latency_std}),
            "buildable": self.buildable, "why": self.why,
        }  # fmt: skip


def build_model(builder: Builder, num_classes: int | None, call: CallArguments, required: bool = False) -> nn.Module:
    """Builds a model with that number of classes, by its builder or by replacing its head.

    One without a head that could be exchanged stays as it is; with `required` that is a `PredictionError`.
    """
    if num_classes and accepts_num_classes(builder):
        return builder(num_classes=num_classes)
    model = builder()
    if not num_classes:
        return model
    calls = builder_calls(builder, model)
    try:
        return replace_head(model, calls[0] if calls else call, num_classes)
    except PredictionError:
        if required:
            raise
        return model


def accepts_num_classes(builder: Builder) -> bool:
    try:
        parameters = inspect.signature(builder).parameters
    except (TypeError, ValueError):
        return False
    return any(p.name == "num_classes" or p.kind is p.VAR_KEYWORD for p in parameters.values())


# --------------------------------------------------------------------- table


class TableRow(Protocol):
    """Protocol of what is shown as a row of a table."""

    def row(self) -> dict[str, object]:
        """Returns the cells by column."""
        ...


Row = TypeVar("Row", bound=TableRow)


class Ranking(Sequence[Row], Generic[Row]):
    """Candidates, best first, shown as a table; `reason` says why there are none. Where there are none, `reason` says
    why.

    Where there are some, it is `note`: what else could not be told.
    """

    def __init__(self, rows: Sequence[Row], title: str, reason: str = "", note: str = "") -> None:
        self._rows = tuple(rows)
        self.title = title
        self.reason = note if self._rows else reason

    def frame(self) -> pd.DataFrame:
        """One row for each candidate."""
        return pd.DataFrame([row.row() for row in self._rows])

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        if not self._rows:
            return f"<{self.title}: none{self.reason and f', {self.reason}'}>"
        return f"{self.title}\n{self._readable().to_string(index=False)}{self.reason and f'{chr(10)}{self.reason}'}"

    def _repr_html_(self) -> str:
        from html import escape

        if not self._rows:
            return f"<p>{escape(repr(self)[1:-1])}</p>"
        note = f"<p>{escape(self.reason)}</p>" if self.reason else ""
        return f"<p>{escape(self.title)}</p>{self._readable().to_html(index=False, escape=True)}{note}"

    def _readable(self) -> pd.DataFrame:
        frame = self.frame()
        if frame.empty:
            return frame
        for column in frame.columns:
            if column in ("parameters", "flops"):
                frame[column] = [count_text(value) for value in frame[column]]
            elif column in ("latency", "latency_std"):
                frame[column] = ["?" if pd.isna(value) else f"{value:.3g}" for value in frame[column]]
            elif frame[column].dtype == float:
                frame[column] = ["?" if pd.isna(value) else f"{value:.1f}" for value in frame[column]]
            elif frame[column].dtype != bool:
                frame[column] = [printable(str(value), 100) for value in frame[column]]
        return frame


def count_text(value: float | None) -> str:
    """Returns a count as 25.6 M, or a question mark."""
    if value is None or pd.isna(value):
        return "?"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return str(int(value))


# ------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A successful forward on meta tensors, with FLOPs and shapes by module."""

    call: CallArguments
    flops: int
    input_shapes: dict[str, tuple[Shape, ...]]  # module -> the shapes that it was called with, if it was called once
    output_shapes: dict[str, tuple[Shape, ...]]  # the same for what it gave

    @property
    def inputs(self) -> tuple[Shape, ...]:
        """The shapes of its tensors."""
        return tuple(tuple(tensor.shape) for _, tensor in tensors(self.call))

    @property
    def flops_at_default_size(self) -> int:
        """FLOPs on an image of the default size, which published costs refer to."""
        if len(self.inputs) == 1 and len(self.inputs[0]) == 4 and self.inputs[0][2] * self.inputs[0][3]:
            return round(self.flops * DEFAULT_IMAGE_SIZE**2 / (self.inputs[0][2] * self.inputs[0][3]))
        return self.flops


def meta_call(shapes: Sequence[Shape]) -> CallArguments:
    """A call with tensors of these shapes, without data."""
    return tuple(torch.empty(shape, device="meta") for shape in shapes), {}


def first_working_call(model: nn.Module, calls: Sequence[CallArguments]) -> ForwardPass | None:
    """Returns the first call on which the model runs in eval mode; None if none does."""
    for args, kwargs in calls:
        try:
            graph = trace_dataflow(model, args, dict(kwargs), training=False)
            flops = int(graph.flops())
        except (ModuleKGError, RuntimeError, ValueError):
            continue
        once = {path: node.calls[0] for path, node in graph.modules.items() if len(node.calls) == 1}
        places = {path: tuple(value.shape for value in call.inputs) for path, call in once.items()}
        outputs = {path: tuple(value.shape for value in call.outputs) for path, call in once.items()}
        return ForwardPass((args, kwargs), flops, places, outputs)
    return None


def builder_calls(builder: Builder, model: nn.Module) -> list[CallArguments]:
    """Returns the example call of a builder, if it has one."""
    example: Callable[[nn.Module], CallArguments | None] | None = getattr(builder, "example", None)
    call = example(model) if callable(example) else None
    return [] if call is None else [call]


def image_calls(record: ModelRecord, size: tuple[int, int] | None = None) -> list[CallArguments]:
    """Returns calls to try: an image of the data set's size, then of the trace, then of usual sizes."""
    seen = [record.model.inputs] if record.model.inputs else []
    front = (1, input_channels(record)) if not seen or len(seen[0]) != 1 or len(seen[0][0]) != 4 else seen[0][0][:2]
    asked = [((*front, *size),)] if size is not None else []
    images = [((*front, side, side),) for side in (DEFAULT_IMAGE_SIZE, 256, 299, 32)]
    return [meta_call(shapes) for shapes in dict.fromkeys([*asked, *map(tuple, seen), *images])]


def row_calls(record: ModelRecord) -> list[CallArguments]:
    """Returns calls with one row of numbers, as wide as one of the first linear layers takes."""
    layers = (record.nodes[fingerprint].hyperparameters.get("in_features") for fingerprint in first_paths(record))
    widths = dict.fromkeys(width for width in layers if type(width) is int)
    return [meta_call([(1, width)]) for width in list(widths)[:MAX_ROW_WIDTHS]]


def input_channels(record: ModelRecord) -> int:
    """The input channels of the first convolution in the order of modules, 3 where there is none."""
    for fingerprint in first_paths(record):
        channels = record.nodes[fingerprint].hyperparameters.get("in_channels")
        if type(channels) is int:
            return channels
    return 3


def first_paths(record: ModelRecord) -> dict[str, str]:
    """Returns for each structure of the model the first dotted path in a walk."""
    found: dict[str, str] = {}
    waiting = [(record.model.root, "")]
    while waiting:
        fingerprint, path = waiting.pop()
        if fingerprint in found:
            continue
        found[fingerprint] = path
        slots = record.nodes[fingerprint].slots
        prefix = f"{path}." if path else ""
        waiting.extend((child, prefix + name) for name, child in reversed(slots) if child is not None)
    return found


def occurrences_in_levels(record: ModelRecord, levels: Sequence[str]) -> list[Occurrence]:
    return [occurrence for occurrence in record.model.occurrences if occurrence[1] in levels]


# -------------------- Requirements of a search: data set and limits of size, cost and latency


@dataclass(frozen=True, slots=True)
class Requirements:
    """Data set of a search, and the limits of its budget."""

    dataset: DataSetNode
    max_params: float | None
    max_flops: float | None
    max_latency: float | None = None  # ms

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) > 0:
                raise PredictionError(f"{name} is {printable(repr(limit))}: give a number above zero")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set."""
        every = {"max_params": self.max_params, "max_flops": self.max_flops, "max_latency": self.max_latency}
        return {name: limit for name, limit in every.items() if limit is not None}

    def allows(self, parameters: int, flops: float | None) -> bool:
        """True if the budget allows these sizes; an unknown cost is allowed."""
        within = self.max_params is None or parameters <= self.max_params
        return within and (self.max_flops is None or flops is None or flops <= self.max_flops)

    @property
    def classes(self) -> int | None:
        return whole_number(self.dataset, "classes")

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of its images, where costs are not those of ImageNet-1K."""
        return None if is_imagenet(self.dataset.name) else image_size(self.dataset)

    @property
    def title(self) -> str:
        limits = [
            f"at most {count_text(limit)} {unit}"
            for limit, unit in ((self.max_params, "parameters"), (self.max_flops, "FLOPs"))
            if limit is not None
        ] + ([] if self.max_latency is None else [f"at most {self.max_latency:g} ms"])
        return ", ".join([f"for {printable(self.dataset.name)}", *limits])
