"""Runs the blocks of code of documents, as a reader would: `python tests/docs/blocks.py [docs/start.md …]`.

Blocks of one document run in order, `python` and `pycon` alike, in one namespace, a process and an empty folder of
their own; without arguments those of all documents. So do `bash` blocks of nothing but `modulekg` commands; the
commands of others are looked at by commands.py. A `text` block behind one of `python` or `bash` is what that prints;
under `<!-- about -->` its numbers are of a training or a clock, and may be off by a quarter.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture import examples
from architecture.documents import ROOT, Fenced, documents, fenced
from docs.commands import commands
from modulekg_widgets import cli

ABOUT, OFF_BY = "<!-- about -->", 0.25
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
NOT_RUN = re.compile(r"^ *<!-- not run:(.*)-->$")


@dataclass(frozen=True)
class Block:
    """A block of code that is run, or is said not to be."""

    language: str
    code: str
    line: int  # of its fence
    reason: str | None = None  # why it is not run
    printed: str | None = None  # what the document says that it prints
    about: bool = False  # whether the numbers in it may be off


@dataclass(frozen=True)
class Outcome:
    """How the process of a document has ended, and what fails or was printed beside the blocks."""

    code: int
    text: str


def runnable(text: str) -> list[Block]:
    """The blocks of a document in `python` and `pycon`, and those in `bash` that call `modulekg` alone."""
    lines = text.splitlines()
    found = list(fenced(text))
    return [
        Block(block.info, block.body, block.line, reason_above(lines, block), *printed_by(lines, block, behind))
        for block, behind in zip(found, [*found[1:], None], strict=False)
        if block.info in ("python", "pycon") or is_ours(block)
    ]


def is_ours(block: Fenced) -> bool:
    """Whether a block has commands, and none but those of this package."""
    return block.info == "bash" and {words[0] for _, words in commands(block.body)} == {"modulekg"}


def reason_above(lines: list[str], block: Fenced) -> str | None:
    """Why a block is not run, as the comment above it says; None where there is no such comment."""
    found = NOT_RUN.match(lines[block.line - 2]) if block.line > 1 else None
    return found[1].strip() if found else None


def printed_by(lines: list[str], block: Fenced, behind: Fenced | None) -> tuple[str | None, bool]:
    """What a block prints, as the text behind it says (else None), and whether that is about."""
    if behind is None or block.info == "pycon" or behind.info != "text":
        return None, False
    between = [line.strip() for line in lines[block.end : behind.line - 1] if line.strip()]
    return (behind.body, bool(between)) if between in ([], [ABOUT]) else (None, False)


def run(document: Path) -> Outcome:
    """Run the blocks of a document in a process and an empty folder of their own.

    Processes are forks of one that has imported what nearly all need, which takes longer than most blocks.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["torchvision", "modulekg_widgets.widgets.workbench"])
    with tempfile.TemporaryDirectory() as folder:
        output, empty = Path(folder, "printed"), Path(folder, "empty")
        empty.mkdir()
        process = forks.Process(target=report, args=(document.resolve(), empty, output))
        process.start()
        process.join()
        return Outcome(process.exitcode or 0, output.read_text("utf-8", "replace") if output.exists() else "")


# ------------------------------------------------------------- in that process


def report(document: Path, folder: Path, output: Path) -> None:
    """Write what fails, and whatever is printed beside it; the exit code is 1 then."""
    os.chdir(folder)
    warnings.filterwarnings("ignore")
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    failed = first_failure(document)
    os.write(descriptor, failed.encode("utf-8", "replace"))
    sys.stdout.flush()
    os._exit(bool(failed))  # what threads of a block still do is not waited for


def first_failure(document: Path) -> str:
    """What the first block that fails prints; empty where all run."""
    page = ModuleType("__main__")  # as in a notebook, classes are of a module without a file
    sys.modules["__main__"] = page
    names = vars(page)
    names["display"] = display
    for block in runnable(document.read_text("utf-8")):
        if block.reason is None and (failed := failure(block, str(document), names)):
            return failed
    return ""


def failure(block: Block, name: str, names: dict[str, Any]) -> str:
    """What is wrong with a block that runs in `names`; empty where nothing is."""
    if block.language == "pycon":
        return examples.failures(block.code, name, names, block.line)
    printed, place = io.StringIO(), f"{name}, line {block.line}:\n"
    try:
        with contextlib.redirect_stdout(printed):
            if block.language == "bash":
                run_commands(block.code)
            else:
                run_cell("\n" * block.line + block.code, name, names)
    except BaseException:  # noqa: BLE001 - whatever a block raises, `SystemExit` among it, is told
        return place + traceback.format_exc()
    differs = otherwise(block, printed.getvalue()) if block.printed is not None else ""
    return place + differs if differs else ""


def run_cell(code: str, name: str, names: dict[str, Any]) -> None:
    """Run code as a notebook does: the value of a last expression is displayed."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if isinstance(last, ast.Expr):
        display(eval(compile(ast.Expression(last.value), name, "eval"), names))


def run_commands(script: str) -> None:
    """Run commands of this package; what they answer, as that two files differ, is no failure, an error is."""
    for _, words in commands(script):
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            code = cli.main(words[1:])
        if code not in (0, 1):
            raise RuntimeError(f"`{' '.join(words)}` ends with {code}: {told.getvalue()}")


def display(*values: Any) -> None:
    """Show values as IPython does: a widget makes its picture, of all else the text is printed."""
    for value in values:
        if hasattr(value, "_repr_mimebundle_"):
            value._repr_mimebundle_()
        elif value is not None:
            print(repr(value))


def otherwise(block: Block, printed: str) -> str:
    """How what was printed differs from what a document shows; empty where it does not."""
    shown, checker = block.printed or "", doctest.OutputChecker()
    if block.about and are_near(shown, printed):
        printed = shown
    if checker.check_output(shown, printed, examples.FLAGS):
        return ""
    return checker.output_difference(doctest.Example("", shown), printed, examples.FLAGS)


def are_near(shown: str, printed: str) -> bool:
    """Whether two texts have the same words and, one by one, numbers that differ by a quarter at most."""
    texts = [NUMBER.sub("0", text).split() for text in (shown, printed)]
    numbers = [[float(found.replace(",", "")) for found in NUMBER.findall(text)] for text in (shown, printed)]
    pairs = zip(*numbers, strict=False)
    return texts[0] == texts[1] and all(abs(a - b) <= OFF_BY * max(abs(a), abs(b)) for a, b in pairs)


def main(names: list[str]) -> int:
    """Run the documents of these names, or all; prints seconds and what fails, and gives how many failed."""
    failed = 0
    for document in [Path(name) for name in names] or documents():
        begin = time.perf_counter()
        done = run(document)
        failed += done.code != 0
        seconds = f"{time.perf_counter() - begin:.1f} s"
        print(document.resolve().relative_to(ROOT), seconds, done.text if done.code else "")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
