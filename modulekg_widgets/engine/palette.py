"""Colors of pictures, plots and the page, read from `palette.json`, so that a meaning has one color everywhere.

The page's copy is generated from the same file when the front end is built (js/src/generated/palette.ts), so payloads
carry no colors and saved files of before are shown in those of now. Pairs of `light` and `dark` are by the theme.

`families` are Okabe and Ito's colors, told apart by every kind of color vision, by a pattern in a class's name. `lines`
were found by search: the least distance in OKLab under simulated protanopia, deuteranopia and tritanopia is 0.11
(Okabe and Ito's set on the same measure: 0.02), and each stands out from its ground by 3 to 1. `scale` is viridis at 0,
0.1, … 1: lightness rises evenly. The colors of `overlap` rise as evenly in lightness, and so do those of `mask`:
away from the ground of their theme, so that more ink is more in both.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from types import SimpleNamespace

PALETTE = json.loads(
    (files("modulekg_widgets.engine") / "palette.json").read_text("utf-8"), object_hook=lambda d: SimpleNamespace(**d)
)
PAGE = PALETTE.page  # surfaces and inks of the light theme
_FAMILIES = [(re.compile(pattern, re.ASCII | re.IGNORECASE), color) for pattern, color in PALETTE.families]


@cache
def family_color(class_name: str, is_container: bool) -> str:
    """Returns the color of a module class, by patterns of its name; containers have families of their own."""
    if is_container and "attention" not in class_name.lower():
        return PALETTE.container
    return next((color for pattern, color in _FAMILIES if pattern.search(class_name)), PALETTE.other_family)
