"""Levels of modules (model, stage, block, op), by repetition of structures or by depth.

By repetition
-------------
Told from structure alone: classes, what contains what, and which modules have weights. No name counts.

*Layer*: a module that has a parameter of two or more dimensions itself. Convolution, normalisation and activation in
one module are thus one layer, which is too little for a block; *large* is a module with children whose kind has two
layers. In a model in which nothing large repeats one layer is enough, then none.

*Alike* are modules of one class, so that a Bottleneck with a downsample is like one without, at any width. What is
derived from torch's containers tells by its class too little: there the kinds of the children count as well, each
once, so that those that are deeper are like others, as in the families by depth (`is_a(level=2)`).

*Run*: large siblings that are alike, next to each other or not. One with less than an eighth of the layers of the
largest run or module beside it is aside, as GoogLeNet's auxiliary classifiers are.

*Row*: a container of a run with one layer beside it at most; or a module of another class that has only rows in it,
and one layer at most beside those, such as a `SwinStage` with its patch merging. A container with large modules that do
not repeat, or a single one, is a row where another one beside it is, as in EfficientNet's first and last stage.

stage
    A container that is a row, and each of a run of rows. A module of another class that is a row alone is not one, but
    the container in it is: ViT's `encoder.layers`, not `encoder`.
block
    Each large module in a stage; and of every other run each member, as GoogLeNet's inceptions, for which there is no
    stage, but for mere lists, which compute nothing: those that are rows are stages. A large module between two blocks
    that is made of the same classes as they are is a block, too, as those of Inception v3 that halve the picture; and
    one beside stages that is alike with the blocks in them, as the middle of a U-Net.
model
    The root, and whatever contains stages and blocks: a wrapper, a backbone, an encoder. Beside stages and blocks that
    is only what contains stages, not a stem with two branches that are alike. Also each of a run of whole networks,
    such as twins: one has more blocks in it than there are members in the run, and, in a container, nothing large
    beside those (a layer with experts has its attention).
op
    A leaf, and every other module with children: the parts of blocks, stems and heads.

Where nothing repeats, as in VGG, the outermost modules below the root that have layers as children are stages.

By depth
--------
The root is the model, its children that have children are stages, all others that have children blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import nn

from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.identity.classes import class_names
from modulekg_widgets.engine.identity.tensors import direct_tensors, shape_of
from modulekg_widgets.engine.identity.walk import Walk, nominal_class
from modulekg_widgets.engine.torch_runtime.modules import Attributes
from modulekg_widgets.engine.torch_runtime.private import NATIVE, PARAMETERS, TRACED

LEVELS = MODEL, STAGE, BLOCK, OP = ("model", "stage", "block", "op")
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
LISTS = (nn.ModuleList, nn.ModuleDict)
MIN_LAYERS = (2, 1, 0)  # layers; the next one is tried where nothing repeats
MAX_LAYERS_BESIDE = 1  # layers of a row that are in none of its blocks
MAX_LAYER_RATIO = 8  # a run counts from this part of the layers of the largest run or module beside it


def levels_by_depth(walk: Walk) -> list[str]:
    """The level of each module of the walk, by how deep it stands."""
    children, parents = walk.children, walk.parents
    return [
        MODEL if index == 0 else OP if not children.get(index) else STAGE if parents[index] == 0 else BLOCK
        for index in range(len(parents))
    ]


def levels_by_repetition(walk: Walk) -> list[str]:
    """Returns the level of each module of the walk by repetition; the rules stand at the head of this file."""
    kinds = ModuleKinds(walk)
    for least in MIN_LAYERS:
        found = Repetition(kinds, least)
        if found.repeated.get(0):
            return found.levels()
    return _levels_without_repetition(kinds)


LEVEL_METHODS: dict[str, Callable[[Walk], list[str]]] = {"repetition": levels_by_repetition, "depth": levels_by_depth}


def checked_level_method(levels: object) -> str:
    """`levels`, if it is "repetition" or "depth"; raises `UnknownNameError`."""
    if not isinstance(levels, str) or levels not in LEVEL_METHODS:
        raise UnknownNameError(
            f"there are no levels by {printable(str(levels))!r}: {closest_match_hint(str(levels), LEVEL_METHODS)}"
        )
    return levels


class ModuleKinds:
    """Kind number of each module (equal for alike ones) and number of layers in and below it."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.layers = [_is_layer(s) if s.get(PARAMETERS) or NATIVE in s or TRACED in s else 0 for s in walk.states]
        self.kinds: list[int] = [0] * len(walk.modules)
        self.containers: dict[int, bool] = {}  # whether they are mere lists, which compute nothing themselves
        self.most_layers: list[int] = []  # by kind
        self._numbers: dict[object, int] = {}
        self._classes: dict[type, tuple[int, bool | None]] = {}  # the kind of a class, and as in `containers`
        parents, kinds, layers = walk.parents, self.kinds, self.layers
        classes = list(map(type, walk.modules))
        for index in range(len(classes) - 1, -1, -1):
            kind, is_list = self._classes.get(classes[index]) or self._class(walk.modules[index])
            if is_list is not None:
                self.containers[index] = is_list
                inside = dict.fromkeys([kinds[child] for child in self.children(index)])
                kind = self._number((kind, *inside))
            kinds[index] = kind
            if layers[index]:
                self.most_layers[kind] = max(self.most_layers[kind], layers[index])
                if index:
                    layers[parents[index]] += layers[index]

    def children(self, index: int) -> Sequence[int]:
        return self.walk.children.get(index, ())

    def large_children(self, index: int, least: int) -> list[int]:
        """Returns the children that have children and whose kind has at least `least` layers."""
        children, kinds, most = self.walk.children, self.kinds, self.most_layers
        return [child for child in self.children(index) if children.get(child) and most[kinds[child]] >= least]

    def _class(self, module: nn.Module) -> tuple[int, bool | None]:
        cls = nominal_class(module)
        number = self._number(class_names(cls))
        is_list = cls in LISTS if issubclass(cls, CONTAINERS) else None
        found = self._classes[type(module)] = number, is_list
        return found

    def _number(self, kind: object) -> int:
        number = self._numbers.setdefault(kind, len(self._numbers))
        if number == len(self.most_layers):
            self.most_layers.append(0)
        return number


class Repetition:
    """Stages and blocks among the children of each module, computed as if the module were on the trunk.

    From the bottom up: what a child is depends on its siblings and on what is below them, and on nothing above. The
    trunk is what contains them all; `levels` goes down along it.
    """

    def __init__(self, kinds: ModuleKinds, least: int) -> None:
        self._kinds, self._layers, self._containers = kinds, kinds.layers, kinds.containers
        self.large: dict[int, list[int]] = {}
        self.stages: dict[int, list[int]] = {}
        self.blocks: dict[int, list[int]] = {}
        self.repeated: dict[int, int] = {}  # how many blocks there are in and below it
        self.others: dict[int, int] = {}  # how many large modules beside these
        self.rows: dict[int, bool] = {}  # the modules that can be stages, and whether there is a run in them
        self.staged: set[int] = set()  # those that have stages in or below them
        for index in sorted(kinds.walk.children, reverse=True):
            large = kinds.large_children(index, least)
            if large:
                self.large[index] = large
                self._find_stages_and_blocks(index, large)
                self._count(index, large)
                self._find_row(index, large)

    def levels(self) -> list[str]:
        """The level of each module."""
        levels = [OP] * len(self._kinds.kinds)
        trunk = [0]
        passed: list[int] = []
        while trunk:
            index = trunk.pop()
            levels[index] = MODEL
            passed.append(index)
            stages, blocks = self.stages.get(index, []), self.blocks.get(index, [])
            for stage in stages:
                levels[stage] = STAGE
            for block in (*blocks, *(member for stage in stages for member in self._members(stage))):
                levels[block] = BLOCK
            trunk.extend(
                child for child in self.large.get(index, ()) if levels[child] == OP and self._is_on_trunk(index, child)
            )
        self._add_single(levels, passed)
        return levels

    def _add_single(self, levels: list[str], trunk: Iterable[int]) -> None:
        """Makes a module on the trunk a block if it is alike with blocks of stages, as the middle of a U-Net."""
        kinds = self._kinds.kinds
        known = {kinds[index] for index, level in enumerate(levels) if level == BLOCK}
        for index in trunk:
            for child in self.large.get(index, ()):
                if levels[child] == OP and child not in self._containers and kinds[child] in known:
                    levels[child] = BLOCK

    def _is_on_trunk(self, index: int, child: int) -> bool:
        """True if the trunk continues from a module to a child that is neither a stage nor a block."""
        beside = index in self.stages or index in self.blocks
        return child in self.staged if beside else bool(self.repeated.get(child))

    def _find_stages_and_blocks(self, index: int, large: list[int]) -> None:
        """The stages and blocks among the large children of a module."""
        if len(large) == 1:
            if self._is_stage_alone(large[0]):
                self.stages[index] = large
            return
        alike: dict[int, list[int]] = {}
        for child in large:
            alike.setdefault(self._kinds.kinds[child], []).append(child)
        is_container = index in self._containers
        fewest = max(self._all_layers(run) for run in alike.values()) / MAX_LAYER_RATIO
        stages: list[int] = []
        blocks: list[int] = []
        for run in alike.values():
            if len(run) == 1:
                stages += filter(self._is_stage_alone, run)
            elif any(self.rows.get(child) or self._is_list_of_blocks(child) for child in run):
                stages += run
            elif self._all_layers(run) >= fewest and self._are_blocks(run, is_container):
                blocks += run
        if stages and is_container:
            stages += [child for child in large if child in self.rows and child not in {*stages, *blocks}]
        elif blocks:
            blocks += self._between(blocks, large)
        if stages:
            self.stages[index] = stages
        if blocks:
            self.blocks[index] = blocks

    def _is_stage_alone(self, index: int) -> bool:
        return bool(self.rows.get(index)) and index in self._containers

    def _is_list_of_blocks(self, index: int) -> bool:
        return index in self.rows and bool(self._containers.get(index))

    def _are_blocks(self, run: list[int], in_container: bool) -> bool:
        """True if the members of a run are neither lists nor whole networks; see *model* at the head of this file."""
        if self._containers.get(run[0]):
            return False
        most = max(self.repeated.get(child, 0) for child in run)
        return most <= len(run) or (in_container and any(self.others.get(child) for child in run))

    def _between(self, blocks: list[int], large: list[int]) -> list[int]:
        """Returns the modules between blocks that have no stages and consist of the same classes as the blocks."""
        first, last, known = min(blocks), max(blocks), set(blocks)
        between = [c for c in large if first < c < last and c not in known and c not in self.staged]
        if not between:
            return []
        parts = self._parts(blocks)
        return [child for child in between if self._parts([child]) <= parts]

    def _parts(self, indices: Iterable[int]) -> set[int]:
        kinds = self._kinds
        return {kinds.kinds[part] for index in indices for part in kinds.children(index)}

    def _count(self, index: int, large: list[int]) -> None:
        stages, blocks = set(self.stages.get(index, ())), set(self.blocks.get(index, ()))
        repeated, others = len(blocks), 0
        for child in large:
            if child in stages:
                repeated += len(self._members(child))
            elif child not in blocks:
                inside = self.repeated.get(child, 0)
                repeated += inside
                others += self.others.get(child, 0) if inside else 1
        self.repeated[index], self.others[index] = repeated, others
        if stages or not self.staged.isdisjoint(large):
            self.staged.add(index)

    def _find_row(self, index: int, large: list[int]) -> None:
        if index in self._containers:
            blocks = self.blocks.get(index, ())
            if index in self.stages:
                return
            if blocks and self._layers_beside(index, blocks) <= MAX_LAYERS_BESIDE:
                self.rows[index] = True
            elif self._layers_beside(index, large) <= MAX_LAYERS_BESIDE:
                self.rows[index] = False
        elif self._layers_beside(index, large) <= MAX_LAYERS_BESIDE and all(
            child in self.rows and child in self._containers for child in large
        ):
            self.rows[index] = any(self.rows[child] for child in large)

    def _members(self, stage: int) -> list[int]:
        """The blocks in a stage."""
        large = self.large.get(stage, [])
        if stage in self._containers:
            return large
        return [block for row in large for block in (self.large.get(row, ()) if row in self.rows else (row,))]

    def _layers_beside(self, index: int, inside: Iterable[int]) -> int:
        return self._layers[index] - self._all_layers(inside)

    def _all_layers(self, indices: Iterable[int]) -> int:
        return sum(self._layers[index] for index in indices)


def _is_layer(state: Attributes) -> int:
    """Returns 1 if a module itself has a weight of two or more dimensions, else 0."""
    parameters = state.get(PARAMETERS)
    if parameters:
        first = next(iter(parameters.values()))
        if type(first) is nn.Parameter and first.dim() > 1:  # as in most layers: the rest takes its time
            return 1
    for own in direct_tensors(state):
        if own.role == "parameter" and own.tensor is not None and len(shape_of(own.tensor)) > 1:
            return 1
    return 0


def _levels_without_repetition(kinds: ModuleKinds) -> list[str]:
    """The levels of a model in which nothing repeats."""
    children, layers = kinds.walk.children, kinds.layers
    levels = [OP] * len(kinds.kinds)
    trunk = [0]
    while trunk:
        index = trunk.pop()
        levels[index] = MODEL
        for child in kinds.children(index):
            inside = children.get(child)
            if inside:
                leaves = [c for c in inside if not children.get(c) and (layers[c] or not layers[child])]
                if leaves:
                    levels[child] = STAGE
                else:
                    trunk.append(child)
    return levels
