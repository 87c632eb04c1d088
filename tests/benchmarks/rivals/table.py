"""The tables of a document from the JSON beside it: `python -m benchmarks.rivals.table ../docs/comparison.md`.

Each stands between `<!-- name -->` and `<!-- end -->`, and is written anew there.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import p95
from benchmarks.rivals import models
from benchmarks.rivals.page import GESTURE_LIMIT
from benchmarks.rivals.pruning import OUTPUTS, WAYS
from benchmarks.rivals.tools import LISTED, TOOLS

CUT = [name for name in models.MODELS if name in OUTPUTS]
PLACE = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
OVER = re.compile(r"over (\d+) s")
NO_FIGURE = "–"
Kept = dict[str, Any]
Cell = list[dict[str, Any]]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(one.replace("|", "\\|") for one in line) + " |" for line in lines)


def number(value: float) -> str:
    """With two digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def error_of(cell: Cell) -> str:
    return next((one["error"] for one in cell if "error" in one), "")


def figure(cell: Cell, text: Callable[[Cell], str]) -> str:
    """What a cell of repetitions says: its figure, how long it would have to wait at least, or that there is none."""
    if not (error := error_of(cell)):
        return text(cell) if cell else NO_FIGURE
    over = OVER.fullmatch(error)
    return f"> {over[1]}" if over else "fails"


def median(cell: Cell, key: str) -> float:
    return statistics.median(one[key] for one in cell)


def by_model(kept: Kept, part: str, text: Callable[[Cell], str], names: Iterable[str] = models.MODELS) -> str:
    """A row for each model, a column for each tool."""
    cells = kept.get(part, {})
    rows = [[name, *(figure(cells.get(tool, {}).get(name, []), text) for tool in TOOLS)] for name in names]
    return markdown(["", *TOOLS], rows)


def tools(kept: Kept) -> str:
    rows = [[tool.name, kept["versions"].get(tool.package, NO_FIGURE), f"`{tool.call}`"] for tool in LISTED]
    return markdown(["", "version", "call"], rows)


def kernel(kept: Kept) -> str:
    table = by_model(kept, "kernel", lambda cell: number(median(cell, "seconds")))
    every = {tool: [one for cell in cells.values() for one in cell] for tool, cells in kept["kernel"].items()}
    first = [[one for one in every.get(tool, []) if one.get("first") is not None] for tool in TOOLS]
    row = ["first call in a process", *(number(median(cell, "first")) if cell else NO_FIGURE for cell in first)]
    return f"{table}\n| {' | '.join(row)} |{errors(kept, 'kernel')}"


def errors(kept: Kept, part: str) -> str:
    """What failed in a table, and how."""
    listed = [
        f"{name}, {tool}: *{error}*"
        for name in models.MODELS
        for tool in TOOLS
        if (error := error_of(kept[part].get(tool, {}).get(name, []))) and not OVER.fullmatch(error)
    ]
    return "\n\n" + " · ".join(listed) if listed else ""


def paint(kept: Kept) -> str:
    def text(cell: Cell) -> str:
        least = min(one["painted"] for one in cell) / 1000
        return f"{number(median(cell, 'cpu'))} ({number(least)}) · {median(cell, 'loaded') / 1e6:.1f}"

    return by_model(kept, "page", text) + errors(kept, "page")


def opening(kept: Kept) -> str:
    """How long it takes to open a box, of all models together."""
    rows = []
    for tool in LISTED:
        cells = kept["page"].get(tool.name, {})
        clicks = [taken for cell in cells.values() for one in cell for taken in one.get("opening", [])]
        answered = [taken for taken in clicks if taken < GESTURE_LIMIT]
        if len(answered) > 1:
            rows.append(
                [
                    tool.name,
                    f"{len(answered)} of {len(clicks)}",
                    f"{statistics.median(answered):.0f}",
                    f"{p95(answered):.0f}",
                ]
            )
    return markdown(["", "clicks that opened one", "median, ms", "p95, ms"], rows)


def drawn(kept: Kept) -> str:
    """What is right in the pictures, beside the truth."""
    found, truth = kept["drawn"], kept["drawn"]["truth"]

    def one(tool: str, model: str) -> dict[str, Any]:
        return next(iter(found.get(tool, {}).get(model, [])), {})

    def count(label: str, model: str, key: str, true: Any) -> list[str]:
        return [label, f"{true}", *(f"{one(tool, model).get(key, NO_FIGURE)}" for tool in TOOLS)]

    def shapes(tool: str) -> str:
        share = one(tool, "U-Net").get("shaped")
        return NO_FIGURE if share is None else f"{share:.0%}"

    def opens(model: str) -> list[str]:
        cells = [kept["kernel"].get(tool, {}).get(model, []) for tool in TOOLS]
        return ["no" if error_of(cell) else "yes" if cell else NO_FIGURE for cell in cells]

    rows = [
        *(
            count(f"{model}: {label} with two arrows into it or more", model, key, truth[model][0].get(key, 0))
            for model, label, key in (
                ("resnet18", "`+`", "add"),
                ("resnet152", "`+`", "add"),
                ("densenet201", "`cat`", "cat"),
                ("U-Net", "`cat`", "cat"),
                ("swin_t", "`+`", "add"),
            )
        ),
        count("`F.relu` that no module stands for", "shared", "relu", 1),
        count("layer called twice: boxes that say its name", "shared", "shared", 2),
        count("resnet18: modules that lie in each other", "resnet18", "levels", truth["resnet18"][0]["levels"]),
        count("Faster R-CNN: boxes with all of it open", "Faster R-CNN", "boxes", NO_FIGURE),
        ["arrows that tell a shape, U-Net", "100%", *map(shapes, TOOLS)],
        ["opens a forward that decides by its data", "yes", *opens("deciding")],
        ["draws what ran before a forward failed", "yes", *opens("failing")],
    ]
    return markdown(["", "model", *TOOLS], rows)


def pruning(kept: Kept) -> str:
    cells = kept["pruning"]

    def text(cell: Cell) -> str:
        if error_of(cell):
            return figure(cell, str)
        (one,) = cell
        kind = "" if one["same outputs"] else ", **other outputs**"
        undone = ", undone" if one.get("undone") else ""
        return f"{one['left']:.0%} left, {number(one['seconds'])} s{undone}{kind}"

    rows = [[name, *(figure(cells.get(way, {}).get(name, []), text) for way in WAYS)] for name in CUT]
    failed = [
        f"{name}, {way}: *{error}*"
        for name in CUT
        for way in WAYS
        if (error := error_of(cells.get(way, {}).get(name, []))) and not OVER.fullmatch(error)
    ]
    return markdown(["", *WAYS], rows) + ("\n\n" + " · ".join(failed) if failed else "")


def watching(kept: Kept) -> str:
    rows = [
        [
            way,
            f"{one['ratio']:.2f} ({one['range'][0]:.2f} … {one['range'][1]:.2f})",
            "yes" if one["same losses"] else "**no**",
            "yes" if one["same state"] else "**no**",
        ]
        for way, one in kept["watching"].items()
    ]
    return markdown(["", "step with it ÷ bare step", "same losses", "same net afterwards"], rows)


TABLES: dict[str, Callable[[Kept], str]] = {
    made.__name__: made for made in (tools, kernel, paint, opening, drawn, pruning, watching)
}


def written(document: str, kept: Kept) -> str:
    """The document with its tables as of these results."""
    return PLACE.sub(lambda place: f"<!-- {place[1]} -->\n{TABLES[place[1]](kept)}\n<!-- end -->", document)


def main(document: Path) -> None:
    kept = json.loads(document.with_suffix(".json").read_text("utf-8"))
    document.write_text(written(document.read_text("utf-8"), kept), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
