"""The axes of a model by name or by dimension, and the positions of their indices in every parameter.

`Axes` is what `graph.axes` returns. Iterating gives one `Axis` per atom in the order of the model; an axis has a name
from its origin (`layer1.0.conv1.out`), a size, its members (parameter, dimension, expression) and the reason if it is
frozen. `axes["conv1.weight", 0]` is the axis of a dimension, or a `Dimension` where several axes share it.
`axis.indices(name, dim)` gives the positions of each index, in an order that is equal in all members.

>>> import torch, modulekg_widgets as mk
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
>>> [(member.name, member.dim) for member in mk.trace(model, torch.zeros(1, 3)).axes["0.out"].members]
[('0.weight', 0), ('0.bias', 0), ('1.weight', 1)]
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.inference.inference import NO_LISTS, Inference, ListsOfDimensions, is_value_buffer
from modulekg_widgets.engine.axes.inference.layers import Layers, may_be_weight
from modulekg_widgets.engine.axes.inference.names import axis_names, short_name
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find, is_integer
from modulekg_widgets.engine.axes.terms.index_semantics import MinimumCount
from modulekg_widgets.engine.axes.terms.term_positions import format_term, positions
from modulekg_widgets.engine.errors import UnknownAxisError, closest_match_hint, pluralize, printable
from modulekg_widgets.engine.identity.classes import is_text
from modulekg_widgets.engine.operators.recorded_call import CallRecord
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren
from modulekg_widgets.engine.torch_runtime.pytree import SEQUENCES
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode


class Member(NamedTuple):
    """A dimension of a parameter or buffer that an axis runs along."""

    name: str
    dim: int
    expression: str


class Axis:
    """One index set that runs through the model: the same indices in every member.

    Attributes
    ----------
    name : str
        As `layer1.0.conv1.out`, or `encoder.self_attention.heads`; no two axes have the same.
    size : int
        The number of indices.
    members : list[Member]
        The dimensions that it runs along, as (parameter or buffer, dim, expression).
    frozen : str | None
        None when indices may go, else the reason, as a size that stands in the code.
    """

    def __init__(self, axes: Axes, term: Term, number: int, name: str) -> None:
        self._axes = axes
        self.term = term
        self.number = number
        self.name = name
        self.size = term.size

    @property
    def frozen(self) -> str | None:
        """None when indices may go, else the reason, with the operator and its line."""
        reason = self.term.frozen or self._axes.inference.fixed_sizes.get(self.term)
        return None if reason is None else str(reason)

    @property
    def least(self) -> MinimumCount | None:
        """The smallest size of the axis that the code allows, as the k of a top-k; None where 1 is enough."""
        return self._axes.inference.chosen.minimum_of(self.term)

    @property
    def role(self) -> str | None:
        """The role of the axis where the data flow shows it, as `heads`, `head_dim` or `groups`."""
        return self._axes.inference.roles.get(self.term)

    @property
    def lists(self) -> tuple[str, ...]:
        """The paths of module lists whose element i belongs to index i, as the experts of a router."""
        return tuple(each.path for each in self.term.lists)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """This axis alone, so that a dimension of one axis reads like one of several."""
        return (self,)

    @property
    def tensor_dims(self) -> list[tuple[DataNode, int]]:
        """The parameters and buffers that it runs along, each with the dimension."""
        return self._axes.tensor_dims.get(self.term, [])

    @cached_property
    def members(self) -> list[Member]:
        """The dimensions that it runs along, as (name, dim, expression), in the order of the model."""
        label = self._axes.label
        return [
            Member(node.label, at, format_term(self._axes.inference.dims(node)[at], label))
            for node, at in self.tensor_dims
        ]

    def indices(self, name: str, dim: int = 0) -> NDArray[np.int64]:
        """The positions of each index in a dimension of a parameter or buffer.

        Parameters
        ----------
        name
            The parameter or buffer.
        dim
            The dimension.

        Returns
        -------
        numpy.ndarray
            Of shape (size, k): row i holds the positions of index i, columns in one order for all members.

        Raises
        ------
        UnknownAxisError
            Where the axis does not run along that dimension.

        Examples
        --------
        >>> import torch, modulekg_widgets as mk
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.Flatten(), torch.nn.Linear(8, 5))
        >>> axes = mk.trace(model, torch.zeros(1, 3, 2, 2)).axes
        >>> axes["0.weight", 0].indices("2.weight", 1)
        array([[0, 1, 2, 3],
               [4, 5, 6, 7]])
        """
        term = self._axes.term(name, dim)
        found = positions(term, self.term, self._axes.rank)
        if found.shape[1] == 0:
            raise UnknownAxisError(
                f"{self.name} does not run along dimension {dim} of {printable(name)!r}, which is "
                f"{format_term(term, self._axes.label)}: its members are in axis.members"
            )
        return found

    def __repr__(self) -> str:
        state = f"frozen ({printable(self.frozen)})" if self.frozen else f"{len(self.members)} members"
        return f"<Axis {printable(self.name)}: {self.size}, {state}>"


class UnprovedReason(NamedTuple):
    """The reason why an axis could not be proved, and whether the output depends on it."""

    reason: str
    affects_output: bool = False


class Dimension:
    """A dimension that several axes share, as `(heads=12 head_dim=64)`."""

    def __init__(self, owner: Axes, term: Term) -> None:
        self._owner = owner
        self.term = term
        self.size = term.size

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes in the dimension, each once, from left to right."""
        return tuple(self._owner.of(atom) for atom in dict.fromkeys(atoms(self.term)) if atom.size > 1)

    @property
    def name(self) -> str:
        return format_term(self.term, self._owner.label)

    @property
    def frozen(self) -> str | None:
        """None when at least one of its axes is free, else the reason of the first."""
        reasons = [axis.frozen for axis in self.axes]
        return None if None in reasons else next(iter(reasons), "one index only")

    def _only_free(self) -> Axis:
        free = [axis for axis in self.axes if axis.frozen is None]
        if len(free) != 1:
            names = ", ".join(axis.name for axis in free) or "none"
            raise UnknownAxisError(f"{self.name} has several axes, free ones: {names}; take one from .axes")
        return free[0]

    @property
    def members(self) -> list[Member]:
        """The members of its only free axis."""
        return self._only_free().members

    def indices(self, name: str, dim: int = 0) -> NDArray[np.int64]:
        """The positions of its only free axis, as `Axis.indices`."""
        return self._only_free().indices(name, dim)

    def __repr__(self) -> str:
        return f"<Dimension {printable(self.name)}: {self.size}>"


class Axes:
    """The axes of a model in the order in which they come; `axes["conv1.weight", 0]` is what that dimension is made of.

    A dimension of one axis is that `Axis`; of several, a `Dimension` with `.axes`.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    >>> axes = mk.trace(model, torch.zeros(1, 3)).axes
    >>> axes["0.weight", 0]
    <Axis 0.out: 4, 3 members>
    >>> [axis.name for axis in axes if axis.frozen]
    ['0.in', '1.out']
    """

    def __init__(
        self,
        graph: Dataflow,
        free_inputs: bool = False,
        free_outputs: bool = False,
        lists: ListsOfDimensions = NO_LISTS,
    ) -> None:
        self.graph = graph
        self.inference = Inference(graph, free_inputs, free_outputs, lists)
        self.proof_notes: list[str] | None = None  # of `prove`, once it was asked
        self.doubts: dict[Axis, UnprovedReason] = {}  # of `prove`, about free axes that a permutation cannot prove here
        self.traced_path: Any = None  # of plans: the way that the data take in the traced call, once it was asked for
        self.size_models: dict[object, Any] = {}  # of plans, by what they are of, once they were asked for
        self.tensor_dims: dict[
            Term, list[tuple[DataNode, int]]
        ] = {}  # where each atom stands, in the order of the model
        for node in dict.fromkeys(graph.state.values()):
            if not is_value_buffer(node):
                continue  # a buffer of indices is no member: it holds positions of another dimension
            for at, term in enumerate(self.inference.dims(node)):
                for atom in dict.fromkeys(atoms(term)):
                    if atom.size > 1:
                        self.tensor_dims.setdefault(atom, []).append((node, at))
        names, once = axis_names(self.inference, self.tensor_dims)
        self._axes = {atom: Axis(self, atom, number, names[atom]) for number, atom in enumerate(self.tensor_dims)}
        self._by_name = {axis.name: axis for axis in self._axes.values()}
        self._once = {name: self._axes[atom] for name, atom in once.items()}  # by names of earlier versions

    # ------------------------------------------------------------- look up

    def __iter__(self) -> Iterator[Axis]:
        return iter(self._axes.values())

    def __len__(self) -> int:
        return len(self._axes)

    def __getitem__(self, key: str | tuple[str, int]) -> Axis | Dimension:
        if isinstance(key, str):
            axis = self.find_by_name(key)
            if axis is not None:
                return axis
            raise UnknownAxisError(
                f"no axis {printable(key)!r}: {closest_match_hint(key, self._by_name)}; or ask axes[parameter, dim]"
            )
        given: Any = key  # of a user
        if not (isinstance(given, SEQUENCES) and type(given) is not list and len(given) == 2):
            raise UnknownAxisError(
                f"axes are looked up by name, or as axes[parameter, dim]; got {printable(repr(key))}"
            )
        name, dim = key
        term = self.term(name, dim)
        axis = self._axes.get(term)
        return axis if axis is not None else Dimension(self, term)

    def __contains__(self, what: object) -> bool:
        """True if the given axis, or an axis of that name, is one of them."""
        if isinstance(what, str):
            return self.find_by_name(what) is not None
        return isinstance(what, Axis) and what in self._axes.values()

    def find_by_name(self, name: str) -> Axis | None:
        """The axis of that name, or that had it in an earlier version: plans and programs of then still hold it."""
        return self._by_name.get(name) or self._once.get(name)

    def of(self, atom: Term) -> Axis:
        """Returns the axis of an atom; an atom without parameters gets a generated name."""
        axis = self._axes.get(atom)
        return axis if axis is not None else Axis(self, atom, len(self._axes), f"axis_{atom.size}")

    def term(self, name: str, dim: int) -> Term:
        """The term of a dimension of a parameter, a buffer or, by its name, any value."""
        if not is_text(name) or not is_integer(dim):
            raise UnknownAxisError(
                f"a dimension is a name and a number, as axes['conv1.weight', 0]; got {printable(repr((name, dim)))}"
            )
        node = self.graph.state.get(name)
        if node is None:
            node = self.graph.values[name]
        dims = self.inference.dims(node)
        if not -len(dims) <= dim < len(dims):
            raise UnknownAxisError(
                f"{printable(name)!r} has {len(dims)} dimensions, none is {dim}: its shape is {node.shape}"
            )
        return find(dims[dim])

    def rank(self, atom: Term) -> int:
        """The place of an atom in the order of the model."""
        axis = self._axes.get(atom)
        return len(self._axes) if axis is None else axis.number

    def label(self, atom: Term) -> str:
        """The short name of an atom in an expression."""
        return short_name(self.of(atom).name) if atom in self._axes else "axis"

    def expression(self, name: str) -> str:
        """Returns the terms of all dimensions of a tensor as text, as `(heads=12 head_dim=64) hidden=768`.

        Where two axes would read the same, both go by their full names.
        """
        node = self.graph.state[name] if name in self.graph.state else self.graph.values[name]
        dims = self.inference.dims(node)
        labels = Counter(self.label(atom) for atom in dict.fromkeys(a for term in dims for a in atoms(term)))

        def label(atom: Term) -> str:
            short = self.label(atom)
            return short if labels[short] == 1 else self.of(atom).name

        return " ".join(format_term(term, label) for term in dims)

    # ---------------------------------------------------------------- sums

    @property
    def unknown(self) -> list[CallRecord]:
        """The operators that no rule knows; all that they touch is frozen."""
        return self.inference.unknown

    @property
    def unread(self) -> list[str]:
        """The parameters and buffers that this forward pass did not read; they are frozen."""
        return [node.label for node in self.graph.unread]

    @property
    def free(self) -> list[Axis]:
        """The axes whose indices may go."""
        return [axis for axis in self if axis.frozen is None]

    @cached_property
    def weight_buffers(self) -> frozenset[DataNode]:
        """The buffers that are weights of layers, as of a frozen part of a model."""
        if not any(may_be_weight(node) and node.consumers for node in self.graph.state.values()):
            return frozenset()
        every = Layers(self.inference, buffers=True)
        return frozenset(layer.weight for layer in every if not layer.weight.is_parameter)

    @cached_property
    def free_share(self) -> float:
        """The share of all parameters that lie on at least one free axis, 0 … 1."""
        total = free = 0
        for node in dict.fromkeys(self.graph.state.values()):
            if node.is_parameter:
                total += node.numel()
                if any(a.frozen is None and a.size > 1 for term in self.inference.dims(node) for a in atoms(term)):
                    free += node.numel()
        return free / total if total else 1.0

    def __repr__(self) -> str:
        unknown = pluralize(len(self.unknown), "unknown operator", "unknown operators") if self.unknown else ""
        free = f"{len(self.free)} free, {self.free_share:.1%} of the parameters"
        return f"<Axes: {', '.join(filter(None, (pluralize(len(self), 'axis', 'axes'), free, unknown)))}>"

    def _repr_html_(self) -> str:
        """The free axes as a table, escaped."""
        rows = "".join(
            f"<tr><td>{html.escape(axis.name)}</td><td>{axis.size}</td><td>{len(axis.members)}</td>"
            f"<td>{html.escape(', '.join(f'{m.name}[{m.dim}]' for m in axis.members[:4]))}</td></tr>"
            for axis in self.free[:50]
        )
        head = "<tr><th>axis</th><th>size</th><th>members</th><th>first members</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>"


# --------------------
# The modules and tensors that belong to one element of a module list, as to one expert of a router.


class ListElements:
    """The elements of all lists that go with axes."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.lists: dict[IndexedChildren, Axis] = {
            each: axis for axis in axes if axis.lists and axis.frozen is None for each in axis.term.lists
        }
        self._uneven_rows = {each: self._has_uneven_rows(each, axis.size) for each, axis in self.lists.items()}

    def enclosing_lists(self, path: str) -> list[IndexedChildren]:
        """The lists in elements of which a module, or a tensor by its name, lies; they may lie in each other."""
        return [each for each in self.lists if each.split(path) is not None]

    def axes_of(self, path: str) -> list[Axis]:
        """Returns the axes whose cut removes the module or tensor at a path."""
        return [self.lists[each] for each in self.enclosing_lists(path)]

    def axes_of_cost(self, path: str) -> list[Axis]:
        """Returns the axes whose cut removes the cost of what runs at a path.

        Rows that are shared out among the elements go to others then.
        """
        return [self.lists[each] for each in self.enclosing_lists(path) if not self._uneven_rows[each]]

    def parallel_tensors(self) -> Iterator[tuple[Axis, list[DataNode]]]:
        """The tensors of one name in all elements of a list, in their order, and the axis that they go with."""
        state = self.axes.graph.state
        for each, axis in self.lists.items():
            inside = (each.split(name) for name in state)
            for name in [place[1] for place in inside if place is not None and place[0] == 0]:
                yield axis, [state[f"{each.path_of(at)}.{name}"] for at in range(axis.size)]

    def _has_uneven_rows(self, modules: IndexedChildren, count: int) -> bool:
        """True if the elements get different numbers of rows, as experts do."""
        calls = [self.axes.graph.modules[modules.path_of(at)].calls for at in range(count)]
        return len({tuple(node.shape for call in own for node in call.inputs) for own in calls}) > 1
