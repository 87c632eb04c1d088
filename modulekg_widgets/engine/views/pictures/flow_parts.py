"""Parts of the picture of a traced model: cards, code between them, inputs, outputs and data edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from modulekg_widgets.engine.views.flow_tables import PASS_THROUGH
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.engine.views.static_expansion import (
    flow_folds,
    fold_representatives,
    folded_members,
    visible_children,
)

MAX_CALLS = 6  # of one module in one call of its container that have cards of their own
MAX_PILLS = 8  # of the model's inputs, and of its outputs, that stand apart; more are one
MAX_NAMES = 3  # of operators that are all named
# between functions: signs, powers, comparisons, and what only moves values
ARITHMETIC = frozenset({
    "add", "sub", "mul", "div", "rsub", "neg", "pow", "square", "sqrt", "rsqrt", "reciprocal", "abs", "eq", "ne", "lt",
    "le", "gt", "ge", "where", "clamp", "clamp_min", "clamp_max", "mm", "bmm", "matmul", "addmm", "addmv", "baddbmm",
    "fill", "zero", "masked_fill", "transpose", "permute", "t", "movedim", "swapaxes", "clone", "to_copy", "copy",
    "contiguous",
})  # fmt: skip

DROPOUT_OPERATORS = ["empty_like", "bernoulli", "div", "mul"]  # its operators while a model trains

FoldedRuns = frozenset[tuple[int, int]]  # of the folded runs around something: the first member, and which one it is in
NO_RUNS: FoldedRuns = frozenset()
PartKey = tuple[str | int | None, ...]  # what a part stands for
Origin = tuple[int, FoldedRuns]  # a part, and where in the runs


@dataclass(slots=True)
class FlowPart:
    """A part of the picture."""

    kind: str  # "input", "output", "card", "frame" or "code"
    node: int  # a card's or frame's module; else the root
    container: int  # the container that it stands in
    title: str = ""
    detail: str = ""
    at: float = inf  # the step that it begins with


class FlowParts:
    """Parts by index, frames before their content, and the edges between them."""

    def __init__(self, payload: Payload, opened: Iterable[int]) -> None:
        self.payload = payload = {**payload, "folds": flow_folds(payload)}
        self.flow = payload["flow"]
        self.parents: list[int] = payload["nodes"]["parent"]
        self.rows = visible_children(payload)
        self.parts: list[FlowPart] = []
        self._places: dict[PartKey, int] = {}
        self._views = frozenset(self.flow["steps"]["view"])
        self._step_outputs: dict[int, list[int]] = {}  # the values that each step gives
        for value, step in enumerate(self.flow["values"]["step"]):
            self._step_outputs.setdefault(step, []).append(value)
        self._find_visible(fold_representatives(payload, opened))
        self.inputs = self._pills("input", self.flow["inputs"])
        self._place_calls()
        self._place_steps()
        self._add_uncalled()
        self.outputs = self._pills("output", self._named_outputs())
        for part in reversed(self.parts):
            if part.kind != "frame" and part.container:
                self._begin_frames(part)
        self.edges = self._edges()

    def inside(self, node: int) -> list[int]:
        """Returns the indices of the parts in an expanded container, in forward order."""
        return sorted(self._inside.get(node, ()), key=lambda place: self.parts[place].at)

    # ------------------------------------------------------------ the hierarchy

    def _find_visible(self, opened: set[int]) -> None:
        """Set the visible node of each module: itself, a collapsed ancestor, or that of the first run member."""
        names = self.payload["nodes"]["name"]
        named = {(parent, names[node]): node for node, parent in enumerate(self.parents)}
        run_of = {node: (run[0], at) for run in folded_members(self.payload) for at, node in enumerate(run)}
        self.representatives = [0] * len(self.parents)  # -1 where the member that is drawn has nothing alike
        self.runs: list[FoldedRuns] = [NO_RUNS] * len(self.parents)
        self.visible_ancestors, self.frames = [0] * len(self.parents), {0}
        for node, parent in enumerate(self.parents):
            if parent < 0:
                continue
            twin = self.representatives[parent]
            self.representatives[node] = (
                node if twin == parent else self._representative(named.get((twin, names[node]), -1))
            )
            self.runs[node] = self.runs[parent]
            if node in run_of:
                first, position = run_of[node]
                if position:
                    self.representatives[node] = self.representatives[first]
                self.runs[node] = self.runs[parent] | {(self.representatives[first], position)}
            same, around = self.representatives[node], self.visible_ancestors[parent]
            self.visible_ancestors[node] = around if around not in self.frames or same < 0 else same
            if same == node and node in opened and node in self.rows and around in self.frames:
                self.frames.add(node)
        self._inside: dict[int, list[int]] = {}
        for node in sorted(self.frames):
            self._add(("module", node, 0), FlowPart("frame", node, self.parents[node]))

    def _representative(self, node: int) -> int:
        return self.representatives[node] if node > 0 else -1

    def _add(self, key: PartKey, part: FlowPart) -> int:
        place = self._places[key] = len(self.parts)
        self.parts.append(part)
        self._inside.setdefault(part.container, []).append(place)
        return place

    def _card(self, node: int, ordinal: int = 0, of: int = 1) -> int:
        """Returns the index of a module's frame or card, with one card per call if there are few."""
        place = self._places.get(("module", node, ordinal))
        if place is None:
            words = f"call {ordinal + 1} of {of}" if of > 1 else ""
            place = self._add(("module", node, ordinal), FlowPart("card", node, self.parents[node], words))
        return place

    def _add_uncalled(self) -> None:
        known = {part.node for part in self.parts}
        for node in sorted(self.frames):
            for child in self.rows.get(node, ()):
                if child not in known:
                    self.parts[self._card(child)].title = "not called"

    def _begin_frames(self, part: FlowPart) -> None:
        """Set the start of a frame to that of its first part."""
        node = part.container
        while node > 0:
            frame = self.parts[self._places["module", node, 0]]
            if frame.at <= part.at:
                break
            frame.at, node = part.at, self.parents[node]

    # ---------------------------------------------------------- the forward pass

    def _pills(self, kind: str, values: Sequence[tuple[str, int]]) -> list[int]:
        """Returns the index of the pill of each input or output."""
        count = len(values)
        at = -1 if kind == "input" else inf
        if count > MAX_PILLS or (count == 0 and kind == "input"):
            title = f"{count} {kind}s" if count else kind
            return [self._add((kind, 0), FlowPart(kind, 0, 0, title, at=at))] * count
        if count == 0:
            title = "no output: the forward pass stopped" if self.payload["error"] else kind
            self._add((kind, 0), FlowPart(kind, 0, 0, title))
        places = []
        for number, (name, value) in enumerate(values):
            words = name or (str(number + 1) if count > 1 else "")
            title = words if kind in words.lower() else f"{kind} {words}".rstrip()
            title += f" · {self._shape(value)}"
            places.append(self._add((kind, number), FlowPart(kind, 0, 0, title, at=at)))
        return places

    def _named_outputs(self) -> list[tuple[str, int]]:
        """Returns the model's outputs with their keys or fields; a place in a tuple is no name."""
        values = self.flow["outputs"]
        names = (self.payload.get("value_names") or {}).get("results") or [""] * len(values)
        return [("" if name.startswith("[") else name, value) for name, value in zip(names, values, strict=True)]

    def _shape(self, value: int) -> str:
        return "×".join(map(str, self.flow["shapes"][self.flow["values"]["shape"][value]])) or "scalar"

    def _place_calls(self) -> None:
        """Set the part of each call, True if its own code is drawn, and the module that ran."""
        nodes, parents = self.flow["calls"]["node"], self.flow["calls"]["parent"]
        counts: dict[tuple[int, int], int] = {}
        for key in zip(parents, nodes, strict=True):
            counts[key] = counts.get(key, 0) + 1
        seen: dict[tuple[int, int], int] = {}
        self.of_call: list[int] = []
        self.is_open: list[bool] = []
        self.called_modules: list[int] = []
        for node, parent, outputs in zip(nodes, parents, self.flow["calls"]["outputs"], strict=True):
            if parent >= 0 and self.parts[self.of_call[parent]].kind != "frame":  # in a closed card
                place, is_open, node = self.of_call[parent], False, self.called_modules[parent]
            else:
                shown, of = self.visible_ancestors[node], counts[parent, node]
                ordinal = seen[parent, node] = seen.get((parent, node), -1) + 1
                is_own, is_open = (
                    self.representatives[node] == shown,
                    shown in self.frames and self.representatives[node] == shown,
                )
                apart = is_own and not is_open and 1 < of <= MAX_CALLS
                place = self._card(shown, ordinal, of) if apart else self._card(shown)
                if is_own and of > 1 and not apart:
                    self.parts[place].title = f"{of} calls"
                if outputs and is_own and not self.parts[place].detail:
                    self.parts[place].detail = self._shape(outputs[0])
            self.of_call.append(place)
            self.is_open.append(is_open)
            self.called_modules.append(node)

    def _place_steps(self) -> None:
        """Set the part of each step; steps of expanded containers are grouped between calls."""
        calls = self.flow["steps"]["call"]
        self.origins: list[Origin | None] = [None] * len(calls)
        pending: dict[int, list[int]] = {}  # own steps of an open call since the last call in it
        last: dict[int, int] = {}  # of an open call the last call in it
        above: dict[int, list[tuple[int, int]]] = {}
        for step, call in enumerate(calls):
            if call not in above:
                above[call] = self._above(call)
            for around, child in above[call]:
                if around in pending:
                    self._add_code(around, pending.pop(around), last.get(around), child)
                last[around] = child
            if self.is_open[call]:
                pending.setdefault(call, []).append(step)
            else:
                place = self.of_call[call]
                self.parts[place].at = min(self.parts[place].at, step)
                self.origins[step] = place, self.runs[self.called_modules[call]]
        for call, steps in pending.items():
            self._add_code(call, steps, last.get(call), None)

    def _above(self, call: int) -> list[tuple[int, int]]:
        """The expanded calls around one, each with its nested call that leads there."""
        found, parents = [], self.flow["calls"]["parent"]
        while parents[call] >= 0:
            if self.is_open[parents[call]]:
                found.append((parents[call], call))
            call = parents[call]
        return found

    def _add_code(self, call: int, steps: list[int], before: int | None, after: int | None) -> None:
        """Add the code of an expanded call between two nested calls, one part per connected group of steps."""
        frame = self.parts[self.of_call[call]].node
        home = self._code_container(frame, before, after)
        runs = self.runs[self.called_modules[call if before is None else before]]
        for ordinal, group in enumerate(self._groups(steps)):
            title, detail = self._about(group)
            if not title:
                continue
            key = frame, None if before is None else self.visible_ancestors[self.called_modules[before]], ordinal, title
            place = self._places.get(key)
            if place is None:
                words = " · ".join(filter(None, (title, detail)))
                place = self._add(key, FlowPart("code", 0, home, words))
            self.parts[place].at = min(self.parts[place].at, group[0])
            for step in group:
                self.origins[step] = place, runs

    def _code_container(self, frame: int, before: int | None, after: int | None) -> int:
        """The container of code: its module, or an uncalled one that holds the calls before and after it."""
        if before is None or after is None:
            return frame
        nodes = [self.parents[self.visible_ancestors[self.called_modules[call]]] for call in (before, after)]
        while nodes[0] != nodes[1]:
            nodes = [max(0, self.parents[max(nodes)]), min(nodes)]
        home = around = nodes[0]
        while around > frame:
            around = self.parents[around]
        return home if around == frame else frame

    def _groups(self, steps: list[int]) -> list[list[int]]:
        """Returns groups of steps that are connected by values."""
        made_by, inputs = self.flow["values"]["step"], self.flow["steps"]["inputs"]
        group_of: dict[int, list[int]] = {}
        for step in steps:
            group = group_of[step] = [step]
            for value in inputs[step]:
                other = group_of.get(made_by[value])
                if other is not None and other is not group:
                    small, group = sorted((group, other), key=len)
                    group.extend(small)
                    group_of.update(dict.fromkeys(small, group))
        return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]

    def _about(self, group: list[int]) -> tuple[str, str]:
        """Title and shapes of a group of steps; empty if they read neither data nor state."""
        steps, values = self.flow["steps"], self.flow["values"]
        own = set(group)
        read = dict.fromkeys(v for step in group for v in steps["inputs"][step] if values["step"][v] not in own)
        tensors = dict.fromkeys(tensor for step in group for tensor in steps["tensors"][step])
        full = [self.flow["names"][steps["name"][step]] for step in group if steps["name"][step] != PASS_THROUGH]
        if not full or not (read or tensors):
            return "", ""
        title = self._title([step for step in group if steps["name"][step] != PASS_THROUGH])
        attributes = [self.flow["tensors"]["attributes"][self.flow["tensors"]["name"][tensor]] for tensor in tensors]
        if attributes and len(attributes) <= MAX_NAMES:
            title += f" ({', '.join(attributes)})"
        before = [self._shape(value) for value in read]
        given = [self._shape(value) for value in self._step_outputs.get(group[-1], ())[:1]]
        change = len(read) == 1 and given and before != given
        return title, " → ".join(before + given) if change else "".join(given)

    def _title(self, steps: list[int]) -> str:
        """All operator names of few, the functions among many as "relu, max_pool2d, +2", else their count."""
        names = [self.flow["names"][self.flow["steps"]["name"][step]].rpartition(":")[2].strip("_") for step in steps]
        views = {name for step, name in zip(steps, names, strict=True) if step in self._views}
        names = _with_dropout(names)
        if len(set(names)) <= MAX_NAMES:
            return ", ".join(dict.fromkeys(names))
        functions = dict.fromkeys(name for name in names if name not in views and name not in ARITHMETIC)
        named = list(functions)[: MAX_NAMES - 1]
        others = sum(name not in named for name in names)
        return ", ".join([*named, f"+{others}"]) if named else f"{len(names)} operators"

    # ------------------------------------------------------------------- edges

    def _edges(self) -> list[tuple[int, int]]:
        """Returns the distinct (part, part), without those that only chain the members of a run."""
        sources: dict[int, tuple[Origin, ...]] = {}
        for (_, value), place in zip(self.flow["inputs"], self.inputs, strict=True):
            sources[value] = ((place, NO_RUNS),)
        edges: dict[tuple[int, int], None] = {}
        loops: dict[tuple[int, int], None] = {}

        def link(value: int, target: int, runs: FoldedRuns) -> None:
            for source, others in sources.get(value, ()):
                if source != target and not self._is_around(source, target):
                    first = dict(others) if others is not runs else {}
                    is_loop = any(first.get(run, member) != member for run, member in runs)
                    (loops if is_loop else edges)[source, target] = None

        for step, inputs in enumerate(self.flow["steps"]["inputs"]):
            origin = self.origins[step]
            if origin is None:  # it hands on what it was given
                passed = dict.fromkeys(o for value in inputs for o in sources.get(value, ()))
                given = tuple(passed)[:MAX_PILLS]
            else:
                given = (origin,)
                for value in inputs:
                    link(value, *origin)
            for value in self._step_outputs.get(step, ()):
                sources[value] = given
        for value, place in zip(self.flow["outputs"], self.outputs, strict=True):
            link(value, place, NO_RUNS)
        leaving = {source for source, _ in edges}
        return [*edges, *(edge for edge in loops if edge[0] not in leaving and edge not in edges)]

    def _is_around(self, one: int, other: int) -> bool:
        """True if one of two parts is a frame around the other."""
        for frame, part in ((one, other), (other, one)):
            if self.parts[frame].kind == "frame":
                node = self.parts[part].container
                while node > self.parts[frame].node:
                    node = self.parents[node]
                if node == self.parts[frame].node:
                    return True
        return False


def _with_dropout(names: list[str]) -> list[str]:
    """Replaces the operators of dropout by "dropout"."""
    found: list[str] = []
    for name in names:
        found.append(name)
        if found[-len(DROPOUT_OPERATORS) :] == DROPOUT_OPERATORS:
            found[-len(DROPOUT_OPERATORS) :] = ["dropout"]
    return found
