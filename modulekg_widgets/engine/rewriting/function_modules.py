"""Functions as modules: each function that a forward calls is served by a module that its owner lists."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from modulekg_widgets.engine.errors import ChangedCallsError, ModuleKGError, RewritingError, shown
from modulekg_widgets.engine.identity.hierarchy import Walk, is_script, module_state, walk
from modulekg_widgets.engine.rewriting.chains import HOLDER
from modulekg_widgets.engine.rewriting.fitting import fitted, held_by
from modulekg_widgets.engine.rewriting.function_module import CallSite, FunctionModule
from modulekg_widgets.engine.rewriting.functions import function_name
from modulekg_widgets.engine.rewriting.listening import Listener, Run, listener_of
from modulekg_widgets.engine.rewriting.recording import Call, is_operation, owners, record, sites_of
from modulekg_widgets.engine.tracing.source import Source

log = logging.getLogger("modulekg_widgets")
_PASSES = 2  # what the first keeps for later ones, as a table that is made once, the second no longer makes


class FunctionModules:
    """The function modules of a model, and whether they are in use; a context that ends with the model as it was.

    `modules` has them by dotted name. What was put in the place of one stays there from `deactivate()` to `activate()`.
    """

    def __init__(self, model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> None:
        places = walk(model)
        self.model = places.modules[0]
        if is_script(self.model):
            raise RewritingError("the model is TorchScript, whose functions no module can serve: pass the one before")
        _check_inactive(places)
        runs = _runs(self.model, args, kwargs)
        # what a module lists comes after its children, and so it is with theirs
        inner_first = sorted(owners(places), key=lambda index: (places.ends[index], -index))
        self._servers = [_Server(places, index, runs.get(index, [])) for index in inner_first]
        self._active = False
        _open.add(self)

    def activate(self) -> None:
        """Serve the functions by modules that their owners list; raises `RewritingError` when they are already."""
        if self._active:
            raise RewritingError("the function modules are active already")
        _check_inactive(walk(self.model))
        for server in self._servers:
            server.install()
        listener = listener_of(self.model)
        assert isinstance(listener, _Server)
        listener.of_model = self
        self._active = True

    def deactivate(self) -> None:
        """Give each module its own forward and its own children back; does nothing when they have them."""
        for server in self._servers:
            server.remove()
        self._active = False

    def is_active(self) -> bool:
        """Whether the model's functions are served by modules now."""
        return self._active

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The function modules, or what was put in their place, by dotted name."""
        return {name: module for server in self._servers for name, module in server.listed()}

    @property
    def names(self) -> list[str]:
        """The dotted names of the function modules."""
        return list(self.modules)

    def __enter__(self) -> FunctionModules:
        if not self._active:
            self.activate()
        return self

    def __exit__(self, *error: object) -> None:
        self.deactivate()
        _open.discard(self)

    def __len__(self) -> int:
        return len(self.modules)

    def __repr__(self) -> str:
        state = "active" if self._active else "not active"
        lines = [f"<FunctionModules of {shown(type(self.model).__name__)}: {len(self)}, {state}>"]
        for name, module in list(self.modules.items())[:12]:
            what = module.site if isinstance(module, FunctionModule) else shown(type(module).__name__)
            lines.append(f"  {shown(name)}: {what}")
        return "\n".join(lines + ["  …"] * (len(self) > 12))


def function_modules(model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> FunctionModules:
    """A context in which every function that a forward calls is a module, listed on its owner and with equal results.

    `with function_modules(model, args): …`: a call as `F.relu(x)` in the forward of `layer1.0` is served by
    `layer1.0.function_modules.relu_0`, which `find` and `find_chains` find, `replace` replaces and a `Monitor` watches:
    functions of torch and torch.nn.functional, methods and operators of tensors, custom operators. Modules of torch.nn
    that only call their function stay what they are. The calls are recorded by tracing the model on `args` in its own
    mode and in the other one; leaving puts the model back as it was. A forward that then calls other functions than
    those recorded raises `ChangedCallsError`. Raises `TraceError`, and `RewritingError` for a model that is active.
    """
    return FunctionModules(model, args, kwargs)


def activate(model: nn.Module, args: Any = None, kwargs: Mapping[str, Any] | None = None) -> FunctionModules:
    """Use function modules until `deactivate(model)`; without `args`, those of a `function_modules` context again."""
    root = walk(model).modules[0]
    found = next((modules for modules in _open if modules.model is root), None)
    if found is None or args is not None or kwargs is not None:
        found = FunctionModules(model, () if args is None else args, kwargs)
    found.activate()
    return found


def deactivate(model: nn.Module) -> None:
    """Give each module of a model its own forward back; does nothing for a model that has it.

    Raises `RewritingError` for a part of a model whose function modules are in use.
    """
    listener = listener_of(walk(model).modules[0])
    if not isinstance(listener, _Server):
        return
    if listener.of_model is None:
        raise RewritingError("this module is part of a model that uses function modules: deactivate that model")
    listener.of_model.deactivate()


def is_active(model: nn.Module) -> bool:
    """Whether function modules serve the functions of this model, or of the model that it is part of."""
    return isinstance(listener_of(walk(model).modules[0]), _Server)


_open: WeakSet[FunctionModules] = WeakSet()  # in a context that has not ended


def _check_inactive(places: Walk) -> None:
    for index, module in enumerate(places.modules):
        if listener_of(module) is not None:
            where = shown(places.path(index)) or "the model"
            raise RewritingError(
                f"{where} uses function modules already: leave that context, or deactivate them, first"
            )


def _runs(model: nn.Module, args: Any, kwargs: Mapping[str, Any] | None) -> dict[int, list[list[Call]]]:
    """What each forward calls, in the model's own mode and, where it runs, in the other one."""
    recorded = record(model, args, kwargs, training=None, passes=_PASSES)
    try:
        other = record(model, args, kwargs, training=not model.training, passes=_PASSES)
    except ModuleKGError as error:
        log.debug("function modules know the mode training=%s alone: %s", model.training, error)
        return recorded.runs
    return {index: [*runs, *other.runs.get(index, [])] for index, runs in recorded.runs.items()}


# --------------------------------------------------------------------- serving

# in eval and without gradients torch runs these as one operator, unless a mode such as ours is on
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Server(Listener):
    """Serves the functions of one forward."""

    def __init__(self, places: Walk, index: int, runs: list[list[Call]]) -> None:
        super().__init__(places.modules[index], places.path(index))
        self.of_model: FunctionModules | None = None  # on the model itself
        ways = {tuple(site.name for site in way): way for way in sites_of(runs)}
        self.ways: list[list[CallSite]] = list(ways.values())
        sites = {site.name: site for way in self.ways for site in way}
        self.holder = nn.ModuleDict({name: FunctionModule(site) for name, site in sites.items()})
        self.holder.train(self.owner.training)
        self.key = self._free_name()

    def _free_name(self) -> str:
        state = module_state(self.owner)
        taken = {*dir(type(self.owner)), *state, *state["_modules"], *state["_parameters"], *state["_buffers"]}
        name = HOLDER
        while name in taken:
            name += "_"
        return name

    @property
    def aside(self) -> str | None:
        return self.key if len(self.holder) else None

    def install(self) -> None:
        super().install()
        if len(self.holder):
            module_state(self.owner)["_modules"][self.key] = self.holder

    def remove(self) -> None:
        super().remove()
        self.of_model = None
        children = module_state(self.owner)["_modules"]
        if children.get(self.key) is self.holder:
            del children[self.key]

    def listed(self) -> list[tuple[str, nn.Module]]:
        """The function modules with their dotted names."""
        above = [self.path] if self.path else []
        return [(".".join([*above, self.key, name]), module) for name, module in self.holder.items()]

    def begin(self) -> Run | None:
        return None if self._is_fused() else _Serving(self)

    def _is_fused(self) -> bool:
        """Whether torch may run the whole module as one operator, as it would without us: then nothing is called."""
        if not isinstance(self.owner, _FUSED) or self.owner.training or not torch.backends.mha.get_fastpath_enabled():
            return False
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.owner.parameters()):
            return False
        servers = [listener_of(module) for module in self.owner.modules()]
        return not any(isinstance(server, _Server) and server.is_in_use() for server in servers)

    def is_in_use(self) -> bool:
        """Whether a function module was replaced, or somebody listens to one."""
        return any(type(m) is not FunctionModule or any(getattr(m, h) for h in _HOOKS) for m in self.holder.values())


class _Serving(Run):
    def __init__(self, server: _Server) -> None:
        self.server = server
        self.ways = server.ways
        self.count = 0

    def called(self, function: Any, source: Source, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._site(function, source)
        if site is None:
            result = function(*args, **kwargs)
            if is_operation(function, result):
                raise self._changed(f"calls {function_name(function)} at {source}")
            return result
        module = module_state(self.server.holder)["_modules"].get(site.name)
        if module is None:
            raise RewritingError(f"the function module {site.name} of {self._where} is gone: put nn.Identity() instead")
        if not isinstance(module, FunctionModule):
            args, kwargs = fitted(module, args, kwargs, held_by(self.server.owner))  # type: ignore[assignment]
        return module(*args, **kwargs)

    def _site(self, function: Any, source: Source) -> CallSite | None:
        """The site of the next call, of which the ways that are left agree on what came before."""
        at = self.count
        ways = [way for way in self.ways if len(way) > at and way[at].source == source and way[at].function == function]
        if not ways:
            return None
        self.ways, self.count = ways, at + 1
        return ways[0][at]

    def finish(self) -> None:
        if not any(len(way) == self.count for way in self.ways):
            missing = self.ways[0][self.count]
            raise self._changed(f"ended before it called {missing}")

    @property
    def _where(self) -> str:
        return shown(self.server.path) or f"the {shown(type(self.server.owner).__name__)}"

    def _changed(self, what: str) -> ChangedCallsError:
        return ChangedCallsError(
            f"the forward of {self._where} {what}, unlike when its function modules were made. Make them anew with "
            "inputs that take this way, in the state that the model is in now, or deactivate them"
        )
