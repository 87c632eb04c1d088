"""Examples for rules/linalg.py."""

from __future__ import annotations

import torch
from torch import Tensor

from axes.rules.harness import example, x


def _square(*batch: int, size: int = 5) -> Tensor:
    """Matrices that are positive definite."""
    given = x(*batch, size, size)
    return given @ given.mT + torch.eye(size, dtype=torch.float64)


def _symmetric() -> Tensor:
    given = x(2, 5, 5)
    return given + given.mT


_LU, _PIVOTS = torch.linalg.lu_factor(x(2, 5, 5))
_LD, _PLACES = torch.linalg.ldl_factor(_symmetric())
_LOWER = torch.linalg.cholesky(_square(2))

EXAMPLES = [
    # figures of a matrix
    example("aten::linalg_det", "a . . -> a", x(2, 5, 5)),
    example("aten::logdet", "a . . -> a", _square(2)),
    example("aten::linalg_slogdet", "a . . -> a, a", x(2, 5, 5)),
    example("aten::_linalg_det", "a . . -> a, a . ., a .", x(2, 5, 5)),
    example("aten::_linalg_slogdet", "a . . -> a, a, a . ., a .", x(2, 5, 5)),
    example("aten::_linalg_eigvals", "a . . -> a .", x(2, 5, 5)),
    # factors
    example("aten::linalg_cholesky_ex", "a . . -> a . ., a", _square(2)),
    example("aten::linalg_qr", "a . . -> a . ., a . .", x(2, 7, 5)),
    example("aten::geqrf", "a . . -> a . ., a .", x(2, 7, 5)),
    example("aten::linalg_lu", "a . . -> a . ., a . ., a . .", x(2, 7, 5)),
    example("aten::linalg_lu_factor_ex", "a . . -> a . ., a ., a", x(2, 7, 5)),
    example("aten::linalg_ldl_factor_ex", "a . . -> a . ., a ., a", _symmetric()),
    example("aten::linalg_eig", "a . . -> a ., a . .", x(2, 5, 5)),
    example("aten::_linalg_eigh", "a . . -> a ., a . .", _symmetric()),
    example("aten::_linalg_svd", "a . . -> a . ., a ., a . .", x(2, 7, 5)),
    example("aten::linalg_polar", "a . . -> a . ., a . .", x(2, 7, 5)),
    example("aten::linalg_matrix_sqrth", "a . . -> a . .", _square(2)),
    # with what other factorisations give
    example("aten::cholesky_inverse", "a . . -> a . .", _LOWER),
    example("aten::cholesky_solve", "a . b, a . . -> a . b", x(2, 5, 3), _LOWER),
    example("aten::linalg_householder_product", "a . ., a . -> a . .", x(2, 7, 5), x(2, 5)),
    example("aten::ormqr", "a . ., a ., a . . -> a . .", x(2, 7, 5), x(2, 5), x(2, 7, 3)),
    example("aten::lu_unpack", "a . ., a . -> a . ., a . ., a . .", _LU, _PIVOTS),
    example("aten::linalg_lu_solve", "a . ., a ., a . b -> a . b", _LU, _PIVOTS, x(2, 5, 3)),
    example("aten::linalg_lu_solve", "a . ., a ., a b . -> a b .", _LU, _PIVOTS, x(2, 3, 5), left=False),
    example("aten::linalg_ldl_solve", "a . ., a ., a . b -> a . b", _LD, _PLACES, x(2, 5, 3)),
    example("aten::linalg_solve_triangular", "a . ., a . b -> a . b", _square(2), x(2, 5, 3), upper=True),
    example("aten::triangular_solve", "a . b, a . . -> a . b, a . .", x(2, 5, 3), _square(2)),
    example("aten::linalg_lstsq", "a . ., a . . -> a . ., ., a, .", x(2, 7, 5), x(2, 7, 3), driver="gelsy"),
    # exact: rows and columns go together, or change places
    example("aten::linalg_inv_ex", "a b b -> a b b, a", x(2, 5, 5)),
    example("aten::linalg_matrix_exp", "a b b -> a b b", x(2, 5, 5)),
    example(
        "aten::linalg_pinv.atol_rtol_tensor", "a b c, a -> a c b", x(2, 7, 5), atol=torch.tensor([0.0, 2.5]).double()
    ),
    # half of the matrix is read: which half, the order says
    example("aten::linalg_pinv.atol_rtol_tensor", "a . . -> a . .", x(2, 5, 5), hermitian=True),
    example("aten::_linalg_solve_ex", "a . ., a . . -> a . ., a . ., a ., a", x(2, 5, 5), x(2, 5, 3)),
    example("aten::linalg_cross", "1 a ., b a . -> b a .", x(1, 2, 3), x(5, 2, 3)),
    example(
        "aten::_linalg_check_errors",
        "a -> none",
        torch.zeros(3, dtype=torch.int32),
        "torch.linalg.inv",
        is_matrix=False,
    ),
]
