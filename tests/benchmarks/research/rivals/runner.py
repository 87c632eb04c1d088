"""All cells of the comparison: rounds over the tools, so that ours and theirs are measured under the same load."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.research.rivals import drawing, models
from benchmarks.research.rivals.kernel import Kernel
from benchmarks.research.rivals.results import Results
from benchmarks.research.rivals.tool import Tool

if TYPE_CHECKING:
    from playwright.sync_api import Playwright


def place(folder: Path, tool: Tool, model: str) -> Path:
    """Where the page of a model is kept."""
    return folder / "".join(letter if letter.isalnum() else "_" for letter in f"{tool.name} {model}")


def run_kernels(tools: Collection[Tool], names: Collection[str], folder: Path, results: Results, times: int) -> None:
    """Measure what is done in the kernel, and look at what was drawn."""
    kernels: dict[str, Kernel] = {}
    for turn in range(1, times + 1):
        for model in names:
            for tool in tools:
                if not results.lacks("kernel", tool.name, model, turn):
                    continue
                if tool.name not in kernels:
                    kernels[tool.name] = Kernel(tool)
                found = kernels[tool.name].ask(model, place(folder, tool, model))
                if "file" in found:
                    found["file"] = Path(found["file"]).name
                results.add("kernel", tool.name, model, found)
                print(turn, tool.name, model, found, file=sys.stderr, flush=True)
    for kernel in kernels.values():
        kernel.stop()


def run_drawings(tools: Collection[Tool], names: Collection[str], folder: Path, results: Results) -> None:
    """What is right in the pictures; the truth is a row of its own."""
    for model in names:
        for tool in tools:
            done = [one for one in results.cell("kernel", tool.name, model) if "error" not in one]
            if done and results.lacks("drawn", tool.name, model, 1):
                found = drawing.verdicts(tool.drawn(folder / done[-1]["file"]))
                results.add("drawn", tool.name, model, found)
        if model != "failing" and results.lacks("drawn", "truth", model, 1):
            made, args = models.build(model)
            levels = max(path.count(".") + bool(path) for path, _ in made.named_modules())
            results.add("drawn", "truth", model, {**drawing.joins(made, args), "levels": levels})


def run_pages(
    playwright: Playwright,
    tools: Collection[Tool],
    names: Collection[str],
    folder: Path,
    results: Results,
    times: int,
) -> None:
    """Open every page, and open boxes in it."""
    from benchmarks.research.rivals.page import opened

    for turn in range(1, times + 1):
        for model in names:
            for tool in tools:
                done = [one for one in results.cell("kernel", tool.name, model) if "error" not in one]
                if done and results.lacks("page", tool.name, model, turn):
                    found = opened(playwright, tool, folder / done[-1]["file"], gestures=turn == 1)
                    results.add("page", tool.name, model, found)
                    print(turn, tool.name, model, found, file=sys.stderr, flush=True)


def run_pruning(ways: Collection[str], names: Collection[str], results: Results, times: int) -> None:
    """Cut half of each model off, in the ways that are installed."""
    from benchmarks.research.rivals import pruning

    here = [way for way in ways if pruning.is_there(way)]
    for turn in range(1, times + 1):
        for name in names:
            for way in here:
                if name in pruning.OUTPUTS and name in models.MODELS and results.lacks("pruning", way, name, turn):
                    found = pruning.cut_alone(way, name)
                    results.add("pruning", way, name, found)
                    print(turn, way, name, found, file=sys.stderr, flush=True)


def run_watching(results: Results) -> None:
    from benchmarks.research.rivals.watching import watched

    with TemporaryDirectory() as folder:
        results.put("watching", watched(Path(folder)))


def write_names(tools: Collection[Tool], results: Results) -> None:
    """What is compared, in the order of the tables, and the versions of what is installed."""
    from benchmarks.research.rivals import pruning

    results.put("tools", [{"name": tool.name, "package": tool.package, "call": tool.call} for tool in tools])
    results.put("models", list(models.MODELS))
    results.put("ways", list(pruning.WAYS))
    named = {tool.package for tool in tools} | {"nni", "torch", "torch-pruning", "wandb"}
    found = results.kept.get("versions", {})
    for name in named:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    results.put("versions", dict(sorted(found.items())))
