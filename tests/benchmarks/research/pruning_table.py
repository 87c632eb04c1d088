"""Cuts every float torchvision model at ratio 0.5: `python tests/benchmarks/research/pruning_table.py [name …]`.

Each model is planned, cut, run, undone and compared byte for byte, with nothing said about it but its inputs.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from models.zoo import float_models, zoo_case
from pruning.battery import HEAD, Row, pruned


def main(names: list[str]) -> int:
    """Print a row for each model, then the sums; the exit status counts what was refused or wrong."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(HEAD)
    rows: list[Row] = []
    for name in names or float_models():
        rows.append(pruned(name, *zoo_case(name)))
        print(rows[-1], flush=True)
    done = [row for row in rows if row.ok]
    print(
        f"\n{len(done)} of {len(rows)} ok, {sum(bool(row.refusal) for row in rows)} refused, "
        f"{sum(bool(row.wrong) for row in rows)} wrong; "
        f"{sum(row.left <= 0.6 for row in done)} lost 40 % of their parameters or more, "
        f"others: {', '.join(f'{row.name} ({row.left:.1%} left)' for row in done if row.left > 0.6) or 'none'}; "
        f"{sum(row.corrections > 0 for row in done)} needed corrections"
    )
    return len(rows) - len(done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
