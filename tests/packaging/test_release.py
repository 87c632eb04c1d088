"""The scripts of a release, on made-up ones: a mismatch is refused by its name, a package that does nothing as well."""

import importlib
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
AGAIN = "run `python .ci/release.py build` again"
MODULE = b'"""The package."""\n'
LAB, CLASSIC = f"{SHARE}/labextensions/modulekg-widgets", f"{SHARE}/nbextensions/modulekg-widgets"
WHEEL, SDIST, NPM = (
    "modulekg_widgets-1.2.3-py3-none-any.whl",
    "modulekg_widgets-1.2.3.tar.gz",
    "modulekg-widgets-1.2.3.tgz",
)

Change = Callable[[Path], None]


def text_of(version: str) -> bytes:
    return json.dumps({"name": "modulekg-widgets", "version": version}).encode()


def metadata(version: str, text: str = "text") -> bytes:
    return f"Metadata-Version: 2.4\nVersion: {version}\n\n{text}".encode()


def write_wheel(folder: Path, **changed: bytes | None) -> None:
    """A wheel with parts that are changed, or left out."""
    parts = {"metadata": metadata("1.2.3"), "lab": text_of("1.2.3"), "amd": AMD, "module": MODULE} | changed
    places = {
        "metadata": "modulekg_widgets-1.2.3.dist-info/METADATA",
        "lab": f"{LAB}/package.json",
        "amd": f"{CLASSIC}/index.js",
        "module": "modulekg_widgets/__init__.py",
    }
    with zipfile.ZipFile(folder / "dist" / WHEEL, "w") as archive:
        archive.writestr("modulekg_widgets/static/standalone.js", "built")
        for part, content in parts.items():
            if content is not None:
                archive.writestr(places[part], content)


def write_tar(file: Path, top: str, members: dict[str, bytes | None]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in members.items():
            if content is not None:
                member = tarfile.TarInfo(f"{top}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def write_sdist(folder: Path, changed: dict[str, bytes | None] | None = None) -> None:
    """An sdist of what is committed, with files that are changed, or left out."""
    names = subprocess.run(["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=True).stdout
    committed = {name: (folder / name).read_bytes() for name in names.splitlines()}
    built = {"PKG-INFO": metadata("1.2.3"), "modulekg_widgets/labextension/package.json": text_of("1.2.3")}
    write_tar(folder / "dist" / SDIST, SDIST.removesuffix(".tar.gz"), {**committed, **built, **(changed or {})})


def write_npm(folder: Path, **changed: bytes | None) -> None:
    """A package of npm with parts that are changed, or left out."""
    parts = {"package.json": text_of("1.2.3"), "dist/index.js": AMD, "LICENSE": b"built"}
    places = {"package": "package.json", "amd": "dist/index.js"}
    write_tar(folder / "dist" / NPM, "package", {**parts, **{places[name]: changed[name] for name in changed}})


def write_sources(folder: Path, version: str = "1.2.3", lock: str = "1.2.3", entry: str = "1.2.3") -> None:
    (folder / "js" / "package.json").write_bytes(text_of(version))
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
    for part in ("js", "dist", "modulekg_widgets"):
        (folder / part).mkdir()
    shutil.copytree(SCRIPTS, folder / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("dist/\n__pycache__/\n")
    (folder / "CHANGELOG.md").write_text(
        "# Changes\n\n## [1.2.3] – 2026-01-31\n\n- It works.\n\n## [1.2.2] – 2025-12-01\n"
    )
    (folder / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (folder / "modulekg_widgets" / "__init__.py").write_bytes(MODULE)
    write_sources(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "A release")
    git(folder, "tag", "v1.2.3")
    write_wheel(folder)
    write_sdist(folder)
    write_npm(folder)
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
    "wheel": (
        lambda at: write_wheel(at, metadata=metadata("1.2.2")),
        f"dist/{WHEEL}, its metadata: version '1.2.2' is not '1.2.3'",
    ),
    "lab extension": (
        lambda at: write_wheel(at, lab=text_of("1.2.2")),
        f"dist/{WHEEL}, its lab extension: version '1.2.2'",
    ),
    "no lab extension": (
        lambda at: write_wheel(at, lab=None),
        f"dist/{WHEEL}, its lab extension: there is no */share/jupyter/labextensions/modulekg-widgets/package.json in",
    ),
    "a lab extension that says nothing": (
        lambda at: write_wheel(at, lab=b"{"),
        f"dist/{WHEEL}, its lab extension: version '' is not '1.2.3'",
    ),
    "sdist": (
        lambda at: write_sdist(at, {"PKG-INFO": metadata("1.2.2")}),
        f"dist/{SDIST}, its metadata: version '1.2.2'",
    ),
    "sdist's sources": (
        lambda at: write_sdist(at, {"js/package.json": text_of("1.2.2")}),
        f"dist/{SDIST}, js/package.json: version '1.2.2'",
    ),
    "sdist's lab extension": (
        lambda at: write_sdist(at, {"modulekg_widgets/labextension/package.json": text_of("1.2.2")}),
        f"dist/{SDIST}, modulekg_widgets/labextension/package.json: version '1.2.2'",
    ),
    "npm": (lambda at: write_npm(at, package=text_of("1.2.2")), f"dist/{NPM}, its package.json: version '1.2.2'"),
    "another bundle": (
        lambda at: write_npm(at, amd=AMD + b" "),
        f"dist/{NPM}: its dist/index.js is not the AMD module of {WHEEL}",
    ),
    "no bundle": (lambda at: write_npm(at, amd=None), f"dist/{NPM}: there is no dist/index.js in it"),
    "no bundle in the wheel": (
        lambda at: write_wheel(at, amd=None),
        f"dist/{WHEEL}: there is no */share/jupyter/nbextensions/modulekg-widgets/index.js in it",
    ),
    "no archive": (
        lambda at: (at / "dist" / WHEEL).write_text("no zip") and None,
        f"dist/{WHEEL} cannot be read (File is not a zip file)",
    ),
    "half an archive": (
        lambda at: (at / "dist" / SDIST).write_bytes((at / "dist" / SDIST).read_bytes()[:300]) and None,
        f"dist/{SDIST} cannot be read (",
    ),
    "links of a repository on PyPI": (
        lambda at: write_wheel(at, metadata=metadata("1.2.3", "[a](https://a.org) [b](docs/b.md) ![c](../../c.svg)")),
        f"dist/{WHEEL}, its description: on PyPI its 2 relative links would lead nowhere (docs/b.md, ../../c.svg)",
    ),
    "a changed file": (
        lambda at: write_sdist(at, {"CHANGELOG.md": b"# Other changes\n"}),
        f"dist/{SDIST}: it has not the sources of this commit (CHANGELOG.md): run",
    ),
    "a file too few": (
        lambda at: write_sdist(at, {".ci/release.py": None}),
        f"dist/{SDIST}: it has not the sources of this commit (.ci/release.py)",
    ),
    "a file too many": (
        lambda at: write_sdist(at, {"notes/private.txt": b"."}),
        f"dist/{SDIST}: it has not the sources of this commit (notes/private.txt)",
    ),
    "another module": (
        lambda at: write_wheel(at, module=b""),
        f"dist/{WHEEL}: it has not the sources of this commit (modulekg_widgets/__init__.py)",
    ),
    "another package.json": (
        lambda at: write_npm(at, package=b'{"version": "1.2.3"}'),
        f"dist/{NPM}: it has not the sources of this commit (package.json)",
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


def test_packages_of_a_commit_before_are_refused(release: Path) -> None:
    """Built, mended, tagged anew, and the old ones left in dist/."""
    (release / "modulekg_widgets" / "__init__.py").write_bytes(MODULE + b"MENDED = True\n")
    git(release, "commit", "-q", "-a", "-m", "Mended")
    git(release, "tag", "-f", "v1.2.3")
    told = f"it has not the sources of this commit (modulekg_widgets/__init__.py): {AGAIN}."
    assert complaints(release) == [f"dist/{name}: {told}" for name in (WHEEL, SDIST)]


def test_npm_has_to_be_told_the_repository_that_publishes(release: Path) -> None:
    (line,) = complaints(release, GITHUB_REPOSITORY="somebody/modulekg")
    assert line.startswith("js/package.json: repository.url is '', and npm proves")
    stated = {"version": "1.2.3", "repository": {"url": "git+https://example.org/somebody/modulekg.git"}}
    (release / "js" / "package.json").write_text(json.dumps(stated))
    assert complaints(release, GITHUB_REPOSITORY="somebody/modulekg") == []
    assert len(complaints(release, GITHUB_REPOSITORY="another/modulekg")) == 1


# ------------------------------------------------------------------ the description on PyPI


def test_links_of_the_readme_lead_into_the_repository(
    tmp_path: Path, require: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("hatchling")
    monkeypatch.syspath_prepend(SCRIPTS)
    hook = importlib.import_module("readme").Readme(str(tmp_path), {})
    (tmp_path / "js").mkdir()
    text = "[![a](../../b.svg)](../../c) ![d\ne](docs/f.webp) [g](docs/h.md#i) [j](#k) [l](https://m.org/n)"
    (tmp_path / "README.md").write_text(text)
    stated = {"version": "1.2.3"}
    for address in ("", "git+https://example.org/o/r.git", "https://example.org/o/r"):
        (tmp_path / "js" / "package.json").write_text(json.dumps({**stated, "repository": {"url": address}}))
        made = dict(stated)
        hook.update(made)
        at = "https://example.org/o/r"
        assert made["urls"] == ({"Repository": at} if address else {})
        assert made["readme"]["content-type"] == "text/markdown"
        assert made["readme"]["text"] == (
            f"[![a]({at}/b.svg)]({at}/c) ![d\ne]({at}/raw/v1.2.3/docs/f.webp) [g]({at}/blob/v1.2.3/docs/h.md#i) "
            f"[j]({at}/blob/v1.2.3/README.md#k) [l](https://m.org/n)"
            if address
            else text
        )


# ------------------------------------------------------------------ a package that does nothing


def smoke(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "smoke.py"), "--borrow", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_of_another_kind_is_refused(tmp_path: Path, require: Callable[..., None]) -> None:
    require("$node")
    (tmp_path / "notes.txt").touch()
    done = smoke(tmp_path / "notes.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "smoke: notes.txt is not a wheel, sdist or npm package: move it out of the folder.\n"


@pytest.mark.parametrize(
    ("there", "kind"),
    [((), "wheel"), ((SDIST, NPM), "wheel"), ((WHEEL, NPM), "sdist"), ((WHEEL, SDIST), "npm package")],
)
def test_a_folder_without_one_of_each_kind_is_refused(
    there: tuple[str, ...], kind: str, tmp_path: Path, require: Callable[..., None]
) -> None:
    """Before any is tried."""
    require("$node")
    for name in there:
        (tmp_path / name).touch()
    done = smoke(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"smoke: {tmp_path} has no {kind}: build all of them")


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
    write_npm(tmp_path, package=text_of(version), amd=module)
    done = smoke(tmp_path / "dist" / NPM)
    assert done.returncode == 1
    assert said in done.stderr
