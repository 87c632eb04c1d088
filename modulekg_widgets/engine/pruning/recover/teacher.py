"""Whether a teacher is the model that a receipt came from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.cut.samples import Samples, entries

ALIKE = 0.1  # the cosine between weights below which they have nothing to do with one another
OF_CHANCE = 3.0  # over the root of how many entries there are: as far as chance alone may take it
MOST_ALIKE = 0.5  # what no teacher needs to exceed, however few entries there are


def check_teacher(teacher: nn.Module, receipt: Receipt, compares_features: bool) -> None:
    """Raise `CutError` for a teacher of other shapes, or where features count with weights of another training.

    Indices have a meaning in one network only: those of another training, of the same shapes, are other features. What
    the model before the cut was trained to since, or an average of its weights, is near to it.
    """
    own = dict(teacher.state_dict(keep_vars=True))
    cut = [edit for edit in receipt.edits.tensors if any(name in own for name in edit.names)]
    if not cut and not receipt.edits.removal:
        raise CutError("the teacher has none of the tensors that were cut: pass the model that the receipt came from")
    for edit in cut:
        name = next(name for name in edit.names if name in own)
        if tuple(own[name].shape) != edit.shape:
            raise CutError(
                f"the teacher's {shown(name)!r} has the shape {list(own[name].shape)}, and {list(edit.shape)} before "
                "the cut: pass the uncut model that the receipt came from, as copy.deepcopy(model) before the cut"
            )
    cosine = _too_small_a_cosine(own, {} if receipt.is_spent else receipt.samples) if compares_features else None
    if cosine is not None:
        raise CutError(
            "the teacher's weights are not those of the model before the cut, nor near them (cosine "
            f"{cosine:.2f}): its features mean something else. Pass the uncut model that the receipt came from, as "
            "copy.deepcopy(model) before the cut, or features=False to compare outputs alone"
        )


def _too_small_a_cosine(own: Mapping[str, Tensor], before: Samples) -> float | None:
    """Between the weights of both, where that is too little for models that have to do with each other."""
    known = [name for name in before if name in own and not own[name].is_meta]
    if not known:
        return None
    one, two = (torch.cat(each) for each in ([entries(own[name]) for name in known], [before[name] for name in known]))
    lengths = float(one.norm() * two.norm())
    cosine = float(one @ two) / lengths if lengths else 1.0
    return cosine if cosine < min(MOST_ALIKE, max(ALIKE, OF_CHANCE / len(one) ** 0.5)) else None
