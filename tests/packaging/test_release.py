"""The scripts of a release, on made-up ones: a mismatch is refused by its name, a package that does nothing as well."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from project_file import ROOT

SCRIPTS = ROOT / ".ci"
AMD = b'define(["@jupyter-widgets/base"], () => ({}));'
SHARE = "modulekg_widgets-1.2.3.data/data/share/jupyter"
LAB, CLASSIC = f"{SHARE}/labextensions/modulekg-widgets", f"{SHARE}/nbextensions/modulekg-widgets"
WHEEL, SDIST, NPM = (
    "modulekg_widgets-1.2.3-py3-none-any.whl",
    "modulekg_widgets-1.2.3.tar.gz",
    "modulekg-widgets-1.2.3.tgz",
)

Change = Callable[[Path], None]


def text_of(version: str) -> bytes:
    return json.dumps({"version": version}).encode()


def write_wheel(folder: Path, version: str = "1.2.3", lab: str = "1.2.3", amd: bytes = AMD) -> None:
    with zipfile.ZipFile(folder / "dist" / WHEEL, "w") as archive:
        archive.writestr(
            "modulekg_widgets-1.2.3.dist-info/METADATA", f"Metadata-Version: 2.4\nVersion: {version}\n\ntext"
        )
        archive.writestr(f"{LAB}/package.json", text_of(lab))
        archive.writestr(f"{CLASSIC}/index.js", amd)


def write_tar(file: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_sdist(folder: Path, version: str = "1.2.3", js: str = "1.2.3", lab: str = "1.2.3") -> None:
    top = SDIST.removesuffix(".tar.gz")
    members = {
        "PKG-INFO": f"Metadata-Version: 2.4\nVersion: {version}\n".encode(),
        "js/package.json": text_of(js),
        "modulekg_widgets/labextension/package.json": text_of(lab),
    }
    write_tar(folder / "dist" / SDIST, {f"{top}/{name}": content for name, content in members.items()})


def write_npm(folder: Path, version: str = "1.2.3", amd: bytes = AMD) -> None:
    write_tar(folder / "dist" / NPM, {"package/package.json": text_of(version), "package/dist/index.js": amd})


def write_sources(folder: Path, version: str = "1.2.3", lock: str = "1.2.3", entry: str = "1.2.3") -> None:
    (folder / "js" / "package.json").write_text(json.dumps({"name": "modulekg-widgets", "version": version}))
    (folder / "js" / "package-lock.json").write_text(
        json.dumps({"version": lock, "packages": {"": {"version": entry}}})
    )


def git(folder: Path, *arguments: str) -> None:
    names = {f"GIT_{role}_{part}": "nobody" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env={**os.environ, **names})


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as it has to be: sources, packages and a tagged commit."""
    folder = tmp_path_factory.mktemp("release")
    for part in ("js", "dist"):
        (folder / part).mkdir()
    shutil.copytree(SCRIPTS, folder / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("dist/\n__pycache__/\n")
    (folder / "CHANGELOG.md").write_text(
        "# Changes\n\n## [1.2.3] – 2026-01-31\n\n- It works.\n\n## [1.2.2] – 2025-12-01\n"
    )
    (folder / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    write_sources(folder)
    write_wheel(folder)
    write_sdist(folder)
    write_npm(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "A release")
    git(folder, "tag", "v1.2.3")
    return folder


@pytest.fixture
def release(released: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(released, tmp_path / "release"))


def check(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name != "GITHUB_REPOSITORY"}
    command = [sys.executable, str(folder / ".ci" / "release.py"), "check"]
    return subprocess.run(command, env={**plain, **environ}, capture_output=True, text=True, check=False)


def complaints(folder: Path, **environ: str) -> list[str]:
    """What the script says against a release, without what it says of the commit, which a change of a file entails."""
    done = check(folder, **environ)
    lines = done.stderr.splitlines()
    assert done.returncode == (1 if lines else 0)
    assert all(line.startswith("release: ") for line in lines), done.stderr
    return [line.removeprefix("release: ") for line in lines if "the working tree is not clean" not in line]


def test_a_release_is_let_through(release: Path) -> None:
    done = check(release)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "modulekg-widgets 1.2.3 can be released.\n"


def rewritten(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1), "utf-8")

    return change


MISMATCHES: dict[str, tuple[Change, str]] = {
    "lock": (lambda at: write_sources(at, lock="1.2.2"), "js/package-lock.json: version '1.2.2' is not '1.2.3'"),
    "lock's package": (
        lambda at: write_sources(at, entry="1.2.2"),
        """js/package-lock.json, packages[""]: version '1.2.2'""",
    ),
    "citation": (rewritten("CITATION.cff", "1.2.3", "1.2.2"), "CITATION.cff: version '1.2.2' is not '1.2.3'"),
    "changes": (
        rewritten("CHANGELOG.md", "## [1.2.3] – 2026-01-31", "## [1.2.4] – 2026-01-31"),
        "CHANGELOG.md, its newest section: version '1.2.4' is not '1.2.3'",
    ),
    "changes without a day": (
        rewritten("CHANGELOG.md", "2026-01-31", "not released yet"),
        "CHANGELOG.md: its newest section has 'not released yet' for a date",
    ),
    "no changes": (rewritten("CHANGELOG.md", "## ", "# "), "CHANGELOG.md, its newest section: version '1.2.2'"),
    "wheel": (lambda at: write_wheel(at, version="1.2.2"), f"dist/{WHEEL}, its metadata: version '1.2.2'"),
    "lab extension": (lambda at: write_wheel(at, lab="1.2.2"), f"dist/{WHEEL}, its lab extension: version '1.2.2'"),
    "sdist": (lambda at: write_sdist(at, version="1.2.2"), f"dist/{SDIST}, its metadata: version '1.2.2'"),
    "sdist's sources": (lambda at: write_sdist(at, js="1.2.2"), f"dist/{SDIST}, js/package.json: version '1.2.2'"),
    "sdist's lab extension": (
        lambda at: write_sdist(at, lab="1.2.2"),
        f"dist/{SDIST}, modulekg_widgets/labextension/package.json: version '1.2.2'",
    ),
    "npm": (lambda at: write_npm(at, version="1.2.2"), f"dist/{NPM}, its package.json: version '1.2.2'"),
    "another bundle": (
        lambda at: write_npm(at, amd=AMD + b" "),
        f"dist/{NPM}: its dist/index.js is not the AMD module",
    ),
    "no wheel": (lambda at: (at / "dist" / WHEEL).unlink(), "dist/: there has to be one wheel, and there is: none"),
    "no npm package": (lambda at: (at / "dist" / NPM).unlink(), "dist/: there has to be one npm package"),
    "two sdists": (
        lambda at: shutil.copy(at / "dist" / SDIST, at / "dist" / "modulekg_widgets-1.2.2.tar.gz") and None,
        "dist/: there has to be one sdist, and there is: modulekg_widgets-1.2.2.tar.gz, modulekg_widgets-1.2.3.tar.gz",
    ),
}


@pytest.mark.parametrize(("change", "said"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_mismatch_is_refused_by_name(release: Path, change: Change, said: str) -> None:
    change(release)
    (complaint,) = complaints(release)
    assert complaint.startswith(said)
    assert complaint.endswith(".")


def test_everything_that_is_wrong_is_told_at_once(release: Path) -> None:
    write_sources(release, version="1.3.0")
    told = complaints(release)
    places = ["package-lock.json:", "packages[", "CITATION.cff", "CHANGELOG.md", WHEEL, SDIST, NPM, "no tag v1.3.0"]
    assert [place for place in places if not any(place in line for line in told)] == []


def test_a_version_that_the_registries_write_differently_is_refused(release: Path) -> None:
    write_sources(release, version="1.2.3-rc.1", lock="1.2.3-rc.1", entry="1.2.3-rc.1")
    assert complaints(release)[0].startswith("js/package.json: version '1.2.3-rc.1' is not like 1.2.3")


def test_what_is_not_committed_is_no_release(release: Path) -> None:
    (release / "new.txt").touch()
    (line,) = check(release).stderr.splitlines()
    assert line.startswith("release: the working tree is not clean (new.txt): commit what belongs to the release")


def test_another_commit_than_the_tagged_one_is_refused(release: Path) -> None:
    git(release, "commit", "-q", "--allow-empty", "-m", "More")
    assert complaints(release) == [
        "this commit has no tag v1.2.3 (it has none): check out the tag, or set it with `git tag v1.2.3`."
    ]
    git(release, "tag", "v1.2.4")
    (line,) = complaints(release)
    assert "(it has v1.2.4)" in line


def test_npm_has_to_be_told_the_repository_that_publishes(release: Path) -> None:
    (line,) = complaints(release, GITHUB_REPOSITORY="somebody/modulekg")
    assert line.startswith("js/package.json: repository.url is '', and npm proves")
    stated = {"version": "1.2.3", "repository": {"url": "git+https://example.org/somebody/modulekg.git"}}
    (release / "js" / "package.json").write_text(json.dumps(stated))
    assert complaints(release, GITHUB_REPOSITORY="somebody/modulekg") == []
    assert len(complaints(release, GITHUB_REPOSITORY="another/modulekg")) == 1


# ------------------------------------------------------------------ a package that does nothing


def smoke(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "smoke.py"), "--borrow", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_of_another_kind_is_refused(tmp_path: Path, require: Callable[..., None]) -> None:
    require("$node")
    (tmp_path / "notes.txt").touch()
    done = smoke(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smoke: notes.txt is no wheel, sdist or npm package: move it out of the folder.\n"


STATED = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))["version"]


@pytest.mark.parametrize(
    ("version", "module", "said"),
    [
        ("0.0.0", AMD, f"its version is '0.0.0', not '{STATED}'"),
        (STATED, b'define(["jquery"], () => 1)', "it asks for jquery, which no such host has"),
        (STATED, b"1 + 1", "it defines no module"),
        (STATED, AMD, "dist/index.js lacks ForwardPlayerModel, ForwardPlayerView"),
    ],
)
def test_a_package_of_npm_that_no_host_could_show_is_refused(
    version: str, module: bytes, said: str, tmp_path: Path, require: Callable[..., None]
) -> None:
    require("$node")
    (tmp_path / "dist").mkdir()
    write_npm(tmp_path, version=version, amd=module)
    done = smoke(tmp_path / "dist" / NPM)
    assert done.returncode == 1
    assert said in done.stderr
