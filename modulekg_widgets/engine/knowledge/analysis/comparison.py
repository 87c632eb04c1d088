"""What models have in common."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.tables import labels, table
from modulekg_widgets.engine.knowledge.usage import at_level, unknown

SIDES = ("first", "second", "both")


def overlap(contents: Contents, shared: bool = False) -> pd.DataFrame:
    """For each two models the Jaccard index of their sets of structures: shared ones by all of both, from 0 to 1.

    Rows and columns are the names of the models in the order of adding; `shared=True` gives the number of shared
    structures instead, as integers.
    """
    names = labels(contents.models)
    common = _shared(contents)
    if shared:
        return pd.DataFrame(common, index=names, columns=names)
    sizes = common.diagonal()
    union = sizes[:, None] + sizes[None, :] - common
    return pd.DataFrame(common / np.maximum(union, 1), index=names, columns=names)


def difference(contents: Contents, a: str, b: str) -> pd.DataFrame:
    """The structures of two models with their occurrences, as `name`, `class`, `where`, `first`, `second`.

    `where` is "first" (only in `a`), "second" (only in `b`) or "both"; rows stand in this order, the most used first.
    Raises `UnknownPathError` for an unknown model.
    """
    first, second = _uses(contents, a), _uses(contents, b)
    rows = [
        (
            contents.names[key],
            contents.modules[key].class_name,
            SIDES[2 if first[key] and second[key] else int(second[key] > 0)],
            first[key],
            second[key],
        )
        for key in dict.fromkeys((*first, *second))
    ]
    rows.sort(key=lambda row: (SIDES.index(row[2]), -row[3] - row[4], row[0]))
    return table(rows, ["name", "class", "where", "first", "second"])


def _shared(contents: Contents) -> np.ndarray:
    """(models, models) numbers of structures that both have."""
    from scipy.sparse import csr_array

    columns: dict[str, int] = {}
    held = [
        (row, columns.setdefault(key, len(columns)))
        for row, model in enumerate(contents.models.values())
        for key in dict.fromkeys(key for key, _ in model.occurrences)
    ]
    rows, cols = np.array(held, dtype=np.int64).reshape(-1, 2).T
    holds = csr_array((np.ones(len(held), np.int64), (rows, cols)), shape=(len(contents.models), len(columns)))
    return (holds @ holds.T).toarray()


def _uses(contents: Contents, name: str) -> Counter[str]:
    if not isinstance(name, str) or name not in contents.models:
        raise unknown("model", name, contents.models)
    return at_level(contents.models[name], None)
