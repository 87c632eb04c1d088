"""Names of torch in pickles: rebuild functions, and the allow-list of its own safe loader.

The list is what `torch/_weights_only_unpickler.py` lists; the tests compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.file_formats.format_tables import TABLES, TORCH_BITS, TORCH_STORAGES

# what stands in files under these names cannot change, though it is private: torch reads its old files by them
REBUILD = {
    name: prefix + name
    for prefix, names in TABLES["safe_globals"].items()
    if prefix.endswith("._rebuild_")
    for name in names
}
LEGACY_REBUILD = "torch._utils._rebuild_xla_tensor"  # which torch no longer holds to be safe
INLINE_STORAGE = "torch.storage._load_from_bytes"
SIZE, PARAMETER = "torch.Size", "torch.nn.parameter.Parameter"
SAFE_GLOBALS = frozenset(
    (
        *(f"torch.{name}" for name in TORCH_BITS),
        *(f"torch.{name}" for name in TORCH_STORAGES if name != "UntypedStorage"),
        *(prefix + name for prefix, names in TABLES["safe_globals"].items() for name in names),
    )
)
# what torch writes into the pickles of TorchScript, whose own loader takes it for types of values and imports nothing
SCRIPT_TYPES = frozenset(f"torch.jit._pickle.{name}" for name in TABLES["script_types"])

# what reaches beyond the model, to be named first: all of some modules, and some of others
_DANGEROUS_MODULES = frozenset(TABLES["dangerous_modules"])
_DANGEROUS_NAMES = frozenset(TABLES["dangerous_names"])
MAX_LISTED = 8


def is_dangerous(path: str) -> bool:
    """True if an imported name reaches files, processes or other code."""
    return path.partition(".")[0] in _DANGEROUS_MODULES or path.partition("[")[0] in _DANGEROUS_NAMES


def code_warnings(classes: Iterable[str], loader: str, safe: Collection[str] = SAFE_GLOBALS) -> tuple[str, ...]:
    """Warnings for names beyond the allow-list of the safe loader, the most dangerous ones first."""
    beyond = sorted((path for path in classes if path not in safe), key=lambda path: (not is_dangerous(path), path))
    if not beyond:
        return ()
    named = ", ".join(printable(path) for path in beyond[:MAX_LISTED]) + (", …" if len(beyond) > MAX_LISTED else "")
    text = f"Loading this file with {loader} can run code: {named}"
    if is_dangerous(beyond[0]):
        return (f"{text}. It may do anything on your computer: do not load it",)
    return (f"{text}. Load it only if you trust its source",)
