"""What can be asked of a knowledge graph: the methods of `mk.KnowledgeGraph` that answer from its contents alone.

Read usage.py first (who used what), then analysis.py (types, centrality, what models share), equivalence.py (what
computes the same), prediction.py (values of models, and models for a task) and exchange.py (the graph for other tools).
The answers are computed by the modules of their subjects, which are imported when they are asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from modulekg_widgets.engine.knowledge.facts.contents import Contents


class Questions(ABC):
    """What can be asked of `contents`, which are those of one moment."""

    @abstractmethod
    def contents(self) -> Contents:
        """All that the graph holds now."""
