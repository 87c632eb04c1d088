"""Makes plain cells of head cells without text, as the corner of a table is: nothing is to be read there."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

EMPTY = re.compile(r'<th class="head">\s*(?:<p>\s*</p>)?\s*</th>')


def without_empty_heads(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Change the page that is about to be written."""
    if "body" in context:
        context["body"] = EMPTY.sub("<td></td>", context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", without_empty_heads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
