"""MetricPanel: values of one or several training runs as charts of all metrics, lines, heat map or histograms, live."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from traitlets import Bool, Bunch, Dict, Int, List, Unicode, observe, validate

from modulekg_widgets.engine.deprecation import deprecated
from modulekg_widgets.engine.errors import UnknownNameError, UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.monitoring.readings import EVAL, PHASES, TRAIN, Slot
from modulekg_widgets.engine.monitoring.run import Run
from modulekg_widgets.engine.views.metric_payload import HISTOGRAM, MAX_POINTS, UpdateReader, series_parts
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.engine.views.pictures.metrics import ChartOptions, draw_metrics
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.schema import METRICS, Payload
from modulekg_widgets.widgets.metric_panel.stream import MetricStream
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError, as_list, check_keywords
from modulekg_widgets.widgets.shared.pair_links import link_pair

if TYPE_CHECKING:
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph


# -------------------- Coloring of a ModelGraph by the latest values of a metric


PERIOD_SECONDS = 0.5  # seconds between two changes of the colors


class GraphColoring:
    """A graph that is colored by a metric."""

    def __init__(self, graph: ModelGraph, metric: str | None, phase: str) -> None:
        self._graph = weakref.ref(graph)
        self.metric, self.phase = metric, phase
        self._known: dict[str, bool] = {}
        self._set_at = 0.0

    @property
    def graph(self) -> ModelGraph | None:
        """Returns the graph; None once it is closed."""
        graph = self._graph()
        return None if graph is None or graph.comm is None else graph

    def update(self, latest: Callable[[GraphColoring], dict[str, float]]) -> None:
        """Color the graph by the latest values, at most twice a second."""
        graph, now = self.graph, time.monotonic()
        if graph is None or now - self._set_at < PERIOD_SECONDS:
            return
        self._set_at = now
        values = {path: value for path, value in latest(self).items() if self._is_known(graph, path)}
        if not _are_equal(values, graph.overlay):
            graph.overlay = values

    def _is_known(self, graph: ModelGraph, path: str) -> bool:
        if path not in self._known:
            try:
                graph._known_path(path)
                self._known[path] = True
            except UnknownPathError:
                self._known[path] = False
        return self._known[path]


def _are_equal(one: dict[str, float], other: dict[str, object]) -> bool:
    """True if two overlays are equal, with NaN equal to NaN."""
    return one.keys() == other.keys() and all(
        a == other[k] or (a != a and other[k] != other[k]) for k, a in one.items()
    )


# ----------------------------------------


VIEWS = ("grid", "lines", "heatmap", "histogram")
SHOWN_PHASES = (*PHASES, "both")
KEYWORDS = ("metric", "modules", "selected", "view", "window", "log_scale", "paused", "phase")

Source: TypeAlias = "Run | str | Path"


class MetricPanel(ModuleKGWidget):
    """The values of trainings as charts, heat map or histograms, also while they run: `display(MetricPanel(monitor))`.

    Parameters
    ----------
    runs : Monitor, Recording, str, Path, or several of them
        A monitor, a recorded run, or the path of a recorded file.
    metric, modules, selected, view, window, log_scale, paused, phase : optional
        What the attributes of these names start with.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    metric : str
        The metric that is drawn; "" is a logged loss, else the first logged number, else the first metric; in the heat
        map the one with an alert or whose layers lie furthest apart. This and the following can be set at any time,
        here and in the browser. `metric` and `modules` take what the runs have values of so far, and any name before
        there is a value.
    modules : list of str
        The dotted paths that are drawn; [] is the panel's choice: in charts and histograms the selected module, else
        the eight that differ most from the median of all, those with alerts first; in the heat map all.
    selected : str or None
        The dotted path of any module, as a model has more of them than are measured.
    view : str
        "grid" (a small chart of each metric, first what is logged as a loss), "lines", "heatmap" or "histogram". Unless
        it is given, "grid", with a metric "lines", and "histogram" where the runs have nothing else.
    window : int or None
        How many of the last steps are drawn; None is all.
    log_scale : bool or None
        Whether values are drawn on a logarithmic scale; None is where those of several layers are positive and span
        decades.
    paused : bool
        Whether the page waits with what is new.
    phase : str
        "train", "eval" or "both"; unless it is given, "eval" where no call of a module was in train mode. A metric that
        has no values in the phase is drawn in the other one.

    Raises
    ------
    UnknownKeywordError, UnknownNameError, UnknownPathError, WidgetValueError
        For a name that there is not, and for a value of the wrong kind.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> monitor = mk.Monitor(model, {nn.Linear: ["WeightNorm"]})
    >>> with monitor:
    ...     for step in range(3):
    ...         model(torch.ones(2, 4)).sum().backward()
    ...         monitor.track(step)
    >>> panel = mk.MetricPanel(monitor, modules=["0"], view="heatmap")
    >>> panel.modules, panel.view
    (['0'], 'heatmap')
    >>> panel.close()
    """

    _model_name = Unicode("MetricPanelModel").tag(sync=True)
    _view_name = Unicode("MetricPanelView").tag(sync=True)

    payload = Dict().tag(sync=True)
    selected = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    metric = Unicode("").tag(sync=True, to_json=lambda v, w: text(v))
    modules = List(Unicode()).tag(sync=True, to_json=lambda v, w: [text(path) for path in v])
    view = Unicode("lines").tag(sync=True)
    window = Int(None, allow_none=True).tag(sync=True)
    log_scale = Bool(None, allow_none=True).tag(sync=True)
    paused = Bool(False).tag(sync=True)
    phase = Unicode("train").tag(sync=True)

    def __init__(
        self,
        runs: Source | Iterable[Source],
        *,
        metric: str | None = None,
        modules: Sequence[str] | None = None,
        selected: str | None = None,
        view: str | None = None,
        window: int | None = None,
        log_scale: bool | None = None,
        paused: bool = False,
        phase: str | None = None,
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("MetricPanel", unknown, KEYWORDS)
        self._runs = _opened(runs)
        self._colorings: list[GraphColoring] = []
        own = {name for name, asked in (("view", view), ("phase", phase)) if asked is None}
        self._own: set[str] = set()  # what goes by the values that there are, until somebody sets it
        self._stream = MetricStream(self._runs, self._send_update, self._after_read)
        weakref.finalize(self, self._stream.stop)
        super().__init__(
            payload=METRICS.payload({"runs": _distinct([text(run.name) for run in self._runs]), "limit": MAX_POINTS}),
            metric="" if metric is None else metric,
            modules=as_list(() if modules is None else modules),
            selected=selected,
            view=self._default_view(metric or "") if view is None else view,
            window=window,
            log_scale=log_scale,
            paused=paused,
            phase=self._default_phase() if phase is None else phase,
            **({} if layout is None else {"layout": layout}),
        )
        self._own = own
        if getattr(self.comm, "kernel", None) is not None:
            self._stream.start()

    def __repr__(self) -> str:
        names = ", ".join(printable(run.name, 30) for run in self._runs[:3]) + (", …" if len(self._runs) > 3 else "")
        series = sum(len(run.history.slots) for run in self._runs)
        return f"<MetricPanel of {names}: {series} series, metric={self.metric!r}, selected={self.selected!r}>"

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that are shown."""
        return tuple(self._runs)

    # -------------------------------------------------------------- checks

    @validate("metric")
    def _check_metric(self, proposal: Bunch) -> str:
        return self._known_metric(proposal["value"])

    @validate("selected")
    def _check_selected(self, proposal: Bunch) -> str | None:
        value = proposal["value"]
        return None if value is None else self._known_modules().get(text(value), value)  # an escape is a name again

    @validate("modules")
    def _check_modules(self, proposal: Bunch) -> list[str]:
        known, paths = self._known_modules(), list[str](proposal["value"])
        for path in paths:
            if known and text(path) not in known:
                raise UnknownPathError(
                    f"no run has values of module {printable(path)!r} so far: {closest_match_hint(path, known)}"
                )
        return [known.get(text(path), path) for path in paths]

    @validate("view", "phase")
    def _check_option(self, proposal: Bunch) -> str:
        name, value = proposal["trait"].name, proposal["value"]
        options = VIEWS if name == "view" else SHOWN_PHASES
        if value not in options:
            raise UnknownNameError(f"there is no {name} {printable(value)!r}: {closest_match_hint(value, options)}")
        return value

    @validate("window")
    def _check_window(self, proposal: Bunch) -> int | None:
        value = proposal["value"]
        if value is not None and value < 1:
            raise WidgetValueError(f"the window is a count of steps, or None for all of them: {value} was passed")
        return value

    def _known_metric(self, name: str) -> str:
        known = {
            text(part.metric): part.metric for slot in self._slots() for part in series_parts(slot.metric, slot.form)
        }
        if name and known and text(name) not in known:
            raise UnknownNameError(
                f"no run has values of {printable(name)!r} so far: {closest_match_hint(name, known)}"
            )
        return known.get(text(name), name)

    def _known_modules(self) -> dict[str, str]:
        """Returns the modules with values, by their names on the page."""
        return {text(slot.module): slot.module for slot in self._slots()}

    def _slots(self) -> list[Slot]:
        return [slot for run in self._runs for slot in list(run.history.slots)]

    # -------------------------------------------------------------- what the panel chooses

    def _default_view(self, metric: str) -> str:
        """Returns the default view: lines of `metric` or charts of all; histograms where there are only those."""
        kinds: dict[bool, set[str]] = {True: set(), False: set()}
        for slot in self._slots():
            for part in series_parts(slot.metric, slot.form):
                kinds[part.form == HISTOGRAM].add(part.metric)
        if metric:
            return "histogram" if metric in kinds[True] else "lines"
        return "histogram" if kinds[True] and kinds[False] <= kinds[True] else "grid"

    def _default_phase(self) -> str:
        """Returns the default phase: train, or eval if modules were called in eval mode alone."""
        metrics = {phase: {slot.metric for slot in self._slots() if slot.phase == phase} for phase in PHASES}
        return EVAL if metrics[EVAL] and not metrics[EVAL] & metrics[TRAIN] else TRAIN

    def _choose(self) -> None:
        """Update view and phase by default rules, unless the user has set them."""
        for name in list(self._own):
            value = self._default_view(self.metric) if name == "view" else self._default_phase()
            if value != getattr(self, name):
                setattr(self, name, value)
                self._own.add(name)

    @observe("metric")
    def _show_metric(self, change: Bunch) -> None:
        """Update the view for another metric, unless the user has set it."""
        self._choose()

    @observe("view", "phase")
    def _mark_chosen(self, change: Bunch) -> None:
        """Mark view or phase as set by the user."""
        self._own.discard(change["name"])

    # -------------------------------------------------------------- what goes on

    def replay(self, speed: float | None = 20.0) -> None:
        """Replay the runs from the beginning.

        Parameters
        ----------
        speed : float or None
            Recorded steps a second; None is all at once.

        Raises
        ------
        WidgetValueError
            For a speed that is not above 0.
        """
        if speed is not None and (isinstance(speed, bool) or not isinstance(speed, int | float) or not speed > 0):
            raise WidgetValueError(f"the speed is a number of steps a second above 0, or None: {speed!r} was passed")
        self._stream.replay(speed)

    def link(self, graph: ModelGraph) -> None:
        """Link `selected` of the panel and of a `ModelGraph`, also on the page while the kernel is busy.

        Parameters
        ----------
        graph : ModelGraph
            The graph; `mk.link` joins more of both.

        Raises
        ------
        WidgetValueError
            For anything else than a `ModelGraph`.
        """
        _check_graph(graph)
        link_pair("selected", graph, self)

    def color(self, graph: ModelGraph, metric: str | None = None, phase: str = "train") -> None:
        """Color a `ModelGraph` by the latest value of a metric of each module, twice a second while values come.

        With several runs the first one that has the metric counts. A second call with the same graph replaces the
        first.

        Parameters
        ----------
        graph : ModelGraph
            What is colored.
        metric : str, optional
            By default the metric that the panel shows.
        phase : str
            "train" or "eval".

        Raises
        ------
        UnknownNameError
            For a metric or phase that there is not.
        WidgetValueError
            For anything else than a `ModelGraph`.
        """
        _check_graph(graph)
        if metric is not None:
            metric = self._known_metric(metric)
        if phase not in PHASES:
            raise UnknownNameError(f"there is no phase {printable(phase)!r}: {closest_match_hint(phase, PHASES)}")
        kept = [one for one in self._colorings if one.graph is not None and one.graph is not graph]
        coloring = GraphColoring(graph, metric, phase)
        known = UpdateReader(self._runs)
        known.next()
        self._color(coloring, known)  # what is there already needs no page that looks
        self._colorings = [*kept, coloring]
        graph.color_by = "overlay"

    @deprecated("MetricPanel.colour", since="0.1.0", removed_in="0.2.0", instead="MetricPanel.color")
    def colour(self, graph: ModelGraph, metric: str | None = None, phase: str = "train") -> None:
        """The former name of `color`, which does the same.

        Parameters
        ----------
        graph, metric, phase
            Those of `color`.
        """
        self.color(graph, metric, phase)

    def close(self) -> None:
        """Stop the thread and close the widget with its links; runs and graphs stay."""
        stream = vars(self).get("_stream")  # a constructor that raised has none
        if stream is not None:
            stream.stop()
        super().close()

    # -------------------------------------------------------------- the stream

    def _send_update(self, content: Mapping[str, object], buffers: list[bytes]) -> None:
        self.send(content, buffers)

    def _after_read(self, updates: UpdateReader) -> None:
        """Update defaults and colors; runs in the stream's thread."""
        self._choose()
        for coloring in self._colorings:
            self._color(coloring, updates)

    def _color(self, coloring: GraphColoring, updates: UpdateReader) -> None:
        coloring.update(lambda one: updates.latest(self.metric if one.metric is None else one.metric, one.phase))

    @observe("comm")
    def _register_handler(self, change: Bunch) -> None:
        comm = change["new"]
        if comm is None:
            return
        self.on_msg(self._on_message, remove=True)
        self.on_msg(self._on_message)
        if hasattr(comm, "handle_msg"):
            comm.handle_msg = partial(_handle, weakref.ref(self), comm.handle_msg)

    def _on_message(self, widget: object, content: object, buffers: object) -> None:
        self._stream.start()  # a page has it, whatever it was displayed in
        self._stream.acknowledge(content)

    def _repr_mimebundle_(self, **kwargs: object) -> Payload:
        self._stream.start()
        return super()._repr_mimebundle_(**kwargs)

    def _picture_state(self) -> Hashable:
        return super()._picture_state(), *((len(run.history), getattr(run, "is_running", False)) for run in self._runs)

    def _static_picture(self) -> Picture:
        self._choose()
        return draw_metrics(
            self._runs,
            ChartOptions(self.metric, self.modules, self.selected, self.phase, self.window, self.log_scale, self.view),
        )


def _handle(panel: weakref.ref[MetricPanel], handle: Callable[[Payload], None], message: Payload) -> None:
    """Handle messages of the page without the output capture of IPython around them.

    Where they are heard beside a running cell, in a subshell, its half-drawn figures would be shown and lost.
    """
    owner, data = panel(), message["content"]["data"]
    if owner is not None and data.get("method") == "custom":
        owner._handle_msg(message)
    else:
        handle(message)


def _opened(runs: Source | Iterable[Source]) -> list[Run]:
    sources = [runs] if isinstance(runs, Run | str | Path) or not isinstance(runs, Iterable) else list(runs)
    if not sources:
        raise WidgetValueError("MetricPanel shows one run at least: pass a monitor or the path of a recorded file")
    return [_run(source) for source in sources]


def _run(source: object) -> Run:
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        from modulekg_widgets.engine.monitoring.sinks.recording import load_recording

        return load_recording(source)
    raise WidgetValueError(
        f"MetricPanel shows monitors, recorded runs and the paths of recorded files: {a_type(source)} was passed"
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Returns the names, with a number for repeated ones."""
    found: list[str] = []
    for name in names:
        unique, count = name, 1
        while unique in found:
            count += 1
            unique = f"{name} ({count})"
        found.append(unique)
    return found


def _check_graph(graph: object) -> None:
    from modulekg_widgets.widgets.model_graph.model_graph import ModelGraph

    if not isinstance(graph, ModelGraph):
        raise WidgetValueError(f"a ModelGraph is wanted: {a_type(graph)} was passed")
