"""How legible a picture of a graph is, from plain data: what overlaps, what lines run through, how large the text is.

A scene is what a page has on its canvas, as JSON:

    {"width": 800, "height": 560, "look": {"x": 0, "y": 0, "zoom": 1}, "covered": [BOX on the canvas, ...],
     "items": [{"id": "a", "parent": null, "box": BOX, "isOpen": false, "texts": [TEXT, ...]}, ...],
     "lines": [{"source": "a", "target": "b", "points": [[x, y], ...], "labels": [TEXT, ...]}, ...]}

A BOX is [left, top, width, height], a TEXT {"text", "box", "size", "isTitle"}; both, and points, are in the units of
the picture. What is `isOpen` is a frame, others are cards. Without a `look` all is fitted. Items may have a `title`.

`python -m browser.legibility SCENE.json ...`, run in tests/, prints a table.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Box: TypeAlias = Sequence[float]
Scene: TypeAlias = Mapping[str, Any]

INPUT, OUTPUT = "\0input", "\0output"
TOUCH = 1.0  # units: what touches does not overlap
MARGIN, LARGEST = 22, 1.15  # of a picture that is fitted, as js/src/core/shared/stage/viewport.ts has them
NEAR = 16.0  # units from its line, where a label is still seen to be its own
REACH = 3.0  # units from the border of a box, where a line still ends at it
ALONG = 6.0  # units that two lines may run on each other
APART = 3.0  # units between two lines that are still seen to be two
BESIDE = 32.0  # units: a line that comes back nearer than this runs beside itself; past a card it keeps off farther
BACK = 24.0  # units that it does so: less is how every line leaves a card
ASIDE = 10.0  # units by which a line leaves its way at least
ROW = 120.0  # units: a line that goes back to the left for longer has come to the end of a row


@dataclass
class Figures:
    """What was measured; each list names the faults that were found."""

    cards: int = 0
    frames: int = 0
    lines: int = 0
    zoom: float = 0.0
    title_px: float = 0.0  # smallest title on the screen
    text_px: float = 0.0  # smallest text of any kind
    used: float = 0.0  # share of the canvas within the bounds of all that is drawn
    inked: float = 0.0  # share of the canvas under cards
    crossings: int = 0  # of lines without a common end
    diagonals: int = 0  # lines that do not keep to right angles
    length: float = 0.0  # of all lines, in units; where edges share a line it counts once
    detour: float = 0.0  # length of all lines for that of the straight ways between their ends
    cut_titles: int = 0  # that had no room for all of their letters
    overlaps: list[str] = field(default_factory=list)  # cards, frames and titles on each other, or out of their frame
    through_cards: list[str] = field(default_factory=list)
    through_titles: list[str] = field(default_factory=list)
    through_frames: list[str] = field(default_factory=list)
    on_lines: list[str] = field(default_factory=list)  # lines on each other without a common end
    loose_ends: list[str] = field(default_factory=list)  # lines that do not reach what they lead to
    hairpins: list[str] = field(default_factory=list)  # lines that double back, or leave their way with no need
    broken_skips: list[str] = field(default_factory=list)  # lines around cards, back to the beginning of another row
    labels: list[str] = field(default_factory=list)  # on labels, cards or titles
    stray_labels: list[str] = field(default_factory=list)
    out_of_view: list[str] = field(default_factory=list)  # cards
    covered: list[str] = field(default_factory=list)  # cards under what lies on the canvas
    ends: list[str] = field(default_factory=list)  # inputs and outputs that are not there, or not in view


def measure(scene: Scene) -> Figures:
    """All figures of a scene."""
    return _Measured(scene).figures


class _Measured:
    def __init__(self, scene: Scene) -> None:
        self.items: list[Any] = list(scene["items"])
        self.lines: list[Any] = [line for line in scene["lines"] if len(line["points"]) > 1]
        self.place = {item["id"]: place for place, item in enumerate(self.items)}
        self.parents = [self.place.get(item["parent"], -1) for item in self.items]
        self.boxes = _corners(item["box"] for item in self.items)
        self.is_card = np.array([not item["isOpen"] for item in self.items], dtype=bool)
        self.ends = [(self.place[line["source"]], self.place[line["target"]]) for line in self.lines]
        self.points = [np.asarray(line["points"], dtype=float) for line in self.lines]
        self.labels = [(number, text) for number, line in enumerate(self.lines) for text in line["labels"]]
        self.titles = [
            (place, text) for place, item in enumerate(self.items) if item["isOpen"] for text in item["texts"]
        ]
        self.figures = Figures(int(self.is_card.sum()), int((~self.is_card).sum()), len(self.lines))
        self.look(scene)
        self.overlapping()
        self.lines_through()
        self.labels_on()
        self.crossing()
        self.doubling_back()
        self.breaking_skips()

    # ------------------------------------------------------------------ what is on the screen

    def look(self, scene: Scene) -> None:
        figures, (width, height) = self.figures, (scene["width"], scene["height"])
        bounds = self.bounds()
        x, y, zoom = _look(scene.get("look") or _fitted(bounds, width, height))
        figures.zoom = zoom
        texts = [text for item in self.items for text in item["texts"]]
        titles = [text for text in texts if text["isTitle"]]
        figures.title_px = min((text["size"] * zoom for text in titles), default=0.0)
        figures.cut_titles = sum(text["text"].endswith("…") for text in titles)
        figures.text_px = min((text["size"] * zoom for text in [*texts, *(text for _, text in self.labels)]), default=0)
        on_screen = self.boxes * zoom + np.array([x, y, x, y])
        canvas = np.array([0.0, 0.0, width, height])
        drawn = _common(bounds * zoom + np.array([x, y, x, y]), canvas)
        figures.used = float(_areas(drawn) / (width * height))
        figures.inked = float(_areas(_common(on_screen[self.is_card], canvas)).sum() / (width * height))
        covers = _corners(scene.get("covered", ()))
        for place in np.flatnonzero(self.is_card):
            left, top, right, bottom = on_screen[place]
            inside = left >= -TOUCH and top >= -TOUCH and right <= width + TOUCH and bottom <= height + TOUCH
            hidden = bool(_meet(covers, on_screen[place]).any())
            name = self.name(place)
            if not inside:
                figures.out_of_view.append(name)
            if hidden:
                figures.covered.append(name)
            if (not inside or hidden) and self.items[place]["id"].startswith((INPUT, OUTPUT)):
                figures.ends.append(name)
        for end in (INPUT, OUTPUT):
            if not any(item["id"].startswith(end) for item in self.items):
                figures.ends.append(f"no {end[1:]}")

    def bounds(self) -> np.ndarray:
        """The corners of the smallest box around all cards, lines and labels."""
        corners = [self.boxes[:, :2], self.boxes[:, 2:], *self.points]
        corners += [_corners([text["box"]]).reshape(2, 2) for _, text in self.labels]
        stacked = np.concatenate(corners)
        return np.concatenate([stacked.min(0), stacked.max(0)])

    # ------------------------------------------------------------------ boxes

    def overlapping(self) -> None:
        found = self.figures.overlaps
        for place, box in enumerate(self.boxes):
            around = self.around(place)
            for other in np.flatnonzero(_meet(self.boxes[:place], box)):
                if int(other) not in around and place not in self.around(int(other)):
                    found.append(f"{self.name(other)} and {self.name(place)}")
            parent = self.parents[place]
            if parent >= 0:
                frame = self.boxes[parent]
                if (box[:2] < frame[:2] - TOUCH).any() or (box[2:] > frame[2:] + TOUCH).any():
                    found.append(f"{self.name(place)} leaves {self.name(parent)}")
        for frame, text in self.titles:
            (box,) = _corners([text["box"]])
            for other in np.flatnonzero(_meet(self.boxes, box)):
                if int(other) != frame and int(other) not in self.around(frame):
                    found.append(f"{self.name(other)} on the title of {self.name(frame)}")

    def around(self, place: int) -> set[int]:
        """The frames around a place."""
        found = set()
        while (place := self.parents[place]) >= 0 and place not in found:
            found.add(place)
        return found

    # ------------------------------------------------------------------ lines

    def lines_through(self) -> None:
        figures = self.figures
        titles = _corners(text["box"] for _, text in self.titles)
        for number, points in enumerate(self.points):
            name = self.line_name(number)
            first, last = self.ends[number]
            hit = _run_through(points, self.boxes)
            for place in np.flatnonzero(hit.any(0)):
                if self.is_card[place]:
                    segments = np.flatnonzero(hit[:, place])
                    own = {first: 0, last: len(points) - 2}  # where a line may still be in the card that it ends in
                    if any(own.get(int(place)) != segment for segment in segments) and first != last:
                        figures.through_cards.append(f"{name} through {self.name(place)}")
                elif self.passes(points, int(place), first, last):
                    figures.through_frames.append(f"{name} through {self.name(place)}")
            for title in np.flatnonzero(_run_through(points, titles).any(0)):
                figures.through_titles.append(f"{name} through the title of {self.name(self.titles[title][0])}")
            for end, point in ((first, points[0]), (last, points[-1])):
                if _distance(self.boxes[end], point) > REACH:
                    figures.loose_ends.append(f"{name} at {self.name(end)}")
            steps = np.abs(np.diff(points, axis=0))
            figures.diagonals += bool((steps.min(1) > TOUCH).any())

        straight = sum(float(np.hypot(*(points[-1] - points[0]))) for points in self.points)
        length = sum(float(np.hypot(*np.diff(points, axis=0).T).sum()) for points in self.points)
        figures.detour = length / max(straight, 1.0)
        figures.length = _length_of_all(self.points)

    def passes(self, points: np.ndarray, frame: int, first: int, last: int) -> bool:
        """Whether a line is in and out of a frame more often than its ends ask for."""
        inside = [frame in self.around(end) for end in (first, last)]
        allowed = 1 if inside[0] != inside[1] else 0
        return _turns(points, self.boxes[frame]) > allowed

    def crossing(self) -> None:
        starts = np.concatenate([points[:-1] for points in self.points] or [np.zeros((0, 2))])
        stops = np.concatenate([points[1:] for points in self.points] or [np.zeros((0, 2))])
        owner = np.repeat(np.arange(len(self.points)), [len(points) - 1 for points in self.points])
        ends = np.asarray(self.ends, dtype=int).reshape(-1, 2)
        doubled, crossed = set(), set()
        for at in range(len(starts)):
            rest = slice(at + 1, None)
            one, others = ends[owner[at]], ends[owner[rest]]
            apart = ~((others == one[0]) | (others == one[1])).any(1)
            for other in np.flatnonzero(_cross(starts[at], stops[at], starts[rest], stops[rest]) & apart):
                crossed.add(_meeting(starts[at], stops[at], starts[rest][other], stops[rest][other]))
            along = _along(starts[at], stops[at], starts[rest], stops[rest]) & apart
            doubled |= {(int(owner[at]), int(owner[rest][other])) for other in np.flatnonzero(along)}
        self.figures.crossings = len(crossed)  # where edges share a line they cross others once
        self.figures.on_lines += [f"{self.line_name(a)} on {self.line_name(b)}" for a, b in sorted(doubled)]

    # ------------------------------------------------------------------ ways with no need

    def doubling_back(self) -> None:
        cards = self.boxes[self.is_card]
        for number, points in enumerate(self.points):
            first, last = self.ends[number]
            if first != last and (_comes_back(points) or self.leaves_its_way(points, cards)):
                self.figures.hairpins.append(self.line_name(number))

    def leaves_its_way(self, points: np.ndarray, cards: np.ndarray) -> bool:
        """Whether a line turns aside and then goes on at the height, or depth, from which it came, past no card."""
        for across in (0, 1):
            for at in range(1, len(points) - 3):
                came, went = points[at - 1 : at + 1]
                if abs(went[1 - across] - came[1 - across]) > TOUCH:
                    continue
                for to in range(at + 2, min(at + 5, len(points) - 1)):
                    back, on = points[to : to + 2]
                    far = np.abs(points[at + 1 : to, 1 - across] - went[1 - across]).max() > ASIDE
                    level = np.abs(np.array([back, on])[:, 1 - across] - went[1 - across]).max() < APART
                    ahead = (went[across] - came[across]) * (back[across] - went[across]) > 0
                    if level and far and ahead and not _run_through(np.array([went, back]), cards).any():
                        return True
        return False

    def breaking_skips(self) -> None:
        """A skip is an edge beside a way over other cards, which goes back to the left where they do not."""
        after: dict[int, set[int]] = {}
        for first, last in self.ends:
            after.setdefault(first, set()).add(last)
        for number, points in enumerate(self.points):
            first, last = self.ends[number]
            steps = np.diff(points[:, 0])
            is_forward = points[-1][1] > points[0][1] and not _leads_to(after, last, {first})
            others = self.ways(first, steps) - {last}
            if is_forward and (steps < -ROW).any() and any(_leads_to(after, other, {last}) for other in others):
                self.figures.broken_skips.append(self.line_name(number))

    def ways(self, source: int, steps: np.ndarray) -> set[int]:
        """Where the lines of a source lead that go back less often than one with these steps."""
        backs = int((steps < -ROW).sum())
        lines = [number for number, (first, _) in enumerate(self.ends) if first == source]
        return {self.ends[at][1] for at in lines if (np.diff(self.points[at][:, 0]) < -ROW).sum() < backs}

    # ------------------------------------------------------------------ labels

    def labels_on(self) -> None:
        boxes = _corners(text["box"] for _, text in self.labels)
        titles = _corners(text["box"] for _, text in self.titles)
        found = self.figures.labels
        for at, (number, text) in enumerate(self.labels):
            name = f"label {text['text']!r} of {self.line_name(number)}"
            found += [
                f"{name} on {self.labels[other][1]['text']!r}" for other in np.flatnonzero(_meet(boxes[:at], boxes[at]))
            ]
            on = np.flatnonzero(_meet(self.boxes, boxes[at]) & self.is_card)
            found += [f"{name} on {self.name(place)}" for place in on]
            on = np.flatnonzero(_meet(titles, boxes[at]))
            found += [f"{name} on the title of {self.name(self.titles[title][0])}" for title in on]
            near = boxes[at] + np.array([-NEAR, -NEAR, NEAR, NEAR])
            if not _run_through(self.points[number], near[None], 0.0).any():
                self.figures.stray_labels.append(name)

    # ------------------------------------------------------------------ names

    def name(self, place: Any) -> str:
        item = self.items[place]
        name = item["id"].replace("\0", "¤")
        return f"{item['title']} ({name})" if "title" in item and name.startswith("¤") else name

    def line_name(self, number: int) -> str:
        first, last = self.ends[number]
        return f"{self.name(first)} → {self.name(last)}"


# ---------------------------------------------------------------------- boxes as corners: left, top, right, bottom


def _corners(boxes: Iterable[Box]) -> np.ndarray:
    found = np.asarray([list(box) for box in boxes], dtype=float).reshape(-1, 4)
    return np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], 1)


def _meet(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Which of the boxes overlap one."""
    return np.all((boxes[:, :2] < box[2:] - TOUCH) & (boxes[:, 2:] > box[:2] + TOUCH), axis=1)


def _common(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    return np.concatenate([np.maximum(boxes[..., :2], box[:2]), np.minimum(boxes[..., 2:], box[2:])], -1)


def _areas(boxes: np.ndarray) -> np.ndarray:
    return np.clip(boxes[..., 2:] - boxes[..., :2], 0, None).prod(-1)


def _spans(points: np.ndarray, boxes: np.ndarray, shrink: float) -> tuple[np.ndarray, np.ndarray]:
    """Of each segment and box the shares of the segment's length between which it is inside."""
    start, step = points[:-1, None], (points[1:] - points[:-1])[:, None]
    low, high = boxes[None, :, :2] + shrink, boxes[None, :, 2:] - shrink
    still = np.abs(step) < 1e-9
    safe = np.where(still, 1.0, step)
    one, other = (low - start) / safe, (high - start) / safe
    within = (start > low) & (start < high)
    enters = np.where(still, np.where(within, -np.inf, np.inf), np.minimum(one, other)).max(-1)
    leaves = np.where(still, np.where(within, np.inf, -np.inf), np.maximum(one, other)).min(-1)
    return np.maximum(enters, 0.0), np.minimum(leaves, 1.0)


def _distance(box: np.ndarray, point: np.ndarray) -> float:
    """From a point to the border of a box, outside or inside."""
    outside = np.maximum(np.maximum(box[:2] - point, point - box[2:]), 0)
    if outside.any():
        return float(np.hypot(*outside))
    return float(min((point - box[:2]).min(), (box[2:] - point).min()))


def _run_through(points: np.ndarray, boxes: np.ndarray, shrink: float = TOUCH) -> np.ndarray:
    """Which segments of a line run through which boxes."""
    enters, leaves = _spans(points, boxes, shrink)
    return enters < leaves


def _turns(points: np.ndarray, box: np.ndarray) -> int:
    """How often a line passes the border of a box."""
    enters, leaves = (share[:, 0] for share in _spans(points, box[None], TOUCH))
    turns = 0
    for at in np.flatnonzero(enters < leaves):
        turns += enters[at] > 0
        turns += leaves[at] < 1
    return int(turns)


def _side(start: np.ndarray, stop: np.ndarray, point: np.ndarray) -> np.ndarray:
    """On which side of the way from start to stop a point lies."""
    way, other = stop - start, point - start
    return way[..., 0] * other[..., 1] - way[..., 1] * other[..., 0]


def _cross(start: np.ndarray, stop: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    own = _side(start, stop, starts) * _side(start, stop, stops) < 0
    return np.logical_and(own, _side(starts, stops, start) * _side(starts, stops, stop) < 0)


def _meeting(start: np.ndarray, stop: np.ndarray, other: np.ndarray, end: np.ndarray) -> tuple[int, int]:
    """Where two segments that cross do so, in whole units."""
    one, two = _side(other, end, start), _side(other, end, stop)
    x, y = start + (stop - start) * float(one / (one - two))
    return round(float(x)), round(float(y))


def _along(start: np.ndarray, stop: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Which segments run on one for a while."""
    length = np.hypot(*(stop - start))
    if length < ALONG:
        return np.zeros(len(starts), dtype=bool)
    way = (stop - start) / length
    one, other = (starts - start) @ way, (stops - start) @ way
    aside = np.maximum(np.abs(_side(start, stop, starts)), np.abs(_side(start, stop, stops))) / length
    common = np.minimum(np.maximum(one, other), length) - np.maximum(np.minimum(one, other), 0)
    return (aside < APART) & (common > ALONG)


def _comes_back(points: np.ndarray) -> bool:
    """Whether a line runs one way and then the other, close beside itself."""
    steps = np.diff(points, axis=0)
    for one, turn, other in zip(steps, steps[1:], steps[2:], strict=False):
        length = min(float(np.hypot(*one)), float(np.hypot(*other)))
        if float(one @ other) < 0 and length > BACK and float(np.hypot(*turn)) < BESIDE:
            return True
    return any(float(one @ two) < -TOUCH for one, two in itertools.pairwise(steps))


def _leads_to(after: Mapping[int, set[int]], start: int, wanted: set[int]) -> bool:
    """Whether a way leads from `start` to one of `wanted`."""
    seen, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        if at in wanted:
            return True
        new = after.get(at, set()) - seen
        seen |= new
        waiting += new
    return False


def _length_of_all(lines: Sequence[np.ndarray]) -> float:
    """What lines that keep to right angles cover; what several share, once."""
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    rest = 0.0
    for points in lines:
        for one, other in itertools.pairwise(points):
            across = int(abs(other[1] - one[1]) < abs(other[0] - one[0]))  # the coordinate that stays
            if abs(other[across] - one[across]) > TOUCH:
                rest += float(np.hypot(*(other - one)))
                continue
            ends = sorted((float(one[1 - across]), float(other[1 - across])))
            spans.setdefault((across, round(float(one[across]) * 2)), []).append((ends[0], ends[1]))
    for several in spans.values():
        reached = -np.inf
        for start, stop in sorted(several):
            rest += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
    return rest


def _look(look: Mapping[str, float]) -> tuple[float, float, float]:
    return look["x"], look["y"], look["zoom"]


def _fitted(bounds: np.ndarray, width: float, height: float) -> dict[str, float]:
    across, down = bounds[2:] - bounds[:2]
    zoom = min(LARGEST, (width - 2 * MARGIN) / max(across, 1), (height - 2 * MARGIN) / max(down, 1))
    x, y = np.array([width, height]) / 2 - (bounds[:2] + bounds[2:]) / 2 * zoom
    return {"x": float(x), "y": float(y), "zoom": float(zoom)}


# ---------------------------------------------------------------------- a table of many


def table(rows: Iterable[tuple[str, Figures]]) -> Iterator[str]:
    """One line for each scene; of faults how many."""
    names = [part.name for part in fields(Figures)]
    heads = [name.replace("_", " ") for name in names]
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    yield f"{'':<{width}}" + "".join(f"  {head}" for head in heads)
    for name, figures in rows:
        cells = (_cell(getattr(figures, part)) for part in names)
        yield f"{name:<{width}}" + "".join(f"  {cell:>{len(head)}}" for head, cell in zip(heads, cells, strict=True))


def _cell(value: Any) -> str:
    return str(len(value)) if isinstance(value, list) else f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    given = [(path.stem, measure(json.loads(path.read_text("utf-8")))) for path in map(Path, sys.argv[1:])]
    print("\n".join(table(given)))
