"""Builds from the sources: up to date or made anew, an sdist that needs no Node, one sentence where Node is missing."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_hook(root: Path) -> ModuleType:
    """The build hook of a source tree."""
    spec = importlib.util.spec_from_file_location("build_hook", root / "js" / "build_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(target: str, source: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", f"--{target}", "--no-isolation", "--outdir", str(out), str(source)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the checkout, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    done = build("sdist", ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        # the Python of Debian 12 knows no filters
        content.extraction_filter = getattr(tarfile, "data_filter", None)
        content.extractall(folder)
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    return source


@pytest.fixture
def source(sdist: Path, tmp_path: Path) -> Path:
    """A copy of the unpacked sdist that a test may change."""
    return Path(shutil.copytree(sdist, tmp_path / "source"))


@pytest.fixture
def without_node(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has no programs at all."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin")}


@pytest.mark.nightly
def test_an_sdist_installs_without_node(source: Path, tmp_path: Path, without_node: dict[str, str]) -> None:
    done = build("wheel", source, tmp_path / "out", **without_node)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    lab, amd = (f"data/share/jupyter/{kind}/modulekg-widgets" for kind in ("labextensions", "nbextensions"))
    parts = (f"{lab}/package.json", f"{lab}/install.json", f"{amd}/extension.js", f"{amd}/index.js")
    for part in (
        *parts,
        "data/etc/jupyter/nbconfig/notebook.d/modulekg-widgets.json",
        "modulekg_widgets/static/standalone.js",
    ):
        assert [name for name in names if name.endswith(part)], part
    assert "modulekg_widgets/notebooks/00_quickstart.ipynb" in names
    assert not [
        name
        for name in names
        if re.search("modulekg_widgets/(lab|nb)extension", name) or "/tests/" in name or ".stamp" in name
    ]
    assert front_end_of(wheel, tmp_path / "prefix") == (source / "modulekg_widgets/nbextension/index.js").read_bytes()


def front_end_of(wheel: Path, prefix: Path) -> bytes:
    """What an installed wheel holds against the one of a network (widgets/hosts/colab.py)."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--ignore-installed",
        "--prefix",
        str(prefix),
    ]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)
    program = "import sys; from modulekg_widgets.widgets.hosts import colab as c; sys.stdout.buffer.write({})"
    (site,) = prefix.rglob("site-packages")
    told = subprocess.run(
        [sys.executable, "-c", program.format("c.__file__.encode() + b'\\n' + c.installed_front_end()")],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=prefix,
        capture_output=True,
        check=True,
        timeout=300,
    ).stdout
    file, content = told.split(b"\n", 1)
    assert Path(file.decode()).is_relative_to(site)
    return content


@pytest.mark.slow
def test_two_folders_at_two_times_give_the_same_wheel(
    sdist: Path, tmp_path: Path, without_node: dict[str, str]
) -> None:
    """Whatever the rights of their files are; test_reproducible.py builds the front end twice, too."""
    copies = [Path(shutil.copytree(sdist, folder)) for folder in (tmp_path / "a", tmp_path / "another" / "place")]
    for file in copies[1].rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
        file.chmod(file.stat().st_mode & 0o700)
    digests = set()
    for copy in copies:
        done = build("wheel", copy, copy.parent / f"{copy.name}.out", **without_node)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = (copy.parent / f"{copy.name}.out").glob("*.whl")
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_without_node_a_source_build_ends_in_one_sentence(
    source: Path, tmp_path: Path, without_node: dict[str, str]
) -> None:
    shutil.rmtree(source / "modulekg_widgets" / "labextension")
    done = build("wheel", source, tmp_path / "out", **without_node)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert text.count("Node.js was not found: building modulekg-widgets from source needs Node.js 20 or newer") == 1
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({"node": "echo v18.19.0", "npm": ""}, "Node.js v18.19.0 is too old"),
        ({"node": "exit 1", "npm": ""}, "Node.js (broken) is too old"),
        ({"node": "echo v22.1.0"}, "npm was not found"),
        ({"npm": ""}, "Node.js was not found"),
    ],
)
def test_node_that_will_not_do(programs: dict[str, str], sentence: str, tmp_path: Path) -> None:
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(SystemExit, match=r"needs Node\.js 20 or newer") as stopped:
        load_hook(ROOT).find_npm(str(tmp_path))
    assert str(stopped.value).startswith(sentence)


def test_every_change_of_a_source_or_an_output_makes_the_build_stale(source: Path) -> None:
    hook = load_hook(source)
    assert hook.up_to_date()
    changed = [source / "js" / "package.json", next((source / "js" / "src").rglob("*.ts")), *hook.REQUIRED, *hook.READ]
    for file in changed:
        content = file.read_bytes()
        file.write_bytes(content + b"\n")
        assert not hook.up_to_date(), file
        file.write_bytes(content)
    (source / "js" / "src" / "another.ts").touch()
    assert not hook.up_to_date()
    (source / "js" / "src" / "another.ts").unlink()
    assert hook.up_to_date()
    hook.STAMP.unlink()
    assert not hook.up_to_date()


def test_all_that_the_build_reads_outside_of_its_folder_counts() -> None:
    hook = load_hook(ROOT)
    scripts = "".join(path.read_text("utf-8") for path in (ROOT / "js" / "scripts").glob("*.mjs"))
    read = re.findall(r"readFileSync\(join\(packageFolder, (.*?)\)", scripts)
    assert {hook.PACKAGE.joinpath(*re.findall(r'"([^"]+)"', names)) for names in read} == set(hook.READ)
    assert set(hook.READ) <= set(hook.source_files())


def test_what_builds_and_npm_leave_behind_does_not_count(source: Path) -> None:
    hook = load_hook(source)
    for folder in ("node_modules/a", "lib", "dist", "src/generated", "__pycache__"):
        (source / "js" / folder).mkdir(parents=True, exist_ok=True)
        (source / "js" / folder / "file.js").touch()
    (source / "js" / "LICENSE").touch()
    assert hook.up_to_date()


def test_a_failing_npm_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "npm").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "npm").chmod(0o755)
    with pytest.raises(SystemExit, match=r"`npm ci` in js/ failed with exit code 3"):
        load_hook(ROOT).run([str(tmp_path / "npm"), "ci"], str(tmp_path))
