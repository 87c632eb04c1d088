"""Widgets in VS Code, imitated: where its Jupyter extension finds the module, under its notebooks' policy."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import modulekg_widgets as mk
from browser.hosts import SETUP, Host, HostPage, bundle, opened, use
from browser.lab import JupyterServer

MODULE = "modulekg-widgets"
CDN_ADDRESS = f"/npm/{MODULE}@{mk.__version__}/dist/index.js"
COPY = "/temp/scripts/kernel/jupyter"  # where the extension copies what the kernel's environment has
# of the page with all outputs of a notebook, in which workers of blobs are refused
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' https: http: data:; font-src 'self' https:; connect-src https:; child-src https: data:"
)
OWN = ("jupyter-js-widgets", "@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output")
CALLS = [f"{receiver}.config({{" for receiver in ("require", "requirejs")] + [
    f"[{quote}{receiver}{quote}]{call}({{"
    for receiver in ("require", "requirejs")
    for quote in "\"'"
    for call in (".config", '["config"]', "['config']")
]


def required_paths(text: str) -> dict[str, str]:
    """What the extension reads of a widget's extension.js, which it never runs: the innermost braces of one call."""
    starts = [text.index(call) for call in CALLS if call in text]
    if not starts:
        return {}
    config = text[min(starts) : text.index(")", min(starts))]
    innermost = config.rpartition("{")[2].partition("}")[0]
    pairs = (entry.partition(":") for entry in innermost.split(",") if ":" in entry)
    return {name.strip().strip("\"'"): path.strip().strip("\"'") for name, _, path in pairs}


def local_sources(page: HostPage) -> dict[str, str]:
    """The address of each module whose files are where the kernel runs: they are copied, and found by their text."""
    folder = Path(page.value("__import__('sys').prefix")) / "share" / "jupyter"
    sources: dict[str, str] = {}
    for entry in folder.glob("nbextensions/**/extension.js"):
        for script in entry.parent.rglob("*.js"):
            page.network.put(f"{COPY}/{script.relative_to(folder).as_posix()}", script.read_bytes())
        for module, path in required_paths(entry.read_text("utf-8")).items():
            sources[module] = f"{page.network.url}{COPY}/{path}"
    return {module: address for module, address in sources.items() if module not in OWN}


def published_source(page: HostPage, module: str, version: str) -> str | None:
    """The address on a content delivery network, once the user has chosen one and the file is there."""
    path = f"/npm/{module}@{version.removeprefix('^')}/dist/index.js"
    return page.network.url + path if path in page.network.files else None


@pytest.fixture
def vscode(require: Callable[..., None]) -> Host:
    require("nbclassic")
    library = files("nbclassic") / "static" / "components" / "requirejs" / "require.js"
    return Host(
        script="vscode.js",
        sandbox="allow-scripts allow-same-origin allow-forms allow-pointer-lock allow-downloads",
        policy=POLICY,
        libraries=(library.read_bytes(),),
    )


def show_and_use(page: HostPage) -> None:
    """All outputs of a notebook are in one frame."""
    page.cell(f"{SETUP}\ngraph")
    page.cell("display(panel)")
    page.cell("display(editor)")
    output = page.output(0)
    use(output, output, output)


@pytest.mark.gate
def test_a_kernel_on_this_machine(browser: Browser, jupyterlab: JupyterServer, vscode: Host) -> None:
    with opened(browser, jupyterlab, vscode) as page:
        sources = local_sources(page)
        assert sources[MODULE] == f"{page.network.url}{COPY}/nbextensions/{MODULE}/index"
        page.sources = lambda module, version: sources.get(module)
        show_and_use(page)
        page.screenshot("vscode")
        assert page.asked_of_network() == [f"{COPY}/nbextensions/{MODULE}/index.js"]


@pytest.mark.nightly
def test_a_kernel_elsewhere_and_a_delivery_network(browser: Browser, jupyterlab: JupyterServer, vscode: Host) -> None:
    with opened(browser, jupyterlab, vscode) as page:
        page.network.put(CDN_ADDRESS, bundle())
        page.sources = lambda module, version: published_source(page, module, version)
        show_and_use(page)
        assert page.asked_of_network() == [CDN_ADDRESS]


@pytest.mark.nightly
def test_what_is_nowhere_is_said(browser: Browser, jupyterlab: JupyterServer, vscode: Host) -> None:
    with opened(browser, jupyterlab, vscode) as page:
        page.network.put(CDN_ADDRESS.replace(mk.__version__, "9.9.9"), bundle())
        page.sources = lambda module, version: published_source(page, module, version)
        page.cell(f"{SETUP}\ngraph")
        said = page.output(0).frame.locator(".failed").inner_text()
        assert said == f"Error: no source of {MODULE} {mk.__version__}"
        page.trouble.clear()


@pytest.mark.parametrize(
    "text",
    [
        "window['require'].config({ map: { '*': { 'a': 'nbextensions/a/index' } } });",
        'requirejs.config({map: {"*": {a: "nbextensions/a/index", b: \'nbextensions/b/x\'}}})',
    ],
)
def test_paths_are_read_as_text(text: str) -> None:
    assert required_paths(f"define(() => {{\n{text}\n}});")["a"] == "nbextensions/a/index"
    assert required_paths("define(() => ({ load_ipython_extension() {} }));") == {}
