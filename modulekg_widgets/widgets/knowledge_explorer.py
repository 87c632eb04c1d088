"""KnowledgeExplorer: a knowledge graph to explore, search, rank and compare."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ipywidgets import widget_serialization
from traitlets import Bunch, Dict, List, Unicode, validate

from modulekg_widgets.engine.errors import (
    TooLargeError,
    UnknownNameError,
    UnknownPathError,
    a_type,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.knowledge.analysis.similarity import Superfamilies, superfamilies
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.views.knowledge_payload import (
    FAILED,
    RUNNING,
    analyse_contents,
    knowledge_payload,
    selectable,
)
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.engine.views.pictures.knowledge import draw_knowledge
from modulekg_widgets.engine.views.pictures.shapes import Picture
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.widgets.shared.base import ModuleKGWidget, WidgetValueError, check_keywords

# -------------------- Background analysis of a large graph, in a thread, while the page shows its models


log = logging.getLogger("modulekg_widgets")


class _CancelledError(Exception):
    """Raised between two steps of a cancelled analysis."""


class BackgroundAnalysis:
    """Computes the complete payload of `contents`; calls `done`, a weakly held bound method, once."""

    def __init__(self, contents: Contents, families: Superfamilies, done: Callable[[BackgroundAnalysis], None]) -> None:
        self._contents, self._families = contents, families
        self._done = weakref.WeakMethod(done)
        self._payload: Payload = {}
        self._ready = threading.Event()
        self._is_cancelled = False
        self._starting = threading.Lock()
        # a daemon: it must not keep a kernel that is to end
        self._thread = threading.Thread(target=self._run, name="modulekg-analysis", daemon=True)

    @property
    def is_done(self) -> bool:
        return self._ready.is_set()

    def start(self) -> None:
        """Start the thread, once."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def cancel(self) -> None:
        """End after the present step."""
        self._is_cancelled = True

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise _CancelledError

    def payload(self) -> Payload:
        """Waits for the complete payload and returns it; after a failure, that of the models alone."""
        self.start()
        self._ready.wait()
        return self._payload

    def _run(self) -> None:
        try:
            findings = analyse_contents(self._contents, self._check_cancelled)
            self._payload = knowledge_payload(self._contents, self._families, findings)
        except _CancelledError:
            self._payload = knowledge_payload(self._contents, self._families, None, FAILED)
        except Exception:  # the models stay to be looked at, and the page says that the rest is missing
            log.exception("the structures of the graph could not be analysed")
            self._payload = knowledge_payload(self._contents, self._families, None, FAILED)
        self._ready.set()
        done = self._done()
        if done is not None:
            done(self)


# ----------------------------------------


VIEWS = ("graph", "scatter", "ranking", "communities", "types", "overlap", "frequency", "jobs")
COLORS = ("family", "community", "class", "uses", "importance", "none")
MAX_STRUCTURES = 200_000  # 2,000 models of three libraries have 61,500, which are 13 megabytes
MAX_SYNCHRONOUS = (
    8_000  # structures up to which all is found out before the explorer is there; torchvision's have 6,380
)
ANALYSIS_PREFIXES = ("Community:", "Type:")  # beginnings of keys that only the analysis knows
KEYWORDS = ("selected", "view", "color_by", "query")


class KnowledgeExplorer(ModuleKGWidget):
    """The models of a knowledge graph and all structures in them, in the browser: `display(KnowledgeExplorer(kg))`.

    It shows what the graph holds now, without the kernel from then on; `refresh()` shows what was added since. Of a
    large graph models, families and results are there at once, and structures follow as soon as they are analysed.

    Parameters
    ----------
    kg : KnowledgeGraph
        The graph of models, of 200,000 structures at most.
    selected, view, color_by, query : optional
        What the attributes of these names start with.
    layout : ipywidgets.Layout or dict, optional
        Size and margins in the page.
    **unknown
        Refused: a keyword that there is not.

    Attributes
    ----------
    selected : str or None
        The fingerprint of a structure, "Model:resnet18", "Family:…", "Superfamily:…", "Community:…" or "Type:…". This
        and the following can be set at any time, here and in the browser.
    view : str
        "graph", "scatter", "ranking", "communities", "types", "overlap", "frequency" or "jobs".
    color_by : str
        "family", "community", "class", "uses", "importance" or "none".
    query : str
        Text, `class:Conv2d`, `params>1M`, `models>5`, `model:resnet18`; several terms must all hold.

    Raises
    ------
    TooLargeError
        Beyond 200,000 structures.
    UnknownKeywordError, UnknownNameError, UnknownPathError, WidgetValueError
        For a name that there is not, and for a value of the wrong kind.

    Examples
    --------
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> kg = mk.KnowledgeGraph()
    >>> _ = kg.add_model(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), name="small")
    >>> mk.KnowledgeExplorer(kg, selected="Model:small")
    <KnowledgeExplorer of 1 models: 3 structures, selected='Model:small'>
    """

    _model_name = Unicode("KnowledgeExplorerModel").tag(sync=True)
    _view_name = Unicode("KnowledgeExplorerView").tag(sync=True)

    payload = Dict().tag(sync=True)
    selected = Unicode(None, allow_none=True).tag(sync=True, to_json=lambda v, w: None if v is None else text(v))
    view = Unicode("graph").tag(sync=True)
    color_by = Unicode("family").tag(sync=True)
    query = Unicode("").tag(sync=True, to_json=lambda v, w: text(v))
    graphs = List().tag(sync=True, **widget_serialization)  # linked ones, see linking.py

    _analysis: BackgroundAnalysis | None = None  # that runs, or waits to
    _contents: Contents | None = None  # that are shown

    def __init__(
        self,
        kg: object,
        *,
        selected: str | None = None,
        view: str = "graph",
        color_by: str = "family",
        query: str = "",
        layout: object = None,
        **unknown: object,
    ) -> None:
        check_keywords("KnowledgeExplorer", unknown, KEYWORDS)
        self._kg: Any = kg
        self._is_made = False
        self._taking = threading.RLock()  # a refresh and the thread of an analysis set the payload
        super().__init__(
            payload=self._read(),
            selected=selected,
            view=view,
            color_by=color_by,
            query=query,
            **({} if layout is None else {"layout": layout}),
        )
        self._is_made = True
        self._start()

    def _read(self) -> Payload:
        if not callable(getattr(self._kg, "contents", None)):
            raise WidgetValueError(f"KnowledgeExplorer shows a KnowledgeGraph: {a_type(self._kg)} was passed")
        return self._show(self._kg.contents())

    def _show(self, contents: Contents) -> Payload:
        """Returns the payload that is available at once, and prepares the analysis and the known keys."""
        if len(contents.modules) > MAX_STRUCTURES:
            raise TooLargeError(
                f"the graph has {len(contents.modules):,} structures, and a page holds {MAX_STRUCTURES:,} at most: "
                "explore a graph of fewer models"
            )
        families = superfamilies(contents)
        is_large = len(contents.modules) > MAX_SYNCHRONOUS
        findings = None if is_large else analyse_contents(contents)
        payload = knowledge_payload(contents, families, findings, RUNNING)
        self._drop_analysis()
        self._contents = contents
        self._analysis = BackgroundAnalysis(contents, families, self._take_analysis) if is_large else None
        # a name with a lone surrogate comes back from the browser as its escape
        named = [*contents.modules, *(f"Model:{name}" for name in contents.models)]
        self._escaped = {text(key): key for key in named if text(key) != key}
        self._keys = selectable(payload) | {text(key) for key in contents.modules}
        self._roots = {text(f"Model:{name}"): model.root for name, model in contents.models.items()}
        return payload

    def _start(self) -> None:
        analysis = self._analysis
        if analysis is None:
            return
        analysis.start()
        if analysis.is_done:  # a selection has waited for it
            self._take_analysis(analysis)

    def _take_analysis(self, analysis: BackgroundAnalysis) -> None:
        """Take the payload of an analysis, unless its contents are no longer shown."""
        payload = analysis.payload()
        with self._taking:
            if analysis is not self._analysis or not self._is_made:
                return
            self._keys |= selectable(payload)
            if self.comm is not None:  # it was not closed meanwhile
                with self.hold_sync():
                    self.payload = payload
                    if self.selected is not None and text(self.selected) not in self._keys:
                        self.selected = None
            self._analysis = None  # last: whoever finds none has the payload

    def finish(self) -> bool:
        """Wait for the analysis; True if there was one."""
        analysis = self._analysis
        if analysis is None:
            return False
        analysis.payload()
        self._take_analysis(analysis)
        return True

    def refresh(self) -> None:
        """Show what the graph holds now; the selection stays where it still exists."""
        contents = self._kg.contents()
        if contents is self._contents:  # nothing was written since
            return
        with self._taking, self.hold_sync():
            self.payload = self._show(contents)
            selected = self.selected
            waits = self._analysis is not None and selected is not None and selected.startswith(ANALYSIS_PREFIXES)
            if selected is not None and not waits and text(selected) not in self._keys:
                self.selected = None
        self._start()

    def _drop_analysis(self) -> None:
        if self._analysis is not None:
            self._analysis.cancel()
        self._analysis = None

    def _root_of(self, key: str | None) -> str | None:
        """Returns the fingerprint of the model in a key such as "Model:resnet18"; None for other keys."""
        return None if key is None else self._roots.get(text(key))

    def __repr__(self) -> str:
        models, structures = len(self.payload["models"]["name"]), self.payload["size"]
        selected = None if self.selected is None else printable(self.selected)
        return f"<KnowledgeExplorer of {models:,} models: {structures:,} structures, selected={selected!r}>"

    def close(self) -> None:
        """Close the explorer in the kernel and on every page; the graph stays."""
        self._drop_analysis()
        self._kg = None
        super().close()

    # -------------------------------------------------------------- checks

    @validate("selected")
    def _check_selected(self, proposal: Bunch) -> str | None:
        value = proposal["value"]
        if value is None:
            return None
        if not self._is_known(value):
            raise UnknownPathError(
                f"the graph has no {printable(value)!r}: {closest_match_hint(value, self._similar_keys(value))}"
            )
        return self._escaped.get(value, value)

    def _is_known(self, key: str) -> bool:
        """True if the key exists; waits for the analysis if only that knows."""
        analysis = self._analysis
        if analysis is not None and key.startswith(ANALYSIS_PREFIXES):
            return text(key) in selectable(analysis.payload())
        return text(key) in self._keys

    def _similar_keys(self, key: str) -> list[str]:
        """Returns the keys for the hint in an error: those of the same kind, else the models."""
        kind, colon, _ = key.partition(":")
        models = [known for known in self._keys if known.startswith("Model:")]
        return [known for known in self._keys if colon and known.startswith(kind + colon)] or models

    @validate("view")
    def _check_view(self, proposal: Bunch) -> str:
        return _check_option("view", proposal["value"], VIEWS)

    @validate("color_by")
    def _check_color_by(self, proposal: Bunch) -> str:
        return _check_option("color", proposal["value"], COLORS)

    # -------------------------------------------------------------- other forms

    def _static_picture(self) -> Picture:
        return draw_knowledge(self.payload)


def _check_option(what: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UnknownNameError(f"there is no {what} {printable(value)!r}: {closest_match_hint(value, known)}")
    return value
