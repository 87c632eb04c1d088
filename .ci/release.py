"""Builds a release, and refuses one that is none: `python .ci/release.py build`, then `python .ci/release.py check`.

`build` writes the sdist, the wheel and the npm package to dist/ and tries each; `check` compares what states a version,
and asks for a clean, tagged commit. Neither uploads anything. CONTRIBUTING.md has the order of a release.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import archives
import smoke
from archives import NPM, SDIST, WHEEL, Package

ROOT = Path(__file__).resolve().parents[1]
JS = ROOT / "js"
DIST = ROOT / "dist"
VERSION = re.compile(r"\d+\.\d+\.\d+")
SECTION = re.compile(r"^## \[(?P<version>[^\]]*)\](?: – (?P<date>.*))?$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\d")
AGAIN = "run `python .ci/release.py build` again"
SHOWN = 5  # of the files or links that are wrong
RELATIVE = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
# (package, what states a version in it, its path there)
STATEMENTS = (
    (WHEEL, "its metadata", archives.METADATA),
    (WHEEL, "its lab extension", f"*/{smoke.LABEXTENSION.as_posix()}/package.json"),
    (SDIST, "its metadata", "PKG-INFO"),
    (SDIST, "js/package.json", "js/package.json"),
    (SDIST, "modulekg_widgets/labextension/package.json", "modulekg_widgets/labextension/package.json"),
    (NPM, "its package.json", "package.json"),
)
BUNDLES = {WHEEL: f"*/share/jupyter/nbextensions/{smoke.NAME}/index.js", NPM: "dist/index.js"}


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
    """Which packages are missing in dist/, are of another version or commit, or do not belong together."""
    found = {kind: sorted(DIST.glob(pattern)) for kind, pattern in archives.PATTERNS.items()}
    for kind, files in found.items():
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            yield f"dist/: there has to be one {kind}, and there is: {names}: {AGAIN}."
    if any(len(files) != 1 for files in found.values()):
        return
    packages = {}
    for kind, (file,) in found.items():
        try:
            packages[kind] = archives.opened(kind, file)
        except archives.UnreadableError as error:
            yield f"dist/{file.name} cannot be read ({error}): {AGAIN}."
    if len(packages) == len(found):
        # where versions differ, files do as well
        yield from [*of_versions(packages), *of_bundles(packages)] or of_files(packages)
        yield from of_description(packages[WHEEL])


def of_versions(packages: dict[str, Package]) -> Iterator[str]:
    """Where a package states another version than js/package.json, or lacks the file that states one."""
    for kind, what, path in STATEMENTS:
        place, content = f"dist/{packages[kind].name}, {what}", packages[kind].file(path)
        if content is None:
            yield f"{place}: there is no {path} in it: {AGAIN}."
        else:
            yield from differs(place, archives.version_in(content), stated_version(), AGAIN)


def of_bundles(packages: dict[str, Package]) -> Iterator[str]:
    """Whether networks get the front end that the wheel brings."""
    found = {kind: packages[kind].file(path) for kind, path in BUNDLES.items()}
    for kind, content in found.items():
        if content is None:
            yield f"dist/{packages[kind].name}: there is no {BUNDLES[kind]} in it: {AGAIN}."
    if None not in found.values() and found[NPM] != found[WHEEL]:
        yield f"dist/{packages[NPM].name}: its dist/index.js is not the AMD module of {packages[WHEEL].name}: {AGAIN}."


def of_files(packages: dict[str, Package]) -> Iterator[str]:
    """Which packages were built from other sources than this commit's."""
    lines = [line.partition("\t") for line in git("ls-tree", "-r", "-z", "HEAD").split("\0") if line]
    committed = {path: told.split()[-1] for told, _, path in lines}
    for package in packages.values():
        if others := archives.other_sources(package, committed):
            yield f"dist/{package.name}: it has not the sources of this commit ({shortened(others)}): {AGAIN}."


def of_description(wheel: Package) -> Iterator[str]:
    """Whether the page on PyPI would have links that lead nowhere."""
    if found := RELATIVE.findall(archives.description(wheel)):
        yield (
            f"dist/{wheel.name}, its description: on PyPI its {len(found)} relative links would lead nowhere "
            f"({shortened(found)}): state repository.url in js/package.json, and {AGAIN}."
        )


def of_commit() -> Iterator[str]:
    """Why the commit is none to release: changes beside it, no tag, a repository that npm would not believe."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        names = shortened([line[3:] for line in changed])
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


def shortened(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


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
