"""A model file as the browser gets it: the payload of a model, what the file says of itself, and its graph.

js/src/core/files/tree/payload.ts makes the same of a file that is opened without a kernel.
"""

from __future__ import annotations

import os
from typing import Any

from modulekg_widgets.engine.files.model_file import ModelFile
from modulekg_widgets.engine.files.records import OperatorRecord
from modulekg_widgets.engine.files.skeleton import FileModule
from modulekg_widgets.engine.identity.hierarchy import Hierarchy
from modulekg_widgets.engine.views.file_flow import MOST_DRAWN, file_flow, owned_tensors
from modulekg_widgets.engine.views.payload import Distinct, number, text


def add_file(payload: dict[str, Any], file: ModelFile, hierarchy: Hierarchy) -> None:
    """Write what a file tells, beside its modules, into their payload."""
    flow = file_flow(file.contents, hierarchy)
    payload["flow"], payload["traced"] = flow, flow is not None
    payload["classes"]["source"] = [None] * len(payload["classes"]["source"])  # what it is called, and not what it is
    payload["classes"]["qualified"] = _qualified(payload, hierarchy)
    payload["file"] = _about(file, hierarchy, flow is not None)


def _qualified(payload: dict[str, Any], hierarchy: Hierarchy) -> list[str]:
    """Classes as the file has them: a kind, a title and a class without a module have none before them."""
    names, qualified = payload["classes"]["name"], list(payload["classes"]["qualified"])
    nodes, entities = payload["nodes"]["entity"], payload["entities"]["class"]
    for node, module in enumerate(hierarchy.walk.modules):
        if type(module).__module__ == FileModule.__module__:
            place = entities[nodes[node]]
            qualified[place] = names[place]
    return qualified


def _about(file: ModelFile, hierarchy: Hierarchy, is_drawn: bool) -> dict[str, Any]:
    contents = file.contents
    places = owned_tensors(contents, hierarchy)
    dtypes = Distinct()
    dtype = [dtypes.place(text(each.dtype)) for _, each in places]
    count = 0 if contents.graph is None else len(contents.graph.operators)
    large = f"Its graph is not drawn: it has {count} operators, and at most {MOST_DRAWN} are drawn."
    return {
        "name": text(os.path.basename(file.path)),
        "format": text(contents.format),
        "metadata": [[text(key), _plain(value)] for key, value in file.metadata.items()],
        "classes": [text(name) for name in contents.classes],
        "warnings": [*map(text, contents.warnings), *([large] if count and not is_drawn else [])],
        "dtypes": dtypes.keys,
        "operators": [_operator(each) for each in contents.graph.operators] if contents.graph and is_drawn else [],
        "tensors": {
            "node": [node for node, _ in places],
            "name": [text(each.name) for _, each in places],
            "dtype": dtype,
            "bytes": [number(each.nbytes) for _, each in places],
        },
    }


def _operator(operator: OperatorRecord) -> list[Any]:
    """Its name and settings, in the order of the steps."""
    return [text(operator.name), [[text(key), _plain(value)] for key, value in operator.attributes.items()]]


def _plain(value: Any) -> Any:
    return text(value) if isinstance(value, str) else number(value)
