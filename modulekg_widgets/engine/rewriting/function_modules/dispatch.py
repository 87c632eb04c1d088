"""The dispatch of a forward's function calls to modules: a session per model, a dispatcher per forward."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import ChangedCallsError, RewritingError, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.rewriting.function_modules.compatibility import fit_arguments, owned_tensor_test
from modulekg_widgets.engine.rewriting.function_modules.function_module import CallSite, FunctionModule, function_name
from modulekg_widgets.engine.rewriting.function_modules.interception import (
    ForwardInterceptor,
    ForwardRun,
    interceptor_of,
)
from modulekg_widgets.engine.rewriting.function_modules.recording import (
    FUSED,
    CallSites,
    FunctionCall,
    container_name,
    intercepted_modules,
    is_operation,
    source_of,
)
from modulekg_widgets.engine.torch_runtime.hooks import has_hooks
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs

sessions: dict[
    int, FunctionModuleSession | None
] = {}  # the last one of each model, by its id, for activate() without inputs
_lock = threading.Lock()


class FunctionModuleSession:
    """The state shared by the dispatchers of one model; it references no module of the model."""

    def __init__(self, places: Walk, runs: dict[int, list[list[FunctionCall]]]) -> None:
        root = places.modules[0]
        self.model: Callable[[], nn.Module | None] = weakref.ref(root)
        # what a module lists comes after its children, and so it is with theirs
        inner_first = sorted(intercepted_modules(places), key=lambda index: (places.subtree_ends[index], -index))
        self.servers = [FunctionDispatcher(self, places, index, runs.get(index, [])) for index in inner_first]
        self.active = False
        self.inside = 0
        if id(root) not in sessions:
            weakref.finalize(root, sessions.pop, id(root), None)
        sessions[id(root)] = self

    def forget(self) -> None:
        """Be no more the last one of the model."""
        model = self.model()
        if model is not None and sessions.get(id(model)) is self:
            sessions[id(model)] = None

    def install(self, places: Walk) -> None:
        present = [places.modules[index] for index in intercepted_modules(places)]
        if {id(module) for module in present} != {id(server._owner()) for server in self.servers}:
            raise RewritingError("modules were replaced since the function modules were made: make them anew")
        for server in self.servers:
            server.install()
        self.active = True

    def remove(self) -> None:
        with _lock:
            self.active = False
            for server in self.servers:
                server.remove()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Forwards that go over their own or others' children find what they had; in several threads as well."""
        with _lock:
            self.inside += 1
            if self.inside == 1:
                for server in self.servers:
                    server.hide()
        try:
            yield
        finally:
            with _lock:
                self.inside -= 1
                if not self.inside and self.active:
                    for server in self.servers:
                        server.show()

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionModuleSession:
        new = object.__new__(FunctionModuleSession)
        memo[id(self)] = new
        copied = memo.get(id(self.model()))  # none for a part of the model
        new.model = weakref.ref(copied) if copied is not None else lambda: None
        new.servers, new.active, new.inside = [], self.active, 0  # the servers come with their modules
        return new


# --------------------------------------------------------------------- serving


class FunctionDispatcher(ForwardInterceptor):
    """Serves the functions of one forward."""

    def __init__(
        self, session: FunctionModuleSession, places: Walk, index: int, runs: list[list[FunctionCall]]
    ) -> None:
        super().__init__(places.modules[index], places.path(index))
        self.session = session
        sites = CallSites(runs)
        self.ways = sites.ways
        self.holder = nn.ModuleDict({site.name: FunctionModule(site) for site in sites.by_key.values()})
        self.holder.train(self.owner.training)
        self.key = container_name(self.owner)

    def install(self) -> None:
        super().install()
        self.show()

    def remove(self) -> None:
        super().remove()
        self.hide()

    def show(self) -> None:
        """List the function modules among the children."""
        owner = self._owner()
        if owner is not None and len(self.holder):
            module_state(owner)[MODULES][self.key] = self.holder

    def hide(self) -> None:
        """Take them out of the children."""
        owner = self._owner()
        if owner is not None and module_state(owner)[MODULES].get(self.key) is self.holder:
            del module_state(owner)[MODULES][self.key]

    def named_function_modules(self) -> list[tuple[str, nn.Module]]:
        """The function modules with their dotted names."""
        above = [self.path] if self.path else []
        return [(".".join([*above, self.key, name]), module) for name, module in self.holder.items()]

    def call_context(self) -> AbstractContextManager[None]:
        return self.session.hidden()

    def begin_run(self) -> ForwardRun | None:
        return None if self._is_fused() else _DispatchedRun(self)

    def _is_fused(self) -> bool:
        """True if torch may run the module as one fused operator, which calls no functions."""
        if not isinstance(self.owner, FUSED) or self.owner.training or not torch.backends.mha.get_fastpath_enabled():
            return False
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.owner.parameters()):
            return False
        servers = [interceptor_of(module) for module in self.owner.modules()]
        return not any(isinstance(server, FunctionDispatcher) and server.is_in_use() for server in servers)

    def is_in_use(self) -> bool:
        """True if a function module was replaced, or has hooks."""
        return any(type(m) is not FunctionModule or has_hooks(m) for m in self.holder.values())

    def __deepcopy__(self, memo: dict[int, object]) -> FunctionDispatcher:
        new = super().__deepcopy__(memo)
        assert isinstance(new, FunctionDispatcher)
        new.session.servers.append(new)
        return new


class _DispatchedRun(ForwardRun):
    def __init__(self, server: FunctionDispatcher) -> None:
        self.server = server
        self.ways = server.ways
        self.count = 0

    def call_function(self, function: Function, frame: FrameType, args: Args, kwargs: Kwargs) -> object:
        site = self._site(function, frame)
        if site is None:
            result = function(*args, **kwargs)
            if is_operation(function, result):
                raise self._changed(f"calls {function_name(function)} at {source_of(frame)}")
            return result
        module = module_state(self.server.holder)[MODULES].get(site.name)
        if module is None:
            raise RewritingError(
                f"the function module {site.name} of {self._where} was removed: put nn.Identity() instead"
            )
        if not isinstance(module, FunctionModule):
            args, kwargs = fit_arguments(module, args, kwargs, owned_tensor_test(self.server.owner))  # type: ignore[assignment]
        return module(*args, **kwargs)

    def _site(self, function: Function, frame: FrameType) -> CallSite | None:
        """Returns the call site of the next call, among the recorded runs that match so far."""
        at, source = self.count, source_of(frame)
        ways = [way for way in self.ways if len(way) > at and way[at].source == source and way[at].function == function]
        if not ways:
            return None
        self.ways, self.count = ways, at + 1
        return ways[0][at]

    def finish(self) -> None:
        if self.ways and not any(len(way) == self.count for way in self.ways):
            raise self._changed(f"ended before it called {self.ways[0][self.count]}")

    @property
    def _where(self) -> str:
        return printable(self.server.path) or printable(type(self.server.owner).__name__)

    def _changed(self, what: str) -> ChangedCallsError:
        return ChangedCallsError(
            f"the forward of {self._where} {what}, unlike when its function modules were made. Make them anew with "
            "inputs that take this way, in the state that the model is in now, or deactivate them"
        )
