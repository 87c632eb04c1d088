"""The exceptions of the package, and helpers for their messages.

Every error raised on purpose derives from `ModuleKGError`; most derive from a builtin error, too, so that
`except ValueError` or `except KeyError` works as usual. A message says what was passed, what is wrong with it and what
to do, in one sentence without a final period. Text that comes from users or files goes through `printable` first: it
is cut and has no control characters.

    raise UnknownPathError(f"there is no module {printable(path)!r}: {closest_match_hint(path, known)}")
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ModuleKGError(Exception):
    """Base of every error that this package raises on purpose.

    Most derive from a built-in error as well, so that `except ValueError` finds a wrong value.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> try:
    ...     mk.fingerprint("resnet18")
    ... except mk.ModuleKGError as error:
    ...     print(type(error).__name__)
    NotAModuleError
    """

    def __str__(self) -> str:
        # KeyError prints the repr of its argument; our messages are sentences
        return str(self.args[0]) if self.args else type(self).__name__


class NotAModuleError(ModuleKGError, TypeError):
    """A value that is no `torch.nn.Module` instance where one is needed."""


class BrokenModuleError(ModuleKGError):
    """A module whose `__init__` has not run `nn.Module.__init__`."""


class FingerprintError(ModuleKGError):
    """A module whose structure or weights have no digest; the message names the attribute path."""


class UninitializedModuleError(FingerprintError):
    """A lazy module that has no shapes before its first forward pass."""


class TraceError(ModuleKGError):
    """A forward that could not be traced; the message has module, operator and line, `graph` the part before it.

    `graph` is what was recorded until then, or None.
    """

    def __init__(self, message: str, graph: object = None) -> None:
        super().__init__(message)
        self.graph = graph


class CancelledError(ModuleKGError):
    """Long work that the user cancelled in the page; nothing was changed."""


class ModelInUseError(ModuleKGError):
    """A model that another thread runs or trains, so that it cannot be changed now; nothing was changed."""


class CutError(ModuleKGError, ValueError):
    """A cut that cannot be made: a frozen dimension, positions that do not exist, or nothing left."""

    reason: str = ""  # why, without where


class PlanFileError(ModuleKGError, ValueError):
    """A file that is no valid plan."""


class ModelFolderError(ModuleKGError, ValueError):
    """A folder that holds no saved model, or a model that cannot be saved."""


class ModelFileError(ModuleKGError, ValueError):
    """A file that cannot be read as a model: truncated, forged or unknown. No code of it was run."""


class RecordingError(ModuleKGError, ValueError):
    """A file that is no recorded run, or cannot be written; the message names the file, the line and what was found."""


class RewritingError(ModuleKGError, ValueError):
    """A rewrite that cannot be made or undone: a replacement that does not fit, or a model that has changed since."""


class ChangedCallsError(RewritingError):
    """A forward that calls other functions than its function modules were made for."""


class PropertyError(ModuleKGError, ValueError):
    """A property of a node that cannot be kept: not a plain value, or out of its range."""


class StoreError(ModuleKGError, ValueError):
    """A store that cannot be opened, read or written; the message says what was found, and nothing was written."""


class GraphFileError(ModuleKGError, ValueError):
    """A file that is no valid knowledge graph."""


class UnwritableFileError(GraphFileError, OSError):
    """A file that cannot be written; the message says why, and the previous content is unchanged."""


class IndexingError(ModuleKGError):
    """Some models could not be indexed; the others are in the store. `failures` tells each one's reason by name."""

    def __init__(self, message: str, failures: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.failures = failures or {}


class PredictionError(ModuleKGError, ValueError):
    """A prediction or suggestion that the graph knows too little for; the message says what is missing."""


class MissingPackageError(ModuleKGError, ImportError):
    """An optional package that is not installed; the message names the extra that brings it."""


class MissingReaderError(MissingPackageError, ModelFileError):
    """A model file whose reader needs a package that is not installed; the message names the extra that brings it."""


class UnknownAxisError(ModuleKGError, KeyError):
    """An axis that does not exist, or is not along this dimension."""


class UnknownPathError(ModuleKGError, KeyError):
    """A dotted path, model name or node that does not exist."""


class UnknownNameError(ModuleKGError, ValueError):
    """A scheme, level, format or other option that is not one of the known ones."""


class UnknownKeywordError(ModuleKGError, TypeError):
    """A keyword that a constructor does not take."""


class UnknownAttributeError(ModuleKGError, AttributeError):
    """An assignment to an attribute that an object does not have."""


class DuplicateNameError(ModuleKGError, ValueError):
    """A registration under a name that is in use."""


class NotAFunctionError(ModuleKGError, TypeError):
    """Something that cannot be called is registered where a function is needed."""


class TooLargeError(ModuleKGError):
    """A result that would be too large to be of use, such as the expanded tree of heavily shared modules."""


def printable(text: str, limit: int = 80) -> str:
    """Returns `text` as one printable line of at most `limit` characters, for a message."""
    line = text if len(text) <= limit else text[: limit - 1] + "…"
    return line.encode("unicode_escape").decode("ascii") if not line.isprintable() else line


def a_type(value: object) -> str:
    """Returns the type of a value with its article: "an int", "a Tensor"; "None" for None."""
    return "None" if value is None else a_kind(printable(type(value).__name__))


def a_kind(noun: str) -> str:
    """Returns a noun with "a" or "an", as it is spoken: "an Axis", "a UNet", "an MLP"."""
    vowels = "AEFHILMNORSX" if noun[:2].isupper() else "AEIOaeio"  # of letters that are spoken one by one
    return f"{'an' if noun[:1] in tuple(vowels) else 'a'} {noun}"


def pluralize(count: int, one: str, many: str) -> str:
    """Returns a count with its noun: "1 axis", "12 axes"."""
    return f"{count:,} {one if count == 1 else many}"


def closest_match_hint(name: str, known: Iterable[str]) -> str:
    """Returns a hint for a message: the closest of `known`, or all of them if none is close."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(printable(c)) for c in close) + "?"
    listed = ", ".join(repr(printable(o)) for o in options[:12]) + (", …" if len(options) > 12 else "")
    return f"known: {listed}" if options else "none is known"
