"""Plans that were changed since they were saved: refused, or cut as they say; nothing outside of the model changes."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from pruning.battery import differs, state_of
from pruning.plan_mutants import mutant
from pruning.plan_samples import PLANS, planned

# -------------------------------------------------------------------- mutants


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)))


class Harm:
    """A model, the text of a plan for it, and what became of the mutants of that text so far."""

    def __init__(self, name: str, path: Path) -> None:
        model, plan = planned(name)
        self.model, self.path = copy.deepcopy(model), path
        self.original = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
        plan.save(path)
        self.text, self.before = path.read_text(), state_of(self.model)
        self.loaded = self.cut = 0

    def try_one(self, seed: int) -> None:
        self.path.write_bytes(mutant(self.text, seed))
        begin = time.perf_counter()
        with suppress(mk.ModuleKGError):
            plan = mk.load_plan(self.path)
            self.loaded += 1
            assert all((str(plan), plan._repr_html_()))
            assert eval(repr(plan), {"mk": mk}) == plan
            self.cut += self.acted(plan.cut, plan)
            self.acted(plan.mask, plan)
        assert time.perf_counter() - begin < 2, seed

    def acted(self, act: Any, plan: mk.PruningPlan) -> bool:
        """Cut or mask, and undo; whether it could be done at all."""
        try:
            receipt = act(self.model)
        except mk.ModuleKGError:
            assert not differs(self.before, state_of(self.model))
            return False
        if act == plan.cut:
            self.assert_cut_as_it_says(plan)
        receipt.undo()
        assert not differs(self.before, state_of(self.model))
        return True

    def assert_cut_as_it_says(self, plan: mk.PruningPlan) -> None:
        """Every tensor of the plan has the slices that it names, and all the others are as they were."""
        edits = {name: edit for edit in plan.edits.tensors for name in edit.names}
        now = tensors_of(self.model)
        assert set(edits) <= set(now)
        for name, tensor in now.items():
            expected = self.original[name]
            edit = edits.get(name)
            for at, positions in edit.kept.items() if edit else ():
                expected = expected.index_select(at, torch.from_numpy(positions))
            if edit and edit.gain_of:  # which is computed
                assert tensor.shape == expected.shape
            else:
                assert torch.equal(tensor, expected), name
        for path, (_, after) in plan.edits.attributes.items():
            assert attrgetter(path)(self.model) == after, path


@pytest.mark.parametrize("name", ["ratio", "attention", "attributes", "ties"])
def test_mutants(name: str, tmp_path: Path) -> None:
    harm = Harm(name, tmp_path / "plan.json")
    for seed in range(75):
        harm.try_one(seed)
    assert 75 > harm.loaded > harm.cut > 0


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PLANS)
def test_ten_thousand_mutants(name: str, tmp_path: Path) -> None:
    harm = Harm(name, tmp_path / "plan.json")
    for seed in range(1000, 2200):
        harm.try_one(seed)
    assert harm.cut > 50


# ----------------------------------------------------- attributes out of reach


def attribute_file(path: Path, attributes: dict[str, Any]) -> mk.PruningPlan:
    """A plan that somebody made to change attributes and nothing else."""
    made: dict[str, Any] = {"format": "modulekg-plan", "version": 1, "attributes": attributes}
    made |= {name: [] for name in ("axes", "changes", "tensors", "positions")}
    made |= {name: [0, 0] for name in ("params", "flops", "macs")}
    path.write_text(json.dumps(made))
    return mk.load_plan(path)


TOOLS = ModuleType("tools")


def tool() -> None: ...


class Keeper:
    """A class and its objects, with numbers in every place that one can be in."""

    limit = 8

    def __init__(self, inner: Any = None) -> None:
        self.width, self.inner = 8, inner

    def method(self) -> None: ...


class Holds(nn.Module):
    """A model that has hold of much that is not its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.tools, self.tool, self.keeper, self.kind = TOOLS, tool, Keeper(Keeper()), Keeper
        self.method, self.log = Keeper().method, logging.getLogger("held")
        self.__dict__["behind"] = nn.Linear(8, 8)
        self.number, self.flag, self.text = 8, True, "8"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


OUT_OF_REACH = [
    "tools.limit", "tool.limit", "kind.limit", "method.limit", "behind.in_features", "keeper.inner.width", "log.level",
    "keeper.limit", "keeper.method.limit", "layer.weight.limit", "layer._parameters.limit", "log.parent.level",
    "_modules", "training", "flag", "text", "layer.forward.limit", "absent", "absent.number", "layer.absent",
]  # fmt: skip


def numbers_of_others(model: Holds) -> list[Any]:
    """What no plan may change."""
    held = (TOOLS, tool, Keeper.method, model.keeper, model.keeper.inner)
    levels = [logging.root.level, logging.getLogger("held").level]
    return [Keeper.limit, model.__dict__["behind"].in_features, *levels, *(dict(vars(each)) for each in held)]


@pytest.fixture
def holds() -> Iterator[Holds]:
    TOOLS.limit = tool.limit = Keeper.method.limit = 8  # type: ignore[attr-defined]
    logging.getLogger("held").setLevel(8)
    yield Holds()
    logging.getLogger("held").setLevel(logging.NOTSET)
    for each in (TOOLS, tool, Keeper.method):
        del each.limit  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_attributes_out_of_reach(name: str, holds: Holds, tmp_path: Path) -> None:
    before, others = state_of(holds), numbers_of_others(holds)
    for value, after in ((8, 4), (1, 0), (logging.root.level, 4)):
        plan = attribute_file(tmp_path / "plan.json", {name: [value, after]})
        with pytest.raises(mk.ModuleKGError, match="plan"):
            plan.cut(holds)
        assert numbers_of_others(holds) == others
        assert not differs(before, state_of(holds))


@pytest.mark.parametrize("name", ["number", "layer.in_features", "keeper.width"])
def test_attributes_within_reach(name: str, holds: Holds, tmp_path: Path) -> None:
    keeper = holds.keeper
    receipt = attribute_file(tmp_path / "plan.json", {name: [8, 4]}).cut(holds)
    assert attrgetter(name)(holds) == 4
    receipt.undo()
    assert attrgetter(name)(holds) == 8
    assert holds.keeper is keeper


def test_one_attribute_under_two_names_cannot_become_two_numbers(tmp_path: Path) -> None:
    model = copy.deepcopy(planned("ties")[0])
    before = state_of(model)
    plan = attribute_file(tmp_path / "plan.json", {"mix.in_features": [8, 4], "again.in_features": [8, 2]})
    with pytest.raises(mk.ModuleKGError):
        plan.cut(model)
    assert not differs(before, state_of(model))
    plan = attribute_file(tmp_path / "plan.json", {"mix.in_features": [8, 4], "again.in_features": [8, 4]})
    plan.cut(model).undo()
    assert not differs(before, state_of(model))
