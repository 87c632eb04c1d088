"""Distillation: outputs and features at the kept indices, without projections."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from models.residual import ResidualMLP
from modulekg_widgets.engine.errors import CutError, UnknownPathError


class Blocks(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(3)]
        )
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def cut_pair(ratio: float = 0.5) -> tuple[nn.Module, nn.Module, mk.Receipt, torch.Tensor]:
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(4, 3, 6, 6)
    teacher = copy.deepcopy(model)
    return teacher, model, mk.plan(mk.trace(model, x), ratio=ratio).cut(model), x


def test_the_loss_is_the_divergence_and_the_features_at_the_kept_indices() -> None:
    teacher, student, receipt, x = cut_pair()
    loss = mk.pruning.Distillation(teacher, receipt, temperature=3.0, features="blocks.1", weight=0.5)(student, x)
    with torch.no_grad():
        ours, theirs = F.log_softmax(student(x) / 3, -1), F.log_softmax(teacher(x) / 3, -1)
        outputs = 9 * (theirs.exp() * (theirs - ours)).sum(-1).mean()
        kept = next(edit.kept[0] for edit in receipt.edits.tensors if "blocks.1.0.weight" in edit.names)
        found = student.blocks[:2](student.stem(x))
        expected = teacher.blocks[:2](teacher.stem(x))[:, kept.tolist()]
        features = (found - expected).square().mean() / expected.var(correction=0)
    assert float(loss.detach()) == pytest.approx(float(outputs + 0.5 * features), rel=1e-5)


def test_repeated_modules_are_compared_by_default() -> None:
    teacher, student, receipt, x = cut_pair()
    distill = mk.pruning.Distillation(teacher, receipt)
    distill(student, x)
    assert "features of 3 modules" in repr(distill)
    assert "outputs alone" in repr_after(mk.pruning.Distillation(teacher, receipt, features=False), student, x)


def tower() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 16), nn.Sequential(*(ResidualMLP(16, 32) for _ in range(4))), nn.Linear(16, 5))


@pytest.mark.parametrize("widths", [{}, {"per_axis": {("1.2.up.weight", 0): [5]}}], ids=["blocks", "blocks and widths"])
@pytest.mark.parametrize("features", [True, "1.2", ["1.1", "1.3"], "1.*", False], ids=str)
def test_what_moves_up_behind_a_removed_block_is_compared_with_what_it_was(
    widths: dict[str, object], features: bool | str | list[str]
) -> None:
    torch.manual_seed(0)
    model, x = tower().eval(), torch.randn(8, 10)
    with torch.no_grad():
        model[1][0].down.weight.zero_()  # the block that goes does nothing
        model[1][0].down.bias.zero_()
        model[1][2].down.weight[:, 5] = 0  # nor does the index
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), blocks=["1.0"], **widths).cut(model)
    assert len(model[1]) == 3
    distill = mk.pruning.Distillation(teacher, receipt, features=features)
    assert float(distill(model, x).detach()) == pytest.approx(0, abs=1e-9)
    with torch.no_grad():
        model[1][1].down.bias += 1  # the teacher's 1.2
    alone = mk.pruning.Distillation(teacher, receipt, features=False)
    assert (distill(model, x) - alone(model, x) > 1e-3) == (features is not False)


def test_a_teacher_without_the_block_that_the_cut_removed_is_named() -> None:
    torch.manual_seed(0)
    model, x = tower().eval(), torch.randn(8, 10)
    receipt = mk.plan(mk.trace(model, x), blocks=["1.3"]).cut(model)
    with pytest.raises(CutError, match=r"no module '1.3'"):
        mk.pruning.Distillation(copy.deepcopy(model), receipt)


class Counted(nn.Module):
    """Counts its calls and keeps a mean, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.calls: torch.Tensor
        self.mean: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.hidden(x).relu()
        self.calls += 1
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.head(x - self.mean)


def test_a_teacher_whose_forward_writes_is_not_written_to() -> None:
    torch.manual_seed(0)
    model, x = Counted().eval(), torch.randn(6, 4)
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    distill = mk.pruning.Distillation(teacher, receipt)
    first = float(mk.pruning.Distillation(teacher, receipt)(copy.deepcopy(model), x).detach())
    for _ in range(3):  # each with the teacher's statistics as they are
        assert float(distill(copy.deepcopy(model), x).detach()) == first
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_batch_that_is_refused_leaves_the_student_alone(value: float) -> None:
    teacher, student, receipt, x = cut_pair()
    student.train()
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    with pytest.raises(CutError, match="not finite"):
        mk.pruning.Distillation(teacher, receipt, features=False)(student, torch.full_like(x, value))
    assert all(torch.equal(before[name], tensor) for name, tensor in student.state_dict().items())


def repr_after(distill: mk.pruning.Distillation, student: nn.Module, x: torch.Tensor) -> str:
    distill(student, x)
    return repr(distill)


def test_a_model_that_was_cut_nowhere_that_matters_has_no_loss() -> None:
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(4, 3, 6, 6)
    with torch.no_grad():
        model.blocks[2][0].weight[:, 3] = 0  # nobody reads index 3 of the axis before
        model.blocks[1][1].weight[3] = 0
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), per_axis={("blocks.1.0.weight", 0): [3]}).cut(model)
    assert float(mk.pruning.Distillation(teacher, receipt)(model, x).detach()) == pytest.approx(0, abs=1e-10)


def test_training_with_it_brings_the_student_back_and_leaves_the_teacher_alone() -> None:
    teacher, student, receipt, x = cut_pair(0.25)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    modes = [module.training for module in teacher.train().modules()]
    distill = mk.pruning.Distillation(teacher, receipt)
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = distill(student, (x, torch.zeros(4)))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 * losses[0]
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert [module.training for module in teacher.modules()] == modes
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert not any(module._forward_hooks for module in (*student.modules(), *teacher.modules()))


class Both(nn.Module):
    """What a language model gives: a mapping with logits, from keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(11, 8), nn.Linear(8, 12), nn.Linear(12, 11)

    def forward(self, ids: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.inner(self.embed(ids))) * scale
        return {"logits": self.head(hidden), "hidden": hidden}


def test_keywords_and_functions_of_both_outputs() -> None:
    torch.manual_seed(0)
    model, batch = Both(), {"ids": torch.randint(0, 11, (2, 5)), "scale": 0.5}
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, (), batch, outputs=["logits"]), ratio=0.5).cut(model)
    distill = mk.pruning.Distillation(
        teacher, receipt, features=["inner"], outputs=lambda ours, theirs: F.mse_loss(ours["logits"], theirs["logits"])
    )
    assert float(distill(model, batch).detach()) > 0
    with pytest.raises(CutError, match="pass outputs="):
        mk.pruning.Distillation(teacher, receipt)(model, batch)


@pytest.mark.parametrize("squeezes", [False, True])
def test_one_number_a_sample_is_no_distribution(squeezes: bool) -> None:
    """Over a single class each distribution is the same, and over the samples there is none."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1)), torch.randn(6, 4)
    if squeezes:
        model.append(nn.Flatten(0))
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    loss = mk.pruning.Distillation(teacher, receipt, features=False)(model, x)
    expected = teacher(x).detach()
    wanted = (model(x) - expected).square().mean() / expected.var(correction=0)
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    with pytest.raises(CutError, match="pass outputs='mse'"):
        mk.pruning.Distillation(teacher, receipt, outputs="kl")(model, x)


def test_a_teacher_of_the_same_shapes_is_known_by_its_weights() -> None:
    """Indices of another training are other features; an average, a lower precision or more training are none."""

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 3)).eval()

    student, x = made(0), torch.randn(6, 16)
    teacher = copy.deepcopy(student)
    receipt = mk.plan(mk.trace(student, x), ratio=0.5).cut(student)
    for other in (made(1), made(2)):
        with pytest.raises(CutError, match=r"nor near them.*features=False"):
            mk.pruning.Distillation(other, receipt)
        assert mk.pruning.Distillation(other, receipt, features=False)(student, x) > 0
    trained = copy.deepcopy(teacher)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter += torch.randn_like(parameter) * parameter.std(correction=0)  # as far from it as it is long
    for known in (teacher, copy.deepcopy(teacher).half(), trained):
        mk.pruning.Distillation(known, receipt)
    mk.pruning.Distillation(trained.float(), receipt)(student, x).backward()
    receipt.undo()
    mk.pruning.Distillation(made(1), receipt)  # what it was is no longer known


@pytest.mark.parametrize("undo", [True, False])
@pytest.mark.parametrize("width", [4, 8, 64])
def test_a_small_teacher_of_another_training_is_known_as_well(width: int, undo: bool) -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3)).eval()

    student, x = made(0), torch.randn(6, 6)
    teacher = copy.deepcopy(student)
    receipt = mk.plan(mk.trace(student, x), ratio=0.5).cut(student, undo=undo)
    mk.pruning.Distillation(teacher, receipt)
    for seed in range(1, 30):
        with pytest.raises(CutError, match="nor near them"):
            mk.pruning.Distillation(made(seed), receipt)


@pytest.mark.parametrize("outputs", ["auto", lambda ours, theirs: (ours - theirs).square().mean()])
@pytest.mark.parametrize("who", ["student", "teacher"])
def test_a_loss_that_is_not_finite_is_named(who: str, outputs: object) -> None:
    teacher, student, receipt, x = cut_pair()
    with torch.no_grad():
        (student if who == "student" else teacher).head.bias[0] = float("nan")
    distill = mk.pruning.Distillation(teacher, receipt, outputs=outputs)  # type: ignore[arg-type]
    with pytest.raises(CutError, match=f"not finite|look at the weights of the {who}"):
        distill(student, x)


def test_bad_input_is_named_before_anything_runs() -> None:
    teacher, student, receipt, x = cut_pair()
    other = Blocks(6)
    for wrong, words in [
        (lambda: mk.pruning.Distillation(student, receipt), "uncut model that the receipt came from"),
        (lambda: mk.pruning.Distillation(other, receipt), "uncut model that the receipt came from"),
        (lambda: mk.pruning.Distillation(nn.Linear(2, 2), receipt), "none of the tensors"),
        (lambda: mk.pruning.Distillation(teacher, "receipt"), "what plan.cut"),  # type: ignore[arg-type]
        (lambda: mk.pruning.Distillation("teacher"), "nn.Module"),  # type: ignore[arg-type]
        (lambda: mk.pruning.Distillation(teacher, receipt, temperature=0), "temperature"),
        (lambda: mk.pruning.Distillation(teacher, receipt, outputs="cosine"), "outputs"),
        (lambda: mk.pruning.Distillation(teacher, receipt, features=None), "features=None"),  # type: ignore[arg-type]
        (lambda: mk.pruning.Distillation(teacher, receipt, features=[2]), "paths of modules"),  # type: ignore[list-item]
        (lambda: mk.pruning.Distillation(teacher, receipt, outputs=torch.sub)(student, x), "the shape"),
        (lambda: mk.pruning.Distillation(teacher, receipt)(student, x[:0]), "no samples"),
        (lambda: mk.pruning.Distillation(teacher, receipt)(student, torch.zeros(2, 4)), "does not go through"),
        (lambda: mk.pruning.Distillation(teacher, receipt)(teacher, x), "kept indices"),
        (lambda: mk.pruning.Distillation(teacher, receipt)("student", x), "the student is a str"),  # type: ignore[arg-type]
        (lambda: mk.pruning.Distillation(teacher, receipt)(student, x * float("nan")), "not finite"),
    ]:
        with pytest.raises(CutError, match=words):
            wrong()
    with pytest.raises(UnknownPathError):
        mk.pruning.Distillation(teacher, receipt, features="no.such")(student, x)


# ------------------------------------------------------------------ probabilities, and modules that run more than once


class PerWindow(nn.Module):
    """A small net over windows of a signal: a score for each."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 12), nn.ReLU()), nn.Linear(12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.sigmoid(self.head(self.body(part))) for part in x.split(4, 1)], 1)


def scorer(ratio: float = 0.5) -> tuple[PerWindow, PerWindow, mk.Receipt, torch.Tensor]:
    torch.manual_seed(0)
    model, x = PerWindow(), torch.randn(16, 12)
    teacher = copy.deepcopy(model)
    return teacher, model, mk.plan(mk.trace(model, x), ratio=ratio).cut(model), x


def test_scores_of_their_own_are_compared_one_by_one() -> None:
    """A softmax over them is blind to what they have in common."""
    teacher, student, receipt, x = scorer()
    distill = mk.pruning.Distillation(teacher, receipt, features=False, temperature=1.0)
    before = float(distill(student, x).detach())
    ours, theirs = student(x).detach().double(), teacher(x).detach().double()
    expected = F.binary_cross_entropy(ours, theirs) - F.binary_cross_entropy(theirs, theirs)
    assert before == pytest.approx(float(expected), rel=1e-3, abs=1e-7)
    assert "outputs are probabilities," in repr(distill) or "outputs are probabilities>" in repr(distill)
    with torch.no_grad():
        student.head.bias += 4
    assert float(distill(student, x).detach()) > before + 0.3


@pytest.mark.parametrize("outputs", ["auto", "kl"])
@pytest.mark.parametrize(
    "last",
    [nn.Softmax(-1), nn.LogSoftmax(-1), nn.Sequential(nn.Softmax(-1), nn.Identity())],
    ids=["p", "log p", "late"],
)
def test_probabilities_of_a_choice_are_worth_their_logits(last: nn.Module, outputs: str) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 5)), torch.randn(6, 4)
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    logits = float(mk.pruning.Distillation(teacher, receipt, features=False)(model, x).detach())
    distill = mk.pruning.Distillation(nn.Sequential(*teacher, last), None, outputs=outputs)
    found = distill(nn.Sequential(*model, last), x)
    assert float(found.detach()) == pytest.approx(logits, rel=1e-3)
    found.backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


def test_probabilities_over_positions_have_their_classes_where_they_add_up() -> None:
    torch.manual_seed(0)
    logits = [nn.Parameter(torch.randn(2, 5, 7)) for _ in range(2)]

    class Given(nn.Module):
        def __init__(self, at: int, dim: int | None) -> None:
            super().__init__()
            self.logits, self.dim = logits[at], dim

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            moved = self.logits if self.dim is not None else self.logits.transpose(1, 2)
            return moved if self.dim is None else moved.softmax(self.dim)

    x = torch.zeros(1)
    wanted = mk.pruning.Distillation(Given(0, None))(Given(1, None), x)  # classes last
    assert float(mk.pruning.Distillation(Given(0, 1))(Given(1, 1), x).detach()) == pytest.approx(
        float(wanted.detach()), rel=1e-4
    )


def test_logits_that_happen_to_be_between_0_and_1_are_logits_again() -> None:
    class Given(nn.Module):
        def __init__(self, values: torch.Tensor) -> None:
            super().__init__()
            self.values = nn.Parameter(values)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.values * x

    teacher, student = Given(torch.tensor([[0.2, 0.9, 0.4]])), Given(torch.tensor([[0.3, -0.8, 0.5]]))
    distill = mk.pruning.Distillation(teacher, temperature=1.0)
    p, q = teacher.values.softmax(-1), student.values.softmax(-1)
    assert float(distill(student, torch.ones(1)).detach()) == pytest.approx(float((p * (p / q).log()).sum()), rel=1e-4)
    assert "probabilities" not in repr(distill)


def test_all_calls_of_a_module_are_compared() -> None:
    teacher, student, receipt, x = scorer()
    distill = mk.pruning.Distillation(teacher, receipt, features=["body.0", "head"])
    alone = mk.pruning.Distillation(teacher, receipt, features=False)
    found = float((distill(student, x) - alone(student, x)).detach())
    kept = next(edit.kept[0] for edit in receipt.edits.tensors if "body.0.weight" in edit.names).tolist()
    parts = []
    with torch.no_grad():
        for part in x.split(4, 1):
            for ours, theirs in (
                (student.body[0](part), teacher.body[0](part)[:, kept]),
                (student.head(student.body(part)), teacher.head(teacher.body(part))),
            ):
                parts.append((ours - theirs).square().mean() / theirs.var(correction=0))
    assert found == pytest.approx(float(torch.stack(parts).mean()), rel=1e-4)
    assert "features of 2 modules" in repr(distill)
    distill(student, torch.randn(16, 20))  # five windows instead of three: all calls lost the same


def test_calls_that_cannot_be_paired_are_named() -> None:
    teacher, student, receipt, x = scorer()
    distill = mk.pruning.Distillation(teacher, receipt, features=["head"])
    distill(student, x)
    student.forward = lambda x: torch.sigmoid(student.head(student.body(x[:, :4]))).repeat(1, 3)  # type: ignore[method-assign]
    with pytest.raises(CutError, match="'head' runs 3 times in the teacher, 1 times in the student"):
        distill(student, x)


def test_a_module_without_numbers_to_compare_is_named() -> None:
    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x > 0).long()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.count, self.b = nn.Linear(4, 8), Counting(), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.a(x)
            return self.b(h) + self.count(x).sum()

    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 4)
    teacher = copy.deepcopy(model)
    receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    with pytest.raises(CutError, match="'count' gives no floating-point tensor"):
        mk.pruning.Distillation(teacher, receipt, features=["count"])(model, x)
