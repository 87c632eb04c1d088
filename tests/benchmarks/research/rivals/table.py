"""The tables of a document from the JSON beside it: `python -m benchmarks.research.rivals.table ../docs/comparison.md`.

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


def values(cell: Cell, key: str) -> list[float]:
    return [one[key] for one in cell if key in one]


def median(cell: Cell, key: str) -> float:
    return statistics.median(values(cell, key))


def ranged(found: Sequence[float], factor: float = 1.0) -> str:
    """The median of repetitions, and between which they lie."""
    text = number(statistics.median(found) * factor)
    least, most = number(min(found) * factor), number(max(found) * factor)
    return text if least == most else f"{text} ({least} … {most})"


def names_of(kept: Kept) -> list[str]:
    """The tools; ours is the first."""
    return [tool["name"] for tool in kept["tools"]]


def by_model(kept: Kept, part: str, text: Callable[[Cell], str]) -> str:
    """A row for each model, a column for each tool."""
    cells, listed = kept[part], names_of(kept)
    rows = [[name, *(figure(cells.get(tool, {}).get(name, []), text) for tool in listed)] for name in kept["models"]]
    return markdown(["", *listed], rows)


def tools(kept: Kept) -> str:
    versions = kept["versions"]
    rows = [[tool["name"], versions.get(tool["package"], NO_FIGURE), f"`{tool['call']}`"] for tool in kept["tools"]]
    return markdown(["", "version", "call"], rows)


def kernel(kept: Kept) -> str:
    table = by_model(kept, "kernel", lambda cell: ranged(values(cell, "seconds")))
    every = {tool: [one for cell in cells.values() for one in cell] for tool, cells in kept["kernel"].items()}
    first = [ranged(found) if (found := values(every.get(tool, []), "first")) else NO_FIGURE for tool in names_of(kept)]
    return f"{table}\n| {' | '.join(['first call in a process', *first])} |{errors(kept, 'kernel')}"


def errors(kept: Kept, part: str) -> str:
    """What failed in a table, and how; one who says the same of several models says it once."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in kept["models"]:
        for tool in kept["ways"] if part == "pruning" else names_of(kept):
            error = error_of(kept[part].get(tool, {}).get(name, []))
            if error and not OVER.fullmatch(error):
                found.setdefault((tool, error), []).append(name)
    found = {(tool, error.replace("`", "'")): of for (tool, error), of in found.items()}
    listed = [f"- {tool} on {'; '.join(of)}: `{error}`" for (tool, error), of in found.items()]
    return "\n\nErrors:\n\n" + "\n".join(listed) if listed else ""


def paint(kept: Kept) -> str:
    def text(cell: Cell) -> str:
        return f"{ranged(values(cell, 'cpu'))} · {median(cell, 'loaded') / 1e6:.1f}"

    return by_model(kept, "page", text) + errors(kept, "page")


def clock(kept: Kept) -> str:
    return by_model(kept, "page", lambda cell: ranged(values(cell, "painted"), 1e-3))


def opening(kept: Kept) -> str:
    """What it takes to open a box, of all models together."""
    rows = []
    for tool in names_of(kept):
        cells = kept["page"].get(tool, {})
        clicks = [one for cell in cells.values() for found in cell for one in found.get("opening", [])]
        answered = [one for one in clicks if "missed" not in one]
        if answered:
            cpu, on_clock = [one["cpu"] * 1000 for one in answered], [one["clock"] for one in answered]
            figures = [statistics.median(cpu), p95(cpu), statistics.median(on_clock), p95(on_clock)]
            of_models = sum(any(found.get("opening") for found in cell) for cell in cells.values())
            counted = f"{len(answered)} of {len(clicks)}"
            rows.append([tool, f"{of_models}", counted, *(f"{figure:,.0f}" for figure in figures)])
    head = ["", "models with boxes to open", "clicks that opened one"]
    table = markdown([*head, "CPU, median", "CPU, p95", "clock, median", "clock, p95"], rows)
    return table + missed(kept)


def missed(kept: Kept) -> str:
    """Which clicks opened nothing."""
    listed = [
        f"{name}, {tool}: `{one['box']}`"
        for name in kept["models"]
        for tool in names_of(kept)
        for found in kept["page"].get(tool, {}).get(name, [])
        for one in found.get("opening", [])
        if "missed" in one
    ]
    return "\n\nClicks without effect: " + " · ".join(listed) + "." if listed else ""


def noise(kept: Kept) -> str:
    """How far repetitions of one cell lie apart."""
    said = []
    for part, key, what in (("kernel", "seconds", "kernel"), ("page", "cpu", "browser")):
        cells = [values(cell, key) for tool in kept[part].values() for cell in tool.values()]
        spread = [max(cell) / min(cell) for cell in cells if len(cell) > 1]
        if spread:
            said.append(
                f"In the {what}, the largest repetition of a cell is {statistics.median(spread):.1f} × the smallest in "
                f"the median. In one of twenty cells it is {p95(spread):.1f} ×, and {max(spread):.1f} × at most."
            )
    counts = {len(cell) for part in ("kernel", "page") for tool in kept[part].values() for cell in tool.values()}
    times = " to ".join(f"{count}" for count in sorted({min(counts), max(counts)}))
    return f"Noise: {' '.join(said)} Repetitions per cell: {times}, the same number for all cells of a row."


def fewer(kept: Kept) -> str:
    """In how many models each tool takes less than this package."""
    ours, *others = names_of(kept)

    def count(tool: str, part: str, key: str) -> str:
        mine, theirs = (kept[part].get(one, {}) for one in (ours, tool))
        both = [
            name for name in kept["models"] if values(mine.get(name, []), key) and values(theirs.get(name, []), key)
        ]
        return f"{sum(median(theirs[name], key) < median(mine[name], key) for name in both)} of {len(both)}"

    columns = {
        "kernel": ("kernel", "seconds"),
        "first paint, CPU": ("page", "cpu"),
        "first paint, clock": ("page", "painted"),
    }
    rows = [[tool, *(count(tool, part, key) for part, key in columns.values())] for tool in others]
    return markdown(["models where the tool takes less than this package", *columns], rows)


def drawn(kept: Kept) -> str:
    """What is right in the pictures, beside the truth."""
    found, truth = kept["drawn"], kept["drawn"]["truth"]

    def one(tool: str, model: str) -> dict[str, Any]:
        return next(iter(found.get(tool, {}).get(model, [])), {})

    def told(value: Any) -> str:
        return NO_FIGURE if value is None else f"{value}"

    def count(label: str, model: str, key: str, true: Any) -> list[str]:
        return [label, f"{true}", *(told(one(tool, model).get(key)) for tool in names_of(kept))]

    def shapes(tool: str) -> str:
        share = one(tool, "U-Net").get("shaped")
        return NO_FIGURE if share is None else f"{share:.0%}"

    def opens(model: str) -> list[str]:
        cells = [kept["kernel"].get(tool, {}).get(model, []) for tool in names_of(kept)]
        return ["no" if error_of(cell) else "yes" if cell else NO_FIGURE for cell in cells]

    rows = [
        *(
            count(f"{model}: `{label}` with arrows from two or more boxes", model, key, true)
            for key, label in (("add", "+"), ("cat", "cat"))
            for model in kept["models"]
            if (true := truth[model][0].get(key, 0))
        ),
        count("`F.relu` without a module", "shared", "relu", 1),
        count("layer called twice: boxes with its name", "shared", "shared", 2),
        count("resnet18: levels of nested modules", "resnet18", "levels", truth["resnet18"][0]["levels"]),
        ["arrows with a shape, U-Net", "100%", *map(shapes, names_of(kept))],
        ["opens a model with data-dependent control flow", "yes", *opens("deciding")],
        ["draws the operators before a failing one", "yes", *opens("failing")],
    ]
    return markdown(["", "model", *names_of(kept)], rows)


def pruning(kept: Kept) -> str:
    cells = kept["pruning"]
    cut = [name for name in kept["models"] if any(name in of_way for of_way in cells.values())]

    def text(cell: Cell) -> str:
        if error_of(cell):
            return figure(cell, str)
        kind = "" if all(one["same outputs"] for one in cell) else ", **other outputs**"
        undone = ", undone" if all(one.get("undone") for one in cell) else ""
        return f"{cell[0]['left']:.0%} left, {ranged(values(cell, 'seconds'))} s{undone}{kind}"

    rows = [[name, *(figure(cells.get(way, {}).get(name, []), text) for way in kept["ways"])] for name in cut]
    asked = ", ".join(f"{name} {kept['versions'].get(name, NO_FIGURE)}" for name in ("torch-pruning", "nni", "torch"))
    return f"{markdown(['', *kept['ways']], rows)}\n\nVersions: {asked}.{errors(kept, 'pruning')}"


def watching(kept: Kept) -> str:
    rows = [
        [
            way,
            f"{one['histograms'] or NO_FIGURE}",
            "yes" if one["written"] else "no",
            f"{one['ratio']:.2f} ({one['range'][0]:.2f} … {one['range'][1]:.2f})",
            "yes" if one["same losses"] else "**no**",
            "yes" if one["same state"] else "**no**",
        ]
        for way, one in kept["watching"].items()
    ]
    head = ["", "histograms per step", "writes to disk", "time per step ÷ unmonitored"]
    return markdown([*head, "same losses", "same model afterwards"], rows)


TABLES: dict[str, Callable[[Kept], str]] = {
    made.__name__: made for made in (tools, noise, kernel, paint, clock, fewer, opening, drawn, pruning, watching)
}


def equal(kept: Kept) -> Kept:
    """As many repetitions of each cell as the others of its row have: a run that was stopped favors none."""
    found = dict(kept)
    for part in ("kernel", "page", "pruning"):
        cells = [(model, cell) for of in kept[part].values() for model, cell in of.items()]
        least: dict[str, int] = {}
        for model, cell in cells:
            if cell and not error_of(cell):
                least[model] = min(len(cell), least.get(model, len(cell)))
        found[part] = {
            tool: {model: cell if error_of(cell) else cell[: least.get(model)] for model, cell in of.items()}
            for tool, of in kept[part].items()
        }
    return found


def written(document: str, kept: Kept) -> str:
    """The document with its tables as of these results."""
    kept = equal(kept)
    return PLACE.sub(lambda place: f"<!-- {place[1]} -->\n{TABLES[place[1]](kept)}\n<!-- end -->", document)


def main(document: Path) -> None:
    kept = json.loads(document.with_suffix(".json").read_text("utf-8"))
    document.write_text(written(document.read_text("utf-8"), kept), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
