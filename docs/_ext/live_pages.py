"""Live widgets: the code that a page shows is run when the site is built, and the page that it saves stands beneath it.

- `live` holds code that ends with `mk.save_html(widget, "name.html")`, `name` being that of the document. The code is
  run in a process of its own, the saved page is shown in a frame, and the code below it as it was run.
- `frame` shows the saved page of another document.
- `gallery` names documents; each becomes a card with a picture of its widget, its title and its first paragraph. The
  pictures are drawn by a browser, which building the site does not need: `tests/docs/gallery_pictures.py` writes them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from html import escape
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.display import status_iterator
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri
from sphinx.writers.html5 import HTML5Translator

PACKAGE = Path(__file__).resolve().parents[2] / "modulekg_widgets"
FOLDER = "live"  # of the saved pages, in the built site
PICTURES = "_static/gallery"
THEMES = ("light", "dark")
WORKERS = 2
HEIGHT = 620

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LivePage:
    """The code of a document that saves a page, and the line that it stands in."""

    document: str
    code: str
    line: int

    @property
    def name(self) -> str:
        return self.document.rpartition("/")[2]


# ------------------------------------------------------------ in a document


class Frame(nodes.General, nodes.Element):
    """A saved page in a frame."""


class Cards(nodes.General, nodes.Element):
    """Where the cards of a gallery come to stand, once all titles are known."""


class LiveDirective(SphinxDirective):
    """The block `live`."""

    has_content = True
    option_spec = {"height": directives.positive_int}  # noqa: RUF012 - docutils reads it from the class

    def run(self) -> list[nodes.Node]:
        page = LivePage(self.env.docname, "\n".join(self.content) + "\n", self.lineno)
        if f'"{page.name}.html"' not in page.code:
            raise self.error(f'the code has to save its page as "{page.name}.html"')
        self.env.live_pages[self.env.docname] = page  # type: ignore[attr-defined]
        block = nodes.literal_block(page.code, page.code, language="python")
        self.set_source_info(block)
        return [Frame(page=page.name, height=self.options.get("height", HEIGHT)), block]


class FrameDirective(SphinxDirective):
    """The block `frame`."""

    required_arguments = 1
    option_spec = {"height": directives.positive_int}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        return [Frame(page=self.arguments[0], height=self.options.get("height", HEIGHT))]


class GalleryDirective(SphinxDirective):
    """The block `gallery`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        folder = self.env.docname.rpartition("/")[0]
        names = [line.strip() for line in self.content if line.strip()]
        tree = nodes.Element()
        block = ["```{toctree}", ":hidden:", "", *names, "```"]
        self.state.nested_parse(StringList(block, source=self.get_source_info()[0]), self.content_offset, tree)
        return [*tree.children, Cards(documents=[f"{folder}/{name}" for name in names])]


def draw_frame(translator: HTML5Translator, node: Frame) -> None:
    builder = translator.builder
    here = builder.get_target_uri(builder.current_docname)
    source = relative_uri(here, f"{FOLDER}/{node['page']}.html")
    title = escape(title_of(builder.env, node["page"]))
    translator.body.append(
        f'<div class="live"><iframe src="{source}" title="{title}, live" loading="lazy"'
        f' style="height:{node["height"]}px"></iframe>'
        f'<p><a class="reference external" href="{source}">Open it in a window of its own</a></p></div>'
    )
    raise nodes.SkipNode


def title_of(env: BuildEnvironment, name: str) -> str:
    """The title of the document whose saved page has this name."""
    for document in env.live_pages:  # type: ignore[attr-defined]
        if document.rpartition("/")[2] == name:
            return env.titles[document].astext()
    raise ExtensionError(f"no document has a block `live` that saves {name}.html")


def fill_cards(app: Sphinx, document: nodes.document, docname: str) -> None:
    for place in list(document.findall(Cards)):
        cards = [card(app, docname, target) for target in place["documents"]]
        place.replace_self(nodes.bullet_list("", *cards, classes=["live-cards"]))


def card(app: Sphinx, here: str, target: str) -> nodes.list_item:
    """A picture for each theme, a title that leads to the document, and its first paragraph."""
    images = [picture(app, here, f"{target.rpartition('/')[2]}_{theme}.webp", theme) for theme in THEMES]
    title = app.env.titles[target].astext()
    link = nodes.reference("", title, refuri=app.builder.get_relative_uri(here, target), internal=True)
    first = next(app.env.get_doctree(target).findall(nodes.paragraph))
    return nodes.list_item("", *images, nodes.paragraph("", "", link), nodes.paragraph("", first.astext()))


def picture(app: Sphinx, here: str, file: str, theme: str) -> nodes.raw:
    if not (Path(app.srcdir) / PICTURES / file).is_file():
        raise ExtensionError(f"there is no {PICTURES}/{file}: draw it with tests/docs/gallery_pictures.py")
    source = relative_uri(app.builder.get_target_uri(here), f"{PICTURES}/{file}")
    return nodes.raw("", f'<img class="only-{theme}" src="{source}" alt="" loading="lazy">', format="html")


# ---------------------------------------------------- the pages that are saved


def make_pages(app: Sphinx) -> Iterable[tuple[str, dict[str, Any], str]]:
    """Run the code of all documents whose page is not there, or older than what it is made from."""
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    pages = app.env.live_pages.values()  # type: ignore[attr-defined]
    due = [page for page in pages if _is_due(app, page, folder)]
    if due:
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as workers:
            results = workers.map(saved, due, [folder] * len(due))
            shown = status_iterator(zip(due, results, strict=True), "running live code… ", length=len(due))
            for page, error in shown:
                if error:
                    log.warning("the code of %s failed: %s", page.document, error, location=(page.document, page.line))
    return []


def _is_due(app: Sphinx, page: LivePage, folder: Path) -> bool:
    target = folder / f"{page.name}.html"
    sources = [Path(app.env.doc2path(page.document)), Path(__file__), *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js")]
    return not target.exists() or target.stat().st_mtime < max(source.stat().st_mtime for source in sources)


def saved(page: LivePage, folder: Path) -> str:
    """Run the code; its page comes into the folder. What went wrong, or an empty text."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import warnings

    warnings.filterwarnings("ignore")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)  # the process does nothing else
            exec(compile(page.code, page.document, "exec"), {"__name__": "__main__"})
            written = Path(f"{page.name}.html").read_bytes()
        (folder / f"{page.name}.html").write_bytes(written)
    except Exception as error:  # noqa: BLE001 - whatever the code raises is told with the place of the code
        return f"{type(error).__name__}: {error}"
    return ""


# ------------------------------------------------------------------- Sphinx


def start(app: Sphinx) -> None:
    if not hasattr(app.env, "live_pages"):
        app.env.live_pages = {}  # type: ignore[attr-defined]


def forget(_: Sphinx, env: BuildEnvironment, document: str) -> None:
    env.live_pages.pop(document, None)  # type: ignore[attr-defined]


def merge(_: Sphinx, env: BuildEnvironment, documents: list[str], other: BuildEnvironment) -> None:
    known = other.live_pages  # type: ignore[attr-defined]
    env.live_pages |= {name: known[name] for name in documents if name in known}  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Frame, html=(draw_frame, None))
    app.add_node(Cards)
    app.add_directive("live", LiveDirective)
    app.add_directive("frame", FrameDirective)
    app.add_directive("gallery", GalleryDirective)
    app.connect("builder-inited", start)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", fill_cards)
    app.connect("html-collect-pages", make_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
