"""The docstrings that users read: what `mk` reaches, and what a docstring in numpydoc form lacks."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import modulekg_widgets as mk
from modulekg_widgets.engine import errors

PACKAGE = "modulekg_widgets"
NAMESPACES = ("monitoring", "pruning", "rewrite")
HEADING = re.compile(r"^([A-Z][\w ]+)\n(-{3,})$", re.MULTILINE)
FIELD = re.compile(r"^(\S.*?)(?: : .*)?$")


def public() -> dict[str, Any]:
    """Every function, class and public method that `mk` reaches, by the name that a user writes."""
    found: dict[str, Any] = {}
    for name in mk.__all__:
        value = getattr(mk, name)
        if inspect.ismodule(value):
            found |= {f"mk.{name}.{inner}": getattr(value, inner) for inner in value.__all__}
        else:
            found[f"mk.{name}"] = value
    found = {name: value for name, value in found.items() if callable(value)}
    for name, value in list(found.items()):
        if isinstance(value, type) and not issubclass(value, Exception):
            found |= {f"{name}.{method}": member for method, member in methods(value).items()}
    return found


def methods(cls: type) -> dict[str, Any]:
    """The public methods and properties of a class that this package defines, and no library's base class does."""
    own = [base for base in reversed(cls.__mro__) if base.__module__.partition(".")[0] == PACKAGE]
    others = [base for base in cls.__mro__ if base not in own]
    found: dict[str, Any] = {}
    for base in own:
        for name, member in vars(base).items():
            if not name.startswith("_") and not _says_the_same(found.get(name), member):
                found[name] = member
    kinds = (FunctionType, classmethod, staticmethod, property)
    return {
        name: member
        for name, member in found.items()
        if isinstance(member, kinds) and not any(hasattr(base, name) for base in others)
    }


def _says_the_same(above: Any, member: Any) -> bool:
    """Whether a method without a docstring is described by the one that it replaces."""
    is_pair = inspect.isfunction(above) and inspect.isfunction(member) and not member.__doc__
    return is_pair and parameters(above) == parameters(member)


# ------------------------------------------------------------------ numpydoc


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring by title; what stands before the first is that of ""."""
    headings = [found for found in HEADING.finditer(text) if len(found[1]) == len(found[2])]
    ends = [*(found.start() for found in headings[1:]), len(text)]
    first = headings[0].start() if headings else len(text)
    return {"": text[:first].strip()} | {
        found[1]: text[found.end() : end].strip("\n") for found, end in zip(headings, ends, strict=False)
    }


def fields(section: str) -> list[str]:
    """The names that a section lists; `args, kwargs : …` is two."""
    heads = [line for line in section.splitlines() if line and not line[0].isspace()]
    names = [found[1] for line in heads if (found := FIELD.match(line))]
    return [name for listed in names for name in re.split(r",\s*", listed)]


def parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters as numpydoc writes them, without the instance."""
    signs = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(function).parameters.values()
    names = [signs.get(parameter.kind, "") + parameter.name for parameter in found]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def complaints(name: str, value: Any) -> list[str]:
    """What the docstring of something public lacks, as sentences."""
    if isinstance(value, property):
        return [] if inspect.getdoc(value) else [f"{name} has no docstring"]
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    text = vars(function).get("__doc__") if isinstance(function, type) else function.__doc__
    if not text:
        return [f"{name} has no docstring of its own"]
    found = sections(inspect.cleandoc(text))
    if isinstance(function, type):
        return list(_of_class(name, function, found))
    return [*_of_function(name, function, found), *_of_raises(name, function, found)]


def _of_text(name: str, found: dict[str, str]) -> Iterator[str]:
    summary = found[""].partition("\n\n")[0]
    if not summary.endswith((".", ":")):
        yield f"{name} does not begin with a sentence: {summary[:60]!r}"
    if not is_method(name) and ">>> " not in found.get("Examples", ""):
        yield f"{name} has no example"


def is_method(name: str) -> bool:
    """Whether a public name is one of a class: its example may stand at the class."""
    return name.count(".") > (2 if name.split(".")[1] in NAMESPACES else 1)


def _of_class(name: str, cls: type, found: dict[str, str]) -> Iterator[str]:
    if issubclass(cls, Exception):
        return  # its sentence says when it is raised
    yield from _of_text(name, found)
    if "Attributes" in found and "Parameters" not in found:
        return  # nobody constructs one
    listed = fields(found.get("Parameters", ""))
    wanted = [] if cls.__init__ is object.__init__ else parameters(cls.__init__)
    if wanted != listed:
        yield f"{name} lists the parameters {listed}, it takes {wanted}"


def _of_function(name: str, function: Callable[..., Any], found: dict[str, str]) -> Iterator[str]:
    yield from _of_text(name, found)
    listed, wanted = fields(found.get("Parameters", "")), parameters(function)
    if listed != wanted:
        yield f"{name} lists the parameters {listed}, it takes {wanted}"
    returned = inspect.signature(function).return_annotation
    is_plain = is_method(name) and not wanted  # its sentence says what it gives
    gives = returned not in (None, "None", inspect.Signature.empty, "NoReturn")
    if gives and not is_plain and not {"Returns", "Yields"} & set(found):
        yield f"{name} does not say what it returns"


def _of_raises(name: str, function: Callable[..., Any], found: dict[str, str]) -> Iterator[str]:
    listed = fields(found.get("Raises", ""))
    known = vars(sys.modules[function.__module__])
    for error in listed:
        if not (hasattr(errors, error) or hasattr(builtins, error) or error in known):
            yield f"{name} says that it raises {error}, which does not exist"
    for error in sorted(raised(function) - set(listed)):
        yield f"{name} raises {error} and does not say so"


def raised(function: Callable[..., Any]) -> set[str]:
    """The errors that the body of a function raises by name; what it catches itself is none of them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    caught = {
        each for node in ast.walk(tree) if isinstance(node, ast.Try) for part in node.body for each in ast.walk(part)
    }
    found = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node not in caught]
    made = [each.func if isinstance(each, ast.Call) else each for each in found]
    return {each.id for each in made if isinstance(each, ast.Name) and each.id.endswith("Error")}
