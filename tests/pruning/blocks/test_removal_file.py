"""Plan files with blocks: whatever is not as it is written is refused."""

from __future__ import annotations

from typing import Any

import pytest

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.blocks.removal_file import parse_removal, removal_document
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, MovedModule, RemovedModule
from modulekg_widgets.engine.residuals.stand_ins import Argument, Placeholder

STAND_IN = Placeholder(True, Argument(None, "x"), ("tuple", "output", None, ("argument", 1, None)))
REMOVAL = ModuleRemoval(
    (RemovedModule("layers.1"), RemovedModule("layers.2.f", STAND_IN)),
    {
        "config.depth": (3, 2),
        "config.kinds": (["a", "b"], ["a"]),
        "config.depths": ((2, 3), (2, 2)),
        "a.has_table": (False, True),
    },
    (MovedModule("layers.1.table", "layers.2"),),
)


def test_what_is_written_is_read() -> None:
    assert parse_removal(removal_document(("layers.1",), REMOVAL)) == (("layers.1",), REMOVAL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": None}, "blocks is not a list"), ({"blocks": [3]}, "path"), ({"removed": []}, "no module"),
        ({"removed": [{"path": "a"}, {"path": "a"}]}, "twice"), ({"removed": [{"path": ""}]}, "path"),
        ({"removed": [{"path": "a", "stand_in": {"zeros": 1}}]}, "neither zeros"),
        ({"removed": [{"path": "a", "stand_in": {"zeros": True, "argument": [None, None]}}]}, "position or a keyword"),
        ({"removed": [{"path": "a", "stand_in": {"zeros": True, "argument": [-1, None]}}]}, "position or a keyword"),
        ({"removed": [{"path": "a", "stand_in": {"zeros": True, "argument": [0, None], "result": ["set"]}}]}, "tuple"),
        ({"followers": []}, "not an object"), ({"followers": {"a.__class__": [1, 2]}}, "not an attribute"),
        ({"followers": {"a": [1, [2]]}}, "kind"), ({"followers": {"a": [1]}}, "two values"),
        ({"followers": {"a": [[{}], []]}}, "no counts"), ({"followers": {"a": [1, True]}}, "kind"),
        ({"moved": {}}, "not a list"), ({"moved": ["a"]}, "not a list"), ({"moved": [["a"]]}, "two paths"),
        ({"moved": [["a.b", ""]]}, "path"), ({"moved": [["a.b", "c"], ["a.b", "d"]]}, "twice"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        parse_removal({**removal_document(("layers.1",), REMOVAL), **change})


def test_results_in_each_other_without_end_are_refused() -> None:
    result: Any = "output"
    for _ in range(5000):
        result = ["tuple", result]
    entry = {"path": "a", "stand_in": {"zeros": False, "argument": [0, None], "result": result}}
    with pytest.raises(mk.ModuleKGError, match="too deep"):
        parse_removal({**removal_document((), REMOVAL), "removed": [entry]})
