"""Google Colab: widgets from the CDN once that is allowed, else a static page in the output.

At the first display that is allowed, if the network has the very file of this package: nobody else's code is let in
under its name. Where it has not or Colab refuses, and where the user asks for it, the output holds the page that
`mk.save_html` would write, without the kernel and without any network: after `%env MODULEKG_COLAB=page` for all, with
`display(widget, include={"text/html"})` for one. `%env MODULEKG_COLAB=widgets` trusts the network unseen.
"""

from __future__ import annotations

import html
import os
import sys
import warnings
from collections.abc import Callable, Container
from importlib import import_module
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from modulekg_widgets._version import __version__
from modulekg_widgets.engine.errors import ModuleKGError, printable

VIEW = "application/vnd.jupyter.widget-view+json"
HTML = "text/html"
CDN_URL = "https://cdn.jsdelivr.net/npm"  # where Colab's page has widgets of others from
TIMEOUT_SECONDS = 5  # for an answer of the network
Bundle = dict[str, Any]  # of MIME types


def start() -> None:
    """Install the display format for Colab."""
    from IPython.core.getipython import get_ipython

    formatter: Any = getattr(get_ipython(), "display_formatter", None)
    if formatter is not None and not isinstance(formatter.format, ColabFormat):
        # the one way of `display` and of a cell's last value, of which Colab's own hook sees the former alone
        formatter.format = ColabFormat(formatter.format)


class ColabFormat:
    """Display format that adapts widgets of this package to Colab's outputs."""

    def __init__(self, before: Callable[..., tuple[Bundle, Bundle]]) -> None:
        self.before = before
        self.is_allowed: bool | None = None  # until the first display

    def __call__(
        self, displayed: object, include: Container[str] | None = None, exclude: Container[str] | None = None
    ) -> tuple[Bundle, Bundle]:
        data, metadata = self.before(displayed, include, exclude)
        if include is not None and HTML in include and HTML not in data:
            return data | _page(displayed), metadata
        if VIEW not in data or not _has_own_widget(displayed):
            return data, metadata
        page = {} if self.loads_widgets() else _page(displayed)
        if page:  # without pictures, which Colab might prefer
            return {"text/plain": data.get("text/plain", "")} | page, {}
        return data, metadata | _manager(metadata)

    def loads_widgets(self) -> bool:
        """True if Colab's page loads the widgets of this package; asked once."""
        choice = os.environ.get("MODULEKG_COLAB")
        if choice == "page":
            return False
        if self.is_allowed is None:
            self.is_allowed = _allow(is_trusted=choice == "widgets")
        return self.is_allowed


def _allow(is_trusted: bool) -> bool:
    try:
        if not is_trusted:
            _check_published()
        import_module("google.colab.output").enable_custom_widget_manager()
    except Exception as error:  # noqa: BLE001 - of whatever kind: the user shall see something
        reason = printable(f"{type(error).__name__}: {error}")
        text = f"Colab loads no widgets ({reason}): you see pages, in which clicks do not reach Python"
        warnings.warn(text, UserWarning, stacklevel=2)
        return False
    return True


def _check_published() -> None:
    """Raise unless the CDN has the same front end, byte for byte, as this installation."""
    own = installed_front_end()
    with urlopen(f"{CDN_URL}/modulekg-widgets@{__version__}/dist/index.js", timeout=TIMEOUT_SECONDS) as answer:
        if answer.read(len(own) + 1) != own:
            raise ModuleKGError("the network has another front end than is installed here")


def installed_front_end() -> bytes:
    """Returns the AMD module of all widgets, from the Jupyter data folder or the package."""
    built = files("modulekg_widgets") / "nbextension" / "index.js"
    if built.is_file():
        return built.read_bytes()
    for file in distribution("modulekg-widgets").files or ():
        if file.parts[-3:] == ("nbextensions", "modulekg-widgets", "index.js"):
            return Path(file.locate()).read_bytes()
    raise ModuleKGError("no front end is installed here")


def _manager(metadata: Bundle) -> Bundle:
    """Metadata that tells Colab's page how to load widgets; empty if Colab has none."""
    url = getattr(sys.modules.get("google.colab.output._widgets"), "_installed_url", None)
    if url is None:
        return {}
    return {VIEW: {**metadata.get(VIEW, {}), "colab": {"custom_widget_manager": {"url": url}}}}


def _page(widget: Any) -> Bundle:
    """The page of a widget in an iframe; empty for widgets without a page."""
    from modulekg_widgets.widgets.pages.pages import page_of

    try:
        page = page_of(widget).decode()
    except ModuleKGError:  # a box of other widgets, or no script for pages
        return {}
    style = "width: 100%; height: 640px; border: 0"
    frame = f'<iframe title="modulekg-widgets" sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page)}">'
    return {HTML: f"{frame}</iframe>"}


def _has_own_widget(widget: object) -> bool:
    from modulekg_widgets.widgets.shared.base import ModuleKGWidget

    return isinstance(widget, ModuleKGWidget) or any(map(_has_own_widget, getattr(widget, "children", ())))
