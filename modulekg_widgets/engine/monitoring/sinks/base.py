"""What a sink is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from modulekg_widgets.engine.monitoring.readings import Reading


@runtime_checkable
class Sink(Protocol):
    """Takes readings in order, on a thread of its own; what it raises ends this sink and nothing else.

    A sink that holds values back may have `flush()` as well, which lets go of them.
    """

    def write(self, readings: list[Reading]) -> None:
        """Take in readings, which come in the order of the run."""
        ...

    def close(self) -> None:
        """Called once, after the last reading."""
        ...


def name_of(sink: object) -> str:
    """What a message calls a sink."""
    name = getattr(sink, "name", None)
    return name if isinstance(name, str) and name else type(sink).__name__
