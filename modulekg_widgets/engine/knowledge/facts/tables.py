"""DataFrames of names with any character; pandas' Arrow strings cannot hold lone surrogates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd


def data_frame(rows: Iterable[Sequence[object]], columns: Sequence[str]) -> pd.DataFrame:
    """A DataFrame of rows; a column of text that pandas' own type for text cannot hold is one of objects."""
    rows = list(rows)
    try:
        return pd.DataFrame(rows, columns=list(columns))
    except UnicodeEncodeError:
        values = zip(*rows, strict=True)
        return pd.DataFrame({name: _column(column) for name, column in zip(columns, values, strict=True)})


def name_index(names: Iterable[str]) -> pd.Index:
    """The index of a DataFrame by names."""
    names = list(names)
    try:
        return pd.Index(names)
    except UnicodeEncodeError:
        return pd.Index(names, dtype=object)


def _column(values: Sequence[object]) -> pd.Series:
    try:
        return pd.Series(values)
    except UnicodeEncodeError:
        return pd.Series(values, dtype=object)
