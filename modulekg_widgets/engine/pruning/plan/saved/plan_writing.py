"""Plans as JSON files, written as a whole or not at all."""

from __future__ import annotations

import json
import operator
import os
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import PlanFileError, a_type, printable
from modulekg_widgets.engine.pruning.blocks.removal_file import removal_document
from modulekg_widgets.engine.pruning.cut.edits import Ints, SizeValue
from modulekg_widgets.engine.safe_files import atomic_writer

FORMAT, VERSION = "modulekg-plan", 1
VERSION_WITH_BLOCKS = 2  # of a plan that removes modules, which a reader of the first would leave out without a word


def save_plan(plan: Any, path: str | os.PathLike[str]) -> None:
    """Write a `PruningPlan`; an existing file stays until the new one is complete.

    Raises `PlanFileError` where it cannot be written.
    """
    target, content = checked_path(path), plan_bytes(plan)
    try:
        with atomic_writer(target) as file:
            file.write(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanFileError(f"{printable(str(target))} cannot be written: {printable(reason)}") from error


def plan_bytes(plan: Any) -> bytes:
    """The JSON of a `PruningPlan` as bytes."""
    return json.dumps(_document(plan), separators=(",", ":")).encode("ascii")


def _document(plan: Any) -> dict[str, object]:
    positions: dict[tuple[int, ...], int] = {}  # many tensors keep the same positions, which are written once

    def number_of(kept: Ints) -> int:
        return positions.setdefault(tuple(kept.tolist()), len(positions))

    tensors = [
        {
            "names": list(edit.names),
            "shape": list(edit.shape),
            "kept": {str(at): number_of(kept) for at, kept in edit.kept.items()},
            "produced": sorted(edit.produced),
            **({"gain_of": list(edit.gain_of)} if edit.gain_of else {}),
            **({"by_gain": sorted(edit.by_gain)} if edit.by_gain else {}),
            **({} if edit.values is None else {"values": number_of(edit.values)}),
        }
        for edit in plan.edits.tensors
    ]
    return {
        "format": FORMAT,
        "version": VERSION_WITH_BLOCKS if plan.edits.removal else VERSION,
        "params": plan.params,
        "flops": plan.flops,
        "macs": plan.macs,
        **({} if plan.bytes is None else {"bytes": plan.bytes}),
        **({} if plan.matmul_flops is None else {"matmul_flops": plan.matmul_flops}),
        "axes": [
            {"name": axis.name, "size": axis.size, "dropped": axis.dropped, "members": axis.members}
            for axis in plan.axes
        ],
        "changes": [{"kind": c.kind, "what": c.what, "source": c.source} for c in plan.changes],
        "attributes": {name: list(map(_json_size, values)) for name, values in plan.edits.attributes.items()},
        "tensors": tensors,
        "positions": list(positions),
        **(removal_document(plan.blocks, plan.edits.removal) if plan.edits.removal else {}),
    }


def _json_size(value: SizeValue) -> object:
    """Sizes as JSON values."""
    if isinstance(value, tuple):
        return {"tuple": _json_size(list(value))}
    return list(map(operator.index, value)) if isinstance(value, list) else operator.index(value)


def checked_path(path: object) -> Path:
    """The path of a file, given as text or path; raises `PlanFileError` for anything else."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise PlanFileError(f"a plan is named by the path of a file, got {a_type(path)}")
    return Path(path)
