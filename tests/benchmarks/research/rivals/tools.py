"""The tools, by name; ours is the first."""

from __future__ import annotations

from benchmarks.research.rivals import (
    model_explorer_json,
    netron_onnx,
    ours,
    tensorboard_events,
    torchlens_svg,
    torchview_svg,
    torchvista_html,
)
from benchmarks.research.rivals.tool import Tool

LISTED = (
    ours.TOOL,
    torchvista_html.TOOL,
    torchvista_html.DEEP,
    torchview_svg.TOOL,
    torchlens_svg.TOOL,
    model_explorer_json.TOOL,
    netron_onnx.TOOL,
    tensorboard_events.TOOL,
)
TOOLS: dict[str, Tool] = {tool.name: tool for tool in LISTED}
