"""A note in the configuration of a cut model, which warns when its library saves it with the sizes of before."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import is_plain_object

CONFIG, SAVE = "config", "save_pretrained"  # what models of transformers keep, and the method that writes it
KEY = "modulekg_cut"  # of the note, in the configuration and in the file that it is written to
TEXT = (
    "the model was cut, and this configuration says the sizes of before, so that from_pretrained cannot load it: "
    "receipt.save_pretrained(folder) writes a folder that loads"
)


class CutNote(str):
    """A text in a configuration. What is written is a copy of the configuration: the copy of this text tells it."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> CutNote:
        if _is_being_saved(self):
            warnings.warn(TEXT, UserWarning, stacklevel=2)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return CutNote, (str(self),)


def _is_being_saved(note: CutNote) -> bool:
    """Whether the configuration that has the note is in the course of its own `save_pretrained`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == SAVE:
            owner = frame.f_locals.get("self")
            if vars(owner).get(KEY) is note if hasattr(owner, "__dict__") else False:
                return True
        frame = frame.f_back
    return False


def configurations(walked: Walk) -> Iterator[Any]:
    """The configurations that modules hold and that can be saved by themselves."""
    for state in walked.states:
        value = state.get(CONFIG)
        if is_plain_object(value) and callable(getattr(type(value), SAVE, None)):
            yield value
