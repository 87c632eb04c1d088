"""Hessian trace (Hutchinson) and largest eigenvalue (power iteration) of a loss, per module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import torch
from tqdm.auto import tqdm

from modulekg_widgets.engine.errors import ModuleKGError, a_type, printable
from modulekg_widgets.engine.torch_runtime.rng import seeded_generator

Tensor = torch.Tensor
Vector = list[Tensor]  # one part for each parameter
TOLERANCE = 1e-3  # of ‖Hv - λv‖ relative to |λ|: some eigenvalue lies as close


class HessianError(ModuleKGError, ValueError):
    """A loss without second derivatives; the message says why and what to do."""


def hessian(
    loss: Tensor,
    modules: Mapping[str, Sequence[Tensor]],
    samples: int = 16,
    iterations: int = 50,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Trace and largest eigenvalue of the Hessian of a loss, of the block along each module's parameters.

    Each of the products Hv costs about two backward passes. Gradients, parameters, random states and the graph stay
    as they are; hooks on tensors of the graph run as in any backward pass.

    Parameters
    ----------
    loss : Tensor
        One real number, unscaled, before `loss.backward()`.
    modules : dict
        Lists of parameters by any name. Those that need no gradient do not count; a name of which no other has entered
        the loss has NaN.
    samples : int
        Rademacher vectors v, over which the mean of v·Hv is the trace (Hutchinson's estimate); its variance is
        2 / samples · the sum of the squares of H off the diagonal.
    iterations : int
        The most steps of power iteration, and as many on H + ρ where H has a negative eigenvalue as large as ρ.
    seed : int
        That of the vectors.

    Returns
    -------
    dict
        `{name: {"HessianTrace": …, "HessianMaxEig": …}}`. The eigenvalue is the largest algebraic one, the sharpness
        that bounds the learning rate by 2/λ; it is negative where all are, and never above the true one, but for
        rounding.

    Raises
    ------
    HessianError
        For a loss that is not a scalar, that has no graph, or that cannot be differentiated twice.

    References
    ----------
    Hutchinson 1990, doi 10.1080/03610919008812866; power iteration as in arXiv 1912.07145.

    Examples
    --------
    >>> import torch
    >>> import modulekg_widgets as mk
    >>> x = torch.nn.Parameter(torch.ones(2))
    >>> found = mk.monitoring.hessian((torch.tensor([1.0, 3.0]) * x**2).sum(), {"x": [x]})
    >>> [round(value, 3) for value in found["x"].values()]
    [8.0, 6.0]
    """
    _check(loss, samples, iterations)
    blocks = {name: _trained(name, parameters) for name, parameters in modules.items()}
    found: dict[str, dict[str, float]] = {}
    gradients = _gradients(loss, {id(p): p for block in blocks.values() for p in block})
    for name, block in tqdm(blocks.items(), desc="Hessian", delay=2, leave=False):
        inside = [parameter for parameter in block if id(parameter) in gradients]
        block = _HessianBlock(name, inside, [gradients[id(parameter)] for parameter in inside], seed)
        found[name] = {
            "HessianTrace": block.trace(samples) if inside else math.nan,
            "HessianMaxEig": block.largest_eigenvalue(iterations) if inside else math.nan,
        }
    return found


def _check(loss: Tensor, samples: int, iterations: int) -> None:
    if not isinstance(loss, Tensor):
        raise HessianError(f"the loss is {printable(type(loss).__name__)}, no tensor: pass it before .item()")
    if loss.numel() != 1 or not loss.is_floating_point():
        raise HessianError(
            f"the loss has shape {list(loss.shape)} and dtype {loss.dtype}: pass one real number, as loss.mean() is"
        )
    if loss.grad_fn is None:
        raise HessianError("the loss has no graph: compute it with gradients enabled, and pass it undetached")
    for name, count in (("samples", samples), ("iterations", iterations)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise HessianError(f"{name} is {printable(repr(count))}: pass a whole number from 1 on")


def _trained(name: str, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Returns the distinct parameters that require gradients."""
    found = list(parameters)
    odd = next((each for each in found if not isinstance(each, Tensor)), None)
    if odd is not None:
        raise HessianError(f"{printable(name)!r} has {a_type(odd)} among its parameters: pass tensors")
    return list({id(each): each for each in found if each.requires_grad}.values())


def _gradients(loss: Tensor, parameters: dict[int, Tensor]) -> dict[int, Tensor]:
    """Returns differentiable gradients by parameter id, of the parameters that the loss depends on."""
    if not parameters:
        return {}
    try:
        found = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, allow_unused=True)
    except RuntimeError as error:
        _raise_error(error)
    return {key: gradient for key, gradient in zip(parameters, found, strict=True) if gradient is not None}


def _raise_error(error: RuntimeError, where: str = "") -> NoReturn:
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if "second time" in str(error):
        raise HessianError("the graph of the loss was freed: call this before loss.backward()") from error
    advice = (
        "fused attention and recurrent kernels have no second derivative: compute the loss within "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) or torch.backends.cudnn.flags(enabled=False)"
    )
    raise HessianError(
        f"the loss cannot be differentiated twice{where}: {printable(str(error), 200)}; {advice}"
    ) from error


class _HessianBlock:
    """Hessian block of some parameters, given by its matrix-vector products."""

    def __init__(self, name: str, parameters: Vector, gradients: Vector, seed: int) -> None:
        self.name = name
        self.parameters = parameters
        self.gradients = gradients
        self.seed = seed

    def trace(self, samples: int) -> float:
        draw = self._rademacher()
        return sum(_dot(v := draw(), self.product(v)) for _ in range(samples)) / samples

    def largest_eigenvalue(self, iterations: int) -> float:
        draw = self._rademacher()
        value, radius, done = self._power(draw(), iterations, 0.0)
        if done:
            return value
        # the largest in size is negative, or two of both signs compete: with H + ρ the algebraic one is the largest
        return max(value, self._power(draw(), iterations, radius)[0])

    def _power(self, v: Vector, iterations: int, shift: float) -> tuple[float, float, bool]:
        """Power iteration on H + shift: largest Rayleigh quotient, largest ‖Hv‖/‖v‖, and True if converged."""
        value, radius = -math.inf, 0.0
        for _ in range(iterations):
            size = _dot(v, v)
            image = self.product(v)
            quotient, length = _dot(v, image) / size, math.sqrt(_dot(image, image) / size)
            if not math.isfinite(length):
                return math.nan, math.nan, True
            value, radius = max(value, quotient), max(radius, length)
            if math.sqrt(max(length**2 - quotient**2, 0.0)) <= TOLERANCE * abs(quotient):
                return value, radius, quotient >= 0
            moved = [part + shift * old for part, old in zip(image, v, strict=True)]
            v = _normalized(moved)
        return value, radius, False

    def product(self, v: Vector) -> Vector:
        """Hv."""
        curved = [at for at, gradient in enumerate(self.gradients) if gradient.requires_grad]
        if not curved:  # the loss is linear
            return [torch.zeros_like(part) for part in v]
        try:
            found = torch.autograd.grad(
                [self.gradients[at] for at in curved], self.parameters, [v[at] for at in curved],
                retain_graph=True, allow_unused=True,
            )  # fmt: skip
        except RuntimeError as error:
            _raise_error(error, f" along {printable(self.name)!r}")
        return [torch.zeros_like(p) if part is None else part for p, part in zip(self.parameters, found, strict=True)]

    def _rademacher(self) -> Callable[[], Vector]:
        """Returns a function that draws Rademacher vectors, from a seed of its own."""
        generator = seeded_generator(self.seed)

        def draw() -> Vector:
            signs = (torch.randint(0, 2, p.shape, generator=generator, device="cpu") * 2 - 1 for p in self.parameters)
            return [part.to(p.device, p.dtype) for part, p in zip(signs, self.parameters, strict=True)]

        return draw


def _dot(left: Vector, right: Vector) -> float:
    pairs = ((_as_double(a), _as_double(b)) for a, b in zip(left, right, strict=True))
    return sum(float((a * b).sum()) for a, b in pairs)


def _as_double(part: Tensor) -> Tensor:
    part = part.detach()
    return part.cpu().double() if part.device.type == "mps" else part.double()  # MPS has no float64


def _normalized(v: Vector) -> Vector:
    """Returns `v` scaled to mean square 1, within the range of half precision."""
    size = math.sqrt(_dot(v, v) / sum(part.numel() for part in v))
    return [part.detach() / size for part in v] if size else v
