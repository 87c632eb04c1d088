"""The version of this package, which js/package.json states once for Python and TypeScript."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _version() -> str:
    try:
        return version("modulekg-widgets")
    except PackageNotFoundError:  # a checkout that is not installed
        return json.loads((Path(__file__).parent.parent / "js" / "package.json").read_text("utf-8"))["version"]


__version__ = _version()
