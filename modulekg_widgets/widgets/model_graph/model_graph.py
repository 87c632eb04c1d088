"""ModelGraph: the hierarchy of a model as an interactive graph to explore, search and color.

For models and model files. Without inputs no code of the model runs and the graph has modules and parameters; with
`args` one forward is traced, which adds data edges, FLOPs, axes and the views "dataflow" and "operators". All data are
sent once as a payload, so that the page works while the kernel trains. Traits such as `selected`, `expanded` and
`color_by` are set from both sides and validated here. The model is held weakly; once it is cut or its layers are
others, the graph offers to refresh. Training changes nothing that is shown, unless values decide what forward does.

Limits: a static picture stands for the graph in notebooks without a kernel; `export` to SVG and PNG has no coloring.

    graph = mk.ModelGraph(model, x)
    graph.selected = "layer1.0"
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Bunch, Dict, List, Unicode, validate

from modulekg_widgets.engine.errors import (
    CancelledError,
    UnknownAxisError,
    UnknownNameError,
    UnknownPathError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.files.compare.comparison import FileDiff, diff
from modulekg_widgets.engine.files.model_file import is_file
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.views.payload import model_payload, number, text
from modulekg_widgets.engine.views.pictures.hierarchy import draw_hierarchy
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.engine.views.static_expansion import static_expansion
from modulekg_widgets.widgets.shared.base import WidgetValueError, as_list, check_keywords
from modulekg_widgets.widgets.shared.model_widget import ModelWidget
from modulekg_widgets.widgets.shared.progress import display_progress

if TYPE_CHECKING:
    import pandas as pd
    from ipycytoscape import CytoscapeWidget

    from modulekg_widgets.engine.files.model_file import ModelFile
    from modulekg_widgets.engine.torch_runtime.modules import Model as TorchModel

    Model = TorchModel | ModelFile

VIEWS = ("hierarchy", "dataflow", "operators", "deduplicated", "diff")
TRACED_VIEWS = ("dataflow", "operators")
MAX_PICTURE_CHARACTERS = 90_000  # characters of the picture that goes into every saved notebook
KEYWORDS = ("args", "kwargs", "compare", "selected", "axis", "expanded", "color_by", "query", "view", "overlay")


class ModelGraph(ModelWidget):
    """The hierarchy of a model as a graph to click through, search and color: `display(ModelGraph(model))`.

    No code of the model runs, unless its inputs are passed. The model is held weakly, and where its layers or sizes
    have changed since, the graph says so and offers to show it as it is; so it does after training or masking where
    the forward could only be traced on real values, as what it does may depend on them.

    Parameters
    ----------
    model : torch.nn.Module or ModelFile
        What is shown; of a file also its graph of operators, where it has one.
    args, kwargs : optional
        What the model's forward takes. One forward pass is traced (`mk.trace`): data edges with shapes, FLOPs, axes,
        and the views "dataflow" and "operators". Where it fails, `error` says why and the graph ends there.
    compare : torch.nn.Module or ModelFile, optional
        A second model: the graph opens with both side by side, unless `view` says otherwise.
    selected, axis, expanded, color_by, query, view, overlay : optional
        What the attributes of these names start with.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    selected : str or None
        The dotted path of a module. This and the following can be set at any time, here and in the browser.
    axis : str or None
        A name from `graph.axes`.
    expanded : list of str
        The paths of the open containers, with what they stand in; until it is set, here or by a click, each page opens
        what fits it, and says so here.
    color_by : str
        A column, "occurrences", "overlay", "none" or "pruned", what a linked `MaskEditor` drops.
    query : str
        A path, a class, `params>1M`, `type:Conv2d`.
    view : str
        "hierarchy", "dataflow", "operators", "deduplicated" or "diff".
    overlay : dict
        A number for each of some paths.

    Raises
    ------
    NotAModuleError, UnknownKeywordError, UnknownPathError, UnknownAxisError, UnknownNameError
        For a model that is none, and for a name that there is not; the message has the nearest one.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> graph = mk.ModelGraph(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(1, 4))
    >>> graph.selected = "2"
    >>> graph
    <ModelGraph of Sequential: 4 modules, selected='2'>
    >>> graph.error is None
    True
    """

    _is_chosen = False  # whoever sets `expanded` from now on has chosen what is open
    _model_name = Unicode("ModelGraphModel").tag(sync=True)
    _view_name = Unicode("ModelGraphView").tag(sync=True)

    payload = Dict().tag(sync=True)
    selected = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    axis = Unicode(None, allow_none=True).tag(sync=True)
    expanded = List(Unicode()).tag(sync=True, to_json=lambda v, w: [text(path) for path in v])
    open_to_fit = Bool(False).tag(sync=True)  # nobody has chosen what is open, so each page opens what fits it
    color_by = Unicode("none").tag(sync=True)
    query = Unicode("").tag(sync=True, to_json=lambda v, w: text(v))
    view = Unicode("hierarchy").tag(sync=True)
    overlay = Dict().tag(sync=True, to_json=lambda v, w: {text(path): number(value) for path, value in v.items()})

    def __init__(
        self,
        model: Model,
        args: object = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        compare: Model | None = None,
        selected: str | None = None,
        axis: str | None = None,
        expanded: Sequence[str] | None = None,
        color_by: str = "none",
        query: str = "",
        view: str | None = None,
        overlay: Mapping[str, object] | None = None,
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("ModelGraph", unknown, KEYWORDS)
        try:
            payload = self._read(model, args, kwargs, compare)
        except CancelledError as error:
            payload = self._read(model, None, None, compare) | {"error": text(str(error))}
        opened = (
            [self._paths.path(node) for node in static_expansion(payload)] if expanded is None else as_list(expanded)
        )
        super().__init__(
            payload=payload,
            selected=selected,
            axis=axis,
            expanded=opened,
            open_to_fit=expanded is None,
            color_by=color_by,
            query=query,
            view=view if view is not None else "hierarchy" if compare is None else "diff",
            overlay={} if overlay is None else dict(overlay) if isinstance(overlay, Mapping) else overlay,
            **({} if layout is None else {"layout": layout}),
        )
        self._is_chosen = True
        self.on_msg(self._on_message)
        self._show(model, args, kwargs, compare)

    def _read(self, model: Model, args: object, kwargs: object, compare: Model | None = None) -> Payload:
        """Returns the payload of a model, and sets the paths that exist from now on."""
        found = None if compare is None else diff(model, compare)
        difference = None if found is None else found.structure
        modules = hierarchy(model) if difference is None else difference.left
        payload = model_payload(modules, difference, tensors=found.summary if isinstance(found, FileDiff) else None)
        if is_file(model) and difference is None:
            from modulekg_widgets.engine.views.file_payload import add_file

            add_file(payload, model, modules)
        if args is not None or kwargs is not None:
            with display_progress(f"Trace of {printable(payload['title'])}"):
                from modulekg_widgets.engine.views.dataflow_payload import add_trace

                add_trace(payload, modules, model, () if args is None else args, kwargs)
        self._paths = modules.walk.paths_only()
        # a path with a lone surrogate comes back from the browser as its escape
        self._escaped = {text(path): path for path in map(self._paths.path, self._paths_with_surrogates())}
        return payload

    def _show(self, model: Model, args: object, kwargs: object, compare: Model | None = None) -> None:
        """Remember the model and its inputs, for refreshes and the outdated notice."""
        self._inputs = args, kwargs
        self._compared = None if compare is None else weakref.ref(compare)
        self._watch(model)

    def _shows_weights(self) -> bool:
        """True if the forward was traced on real values: shapes and calls may depend on them."""
        if not self.payload.get("flow"):
            return False
        from modulekg_widgets.engine.tracing.trace import REAL

        return self.payload["flow"]["on"] == REAL

    def _redraw(self, model: Model) -> None:
        compare = None if self._compared is None else self._compared()
        self._refresh(model, *self._inputs, compare)

    def refresh(self, model: Model, args: object = None, kwargs: Mapping[str, object] | None = None) -> None:
        """Show `model` instead, as after a cut; selection, open containers and axis stay where they still exist.

        Parameters
        ----------
        model : torch.nn.Module or ModelFile
            What is shown from now on.
        args, kwargs : optional
            What its forward takes; without them nothing is traced.

        Raises
        ------
        NotAModuleError
            For a model that is none.
        CancelledError
            If the user cancels the trace in the page; the graph stays as it was.
        """
        self._refresh(model, args, kwargs)

    def _refresh(self, model: Model, args: object, kwargs: object, compare: Model | None = None) -> None:
        payload = self._read(model, args, kwargs, compare)
        self._show(model, args, kwargs, compare)
        with self.hold_sync():
            self.payload = payload
            self._take_expanded(self.expanded)
            self.overlay = {path: value for path, value in self.overlay.items() if self._paths.find(path) is not None}
            if self.selected is not None and self._paths.find(self.selected) is None:
                self.selected = None
            if self.axis not in (payload["axes"] or {"name": ()})["name"]:
                self.axis = None
            if (not payload["flow"] and self.view in TRACED_VIEWS) or (self.view == "diff" and compare is None):
                self.view = "hierarchy"

    def show_profile(self, profile: pd.DataFrame) -> None:
        """Add the measured time of each module as the column "time", in milliseconds: to color by, and in the panel.

        Nothing is measured here, and the model is not needed; `refresh` takes the column away again.

        Parameters
        ----------
        profile : DataFrame
            What `graph.profile()` of the same model gave; with a plan, its times after that are "time_after".

        Raises
        ------
        UnknownNameError
            For a table without times.
        UnknownPathError
            For a row of a module that is not shown.

        Examples
        --------
        >>> import torch
        >>> import modulekg_widgets as mk
        >>> model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), torch.zeros(1, 4)
        >>> shown = mk.ModelGraph(model, x)
        >>> shown.show_profile(mk.trace(model, x).profile())
        >>> shown.color_by = "time"
        """
        from modulekg_widgets.engine.views.dataflow_payload import add_time_columns

        paths = profile["module"] if "module" in getattr(profile, "columns", ()) else ()
        rows = [self._paths.find(self._known_path(path)) or 0 for path in paths]
        self.payload = add_time_columns(self.payload, rows, profile)

    def __repr__(self) -> str:
        title, count = printable(self.payload.get("title", "")), len(self._paths)
        self._check_outdated()
        outdated = ", outdated" if self.outdated else ""
        return f"<ModelGraph of {title}: {count} modules, selected={self.selected!r}{outdated}>"

    @property
    def error(self) -> str | None:
        """The reason why the trace of the forward is incomplete; None if it is complete or there were no inputs."""
        return self.payload.get("error")

    def _fingerprint_of(self, path: str | None) -> str | None:
        """Returns the fingerprint of the module at `path`; None if there is none."""
        index = None if path is None else self._paths.find(path)
        return None if index is None else self._digests[self.payload["nodes"]["entity"][index]]

    def _path_of(self, fingerprint: str) -> str | None:
        """Returns the first path with this fingerprint; None if there is none."""
        if fingerprint not in self._digests:
            return None
        entity = self._digests.index(fingerprint)
        return self._paths.path(self.payload["nodes"]["entity"].index(entity))

    @property
    def _digests(self) -> list[str]:
        return self.payload["entities"]["digest"]

    def _paths_with_surrogates(self) -> list[int]:
        odd = {i for i, name in enumerate(self._paths.names) if text(name) != name}
        # what is below such a name has it in its path
        for index, parent in enumerate(self._paths.parents):
            if odd and parent in odd:
                odd.add(index)
        return sorted(odd)

    # -------------------------------------------------------------- checks

    @validate("selected")
    def _check_selected(self, proposal: Bunch) -> str | None:
        value = proposal["value"]
        return None if value is None else self._known_path(value)

    @validate("axis")
    def _check_axis(self, proposal: Bunch) -> str | None:
        value, known = proposal["value"], self.payload.get("axes")
        if value is None:
            return None
        if not known:
            raise UnknownAxisError(f"there is no axis {printable(value)!r}: {self._why_untraced()}")
        if text(value) not in known["name"]:
            raise UnknownAxisError(f"there is no axis {printable(value)!r}: {closest_match_hint(value, known['name'])}")
        return text(value)

    def _why_untraced(self) -> str:
        if self.error:
            return "the trace is incomplete, see .error"
        return "the file has none" if self.payload.get("file") else "pass the model's inputs as args="

    @validate("expanded")
    def _check_expanded(self, proposal: Bunch) -> list[str]:
        paths = [self._known_path(path) for path in proposal["value"]]
        if self._is_chosen:  # also where Python had the same before: the page may have opened others
            self.open_to_fit = False
        return self._visible_containers(paths)

    def _visible_containers(self, paths: Iterable[str]) -> list[str]:
        """Returns the containers among `paths`, each after its ancestors."""
        above = self._paths.parents
        found: dict[str, None] = {}
        for path in paths:
            index = self._paths.find(path) or 0
            inner_first = []
            if above[index + 1 : index + 2] != [index]:
                continue  # nothing is in it
            while index > 0:
                inner_first.append(self._paths.path(index))
                index = above[index]
            found.update(dict.fromkeys(reversed(inner_first)))
        return list(found)

    def _take_expanded(self, paths: Iterable[str]) -> None:
        """Set `expanded` without marking it as chosen by the user."""
        was_chosen, self._is_chosen = self._is_chosen, False
        try:
            self.expanded = [path for path in paths if self._paths.find(self._escaped.get(path, path)) is not None]
        finally:
            self._is_chosen = was_chosen

    def _on_message(self, widget: object, content: object, buffers: object) -> None:
        """Handle a message of a page on the containers that it has expanded."""
        if not isinstance(content, Mapping) or content.get("kind") != "opened":
            return
        paths, known = content.get("paths"), [text(path) for path in self.expanded]
        is_current = self.open_to_fit if content.get("fit") is True else content.get("known") == known
        if isinstance(paths, list) and all(isinstance(path, str) for path in paths) and is_current:
            self._take_expanded(paths)

    @validate("overlay")
    def _check_overlay(self, proposal: Bunch) -> dict[str, float | int | None]:
        return {self._known_path(path): _plain_number(path, value) for path, value in proposal["value"].items()}

    @validate("view")
    def _check_view(self, proposal: Bunch) -> str:
        value = proposal["value"]
        lacking = {} if self.payload.get("compare") else {"diff": "pass a second model as compare="}
        if not self.payload.get("flow"):
            lacking.update(dict.fromkeys(TRACED_VIEWS, self._why_untraced()))
        if value not in VIEWS or value in lacking:
            hint = lacking.get(value) or closest_match_hint(value, [view for view in VIEWS if view not in lacking])
            raise UnknownNameError(f"there is no view {printable(value)!r}: {hint}")
        return value

    @validate("color_by")
    def _check_color_by(self, proposal: Bunch) -> str:
        value = proposal["value"]
        offered = ("none", "occurrences", "overlay", "pruned", *self.payload.get("columns", ()))
        if value not in offered:
            raise UnknownNameError(
                f"there is no column {printable(value)!r} to color by: {closest_match_hint(value, offered)}"
            )
        return value

    def _known_path(self, path: str) -> str:
        real = self._escaped.get(path, path)
        index = self._paths.find(real)
        if index is None:
            raise UnknownPathError(
                f"there is no module {printable(real)!r}: {closest_match_hint(real, self._paths.similar_paths(real))}"
            )
        return self._paths.path(index)  # a shared module is drawn at the first of its paths

    # -------------------------------------------------------------- opening and closing

    def expand(self, *paths: str) -> None:
        """Expand the containers at `paths` and their ancestors.

        Parameters
        ----------
        *paths : str
            Dotted paths of modules.

        Raises
        ------
        UnknownPathError
            For a path that there is not.
        """
        self.expanded = [*self.expanded, *paths]

    def collapse(self, *paths: str) -> None:
        """Collapse the containers at `paths`; without any, all of them.

        Parameters
        ----------
        *paths : str
            Dotted paths of modules.

        Raises
        ------
        UnknownPathError
            For a path that there is not.
        """
        closed = [self._known_path(path) for path in paths] or self.expanded
        inside = tuple(f"{path}." for path in closed)
        self.expanded = [path for path in self.expanded if path not in closed and not path.startswith(inside)]

    # -------------------------------------------------------------- other forms

    def _static_picture(self) -> Picture:
        picture = draw_hierarchy(self.payload, self._expanded_nodes())
        if len(svg_text(picture)) <= MAX_PICTURE_CHARACTERS:
            return picture
        return draw_hierarchy(self.payload, static_expansion(self.payload))

    def _expanded_nodes(self) -> list[int]:
        return [self._paths.find(path) or 0 for path in self.expanded]

    def export(self, path: str | Path) -> Path:
        """Write the graph in the format of the extension, atomically.

        Parameters
        ----------
        path : str or Path
            `.html` is the whole explorer as one page that opens offline; `.svg` and `.png` show what is open, without
            the colors of `color_by` and without the selection; `.dot` is the folded hierarchy for Graphviz; `.json`
            the payload.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UnknownNameError
            For another extension.
        UnknownPathError, UnwritableFileError
            Where there is no folder, and where the file cannot be written.
        """
        from modulekg_widgets.widgets.model_graph.export import export_model_graph

        return export_model_graph(self, Path(path))

    def to_ipycytoscape(self) -> CytoscapeWidget:
        """Returns the visible part of the graph, at most 200 nodes, as a styled `CytoscapeWidget`."""
        from modulekg_widgets.widgets.model_graph.cytoscape import cytoscape_widget

        return cytoscape_widget(self.payload, self._expanded_nodes())


def _plain_number(path: str, value: Any) -> float | int | None:
    if value is None or type(value) in (int, float):
        return value
    try:
        return float(value)  # numpy scalars and tensors of one element
    except (TypeError, ValueError):
        raise WidgetValueError(
            f"the overlay of {printable(path)!r} must be a number: {a_type(value)} was passed"
        ) from None
