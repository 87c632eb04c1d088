"""The command: `python -m benchmarks.research.quality --help`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from benchmarks.research.quality import runner, table
from benchmarks.research.quality.measure import SIDES, Bench
from benchmarks.research.quality.nets import TASKS
from benchmarks.research.quality.trained import CACHE


def main(arguments: list[str]) -> None:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    unknown = set(options.nets) - set(TASKS)
    if unknown:
        sys.exit(f"no net {', '.join(sorted(unknown))}: choose of {', '.join(TASKS)}")
    asked = runner.Asked(
        options.nets,
        [float(share) for share in options.left],
        options.scope,
        options.importance,
        options.side,
        options.seeds,
        json.loads(options.plan),
        not options.no_ways,
    )
    file = options.results or options.cache / "results.jsonl"
    if options.fresh:
        file.unlink(missing_ok=True)
    bench = None if options.measured else Bench(options.cache, tune=not options.no_tuning)
    results = runner.run(asked, file, bench)
    print(table.document(results))
    if options.write:
        table.write(results, options.write)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.research.quality", description=runner.__doc__)
    for name, default, what in (
        ("nets", TASKS, ""),
        ("left", runner.LEFT, "shares of the FLOPs"),
        ("scope", runner.SCOPES, ""),
        ("importance", runner.IMPORTANCES, "names of mk.importance, and of the peer where it has them"),
        ("side", SIDES, ""),
    ):
        values = [str(value) for value in default]
        parser.add_argument(f"--{name}", type=_list, default=values, help=f"{what} [{','.join(values)}]")
    parser.add_argument("--seeds", type=int, help=f"how many, from 0 [{runner.SEEDS}, and more of nets that are quick]")
    parser.add_argument("--plan", default="{}", help="more arguments of mk.plan, as JSON")
    parser.add_argument("--no-tuning", action="store_true", help="much faster")
    parser.add_argument("--no-ways", action="store_true", help="without the table of group lasso and schedule")
    parser.add_argument("--cache", type=Path, default=CACHE, help="trained nets [~/.cache/modulekg-quality]")
    parser.add_argument("--results", type=Path, help="a line per cell: the run goes on there [CACHE/results.jsonl]")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--measured", action="store_true", help="show what is measured already, and nothing else")
    parser.add_argument("--write", type=Path, help="the table as markdown, and as JSON beside it")
    return parser


def _list(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main(sys.argv[1:])
