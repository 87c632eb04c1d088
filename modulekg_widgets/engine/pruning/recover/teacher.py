"""Whether a teacher is the model that a receipt came from."""

from __future__ import annotations

from torch import Tensor, nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.receipt import Receipt

ALIKE = 0.1  # the cosine between weights below which they have nothing to do with one another
MOST_COMPARED = 100_000  # entries of one weight
FEWEST = 1_000  # entries of all of them, below which chance alone may make a cosine


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
    cosine = _cosine(own, receipt.before()) if compares_features else None
    if cosine is not None and cosine < ALIKE:
        raise CutError(
            "the teacher's weights are not those of the model before the cut, nor near them (cosine "
            f"{cosine:.2f}): its features mean something else. Pass the uncut model that the receipt came from, as "
            "copy.deepcopy(model) before the cut, or features=False to compare outputs alone"
        )


def _cosine(own: dict[str, Tensor], before: dict[str, Tensor]) -> float | None:
    """Between the weights of both, of which norms and biases say nothing; None where there are too few to tell."""
    dot = ours = theirs = count = 0.0
    for name, tensor in before.items():
        other = own.get(name)
        if other is None or tensor.dim() < 2 or not tensor.is_floating_point() or tensor.is_meta or other.is_meta:
            continue
        step = max(1, tensor.numel() // MOST_COMPARED)
        one, two = (each.detach().reshape(-1)[::step].cpu().double() for each in (tensor, other))
        dot += float(one @ two)
        ours += float(one @ one)
        theirs += float(two @ two)
        count += len(one)
    return dot / (ours * theirs) ** 0.5 if count >= FEWEST and ours and theirs else None
