"""A note in the configuration of a cut model that warns when it is saved with the old sizes."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from types import FrameType

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import is_plain_object

CONFIG, SAVE = "config", "save_pretrained"  # what models of transformers keep, and the method that writes it
KEY = "modulekg_cut"  # of the note, in the configuration and in the file that it is written to
TEXT = (
    "the model was cut, and this configuration says the sizes of before, so that from_pretrained cannot load it: "
    "receipt.save_pretrained(folder) writes a folder that loads"
)


class CutNote(str):
    """A text in a configuration that warns when the configuration is copied to be saved. What is written is a copy of
    the configuration: the copy of this text tells it.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, object]) -> CutNote:
        saved = _saving_call(self)
        if saved is not None and not _builds_shapes(*saved):
            warnings.warn(TEXT, UserWarning, stacklevel=2)
        return self

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return CutNote, (str(self),)


def _saving_call(note: CutNote) -> tuple[object, nn.Module | None] | None:
    """The configuration that is being saved with this note, and the model if it is saved; else None.

    None where it is not being saved.
    """
    config = model = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == SAVE else None
        if isinstance(owner, nn.Module):
            model = owner
        elif vars(owner).get(KEY) is note if hasattr(owner, "__dict__") else False:
            config = owner
        frame = frame.f_back
    return None if config is None else (config, model)


def _builds_shapes(config: object, model: nn.Module | None) -> bool:
    """True if the configuration builds a model with the shapes of this one."""
    if model is None:
        return False
    try:
        own = copy.copy(config)
        vars(own).pop(KEY)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            built = type(model)(own)
    except Exception:  # noqa: BLE001 - code of the library, for sizes that it may not take
        return False
    shapes = ({name: value.shape for name, value in each.state_dict().items()} for each in (built, model))
    return next(shapes) == next(shapes)


def configurations(walked: Walk) -> Iterator[object]:
    """The configurations held by modules that have their own `save_pretrained`."""
    for state in walked.states:
        value = state.get(CONFIG)
        if is_plain_object(value) and callable(getattr(type(value), SAVE, None)):
            yield value
