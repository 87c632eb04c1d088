"""The modules of tests/cases/nasty_modules.py, by name."""

from __future__ import annotations

from functools import cache

from torch import nn

from cases.nasty_modules import NASTY


@cache
def _built_once(name: str) -> nn.Module:
    return NASTY[name]["make"]()


def nasty_module(name: str) -> nn.Module:
    """A module of the cases; the one that takes seconds to build is built once, since no test changes it."""
    return _built_once(name) if name == "wide_100k" else NASTY[name]["make"]()


def forget_built() -> None:
    """Let go of the module that is built once."""
    _built_once.cache_clear()
