"""Texts that every machine with Python has: the sources and the docstrings of its standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
from functools import cache
from pathlib import Path

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__phello__", "config"}
SHORTEST = 30  # letters of a docstring


@cache
def source_files() -> list[Path]:
    """In the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [file for file in sorted(root.rglob("*.py")) if not LEFT_OUT & set(file.relative_to(root).parts)]


@cache
def docstrings() -> list[str]:
    """The first paragraphs of the docstrings of modules, classes and functions, each once, in an order by chance."""
    found: dict[str, None] = {}
    for file in source_files():
        try:
            tree = ast.parse(file.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if len(paragraph) >= SHORTEST:
                    found[paragraph] = None
    texts = list(found)
    random.Random(0).shuffle(texts)
    return texts
