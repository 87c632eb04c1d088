"""Questions answered by the data flow of models: modules that compute the same under other names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from modulekg_widgets.engine.knowledge.repository import GraphParts

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from modulekg_widgets.engine.knowledge.equivalence.comparison import Equivalence


def equivalent(
    self: GraphParts,
    a: nn.Module | str,
    b: nn.Module | str,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
) -> Equivalence:
    """Compares two models by their data flow; names and classes do not count.

    Operators, their settings and shapes are compared, weights by shape and by where they are read; the models are
    followed in eval mode on tensors without data, and stay as they are. Few spellings of one function are known
    for what they are (views, copies, writing in place, the order of a sum, pools to one pixel, …), so that two may
    be the same and not be found to be; those that are found are, on inputs of these shapes.

    Parameters
    ----------
    a, b : torch.nn.Module or str
        Modules, or names of models that `mk.index_models` built for this graph in this session, or of torchvision.
    args, kwargs : optional
        What forward takes, best a batch of more than one; by default what the builder of a name gives, twice.

    Returns
    -------
    Equivalence
        It iterates over pairs of paths that compute the same. `is_same_value`; `modules`, those pairs with their
        classes;
        `parameters`, the weights that correspond, where the models are the same; `differs`, the first operators
        where they part, in words.

    Raises
    ------
    UnknownNameError
        For a name that no builder of this session has.
    TraceError
        For a model that cannot be built, or does not run on these inputs.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> from torch import nn
    >>> class Layers(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.outer(self.inner(x).relu_())
    >>> other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    >>> found = mk.KnowledgeGraph().equivalent(Layers(), other, torch.ones(3, 4))
    >>> found.same, found.modules[["a", "b"]].values.tolist()
    (True, [['', ''], ['inner', '0'], ['outer', '3']])
    >>> list(found)
    [('', ''), ('inner', '0'), ('outer', '3')]
    """
    from modulekg_widgets.engine.knowledge.equivalence import comparison

    return comparison.equivalent(a, b, args, kwargs, _known_builders(self))


def same_as(self: GraphParts, models: Iterable[str] | None = None) -> pd.DataFrame:
    """Returns structures of different classes that compute the same function of their inputs.

    Models are built and traced as `equivalent` does, so it takes longer than other relations.

    Parameters
    ----------
    models : iterable of str, optional
        Names of models that this session can build, by default all such ones of the graph.

    Returns
    -------
    pandas.DataFrame
        A row for each structure: `function` (part of a digest: those with the same are the same), `node` (its
        display name), `class`, and the `models` that have it. Modules that give on what they get do not count.
        `attrs["left_out"]` says why a model is not among them.

    Raises
    ------
    UnknownNameError
        For a name that no builder of this session has.
    """
    from modulekg_widgets.engine.knowledge.equivalence import comparison

    return comparison.same_as(self.contents(), _known_builders(self), models)


def _known_builders(graph: GraphParts) -> dict[str, Callable[..., nn.Module]]:
    from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

    return {**torchvision_builders(), **graph.builders}
