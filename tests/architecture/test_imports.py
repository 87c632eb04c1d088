"""Imports run one way: widgets → engine, and inside the engine from the ground up."""

from pathlib import Path

import pytest

from architecture.python_sources import imports, module_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "modulekg_widgets"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# part of the engine → the parts that it may import; the ground is open to all
GROUND = {
    "errors", "keywords", "registry", "safe_files", "dot", "palette", "adapters", "deprecation", "json_types",
    "notebook_figure",
}  # fmt: skip
ALLOWED = {
    "errors": set(),
    "dot": set(),
    "json_types": set(),
    "notebook_figure": set(),
    "palette": set(),
    "keywords": {"errors"},
    "registry": {"errors"},
    "safe_files": {"errors"},
    "file_formats": {"errors", "safe_files"},
    "plugins": {"errors"},
    "deprecation": set(),
    "versions": {"plugins"},
    "torch_runtime": GROUND - {"adapters"},
    "adapters": {"errors", "registry", "torch_runtime"},  # of torch_runtime the private names alone
    "operators": GROUND | {"torch_runtime"},
    "identity": GROUND | {"torch_runtime"},
    "tracing": GROUND | {"torch_runtime", "operators", "identity"},
    "residuals": GROUND | {"torch_runtime", "operators", "identity", "tracing"},
    "profiling": GROUND | {"torch_runtime", "identity", "tracing"},
    "axes": GROUND | {"torch_runtime", "operators", "identity", "tracing", "residuals", "profiling"},
    "playback": GROUND | {"torch_runtime", "identity", "tracing"},
    "pruning": GROUND
    | {"torch_runtime", "operators", "identity", "tracing", "residuals", "axes", "profiling", "file_formats"},
    "knowledge": GROUND | {"torch_runtime", "operators", "identity", "tracing", "axes"},
    "rewriting": GROUND | {"torch_runtime", "operators", "identity", "tracing", "axes"},
    "monitoring": GROUND | {"torch_runtime", "identity"},
    "files": GROUND | {"torch_runtime", "identity", "file_formats"},
    "views": GROUND
    | {"torch_runtime", "operators", "identity", "tracing", "residuals", "axes", "playback", "pruning", "knowledge"}
    | {"rewriting", "monitoring", "files"},
}
WIDGET_LIBRARIES = {"ipywidgets", "traitlets", "ipycytoscape", "IPython", "comm", "ipykernel"}


def engine_part(name: str) -> str | None:
    """The part of the engine that a dotted name belongs to."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["modulekg_widgets", "engine"] and len(parts) > 2 else None


def in_folder(path: Path, folder: str) -> bool:
    return PACKAGE / folder in path.parents


def each(folder: str) -> pytest.MarkDecorator:
    paths = [path for path in SOURCES if in_folder(path, folder)]
    return pytest.mark.parametrize("path", paths, ids=[path.relative_to(PACKAGE).as_posix() for path in paths])


@each("engine")
def test_the_engine_knows_no_widget(path: Path) -> None:
    names = {name for name, _ in imports(path, ROOT)}
    assert {name for name in names if name.startswith("modulekg_widgets.") and engine_part(name) is None} == set()
    assert {name.partition(".")[0] for name in names} & WIDGET_LIBRARIES == set()


@each("engine")
def test_parts_of_the_engine_import_only_what_lies_below(path: Path) -> None:
    part = engine_part(module_name(path, ROOT))
    if part is None:  # engine/__init__.py
        return
    assert part in ALLOWED, f"{part} is a new part of the engine: give it its place in this table"
    used = {engine_part(name) for name, _ in imports(path, ROOT)} - {None, part}
    assert used <= ALLOWED[part]


def test_adapters_take_of_the_runtime_only_torchs_private_names() -> None:
    used = {name for name, _ in imports(PACKAGE / "engine" / "adapters.py", ROOT)}
    assert {name.split(".")[3] for name in used if engine_part(name) == "torch_runtime"} == {"private"}


@each("widgets")
def test_widgets_leave_torch_to_the_engine(path: Path) -> None:
    assert {name.partition(".")[0] for name, _ in imports(path, ROOT)} & {"torch", "torchvision"} == set()


def test_torchvision_is_imported_in_one_place_and_lazily() -> None:
    users = {
        path: lazy for path in SOURCES for name, lazy in imports(path, ROOT) if name.partition(".")[0] == "torchvision"
    }
    assert set(users) <= {PACKAGE / "engine" / "knowledge" / "zoo" / "torchvision_models.py"}
    assert all(users.values())


def test_the_checks_see_what_they_forbid(tmp_path: Path) -> None:
    path = tmp_path / "modulekg_widgets" / "engine" / "identity" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text("from ..pruning import plan\nfrom . import folding\ndef f():\n    import torchvision.models\n")
    assert set(imports(path, tmp_path)) == {
        ("modulekg_widgets.engine.pruning.plan", False),
        ("modulekg_widgets.engine.identity.folding", False),
        ("torchvision.models", True),
    }
