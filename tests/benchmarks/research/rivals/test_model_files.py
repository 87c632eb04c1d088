"""Model files in JupyterLab beside Netron: the same files, the same browser; time to the first picture, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.research.rivals.netron_page import netron_on
from browser.lab import JupyterServer
from browser.model_files import FilesPage, many_shapes, resnet_shapes, write_onnx, write_safetensors, write_sharded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PORT = 18_980


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    server = JupyterServer(tmp_path_factory.mktemp("rivals"))
    write_safetensors(server.notebooks / "first.safetensors", {"a.weight": (2, 2)})
    yield server
    server.stop()


def write_sharded_model(path: Path) -> None:
    write_sharded(path.parent)


FILES: dict[str, Callable[[Path], object]] = {
    "resnet18.safetensors": lambda path: write_safetensors(path, resnet_shapes()),
    "many.safetensors": lambda path: write_safetensors(path, many_shapes(50_000)),
    "small.onnx": lambda path: write_onnx(path, blocks=4),
    "large.onnx": lambda path: write_onnx(path, blocks=2_000),
    "model.safetensors.index.json": write_sharded_model,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_seen_before_it_is_in_netron(
    name: str, browser: Browser, server: JupyterServer, require: Callable[..., None]
) -> None:
    require("netron")
    path = server.notebooks / name
    FILES[name](path)
    page = FilesPage(browser, server, name.partition(".")[0])
    try:
        ours = min(page.open(name) for _ in range(2) if page.command("application:close-all") is None)
        heap = page.heap()
    finally:
        page.close()
    theirs = netron_on(browser, path, PORT)
    seen = "–" if theirs.first_paint is None else f"{theirs.first_paint:,.0f}"
    print(f"\n| {name} | {ours:,.0f} | {heap:.0f} | {seen} | {theirs.heap:.0f} | {theirs.message[:80]} |")
    assert ours <= 2_000
    assert theirs.first_paint is None or ours < theirs.first_paint or ours <= 1_000
