"""Trace and largest eigenvalue against exact Hessians; what is measured stays as it was."""

from __future__ import annotations

import gc
import math
import random
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.monitoring.hessian import HessianError, hessian


def of_spectrum(values: Sequence[float], seed: int = 0) -> np.ndarray:
    """A symmetric matrix with these eigenvalues."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))
    return basis @ np.diag(values) @ basis.T


def quadratic(matrix: np.ndarray, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, nn.Parameter]:
    x = nn.Parameter(torch.randn(len(matrix), generator=torch.Generator().manual_seed(5)).to(dtype))
    return 0.5 * x @ torch.from_numpy(matrix).to(dtype) @ x, x


def deviation(matrix: np.ndarray, samples: int) -> float:
    """Of Hutchinson's estimate with signs: Var = 2 Σ_{i≠j} H_ij² / samples."""
    apart = matrix - np.diag(np.diag(matrix))
    return math.sqrt(2 * (apart**2).sum() / samples)


SPECTRA = {
    "positive": [9.0, 4.0, 2.0, 1.0, 0.5],
    "larger negative": [-20.0, 3.0, 1.0, 0.5, -2.0],
    "all negative": [-8.0, -4.0, -2.0, -1.0, -0.5],
    "both signs alike": [5.0, -5.0, 1.0, 0.0, 0.0],
    "twice the largest": [3.0, 3.0, -1.0, 0.5, 0.1],
    "all alike": [2.0] * 5,
    "none": [0.0] * 5,
}


@pytest.mark.parametrize("name", SPECTRA)
def test_quadratics_of_known_spectrum(name: str) -> None:
    matrix = of_spectrum(SPECTRA[name])
    loss, x = quadratic(matrix)
    found = hessian(loss, {"x": [x]}, samples=200, iterations=300)["x"]
    assert found["HessianMaxEig"] == pytest.approx(max(SPECTRA[name]), rel=1e-5, abs=1e-9)
    assert found["HessianMaxEig"] <= max(SPECTRA[name]) + 1e-12
    assert abs(found["HessianTrace"] - sum(SPECTRA[name])) <= 4 * deviation(matrix, 200) + 1e-9


def test_the_trace_of_a_diagonal_needs_one_sample_and_more_samples_help() -> None:
    loss, x = quadratic(np.diag([1.0, -2.0, 7.0]))
    assert hessian(loss, {"": [x]}, samples=1)[""]["HessianTrace"] == pytest.approx(6, abs=1e-12)
    matrix = of_spectrum(np.linspace(0, 4, 40).tolist())
    loss, x = quadratic(matrix)
    runs = [[hessian(loss, {"": [x]}, n, 1, seed)[""]["HessianTrace"] for seed in range(60)] for n in (2, 32)]
    for samples, values in zip((2, 32), runs, strict=True):
        errors = np.array(values) - np.trace(matrix)
        assert abs(errors.mean()) < 4 * deviation(matrix, samples) / math.sqrt(60)
        # the variance of 60 values is known to 18 %: four times that
        assert errors.std() == pytest.approx(deviation(matrix, samples), rel=0.4)


def exact_blocks(model: nn.Module, loss_of: Any, blocks: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """The Hessian along the parameters of each block, by torch.func."""
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    found = {}
    for block, names in blocks.items():

        def of(flat: torch.Tensor, names: list[str] = names) -> torch.Tensor:
            parts = flat.split([state[name].numel() for name in names])
            changed = {name: part.view_as(state[name]) for name, part in zip(names, parts, strict=True)}
            return loss_of(torch.func.functional_call(model, {**state, **changed}, (X,)))

        flat = torch.cat([state[name].flatten() for name in names])
        found[block] = torch.autograd.functional.hessian(of, flat).numpy()
    return found


X = torch.randn(16, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.arange(16) % 3


def small_net() -> nn.Module:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 2, 3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 5),
        nn.BatchNorm1d(5),
        nn.GELU(),
        nn.Linear(5, 3),
    ]
    return nn.Sequential(*layers).double()


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, LABELS)


def blocks_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    parts = ((name, list(module.parameters(recurse=False))) for name, module in model.named_modules())
    return {name: parameters for name, parameters in parts if parameters}


def test_small_nets_against_exact_hessians() -> None:
    model = small_net()
    names = {block: [f"{block}.weight", f"{block}.bias"] for block in ("0", "3", "4", "6")}
    exact = exact_blocks(model, loss_of, names)
    found = hessian(loss_of(model(X)), blocks_of(model), samples=100, iterations=500)
    assert list(found) == list(exact)
    for name, matrix in exact.items():
        top = np.linalg.eigvalsh(matrix)[-1]
        assert abs(found[name]["HessianTrace"] - np.trace(matrix)) < 4 * deviation(matrix, 100) + 1e-9, name
        assert found[name]["HessianMaxEig"] == pytest.approx(top, rel=1e-3), name
        assert found[name]["HessianMaxEig"] <= top * (1 + 1e-9), name


def test_the_block_runs_over_all_parameters_given() -> None:
    model = small_net()
    names = [name for name, _ in model.named_parameters()]
    matrix = exact_blocks(model, loss_of, {"": names})[""]
    found = hessian(loss_of(model(X)), {"": list(model.parameters())}, samples=50, iterations=500)[""]
    assert found["HessianMaxEig"] == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-3)
    assert abs(found["HessianTrace"] - np.trace(matrix)) < 4 * deviation(matrix, 50)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03), (torch.float16, 0.01)])
def test_low_precision(dtype: torch.dtype, tolerance: float) -> None:
    loss, x = quadratic(of_spectrum([9.0, 4.0, 2.0, -1.0]), dtype)
    found = hessian(loss, {"x": [x]}, samples=64, iterations=100)["x"]
    assert found["HessianMaxEig"] == pytest.approx(9, rel=tolerance)


# ------------------------------------------------------------ what stays


def test_nothing_is_touched_and_backward_still_runs() -> None:
    def trained(ask: bool) -> list[Any]:
        model = small_net()
        model.append(nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model[0].weight.grad = kept = torch.full_like(model[0].weight, 3)
        for _ in range(2):
            loss = loss_of(model(X))
            if ask:
                before = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]
                gradients = [parameter.grad for parameter in model.parameters()]
                assert hessian(loss, blocks_of(model), samples=2, iterations=2).keys() == blocks_of(model).keys()
                assert before == [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]
                assert all(p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True))
            loss.backward()
            optimizer.step()
        assert model[0].weight.grad is kept
        return [*model.state_dict().values(), *(p.grad for p in model.parameters()), torch.get_rng_state()]

    assert all(torch.equal(mine, theirs) for mine, theirs in zip(trained(True), trained(False), strict=True))


@pytest.mark.slow
def test_nothing_is_kept() -> None:
    model = small_net()
    hidden = model[:2](X)
    held = weakref.ref(hidden)
    loss = loss_of(model[2:](hidden))
    hessian(loss, blocks_of(model), samples=1, iterations=1)
    del hidden, loss
    gc.collect()
    assert held() is None


def test_a_seed_gives_the_same_and_modules_do_not_sway_each_other() -> None:
    model = small_net()
    blocks = blocks_of(model)
    loss = loss_of(model(X))
    whole = hessian(loss, blocks, samples=3, iterations=3)
    assert hessian(loss, {"6": blocks["6"]}, samples=3, iterations=3)["6"] == whole["6"]
    assert hessian(loss, blocks, samples=3, iterations=3, seed=1)["6"] != whole["6"]
    with torch.no_grad():
        assert hessian(loss, blocks, samples=3, iterations=3) == whole


def test_frozen_unused_linear_and_tied_parameters() -> None:
    torch.manual_seed(0)
    frozen, unused, linear, tied = (nn.Linear(3, 3).double() for _ in range(4))
    frozen.requires_grad_(False)
    x = torch.randn(5, 3, dtype=torch.float64)
    loss = frozen(x).square().mean() + linear(x).mean() + tied(x).square().sum()
    modules = {"frozen": frozen, "unused": unused, "linear": linear, "tied": tied}
    blocks: dict[str, list[torch.Tensor]] = {name: list(module.parameters()) for name, module in modules.items()}
    blocks["tied"] += [tied.weight, unused.bias]
    blocks["none"] = []
    found = hessian(loss, blocks, samples=400, iterations=300)
    for name in ("frozen", "unused", "none"):
        assert all(math.isnan(value) for value in found[name].values()), name
    assert found["linear"] == {"HessianTrace": 0, "HessianMaxEig": 0}
    columns = np.concatenate([x.numpy(), np.ones((5, 1))], 1)
    matrix = np.kron(2 * columns.T @ columns, np.eye(3))
    assert abs(found["tied"]["HessianTrace"] - np.trace(matrix)) < 4 * deviation(matrix, 400)
    assert found["tied"]["HessianMaxEig"] == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-5)


def test_what_is_not_finite_shows() -> None:
    x = nn.Parameter(torch.tensor([1.0, math.nan]))
    found = hessian((x**4).sum(), {"x": [x]})["x"]
    assert all(math.isnan(value) for value in found.values())


# ------------------------------------------------------------ bad input


def test_losses_that_have_no_hessian() -> None:
    x = nn.Parameter(torch.ones(3))
    cases: list[tuple[Any, str]] = [
        (3.0, "float, no tensor"),
        (x * 2, r"shape \[3\]"),
        (x.detach().sum(), "no graph"),
        (torch.tensor(1.0), "no graph"),
        ((x * 1j).sum(), "complex64"),
    ]
    for loss, message in cases:
        with pytest.raises(HessianError, match=message):
            hessian(loss, {"x": [x]})
    assert issubclass(HessianError, ModuleKGError)
    assert issubclass(HessianError, ValueError)


def test_counts_and_parameters_are_checked() -> None:
    x = nn.Parameter(torch.ones(3))
    loss = (x**2).sum()
    for how in ({"samples": 0}, {"iterations": -1}, {"samples": 2.5}, {"iterations": True}):
        with pytest.raises(HessianError, match="whole number"):
            hessian(loss, {"x": [x]}, **how)  # type: ignore[arg-type]
    with pytest.raises(HessianError, match="'x' has a str"):
        hessian(loss, {"x": ["weight"]})  # type: ignore[list-item]


def test_a_graph_that_is_gone() -> None:
    x = nn.Parameter(torch.ones(3))
    loss = (x**3).sum()
    loss.backward()
    with pytest.raises(HessianError, match=r"before loss.backward\(\)"):
        hessian(loss, {"x": [x]})


def test_fused_attention_is_refused_with_advice_and_runs_with_it() -> None:
    linear = nn.Linear(8, 8)
    x = torch.randn(2, 2, 5, 8)

    def loss() -> torch.Tensor:
        return F.scaled_dot_product_attention(linear(x), x, x).square().mean()

    with pytest.raises(HessianError, match=r"SDPBackend\.MATH"):
        hessian(loss(), {"linear": list(linear.parameters())})
    with sdpa_kernel(SDPBackend.MATH):
        found = hessian(loss(), {"linear": list(linear.parameters())})
    assert 0 < found["linear"]["HessianMaxEig"] < 1
