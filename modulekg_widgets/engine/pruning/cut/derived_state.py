"""Buffers computed from weights, as the u and v of spectral norms: recomputed for the cut weight.

A parametrization that writes its buffers from its weight in train mode is run on copies until the
buffers converge. Spectral norms are solved directly, as their power iteration may start at zero.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.spectral_norm import SpectralNorm

from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, slicer
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state, registered_tensors
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    PARAMETERS,
    PRE_HOOKS,
    SpectralParametrization,
    matrix_of_spectral,
)
from modulekg_widgets.engine.tracing.unregistered_tensors import named_registered_tensors

Tensor = torch.Tensor
Lookup = Callable[[str], Tensor]  # tensors by name, as they will be
log = logging.getLogger("modulekg_widgets")
MAX_ITERATIONS = 300  # of a parametrization, until its state holds still
CONVERGENCE_TOLERANCE = 1e-6  # the greatest change of a state that holds still, as a share of its largest value
MAX_EXACT_SIZE = 512  # the smaller side of a matrix that is solved exactly; above it a subspace is iterated
SUBSPACE_SIZE, SUBSPACE_ITERATIONS = 16, 60


class DerivedState(NamedTuple):
    """Buffers that are computed from weights, by the names of both."""

    weights: tuple[str, ...]
    buffers: tuple[str, ...]
    recompute: Callable[
        [Lookup], dict[str, Tensor]
    ]  # what they hold for other weights; nothing where that is not known
    recompute_attribute: Callable[[Lookup], tuple[Attributes, str, Tensor]] | None = (
        None  # a plain attribute that follows
    )


def derived_states(walked: Walk, changed: Collection[str]) -> list[DerivedState]:
    """The derived states that depend on any of the tensors named in `changed`."""
    if not changed:
        return []
    states = (each for path, index in walked.all_paths() for each in _states_of_module(walked, path, index))
    return [each for each in states if any(name in changed for name in each.weights)]


def recomputed_values(
    walked: Walk,
    edits: Edits,
    values: Mapping[str, NewValue] | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> dict[str, NewValue]:
    """The values of derived buffers after a cut, by name; `values` are those of other tensors.

    `tensors`: those of a copy of the model, by name, in the place of its own.
    """
    values = values or {}
    resized = {name for edit in edits.tensors if edit.shape != edit.shape_after for name in edit.names}
    states = derived_states(walked, resized | set(values))
    return recompute_buffers(states, _tensors_after_cut(walked, edits, values, tensors)) if states else {}


def recompute_buffers(states: Iterable[DerivedState], value_of: Lookup) -> dict[str, NewValue]:
    """The new values of derived buffers, for the tensors that `value_of` returns."""
    buffers: dict[str, Tensor] = {}
    with torch.inference_mode(False), torch.no_grad():
        for state in states:
            buffers.update(state.recompute(lambda name: buffers[name] if name in buffers else value_of(name)))
    return {name: NewValue(tensor, is_sum=False) for name, tensor in buffers.items()}


def _tensors_after_cut(
    walked: Walk, edits: Edits, values: Mapping[str, NewValue], tensors: Mapping[str, Tensor] | None
) -> Lookup:
    """A lookup of the tensors after the cut."""
    own = {held.name: held.tensor.detach() for held in named_registered_tensors(walked, walked.all_paths())}
    now = own if tensors is None else {**own, **tensors}
    by_name = {name: edit for edit in edits.tensors for name in edit.names}
    slice_of = slicer(edits, now.__getitem__)

    def value_of(name: str) -> Tensor:
        if name in values:
            return values[name].tensor
        return slice_of(by_name[name]) if name in by_name else now[name]

    return value_of


def _states_of_module(walked: Walk, path: str, index: int) -> Iterator[DerivedState]:
    module, state = walked.modules[index], walked.states[index]
    prefix = f"{path}." if path else ""
    if isinstance(module, ParametrizationList):
        yield from _parametrization_state(module, state, prefix)
    for hook in (state.get(PRE_HOOKS) or {}).values():
        if isinstance(hook, SpectralNorm):
            yield _spectral_norm_state(hook, state, prefix)


# ---------------------------------------------------------------- spectral norms


def _spectral_norm_state(hook: SpectralNorm, state: Attributes, prefix: str) -> DerivedState:
    """The state of `torch.nn.utils.spectral_norm`."""
    names = tuple(f"{prefix}{hook.name}_{end}" for end in ("orig", "u", "v"))
    return DerivedState(
        names[:1], names[1:], partial(_recompute_by_hook, hook, names), partial(_normalised_weight, hook, names, state)
    )


def _recompute_by_hook(hook: SpectralNorm, names: tuple[str, ...], value_of: Lookup) -> dict[str, Tensor]:
    weight, u, v = names
    vectors = singular_vectors(hook.reshape_weight_to_matrix(value_of(weight)), value_of(u))
    return {} if vectors is None else dict(zip((u, v), vectors, strict=True))


def _normalised_weight(
    hook: SpectralNorm, names: tuple[str, ...], state: Attributes, value_of: Lookup
) -> tuple[Attributes, str, Tensor]:
    weight, u, v = map(value_of, names)
    return state, hook.name, weight / torch.dot(u, torch.mv(hook.reshape_weight_to_matrix(weight), v))


def singular_vectors(matrix: Tensor, before: Tensor) -> tuple[Tensor, Tensor] | None:
    """The first left and right singular vectors of a matrix, with the sign of the left one as it was `before`.

    None for a matrix of zeros, or of values that are not finite.
    """
    if matrix.is_meta or not matrix.numel():
        return None
    exact = torch.complex128 if matrix.is_complex() else torch.float64
    wide = matrix.detach().to("cpu" if matrix.device.type == "mps" else matrix.device, exact)
    if not bool(wide.isfinite().all()) or not bool(wide.any()):
        return None
    u, v = _by_eigenvectors(wide) if min(wide.shape) <= MAX_EXACT_SIZE else _by_subspace_iteration(wide, before)
    if bool(torch.vdot(before.to(u), u).real < 0):
        u, v = -u, -v
    return u.to(matrix), v.to(matrix)


def _by_eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """By the eigenvectors of the smaller of W·Wᴴ and Wᴴ·W."""
    if matrix.shape[0] > matrix.shape[1]:
        v, u = _by_eigenvectors(matrix.mH)
        return u, v
    u = torch.linalg.eigh(matrix @ matrix.mH).eigenvectors[:, -1]
    return u, nn.functional.normalize(torch.mv(matrix.mH, u), dim=0, eps=0)


def _by_subspace_iteration(matrix: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """By iterations of a subspace, which gets near where single vectors are slow: see Halko, Martinsson, Tropp 2011."""
    matrix = matrix.to(torch.complex64 if matrix.is_complex() else torch.float32)
    drawn = torch.randn(len(matrix), SUBSPACE_SIZE, generator=torch.Generator().manual_seed(0)).to(matrix)
    drawn[:, 0] += before.to(matrix)
    basis = torch.linalg.qr(drawn).Q
    for _ in range(SUBSPACE_ITERATIONS):
        basis = torch.linalg.qr(matrix @ (matrix.mH @ basis)).Q
    left, _, right = torch.linalg.svd(basis.mH @ matrix, full_matrices=False)
    return basis @ left[:, 0], right[0].conj()


# ------------------------------------------------------------- parametrizations


def _parametrization_state(listed: ParametrizationList, state: Attributes, prefix: str) -> Iterator[DerivedState]:
    """The state of all parametrizations of one tensor, each of which takes what the one before gives."""
    originals = [f"{prefix}{name}" for name in registered_tensors(state) if name.startswith("original")]
    modules = [(f"{prefix}{at}.", module) for at, module in enumerate(listed)]
    buffers = tuple(
        f"{inner_prefix}{name}" for inner_prefix, module in modules for name in module_state(module)[BUFFERS]
    )
    if not buffers or not originals:
        return

    yield DerivedState(tuple(originals), buffers, partial(_recompute_in_order, modules, originals))


def _recompute_in_order(
    modules: list[tuple[str, nn.Module]], originals: list[str], value_of: Lookup
) -> dict[str, Tensor]:
    """The buffers of parametrizations, of which each takes what the one before gives."""
    buffers: dict[str, Tensor] = {}
    inputs = [value_of(name) for name in originals]

    def now(name: str) -> Tensor:
        return buffers[name] if name in buffers else value_of(name)

    try:
        for prefix, module in modules:
            buffers.update(_recomputed_buffers(module, prefix, inputs, value_of))
            own = _copy_with_new_tensors(module, prefix, now)
            inputs = [own.eval()(*inputs)]
    except Exception as error:  # noqa: BLE001 - code of the user's
        log.debug("the parametrizations of %s do not run by themselves: %s", originals[0], error)
    return buffers


def _recomputed_buffers(module: nn.Module, prefix: str, inputs: list[Tensor], value_of: Lookup) -> dict[str, Tensor]:
    """The buffers of one parametrization, recomputed for the given weight."""
    if any(tensor.is_meta for tensor in inputs):
        return {}
    own = _copy_with_new_tensors(module, prefix, value_of)
    if isinstance(module, SpectralParametrization):
        if inputs[0].dim() < 2:
            return {}
        vectors = singular_vectors(matrix_of_spectral(own)(inputs[0]), value_of(f"{prefix}_u"))
        return {} if vectors is None else {f"{prefix}_u": vectors[0], f"{prefix}_v": vectors[1]}
    return {f"{prefix}{name}": tensor for name, tensor in _converged_buffers(own.train(), inputs).items()}


def _copy_with_new_tensors(module: nn.Module, prefix: str, value_of: Lookup) -> nn.Module:
    """A copy of a parametrization that holds the tensors of the cut model."""
    state = module_state(module)
    kept = {id(tensor): tensor for tensor in registered_tensors(state).values()}
    own = copy.deepcopy(module, kept)  # which leaves the tensors as they are
    for registry in (PARAMETERS, BUFFERS):
        tensors = module_state(own)[registry]
        for name in [name for name, tensor in tensors.items() if tensor is not None]:
            new = value_of(f"{prefix}{name}").detach().clone()
            tensors[name] = nn.Parameter(new, requires_grad=False) if registry == PARAMETERS else new
    return own


def _converged_buffers(module: nn.Module, inputs: list[Tensor]) -> dict[str, Tensor]:
    """The buffers that a module in train mode computes from its weight alone, once converged; else none.

    Those are summaries, smaller than the weight: an average of the weights over time is its own, and stays.
    """
    before = _float_buffers(module)
    with torch.random.fork_rng(devices=[]):
        for at in range(MAX_ITERATIONS):
            module(*(tensor.clone() for tensor in inputs))
            now = _float_buffers(module)
            moved = [name for name in now if not _are_near(before[name], now[name])]
            if not moved:
                return now if at and all(bool(tensor.isfinite().all()) for tensor in now.values()) else {}
            if any(now[name].numel() >= inputs[0].numel() for name in moved):
                return {}
            before = now
    return {}


def _float_buffers(module: nn.Module) -> dict[str, Tensor]:
    own = module_state(module)[BUFFERS]
    return {name: tensor.clone() for name, tensor in own.items() if tensor is not None and tensor.is_floating_point()}


def _are_near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= CONVERGENCE_TOLERANCE * other.abs().max())
