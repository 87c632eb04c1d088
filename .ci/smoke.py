"""Tries each package of a release in an environment of its own: `python .ci/smoke.py dist` tries all three there.

With `--borrow` an environment sees the packages of the Python that runs this, rather than downloading torch and others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

from archives import NPM, PATTERNS, SDIST, WHEEL

ROOT = Path(__file__).resolve().parents[1]
NAME = "modulekg-widgets"
LABEXTENSION = Path("share/jupyter/labextensions") / NAME
IMPORTED = """
import modulekg_widgets as mk
from torch import nn
mk.ModelGraph(nn.Linear(2, 2))
print(mk.__version__, mk.__file__)
"""


class SmokeError(Exception):
    """A package does not do what it is for; its text says which, what was found, and what to do."""


def smoke(file: Path, version: str, borrow: bool) -> None:
    """Try one package of `version`: a wheel, an sdist or npm's."""
    tries = {WHEEL: try_wheel, SDIST: try_sdist, NPM: try_npm}
    kind = next((kind for kind, pattern in PATTERNS.items() if file.match(pattern)), None)
    if kind is None:
        raise SmokeError(f"{file.name} is not a wheel, sdist or npm package: move it out of the folder.")
    with tempfile.TemporaryDirectory() as scratch:
        tries[kind](file, version, Path(scratch), borrow)


def packages_in(folder: Path) -> list[Path]:
    """The files of a folder that has packages of each kind."""
    for kind, pattern in PATTERNS.items():
        if not any(folder.glob(pattern)):
            raise SmokeError(f"{folder} has no {kind}: build all of them, with `python .ci/release.py build`.")
    return sorted(folder.iterdir())


def try_wheel(file: Path, version: str, scratch: Path, borrow: bool) -> None:
    """It installs without building, imports and makes a widget; the command answers, JupyterLab lists it as enabled."""
    python = environment(scratch / "venv", borrow)
    install(python, [file] if borrow else [file, "jupyterlab"], ["--no-deps"] if borrow else [])
    expect_widget(file, version, scratch, python)
    said = run([python.with_name("modulekg"), "--version"], cwd=scratch).split()[-1]
    expect(file, "`modulekg --version`", version, said)
    listed = run([python, "-m", "jupyterlab.labextensions", "list"], cwd=scratch)
    lines = [line for line in listed.splitlines() if f"{NAME} v{version}" in line]
    if not lines or "enabled" not in lines[0] or "OK" not in lines[0]:
        raise SmokeError(
            f"{file.name}: `jupyter labextension list` does not say `{NAME} v{version} enabled OK`:\n{listed}"
        )


def expect_widget(file: Path, version: str, scratch: Path, python: Path) -> None:
    """What was installed imports and makes a widget; `scratch` is a folder where no checkout can be imported."""
    found, place = run([python, "-c", IMPORTED], cwd=scratch).split()[-2:]
    expect(file, "mk.__version__", version, found)
    if scratch.resolve() not in Path(place).resolve().parents:
        raise SmokeError(f"{file.name}: `import modulekg_widgets` found {place}, which is not what was installed.")


def try_sdist(file: Path, version: str, scratch: Path, borrow: bool) -> None:
    """It installs where there is no Node, with all that the front end is made of, and makes a widget."""
    python = environment(scratch / "venv", borrow)
    without_node = {**os.environ, "PATH": str(python.parent)}
    install(python, [file], ["--no-deps", "--no-build-isolation"] if borrow else [], without_node)
    expect_widget(file, version, scratch, python)
    package = json.loads((scratch / "venv" / LABEXTENSION / "package.json").read_text("utf-8"))
    expect(file, "the version of its lab extension", version, package["version"])
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    for part in (site / "modulekg_widgets/static/standalone.js", amd_of(scratch / "venv")):
        if not part.is_file():
            raise SmokeError(f"{file.name}: {part.name} was not installed: see [tool.hatch.build] in pyproject.toml.")


def try_npm(file: Path, version: str, scratch: Path, borrow: bool) -> None:
    """Its AMD module loads beside @jupyter-widgets/base alone, and has each model and view that Python names."""
    if not (ROOT / "js/node_modules/jsdom").is_dir():
        raise SmokeError(f"{file.name}: the page to try it in is not installed: run `npm --prefix js ci`.")
    with tarfile.open(file) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(scratch)
    package = scratch / "package"
    expect(file, "its version", version, json.loads((package / "package.json").read_text("utf-8"))["version"])
    exported = json.loads(run(["node", ROOT / "js/scripts/load_amd.mjs", package / "dist/index.js"]))
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "modulekg_widgets/widgets").rglob("*.py"))
    named = set(re.findall(r'_(?:model|view)_name = Unicode\("(\w+)"\)', sources))
    if missing := named - set(exported):
        raise SmokeError(f"{file.name}: dist/index.js lacks {', '.join(sorted(missing))}: see js/src/nbextension.ts.")


def environment(folder: Path, borrow: bool) -> Path:
    """The Python of a new virtual environment."""
    run([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    if borrow:
        site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
        (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    return python


def install(python: Path, what: list[str | Path], options: list[str], environ: dict[str, str] | None = None) -> None:
    # what is borrowed counts as installed, and this very package may be among it
    run([python, "-m", "pip", "install", "--quiet", "--ignore-installed", *options, *what], environ=environ)


def amd_of(prefix: Path) -> Path:
    return prefix / "share/jupyter/nbextensions" / NAME / "index.js"


def expect(file: Path, what: str, wanted: str, found: str) -> None:
    if found != wanted:
        raise SmokeError(f"{file.name}: {what} is {found!r}, not {wanted!r}: build it again from a clean checkout.")


def run(command: list[str | Path], cwd: Path = ROOT, environ: dict[str, str] | None = None) -> str:
    """What `command` prints; `SmokeError` with all of it where it fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise SmokeError(f"{command[0]} was not found: install it, or put it on the PATH.") from None
    if done.returncode:
        words = " ".join(str(part) for part in command)
        raise SmokeError(f"`{words}` ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Try each package of a release in an environment of its own.")
    parser.add_argument("packages", type=Path, nargs="+", help="files, or folders of them")
    parser.add_argument("--borrow", action="store_true", help="see the packages of this Python; download none")
    arguments = parser.parse_args()
    if not shutil.which("node"):
        parser.error("Node.js was not found: the AMD module is tried with it.")
    version = json.loads((ROOT / "js/package.json").read_text("utf-8"))["version"]
    try:
        files = [file for path in arguments.packages for file in (packages_in(path) if path.is_dir() else [path])]
        for file in files:
            smoke(file, version, arguments.borrow)
            print(f"{file.name}: ok", flush=True)
    except SmokeError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
