"""The model that a configuration builds, and the traced one beside it: numbers, dimensions, and a cut compared."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from torch import nn

from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.unused_parameters import UnusedParameterEdits, unused_parameter_edits
from modulekg_widgets.engine.pruning.saving.config_numbers import (
    CandidateConfig,
    ConfigNumbers,
    config_numbers,
    fitting_config,
    mismatches,
)
from modulekg_widgets.engine.pruning.saving.empty_weights import build_with_empty_weights
from modulekg_widgets.engine.pruning.saving.library_origins import transformers_origin
from modulekg_widgets.engine.pruning.saving.model_signature import (
    FactKey,
    ModelSignature,
    differing_facts,
    is_set_by_forward,
)
from modulekg_widgets.engine.torch_runtime.modules import unwrapped

ExtendPlan = Callable[[PruningPlan, UnusedParameterEdits], PruningPlan | None]
log = logging.getLogger("modulekg_widgets")


def numbers_of_model(model: nn.Module) -> ConfigNumbers | None:
    """The numbers of the configuration; None if there is none that builds the model as it is.

    A model that was cut has the configuration of before: that which builds it now is found first.
    """
    try:
        model = unwrapped(model)
        origin = transformers_origin(model, ())
        if origin is None:
            return None
        numbers = config_numbers(origin)
        signature = ModelSignature.of(model)
        if _differs(signature, numbers):
            fitted = fitting_config(origin, signature, lambda name: signature.by_name[name].tensor)
            numbers = numbers if fitted.origin is None else config_numbers(fitted.origin)
        return None if _differs(signature, numbers) else numbers
    except Exception as error:  # noqa: BLE001 - of the library, whatever its code needs
        log.debug("the configuration does not build the model: %s", error)
        return None


def _differs(signature: ModelSignature, numbers: ConfigNumbers) -> bool:
    """True if a model differs from that of the configuration in more than what a forward pass sets."""
    built = numbers.base.facts
    return not all(is_set_by_forward(key, built) for key in differing_facts(signature.facts, built))


def read_dims(graph: DataflowGraph, numbers: ConfigNumbers) -> dict[FactKey, Term]:
    """The terms of the dimensions that the traced pass reads, by the facts of their sizes."""
    facts, unread = numbers.base.facts, set(graph.unread)
    return {
        key: find(term)
        for node in dict.fromkeys(graph.state.values()) if node not in unread
        for at, term in enumerate(graph.axes.inference.dims(node))
        for key in [("size", name, at) for name in node.names if ("size", name, at) in facts][:1]
    }  # fmt: skip


def factors(term: Term, cut: AbstractSet[Term]) -> list[Term] | None:
    """The cut axes that a dimension is a multiple of; None if its parts are of different ones."""
    term = find(term)
    if cut.isdisjoint(atoms(term)):
        return []
    if term.kind == ATOM:
        return [term]
    parts = [factors(part, cut) for part in flattened_parts(term)]
    if term.kind == PRODUCT:
        return None if None in parts else [atom for each in parts for atom in each or ()]
    alike = all(part is not None and Counter(part) == Counter(parts[0] or ()) for part in parts)
    return parts[0] if alike else None


class ConfigComparison:
    """Compares the model that a plan leaves with the one that a configuration builds."""

    def __init__(self, graph: DataflowGraph, numbers: ConfigNumbers) -> None:
        self.graph = graph
        self.numbers = numbers

    def compare(
        self, extend: ExtendPlan, plan: PruningPlan, built: CandidateConfig, wanted: ModelSignature | None = None
    ) -> tuple[PruningPlan, list[FactKey]]:
        """The plan and the differences; parameters that the pass does not read follow the configuration.

        `extend`: the plan with changes of such parameters; None if the trace does depend on them.
        """
        wanted = wanted or self.cut_signature(plan)
        others = self._differences(built, wanted)
        if others:
            here, there = wanted.facts, built.signature.facts
            more = unused_parameter_edits(self.graph, plan.edits, differing_facts(here, there), here, there)
            longer = None if more is None else extend(plan, more)
            if longer is not None and not self._differences(built, self.cut_signature(longer)):
                return longer, []
        return plan, others

    def cut_signature(self, plan: PruningPlan) -> ModelSignature:
        """The signature of the cut model without weights."""
        twin = build_with_empty_weights(self.numbers.origin.build)
        plan.cut(twin)
        return ModelSignature.of(twin)

    def _differences(self, built: CandidateConfig, wanted: ModelSignature) -> list[FactKey]:
        return mismatches(built, wanted, lambda name: wanted.by_name[name].tensor)
