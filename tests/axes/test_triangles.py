"""Operators that read one triangle of a matrix: its rows and columns are one axis, free where it is symmetric."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk
from checks.axes import proved
from models import seeded
from modulekg_widgets.engine.operators.traits import operators_with

READERS = operators_with("triangle")
# how a schema says that one triangle is read
SAYS_SO = {"hermitian", "upper", "UPLO"}
# an upper bound, and no upper triangle
OTHERS = {"aten::rrelu", "aten::rrelu_", "aten::rrelu_with_noise", "aten::rrelu_with_noise_",
          "aten::rrelu_with_noise_backward", "aten::rrelu_with_noise_functional"}  # fmt: skip


class Through(nn.Module):
    """A hidden width that runs through a square matrix."""

    def __init__(self, of: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.of = of
        self.u, self.a, self.v = (nn.Parameter(torch.randn(*shape)) for shape in ((3, 6), (6, 6), (6, 2)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.u @ self.of(self.a) @ self.v


def _pinv(a: Tensor) -> Tensor:
    return torch.linalg.pinv(a, hermitian=True)


SYMMETRIC: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda a: _pinv(a + a.T),
    "mean": lambda a: _pinv((a.mT + a) / 2),
    "product": lambda a: _pinv(a @ a.T),
    "transposed product": lambda a: _pinv(a.permute(1, 0) @ a),
    "elementwise": lambda a: _pinv((a * a.T).exp().sqrt() - 0.1 * (a + a.T)),
    "inverse": lambda a: _pinv(torch.linalg.inv(a @ a.T)),
}
LOPSIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": _pinv,
    "difference": lambda a: _pinv(a - a.T),
    "twice the same": lambda a: _pinv(a + a),
    "square": lambda a: _pinv(a @ a),
    "scaled rows": lambda a: _pinv((a + a.T) * a[:, :1]),
    "eigh": lambda a: torch.linalg.eigh(a).eigenvectors,
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.T + a.shape[0] * torch.eye(6)),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(a),
    "matrix_rank": lambda a: a * torch.linalg.matrix_rank(a, hermitian=True),
    "ldl": lambda a: torch.linalg.ldl_factor(a)[0],
    "tril": lambda a: a.tril(),
    "triu": lambda a: a.triu(1),
}


@pytest.mark.parametrize("of", SYMMETRIC.values(), ids=SYMMETRIC)
def test_rows_and_columns_of_a_symmetric_matrix_are_one_free_axis(of: Callable[[Tensor], Tensor]) -> None:
    model = seeded(lambda: Through(of)).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    graph = proved(model, x)
    rows = graph.axes["u", 1]
    assert rows.frozen is None
    assert graph.axes["v", 0] is rows
    assert rows in graph.axes["a", 0].axes + graph.axes["a", 1].axes
    kept = [1, 2, 3, 5]
    a = model.a.detach()
    for dim in (0, 1):
        a = a.index_select(dim, torch.tensor(kept)) if graph.axes["a", dim] is rows else a
    expected = x @ model.u[:, kept] @ of(a) @ model.v[kept]
    before = model(x)
    receipt = mk.plan(graph, per_axis={("u", 1): [0, 4]}).cut(model)
    torch.testing.assert_close(model(x), expected)
    receipt.undo()
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("of", LOPSIDED.values(), ids=LOPSIDED)
def test_where_nothing_says_that_it_is_symmetric_they_stay(of: Callable[[Tensor], Tensor]) -> None:
    graph = proved(seeded(lambda: Through(of)), torch.randn(4, 3))
    assert graph.axes["u", 1].frozen is not None
    assert graph.axes["a", 0].frozen is not None


def test_rows_and_columns_that_are_read_by_half_are_one_axis() -> None:
    graph = mk.trace(seeded(lambda: Through(_pinv)), torch.randn(4, 3))
    assert graph.axes["a", 0] is graph.axes["a", 1] is graph.axes["u", 1] is graph.axes["v", 0]
    assert "one triangle" in str(graph.axes["a", 0].frozen)
    with pytest.raises(mk.ModuleKGError, match="no axis of the model is free"):
        mk.plan(graph, ratio=0.5)


@torch.library.custom_op("mkgtriangle::pinv", mutates_args=())
def _own_pinv(self: Tensor, hermitian: bool) -> Tensor:
    return torch.linalg.pinv(self, hermitian=hermitian)


_own_pinv.register_fake(lambda self, hermitian: torch.empty_like(self))


def test_an_operator_of_a_user_that_is_like_one_reads_a_triangle_too() -> None:
    mk.axis_rule("mkgtriangle::pinv", like="aten::linalg_pinv")
    x = torch.randn(4, 3)
    half, whole = (mk.trace(seeded(lambda h=h: Through(lambda a: _own_pinv(a, h))), x) for h in (True, False))
    assert half.axes["a", 0] is half.axes["a", 1]
    assert "one triangle" in str(half.axes["a", 0].frozen)
    assert whole.axes["a", 0] is not whole.axes["a", 1]
    assert whole.axes["a", 0].frozen is None


def test_every_operator_that_torch_has_is_listed() -> None:
    """A new operator of torch that reads a triangle must be told here."""
    found = {
        schema.name for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and any(argument.name in SAYS_SO for argument in schema.arguments)
    }  # fmt: skip
    assert found - OTHERS - set(READERS) == set()


def test_the_listed_arguments_exist() -> None:
    for name, (argument, flag) in READERS.items():
        for schema in torch._C._jit_get_schemas_for_operator(name):
            if "out" not in schema.overload_name and "rcond" not in schema.overload_name:
                names = {each.name for each in schema.arguments}
                assert {argument, flag} - {None} <= names or name == "aten::linalg_matrix_rank"
