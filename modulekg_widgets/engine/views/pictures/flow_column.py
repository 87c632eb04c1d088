"""Picture of a traced model: a column in forward order, with lines for the data flow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.pictures.boxes import (
    GAP,
    HEADER,
    INSET,
    MARGIN,
    PILL_HEIGHT,
    ROW_HEIGHT,
    WIDTH,
    Box,
    arrowhead,
    box_shapes,
    module_box,
    pill,
)
from modulekg_widgets.engine.views.pictures.flow_parts import FlowParts
from modulekg_widgets.engine.views.pictures.shapes import Path, PathCommand, Picture, Text
from modulekg_widgets.engine.views.schema import Payload

# -------------------- Tracks: routing of lines beside a column of boxes, without overlaps


MAX_LANES = 40  # beside each other
MAX_EDGES = 400  # edges that are drawn there


@dataclass(slots=True)
class Track:
    """A branching line: all edges of one source beyond its neighbour."""

    source: int  # row
    targets: list[int]  # rows, from the top
    lane: int = -1


@dataclass(slots=True)
class Tracks:
    """Routed tracks, and the count of edges that are not drawn."""

    tracks: list[Track] = field(default_factory=list)
    omitted: int = 0
    lanes: int = 0

    def ports(self) -> dict[int, list[Track]]:
        """Returns the tracks that touch each row, from the top: incoming ones, nearest first, then its own."""
        found: dict[int, list[Track]] = {}
        for track in sorted(self.tracks, key=lambda track: track.lane):
            for row in track.targets:
                found.setdefault(row, []).append(track)
        for track in self.tracks:
            found.setdefault(track.source, []).append(track)
        return found


def tracks_of(edges: Sequence[tuple[int, int]]) -> Tracks:
    """Returns `edges` (row, row) as tracks, short ones near the column; those beyond the limits are counted."""
    targets: dict[int, set[int]] = {}
    for source, target in edges:
        targets.setdefault(source, set()).add(target)
    tracks = [Track(source, sorted(rows)) for source, rows in targets.items()]
    lanes: list[list[tuple[int, int]]] = []  # of each lane the rows that are taken, from the top
    result, count = Tracks(), 0
    for track in sorted(tracks, key=lambda track: (_span(track)[1] - _span(track)[0], track.source)):
        track.lane = _lane(lanes, _span(track)) if count + len(track.targets) <= MAX_EDGES else -1
        if track.lane < 0:
            result.omitted += len(track.targets)
            continue
        count += len(track.targets)
        result.tracks.append(track)
    result.lanes = len(lanes)
    return result


def _span(track: Track) -> tuple[int, int]:
    return min(track.source, track.targets[0]), max(track.source, track.targets[-1])


def _lane(lanes: list[list[tuple[int, int]]], span: tuple[int, int]) -> int:
    for lane, taken in enumerate(lanes):
        at = bisect_left(taken, span)
        if (at == 0 or taken[at - 1][1] < span[0]) and (at == len(taken) or span[1] < taken[at][0]):
            taken.insert(at, span)
            return lane
    if len(lanes) == MAX_LANES:
        return -1
    lanes.append([span])
    return len(lanes) - 1


# ----------------------------------------


PORT_SPACING = 5  # pixels between two lines that end at one box
LANE_SPACING = 7  # between two tracks
LANE_OFFSET = 10  # between the column and the first track
PILL_RADIUS = 12  # of a pill's corners


@dataclass(slots=True)
class FlowColumn:
    """Boxes and lines of the picture, in pixels."""

    boxes: list[Box]
    arrows: list[tuple[float, float]]  # down the middle, from y to y
    tracks: list[list[tuple[float, float]]] = field(default_factory=list)  # lines; those of one source together
    tips: list[tuple[float, float]] = field(default_factory=list)  # of the lines
    width: float = WIDTH
    height: float = 0
    omitted: int = 0


def draw_flow(payload: Payload, opened: Iterable[int], title: str) -> Picture:
    """Returns the picture of a traced model with some containers open."""
    column = flow_column(payload, opened)
    shapes = [shape for box in column.boxes for shape in box_shapes(box)]
    shapes.extend(_line_shapes(column))
    if column.omitted:
        words = f"{column.omitted:,} more data edges are not drawn"
        shapes.append(Text(MARGIN, column.height - 10, words, PAGE.muted))
    return Picture(title, column.width, column.height, shapes)


def _line_shapes(column: FlowColumn) -> Iterator[Path]:
    x = WIDTH / 2
    down: list[PathCommand] = []
    for start, end in column.arrows:
        down.extend([("M", (x, start)), ("V", (end - 4,))])
    across: list[PathCommand] = []
    for first, *others in column.tracks:
        across.append(("M", first))
        across.extend(("L", point) for point in others)
    for commands in filter(None, (down, across)):
        yield Path(commands, stroke=PAGE.line)
    for _, end in column.arrows:
        yield arrowhead(x, end)
    for tip in column.tips:
        yield Path([("M", tip), ("l", (5, -3)), ("V", (tip[1] + 3,)), ("z", ())], fill=PAGE.line)


def flow_column(payload: Payload, opened: Iterable[int]) -> FlowColumn:
    """Returns the boxes from input to output, arrows between neighbours, and tracks for all other edges."""
    flow = FlowParts(payload, opened)
    order = list(_order(flow))
    row_of = {place: row for row, (place, _) in enumerate(order)}
    below = _neighbours(flow, order)
    edges = [(row_of[source], row_of[target]) for source, target in flow.edges]
    near = {edge for edge in edges if below.get(edge[0]) == edge[1]}
    tracks = tracks_of([edge for edge in edges if edge not in near])
    ports = tracks.ports()
    crossed = {row for source, target in near for row in range(source + 1, target)}
    boxes = _boxes(flow, order, {row: len(found) for row, found in ports.items()}, crossed)
    bottom = max(box.y + box.height for box in boxes)
    arrows = [(boxes[a].y + boxes[a].height, boxes[b].y) for a, b in sorted(near)]
    column = FlowColumn(boxes, arrows, omitted=tracks.omitted)
    column.height = bottom + MARGIN + (ROW_HEIGHT if tracks.omitted else 0)
    _add_tracks(column, tracks, ports)
    return column


def _order(flow: FlowParts) -> Iterator[tuple[int, int]]:
    """Yields (index of a part, depth) from the top, frames before their content."""
    waiting = [(place, 0) for place in reversed(flow.inside(0))]
    while waiting:
        place, depth = waiting.pop()
        yield place, depth
        if flow.parts[place].kind == "frame":
            waiting.extend((inner, depth + 1) for inner in reversed(flow.inside(flow.parts[place].node)))


def _neighbours(flow: FlowParts, order: list[tuple[int, int]]) -> dict[int, int]:
    """Maps each row that is no frame to the next one that is none."""
    rows = [row for row, (place, _) in enumerate(order) if flow.parts[place].kind != "frame"]
    return dict(pairwise(rows))


def _boxes(flow: FlowParts, order: list[tuple[int, int]], ports: dict[int, int], crossed: set[int]) -> list[Box]:
    """The box of each row, as high as its lines need."""
    folds = {fold[0]: fold for fold in flow.payload["folds"]}
    boxes: list[Box] = []
    open_frames: list[tuple[int, int]] = []  # (row, depth)
    y = float(MARGIN - GAP)

    def close(depth: int) -> None:
        nonlocal y
        while open_frames and open_frames[-1][1] >= depth:
            row, _ = open_frames.pop()
            y += INSET
            boxes[row] = replace(boxes[row], height=y - boxes[row].y, kind="frame", crossed=row in crossed)

    for row, (place, depth) in enumerate(order):
        part = flow.parts[place]
        close(depth)
        is_first = bool(open_frames) and open_frames[-1][0] == row - 1
        y += 0 if is_first else GAP
        least = PORT_SPACING * (ports.get(row, 0) + 1)
        if part.kind in ("card", "frame"):
            box = module_box(flow.payload, part.node, folds.get(part.node), part.detail, y, depth, part.kind)
            suffix = f"{box.suffix} · {part.title}" if part.title else box.suffix
            box = replace(box, suffix=suffix, height=max(box.height, least if part.kind == "card" else 0))
        else:
            box = pill(part.title, y, max(PILL_HEIGHT, least))
        boxes.append(box)
        y += box.height
        if part.kind == "frame":
            open_frames.append((row, depth))
    close(0)
    return boxes


def _add_tracks(column: FlowColumn, tracks: Tracks, ports: dict[int, list[Track]]) -> None:
    """Add the lines of the tracks: out of a box at its side, along a lane, and into others."""
    if not tracks.tracks:
        return
    first = WIDTH - MARGIN + LANE_OFFSET
    column.width = first + LANE_SPACING * (tracks.lanes - 1) + MARGIN
    for track in tracks.tracks:
        lane = first + LANE_SPACING * track.lane
        out = _port(column.boxes[track.source], ports[track.source], track, is_source=True)
        ends = [_port(column.boxes[row], ports[row], track, is_source=False) for row in track.targets]
        levels = [out[1], *(y for _, y in ends)]
        column.tracks.append([out, (lane, out[1])])
        column.tracks.append([(lane, min(levels)), (lane, max(levels))])
        column.tracks.extend([(lane, y), (x + 4, y)] for x, y in ends)
        column.tips.extend(ends)


def _port(box: Box, tracks: list[Track], track: Track, is_source: bool) -> tuple[float, float]:
    """Returns the point where a track touches the right side of a box."""
    at = len(tracks) - 1 if is_source else next(i for i, other in enumerate(tracks) if other is track)
    height = HEADER if box.kind == "frame" else box.height
    y = box.y + height * (at + 1) / (len(tracks) + 1)
    x = box.x + box.width
    if box.kind == "pill":
        from_corner = max(0.0, PILL_RADIUS - min(y - box.y, box.y + box.height - y))
        x -= PILL_RADIUS - (PILL_RADIUS**2 - from_corner**2) ** 0.5
    elif box.stacked and y > box.y + 4:
        x += 4
    return x, y
