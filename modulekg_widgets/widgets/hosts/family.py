"""A widget with all that its page needs: the widgets that it names, and the links between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ipywidgets import Widget
from ipywidgets.widgets.widget_link import DirectionalLink, Link

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.widgets.pages.pages import CONTAINERS, HELPERS
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError

Family = dict[str, Widget]
REFERENCE = "IPY_MODEL_"


def family_of(widget: Any) -> Family:
    """By id: `widget` and all that it stands on, in the order in which they are found."""
    family: Family = {}
    waiting = [widget]
    while waiting:
        one = waiting.pop()
        if one.model_id not in family:
            family[one.model_id] = one
            waiting += named_in(one.get_state())
    for one in family.values():
        if problem := problem_of(one, f" in a {type(widget).__name__}"):
            raise WidgetValueError(problem)
    return family | {link.model_id: link for link in links_between(family)}


def problem_of(widget: Any, where: str) -> str:
    """Why the page of an adapter cannot show a widget; empty where it can."""
    kind = shown(type(widget).__name__)
    if not isinstance(widget, ModuleKGWidget) and type(widget) not in (*CONTAINERS, *(HELPERS if where else ())):
        known = ", ".join(one.__name__ for one in CONTAINERS)
        return f"marimo shows widgets of this package, and {known} of them: {kind} was passed{where}"
    return f"this {kind} has been closed{where}: make it anew" if widget.comm is None else ""


def named_in(state: Mapping[str, Any]) -> Iterator[Widget]:
    """The open widgets that the traits of a state name, alone or in a list."""
    every = _open_widgets()
    for value in state.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str) and item.startswith(REFERENCE):
                widget = every.get(item.removeprefix(REFERENCE))
                if widget is not None:
                    yield widget


def links_between(family: Mapping[str, Widget]) -> Iterator[Widget]:
    """The open links that have both ends in the family."""
    for link in open_links():
        if all(end.comm is not None and end.model_id in family for end, _ in (link.source, link.target)):
            yield link


def open_links() -> Iterable[Any]:
    """All links of ipywidgets that pages follow."""
    return [one for one in _open_widgets().values() if type(one) in (Link, DirectionalLink) and one.comm is not None]


def _open_widgets() -> dict[str, Widget]:
    from ipywidgets.widgets.widget import _instances

    return dict(_instances)
