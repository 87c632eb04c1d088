"""What a process that writes to a store does; a fresh process finds it here."""

from torch import nn

import modulekg_widgets as mk


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def network(width: int = 2, blocks: int = 2) -> nn.Module:
    return nn.Sequential(*(block(width) for _ in range(blocks)), nn.Dropout(0.5))


def write_models(graph: mk.KnowledgeGraph, number: int) -> None:
    """Add four models with a job each, and remove all models but the last."""
    for at in range(4):
        graph.add_model(network(2 + at), name=f"{number}.{at}")
        graph.add_job(model=f"{number}.{at}", name=f"job {number}.{at}", accuracy=0.5)
        if at:
            graph.remove_model(f"{number}.{at - 1}")
