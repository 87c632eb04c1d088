"""Moments of one tensor that metrics share: norm, mean, deviation, extremes and spectra, also by channel."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.monitoring.measures.spectra import covariance_spectrum, singular_values
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.torch_runtime.private import norms_at_once

# -------------------- Layouts of a tensor by channel: as a matrix (R, C) or as planes (N, C, S)


MAX_LOOP = 16  # a loop over fewer positions costs more than a copy that brings the channels together


def rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns `tensor` as a matrix (R, C): one column per channel at `dim`, one row per other position.

    A view where the layout allows it; a tensor without dimensions is one row of one channel.
    """
    if tensor.dim() == 0:
        return tensor.reshape(1, 1)
    last = tensor.movedim(dim, -1)
    if last.is_contiguous() or dim in (-1, tensor.dim() - 1):
        return last.reshape(-1, last.shape[-1]) if last.numel() else last.new_empty(0, last.shape[-1])
    first = tensor.movedim(dim, 0)  # copies runs of positions: far faster than a transposed copy
    if first.numel() == 0:
        return first.new_empty(0, first.shape[0])
    return first.reshape(first.shape[0], -1).t()


def planes(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns `tensor` with shape (N, C, S), channels in the middle; S is 1 or large enough for a loop.

    What reduces it over N and S reads memory in the order in which it lies; a view, or a copy of what is small.
    """
    if tensor.dim() == 0 or tensor.numel() == 0:
        return rows(tensor, dim).unsqueeze(2)
    at = dim % tensor.dim()
    after = math.prod(tensor.shape[at + 1 :])
    if tensor.is_contiguous() and after >= MAX_LOOP:
        return tensor.view(-1, tensor.shape[at], after)
    last = tensor.movedim(at, -1)
    if last.is_contiguous() or after < MAX_LOOP:
        return last.reshape(-1, tensor.shape[at], 1)
    return tensor.reshape(-1, tensor.shape[at], after)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all elements as a vector in memory order; copies only if they are scattered."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)


# ----------------------------------------


PIECE_ELEMENTS = 1 << 17  # elements that are read at once: they stay in the processor's cache
MIN_FUSED_ELEMENTS = 1 << 22  # elements from which a pass over memory costs more than the arithmetic
MAX_SERIAL_SUM = (
    1 << 13
)  # squares that torch may add up one after the other: of equal ones the rounding errors add up too
SUM_ROW = 1 << 11  # longer vectors are added up in rows of so many
MAX_DOUBLE_CHANNELS, MAX_DOUBLE_ELEMENTS = 128, 1 << 20  # channels and elements whose spectrum is found in float64
MAX_COPIED_ELEMENTS = (
    1 << 20
)  # elements that a device copies in another precision sooner than it starts one more kernel
SAFE_NORMS = (1e-15, 1e18)  # norms whose squares are normal numbers in float32
CANCELLATION_RATIO = 16.0  # mean² / variance beyond which the mean is taken out before squaring

Result = TypeVar("Result")
_vector_norm: Callable[..., torch.Tensor] = torch.linalg.vector_norm


class _cached(Generic[Result]):  # noqa: N801 - stands where `functools.cached_property` would, which takes a lock
    """Property that is computed on first access and cached, without the lock of functools.cached_property."""

    def __init__(self, make: Callable[[Any], Result]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, own: object, owner: type | None = None) -> Result:
        if own is None:
            return self  # type: ignore[return-value] - the class shows the property itself
        made = own.__dict__[self._name] = self._make(own)
        return made


class Moments:
    """Statistics of a tensor, each computed on first access; `channel_dim` is the dimension of its channels.

    Sums are added up in float32 or better, in float64 for float64 tensors and for values whose squares leave the range
    of float32. On a device nothing waits for it, but for `eigenvalues` and `singular_values`. What the tensor has not
    raises `NoValueError`: of a complex or an empty tensor all but the norm, of an integer one everything.
    """

    def __init__(self, tensor: torch.Tensor, channel_dim: int) -> None:
        self.tensor = tensor
        self.channel_dim = channel_dim
        self.count = tensor.numel()
        self._is_on_host = tensor.device.type == "cpu"  # where looking at a value costs no waiting

    # -------------------------------------------------------------- of all elements

    @_cached
    def norm(self) -> torch.Tensor:
        """Euclidean norm, also of complex elements; 0-dim."""
        usual = fast_norm(self.tensor)
        if usual is not None:
            return torch.scalar_tensor(usual, dtype=torch.float32)
        if self.tensor.is_complex():
            return Moments(torch.view_as_real(self.tensor.resolve_conj()), -1).norm
        if not self.tensor.is_floating_point():
            raise NoValueError(f"the tensor holds {printable(str(self.tensor.dtype))}, not floating numbers")
        if not self._is_on_host:
            return _norm_on_device(self.flat, self.best_dtype)
        if self.count == 0:
            return torch.zeros((), dtype=self.sum_dtype, device="cpu")
        quick = _norm(self.flat) if self._is_wide else _combined_norm([_norm(piece) for piece in self.pieces()])
        value = float(quick)
        if (
            SAFE_NORMS[0] < value < SAFE_NORMS[1]
            or value == 0.0 == self.peak
            or math.isnan(value)
            or math.isinf(self.peak)
        ):
            return quick
        return self.peak * _combined_norm(
            [torch.linalg.vector_norm(piece.double() / self.peak) for piece in self.pieces()]
        )

    @_cached
    def total(self) -> torch.Tensor:
        """Sum; 0-dim."""
        self._check_real()
        if not self._is_on_host:
            return self.flat.sum(dtype=self.sum_dtype)
        found = self.tensor.sum() if self._is_wide else _sum_parts([piece.sum() for piece in self.pieces()])
        if not math.isfinite(float(found)) and self.sum_dtype is torch.float32:
            return _sum_parts([piece.double().sum() for piece in self.pieces()])
        return found

    @_cached
    def mean(self) -> torch.Tensor:
        if self._is_on_host and self._is_wide:
            return torch.scalar_tensor(float(self.total) / self.count, dtype=self.sum_dtype)
        return self.total / self.count

    @_cached
    def std(self) -> torch.Tensor:
        """Standard deviation with divisor n; 0-dim."""
        if self._is_on_host:
            mean = float(self.total) / self.count
            norm = float(self.norm)
            variance = norm * norm / self.count - mean * mean
            if mean * mean < CANCELLATION_RATIO * variance:
                return _number(math.sqrt(variance))
        center = self.mean.to(self.square_dtype)
        offsets, squares = [], []
        for piece in self.pieces(self.square_dtype):
            centred = piece - center
            offsets.append(centred.sum())
            squares.append(centred.square_().sum())
        return _deviation(_sum_parts(squares), _sum_parts(offsets), self.count)

    @_cached
    def least(self) -> torch.Tensor:
        return self._range[0]

    @_cached
    def greatest(self) -> torch.Tensor:
        return self._range[1]

    @_cached
    def zeros(self) -> torch.Tensor:
        """Share of elements that are exactly zero; 0-dim."""
        self._check_real()
        filled = torch.count_nonzero(self.tensor)
        if self._is_on_host:
            return _number((self.count - int(filled)) / self.count)
        return (self.count - filled.to(self.best_dtype)) / self.count

    @_cached
    def finite(self) -> torch.Tensor:
        """True if no element is NaN or infinite; a 0-dim bool tensor."""
        if self.count == 0:
            return torch.ones((), dtype=torch.bool, device=self.tensor.device)
        self._check_real()
        if self._is_on_host and math.isfinite(float(self.norm if "norm" in self.__dict__ else self.total)):
            return torch.scalar_tensor(1, dtype=torch.bool)  # an element that is not finite leaves no sum finite
        least, greatest = self._range
        return torch.isfinite(least) & torch.isfinite(greatest)

    # -------------------------------------------------------------- by channel

    @property
    def channels(self) -> int:
        """Count of channels."""
        return self.tensor.shape[self.channel_dim] if self.tensor.dim() else 1

    @_cached
    def rows(self) -> torch.Tensor:
        """Elements as a matrix of shape (R, C), one column per channel."""
        return rows(self.tensor, self.channel_dim)

    @_cached
    def row_count(self) -> int:
        return self.count // self.channels if self.channels else 0

    @_cached
    def channel_means(self) -> torch.Tensor:
        """Means by channel, of shape (C,)."""
        self._check_real()
        parts = [self._planes] if self._is_wide else self.parts()
        found = _sum_parts([part.sum((0, 2)) for part in parts])
        if self._is_on_host and not math.isfinite(float(found.sum())):
            return self._means(torch.float64)
        return found / self.row_count

    @_cached
    def channel_stds(self) -> torch.Tensor:
        """Standard deviations by channel with divisor R, of shape (C,)."""
        means = self._means(self.square_dtype)
        offsets, squares = [], []
        for part in self.parts(self.square_dtype):
            centred = part - means[:, None]
            offsets.append(centred.sum((0, 2)))
            squares.append(centred.square_().sum((0, 2)))
        return _deviation(_sum_parts(squares), _sum_parts(offsets), self.row_count)

    @_cached
    def channel_greatest(self) -> torch.Tensor:
        """Largest element of each channel, of shape (C,)."""
        self._check_real()
        held = self._planes
        return (held[:, :, 0] if held.shape[2] == 1 else held.amax(2)).amax(0)

    @_cached
    def eigenvalues(self) -> torch.Tensor:
        """Eigenvalues of the covariance over channels (divisor R - 1), descending, of shape (C,), none below 0.

        Found in float64 where that costs little: up to 128 channels of a million elements. Else those of float32
        tensors are known to about 1e-6 of the largest, but for constant channels and too few rows, which give exact 0.
        Raises `NoValueError` for fewer than two rows, for NaN and infinity, and where the decomposition fails.
        """
        self._check_matrix()
        if self.row_count < 2:
            raise NoValueError("a covariance needs two rows: the tensor has one")
        is_small = self.channels <= min(self.row_count, MAX_DOUBLE_CHANNELS) and self.count <= MAX_DOUBLE_ELEMENTS
        dtype = self.best_dtype if is_small else self.square_dtype
        with _decomposition_errors():
            return covariance_spectrum(self.parts(dtype), self._means(dtype), self.row_count)

    @_cached
    def singular_values(self) -> torch.Tensor:
        """The min(R, C) singular values of `rows`, not centred, descending, from products in float64.

        Raises `NoValueError` for NaN and infinity, and where the decomposition fails.
        """
        self._check_matrix()
        with _decomposition_errors():
            return singular_values(self.parts(self.best_dtype), self.channels, self.row_count)

    # -------------------------------------------------------------- the elements

    @_cached
    def flat(self) -> torch.Tensor:
        """All elements as a vector in memory order."""
        return flat(self.tensor)

    def pieces(self, dtype: torch.dtype | None = None) -> Iterator[torch.Tensor]:
        """Yields `flat` in pieces, in `dtype`, by default float32 or better."""
        self._check_real()
        dtype = self.sum_dtype if dtype is None else dtype
        size = PIECE_ELEMENTS if self._is_on_host else max(self.count, 1)
        return (piece.to(dtype) for piece in self.flat.split(size))

    def parts(self, dtype: torch.dtype | None = None) -> Iterator[torch.Tensor]:
        """Yields the elements in parts of shape (n, C, S), in `dtype`, by default float32 or better."""
        self._check_real()
        dtype = self.sum_dtype if dtype is None else dtype
        held = self._planes
        size = len(held)
        if self._is_on_host:
            size = max(1, 2 * PIECE_ELEMENTS * len(held) // self.count)
        return (part.to(dtype) for part in held.split(size))

    @_cached
    def square_dtype(self) -> torch.dtype:
        """Dtype in which squares stay in range: float64 for float64, and for huge or tiny elements."""
        if self._is_on_host and self.tensor.dtype in (torch.float32, torch.bfloat16):
            norm = float(self.norm)
            if not (SAFE_NORMS[0] < norm < SAFE_NORMS[1]) and norm != 0.0 and math.isfinite(norm):
                return torch.float64
        return self.sum_dtype

    @_cached
    def peak(self) -> float:
        """Largest magnitude; for tensors on the host."""
        return max(-float(self.least), float(self.greatest))

    def _means(self, dtype: torch.dtype) -> torch.Tensor:
        """Means by channel in `dtype`."""
        if dtype is self.sum_dtype:
            return self.channel_means.to(dtype)
        return _sum_parts([part.sum((0, 2)) for part in self.parts(dtype)]) / self.row_count

    @_cached
    def _planes(self) -> torch.Tensor:
        return planes(self.tensor, self.channel_dim)

    @_cached
    def _range(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._check_real()
        found = self.flat
        if self._is_on_host and self._is_wide and self.count < MIN_FUSED_ELEMENTS:
            return found.amin(), found.amax()  # two passes in the cache beat one of aminmax
        least, greatest = torch.aminmax(found)
        return least.to(self.sum_dtype), greatest.to(self.sum_dtype)

    @property
    def _is_wide(self) -> bool:
        return self.tensor.dtype in (torch.float32, torch.float64)

    @property
    def sum_dtype(self) -> torch.dtype:
        return torch.float64 if self.tensor.dtype is torch.float64 else torch.float32

    @property
    def best_dtype(self) -> torch.dtype:
        """The most precise dtype of the device."""
        return torch.float32 if self.tensor.device.type == "mps" else torch.float64  # Apple's devices have no float64

    def _check_real(self) -> None:
        if not self.tensor.is_floating_point():
            raise NoValueError(f"the tensor holds {printable(str(self.tensor.dtype))}, not real floating numbers")
        if self.count == 0:
            raise NoValueError(f"the tensor is empty: its shape is {tuple(self.tensor.shape)}")

    def _check_matrix(self) -> None:
        self._check_real()
        if not bool(self.finite):
            raise NoValueError("the tensor has NaN or infinite elements")


@contextlib.contextmanager
def _decomposition_errors() -> Iterator[None]:
    """Context manager that turns a failed decomposition into `NoValueError`."""
    try:
        yield
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        reason = str(error).partition("\n")[0]
        raise NoValueError(f"the eigenvalues were not found: {reason}") from error


def _number(value: float) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=torch.float64)


def _sum_parts(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def fast_norm(tensor: torch.Tensor) -> float | None:
    """Returns the norm of an ordinary float32 tensor on the host, in few calls; None for other tensors."""
    if tensor.dtype is not torch.float32 or not tensor.is_cpu:
        return None
    count = tensor.numel()
    if count <= MAX_SERIAL_SUM:
        found = _vector_norm(tensor).item()
    elif not tensor.is_contiguous():
        return None
    elif count <= MAX_SERIAL_SUM * SUM_ROW and not count % SUM_ROW:
        found = _vector_norm(_vector_norm(tensor.view(-1, SUM_ROW), dim=1)).item()
    else:
        found = _norm(tensor.view(-1)).item()
    return found if SAFE_NORMS[0] < found < SAFE_NORMS[1] else None


def _norm(vector: torch.Tensor) -> torch.Tensor:
    count = vector.numel()
    if count <= MAX_SERIAL_SUM:
        return torch.linalg.vector_norm(vector)
    whole = count - count % SUM_ROW
    found = torch.linalg.vector_norm((vector if whole == count else vector[:whole]).view(-1, SUM_ROW), dim=1)
    return _norm(found if whole == count else torch.cat([found, vector[whole:]]))


def _norm_on_device(vector: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Norm accumulated in `dtype`, of a long vector without a converted copy."""
    if vector.numel() < MAX_COPIED_ELEMENTS or vector.device.type == "mps":
        return torch.linalg.vector_norm(vector, dtype=dtype)
    return norms_at_once([vector], 2, dtype)[0]


def _combined_norm(norms: list[torch.Tensor]) -> torch.Tensor:
    """Norm of the concatenation of vectors with these norms."""
    return norms[0] if len(norms) == 1 else _norm(torch.stack(norms))


def _deviation(squares: torch.Tensor, offset: torch.Tensor, count: int) -> torch.Tensor:
    """Standard deviation from the sums of (x - m)² and x - m, where m is the mean up to rounding."""
    return ((squares - offset.square() / count) / count).clamp_min(0.0).sqrt()
