"""How much alike two data sets are, by their names and properties."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from modulekg_widgets.engine.knowledge.contents import Contents, DataSetNode
from modulekg_widgets.engine.knowledge.prediction.modality import agree, modality_of, task_of
from modulekg_widgets.engine.knowledge.prediction.published import IMAGENET
from modulekg_widgets.engine.knowledge.units import finite

IMAGENET_PROPERTIES: Mapping[str, Any] = {"task": "classification", "classes": 1000, "image_size": 224}
IMAGENET_NAMES = frozenset({"imagenet", "imagenet1k", "ilsvrc2012"})
MISSING = 0.3  # the likeness of a property that only one of the two has
CLEARLY = 0.15  # more alike: less is of no account


def known_datasets(contents: Contents) -> dict[str, DataSetNode]:
    """The data sets of the graph, with ImageNet-1K and what is known of it."""
    mine = contents.datasets.get(IMAGENET)
    properties = {**IMAGENET_PROPERTIES, **(mine.properties if mine else {})}
    return {**contents.datasets, IMAGENET: DataSetNode(IMAGENET, properties)}


def likeness(left: DataSetNode, right: DataSetNode) -> float:
    """From 0, nothing in common, to 1, the same name: the mean over the properties that either has.

    Numbers count by their ratio (10 classes are as far from 100 as 100 from 1000), tasks by what they mean, texts by
    being the same. With one of which nothing is known nothing is in common, nor with one that holds something else.
    """
    if _plain(left.name) == _plain(right.name) or (is_imagenet(left.name) and is_imagenet(right.name)):
        return 1.0
    if not left.properties or not right.properties or not agree(modality_of(left), modality_of(right)):
        return 0.0
    keys = sorted(left.properties.keys() | right.properties.keys())
    one, other = _compared(left), _compared(right)
    alike = [_alike(one.get(key), other.get(key)) for key in keys]
    return 0.9 * sum(alike) / len(alike)


def is_imagenet(name: str) -> bool:
    """Whether a data set is called ImageNet-1K, in whatever way of writing."""
    return _plain(name) in IMAGENET_NAMES


def whole_number(dataset: DataSetNode, key: str) -> int | None:
    """A property that is a positive whole number, such as the number of classes, else None."""
    value = dataset.properties.get(key)
    return value if type(value) is int and value > 0 else None


def image_size(dataset: DataSetNode) -> tuple[int, int] | None:
    """Height and width of its images in pixels, given as one number or two; None where it has no such property."""
    given = dataset.properties.get("image_size")
    sides = given if isinstance(given, list | tuple) else (given, given)
    whole = [side for side in sides if type(side) is int and side > 0]
    return (whole[0], whole[1]) if len(whole) == len(sides) == 2 else None


def _compared(dataset: DataSetNode) -> dict[str, Any]:
    return {**dataset.properties, "task": task_of(dataset)}


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _alike(left: Any, right: Any) -> float:
    if left is None or right is None:
        return MISSING
    one, other = _size(left), _size(right)
    if one is not None and other is not None:
        return 1.0 if one == other else math.exp(-abs(math.log10(one / other))) if one > 0 and other > 0 else 0.0
    return 1.0 if str(left).casefold() == str(right).casefold() else 0.0


def _size(value: Any) -> float | None:
    """A number, or the geometric mean of several, as of the sides of an image."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    numbers = [number for v in values if isinstance(v, int | float) and (number := finite(v)) is not None]
    if not values or len(numbers) < len(values):
        return None
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if min(numbers) > 0 else min(numbers)
