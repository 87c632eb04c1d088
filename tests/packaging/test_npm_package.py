"""What npm would publish: the sources that JupyterLab builds from, the AMD module, and nothing else."""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modulekg_widgets.widgets.shared.base import ModuleKGWidget
from project_file import ROOT

JS = ROOT / "js"
PACKAGE = json.loads((JS / "package.json").read_text("utf-8"))
IMPORTED = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")
BUNDLED = ["dist/index.js", "dist/third-party-licenses.txt"]
BESIDE = {*BUNDLED, "LICENSE", "README.md", "package.json", "schema/settings.json", "webpack.config.js"}
# what builds, tests and older builds leave in js/, and nobody shall get
LEFT = [
    "lib/lab/index.d.ts",
    "lib/lab/index.js.map",
    "dist/index.js.map",
    "coverage/a.js",
    "src/generated/zz.ts",
    "zz.tgz",
]


def compiled() -> set[str]:
    """The modules in lib/ that tsc writes, starting from the plugins of JupyterLab."""
    seen, waiting = set(), [JS / "src" / "lab" / "index.ts"]
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += sources_imported(file)
    return {f"lib/{file.relative_to(JS / 'src').with_suffix('.js').as_posix()}" for file in seen}


def sources_imported(file: Path) -> Iterator[Path]:
    text = file.read_text("utf-8") if file.is_file() else ""  # of generated/, some are not there before the first build
    for name in IMPORTED.findall(text):
        target = file.parent / name
        if not name.endswith(".css"):
            index = target / "index.ts"
            yield Path(os.path.normpath(index if index.is_file() else f"{target}.ts"))


def write_package(folder: Path) -> Path:
    """The folder js/ as a build leaves it, with files that say nothing in place of what is compiled."""
    shutil.copytree(JS, folder, ignore=shutil.ignore_patterns("node_modules", "lib", "dist", "coverage", "generated"))
    shutil.copy(ROOT / "LICENSE", folder)
    for name in [*BUNDLED, *sorted(compiled()), *LEFT]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("// compiled\n")
    return folder


@pytest.mark.slow
def test_the_package_has_exactly_what_is_wanted(tmp_path: Path, require: Callable[..., None]) -> None:
    require("$npm")
    command = ["npm", "pack", "--dry-run", "--json", "--offline"]
    folder = write_package(tmp_path / "js")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (told,) = json.loads(done.stdout)
    styles = {file.relative_to(JS).as_posix() for file in (JS / "style").rglob("*.css")}
    assert {file["path"] for file in told["files"]} == BESIDE | compiled() | styles
    assert (told["name"], told["version"]) == (PACKAGE["name"], PACKAGE["version"])


@pytest.mark.slow
def test_two_folders_at_two_times_give_the_same_bytes(
    tmp_path: Path, require: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rights of their files are."""
    require("$npm")
    monkeypatch.syspath_prepend(ROOT / ".ci")
    pack = importlib.import_module("release").pack
    second = write_package(tmp_path / "elsewhere" / "deep" / "js")
    for file in second.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
        file.chmod(file.stat().st_mode & 0o700)
    digests = set()
    for folder in (write_package(tmp_path / "js"), second):
        pack(folder, folder.parent)
        (package,) = folder.parent.glob("*.tgz")
        digests.add(hashlib.sha256(package.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_what_jupyterlab_reads_is_in_the_package() -> None:
    parts = compiled()
    assert PACKAGE["main"] in parts
    assert len(parts) > 200
    assert not [name for name in parts if ".test." in name or "/testing/" in name]
    assert PACKAGE["jupyterlab"]["extension"] is True
    assert Path(PACKAGE["jupyterlab"]["webpackConfig"]).as_posix() in BESIDE


def test_networks_find_the_module_where_hosts_ask_for_it() -> None:
    """At `<package>@<version>/dist/index.js`; and by its bare name."""
    assert PACKAGE["jsdelivr"] == PACKAGE["unpkg"] == "dist/index.js"
    assert "private" not in PACKAGE
    assert set(BUNDLED) <= set(PACKAGE["files"])


@pytest.mark.parametrize("trait", ["_model_module_version", "_view_module_version"])
def test_a_kernel_asks_for_exactly_its_own_version(trait: str) -> None:
    """A range would be resolved to the newest, which other kernels speak to."""
    assert ModuleKGWidget.class_traits()[trait].default_value == PACKAGE["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", PACKAGE["version"])


def test_what_is_packed_is_made_first() -> None:
    """By one script, which the release runs itself: `.npmrc` keeps npm from it, for the sake of what others install."""
    scripts = PACKAGE["scripts"]
    assert "ignore-scripts=true" in (JS / ".npmrc").read_text("utf-8").split()
    for part in ("node scripts/prepack.mjs", "npm run generate", "npm run nbextension", "tsc -p tsconfig.build.json"):
        assert part in scripts["prepack"]
    build = json.loads((JS / "tsconfig.build.json").read_text("utf-8"))
    assert build["files"][0] == "src/lab/index.ts"
    assert build["include"] == []
