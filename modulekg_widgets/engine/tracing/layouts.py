"""The layouts of results, cached by those of inputs: on meta tensors equal layouts in give equal layouts out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LARGEST = 20_000  # entries; then it starts anew
_known: dict[Any, Any] = {}  # the call's layouts → the results' layouts, for all traces of this process
_UNLIKE = object()  # results that are not tensors alone


def remembered(key: tuple[Any, ...], execute: Callable[[], Any]) -> Any:
    """New meta tensors as `execute()` would give, which runs only for layouts that were not seen before.

    `key` holds the operator, the layouts of its tensors and all other arguments.
    """
    # a factory without a dtype takes the default one
    key = (*key, torch.get_default_dtype())
    try:
        layout = _known.get(key)
    except TypeError:  # an argument that cannot be hashed
        return execute()
    if layout is None:
        results = execute()
        if len(_known) >= LARGEST:
            _known.clear()
        _known[key] = _layout(results)
        return results
    return execute() if layout is _UNLIKE else _empties(layout)


def _layout(results: Any) -> Any:
    """How to make tensors like the results: a layout, or a sequence of them."""
    if isinstance(results, torch.Tensor):
        lazy = results.is_conj() or results.is_neg()
        if results.layout is not torch.strided or type(results) is not torch.Tensor or lazy:
            return _UNLIKE
        return results.shape, results.stride(), results.dtype
    if isinstance(results, tuple | list):
        parts = [_layout(part) for part in results]
        return _UNLIKE if _UNLIKE in parts else (type(results), parts)
    return (None, None) if results is None else _UNLIKE


def _empties(layout: Any) -> Any:
    if len(layout) == 3:
        return torch.empty_strided(layout[0], layout[1], dtype=layout[2], device="meta")
    kind, parts = layout
    return None if kind is None else kind(_empties(part) for part in parts)
