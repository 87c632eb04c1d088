"""Examples for rules/sparse.py: what is stored stands at places that are written, what meets only values is free."""

from __future__ import annotations

from typing import Any

import torch

from axes.rules.harness import example, x

_PLACES = torch.tensor([[0, 0, 1, 1], [1, 4, 0, 2]])
_COO = torch.sparse_coo_tensor(_PLACES, x(4), (2, 5)).coalesce()
_HYBRID = torch.sparse_coo_tensor(_PLACES, x(4, 3), (2, 5, 3)).coalesce()  # three numbers at each place
_CSR = x(2, 5).to_sparse_csr()
_CSC = x(2, 5).to_sparse_csc()
_BY_ROWS = (_CSR.crow_indices(), _CSR.col_indices(), x(10), [2, 5])
_AS_CSR: dict[str, Any] = {"dtype": torch.float64, "layout": torch.sparse_csr, "device": "cpu"}
_AS_COO: dict[str, Any] = {"dtype": torch.float64, "layout": torch.sparse_coo, "device": "cpu"}
_MAKING = "aten::_sparse_coo_tensor_with_dims_and_tensors"

EXAMPLES = [
    *(example("aten::_sparse_mm", ". ., . a -> . a", adjacency, x(5, 3)) for adjacency in (_COO, _CSR)),
    *(example("aten::mm", ". ., . a -> . a", adjacency, x(5, 3)) for adjacency in (_COO, _CSR)),
    *(example("aten::_sparse_addmm", ". a, . ., . a -> . a", x(2, 3), each, x(5, 3)) for each in (_COO, _CSR)),
    example("aten::_sparse_mm_reduce_impl", ". ., . a -> . a, .", _CSR, x(5, 3), "sum"),
    example("aten::_sparse_sparse_matmul", ". ., . . -> . .", _COO, x(5, 3).to_sparse()),
    example("aten::sparse_sampled_addmm", ". ., . a, a . -> . .", _CSR, x(2, 3), x(3, 5)),
    example(_MAKING, ". ., . a -> . . a", 2, 1, [2, 5, 3], _PLACES, x(4, 3), **_AS_COO),
    example("aten::_sparse_coo_tensor_unsafe", ". ., . -> . .", _PLACES, x(4), [2, 5]),
    example("aten::sparse_compressed_tensor.comp_plain_value_size", "., ., . -> . .", *_BY_ROWS, **_AS_CSR),
    example("aten::_sparse_compressed_tensor_unsafe", "., ., . -> . .", *_BY_ROWS, **_AS_CSR),
    *(example("aten::_to_dense", ". . -> . .", stored) for stored in (_COO, _CSR, _CSC)),
    example("aten::_to_dense", ". . . -> . . .", _HYBRID),
    *(example(f"aten::{name}", "a b -> a b", x(2, 5)) for name in ("_to_sparse", "_to_sparse_csr", "_to_sparse_csc")),
    example("aten::_coalesce", ". . -> . .", torch.sparse_coo_tensor(_PLACES, x(4), (2, 5))),
    example("aten::sparse_mask", ". ., . . -> . .", x(2, 5), _COO),
    *(example(f"aten::{name}", ". . -> . .", _COO, 1, False) for name in ("_sparse_softmax", "_sparse_log_softmax")),
    *(example(f"aten::{name}", ". . -> .", _COO) for name in ("_values", "values")),
    example("aten::values", ". . . -> . .", _HYBRID),
    example("aten::values", ". . -> .", _CSR),
    *(example(f"aten::{name}", ". . -> . .", _COO) for name in ("_indices", "indices")),
    *(example(f"aten::{name}", ". . -> .", _CSR) for name in ("crow_indices", "col_indices")),
    *(example(f"aten::{name}", ". . -> .", _CSC) for name in ("ccol_indices", "row_indices")),
]
