"""The public names: stated once, each there, and loaded at first use."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import modulekg_widgets as mk

STUB = Path(mk.__file__).with_suffix(".pyi")


@pytest.mark.parametrize("name", mk.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(mk, name) is not None
    assert name in dir(mk)


def test_the_stub_gives_every_name_once_and_as_it_is_called() -> None:
    lines = [line for line in ast.parse(STUB.read_text("utf-8")).body if isinstance(line, ast.ImportFrom)]
    names = [(each.name, each.asname) for line in lines for each in line.names]
    assert sorted(name for name, _ in names) == mk.__all__
    assert all(name == known for name, known in names)  # what a stub imports otherwise is not seen from outside


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Monitr'"):
        mk.Monitr  # noqa: B018


def test_nothing_heavy_is_imported_and_nothing_starts() -> None:
    code = (
        "import sys, modulekg_widgets as mk; mk.__version__; dir(mk)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'pandas', 'numpy', 'ipywidgets'}))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('modulekg_widgets.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "modulekg_widgets._version"]


def test_types_are_promised() -> None:
    assert STUB.with_name("py.typed").exists()
