"""Builders of timm's architectures by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from torch import nn

from modulekg_widgets.engine.errors import MissingPackageError, UnknownNameError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments, image_call


def timm_builders(names: Iterable[str] | None = None) -> dict[str, Callable[..., nn.Module]]:
    """A builder for each architecture that timm lists, without pretrained weights.

    Parameters
    ----------
    names : iterable of str, optional
        Architectures, by default all; a tag of weights behind a dot is left out.

    Returns
    -------
    dict
        Functions by the names of their architectures; each takes the keywords of `timm.create_model`, such as
        `num_classes`.

    Raises
    ------
    MissingPackageError
        Without timm.
    UnknownNameError
        For an architecture that this version of timm has not, and for names that are no list.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> mk.timm_builders(["resnet18.a1_in1k"])["resnet18"](num_classes=7).num_classes  # doctest: +SKIP
    7
    """
    if names is not None and (isinstance(names, str | bytes) or not isinstance(names, Iterable)):
        raise UnknownNameError(f"names is a list of architectures: {a_type(names)} was passed, write ['resnet18']")
    known = _timm().list_models()
    if names is None:
        return {name: TimmBuilder(name) for name in known}
    found: dict[str, Callable[..., nn.Module]] = {}
    for given in names:
        name = str(given).partition(".")[0]
        if name not in set(known):
            raise UnknownNameError(f"timm has no architecture {printable(name)!r}: {closest_match_hint(name, known)}")
        found[name] = TimmBuilder(name)
    return found


def _timm() -> ModuleType:
    try:
        import timm
    except ImportError as error:
        raise MissingPackageError("these are models of timm: pip install timm") from error
    return timm


@dataclass(frozen=True, slots=True)
class TimmBuilder:
    """Builds an architecture without pretrained weights; takes the keywords of `timm.create_model`."""

    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def example(self, model: nn.Module) -> CallArguments | None:
        """A picture of the size that the architecture is made for."""
        size = getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
        return image_call(*size)

    def __call__(self, **changes: object) -> nn.Module:
        return _timm().create_model(self.name, pretrained=False, **changes)
