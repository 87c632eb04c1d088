"""Packages with entry points: installed by pip, or laid out by hand as pip would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

GROUP = "modulekg_widgets.plugins"
SAMPLE = Path(__file__).parent / "sample_package"


def pip_install(source: Path, target: Path) -> None:
    """Build a package and install it into a folder, from what is on this machine."""
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--no-cache-dir"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def laid_out(folder: Path, name: str, targets: Mapping[str, str], **modules: str) -> None:
    """A distribution `name` 1.0 with modules, and entry points {name: target}."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{entry} = {target}" for entry, target in targets.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)


def run_python(*arguments: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A new interpreter that finds what lies in the folder `path` as if it were installed."""
    before = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(path), *([before] if before else [])])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, check=False)
