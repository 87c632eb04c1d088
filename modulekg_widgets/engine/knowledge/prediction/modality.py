"""What models take and data sets hold: pictures, video, sequences or text."""

from __future__ import annotations

import re

from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.features import Features

PICTURES, VIDEO, SEQUENCES, TEXT = "pictures", "video", "sequences", "text"
OF_DIMS = {5: VIDEO, 4: PICTURES, 3: SEQUENCES}  # of an input: sample, channels, and so on
OF_LAYERS = {"Conv3d": VIDEO, "Conv2d": PICTURES, "Embedding": TEXT, "Conv1d": SEQUENCES}
# by properties of a data set, and by words of its task or of what it says of its inputs
OF_PROPERTIES = {
    "image_size": PICTURES,
    "vocabulary": TEXT,
    "tokens": TEXT,
    "sequence_length": TEXT,
    "hours": SEQUENCES,
}
OF_WORDS = {
    TEXT: "text|language|translat|sentiment|token|question|summar",
    SEQUENCES: "audio|speech|sequence|series|sound",
    VIDEO: "video",
    PICTURES: "image|picture|photo|segmentation|detection|vision",
}


def modality(features: Features) -> str | None:
    """The kind of a model's inputs: by their shape, else by the layers that read such; None where nothing tells it."""
    classes = [name for name in features.ops if features.ops[name]]
    read = next((kind for layer, kind in OF_LAYERS.items() if any(layer in name for name in classes)), None)
    if not features.inputs or read == TEXT:
        return read
    return OF_DIMS.get(len(features.inputs[0]))


def modality_of(dataset: DataSetNode) -> str | None:
    """What a data set holds, by its properties `modality`, `inputs`, `task`, or by others; None where none tells it."""
    said = " ".join(str(dataset.properties.get(key, "")) for key in ("modality", "inputs", "task"))
    for kind, words in OF_WORDS.items():
        if re.search(words, said, re.IGNORECASE):
            return kind
    return next((kind for key, kind in OF_PROPERTIES.items() if key in dataset.properties), None)
