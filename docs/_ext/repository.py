"""What lies beside docs/ in the repository, as pages of the site.

The notebooks are copied to docs/notebooks/ before anything is read: as they are, without what their cells print, or
from a folder of executed copies (`-D executed_notebooks=FOLDER`). Links that lead out of docs/ lead to the page that
shows the file, as of a notebook or CONTRIBUTING.md, or else to a copy of the file itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
NOTEBOOKS = "notebooks"
# the pages that show a file of the repository
PAGES = {
    "README.md": "index",
    "CHANGELOG.md": "project/changes",
    "CONTRIBUTING.md": "project/contributing",
    "SECURITY.md": "project/security",
    "CODE_OF_CONDUCT.md": "project/conduct",
}


def page_of(file: Path) -> str | None:
    """The document that shows a file."""
    if not file.is_relative_to(ROOT):
        return None
    path = file.relative_to(ROOT)
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).with_suffix("").as_posix() if file.suffix == ".md" else None
    is_notebook = path.parent.as_posix() == NOTEBOOKS and path.suffix == ".ipynb"
    return f"{NOTEBOOKS}/{path.stem}" if is_notebook else PAGES.get(path.as_posix())


def origin_of(document: str) -> Path:
    """The file that a document shows: links in it are meant from there."""
    for path, page in PAGES.items():
        if page == document and document != "index":
            return ROOT / path
    if document.startswith(f"{NOTEBOOKS}/") and document != f"{NOTEBOOKS}/index":
        return ROOT / f"{document}.ipynb"
    return DOCS / f"{document}.md"


class LinksOutOfDocs(SphinxTransform):
    """Gives links to files their page."""

    default_priority = 5  # before files are collected that are to be downloaded

    def apply(self, **_: Any) -> None:
        origin = origin_of(self.env.docname)
        links = [*self.document.findall(addnodes.download_reference), *self.document.findall(addnodes.pending_xref)]
        for link in links:
            file, anchor = _file_of(link, origin)
            if file:
                self._lead(link, file, anchor)

    def _lead(self, link: nodes.Element, file: Path, anchor: str) -> None:
        page = page_of(file)
        if page:
            options = {"refdomain": "doc", "reftarget": page, "reftargetid": anchor or None}
            new: nodes.Element = addnodes.pending_xref("", *link.children, **(_options(link) | options))
        else:
            path = os.path.relpath(file, (DOCS / self.env.docname).parent)
            options = {"refdomain": None, "reftarget": path}
            new = addnodes.download_reference("", *link.children, **(_options(link) | options))
        link.replace_self(new)


def _file_of(link: nodes.Element, origin: Path) -> tuple[Path | None, str]:
    """The file that a link of Markdown means, with the anchor in it; None where Sphinx knows better, or warns."""
    target, anchor = link["reftarget"], link.get("reftargetid") or ""
    if link.get("reftype") != "myst":
        return None, anchor
    if link["refdomain"] == "doc":
        found = [Path(target + suffix) for suffix in (".md", ".ipynb")] if target.startswith("/") else []
    else:
        target, _, anchor = target.partition("#")
        found = [] if not target or re.match(r"\w+:", target) else [Path(os.path.normpath(origin.parent / target))]
    return next((file for file in found if file.exists()), None), anchor


def _options(link: nodes.Element) -> dict[str, Any]:
    return {key: link[key] for key in ("refdoc", "reftype", "refexplicit") if key in link}


def copy_notebooks(app: Sphinx) -> None:
    """Put the notebooks where Sphinx finds them; what has not changed keeps its time."""
    folder, executed = DOCS / NOTEBOOKS, app.config.executed_notebooks
    sources = [ROOT / NOTEBOOKS, *([Path(executed)] if executed else [])]  # the later ones in place of the earlier
    wanted = {path.name: path.read_bytes() for source in sources for path in source.glob("*.ipynb")}
    for there in folder.glob("*.ipynb"):
        if there.name not in wanted:
            there.unlink()
    for name, content in wanted.items():
        copy = folder / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("executed_notebooks", "", "env", str)
    app.add_transform(LinksOutOfDocs)
    app.connect("builder-inited", copy_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
