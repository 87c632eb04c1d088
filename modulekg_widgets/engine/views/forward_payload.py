"""Payload of a ForwardPlayer: table of steps, first pictures, and messages with further ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from modulekg_widgets.engine.playback.player import Playback, make_previews
from modulekg_widgets.engine.playback.summaries import FeatureMaps, Statistics, TensorLayout, TopOutputs
from modulekg_widgets.engine.views.payload import DistinctKeys, number, text
from modulekg_widgets.engine.views.schema import FORWARD, FORWARD_PICTURES, Columns, Payload

_DIGITS = 5  # of figures that are only looked at
Layouts: TypeAlias = tuple[tuple[str, tuple[int, ...], str], ...]  # name, sizes and dtype of each


def forward_payload(played: Playback, run: int) -> Payload:
    """Returns the steps as parallel columns; repeated modules and shapes are listed once."""
    modules, shapes = DistinctKeys[tuple[str, str]](), DistinctKeys[Layouts]()
    columns: Columns = {
        "module": [], "depth": [], "inputs": [], "outputs": [], "sources": [], "value": [], "batch_dim": [],
        "statistics": [], "top": [],
    }  # fmt: skip
    for step in played.steps:
        columns["module"].append(modules.index_of((text(step.path), text(step.class_name))))
        columns["depth"].append(step.depth)
        columns["inputs"].append(shapes.index_of(_shape(step.inputs)))
        columns["outputs"].append(shapes.index_of(_shape(step.outputs)))
        columns["sources"].append(list(step.sources))
        columns["value"].append(step.value)
        columns["batch_dim"].append(step.batch_dim)
        columns["statistics"].append(_statistics(step.statistics))
        columns["top"].append(top_entries(step.top))
    return FORWARD.payload(
        {
            "run": run,
            "title": text(played.title),
            "modules": [list(entry) for entry in modules.keys],
            "shapes": [[[name, list(sizes), dtype] for name, sizes, dtype in shape] for shape in shapes.keys],
            "steps": columns,
            "raised": [[step.index, text(step.error)] for step in played.steps if step.error is not None],
            "error": None if played.error is None else text(played.error),
            "failed": played.failed,
            "dropped": played.dropped,
        }
    )


def pictures_payload(played: Playback, run: int, index: int) -> Payload:
    """Returns the pictures that are sent with the steps, and their pixels in one buffer.

    Each has its `steps`, and whether it is `whole`, so that there is nothing to ask for. Step `index` is shown first.
    """
    found = make_previews(played, index)
    each = [
        {"steps": list(one.steps), "whole": one.is_complete, "maps": maps_message(one.maps, one.top, played.sample)[0]}
        for one in found
    ]
    pixels = b"".join(one.maps.pixels for one in found)
    return FORWARD_PICTURES.payload({"run": run, "sample": played.sample, "each": each, "pixels": pixels})


def maps_message(maps: FeatureMaps, largest: TopOutputs | None, sample: int) -> tuple[Payload, list[bytes]]:
    """Returns one page of feature maps: its description, and the pixels in one buffer."""
    content = {
        "form": maps.form,
        "width": maps.width,
        "height": maps.height,
        "first": maps.first,
        "total": maps.total,
        "sizes": list(maps.sizes),
        "slice": maps.slice_at,
        "ranges": [[_figure(low), _figure(high)] for low, high in maps.ranges],
        "top": top_entries(largest),
        "item": sample,
    }
    return content, [maps.pixels]


def top_entries(top: TopOutputs | None) -> list[object] | None:
    """Returns the kind, and (index, value, share) of each of the largest outputs."""
    if top is None:
        return None
    rows = [
        [list(index), _figure(value), None if share is None else _figure(share)] for index, value, share in top.entries
    ]
    return [top.kind, rows]


def _statistics(found: Statistics | None) -> list[object] | None:
    if found is None:
        return None
    figures = (found.minimum, found.maximum, found.mean, found.std, found.zeros)
    return [*map(_figure, figures), found.non_finite, number(found.count)]


def _figure(value: float) -> float | int | str | None:
    return number(float(f"{value:.{_DIGITS}g}") + 0.0)  # without the sign of a zero


def _shape(layouts: Sequence[TensorLayout]) -> Layouts:
    return tuple((text(layout.name), layout.sizes, layout.dtype) for layout in layouts)
