"""What a saved page has in the kernel's place: the messages that a kernel would send, and its answers, by widget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from modulekg_widgets.engine.registry import Registry


class Message(NamedTuple):
    """A message of the kernel: its JSON content and its binary buffers."""

    content: dict[str, Any]
    buffers: Iterable[bytes]


class Answer(NamedTuple):
    """What comes back for a message that has all of `question`: that message with `content` over it.

    Without buffers of its own those of the message come back.
    """

    question: dict[str, Any]
    content: dict[str, Any]
    buffers: Iterable[bytes] | None = None


# each widget's own module registers, by the name of the class; of the answers the first that fits counts
updates: Registry[Callable[[Any], Iterable[Message]]] = Registry("widget")
answers: Registry[Callable[[Any], Iterable[Answer]]] = Registry("widget")
