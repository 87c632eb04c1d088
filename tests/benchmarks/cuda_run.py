"""All that could be wrong on a GPU alone, run on one: cuts and undo, times, importances, files, monitoring.

    python tests/benchmarks/cuda_run.py [--device cpu] [--only cut latency …] [--seconds 300]

Prints a line of figures for each check, and a traceback for one that fails; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: deterministic algorithms want it
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import cuda_monitoring
import cuda_pruning
import torch

Case = tuple[str, Callable[[], str]]
GROUPS: dict[str, Callable[[torch.device], Iterator[Case]]] = {
    "monitor": cuda_monitoring.cases,
    "cut": cuda_pruning.cuts,
    "time": cuda_pruning.times,
    "data": cuda_pruning.data,
    "file": cuda_pruning.files,
}


def failed(name: str, check: Callable[[], str]) -> bool:
    """Whether a check fails; its line is printed."""
    torch.manual_seed(0)
    start = time.perf_counter()
    try:
        text = check()
    except Exception as error:  # noqa: BLE001 - the others are to run as well
        text = f"FAILED: {type(error).__name__}: {error}"
        traceback.print_exc(limit=-8)
    finally:
        torch.use_deterministic_algorithms(False)
    print(f"{name:<42} {text}  [{time.perf_counter() - start:.1f} s]", flush=True)
    return text.startswith("FAILED")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=[], help="groups, or parts of the names of checks")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no check is begun")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    torch.backends.cudnn.allow_tf32 = False  # figures of the CPU are compared with
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name() if device.type == "cuda" else "the CPU", "torch", torch.__version__, flush=True)
    start, count, left_out, failures = time.perf_counter(), 0, [], []
    for group, cases in GROUPS.items():
        for name, check in cases(device):
            full = f"{group}: {name}"
            if asked.only and not any(part == group or part in full for part in asked.only):
                continue
            if time.perf_counter() - start > asked.seconds:
                left_out.append(full)
                continue
            count += 1
            failures += [full] if failed(full, check) else []
            gc.collect()
    print(f"{count} checks, {len(failures)} failed: {failures}, not begun: {left_out}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
