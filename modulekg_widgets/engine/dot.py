"""Graphviz DOT writer, the only one in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

Attributes: TypeAlias = Mapping[str, str]
Edge: TypeAlias = tuple[str, str, Attributes]  # from, to
STYLE = 'node [shape=box, style=rounded, fontname="sans-serif"];'
# no picture can carry control characters, lone surrogates and non-characters
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\0": "�"})


class Node(NamedTuple):
    name: str
    attributes: Attributes = MappingProxyType({})


class Cluster(NamedTuple):
    """A frame around nodes; Graphviz draws it when `name` starts with `cluster`."""

    name: str
    attributes: Attributes
    parts: Iterable[Node | Cluster]


def quoted(text: str) -> str:
    """Returns a text as a DOT string; unquoted words may only have letters, digits and `_`."""
    # in DOT a backslash starts an escape only within a label, and a newline may stand in a quoted string
    return f'"{text.translate(_ESCAPES)}"'


def quoted_label(text: str) -> str:
    """A label that Graphviz shows verbatim: within labels it decodes HTML entities, so these are escaped, too.

    The page's writer of what is on the canvas (js/src/core/export/dot.ts) writes its labels alike.
    """
    lines = _UNPRINTABLE.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")
    return quoted(lines.replace("&", "&amp;"))


def digraph(name: str, parts: Iterable[Node | Cluster], edges: Iterable[Edge], head: str = STYLE) -> Iterator[str]:
    """The lines of a directed graph; names and the values of attributes are words or `quoted`."""
    yield f"digraph {name} {{"
    yield f"  {head}"
    yield from _statements(parts)
    for start, end, attributes in edges:
        yield f"  {start} -> {end}{_bracketed(attributes)};"
    yield "}"


def _statements(parts: Iterable[Node | Cluster]) -> Iterator[str]:
    waiting = [iter(parts)]  # clusters may lie deeper in each other than Python calls itself
    while waiting:
        part = next(waiting[-1], None)
        if part is None:
            waiting.pop()
            if waiting:
                yield "}"
        elif isinstance(part, Cluster):
            yield " ".join([f"subgraph {part.name} {{", *(f"{key}={value};" for key, value in part.attributes.items())])
            waiting.append(iter(part.parts))
        else:
            yield f"  {part.name}{_bracketed(part.attributes)};"


def _bracketed(attributes: Attributes) -> str:
    return f" [{', '.join(f'{key}={value}' for key, value in attributes.items())}]" if attributes else ""
