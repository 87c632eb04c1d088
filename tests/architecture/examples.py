"""Runs the examples of docstrings: `python tests/architecture/examples.py [mk.plan …]`.

A process of its own, for examples register metrics and operators. Without arguments all of them run. Those of documents
are run by tests/docs/blocks.py.
"""

from __future__ import annotations

import doctest
import inspect
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture.docstrings import public

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def failures(examples: str, name: str, names: dict[str, Any] | None = None, line: int = 0) -> str:
    """What examples print otherwise than they show; empty where all is as shown.

    `names` is where they run, and where what they define stays; `line` is that of their file before them.
    """
    names = {"__name__": "__main__"} if names is None else names
    test = doctest.DocTestParser().get_doctest(examples, names, name, name, line)
    test.globs = names  # it has made a copy
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=messages.append, clear_globs=False)
    return "".join(messages)


def texts() -> dict[str, str]:
    """The examples by public name."""
    return {name: inspect.getdoc(value) or "" for name, value in public().items()}


def main(names: list[str]) -> int:
    """Run the examples of `names`, or all; prints what fails, and gives how many did."""
    warnings.filterwarnings("ignore")
    found = {
        name: failures(text, name) for name, text in texts().items() if ">>>" in text and name in (names or [name])
    }
    print("".join(found.values()), end="")
    failed = [name for name, messages in found.items() if messages]
    print(f"{len(found)} run, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
