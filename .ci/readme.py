"""The description on PyPI: README.md, whose links lead to this version in the repository.

`repository.url` in js/package.json is the one place that names the repository. Without it links stay as they are, and
`python .ci/release.py check` refuses the release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s]+)(?=\))")
LINK = re.compile(r"(\]\()([^)\s]+)(?=\))")


class Readme(MetadataHookInterface):
    """Gives a package its description and, once that is known, the address of the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = repository_of(Path(self.root))
        text = Path(self.root, "README.md").read_text("utf-8")
        if repository:
            text = absolute(text, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Repository": repository} if repository else {}


def repository_of(root: Path) -> str:
    """The address of the repository, as a browser opens it; empty where none is stated."""
    stated = json.loads((root / "js" / "package.json").read_text("utf-8")).get("repository", {}).get("url", "")
    return stated.removeprefix("git+").removesuffix(".git")


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose links lead into the repository at a tag, and whose pictures come from there."""

    def leading_to(kind: str) -> Callable[[re.Match[str]], str]:
        return lambda found: found[1] + urljoin(f"{repository}/{kind}/{tag}/README.md", found[2])

    # what is absolute stays: pictures first, so that they are not taken for links
    return LINK.sub(leading_to("blob"), IMAGE.sub(leading_to("raw"), text))
