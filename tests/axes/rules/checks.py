"""Whether the terms of an example are those of its table, and true of the operator's values."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from axes.rules.harness import Example
from axes.rules.inferred import Inferred
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.axes.terms.term_positions import permuted_positions
from modulekg_widgets.engine.torch_runtime.pytree import tensors

Orders = Mapping[Term, np.ndarray]
SEEDS = (0, 1)
TOLERANCE, TOLERANCE_OF_FLOAT32 = 1e-9, 1e-5
# what the algebra says when a rule stated something that cannot be
MISFITS = ("cannot be aligned", "meet", "contain itself", "its rule failed", "has no rule")


def check_terms(found: Inferred) -> None:
    """The terms are those of the table; what is frozen says why."""
    assert found.axes.unknown == []
    assert str(found) == found.example.terms
    for reason in found.reasons():
        assert reason
        assert not any(words in reason for words in MISFITS)


def check_permutation(found: Inferred) -> None:
    """With all free axes in another order everywhere, the values are the same, in that order."""
    of = found.example
    before = values_after(of, of.inputs)
    assert [tuple(t.shape) for t in before] == [node.shape for node in found.compared]
    for seed in SEEDS:
        orders = random_orders(found.free, seed + fingerprint(of.id))
        moved = [permuted(t, found.dims(n), orders) for t, n in zip(of.inputs, found.inputs, strict=True)]
        expected = [permuted(t, found.dims(n), orders) for t, n in zip(before, found.compared, strict=True)]
        for now, wanted in zip(values_after(of, moved), expected, strict=True):
            assert difference(now, wanted) < tolerance(wanted)


def check_couplings(found: Inferred) -> None:
    """An atom in several dimensions, permuted in one of them alone, changes the values; else two axes were made one."""
    of = found.example
    results = [] if of.idle else values_after(of, of.inputs)[: -len(of.inputs) or None]
    for atom in found.free if results else []:
        places = [
            (at, dim) for at, n in enumerate(found.inputs) for dim, t in enumerate(found.dims(n)) if atom in atoms(t)
        ]
        orders = random_orders([atom], fingerprint(of.id))
        after = [permuted(t, found.dims(n), orders) for t, n in zip(results, found.compared, strict=False)]
        for at, dim in _some(places) if len(places) > 1 else []:
            moved = list(of.inputs)
            order = permuted_positions(found.dims(found.inputs[at])[dim], orders)
            moved[at] = moved[at].index_select(dim, torch.from_numpy(order))
            again = values_after(of, moved)
            assert _differ(again, results)
            assert _differ(again, after)


def _some(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """All of them, or of very many the first and the last."""
    return places if len(places) <= 8 else places[:4] + places[-4:]


def _differ(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return any(difference(a, b) > tolerance(b) for a, b in zip(left, right, strict=False))


def tolerance(tensor: torch.Tensor) -> float:
    """What rounding may change."""
    return TOLERANCE if tensor.dtype in (torch.float64, torch.complex128) else TOLERANCE_OF_FLOAT32


def random_orders(of: Sequence[Term], seed: int) -> Orders:
    """For each atom an order in which no index keeps its place."""
    random = np.random.default_rng(seed)
    orders = {}
    for atom in of:
        order = random.permutation(atom.size)
        orders[atom] = np.empty(atom.size, dtype=np.int64)
        orders[atom][order] = np.roll(order, 1)
    return orders


def permuted(tensor: torch.Tensor, dims: Sequence[Term], orders: Orders) -> torch.Tensor:
    """The tensor with the indices of each atom in their new order; the dimensions of a sparse one are frozen."""
    if tensor.layout is not torch.strided:
        assert not any(atom in orders for term in dims for atom in atoms(term))
        return tensor
    for at, term in enumerate(dims):
        tensor = tensor.index_select(at, torch.from_numpy(permuted_positions(term, orders)))
    return tensor


def values_after(of: Example, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results that can be compared, and what the inputs hold after the call."""
    given = [tensor.clone() for tensor in inputs]
    results = [t for _, t in tensors(of.run_on(given))][: of.values]
    every = [*results, *given] if of.values != 0 else []
    return [tensor if tensor.layout is torch.strided else tensor.to_dense() for tensor in every]


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, relative to the largest of `b`; infinite where shapes or NaNs differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    wide = torch.complex128 if a.is_complex() else torch.float64
    distance = (a.to(wide) - b.to(wide)).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    distance = distance.masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    scale = b.to(wide).abs().nan_to_num(0.0, 0.0, 0.0)
    return distance.max().item() / max(1.0, scale.max().item()) if distance.numel() else 0.0


def fingerprint(text: str) -> int:
    """A seed that is the same in every process."""
    return zlib.crc32(text.encode())
