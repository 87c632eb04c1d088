"""Widgets of others: once they are allowed, each output of `display` says who manages them."""

from typing import Any

from IPython.core.getipython import get_ipython

VIEW = "application/vnd.jupyter.widget-view+json"
MANAGER = "https://manager.invalid/manager.min.js"

calls = 0
_installed_url: str | None = None


def enable_custom_widget_manager() -> None:
    """As in Colab: `display` is heard, and the value of a cell is not."""
    global calls, _installed_url
    calls += 1
    publisher: Any = getattr(get_ipython(), "display_pub", None)
    if _installed_url is None and hasattr(publisher, "register_hook"):
        publisher.register_hook(_say_who)
    _installed_url = MANAGER


def _say_who(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content", {})
    if VIEW in content.get("data", {}):
        said = content.setdefault("metadata", {}).setdefault(VIEW, {})
        said["colab"] = {"custom_widget_manager": {"url": _installed_url}}
    return message
