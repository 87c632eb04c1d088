"""Base of the widgets: versioned front end, strict keywords, protected traits, and the kernel thread.

For all widgets of the package. `ModuleKGWidget` binds the Python class to the JavaScript model and view of exactly this
version, refuses unknown attributes, ignores changes from a page to traits in `kernel_traits`, and adds a static
picture to each display, for notebooks without a kernel. A cell that runs again closes the widgets that it showed
before. Models run in the main thread alone: handlers of messages, which may run in a subshell beside a busy cell,
hand such work to `when_idle`.

    class Example(ModuleKGWidget):
        payload = Dict().tag(sync=True)
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ipywidgets import DOMWidget
from traitlets import Bool, Bunch, Dict, Float, Int, List, TraitError, Unicode

from modulekg_widgets._version import __version__
from modulekg_widgets.engine.errors import (
    ModuleKGError,
    UnknownAttributeError,
    UnknownKeywordError,
    a_kind,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.views.pictures.png import notebook_pictures
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.widgets.shared.output_pictures import add_box_pictures, output_pictures, record_captured

FRONT_END = "modulekg-widgets"


class WidgetValueError(ModuleKGError, TraitError):
    """A value of the wrong kind for a widget's attribute."""


class ModuleKGWidget(DOMWidget):
    """Base of the widgets: the browser finds its counterpart by module, name and version.

    A public attribute that does not exist cannot be set: a typo would pass unnoticed otherwise.
    """

    _model_module = Unicode(FRONT_END).tag(sync=True)
    # exactly this version: by a range a content delivery network could send a newer page than this kernel speaks to
    _model_module_version = Unicode(__version__).tag(sync=True)
    _view_module = Unicode(FRONT_END).tag(sync=True)
    _view_module_version = Unicode(__version__).tag(sync=True)

    _owns_layout = False  # until the constructor has run to its end
    _changes = 0  # of traits

    kernel_traits: ClassVar[frozenset[str]] = frozenset({"payload"})  # traits of which no page is believed

    def __init__(self, **state: object) -> None:
        try:
            super().__init__(**state)
        except TraitError as error:
            raise _as_widget_error(type(self), error) from None
        self._owns_layout = "layout" not in state
        _add_box_pictures()
        output_pictures()

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and self._owns_layout and not hasattr(type(self), name):
            owner = type(self).__name__
            raise UnknownAttributeError(
                f"{owner} has no attribute {printable(name)!r}: {closest_match_hint(name, self.keys)}"
            )
        try:
            super().__setattr__(name, value)
        except TraitError as error:
            raise _as_widget_error(type(self), error) from None

    def set_state(self, sync_data: dict[str, object]) -> None:
        """Apply changes from a page, without kernel-only traits; invalid values are reverted on both sides."""
        wanted = {
            name: value for name, value in sync_data.items() if name in self.keys and name not in self.kernel_traits
        }
        before = {name: getattr(self, name) for name in wanted}
        try:
            super().set_state(wanted)
        except (ModuleKGError, TraitError):
            for name, value in before.items():
                self.set_trait(name, value)
            self.send_state(list(before))
            raise

    def open(self) -> None:
        """Open the comm, with messages handled in the subshell that they name."""
        super().open()
        handle_in_subshells(self.comm)

    def close(self) -> None:
        """Close the widget in the kernel and on every page, with its links and its own layout."""
        for link in tuple(vars(self).get("_links", ())):
            link.close()
        layout = self.layout if self._owns_layout else None
        super().close()
        if layout is not None:
            layout.close()

    def notify_change(self, change: Bunch) -> None:
        """Count the change, and notify observers."""
        self._changes += 1
        super().notify_change(change)

    def _picture_state(self) -> Hashable:
        """Returns a value that differs whenever the static picture may differ."""
        return self._changes

    def _handle_msg(self, msg: Payload) -> None:
        """Handle a message of a page, which is none of a cell."""
        with _between_cells():
            super()._handle_msg(msg)

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        """Handle the request of a saved notebook for current pictures."""
        if isinstance(content, dict) and content.get("kind") == "pictures":
            pictures = output_pictures() if is_main_thread() else None
            self.send({"kind": "pictures", "renewed": pictures is not None and pictures.refresh()})
        else:
            super()._handle_custom_msg(content, buffers)

    def finish(self) -> bool:
        """Wait for background work; True if there was any."""
        return False

    def _repr_mimebundle_(self, **kwargs: object) -> Payload:
        bundle: Payload = super()._repr_mimebundle_(**kwargs) or {}
        _track_cell(self)
        picture = self._static_picture()
        if picture is not None:
            bundle |= notebook_pictures(picture)
        return bundle

    def _static_picture(self) -> Picture | None:
        return None


def _add_box_pictures() -> None:
    """Let IPython display boxes of ipywidgets with the pictures of the widgets in them."""
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.getipython import get_ipython

    formatter = getattr(get_ipython(), "display_formatter", None)
    if isinstance(formatter, DisplayFormatter):
        add_box_pictures(formatter, lambda box: record_captured(box, _current_run()[1]))


# what an attribute takes, by its trait
TRAIT_WORDS = (
    (Unicode, "text"),
    (Bool, "True or False"),
    (Int, "a whole number"),
    (Float, "a number"),
    (Dict, "a dict"),
    (List, "a list"),
)
WRONG_TYPE = re.compile(
    r"The '(\w+)' trait of an? \w+ instance (contains .* which )?expected .*, not the (\w+)", re.DOTALL
)


def _as_widget_error(owner: type[ModuleKGWidget], error: TraitError) -> TraitError:
    """Returns our error for one of traitlets, in the words of the documentation."""
    found = WRONG_TYPE.match(str(error))
    trait = owner.class_traits().get(found[1]) if found else None
    if isinstance(error, ModuleKGError) or found is None or trait is None:
        return error if isinstance(error, ModuleKGError) else WidgetValueError(str(error))
    words = next((words for kind, words in TRAIT_WORDS if isinstance(trait, kind)), "")
    if not words:  # of what it takes traitlets says more
        return WidgetValueError(str(error))
    item = getattr(trait, "_trait", None)
    if isinstance(trait, List) and isinstance(item, Unicode):
        words = "a list of texts"
    got = "None" if found[3] == "NoneType" else a_kind(found[3])
    return WidgetValueError(
        f"{found[1]} of {a_kind(owner.__name__)} is {words}{' or None' if trait.allow_none else ''}: "
        f"{got} was passed{' in it' if found[2] else ''}"
    )


def as_list(values: Any) -> Any:
    """Returns texts as a list, also a single one; anything else as it is, which its attribute refuses."""
    return [values] if isinstance(values, str) else list(values) if isinstance(values, Iterable) else values


def check_keywords(owner: str, keywords: Iterable[str], known: Iterable[str]) -> None:
    """Raise `UnknownKeywordError` for the first of `keywords` that is not `known`."""
    options = sorted(known)
    for name in keywords:
        if name not in options:
            raise UnknownKeywordError(
                f"{owner} takes no keyword {printable(name)!r}: {closest_match_hint(name, options)}"
            )


# ------------------------------------- the kernel's main thread, where cells run and models may be run between them


def is_main_thread() -> bool:
    """True in the thread that runs cells."""
    return threading.current_thread() is threading.main_thread()


def when_idle(act: Callable[[], None]) -> None:
    """Call `act` in the main thread when no cell runs; at once without a kernel."""
    loop = main_loop()
    if loop is None:
        act()
    else:
        loop.add_callback(_between_cells()(act))


_between = threading.local()


@contextmanager
def _between_cells() -> Iterator[None]:
    before = is_between_cells()
    _between.is_now = True
    try:
        yield
    finally:
        _between.is_now = before


def is_between_cells() -> bool:
    """True while this thread handles what a page has sent: what it displays would stand below the last cell."""
    return getattr(_between, "is_now", False)


def main_loop() -> Any:
    """Returns the event loop in which the kernel runs cells; None without a kernel."""
    try:
        from IPython.core.getipython import get_ipython

        return get_ipython().kernel.io_loop  # type: ignore[union-attr]
    except (ImportError, AttributeError):
        return None


def handle_in_subshells(comm: Any) -> None:
    """Handle messages of pages in the subshell that they name, and so while a cell runs.

    From 7.2 on ipykernel leads them to the shell that has last sent on this way, for cells that await an answer. After
    the cell that made a widget that is the main one, which under *Run All* is busy until the last cell has ended.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, named: named


# ------------------------------------------------------------------ a cell that runs again replaces its widgets

_CELLS_ATTRIBUTE = "_mkg_cells"  # on the widget: the cells whose output shows it -> the run that did


def _track_cell(widget: ModuleKGWidget) -> None:
    """Record the cell that shows `widget`, and close what an earlier run of that cell alone has shown."""
    cell, run = _current_run()
    record_captured(widget, run)
    if cell is None:
        return
    for other in list(_open_widgets()):
        cells = vars(other).get(_CELLS_ATTRIBUTE, {})
        if other is not widget and cells.get(cell, run) != run:
            del cells[cell]
            if not cells:
                other.close()
    vars(widget).setdefault(_CELLS_ATTRIBUTE, {})[cell] = run


def _open_widgets() -> Iterable[ModuleKGWidget]:
    from ipywidgets.widgets.widget import _instances

    return [w for w in _instances.values() if isinstance(w, ModuleKGWidget)]


def _current_run() -> tuple[str | None, str | None]:
    """The id of the running cell and of this run; (None, None) if the front end does not send them."""
    try:
        from IPython.core.getipython import get_ipython

        parent = get_ipython().kernel.get_parent("shell")  # type: ignore[union-attr]
        return parent["metadata"].get("cellId"), parent["header"]["msg_id"]
    except (ImportError, AttributeError, KeyError, TypeError):
        return None, None
