"""Fourier transforms: the dimensions that are transformed are walked in order."""

from __future__ import annotations

from modulekg_widgets.engine.axes.call import Call, Dims, rule

TEXT = "transformed in order"


@rule("aten::_fft_r2c", "aten::_fft_c2r", "aten::_fft_c2c")
def fft(call: Call) -> Dims:
    """Transformed dimensions are frozen on both sides; the others are kept."""
    dims = call.axes(call["self"])
    walked = {at % len(dims) for at in call["dim"]}
    call.freeze_all([dims[at] for at in walked], TEXT)
    return [
        call.frozen(size, TEXT) if at in walked else term
        for at, (term, size) in enumerate(zip(dims, call.output.shape, strict=True))
    ]
