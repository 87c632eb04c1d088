"""A cut model leaves torch as an uncut one does: as ONNX, which another engine runs, and as TorchScript.

That `torch.export` and `torch.compile` take it as well is asserted in test_life_after_cut.py, on the same models.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from pruning.edits_of_cut import state_of
from pruning.model_outputs import assert_close, floats, outputs
from pruning.named_models import NAMES, Call, named_model

Run = Callable[..., list[torch.Tensor]]


# ------------------------------------------------------------------ formats


class Tensors(nn.Module):
    """A model that takes its keywords in order and gives a tuple of tensors: what TorchScript can say."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model, self.count, self.names = model, len(call[0]), tuple(call[1])

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.names, values[self.count :], strict=True))
        return tuple(floats(self.model(*values[: self.count], **named)))


def as_onnx(model: nn.Module, call: Call) -> Run:
    """The model as a file of ONNX, run by onnxruntime."""
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    file = io.BytesIO()
    with torch.no_grad():
        program = torch.onnx.export(model, call[0], kwargs=call[1], dynamo=True, verbose=False)
    assert program is not None
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])

    def run(*args: torch.Tensor, **kwargs: torch.Tensor) -> list[torch.Tensor]:
        values = [value.numpy() for value in (*args, *kwargs.values())]
        names = [each.name for each in session.get_inputs()]
        assert len(names) == len(values)
        return [torch.from_numpy(np.asarray(each)) for each in session.run(None, dict(zip(names, values, strict=True)))]

    return run


def as_torchscript(model: nn.Module, call: Call) -> Run:
    """The model traced to TorchScript, as another process would load it."""
    file = io.BytesIO()
    with torch.no_grad():
        traced = torch.jit.trace(Tensors(model, call), (*call[0], *call[1].values()), check_trace=False)
    torch.jit.save(traced, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    return lambda *args, **kwargs: loaded(*args, *kwargs.values())


FORMATS: dict[str, Callable[[nn.Module, Call], Run]] = {"onnx": as_onnx, "torchscript": as_torchscript}
# what torch refuses, cut or not: (format, model) → the error's class
REFUSED = {
    ("onnx", "transformers/mixtral"): "ConversionError",
    ("onnx", "transformers/longformer"): "TorchExportError",
}


def exported(form: str, model: nn.Module, call: Call) -> Run | str:
    """What runs the exported model, or the name of what the exporter raised."""
    try:
        return FORMATS[form](model, call)
    except Exception as error:  # noqa: BLE001 - whatever it is, a model that was not cut has to raise it too
        return type(error).__name__


@pytest.fixture(autouse=True)
def seeds() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


# what CI has the time for; the others are nightly
QUICK = {
    "onnx": {"weight_norm", "grouped_convolution", "torchvision/resnet18", "transformers/llama"},
    "torchscript": {"lstm", "multihead_attention", "tied_embedding", "u_net", "torchvision/resnet18",
                    "transformers/llama", "transformers/clip"},
}  # fmt: skip


def exports() -> list[Any]:
    return [
        pytest.param(form, name, marks=() if name in QUICK[form] else pytest.mark.nightly)
        for form in FORMATS
        for name in NAMES
    ]


@pytest.mark.parametrize(("form", "name"), exports())
@pytest.mark.slow
def test_a_cut_model_is_exported(form: str, name: str) -> None:
    model, call = named_model(name)
    outputs(model, call)  # libraries hang hooks of their own into a model when it first runs
    whole = state_of(model)
    receipt = mk.plan(mk.trace(model, *call), ratio=0.5).cut(model)
    before = state_of(model)
    found = exported(form, model, call)
    if (form, name) in REFUSED:
        assert found == exported(form, named_model(name)[0], call) == REFUSED[form, name]
    else:
        assert not isinstance(found, str), found
        assert_close(outputs(found, call), outputs(model, call))
    assert state_of(model) == before
    receipt.undo()
    assert state_of(model) == whole


# ------------------------------------------------------------ other batches


def longer(call: Call) -> Call:
    """The same inputs with a batch of three."""
    args, kwargs = ((torch.cat([x, x[:1]]) for x in values) for values in (call[0], call[1].values()))
    return tuple(args), dict(zip(call[1], kwargs, strict=True))


def any_batch(call: Call) -> tuple[Any, ...] | dict[str, Any]:
    """What says to the exporters that the first dimension of each input is free."""
    free = {0: torch.export.Dim.DYNAMIC}
    return tuple(free for _ in call[0]) if call[0] else dict.fromkeys(call[1], free)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grouped_convolution", {"ratio": 0.5}),
        ("torchvision/resnet18", {"target": {"flops": 0.4}}),
        ("transformers/llama", {"ratio": 0.5, "layers": "uniform"}),
        ("transformers/bert", {"ratio": 0.5, "layers": "uniform"}),
    ],
)
@pytest.mark.slow
def test_a_cut_model_is_exported_for_batches_of_any_size(name: str, options: dict[str, Any]) -> None:
    """No size of the inputs that the plan was made for has stayed in the model."""
    model, call = named_model(name)
    mk.plan(mk.trace(model, *call), **options).cut(model)
    with torch.no_grad():
        program = torch.export.export(model, *call, dynamic_shapes=any_batch(call))
    for batch in (call, longer(call)):
        assert_close(outputs(program.module(), batch), outputs(model, batch))
