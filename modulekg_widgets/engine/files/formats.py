"""The formats that are known from the start: importing their readers registers them."""

from __future__ import annotations

from modulekg_widgets.engine.files import distributed as _distributed  # noqa: F401
from modulekg_widgets.engine.files import gguf as _gguf  # noqa: F401
from modulekg_widgets.engine.files import onnx_file as _onnx_file  # noqa: F401
from modulekg_widgets.engine.files import safetensors as _safetensors  # noqa: F401
from modulekg_widgets.engine.files import sharded as _sharded  # noqa: F401
from modulekg_widgets.engine.files import torch_zip as _torch_zip  # noqa: F401
