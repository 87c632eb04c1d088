"""Builds a release, and refuses one that is none: `python .ci/release.py build`, then `python .ci/release.py check`.

`build` writes the sdist, the wheel and the npm package to dist/ and tries each; `check` compares what states a version,
and asks for a clean, tagged commit. Neither uploads anything. CONTRIBUTING.md has the order of a release.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import smoke

ROOT = Path(__file__).resolve().parents[1]
JS = ROOT / "js"
DIST = ROOT / "dist"
KINDS = {"wheel": "*.whl", "sdist": "*.tar.gz", "npm package": "*.tgz"}
VERSION = re.compile(r"\d+\.\d+\.\d+")
SECTION = re.compile(r"^## \[(?P<version>[^\]]*)\](?: – (?P<date>.*))?$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\d")
AGAIN = "run `python .ci/release.py build` again"
SHOWN = 5  # files of a tree that is not clean


# ------------------------------------------------------------------ what is wrong, as sentences


def problems() -> Iterator[str]:
    """All that forbids to release what is in dist/ from this commit."""
    yield from of_sources()
    yield from of_packages()
    yield from of_commit()


def of_sources() -> Iterator[str]:
    """Where the sources state another version than js/package.json, or the changes are not those of a release."""
    version = stated_version()
    if not VERSION.fullmatch(version):
        yield f"js/package.json: version {version!r} is not like 1.2.3, the only form that Python and npm write alike."
    lock = json.loads((JS / "package-lock.json").read_text("utf-8"))
    yield from differs("js/package-lock.json", lock["version"], version, "run `npm --prefix js install`")
    yield from differs('js/package-lock.json, packages[""]', lock["packages"][""]["version"], version, "as above")
    cited = re.search(r"^version:\s*[\"']?([^\"'\s]+)", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    if cited:
        yield from differs("CITATION.cff", cited[1], version, "state it there, or leave it out")
    section = SECTION.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    if section is None:
        yield "CHANGELOG.md: there is no section `## [1.2.3] – 2026-01-31`: write what has changed."
        return
    yield from differs("CHANGELOG.md, its newest section", section["version"], version, "write what has changed")
    if not DATE.fullmatch(section["date"] or ""):
        yield f"CHANGELOG.md: its newest section has {section['date']!r} for a date: write the day, as 2026-01-31."


def of_packages() -> Iterator[str]:
    """Which packages are missing in dist/, are of another version, or do not belong together."""
    version = stated_version()
    found = {kind: sorted(DIST.glob(pattern)) for kind, pattern in KINDS.items()}
    for kind, files in found.items():
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            yield f"dist/: there has to be one {kind}, and there is: {names}: {AGAIN}."
    if any(len(files) != 1 for files in found.values()):
        return
    wheel, sdist, package = (files[0] for files in found.values())
    for file, place, stated in statements(wheel, sdist, package):
        yield from differs(f"dist/{file.name}, {place}", stated, version, AGAIN)
    if amd_in_wheel(wheel) != member(package, "package/dist/index.js"):
        yield f"dist/{package.name}: its dist/index.js is not the AMD module of {wheel.name}: {AGAIN}."


def of_commit() -> Iterator[str]:
    """Why the commit is none to release: changes beside it, no tag, a repository that npm would not believe."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:SHOWN]) + (", …" if len(changed) > SHOWN else "")
        yield f"the working tree is not clean ({names}): commit what belongs to the release, and remove the rest."
    tag, tags = f"v{stated_version()}", git("tag", "--points-at", "HEAD").split()
    if tag not in tags:
        there = f"it has {', '.join(tags)}" if tags else "it has none"
        yield f"this commit has no tag {tag} ({there}): check out the tag, or set it with `git tag {tag}`."
    if home := os.environ.get("GITHUB_REPOSITORY"):
        stated = json.loads((JS / "package.json").read_text("utf-8")).get("repository", {}).get("url", "")
        if not stated.removesuffix(".git").endswith(f"/{home}"):
            yield (
                f"js/package.json: repository.url is {stated!r}, and npm proves where a package was built only if it "
                f"names {home}: state it there."
            )


def differs(place: str, found: str, wanted: str, help_: str) -> Iterator[str]:
    if found != wanted:
        yield f"{place}: version {found!r} is not {wanted!r} of js/package.json: {help_}."


# ------------------------------------------------------------------ what is stated where


def stated_version() -> str:
    return json.loads((JS / "package.json").read_text("utf-8"))["version"]


def statements(wheel: Path, sdist: Path, package: Path) -> Iterator[tuple[Path, str, str]]:
    """(package, place in it, version that is stated there)."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        lab = next(name for name in names if name.endswith(f"{smoke.LABEXTENSION.as_posix()}/package.json"))
        yield wheel, "its metadata", header(archive.read(metadata))
        yield wheel, "its lab extension", json.loads(archive.read(lab))["version"]
    top = sdist.name.removesuffix(".tar.gz")
    yield sdist, "its metadata", header(member(sdist, f"{top}/PKG-INFO"))
    for place in ("js/package.json", "modulekg_widgets/labextension/package.json"):
        yield sdist, place, json.loads(member(sdist, f"{top}/{place}"))["version"]
    yield package, "its package.json", json.loads(member(package, "package/package.json"))["version"]


def header(metadata: bytes) -> str:
    return str(email.message_from_bytes(metadata)["Version"])


def amd_in_wheel(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        ending = f"share/jupyter/nbextensions/{smoke.NAME}/index.js"
        return archive.read(next(name for name in archive.namelist() if name.endswith(ending)))


def member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as content:
        file = content.extractfile(name)
        assert file is not None
        return file.read()


def git(*arguments: str) -> str:
    return smoke.run(["git", *arguments])


# ------------------------------------------------------------------ building


def build(borrow: bool, tried: bool) -> None:
    """Write the three packages to dist/, with the commit's time in them, and try each."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", git("log", "-1", "--format=%ct").strip())
    shutil.rmtree(DIST, ignore_errors=True)
    isolation = ["--no-isolation"] if borrow else []
    step([sys.executable, "-m", "build", *isolation, "--outdir", str(DIST), str(ROOT)])
    if not (JS / "node_modules").is_dir():
        step(["npm", "--prefix", str(JS), "ci", "--no-audit", "--no-fund"])
    # .npmrc keeps npm from running scripts, those of other packages at an installation, and ours when it packs
    step(["npm", "run", "prepack"], JS)
    pack(JS, DIST)
    for file in sorted(DIST.iterdir()) if tried else ():
        smoke.smoke(file, stated_version(), borrow)
        print(f"{file.name}: ok", flush=True)


def pack(folder: Path, into: Path) -> None:
    """Write npm's package of a folder, the same bytes whoever may read its files."""
    (told,) = json.loads(smoke.run(["npm", "pack", "--dry-run", "--json", "--loglevel=error"], folder))
    for file in told["files"]:
        (folder / file["path"]).chmod(0o644)  # npm keeps the rights that the umask of a checkout has left
    step(["npm", "pack", "--loglevel=error", "--pack-destination", str(into)], folder)


def step(command: list[str], folder: Path = ROOT) -> None:
    print("+", *command, flush=True)
    try:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise smoke.SmokeError(f"{command[0]} was not found: building a release needs Node.js with npm.") from None
    if done.returncode:
        raise smoke.SmokeError(
            f"`{' '.join(command)}` ended with exit code {done.returncode}: its messages stand above."
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a release, and refuse one that is none. Uploads nothing.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="refuse what is in dist/, unless it is a release of this commit")
    builder = commands.add_parser("build", help="write sdist, wheel and npm package to dist/, and try each")
    builder.add_argument("--borrow", action="store_true", help="build and try with the packages of this Python")
    builder.add_argument("--untried", action="store_true", help="build only")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build(arguments.borrow, not arguments.untried)
            return 0
        found = list(problems())
    except smoke.SmokeError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(f"release: {problem}", file=sys.stderr)
    if not found:
        print(f"modulekg-widgets {stated_version()} can be released.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
