"""A matplotlib figure that a notebook shows by itself, with or without pyplot."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure with a PNG for notebooks; `crops` cuts that to what is drawn, at 100 pixels to the inch."""

    crops = False

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        if self.crops:
            self.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
        else:
            self.savefig(buffer, format="png")
        return buffer.getvalue()
