"""Runs the examples of documents and docstrings: `python tests/architecture/examples.py [docs/axes.md mk.plan …]`.

A process of its own, for examples register metrics and operators. Without arguments all of them run.
"""

from __future__ import annotations

import doctest
import inspect
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture.docstrings import public
from architecture.documents import ROOT, blocks

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def failures(examples: str, name: str) -> str:
    """What examples print otherwise than they show; empty where all is as shown."""
    test = doctest.DocTestParser().get_doctest(examples, {"__name__": "__main__"}, name, name, 0)
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=messages.append)
    return "".join(messages)


def texts() -> dict[str, str]:
    """The examples by document, and by public name."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {
        path.relative_to(ROOT).as_posix(): "\n".join(blocks(path.read_text("utf-8"), "pycon")) for path in documents
    }
    return found | {name: inspect.getdoc(value) or "" for name, value in public().items()}


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
