"""Which libraries load cut models, one row per model.

Run it with `python tests/benchmarks/research/saving_table.py [name …] > docs/saving_table.md`.

Each is cut with `layers="uniform"` at a ratio of 0.5, and once more by a quarter of its blocks, saved, and loaded in a
fresh process: the outputs must be the same bit by bit. A row says what is left of the parameters and whether
`from_pretrained` of transformers loads it; timm has none for such models, so that `mk.load_pretrained` does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # as pytest's `pythonpath` does

import modulekg_widgets as mk
from models import transformers_models
from pruning.saving.fresh import TIMM, answers, ask, timm_case

WAYS: dict[str, dict[str, Any]] = {"ratio": {"ratio": 0.5}, "blocks": {"blocks": 0.25}}
HEAD = """# Which pruned models reload with `from_pretrained`

Written by `python tests/benchmarks/research/saving_table.py > docs/saving_table.md`. Each model is pruned with
`layers="uniform"`, once at a ratio of 0.5 and once by a quarter of its blocks (`blocks=0.25`). It is saved and loaded
in a fresh process, where its outputs are the same bit for bit. *left* is the share of the parameters that remains.
`mk.load_pretrained` loads all of them. `from_pretrained` of transformers loads those whose configuration can express
the cut; timm has no such function.
"""
MOST_LEFT = 0.75  # a plan that takes less is no proof that widths can be said


@dataclass(frozen=True, slots=True)
class Saved:
    """One model, cut in one way."""

    left: float = 1.0  # of the parameters
    plain: bool = False
    reason: str = ""
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"– | {self.problem}"
        return f"{self.left:.0%} | {'yes' if self.plain else 'no'}"


@dataclass(frozen=True, slots=True)
class Row:
    """One model."""

    name: str
    library: str
    ways: dict[str, Saved]

    def __str__(self) -> str:
        return f"| {self.name} | {' | '.join(map(str, self.ways.values()))} |"


def saved(name: str, place: Path, library: str, how: dict[str, Any]) -> Saved:
    """Cut one model and save it beside what it gives."""
    if library == "timm":
        model, args = timm_case(name)
        kwargs: dict[str, Any] = {}
    else:
        model, kwargs = transformers_models.build(name)
        args = ()
    try:
        plan = mk.plan(mk.trace(model, args, kwargs), **how, layers="uniform")
        receipt = plan.cut(model)
        written = receipt.save_pretrained(place / "folder")
    except mk.ModuleKGError as error:
        return Saved(problem=f"`{' '.join(str(error).split())[:60].rstrip()}`")  # in the words of the error
    ask(model, args, kwargs, place)
    return Saved(plan.params[1] / plan.params[0], written.plain, written.reason)


def rows(names: Sequence[str], library: str) -> list[Row]:
    """Cut, save, and load in a fresh process."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in names:
            ways = {way: saved(name, root / way / name, library, how) for way, how in WAYS.items()}
            found.append(Row(name, library, ways))
            print(found[-1], *(f"{way}: {each.reason}" for way, each in ways.items()), file=sys.stderr, flush=True)
        places = {(row.name, way): root / way / row.name
                  for row in found for way, each in row.ways.items() if not each.problem}  # fmt: skip
        told = answers(list(places.values()))
        for (name, way), place in places.items():
            answer = told[str(place)]
            if not answer.get("equal") or not answer.get("plain", True):
                raise SystemExit(f"{name}, cut by {way}: {answer}")
    return found


def table(found: Sequence[Row]) -> str:
    """The rows under their heads, and how many of transformers load by `from_pretrained`."""
    heads = [f"{way}: left | `from_pretrained`" for way in WAYS]
    lines = [HEAD, f"| model | {' | '.join(heads)} |", "|---|" + "---|" * 2 * len(WAYS)]
    lines += [str(row) for row in found]
    own = [row for row in found if row.library == "transformers"]
    for way in WAYS:
        plain = [row.ways[way] for row in own if row.ways[way].plain]
        much = [each for each in plain if each.left <= MOST_LEFT]
        counted = f"{len(plain)} of {len(own)} load by `from_pretrained`"
        lines += ["", f"{way}: {counted}, {len(much)} of them with at most {MOST_LEFT:.0%} of their parameters."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    wanted = parser.parse_args().names
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = {"transformers": list(transformers_models.CASES), "timm": list(TIMM)}
    found: list[Row] = []
    for library, names in cases.items():
        found += rows([name for name in names if not wanted or name in wanted], library)
    print(table(found))


if __name__ == "__main__":
    main()
