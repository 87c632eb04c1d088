"""Making a plan run: what Python code fixes beyond the data flow is found by dry runs, and met or respected."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modulekg_widgets.engine.axes.algebra import Term, atoms, find, flat
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.expression import parts_of
from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.attribute_sizes import Attribute, attributes_of
from modulekg_widgets.engine.pruning.dryrun import Mismatch, Rehearsal, Request, Scale, rehearse
from modulekg_widgets.engine.pruning.edits import Edits, Whole
from modulekg_widgets.engine.pruning.outcome import Outcome
from modulekg_widgets.engine.pruning.reference import agrees
from modulekg_widgets.engine.pruning.selection import Selection
from modulekg_widgets.engine.pruning.ties import Tie, solved

log = logging.getLogger("modulekg_widgets")
FEW = 6
AFFORDABLE = 2e9  # floating-point operations: two passes of such a model take a tenth of a second
ATTRIBUTE, TIE, WHOLE, SCALE = "attribute", "tie", "whole", "scale"


@dataclass(frozen=True, slots=True)
class Change:
    """A correction that a plan needed, and the line of code that asked for it."""

    kind: str  # "attribute", "tie", "whole" or "scale"
    what: str
    source: str
    axes: tuple[str, ...] = field(default=(), compare=False)  # those that it is about, by name

    def __str__(self) -> str:
        return f"{self.what}: {self.source}"


@dataclass(frozen=True)
class Draft:
    """A plan in the making: what goes, and which attributes follow which sizes."""

    selection: Selection
    wanted: Mapping[Term, int]  # the counts before any correction
    ties: tuple[Tie, ...] = ()
    followers: Mapping[Attribute, Term] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    strict: bool = False  # no attributes but those that the adapters know

    def attributes(self) -> dict[str, tuple[Whole, Whole]]:
        """What the attributes become that were found by dry runs."""
        found: dict[str, tuple[Whole, Whole]] = {}
        for attribute, term in self.followers.items():
            size = self.selection.size(term)
            if size != term.size:
                before, after = found.get(attribute.path, (attribute.value, attribute.value))
                found[attribute.path] = (before, attribute.with_size(after, size))
        return found


class Repair:
    """Rehearses a draft, and corrects it until its dry run goes as planned."""

    def __init__(self, axes: Axes, outcome: Outcome) -> None:
        self.axes = axes
        self.outcome = outcome
        self.runs = 0

    def edits(self, draft: Draft) -> Edits:
        return self.outcome.edits(draft.selection, draft.attributes())

    def rehearse(self, draft: Draft) -> Rehearsal:
        self.runs += 1
        return rehearse(self.axes, draft.selection, self.edits(draft))

    def proved(self, draft: Draft) -> tuple[Draft, Rehearsal]:
        """The draft with the corrections that it needs, once the cut model computes what the masked original does.

        Equal integers can be coincidence: where that comes out, the plan does without attributes that follow sizes.
        """
        mended, found = self.mended(draft)
        if self._is_proved(mended, found):
            return mended, found
        mended, found = self.mended(replace(draft, strict=True))
        if not self._agrees(mended, found):
            where = mended.changes[0].source if mended.changes else "the model"
            raise CutError(
                f"the plan runs, but gives other values than the masked model: {where}. Spare it with keep=[…]"
            )
        return mended, found

    def _is_proved(self, draft: Draft, found: Rehearsal) -> bool:
        """Whether the cut model computes what the masked original does.

        The dry run proves it where the same operators ran on the same values, and each number among their arguments
        is as before or the planned size of what it was the size of. Else the outputs tell; those of small models that
        needed corrections do so anyway.
        """
        affordable = bool(draft.changes) and self.axes.graph.flops() < AFFORDABLE
        return (found.explained and not affordable) or self._agrees(draft, found)

    def _agrees(self, draft: Draft, found: Rehearsal) -> bool:
        return agrees(self.axes, draft.selection.masks(), self.edits(draft), found.scales) is not False

    def mended(self, draft: Draft) -> tuple[Draft, Rehearsal]:
        """The draft with the corrections that it needs; raises `CutError` when none makes it run."""
        found = self.rehearse(draft)
        while found.mismatch is not None:
            draft, found = self._corrected(draft, found.mismatch)
        return draft, found

    def _corrected(self, draft: Draft, mismatch: Mismatch) -> tuple[Draft, Rehearsal]:
        """The first correction with which the dry run comes further."""
        for trial in self._corrections(draft, mismatch):
            found = self.rehearse(trial)
            if found.mismatch is None or _is_further(found.mismatch, mismatch):
                log.debug("%s", trial.changes[-1] if trial.changes else "")
                return trial, found
        raise CutError(
            f"no plan could be made to run: {mismatch.where} "
            + (f"raises {shown(mismatch.error, 300)}" if mismatch.error else "gives sizes that no choice of axes meets")
            + ". Spare the module with keep=[…], or choose axes with only=[…]"
        )

    def _corrections(self, draft: Draft, mismatch: Mismatch) -> Iterator[Draft]:
        yield from self._tied(draft, mismatch, self._equal_parts(mismatch))
        if not draft.strict:
            yield from self._by_attributes(draft, mismatch)
        yield from self._tied(draft, mismatch, self._ties(draft, mismatch))
        yield from self._by_sparing(draft, mismatch)

    # ------------------------------------------------------------ attributes

    def _by_attributes(self, draft: Draft, mismatch: Mismatch) -> Iterator[Draft]:
        """Let an attribute that holds an old size follow it, in the module at work first, in those above it next."""
        candidates = [each for each in self._attributes(mismatch) if each not in draft.followers]
        for term in self._concerned(draft, mismatch):
            for attribute in candidates:
                if term.size == attribute.size:
                    yield self._following(draft, attribute, term, mismatch)

    def _following(self, draft: Draft, attribute: Attribute, term: Term, mismatch: Mismatch) -> Draft:
        """The draft in which an attribute follows a size, that of the other modules of its class as well."""
        alike = self._alike(attribute, term, draft)
        others = f", as {len(alike)} others of its class do" if len(alike) > 1 else ""
        change = Change(
            ATTRIBUTE, f"{attribute} follows {self._written(term)}{others}", mismatch.where, self._names([term])
        )
        return replace(draft, followers={**draft.followers, **alike, attribute: term}, changes=(*draft.changes, change))

    def _attributes(self, mismatch: Mismatch) -> Iterator[Attribute]:
        modules = self.axes.graph.modules
        home = path = mismatch.operator.module if mismatch.operator is not None else ""
        seen: set[str] = set()
        while True:
            yield from self._own(path, seen)
            if not path:
                break
            path = path.rpartition(".")[0]
        for other in modules:
            if not home or other.startswith(f"{home}."):
                yield from self._own(other, seen)

    def _own(self, path: str, seen: set[str]) -> Iterator[Attribute]:
        if path in self.axes.graph.modules and path not in seen:
            seen.add(path)
            yield from attributes_of(path, self.axes.graph.modules[path].module)

    def _concerned(self, draft: Draft, mismatch: Mismatch) -> list[Term]:
        """The dimensions that change where the runs part, and their factors and summands, the requested ones first."""
        terms = [term for request in mismatch.requests for term in parts_of(request.term)]
        operator = mismatch.operator
        if operator is not None:
            for node in (*operator.outputs, *operator.inputs):
                for term in self.axes.inference.dims(node):
                    terms += parts_of(term)
        return [term for term in dict.fromkeys(terms) if draft.selection.size(term) != term.size]

    def _alike(self, attribute: Attribute, term: Term, draft: Draft) -> dict[Attribute, Term]:
        """The same attribute of the other modules of that class, where it goes by the same dimension of their own."""
        modules = self.axes.graph.modules
        home = modules[attribute.module]
        place = self._place_of(term, attribute.module)
        if place is None:
            return {}
        found: dict[Attribute, Term] = {}
        for path, node in modules.items():
            if type(node.module) is type(home.module) and path != attribute.module:
                other = self._term_at(path, *place)
                twin = attribute.at(path, node.module)
                if other is not None and twin is not None and twin not in draft.followers and twin.size == other.size:
                    found[twin] = other
        return found

    def _place_of(self, term: Term, path: str) -> tuple[str | int, int, int] | None:
        """A tensor below a module or one that it got, a dimension of it, and which part of that the term is."""
        prefix = f"{path}." if path else ""
        below = ((name[len(prefix) :], node) for name, node in self.axes.graph.state.items() if name.startswith(prefix))
        for name, node in (*below, *enumerate(self.axes.graph.modules[path].inputs)):
            for at, whole in enumerate(self.axes.inference.dims(node)):
                for number, part in enumerate(parts_of(whole)):
                    if _key(part) == _key(term):
                        return name, at, number
        return None

    def _term_at(self, path: str, name: str | int, dim: int, number: int) -> Term | None:
        if isinstance(name, int):
            inputs = self.axes.graph.modules[path].inputs
            node = inputs[name] if name < len(inputs) else None
        else:
            node = self.axes.graph.state.get(f"{path}.{name}" if path else name)
        if node is None or dim >= node.dim():
            return None
        parts = parts_of(self.axes.inference.dims(node)[dim])
        return parts[number] if number < len(parts) else None

    # ------------------------------------------------------------------ ties

    def _tied(self, draft: Draft, mismatch: Mismatch, ties: Iterable[Tie]) -> Iterator[Draft]:
        """The nearest sizes with which a tie holds as well as those found before."""
        for tie in ties:
            selection = solved(draft.selection, (*draft.ties, tie), draft.wanted)
            if selection is not None and selection.counts != draft.selection.counts:
                yield replace(
                    draft,
                    selection=selection,
                    ties=(*draft.ties, tie),
                    changes=(
                        *draft.changes,
                        Change(
                            TIE,
                            self._told(tie, selection),
                            mismatch.where,
                            self._names([tie.left, *([tie.right] if tie.right else [])]),
                        ),
                    ),
                )

    def _equal_parts(self, mismatch: Mismatch) -> Iterator[Tie]:
        """What one operator takes apart into parts of one size, such as halves, stays so."""
        results = mismatch.operator.outputs if mismatch.operator is not None else []
        every = [self.axes.inference.dims(node) for node in results]
        for at in range(min(map(len, every), default=0)):
            first, *others = [dims[at] for dims in every]
            for other in others:
                if first.size == other.size and find(first) is not find(other):
                    yield Tie(first, other)

    def _ties(self, draft: Draft, mismatch: Mismatch) -> Iterator[Tie]:
        """Tie a dimension to another one nearby, or to the number that the code asks for."""
        requests = mismatch.requests
        for request in requests or self._likely(draft, mismatch):
            for other in self._nearby(draft, mismatch):
                times, rest = divmod(other.size, max(request.term.size, 1))
                fits = rest == 0 and draft.selection.size(other) // times == request.asked
                if fits and find(other) is not find(request.term) and draft.selection.free(request.term):
                    yield Tie(request.term, other, times)
        for request in requests:
            if draft.selection.free(request.term):
                yield Tie(request.term, None, request.asked)

    def _likely(self, draft: Draft, mismatch: Mismatch) -> list[Request]:
        """Where the code does not tell what it asked for: each dimension to be as long as others that were as long."""
        if mismatch.operator is None:
            return []
        selection = draft.selection
        found = []
        for node in mismatch.operator.outputs:
            for term in self.axes.inference.dims(node):
                for other in self._nearby(draft, mismatch):
                    if term.size > 1 and other.size % term.size == 0:
                        asked = selection.size(other) // (other.size // term.size)
                        if asked != selection.size(term):
                            found.append(Request(term, selection.size(term), asked))
        return found

    def _nearby(self, draft: Draft, mismatch: Mismatch) -> list[Term]:
        """The dimensions that the module at work got, and those of its parameters, which may change."""
        if mismatch.operator is None:
            return []
        module = self.axes.graph.modules.get(mismatch.operator.module)
        nodes = [] if module is None else [*module.inputs, *module.params.values()]
        terms = [find(term) for node in nodes for term in self.axes.inference.dims(node)]
        return [term for term in dict.fromkeys(terms) if draft.selection.free(term)]

    def changes(self, draft: Draft) -> tuple[Change, ...]:
        """The corrections, of ties with the sizes that they came to in the end."""
        ties = iter(draft.ties)
        told = [
            replace(change, what=self._told(next(ties), draft.selection)) if change.kind == TIE else change
            for change in draft.changes
        ]
        return tuple(dict.fromkeys(told))

    def _told(self, tie: Tie, selection: Selection) -> str:
        left = f"{self._written(tie.left)} keeps {selection.size(tie.left)} of {tie.left.size}"
        return left if tie.right is None else f"{left}, tied to {self._written(tie.right)}"

    # --------------------------------------------------------------- sparing

    def _by_sparing(self, draft: Draft, mismatch: Mismatch) -> Iterator[Draft]:
        """Keep axes whole: those requested, those of the operator, those of its module, those of the modules above."""
        reason = mismatch.where
        tried: set[frozenset[Term]] = set()
        groups = list(self._groups(draft, mismatch))
        # one alone is enough more often than not
        alone = [[atom] for group in groups if len(group) <= FEW for atom in group]
        for cut in [*alone, *groups]:
            if cut and frozenset(cut) not in tried:
                tried.add(frozenset(cut))
                names = ", ".join(self.axes.of(atom).name for atom in cut[:3]) + (", …" if len(cut) > 3 else "")
                yield replace(
                    draft,
                    selection=draft.selection.pin(cut, reason),
                    changes=(*draft.changes, Change(WHOLE, f"{names} stays whole", reason, self._names(cut))),
                )

    def _groups(self, draft: Draft, mismatch: Mismatch) -> Iterator[list[Term]]:
        for request in mismatch.requests:
            yield draft.selection.cut(request.term)
        yield [atom for request in mismatch.requests for atom in draft.selection.cut(request.term)]
        operator = mismatch.operator
        nodes: list[Any] = []
        if operator is not None:
            nodes = [*operator.inputs, *operator.outputs]
            yield self._cut_in(draft, nodes)
        path = operator.module if operator is not None else ""
        while True:
            module = self.axes.graph.modules.get(path)
            if module is not None:
                nodes += [*module.inputs, *module.outputs, *module.params.values()]
                yield self._cut_in(draft, nodes)
                for each in module.operators:
                    nodes += [*each.inputs, *each.outputs]
                yield self._cut_in(draft, nodes)
            if not path:
                return
            path = path.rpartition(".")[0]

    def _cut_in(self, draft: Draft, nodes: list[Any]) -> list[Term]:
        found: dict[Term, None] = {}
        for node in dict.fromkeys(nodes):
            for term in self.axes.inference.dims(node):
                found.update(dict.fromkeys(draft.selection.cut(term)))
        return list(found)

    def _written(self, term: Term) -> str:
        return " · ".join(self._names([term])[:3])

    def _names(self, terms: Iterable[Term]) -> tuple[str, ...]:
        """The axes in some dimensions."""
        inside = (atom for term in terms for atom in atoms(term) if atom.size > 1)
        return tuple(dict.fromkeys(self.axes.of(atom).name for atom in inside))


def _key(term: Term) -> tuple[int, ...]:
    """What tells terms apart: runs of factors are made anew each time."""
    return tuple(id(part) for part in flat(term))


def _is_further(now: Mismatch, before: Mismatch) -> bool:
    """Whether a dry run came further, or to the same place with fewer sizes that do not fit."""
    if now.position == before.position:
        return 0 < len(now.requests) < len(before.requests)
    return now.position > before.position


def scale_changes(scales: Iterable[Scale]) -> list[Change]:
    """The numbers that the code computes from sizes, each once a line."""
    counted = Counter((f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source) for scale in scales)
    operators = {
        (f"{scale.before:.6g} becomes {scale.after:.6g}", scale.operator.source): scale.operator for scale in scales
    }
    return [
        Change(SCALE, f"a number computed from sizes, {what}, {times} times", operators[what, source].where)
        for (what, source), times in counted.items()
    ]
