"""Steps that are measured run uncompiled: compiled code runs past hooks, and says nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from typing import Any

import torch

# torch warns whoever calls a compiled module while there are hooks for all modules; ours take no notice of wrappers
WARNING = r"Using `torch\.compile\(module\)` when there are global hooks"


class _Uncompiled:
    """Counts who needs it: monitors come and go in any order, and the compiler's stance is one for the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._stance: Any = None
        self._filter: Any = None

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._stance = torch.compiler.set_stance("force_eager")
                warnings.filterwarnings("ignore", WARNING)
                self._filter = warnings.filters[0]

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and not sys.is_finalizing():
                self._stance.__exit__(None, None, None)
                with contextlib.suppress(ValueError):  # the user has reset all filters
                    warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


_shared = _Uncompiled()
begin, end = _shared.begin, _shared.end
