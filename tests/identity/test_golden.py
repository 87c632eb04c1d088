"""Digests that were published stay what they are: a silent change of the scheme would orphan every stored graph."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import modulekg_widgets as mk
from identity import python_digests
from identity.structures import STRUCTURES, ZOO, structure

HERE = Path(__file__).parent
GOLDEN = {path.stem: json.loads(path.read_text()) for path in (HERE / "golden").glob("*.json")}


def pythons() -> list[str]:
    """This Python and every other supported one that is installed and starts."""
    found = [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    working = [
        p for p in found if p and subprocess.run([p, "-c", ""], capture_output=True, check=False).returncode == 0
    ]
    return [sys.executable, *working]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*STRUCTURES, *ZOO])
def test_structures(name: str) -> None:
    assert mk.fingerprint(structure(name)).hexdigest == GOLDEN["structures"]["structure"][name]


@pytest.mark.parametrize("name", ZOO)
def test_the_scheme_of_the_seed(name: str) -> None:
    assert mk.fingerprint(structure(name), scheme="seed").hexdigest == GOLDEN["structures"]["seed"][name]


def test_values_and_local_classes() -> None:
    assert python_digests.digests() == GOLDEN["python"]


@pytest.mark.parametrize("python", pythons())
def test_every_python_at_hand_gives_the_same(python: str) -> None:
    home = Path(mk.__file__).parents[1]
    done = subprocess.run(
        [python, str(HERE / "python_digests.py"), str(home)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == GOLDEN["python"]
