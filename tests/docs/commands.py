"""The commands of documents and workflows: whether all that they name is there, without running them."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from modulekg_widgets import cli
from project_file import EXTRAS, PROJECT, ROOT

OPTIONS_WITH_VALUES = {
    "pip": {"--constraint"},
    "npm": {"--prefix"},
    "pytest": {"-n", "--dist", "-k", "-m"},
    "sphinx-build": {"-b", "-D"},
}
# programs of the machine, which do nothing to this repository
ELSEWHERE = {".", "apt-get", "cp", "echo", "git", "jupyter", "ls", "python3", "rm", "xargs"}
OWN = rf"(?:\.|{PROJECT['project']['name']})(?:\[([\w,]+)\])?"  # this package, as pip is asked for it, with its extras
SETTING = re.compile(r"\w+=")


def commands(script: str) -> Iterator[tuple[Path, list[str]]]:
    """The words of each command of a script, and the folder that it is called in; comments are none."""
    for line in script.splitlines():
        folder, words = ROOT, []
        # `(cd folder && …)` holds for its line alone, as all that documents have does
        for token in [*tokens(line), "&&"]:
            if token in ("&&", "|", "(", ")"):
                if words[:1] == ["cd"]:
                    folder = folder / words[1]
                elif words:
                    yield folder, list(itertools.dropwhile(SETTING.match, words))
                words = []
            else:
                words.append(token)


def tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def complaint(words: list[str], folder: Path = ROOT) -> str | None:
    """What is wrong with a command; None where all that it names is there."""
    program, *rest = words
    if program in ELSEWHERE:
        return None
    if program == "pip":
        return of_pip(rest)
    if program == "npm":
        return of_npm(rest)
    if program == "modulekg":
        return of_modulekg(rest)
    if program in ("python", "bash", "node"):
        return of_script(rest, folder)
    if program not in ("pytest", "sphinx-build", "ruff", "pyright"):
        return f"{program} is not known to the tests"
    # ruff begins with its own command, and sphinx-build ends with what it makes
    named = operands(program, rest)
    read = {"ruff": named[1:], "sphinx-build": named[:1]}.get(program, named)
    paths = read + [word.partition("=")[2] for word in rest if word.startswith("--ignore=")]
    return next((f"there is no {path}" for path in paths if not (folder / path).exists()), None)


def operands(program: str, words: list[str]) -> list[str]:
    """What is no option, nor the value of one."""
    valued = OPTIONS_WITH_VALUES.get(program, set())
    return [
        word for at, word in enumerate(words) if not word.startswith("-") and (at == 0 or words[at - 1] not in valued)
    ]


def of_pip(words: list[str]) -> str | None:
    if "--constraint" in words and not (ROOT / words[words.index("--constraint") + 1]).is_file():
        return "there is no such file of constraints"
    for word in operands("pip", words)[1:]:
        if not re.fullmatch(OWN, word):
            if word not in {Requirement(one).name for one in EXTRAS["test"]}:
                return f"{word} is not among what the tests need"
        elif unknown := unknown_extras(word):
            return f"there is no extra {unknown[0]}"
    return None


def unknown_extras(text: str) -> list[str]:
    """The extras of this package that a text names, and that do not exist."""
    named = re.findall(rf"(?<!\w){OWN}", text)
    return [f"[{extra}]" for names in filter(None, named) for extra in names.split(",") if extra not in EXTRAS]


def of_npm(words: list[str]) -> str | None:
    scripts = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))["scripts"]
    verb, *named = operands("npm", words)
    if verb == "run":
        return None if named[0] in scripts else f"there is no script {named[0]!r}"
    if verb == "test":
        return next((f"there is no {path}" for path in named if not (ROOT / "js" / path).exists()), None)
    return None if verb in ("ci", "publish") else f"npm {verb} is not known to the tests"


def of_modulekg(words: list[str]) -> str | None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.parser().parse_args(words)
    except SystemExit as end:
        return said.getvalue().splitlines()[-1] if end.code else None  # of `--help` it is 0
    return None


def of_script(words: list[str], folder: Path) -> str | None:
    """Of a program in a file, or of a module of Python."""
    if words[0] != "-m":
        return None if (folder / words[0]).is_file() else f"there is no {words[0]}"
    module = folder.joinpath(*words[1].split("."))
    places = (module.with_suffix(".py"), module / "__main__.py")
    return None if any(place.is_file() for place in places) else f"there is no module {words[1]}"
