"""Runs: the values of a live monitor or of a recorded file, as dict, table and stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.monitoring.history import History
from modulekg_widgets.engine.monitoring.readings import PHASES, TRAIN, Reading, Value

if TYPE_CHECKING:
    import pandas as pd

Output: TypeAlias = dict[str, dict[str, dict[int, Any]]]  # module -> metric -> step -> value or list of values
COLUMNS = ("module", "metric", "step", "value", "call", "phase")


@dataclass(frozen=True, slots=True)
class Alert:
    """A value that crossed a bound of a monitor, as `monitor.alerts` lists them.

    Attributes
    ----------
    metric, module : str
        The metric, and the dotted path of the module; "" for the root and for values of `monitor.log`.
    step : int
        When it was.
    value : float
        The value, which may be NaN.
    text : str
        All of it as one sentence.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> monitor = mk.Monitor(nn.Linear(2, 2), {})
    >>> monitor.log({"loss": 9.5})
    >>> monitor.alert("loss", above=10.0)
    >>> monitor.log({"loss": 12.5})
    >>> monitor.alerts[0].metric, monitor.alerts[0].value
    ('loss', 12.5)
    """

    metric: str
    module: str
    step: int
    value: float
    text: str


class Run:
    """Values by module, metric and step; base of the live monitor and of recordings.

    Parameters
    ----------
    name : str
        The name, as a panel shows it.

    Attributes
    ----------
    history : History
        All rows in the order in which they came.
    alerts : list of Alert
        The bounds that were crossed.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> monitor = mk.Monitor(nn.Linear(2, 2), {}, name="first")
    >>> monitor.log({"loss": 0.5})
    >>> isinstance(monitor, mk.monitoring.Run), monitor.name, monitor.get_output()
    (True, 'first', {'': {'loss': {0: 0.5}}})
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = History()
        self.alerts: list[Alert] = []

    def get_output(self, phase: str | None = None) -> Output:
        """All values by module, metric and step.

        Parameters
        ----------
        phase : str, optional
            "train" or "eval". By default "train", and "eval" for each metric of a module that has values in it alone,
            as where a frozen model is in eval mode all the time.

        Returns
        -------
        dict
            `{module: {metric: {step: value}}}`: floats, arrays or dicts; of a module called more than once, a list.

        Raises
        ------
        UnknownNameError
            For another phase.
        """
        if phase is not None:
            return _nested(self.readings(phase))
        readings = list(self.readings(None))
        trained = {(reading.module, reading.metric) for reading in readings if reading.phase == TRAIN}
        return _nested(r for r in readings if r.phase == TRAIN or (r.module, r.metric) not in trained)

    def frame(self) -> pd.DataFrame:
        """One row for each value, with the columns module, metric, step, value, call and phase."""
        import pandas as pd

        last = {(r.module, r.metric, r.step, r.call, r.phase): r.value for r in self.readings(None)}
        rows = [
            (module, metric, step, value, call, phase) for (module, metric, step, call, phase), value in last.items()
        ]
        columns = {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}
        # plain objects: a name may hold what no string of pandas does
        texts = {name: pd.Series(columns[name], dtype=object) for name in ("module", "metric", "phase")}
        return pd.DataFrame({**columns, **texts}, columns=list(COLUMNS))

    def readings(self, phase: str | None = TRAIN) -> Iterator[Reading]:
        """All values in the order in which they came.

        Parameters
        ----------
        phase : str or None
            "train" or "eval"; None is both.

        Returns
        -------
        iterator of Reading
            One value after the other.

        Raises
        ------
        UnknownNameError
            For another phase.
        """
        if phase is not None and phase not in PHASES:
            raise UnknownNameError(
                f"there is no phase {printable(str(phase))!r}: {closest_match_hint(str(phase), PHASES)}"
            )
        return (reading for reading in self.history.readings() if phase is None or reading.phase == phase)


def _nested(readings: Iterable[Reading]) -> Output:
    """Returns the values by module, metric and step."""
    found: dict[str, dict[str, dict[int, dict[int, Value]]]] = {}
    for reading in readings:
        steps = found.setdefault(reading.module, {}).setdefault(reading.metric, {})
        steps.setdefault(reading.step, {})[reading.call] = reading.value
    return {
        module: {
            metric: {step: _by_call(calls) for step, calls in sorted(steps.items())}
            for metric, steps in metrics.items()
        }
        for module, metrics in found.items()
    }


def _by_call(calls: dict[int, Value]) -> Value | list[Value | None]:
    """The value of a module called once, or a list by call with None for missing ones."""
    if calls.keys() == {0}:
        return calls[0]
    return [calls.get(call) for call in range(max(calls) + 1)]
