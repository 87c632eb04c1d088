"""Measures, and writes what was measured: `cd tests && python -m benchmarks.research.rivals --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.research.rivals import models, runner
from benchmarks.research.rivals.pruning import WAYS
from benchmarks.research.rivals.results import Results
from benchmarks.research.rivals.tools import TOOLS

PARTS = ("kernel", "drawn", "page", "pruning", "watching")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.research.rivals", description=__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="JSON", help="what was measured; goes on in it")
    parser.add_argument("--folder", type=Path, required=True, help="keeps the pages")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS), metavar="TOOL")
    parser.add_argument("--models", nargs="*", default=[*models.PROBES, *models.MODELS], metavar="MODEL")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), metavar="WAY", help="of pruning")
    parser.add_argument("--times", type=int, default=3, help="repetitions of each cell")
    asked = parser.parse_args()
    tools = [TOOLS[name] for name in asked.tools]
    results = Results(asked.write)
    asked.folder.mkdir(parents=True, exist_ok=True)
    runner.write_names(TOOLS.values(), results)
    if "kernel" in asked.parts:
        runner.run_kernels(tools, asked.models, asked.folder, results, asked.times)
    if "drawn" in asked.parts:
        runner.run_drawings(tools, asked.models, asked.folder, results)
    if "page" in asked.parts:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            runner.run_pages(playwright, tools, asked.models, asked.folder, results, asked.times)
    if "pruning" in asked.parts:
        runner.run_pruning(asked.ways, asked.models, results, asked.times)
    if "watching" in asked.parts:
        runner.run_watching(results)


if __name__ == "__main__":
    main()
