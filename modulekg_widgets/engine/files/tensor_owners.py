"""Owners of the tensors of a file: the module in the name of a tensor, else the only module that reads it.

js/src/core/files/tree/tensor_owners.ts has the same rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from modulekg_widgets.engine.files.records import FileContents, TensorRecord

COUNTER = re.compile(r"_?\d{1,9}\Z")
FORMATS_WITHOUT_ROLES = ("onnx",)  # formats that tell no roles: those that tensors have are by how operators read them
OwnedTensor = tuple[str, str, TensorRecord]  # the path of a module, the tensor's name in it, and the tensor


def tensor_owners(contents: FileContents) -> list[OwnedTensor]:
    """Returns every tensor with its module and its name there, in the order of the file, constants last.

    An exporter that computes a weight anew, or a constant, gives it a name that is no path: it belongs to the module
    in which alone operators read it, under its whole name, and else to the root.
    """
    others = [each for each in contents.tensors if each.role != "constant"]
    constants = [each for each in contents.tensors if each.role == "constant"]
    known = PathPrefixes(_known_paths(contents, others)) if constants else PathPrefixes(())
    placed = [(split_name(each.name), each) for each in others]
    placed += [(_constant_owner(each.name, known), each) for each in constants]
    moves = contents.format in FORMATS_WITHOUT_ROLES
    loose = {each.name for (path, _), each in placed if not path and (moves or _may_move(each))}
    readers = _sole_readers(contents, loose)
    taken = {each.name for each in contents.tensors} if readers else frozenset()
    return [
        (reader, record.name, record)
        if (reader := readers.get(record.name)) and f"{reader}.{record.name}" not in taken
        else (path, own, record)
        for (path, own), record in placed
    ]


def renumber_names(owned: Sequence[OwnedTensor]) -> list[OwnedTensor]:
    """Returns the tensors with exporter counters restarted in each module, so that files can be compared.

    Exporters count what they make; one operator more would give all weights behind it another name.
    """
    moves = [bool(path) and split_name(record.name)[0] != path for path, _, record in owned]
    taken = {each[:2] for each, moved in zip(owned, moves, strict=True) if not moved}
    counts: Counter[tuple[str, str]] = Counter()
    made = []
    for (path, own, record), moved in zip(owned, moves, strict=True):
        if moved:
            kind = COUNTER.sub("", own)
            own = kind
            while (path, own) in taken:
                counts[path, kind] += 1
                own = f"{kind}_{counts[path, kind]}"
            taken.add((path, own))
        made.append((path, own, record))
    return made


def split_name(name: str) -> tuple[str, str]:
    """Splits the name of a tensor into module path and own name; a name without a path belongs to the root.

    A name as "/model.1/Constant_output_0" is that of a value, in the words of torch's older exporter, and no path.
    """
    path, _, own = name.rpartition(".")
    return (path, own) if path and not name.startswith("/") else ("", name)


def _constant_owner(name: str, known: PathPrefixes) -> tuple[str, str]:
    path, own = split_name(name)
    return (path, own) if path in known else ("", name)


def _may_move(record: TensorRecord) -> bool:
    """True if the root owns a tensor only by default: its role is unknown or "constant"."""
    return record.role in (None, "constant")


def _known_paths(contents: FileContents, named_tensors: Iterable[TensorRecord]) -> Iterator[str]:
    yield from (part.path for part in contents.modules)
    if contents.graph is not None:
        yield from (each.module for each in contents.graph.operators)
    yield from (split_name(each.name)[0] for each in named_tensors)


class PathPrefixes:
    """Set of paths with all their prefixes, by bisection, as listing them could take too much memory."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._sorted = sorted({f"{path}." for path in paths})

    def __contains__(self, path: str) -> bool:
        inside = f"{path}."
        at = bisect_left(self._sorted, inside)
        return at < len(self._sorted) and self._sorted[at].startswith(inside)


def _sole_readers(contents: FileContents, names: set[str]) -> dict[str, str]:
    """The module that reads each of these tensors; "" for the root, or if several do."""
    found: dict[str, str] = {}
    for operator in contents.graph.operators if names and contents.graph is not None else ():
        for name in operator.inputs:
            if name in names and found.setdefault(name, operator.module) != operator.module:
                found[name] = ""
    return found


# --------------------
# Kinds of modules in plain words, inferred from tensor names, shapes and operators if the class is unknown.


CONTAINER, UNKNOWN_KIND = "module", "tensors"
# by a tensor that no other kind has
KIND_BY_TENSOR_NAME = {"running_mean": "batch norm", "weight_ih_l0": "recurrent", "in_proj_weight": "attention"}
KIND_BY_DIMENSIONS = {1: "norm", 2: "matrix", 3: "convolution 1d", 4: "convolution 2d", 5: "convolution 3d"}
BUFFER_NAMES = frozenset({"running_mean", "running_var", "num_batches_tracked"})
KINDS = frozenset({CONTAINER, UNKNOWN_KIND, *KIND_BY_TENSOR_NAME.values(), *KIND_BY_DIMENSIONS.values()})
_TORCH = re.compile(r"(?:torch\.ops\.(\w+)|(aten|prims|quantized|torchvision))\.(\w+)")
MAX_OPERATOR_NAMES = 2  # of operators that a module is called by


def module_kind(own: Mapping[str, TensorRecord], operators: Iterable[str] = ()) -> str:
    """Returns the kind of a module, from its own tensors; if these do not tell, from the operators in it.

    `operators` are those of a module that holds no others.
    """
    kind = _kind_by_tensors(own)
    if kind not in (CONTAINER, UNKNOWN_KIND):
        return kind
    names = list(dict.fromkeys(operator_name(op).rpartition(":")[2] for op in operators))
    if len(names) > MAX_OPERATOR_NAMES:
        return ", ".join([*names[:MAX_OPERATOR_NAMES], f"+{len(names) - MAX_OPERATOR_NAMES}"])
    return ", ".join(names) or kind


def operator_name(op: str) -> str:
    """Returns `aten::conv2d` for `torch.ops.aten.conv2d.default` and `aten.conv2d.default`."""
    parts = _TORCH.match(op)
    return f"{parts[1] or parts[2]}::{parts[3]}" if parts else op


def _kind_by_tensors(own: Mapping[str, TensorRecord]) -> str:
    if not own:
        return CONTAINER
    for name, kind in KIND_BY_TENSOR_NAME.items():
        if name in own:
            return kind
    weight = own.get("weight")
    return UNKNOWN_KIND if weight is None else KIND_BY_DIMENSIONS.get(len(weight.shape), UNKNOWN_KIND)


def is_buffer(name: str, record: TensorRecord) -> bool:
    """True if a tensor is no parameter: by its role in the file, else by its name and dtype."""
    if record.role is not None:
        return record.role != "parameter"
    return name in BUFFER_NAMES or record.dtype.startswith(("int", "uint", "bool"))
