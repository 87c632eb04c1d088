"""The examples of all families, and of what torch takes apart into operators of several; a new file is found here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

FAMILIES = {
    path.stem: import_module(f"axes.rules.examples.{path.stem}")
    for path in sorted((Path(__file__).parent / "examples").glob("[!_]*.py"))
}
APART = ("composites", "sequences")  # of no one operator
EXAMPLES = [of for name, family in FAMILIES.items() if name not in APART for of in family.EXAMPLES]
COMPOSITES = [of for name in APART for of in FAMILIES[name].EXAMPLES]
