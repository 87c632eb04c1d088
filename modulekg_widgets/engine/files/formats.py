"""The formats that are known from the start: importing their readers registers them."""

from __future__ import annotations

from modulekg_widgets.engine.files import gguf as _gguf  # noqa: F401
from modulekg_widgets.engine.files import safetensors as _safetensors  # noqa: F401
