"""Nets that several tests share, small ones of a structure that their names say, and those of libraries by name.

A net that one test alone is about stands in that test. Parameters are made in the order of the attributes, so that a
seed gives the same numbers everywhere.
"""

from __future__ import annotations

from typing import Any

import torch


def seeded(build: Any) -> Any:
    """Build a net under a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()
