"""Layers with torch.ao's fake quantizers: weights per channel and symmetric, activations per tensor and affine.

Fake quantisation rounds to the integers of a fixed range and back; gradients pass where nothing was clipped (Jacob et
al. 2018, section 3, arXiv 1712.05877).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.ao.nn import intrinsic, qat
from torch.ao.nn.intrinsic import qat as intrinsic_qat
from torch.ao.quantization import (
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    QConfig,
)

from modulekg_widgets.engine.adapters import CONVOLUTIONS
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import clone_module, torch_class
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, NUMERICAL_PATH, buffers_of, parameters_of

QUANTIZED = (*CONVOLUTIONS, nn.Linear)
_ALONE: dict[type, Any] = {nn.Conv1d: qat.Conv1d, nn.Conv2d: qat.Conv2d, nn.Conv3d: qat.Conv3d, nn.Linear: qat.Linear}
_WITH_NORM: dict[type, tuple[type[nn.Module], Any, Any]] = {
    nn.Conv1d: (nn.BatchNorm1d, intrinsic.ConvBn1d, intrinsic_qat.ConvBn1d),
    nn.Conv2d: (nn.BatchNorm2d, intrinsic.ConvBn2d, intrinsic_qat.ConvBn2d),
    nn.Conv3d: (nn.BatchNorm3d, intrinsic.ConvBn3d, intrinsic_qat.ConvBn3d),
}


class Quantizer(FusedMovingAvgObsFakeQuantize):
    """torch.ao's fake quantizer, also for tensors that are not float32, and of any size.

    torch's fused operator gives no scale below 6.1e-5, which is coarser than 8 bits for weights under 0.008. So here it
    moves the ranges alone, and the scale follows from these as there, without that floor.
    """

    def forward(self, X: torch.Tensor) -> torch.Tensor:  # noqa: N803 - the name in torch
        observer = self.activation_post_process
        values = torch.fused_moving_avg_obs_fake_quant(
            X.float(), self.observer_enabled, torch.zeros_like(self.fake_quant_enabled), observer.min_val,
            observer.max_val, self.scale, self.zero_point, observer.averaging_constant, observer.quant_min,
            observer.quant_max, self.ch_axis, self.is_per_channel, self.is_symmetric_quant,
        )  # fmt: skip
        scale, zero_point = self._scale_of_range()
        if self.training:
            self._store(scale, zero_point)
        bounds = observer.quant_min, observer.quant_max
        if self.is_per_channel:
            rounded = torch.fake_quantize_per_channel_affine(values, scale, zero_point, self.ch_axis, *bounds)
        else:
            rounded = torch.fake_quantize_per_tensor_affine(values, scale, zero_point, *bounds)
        return torch.where(self.fake_quant_enabled.bool(), rounded, values).to(X.dtype)

    def _scale_of_range(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and zero point of the range that was seen; 0 is one of the integers."""
        observer = self.activation_post_process
        low, high = observer.min_val.clamp(max=0), observer.max_val.clamp(min=0)
        steps = observer.quant_max - observer.quant_min
        least = torch.finfo(torch.float32).tiny  # of a range that is 0 alone
        if self.is_symmetric_quant:
            scale = torch.maximum(low / observer.quant_min, high / observer.quant_max).clamp(min=least)
            return scale, torch.zeros_like(scale, dtype=torch.int32)
        scale = ((high - low) / steps).clamp(min=least)
        zero_point = observer.quant_min - torch.round(low / scale)
        return scale.reshape(1), zero_point.clamp(observer.quant_min, observer.quant_max).to(torch.int32).reshape(1)

    def _store(self, scale: torch.Tensor, zero_point: torch.Tensor) -> None:
        with torch.no_grad():
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)

    def observe(self, values: torch.Tensor, seen: int) -> None:
        """Take the range of `values` into the mean over the `seen` ranges before it."""
        observer = self.activation_post_process
        before, observer.averaging_constant = observer.averaging_constant, 1 / (seen + 1)
        self.enable_observer()
        with torch.no_grad():
            self(values.detach())
            scale, zero_point = self._scale_of_range()
            self.scale.resize_(scale.shape)
            self.zero_point.resize_(scale.shape)
        self._store(scale, zero_point)
        self.disable_observer()
        observer.averaging_constant = before


class FakeQuantized(nn.Sequential):
    """A layer whose weight, input and output are rounded as integers would be; ranges follow the data in training."""

    layer: Any

    def train(self, mode: bool = True) -> FakeQuantized:
        """Set the mode of all parts; observers are on in training and off in evaluation."""
        super().train(mode)
        for quantizer in quantizers(self):
            quantizer.enable_observer(mode)
        return self

    @property
    def weight(self) -> torch.Tensor:
        """The weight of the layer, not rounded."""
        return self.layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of the layer, without what the batch norm adds."""
        return self.layer.bias


def quantizers(module: nn.Module) -> list[Quantizer]:
    """The fake quantizers in a module."""
    return [part for part in module.modules() if isinstance(part, Quantizer)]


def weight_quantizer(bits: int) -> Quantizer:
    """For weights: one scale for each output channel, symmetric about 0."""
    top = 2 ** (bits - 1) - 1
    return Quantizer(
        observer=MovingAveragePerChannelMinMaxObserver, quant_min=-top - 1, quant_max=top, dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric, ch_axis=0,
    )  # fmt: skip


def activation_quantizer(bits: int) -> Quantizer:
    """For activations: one scale and zero point for the whole tensor."""
    return Quantizer(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=2**bits - 1, dtype=torch.quint8,
        qscheme=torch.per_tensor_affine,
    )  # fmt: skip


def quantize_layer(
    layer: Any,
    norm: Any,
    activation: nn.Module | None,
    *,
    bits: int,
    activation_bits: int,
    quantize_input: bool,
) -> FakeQuantized:
    """Returns one quantized module with copies of a layer, its batch norm and its activation."""
    core = _qat_layer(layer, norm)
    core.weight_fake_quant = weight_quantizer(bits)
    parts = {
        "input": activation_quantizer(activation_bits) if quantize_input else None,
        "layer": core,
        "activation": activation,
        "output": activation_quantizer(activation_bits),
    }
    made = FakeQuantized()
    for name, part in parts.items():
        if part is not None:
            made.add_module(name, part)
    for quantizer in quantizers(made):
        quantizer.to(layer.weight.device)
    made.train(layer.training)
    if norm is not None:
        core.bn.training = norm.training
    core.weight_fake_quant.observe(_scaled_weight(core), 0)
    core.weight_fake_quant.enable_observer(layer.training)
    return made


def _qat_layer(layer: nn.Module, norm: nn.Module | None) -> Any:
    """torch.ao's module for training with quantised weights, with copies of the tensors."""
    cls = torch_class(layer, QUANTIZED)
    assert cls is not None
    config = QConfig(activation=_unused, weight=_unused)
    own = _copied(layer, cls)
    with torch.device("meta"):  # what is drawn here is replaced
        if norm is None:
            own.qconfig = config
            core = _ALONE[cls].from_float(own)
        else:
            norm_class, fused, target = _WITH_NORM[cls]
            pair = fused(own, _copied(norm, norm_class))
            pair.qconfig = config
            core = target.from_float(pair)
            setattr(core, NUMERICAL_PATH, True)  # the other divides by the norm's weight
    return core


def _unused(**_: object) -> nn.Module:
    return nn.Identity()


def _copied(module: nn.Module, cls: type[nn.Module]) -> Any:
    new = clone_module(module, cls)
    for name, own in parameters_of(new).items():
        if own is not None:
            parameters_of(new)[name] = nn.Parameter(own.detach().clone(), own.requires_grad)
    setattr(new, BUFFERS, {name: None if own is None else own.clone() for name, own in buffers_of(new).items()})
    return new


def _scaled_weight(core: Any) -> torch.Tensor:
    """The weight that is quantised: with a batch norm that which the two have when folded."""
    weight = core.weight.detach()
    if not hasattr(core, "bn"):
        return weight
    scale = core.bn.weight.detach() * torch.rsqrt(core.bn.running_var + core.bn.eps)
    return weight * scale.reshape(-1, *(1 for _ in weight.shape[1:]))
