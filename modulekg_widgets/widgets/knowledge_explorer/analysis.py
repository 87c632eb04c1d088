"""What takes long to find out about a large graph, in a thread of its own: the page has its models meanwhile."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

from modulekg_widgets.engine.knowledge.analysis.superfamilies import Superfamilies
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.views.knowledge_findings import findings_of
from modulekg_widgets.engine.views.knowledge_payload import FAILED, knowledge_payload

log = logging.getLogger("modulekg_widgets")


class _CancelledError(Exception):
    """Raised between two steps of an analysis that nobody asks for."""


class BackgroundAnalysis:
    """Makes the whole payload of `contents`; `done` is told once, a bound method that is held weakly."""

    def __init__(self, contents: Contents, families: Superfamilies, done: Callable[[BackgroundAnalysis], None]) -> None:
        self._contents, self._families = contents, families
        self._done = weakref.WeakMethod(done)
        self._payload: dict[str, Any] = {}
        self._ready = threading.Event()
        self._is_cancelled = False
        self._starting = threading.Lock()
        # a daemon: it must not keep a kernel that is to end
        self._thread = threading.Thread(target=self._run, name="modulekg-analysis", daemon=True)

    @property
    def is_done(self) -> bool:
        return self._ready.is_set()

    def start(self) -> None:
        """Start the thread, unless it was started before."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def cancel(self) -> None:
        """Nobody asks for it any more: it ends after its present step."""
        self._is_cancelled = True

    def _go_on(self) -> None:
        if self._is_cancelled:
            raise _CancelledError

    def payload(self) -> dict[str, Any]:
        """The whole payload, or where the analysis failed that of the models alone; waits for it."""
        self.start()
        self._ready.wait()
        return self._payload

    def _run(self) -> None:
        try:
            findings = findings_of(self._contents, self._go_on)
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
