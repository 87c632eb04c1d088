"""Similarity of data sets by name and properties."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping

from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode
from modulekg_widgets.engine.knowledge.facts.units import finite_float
from modulekg_widgets.engine.knowledge.prediction.data.features import IMAGE_DIMS, Features
from modulekg_widgets.engine.knowledge.prediction.data.published import IMAGENET

# --------------------
# Modality of models and data sets (pictures, video, sequences, tables, text), and tasks of data sets.


PICTURES, VIDEO, SEQUENCES, TABLES, TEXT = "pictures", "video", "sequences", "tables", "text"
MODALITY_BY_DIMS = {5: VIDEO, 4: PICTURES, 3: SEQUENCES}  # of an input: sample, channels, and so on
TABLE_DIMS = 2
UNKNOWN_MODALITY = "an unknown kind of input"  # rows of numbers or sequences: what reads others has layers for it
MODALITY_BY_LAYER = {"Conv3d": VIDEO, "Conv2d": PICTURES, "Embedding": TEXT, "Conv1d": SEQUENCES}
# by properties of a data set, and by whole words of its task or of what it says of its inputs
MODALITY_BY_PROPERTY = {
    "image_size": PICTURES,
    "vocabulary": TEXT,
    "tokens": TEXT,
    "sequence_length": TEXT,
    "hours": SEQUENCES,
}
MODALITY_PATTERNS = {
    VIDEO: "videos?",
    PICTURES: "images?|imagery|pictures?|photos?|photographs?|vision|visual|pixels?",
    SEQUENCES: "audio|speech|spoken|sequences?|series|sounds?|waveforms?|music",
    TABLES: "tabular|tables?",
    TEXT: "texts?|textual|languages?|tokens?|sentences?|questions?",
}
ACTIVITY_PATTERNS = {  # where nothing else says what it is done with
    TEXT: r"translat\w*|sentiments?|summar\w*|nlp",
    PICTURES: r"segment\w*|detect\w*",
}
CLASSIFICATION = "classification"
TASK_PATTERNS = {
    CLASSIFICATION: r"classif\w*|recogni\w*|categori\w*|identif\w*|sentiments?",
    "segmentation": r"segment\w*",
    "detection": r"detect\w*",
    "optical flow": "flow",
}
ACTIVITY_SUFFIXES = r"\w+(tion|sion|ing|ment)"


def modality(features: Features) -> str | None:
    """Returns the modality of a model's inputs, by shape or by its layers; None if unknown."""
    read = modality_of_layers(features)
    dims = len(features.inputs[0]) if features.inputs else 0
    if not features.inputs or (read == TEXT and dims < IMAGE_DIMS):
        return read
    return read or TABLES if dims == TABLE_DIMS else MODALITY_BY_DIMS.get(dims)


def modality_of_layers(features: Features) -> str | None:
    """Returns the modality that a layer of the model reads, independent of its inputs."""
    classes = [name for name in features.ops if features.ops[name]]
    return next((kind for layer, kind in MODALITY_BY_LAYER.items() if any(layer in name for name in classes)), None)


def is_modality_undecided(features: Features, kinds: Collection[str]) -> bool:
    """True if the modality of some models is unknown and no layer of this one contradicts it."""
    return UNKNOWN_MODALITY in kinds and modality_of_layers(features) is None


def modality_of(dataset: DataSetNode) -> str | None:
    """Returns the modality of a data set by its properties; None if unknown.

    Of what it holds together with text it is both, as "pictures and text".
    """
    for key in ("modality", "inputs"):
        stated = _combined_modality(_kinds(_words(dataset.properties.get(key)), MODALITY_PATTERNS))
        if stated is not None:
            return stated
    task = _words(dataset.properties.get("task"))
    given = task[: task.index("to")] if "to" in task[1:] else task  # of text to images text is what is given
    named = _combined_modality(_kinds(given, MODALITY_PATTERNS))
    measured = next((kind for key, kind in MODALITY_BY_PROPERTY.items() if key in dataset.properties), None)
    if measured == PICTURES and named in (TEXT, SEQUENCES, TABLES):
        return PICTURES
    return named or measured or _combined_modality(_kinds(given, ACTIVITY_PATTERNS))


def are_compatible(one: str | None, other: str | None) -> bool:
    """True if two modalities may be the same, as far as they are known."""
    return (
        None in (one, other)
        or one == other
        or {one, other} in ({TABLES, UNKNOWN_MODALITY}, {SEQUENCES, UNKNOWN_MODALITY})
    )


def accepts(model_modality: str | None, data_modality: str | None) -> bool:
    """True if a model may take the data of a data set; rows of numbers may be flattened pictures or sequences."""
    return are_compatible(data_modality, model_modality) or (
        model_modality == TABLES and data_modality in (PICTURES, SEQUENCES)
    )


def task_of(dataset: DataSetNode) -> str | None:
    """Returns the task of a data set without its modality, such as "classification"; None if unknown."""
    stated = dataset.properties.get("task")
    known, words, nouns = task_in_text(stated), _words(stated), "|".join(MODALITY_PATTERNS.values())
    if known is not None:
        return known
    rest = [word for word in words if not re.fullmatch(nouns, word)]
    if "classes" in dataset.properties and not any(re.fullmatch(ACTIVITY_SUFFIXES, word) for word in rest):
        return CLASSIFICATION
    return " ".join(words) if rest else None


def task_in_text(text: object) -> str | None:
    """Returns the task that a text or class name mentions; None if it mentions none."""
    words = _words(text)
    return next(
        (task for task, known in TASK_PATTERNS.items() if any(re.fullmatch(known, word) for word in words)), None
    )


def _words(said: object) -> list[str]:
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "" if said is None else str(said))
    return [word for word in re.split(r"[\W_]+", text.casefold()) if word]


def _kinds(words: Iterable[str], patterns: dict[str, str]) -> list[str]:
    known = list(words)
    return [kind for kind, pattern in patterns.items() if any(re.fullmatch(pattern, word) for word in known)]


def _combined_modality(kinds: list[str]) -> str | None:
    """Returns one modality for several words; text beside another counts as both."""
    if not kinds:
        return None
    return kinds[0] if kinds[0] == TEXT or TEXT not in kinds else f"{kinds[0]} and {TEXT}"


# ----------------------------------------


IMAGENET_PROPERTIES: Mapping[str, object] = {"task": "classification", "classes": 1000, "image_size": 224}
IMAGENET_NAMES = frozenset({"imagenet", "imagenet1k", "ilsvrc2012"})
MISSING_SIMILARITY = 0.3  # the likeness of a property that only one of the two has
CLEAR_DIFFERENCE = 0.15  # more alike: less is of no account


def known_datasets(contents: Contents) -> dict[str, DataSetNode]:
    """Returns the data sets of the graph, and ImageNet-1K with its properties."""
    mine = contents.datasets.get(IMAGENET)
    properties = {**IMAGENET_PROPERTIES, **(mine.properties if mine else {})}
    return {**contents.datasets, IMAGENET: DataSetNode(IMAGENET, properties)}


def dataset_similarity(left: DataSetNode, right: DataSetNode) -> float:
    """Returns 0 for nothing in common to 1 for the same name: the mean over the properties of either.

    Numbers count by their ratio (10 classes are as far from 100 as 100 from 1000), tasks by what they mean, texts by
    being the same. With one of which nothing is known nothing is in common, nor with one that holds something else.
    """
    if _plain(left.name) == _plain(right.name) or (is_imagenet(left.name) and is_imagenet(right.name)):
        return 1.0
    if not left.properties or not right.properties or not are_compatible(modality_of(left), modality_of(right)):
        return 0.0
    keys = sorted(left.properties.keys() | right.properties.keys())
    one, other = _compared(left), _compared(right)
    alike = [_value_similarity(one.get(key), other.get(key)) for key in keys]
    return 0.9 * sum(alike) / len(alike)


def is_imagenet(name: str) -> bool:
    """True if a data set is called ImageNet-1K in any spelling."""
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


def _compared(dataset: DataSetNode) -> dict[str, object]:
    return {**dataset.properties, "task": task_of(dataset)}


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _value_similarity(left: object, right: object) -> float:
    if left is None or right is None:
        return MISSING_SIMILARITY
    one, other = _size(left), _size(right)
    if one is not None and other is not None:
        return 1.0 if one == other else math.exp(-abs(math.log10(one / other))) if one > 0 and other > 0 else 0.0
    return 1.0 if str(left).casefold() == str(right).casefold() else 0.0


def _size(value: object) -> float | None:
    """A number, or the geometric mean of several, as of the sides of an image."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    numbers = [number for v in values if isinstance(v, int | float) and (number := finite_float(v)) is not None]
    if not values or len(numbers) < len(values):
        return None
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if min(numbers) > 0 else min(numbers)
