"""Build function of hatch-jupyter-builder: makes the prebuilt extension, and only when it is not up to date."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
JS = ROOT / "js"
PACKAGE = ROOT / "modulekg_widgets"
OUTPUTS = (PACKAGE / "labextension", PACKAGE / "nbextension", PACKAGE / "static")
REQUIRED = (
    PACKAGE / "labextension" / "package.json",
    PACKAGE / "nbextension" / "extension.js",
    PACKAGE / "nbextension" / "index.js",
    PACKAGE / "static" / "marimo.js",
    PACKAGE / "static" / "standalone.js",
)
STAMP = PACKAGE / "static" / ".stamp"
# what scripts/generate.mjs reads outside of js/
READ = (
    PACKAGE / "engine" / "palette.json",
    PACKAGE / "engine" / "file_formats" / "format_tables.json",
    PACKAGE / "widgets" / "pages" / "page.html",
)
NODE_MINIMUM = 20
# folders and files that builds and npm leave in js/
NOT_SOURCES = {"node_modules", "lib", "dist", "LICENSE", "coverage", "generated", "__pycache__"}


def build(target_name: str, version: str) -> None:
    """Build the extension with npm, unless the outputs are those of exactly these sources."""
    # an sdist carries outputs and stamp, so that it installs without Node; edited sources are always rebuilt
    if up_to_date():
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    npm = find_npm(path)
    for folder in (*OUTPUTS, JS / "lib", JS / "dist"):
        shutil.rmtree(folder, ignore_errors=True)
    run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], path)
    run([npm, "run", "build"], path)
    for file in REQUIRED:
        if not file.is_file():
            stop(f"`npm run build` in js/ did not write {file.relative_to(ROOT).as_posix()}.")
    STAMP.write_text(digest(), encoding="ascii")


def up_to_date() -> bool:
    """Whether all outputs are there and belong to the sources that are there."""
    if not all(file.is_file() for file in (*REQUIRED, STAMP)):
        return False
    return STAMP.read_text(encoding="ascii").strip() == digest()


def digest() -> str:
    """Hex digest of the names and contents of all sources and outputs."""
    state = hashlib.sha256()
    for file in sorted((*source_files(), *output_files()), key=lambda file: file.relative_to(ROOT).as_posix()):
        state.update(file.relative_to(ROOT).as_posix().encode() + b"\0")
        state.update(hashlib.sha256(file.read_bytes()).digest())
    return state.hexdigest()


def source_files() -> Iterator[Path]:
    yield from READ
    for folder, folders, names in os.walk(JS):
        folders[:] = [name for name in folders if name not in NOT_SOURCES]
        sources = [name for name in names if name not in NOT_SOURCES and not name.endswith(".tsbuildinfo")]
        yield from (Path(folder, name) for name in sources)


def output_files() -> Iterator[Path]:
    for folder in OUTPUTS:
        yield from (file for file in folder.rglob("*") if file.is_file() and file != STAMP)


def find_npm(path: str) -> str:
    """Path of npm, or the end of the build with one sentence."""
    node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
    if node is None or npm is None:
        missing = "Node.js was not found" if node is None else "npm was not found"
        stop(f"{missing}: building modulekg-widgets from source needs {needed()}.")
    found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    major = re.match(r"v(\d+)", found)
    if major is None or int(major[1]) < NODE_MINIMUM:
        stop(f"Node.js {found or '(broken)'} is too old: building modulekg-widgets from source needs {needed()}.")
    return npm


def needed() -> str:
    return f"Node.js {NODE_MINIMUM} or newer with npm (a wheel of modulekg-widgets needs neither)"


def run(command: list[str], path: str) -> None:
    code = subprocess.run(command, cwd=JS, env={**os.environ, "PATH": path}, check=False).returncode
    if code:
        stop(f"`npm {' '.join(command[1:])}` in js/ failed with exit code {code}: its messages stand above.")


def stop(sentence: str) -> NoReturn:
    """End the build with one sentence."""
    # not an ordinary exception: the build front ends would print its traceback around the sentence
    raise SystemExit(sentence)
