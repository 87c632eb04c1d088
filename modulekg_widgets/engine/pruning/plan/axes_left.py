"""The axes of a model and of the same one without some blocks: which is which, by the tensors that they run along."""

from __future__ import annotations

from modulekg_widgets.engine.axes.axis import Axes, Axis
from modulekg_widgets.engine.pruning.plan.pruning_plan import AxisCut


def axes_left(axis: Axis, axes: Axes, left: Axes) -> list[str]:
    """The names that one of `axes` has among those that are left; several where it falls apart, none where it goes."""
    found: dict[str, None] = {}
    for node, dim in axis.places:
        whole, rest = _along(axes, node.label, dim), _along(left, node.label, dim)
        same = [other for own, other in zip(whole, rest, strict=False) if own is axis and other.size == axis.size]
        if len(whole) == len(rest):
            found.update(dict.fromkeys(other.name for other in same))
    return list(found)


def axis_of(cut: AxisCut, axes: Axes) -> Axis | None:
    """The axis that runs along the first member of a cut; None where none or several of its size do."""
    for member in cut.members:
        name, _, dim = member.removesuffix("]").rpartition("[")
        found = [axis for axis in _along(axes, name, int(dim)) if axis.size == cut.size] if dim.isdecimal() else []
        if len(found) == 1:
            return found[0]
    return None


def _along(axes: Axes, name: str, dim: int) -> tuple[Axis, ...]:
    """None for a tensor that goes with a block."""
    node = axes.graph.state.get(name)
    return axes[name, dim].axes if node is not None and dim < len(node.shape) else ()
