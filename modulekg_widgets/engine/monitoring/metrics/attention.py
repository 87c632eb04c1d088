"""Metrics of attention: how spread it is, and how large its logits grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from modulekg_widgets.engine.monitoring.metric import metric

if TYPE_CHECKING:
    from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionLogits


@metric("AttentionEntropy", needs="Attention")
def attention_entropy(attention: AttentionLogits) -> torch.Tensor:
    """The mean over batch, heads and queries of -sum p ln p, in nats: 0 for one key, ln S for S alike.

    The probabilities are those before dropout. Where it falls to 0 the training is at risk (arXiv 2303.06296).
    """
    return attention.entropy()


@metric("AttentionMaxLogit", needs="Attention", ranks="max")
def attention_max_logit(attention: AttentionLogits) -> torch.Tensor:
    """The largest of q.k * scale + mask over the pairs that are not masked: its growth foretells divergence.

    Source: arXiv 2302.05442.
    """
    return attention.largest_logit()
