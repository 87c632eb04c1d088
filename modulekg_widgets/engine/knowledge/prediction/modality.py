"""What models take and data sets hold: pictures, video, sequences, tables or text, and what task a data set is for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.features import PICTURE_DIMS, Features

PICTURES, VIDEO, SEQUENCES, TABLES, TEXT = "pictures", "video", "sequences", "tables", "text"
OF_DIMS = {5: VIDEO, 4: PICTURES, 3: SEQUENCES}  # of an input: sample, channels, and so on
TABLE_DIMS = 2
UNTOLD = "what neither layers nor a call tell"  # rows of numbers or sequences: what reads others has layers for it
OF_LAYERS = {"Conv3d": VIDEO, "Conv2d": PICTURES, "Embedding": TEXT, "Conv1d": SEQUENCES}
# by properties of a data set, and by whole words of its task or of what it says of its inputs
OF_PROPERTIES = {
    "image_size": PICTURES,
    "vocabulary": TEXT,
    "tokens": TEXT,
    "sequence_length": TEXT,
    "hours": SEQUENCES,
}
OF_WORDS = {
    VIDEO: "videos?",
    PICTURES: "images?|imagery|pictures?|photos?|photographs?|vision|visual|pixels?",
    SEQUENCES: "audio|speech|spoken|sequences?|series|sounds?|waveforms?|music",
    TABLES: "tabular|tables?",
    TEXT: "texts?|textual|languages?|tokens?|sentences?|questions?",
}
OF_ACTIVITIES = {  # where nothing else says what it is done with
    TEXT: r"translat\w*|sentiments?|summar\w*|nlp",
    PICTURES: r"segment\w*|detect\w*",
}
CLASSIFICATION = "classification"
TASKS = {
    CLASSIFICATION: r"classif\w*|recogni\w*|categori\w*|identif\w*|sentiments?",
    "segmentation": r"segment\w*",
    "detection": r"detect\w*",
    "optical flow": "flow",
}
ACTIVITY = r"\w+(tion|sion|ing|ment)"


def modality(features: Features) -> str | None:
    """The kind of a model's inputs: by their shape, else by the layers that read such; None where nothing tells it."""
    read = read_by_layers(features)
    dims = len(features.inputs[0]) if features.inputs else 0
    if not features.inputs or (read == TEXT and dims < PICTURE_DIMS):
        return read
    return read or TABLES if dims == TABLE_DIMS else OF_DIMS.get(dims)


def read_by_layers(features: Features) -> str | None:
    """What some layer of a model reads, however it was called."""
    classes = [name for name in features.ops if features.ops[name]]
    return next((kind for layer, kind in OF_LAYERS.items() if any(layer in name for name in classes)), None)


def is_untold_among(features: Features, kinds: Collection[str]) -> bool:
    """Whether nobody knows what some others take, and no layer of a model speaks against its taking the same."""
    return UNTOLD in kinds and read_by_layers(features) is None


def modality_of(dataset: DataSetNode) -> str | None:
    """What a data set holds, by its properties `modality`, `inputs`, `task`, or by others; None where none tells it.

    Of what it holds together with text it is both, as "pictures and text".
    """
    for key in ("modality", "inputs"):
        stated = _together(_kinds(_words(dataset.properties.get(key)), OF_WORDS))
        if stated is not None:
            return stated
    task = _words(dataset.properties.get("task"))
    given = task[: task.index("to")] if "to" in task[1:] else task  # of text to images text is what is given
    named = _together(_kinds(given, OF_WORDS))
    measured = next((kind for key, kind in OF_PROPERTIES.items() if key in dataset.properties), None)
    if measured == PICTURES and named in (TEXT, SEQUENCES, TABLES):
        return PICTURES
    return named or measured or _together(_kinds(given, OF_ACTIVITIES))


def agree(held: str | None, other: str | None) -> bool:
    """Whether two data sets may hold the same, as far as anybody knows."""
    return None in (held, other) or held == other or {held, other} in ({TABLES, UNTOLD}, {SEQUENCES, UNTOLD})


def takes(taken: str | None, held: str | None) -> bool:
    """Whether a model may be for what a data set holds; rows of numbers may be pictures or sequences laid flat."""
    return agree(held, taken) or (taken == TABLES and held in (PICTURES, SEQUENCES))


def task_of(dataset: DataSetNode) -> str | None:
    """What is to be done with the data, whatever that is: of images and of text "classification"; None if unsaid."""
    stated = dataset.properties.get("task")
    known, words, nouns = task_named(stated), _words(stated), "|".join(OF_WORDS.values())
    if known is not None:
        return known
    rest = [word for word in words if not re.fullmatch(nouns, word)]
    if "classes" in dataset.properties and not any(re.fullmatch(ACTIVITY, word) for word in rest):
        return CLASSIFICATION
    return " ".join(words) if rest else None


def task_named(said: object) -> str | None:
    """The task that a text, or the name of a class, has a word of; None where it has none."""
    words = _words(said)
    return next((task for task, known in TASKS.items() if any(re.fullmatch(known, word) for word in words)), None)


def _words(said: object) -> list[str]:
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "" if said is None else str(said))
    return [word for word in re.split(r"[\W_]+", text.casefold()) if word]


def _kinds(words: Iterable[str], patterns: dict[str, str]) -> list[str]:
    known = list(words)
    return [kind for kind, pattern in patterns.items() if any(re.fullmatch(pattern, word) for word in known)]


def _together(kinds: list[str]) -> str | None:
    """Video is pictures, too; with text beside it both count."""
    if not kinds:
        return None
    return kinds[0] if kinds[0] == TEXT or TEXT not in kinds else f"{kinds[0]} and {TEXT}"
