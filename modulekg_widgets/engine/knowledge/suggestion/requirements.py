"""What suggested models are for, and the budget that they must keep to."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from modulekg_widgets.engine.errors import PredictionError, shown
from modulekg_widgets.engine.knowledge.contents import DataSetNode
from modulekg_widgets.engine.knowledge.prediction.datasets import image_size, is_imagenet, whole_number
from modulekg_widgets.engine.knowledge.suggestion.candidates import in_units


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the suggested models are for, and the budget that they must keep to."""

    dataset: DataSetNode
    max_params: float | None
    max_flops: float | None
    max_latency: float | None = None  # ms

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if isinstance(limit, bool) or not isinstance(limit, Real) or not float(limit) > 0:
                raise PredictionError(f"{name} is {shown(repr(limit))}: give a number above zero")

    @property
    def limits(self) -> dict[str, float]:
        """Those that are set."""
        every = {"max_params": self.max_params, "max_flops": self.max_flops, "max_latency": self.max_latency}
        return {name: limit for name, limit in every.items() if limit is not None}

    def allows(self, parameters: int, flops: float | None) -> bool:
        """Whether the budget does; an unknown cost is allowed until it is known."""
        within = self.max_params is None or parameters <= self.max_params
        return within and (self.max_flops is None or flops is None or flops <= self.max_flops)

    @property
    def classes(self) -> int | None:
        return whole_number(self.dataset, "classes")

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of its images, where costs are not those of ImageNet-1K."""
        return None if is_imagenet(self.dataset.name) else image_size(self.dataset)

    @property
    def title(self) -> str:
        limits = [
            f"at most {in_units(limit)} {unit}"
            for limit, unit in ((self.max_params, "parameters"), (self.max_flops, "FLOPs"))
            if limit is not None
        ] + ([] if self.max_latency is None else [f"at most {self.max_latency:g} ms"])
        return ", ".join([f"for {shown(self.dataset.name)}", *limits])
