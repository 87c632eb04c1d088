"""How many parameters each module had before a model was cut, wherever a cut has put it since."""

from __future__ import annotations

from torch import nn


class UncutSizes:
    """The parameters of a model's modules as they are now, each counted where it is first."""

    def __init__(self, model: nn.Module) -> None:
        # by identity, as a class of the user's may compare modules its own way; held, so that no other gets the number
        self._counts: dict[int, int] = {}
        self._around: dict[int, int] = {}
        self._held: list[nn.Module] = []
        counted: set[int] = set()
        for _, module in model.named_modules():
            own = {id(each): each.numel() for each in module.parameters(recurse=False) if id(each) not in counted}
            counted.update(own)
            self._counts[id(module)] = sum(own.values())
            self._held.append(module)
            for child in module.children():
                self._around.setdefault(id(child), id(module))

    def by_path(self, model: nn.Module) -> dict[str, int]:
        """By the paths that the modules have now; what a removed one had counts where it was."""
        paths = {id(module): path for path, module in model.named_modules()}
        found: dict[str, int] = {}
        for number, count in self._counts.items():
            while number not in paths and number in self._around:
                number = self._around[number]
            if count and number in paths:
                found[paths[number]] = found.get(paths[number], 0) + count
        return found
