"""Plugins: packages found by the entry point group `modulekg_widgets.plugins`, loaded once, failures isolated."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from time import perf_counter
from types import ModuleType, TracebackType

from modulekg_widgets.engine.errors import printable

ENTRY_POINT_GROUP = "modulekg_widgets.plugins"
ENVIRONMENT_VARIABLE = "MODULEKG_PLUGINS"  # in the environment; "0" leaves all plugins out
MAX_WAIT = 60.0  # seconds that one thread waits for the plugins that another one loads

log = logging.getLogger("modulekg_widgets")


@dataclass(frozen=True, slots=True, repr=False)
class Plugin:
    """One entry point and the result of loading it."""

    name: str
    distribution: str  # with its version
    target: str  # as the package states it: "package.module" or "package.module:function"
    seconds: float
    error: str | None = None  # why it is not loaded

    def __repr__(self) -> str:
        outcome = f"loaded in {self.seconds:.2f} s" if self.error is None else f"not loaded: {self.error}"
        return f"<Plugin {printable(self.name)} of {printable(self.distribution)}: {outcome}>"


def plugins() -> list[Plugin]:
    """The plugins that were found, in the order in which they were loaded, those that failed with the reason.

    A package names a module that registers by decorators, or a function without parameters that does, in its
    pyproject.toml: `[project.entry-points."modulekg_widgets.plugins"]` and `mine = "my_package.my_module"`.
    They are loaded at the first use of a public name; `MODULEKG_PLUGINS=0` in the environment leaves them out.

    Returns
    -------
    list of Plugin
        Each with `name`, `distribution` (and its version), `target`, `seconds` and `error`, None where it is loaded.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> [plugin.name for plugin in mk.plugins() if plugin.error]
    []
    """
    load()
    return list(_loader.plugins)


def load() -> bool:
    """Load all plugins once; False while another call is loading them, as for a plugin that uses a public name."""
    return _loader.load()


class Loader:
    """Loads each plugin once, for all threads."""

    def __init__(self) -> None:
        self.plugins: list[Plugin] = []
        self._waiting: list[tuple[str, EntryPoint]] | None = None
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._done = False

    def load(self) -> bool:
        if self._done:
            return True
        if not self._lock.acquire(timeout=self._wait_limit()):
            return False
        try:
            self._thread = threading.get_ident()
            self._load_all()
            self._done = True
        finally:
            self._thread = None
            self._lock.release()
        return True

    def _wait_limit(self) -> float:
        """Seconds to wait for another thread: 0 for one whose own import may be what that thread waits for."""
        return 0.0 if self._thread == threading.get_ident() or _is_importing() else MAX_WAIT

    def _load_all(self) -> None:
        if self._waiting is None:
            self._waiting = [] if os.environ.get(ENVIRONMENT_VARIABLE) == "0" else _entry_points()
        while self._waiting:
            self._load(*self._waiting.pop(0))

    def _load(self, distribution: str, entry: EntryPoint) -> None:
        start, error = perf_counter(), "it was interrupted"
        try:
            _activate(entry)
            error = None
        except (Exception, SystemExit) as caught:  # whatever the code of others raises
            error = _reason(caught)
            log.warning("the plugin %s of %s is not loaded: %s", printable(entry.name), printable(distribution), error)
            log.debug("the plugin %s of %s failed", printable(entry.name), printable(distribution), exc_info=True)
        finally:
            taken = perf_counter() - start
            self.plugins.append(Plugin(entry.name, distribution, entry.value, taken, error))


_loader = Loader()


def _activate(entry: EntryPoint) -> None:
    if entry.pattern.match(entry.value) is None:
        raise ValueError(f"{entry.value!r} names nothing: write 'package.module', or 'package.module:function'")
    found = entry.load()
    if isinstance(found, ModuleType):
        return
    if not callable(found):
        kind = type(found).__name__
        raise TypeError(f"{entry.value!r} is of type {kind}: name a module, or a function without parameters")
    found()


def _entry_points() -> list[tuple[str, EntryPoint]]:
    """The entry points with their distributions, in a stable order.

    Not by `entry_points(group=…)`, which one damaged file of any package stops.
    """
    found: dict[str, list[tuple[str, EntryPoint]]] = {}
    try:
        for distribution in distributions():
            name = _name(distribution)
            if entries := _entries(distribution, name):  # the first on the path is the one that is imported
                found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), entries)
    except Exception as error:  # noqa: BLE001 - what is installed beside us must not stop us
        log.warning("plugins could not be looked for: %s", _reason(error))
    return [each for key in sorted(found) for each in sorted(found[key], key=lambda each: each[1].name)]


def _entries(distribution: Distribution, name: str) -> list[tuple[str, EntryPoint]]:
    try:
        if ENTRY_POINT_GROUP not in (distribution.read_text("entry_points.txt") or ""):  # the rest need not be parsed
            return []
    except (OSError, ValueError):  # damaged files of packages that are none of ours
        return []
    try:
        label = f"{name} {distribution.version}"
        return [(label, entry) for entry in distribution.entry_points.select(group=ENTRY_POINT_GROUP)]
    except Exception as error:  # noqa: BLE001 - importlib.metadata raises what it likes
        log.warning(
            "the plugins of %s are not loaded: its metadata cannot be read: %s", printable(name), _reason(error)
        )
        return []


def _name(distribution: Distribution) -> str:
    try:
        name: str | None = distribution.metadata["Name"]
    except Exception:  # noqa: BLE001 - the same
        name = None
    return name or "a distribution without a name"


def _reason(error: BaseException) -> str:
    """The error in one line, with the last line of the plugin's own code."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an error of others may fail to print
        text = ""
    described = f"{type(error).__name__}: {printable(text, 300)}" if text else type(error).__name__
    place = _place(error.__traceback__)
    return f"{described} ({place})" if place else described


def _place(trace: TracebackType | None) -> str:
    place = ""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in ("importlib", "_frozen_importlib", __name__.partition(".")[0]):
            place = printable(f"{module}, line {trace.tb_lineno}")
        trace = trace.tb_next
    return place


def _is_importing() -> bool:
    """True if this thread is within an import."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_find_and_load":  # in importlib._bootstrap, under every import of a new module
            return True
        frame = frame.f_back
    return False
