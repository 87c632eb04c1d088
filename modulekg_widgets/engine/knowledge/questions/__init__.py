"""Methods of `mk.KnowledgeGraph` that answer questions from the contents of the graph.

usage.py (who used what), analysis.py (types, centrality, overlap of models), equivalence.py (models that compute the
same), prediction.py (values of models, models for a task) and exchange.py (export). Each method imports the file that
computes its answer when it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from modulekg_widgets.engine.knowledge.facts.contents import Contents


class Questions(ABC):
    """Base class of the methods that answer from `contents()`."""

    @abstractmethod
    def contents(self) -> Contents:
        """All that the graph holds now."""
