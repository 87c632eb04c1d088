"""The reference: what is named in a block `api` is described from its docstring, with the methods that are ours.

A block `api` has a name a line, as users write it (`mk.trace`) or, of what only comes as a result, its whole path.
It becomes a table of all of them, and the docstring of each. In docstrings, `mk.trace` or `cut` in single backticks
is a link where there is such a name, and code where there is none.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

PACKAGE = "modulekg_widgets"
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def whole(name: str) -> str:
    """A name with its package: `mk.trace` becomes `modulekg_widgets.trace`."""
    return re.sub(r"^mk\b", PACKAGE, name)


def short(name: str) -> str:
    """A name as users write it; of what `mk` does not reach the last part."""
    rest = name.removeprefix(f"{PACKAGE}.")
    return rest.rpartition(".")[2] if rest.startswith(("engine.", "widgets.")) else f"mk.{rest}"


def found(name: str) -> Any:
    """What a whole name stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


def members(cls: type) -> list[str]:
    """The public methods, properties and attributes that classes of this package define, base classes first."""
    own = [base for base in reversed(cls.__mro__) if base.__module__.partition(".")[0] == PACKAGE]
    return list(dict.fromkeys(name for base in own for name, value in vars(base).items() if _is_described(name, value)))


def _is_described(name: str, member: Any) -> bool:
    is_method = inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)
    return is_method and not name.startswith("_") and bool(member.__doc__)


def description(name: str) -> list[str]:
    """The lines of reStructuredText that describe what a whole name stands for."""
    value = found(name)
    if inspect.ismodule(value):
        return [f".. py:module:: {name}", "", *(inspect.getdoc(value) or "").splitlines()]
    if isinstance(value, type):
        is_error = issubclass(value, BaseException)
        kind, listed = ("autoexception", []) if is_error else ("autoclass", members(value))
        return [f".. {kind}:: {name}", *([f"   :members: {', '.join(listed)}"] if listed else [])]
    if callable(value):
        return [f".. autofunction:: {name}"]
    return [f".. py:data:: {name}", f"   :type: {type(value).__name__}"]


def summary(name: str) -> str:
    """The first sentence of a docstring."""
    value = found(name)
    text = "" if isinstance(value, str | dict | tuple | frozenset) else inspect.getdoc(value) or ""
    return re.split(r"\n\s*\n|(?<=\.)\s", text.strip(), maxsplit=1)[0].replace("\n", " ").replace("|", r"\|")


class Api(SphinxDirective):
    """The block `api`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        names = [whole(line.strip()) for line in self.content if line.strip()]
        rows = [row for name in names for row in self._row(name)]
        table = [".. list-table::", "   :widths: 30 70", "   :class: api-table", "", *rows] if len(names) > 1 else []
        bodies = [line for name in names for line in ["", *description(name)]]
        return self._parsed([*table, *bodies])

    def _row(self, name: str) -> list[str]:
        role = "py:mod" if inspect.ismodule(found(name)) else "py:obj"
        return [f"   * - :{role}:`{short(name)} <{name}>`", f"     - {summary(name)}"]

    def _parsed(self, lines: list[str]) -> list[nodes.Node]:
        """What reStructuredText says: docstrings are written in it, the pages in Markdown."""
        source, host = self.get_source_info()[0], nodes.Element()
        block = ["```{eval-rst}", *lines, "```"]
        self.state.nested_parse(StringList(block, source=source), self.content_offset, host)
        return host.children


class Named(SphinxRole):
    """A text in single backticks: code, and a link where it names something of the reference."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        code = nodes.literal(self.rawtext, self.text, classes=["py"])
        if not NAME.fullmatch(self.text):
            return [code], []
        context = {key: self.env.ref_context.get(key) for key in ("py:module", "py:class")}
        options = {"reftype": "obj", "reftarget": whole(self.text), "refexplicit": False, "is_guess": True}
        link = addnodes.pending_xref(self.rawtext, code, refdomain="py", refdoc=self.env.docname, **options, **context)
        return [link], []


def plain_guess(_: Sphinx, __: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Node) -> nodes.Node | None:
    """A guess that leads nowhere is code, and nothing to warn of."""
    return content if node.get("is_guess") else None


def short_prefix(_: Sphinx, document: nodes.document) -> None:
    """Signatures begin as users write them: `mk.trace(…)`."""
    for prefix in document.findall(addnodes.desc_addname):
        whole_name = prefix.astext()
        is_reached = whole_name.startswith(PACKAGE) and not re.match(rf"{PACKAGE}\.(engine|widgets)\.", whole_name)
        text = whole_name.replace(PACKAGE, "mk", 1) if is_reached else ""
        if whole_name.startswith(PACKAGE):
            prefix.children = [nodes.Text(text)]


def escape_bars(_: Sphinx, __: str, ___: str, ____: Any, _____: Any, lines: list[str]) -> None:
    """Bars in prose are bars: |w| is no substitution of reStructuredText."""
    is_example = False
    for at, line in enumerate(lines):
        is_example = line.lstrip().startswith(">>>") or (is_example and bool(line.strip()))
        if not is_example:
            lines[at] = line.replace("|", r"\|")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("api", Api)
    app.add_role("named", Named())
    app.connect("missing-reference", plain_guess)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("doctree-read", short_prefix)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
