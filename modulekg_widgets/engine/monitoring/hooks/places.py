"""Where the measured modules stand: whoever stands at a path is measured there, also one that came in the training."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.monitoring.hooks.module_metric import ModuleMetric
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.torch_runtime.state import module_state, registry, unwrapped

REPLACED = "another module stands at its path since this step: it is measured from the next one on"
REMOVED = "no module stands at its path any more"


class ModulePlaces:
    """The paths of the measured modules, and all above them, with the modules that stand there."""

    def __init__(self, root: nn.Module, metrics: Sequence[ModuleMetric]) -> None:
        modules = walk(root)
        by_path = {modules.path(index): index for index in range(len(modules))}
        by_index: dict[int, list[ModuleMetric]] = {}
        for metric in metrics:
            by_index.setdefault(by_path[metric.path], []).append(metric)
        wanted = {0}
        for index in by_index:
            while index not in wanted:
                wanted.add(index)
                index = modules.parents[index]
        order = sorted(wanted)  # what is above comes first
        places = {index: place for place, index in enumerate(order)}
        self._held: list[nn.Module | None] = [modules.modules[index] for index in order]
        self._rest = [
            (place, places[modules.parents[index]], modules.names[index], by_index.get(index, []))
            for place, index in enumerate(order)
            if place
        ]

    def follow(self) -> list[ModuleMetric]:
        """The metrics at whose paths other modules stand than before, or none; from now on they are for these."""
        found: list[ModuleMetric] = []
        held = self._held
        for place, above, name, metrics in self._rest:
            container = held[above]
            now = None if container is None else registry(module_state(container), MODULES).get(name)
            if now is held[place]:
                continue
            now = unwrapped(now) if isinstance(now, nn.Module) else None
            if now is held[place]:
                continue
            held[place] = now
            for metric in metrics:
                metric.follow(now)
            found += metrics
        return found
