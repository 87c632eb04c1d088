"""Built-in readers: importing this module registers them.

safetensors.py (with the index of several files), gguf.py and pt2.py (of `torch.export.save`) read one format each;
onnx/ and pickle/ are rooms of their own.
"""

from __future__ import annotations

from modulekg_widgets.engine.files.formats import gguf as _gguf  # noqa: F401
from modulekg_widgets.engine.files.formats import safetensors as _safetensors  # noqa: F401
from modulekg_widgets.engine.files.formats import safetensors as _sharded  # noqa: F401
from modulekg_widgets.engine.files.formats.onnx import onnx_file as _onnx_file  # noqa: F401
from modulekg_widgets.engine.files.formats.pickle import distributed_checkpoint as _distributed  # noqa: F401
from modulekg_widgets.engine.files.formats.pickle import torch_checkpoint as _torch_zip  # noqa: F401
