"""CPU time in the kernel: a line of JSON for each line `[MODEL, FILE]`.

It is run as `python -m benchmarks.research.rivals.kernel TOOL`.
The tool is imported and the model is built once; then each answer is measured in a process forked off for it. That
process first draws one small model, by which what the tool imports late is loaded; what this took is told beside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from benchmarks.research.rivals import models
from benchmarks.research.rivals.alone import alone, cpu_seconds
from benchmarks.research.rivals.tool import Tool
from benchmarks.research.rivals.tools import TOOLS

DIED = '{"error": "the process ended"}'
TESTS = Path(__file__).parents[3]


def seconds(tool: Tool, made: models.Made, file: Path) -> tuple[float, Path]:
    """What one call takes, and what it wrote."""
    begin = cpu_seconds()
    written = tool.make(*made, file)
    return cpu_seconds() - begin, written


def measured(tool: Tool, made: models.Made, file: Path) -> dict[str, Any]:
    """What came of the call on a model, after the one on a small model."""
    with TemporaryDirectory() as folder:
        first, _ = seconds(tool, models.build("shared"), Path(folder) / "small")
    taken, written = seconds(tool, made, file)
    return {"seconds": taken, "first": first, "file": str(written), "bytes": written.stat().st_size}


def main(name: str) -> None:
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tool, kept = TOOLS[name], {}
    answers, sys.stdout = sys.stdout, sys.stderr
    tool.prepare()
    for line in sys.stdin:
        model, file = json.loads(line)
        if model not in kept:
            kept = {model: models.build(model)}
        print(json.dumps(alone(partial(measured, tool, kept[model], Path(file)))), file=answers, flush=True)


class Kernel:
    """A process that has imported one tool."""

    def __init__(self, tool: Tool) -> None:
        command = [sys.executable, "-m", "benchmarks.research.rivals.kernel", tool.name]
        surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "MODULEKG_PLUGINS": "0"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=TESTS, env=surroundings
        )

    def ask(self, model: str, file: Path) -> dict[str, Any]:
        into, out = self._pipes()
        print(json.dumps([model, str(file)]), file=into, flush=True)
        return json.loads(out.readline() or DIED)

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
