"""State that follows from a weight, as u and v of spectral norms: renewed by a cut, byte for byte back by undo."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.cut.derived_state import singular_vectors
from pruning.battery import differs, state_of


def old_spectral_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.spectral_norm(module)


class PowerIteration(nn.Module):
    """A spectral norm of one's own, with one vector of state."""

    def __init__(self, height: int) -> None:
        super().__init__()
        self.register_buffer("left", nn.functional.normalize(torch.randn(height), dim=0))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        matrix = weight.flatten(1)
        if self.training:
            with torch.no_grad():
                right = nn.functional.normalize(matrix.T @ self.left, dim=0)
                self.left.copy_(nn.functional.normalize(matrix @ right, dim=0))
        left = self.left.clone()
        return weight / (left @ (matrix @ nn.functional.normalize(matrix.T @ left, dim=0)))


def own_spectral_norm(module: nn.Module) -> nn.Module:
    parametrize.register_parametrization(module, "weight", PowerIteration(module.weight.shape[0]))
    return module


class Critic(nn.Module):
    """As a network of a GAN that judges."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = parametrizations.spectral_norm(nn.Linear(4, 32))
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(x).relu())


WRAPPERS = pytest.mark.parametrize("wrap", [parametrizations.spectral_norm, old_spectral_norm, own_spectral_norm])
X = torch.randn(32, 4, 16, generator=torch.Generator().manual_seed(0))


def net(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        wrap(nn.Conv1d(4, 32, 3, padding=1)), nn.ReLU(), wrap(nn.Conv1d(32, 32, 3, padding=1)), nn.ReLU(),
        wrap(nn.Conv1d(32, 16, 3, padding=1)), nn.ReLU(), nn.Conv1d(16, 3, 1),
    )  # fmt: skip
    with torch.no_grad():
        for _ in range(100):
            model(X)
    return model.eval()


def norms(model: nn.Module) -> list[float]:
    """The largest singular values of the weights that a forward pass in eval mode uses."""
    with torch.no_grad():
        model(X)
        return [torch.linalg.matrix_norm(model[at].weight.flatten(1), 2).item() for at in (0, 2, 4)]


@WRAPPERS
def test_weights_have_norm_one_in_eval_after_a_cut(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = net(wrap)
    assert norms(model) == pytest.approx([1, 1, 1], abs=1e-4)
    before = state_of(model)
    plan = mk.plan(mk.trace(model, X[:1]), ratio=0.5)
    receipt = plan.cut(model, recalibrate=[X])
    assert norms(model) == pytest.approx([1, 1, 1], abs=1e-4)
    output = model(X)
    trained = copy.deepcopy(model) if wrap is not old_spectral_norm else model
    with torch.no_grad():
        for _ in range(100):
            trained.train()(X)
        assert torch.allclose(trained.eval()(X), output, rtol=1e-3, atol=1e-4)  # where train mode leads anyway
    receipt.undo()
    norms(model)
    assert not differs(before, state_of(model))


@WRAPPERS
def test_what_was_trained_since_is_renewed_when_slices_come_back(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = net(wrap)
    plan = mk.plan(mk.trace(model, X[:1]), ratio=0.5)
    before = state_of(model)
    plan.cut(model).restore()
    norms(model)
    assert not differs(before, state_of(model))
    receipt = plan.cut(model)
    model.train()(X).square().sum().backward()
    torch.optim.SGD(model.parameters(), 1.0).step()
    model.eval()
    receipt.restore()
    assert norms(model) == pytest.approx([1, 1, 1], abs=1e-4)


@WRAPPERS
def test_averages_of_the_model_are_renewed_by_their_own_weights(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = net(wrap)
    average = {name: value.clone() for name, value in model.state_dict().items()}
    for name, value in average.items():
        if name.endswith(("original", "weight_orig")):
            value.add_(torch.randn_like(value))
    plan = mk.plan(mk.trace(model, X[:1]), ratio=0.5)
    plan.cut(model, copies=[average])
    assert norms(model) == pytest.approx([1, 1, 1], abs=1e-4)
    model.load_state_dict(average)
    assert norms(model) == pytest.approx([1, 1, 1], abs=1e-4)


def test_a_transposed_convolution_is_normalised_along_its_outputs() -> None:
    torch.manual_seed(0)
    wrap = parametrizations.spectral_norm
    model = nn.Sequential(wrap(nn.ConvTranspose1d(4, 24, 3)), nn.ReLU(), wrap(nn.ConvTranspose1d(24, 3, 3))).eval()
    mk.plan(mk.trace(model, X[:1]), ratio=0.5).cut(model)
    for at in (0, 2):
        matrix = model[at].weight.transpose(0, 1).flatten(1)
        assert torch.linalg.matrix_norm(matrix, 2).item() == pytest.approx(1, abs=1e-4)


def test_vectors_that_lose_all_that_they_had_are_found_anew() -> None:
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        model[0].parametrizations.weight.original.copy_(torch.diag(torch.tensor([9.0, 1.0, 2.0, 3.0])))
        for _ in range(60):
            model(torch.randn(2, 4))
    graph = mk.trace(model.eval(), torch.randn(2, 4))
    cut = graph.cut_analysis("0.parametrizations.weight.original", [0])
    mk.plan(graph, cuts=[cut]).cut(model)  # u and v are zero but for the index that goes
    assert torch.linalg.matrix_norm(model[0].weight, 2).item() == pytest.approx(1, abs=1e-5)


def test_a_spectral_norm_on_top_of_a_weight_norm() -> None:
    torch.manual_seed(0)
    layer = parametrizations.spectral_norm(parametrizations.weight_norm(nn.Linear(6, 16)))
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(16, 3)).eval()
    mk.plan(mk.trace(model, torch.randn(2, 6)), ratio=0.5).cut(model)
    assert torch.linalg.matrix_norm(model[0].weight, 2).item() == pytest.approx(1, abs=1e-4)


def test_an_average_of_weights_in_a_parametrization_is_sliced_and_not_renewed() -> None:
    class Average(nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("average", weight.detach() + 1)

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            if self.training:
                with torch.no_grad():
                    self.average.lerp_(weight, 0.1)
            return weight + 0 * self.average

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    parametrize.register_parametrization(model[0], "weight", Average(model[0].weight))
    before = model[0].parametrizations.weight[0].average.clone()
    plan = mk.plan(mk.trace(model, torch.randn(2, 4)), ratio=0.5)
    plan.cut(model)
    kept = [at for at in range(8) if at not in plan.axes[0].dropped]
    assert torch.equal(model[0].parametrizations.weight[0].average, before[kept])


def test_a_folder_of_the_whole_model_holds_renewed_vectors(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Critic().eval()
    plan = mk.plan(mk.trace(model, X[:1, :, 0]), ratio=0.5)
    plan.save_pretrained(model, tmp_path / "folder")
    loaded = mk.load_pretrained(tmp_path / "folder")
    assert loaded.hidden.weight.shape == (16, 4)
    assert torch.linalg.matrix_norm(loaded.hidden.weight, 2).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("shape", [(700, 900), (900, 700), (12, 40), (40, 12)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_singular_vectors_are_those_of_a_decomposition(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=dtype)
    found = singular_vectors(matrix, torch.randn(shape[0], dtype=dtype))
    assert found is not None
    u, v = found
    largest = torch.linalg.matrix_norm(matrix, 2)
    assert torch.vdot(u, matrix @ v).real.item() == pytest.approx(largest.item(), rel=1e-4)
    assert u.norm().item() == pytest.approx(1, abs=1e-5)
    assert singular_vectors(torch.zeros(shape), torch.ones(shape[0])) is None
