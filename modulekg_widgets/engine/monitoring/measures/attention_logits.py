"""Entropy and largest logit of attention calls, computed in blocks from queries, keys and masks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch

from modulekg_widgets.engine.monitoring.metric import NoValueError

Tensor = torch.Tensor
CPU_BLOCK_ELEMENTS = 1 << 20  # logits that exist at a time: a few temporaries of 4 MB
DEVICE_BLOCK_ELEMENTS = 1 << 24  # on devices where small kernels cost more than memory
NEGLIGIBLE_LOGIT = -200.0  # exp of it is 0 in fp32


class AttentionCall(NamedTuple):
    """One attention call: `query` (..., L, E) and `key` (..., S, E), with broadcasting leading dimensions.

    The masks broadcast to (..., L, S): boolean ones are true where a query may look, the others are added to the
    logits. With `causal`, query i sees the keys up to i + causal.
    """

    query: Tensor
    key: Tensor
    masks: tuple[Tensor, ...]
    causal: int | None
    scale: float


class AttentionLogits:
    """All attentions of one module call; the numbers are over all of them.

    Both raise `NoValueError` where the logits cannot be known, or where there is no query.
    """

    def __init__(self, calls: Sequence[AttentionCall], reason: str = "") -> None:
        self.calls = tuple(calls)
        self.reason = reason  # why there is no value
        self._found: tuple[Tensor, Tensor] | None = None

    def entropy(self) -> Tensor:
        """Mean over batch, heads and queries of -sum p ln p, in nats; queries without keys do not count."""
        return self._summary()[0]

    def largest_logit(self) -> Tensor:
        """Largest q.k * scale + mask over the pairs that are not masked."""
        return self._summary()[1]

    def _summary(self) -> tuple[Tensor, Tensor]:
        if self.reason:
            raise NoValueError(self.reason)
        if self._found is None:
            with torch.no_grad():
                sums = [_sums(call) for call in self.calls if call.query.numel() and call.key.numel()]
            if not sums:
                raise NoValueError("the attention had no query or no key")
            entropies, queries, largest = (torch.stack(list(parts)) for parts in zip(*sums, strict=True))
            count = queries.sum()
            highest = largest.amax()
            self._found = entropies.sum() / count, torch.where(count > 0, highest, math.nan)
        return self._found


def _sums(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of the entropies, count of queries that see a key, and largest logit."""
    query, key = call.query, call.key
    batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    (rows, width), keys = query.shape[-2:], key.shape[-2]
    query, key = query.expand(*batch, rows, width), key.expand(*batch, keys, width)
    masks = [mask.expand(*batch, rows, keys) for mask in call.masks]
    most = (CPU_BLOCK_ELEMENTS if query.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS) // (keys * (1 + width // rows))
    dtype = torch.promote_types(query.dtype, torch.float32)
    sums = []
    with _full_precision(query.device.type):
        for block in _blocks((*batch, rows), most):
            left, right = query[block].to(dtype), key[block[:-1]].to(dtype)
            logits = torch.matmul(left, right.mT) * call.scale
            for mask in masks:
                logits = _masked(logits, mask[block])
            if call.causal is not None:
                logits = _causal(logits, block[-1].start + call.causal)
            sums.append(_row_sums(logits))
    entropies, queries, largest = (torch.stack(list(parts)) for parts in zip(*sums, strict=True))
    return entropies.sum(), queries.sum(), largest.amax()


def _full_precision(device: str) -> AbstractContextManager[object]:
    """Context without autocast, as hooks run inside the autocast of the forward."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _blocks(sizes: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Yields slices that cover `sizes`, each of at most `most` elements and at least one."""
    spans: list[list[slice]] = []
    for size in reversed(sizes):
        span = max(1, min(size, most))
        most //= span
        spans.insert(0, [slice(start, start + span) for start in range(0, size, span)])
    return itertools.product(*spans)


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype is torch.bool:
        return logits.masked_fill(~mask, -math.inf)
    # models write the lowest number of the dtype where they mean -inf
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    return (logits + mask.to(logits.dtype)).masked_fill_(hidden, -math.inf)


def _causal(logits: Tensor, last_of_first_row: int) -> Tensor:
    rows, keys = logits.shape[-2:]
    last = torch.arange(rows, device=logits.device).unsqueeze(1) + last_of_first_row
    return logits.masked_fill_(torch.arange(keys, device=logits.device) > last, -math.inf)


def _row_sums(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    highest = logits.amax(-1, keepdim=True)
    sees = highest != -math.inf  # so is NaN, which must show
    logits = (logits - torch.where(sees, highest, 0.0)).clamp_(min=NEGLIGIBLE_LOGIT)
    odds = logits.exp()
    total = odds.sum(-1, keepdim=True)
    entropies = total.log() - odds.mul_(logits).sum(-1, keepdim=True) / total
    return torch.where(sees, entropies, 0.0).sum(), sees.sum(), highest.amax()
