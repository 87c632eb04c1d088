"""A package of somebody else's, built and installed by pip: all five extensions work without a word of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from extending.packages import SAMPLE, pip_install, run_python


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where pip put the sample package."""
    folder = tmp_path_factory.mktemp("sample")
    source = shutil.copytree(SAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip_install(source, folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_all_five_extensions_work_through_the_public_names(installed: Path, tmp_path: Path) -> None:
    script = Path(__file__).with_name("use_sample.py")
    done = run_python(str(script), str(tmp_path), path=installed)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts["loaded"] == [False, True]
    assert facts["plugins"] == [["sample", "mkg-sample 1.2", "mkg_sample.mkg", None]]
    assert facts["unknown"] == []
    assert facts["gate flops"] == 4 * 5 * 8
    assert facts["verified"]
    assert facts["dropped"] == {"0.out": [0, 1, 2, 3]}
    assert facts["channels"] == 4
    assert facts["exact"]
    assert list(facts["measured"]) == ["0", "1"]
    assert all(0 < value < 1 for value in facts["measured"].values())
    assert sorted(facts["exported"]) == facts["structures"]
    assert len(facts["structures"]) == 4


@pytest.mark.slow
def test_without_plugins_none_of_it_is_there(installed: Path) -> None:
    code = (
        "import sys, modulekg_widgets as mk; from modulekg_widgets.engine.knowledge.exchange import exporters;"
        "print(mk.plugins(), 'mkg_sample' in sys.modules, 'sample' in exporters)"
    )
    done = run_python("-c", code, path=installed, MODULEKG_PLUGINS="0")
    assert (done.stdout.split(), done.stderr) == (["[]", "False", "False"], "")
    done = run_python("-c", code, path=installed)
    assert done.stdout.split()[-2:] == ["True", "True"]


@pytest.mark.slow
def test_the_command_line_knows_the_plugins(installed: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.sample"
    done = run_python("-m", "modulekg_widgets.cli", "export", "mkg_sample:Net", str(out), path=installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(out.read_text().splitlines()) == 4
