"""The sizes that a call which raised had asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.operators.traits import traits_named
from modulekg_widgets.engine.tracing.dataflow import DataNode


class FailedCall(TorchFunctionMode):
    """Remembers the last call of a torch function that raised, which names the sizes that the code asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.arguments: tuple[Any, ...] = ()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            self.name, self.arguments = getattr(func, "__name__", ""), args
            raise


def asked_by(name: str, sizes: Any, results: list[DataNode], dim: int) -> list[tuple[DataNode, list[int | None]]]:
    """The sizes that a view or a split asks for, by dimension of each result; None where it leaves them open."""
    given = [size for size in flattened(sizes) if isinstance(size, int)]
    dims, traits = results[0].dim(), traits_named(f"aten::{name}")
    if traits.asks_for_sizes and len(given) == dims:
        return [(results[0], [size if size >= 0 else None for size in given])]
    if name == "unflatten" and len(given) > 1:
        at = given[0] % (dims - len(given) + 2)
        asked: list[int | None] = [None] * dims
        asked[at : at + len(given) - 1] = [size if size >= 0 else None for size in given[1:]]
        return [(results[0], asked[:dims])]
    if traits.splits and len(given) == len(results) > 1:
        return [(node, [size if at == dim % dims else None for at in range(dims)])
                for node, size in zip(results, given, strict=True)]  # fmt: skip
    return []


def flattened(value: Any) -> Iterator[Any]:
    """The values in nested tuples and lists."""
    for part in value:
        if isinstance(part, tuple | list):
            yield from flattened(part)
        else:
            yield part
