"""`mk.rewrite.function_modules`: the context in which every function that a forward calls is a module."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.function_modules.dispatch import (
    FunctionDispatcher,
    FunctionModuleSession,
    sessions,
)
from modulekg_widgets.engine.rewriting.function_modules.function_module import FunctionModule
from modulekg_widgets.engine.rewriting.function_modules.interception import interceptor_of
from modulekg_widgets.engine.rewriting.function_modules.recording import record_functions
from modulekg_widgets.engine.torch_runtime.modules import is_script


class FunctionModules:
    """The function modules of a model, and whether they are in use; a context that ends with the model as it was.

    What was put in the place of one stays there from `deactivate()` to `activate()`.

    Attributes
    ----------
    model : nn.Module
        The model.
    modules : dict of str to nn.Module
        The function modules, or what was put in their place, by dotted name.
    names : list of str
        Their dotted names.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> model = Double()
    >>> functions = mk.rewrite.activate(model, torch.ones(2))
    >>> functions.names, functions.is_active()
    (['function_modules.relu_0', 'function_modules.mul_0'], True)
    >>> functions.deactivate()
    >>> functions.is_active()
    False
    """

    def __init__(self, model: nn.Module, session: FunctionModuleSession) -> None:
        self.model = model
        self._session = session
        self._entered = 0

    def activate(self) -> None:
        """Serve the functions by modules that their owners list.

        Raises
        ------
        RewritingError
            When they are served already.
        """
        places = walk(self.model)
        _check_inactive(places)
        self._session.install(places)

    def deactivate(self) -> None:
        """Give each module its own forward and children back; does nothing when inactive."""
        self._session.remove()

    def is_active(self) -> bool:
        """Returns True if the model's functions are served by modules now."""
        return self._session.active

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The function modules, or what was put in their place, by dotted name."""
        return {name: module for server in self._session.servers for name, module in server.named_function_modules()}

    @property
    def names(self) -> list[str]:
        """The dotted names of the function modules."""
        return list(self.modules)

    def __enter__(self) -> FunctionModules:
        if not self.is_active():
            self.activate()
        self._entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if not self._entered:
            self.deactivate()
            self._session.forget()

    def __len__(self) -> int:
        return len(self.modules)

    def __repr__(self) -> str:
        state = "active" if self.is_active() else "not active"
        lines = [f"<FunctionModules of {printable(type(self.model).__name__)}: {len(self)}, {state}>"]
        for name, module in list(self.modules.items())[:12]:
            what = module.site if isinstance(module, FunctionModule) else printable(type(module).__name__)
            lines.append(f"  {printable(name)}: {what}")
        return "\n".join(lines + ["  …"] * (len(self) > 12))


@explain_keywords("mk.rewrite.function_modules")
def function_modules(
    model: nn.Module, args: object = (), kwargs: Mapping[str, object] | None = None
) -> FunctionModules:
    """A context in which every function that a forward calls is a module, listed on its owner and with equal results.

    A call as `F.relu(x)` in the forward of `layer1.0` is served by `layer1.0.function_modules.relu_0`, which `find` and
    `find_chains` find, `replace` replaces and a `Monitor` watches: functions of torch and torch.nn.functional, methods
    and operators of tensors, custom operators. Modules of torch.nn that only call their function stay what they are.
    The calls are recorded by running the model on `args`, in eval and in training mode, without and with gradients;
    leaving puts the model back as it was. A forward that then calls other functions than those recorded raises
    `ChangedCallsError`. While a forward runs, nobody sees the function modules among the children.

    Parameters
    ----------
    model : nn.Module
        The model.
    args, kwargs : tuple and dict
        Inputs that forward takes; one tensor alone will do.

    Returns
    -------
    FunctionModules
        To be used as `with function_modules(model, args) as functions:`.

    Raises
    ------
    TraceError
        When forward stops on the inputs.
    RewritingError
        For a model that uses function modules already, and for TorchScript.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> import torch.nn.functional as F
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> model = Double()
    >>> with mk.rewrite.function_modules(model, torch.ones(2)):
    ...     print(mk.rewrite.find(model, F.relu))
    ['function_modules.relu_0']
    """
    places = walk(model)
    root = places.modules[0]
    if is_script(root):
        raise RewritingError("the model is TorchScript, whose functions no module can serve: pass the one before")
    _check_inactive(places)
    return FunctionModules(root, FunctionModuleSession(places, record_functions(root, args, kwargs)))


@explain_keywords("mk.rewrite.activate")
def activate(model: nn.Module, args: object = None, kwargs: Mapping[str, object] | None = None) -> FunctionModules:
    """Use function modules until `deactivate(model)`; without `args` the last ones of this model again.

    Those of a context are the last ones while it lasts.

    Parameters
    ----------
    model : nn.Module
        The model.
    args, kwargs : tuple and dict, optional
        Inputs that forward takes, as for `function_modules`; `()` for a forward without inputs.

    Returns
    -------
    FunctionModules
        The function modules, in use.

    Raises
    ------
    RewritingError
        Where there are none to use again, or they are in use; beside it what `function_modules` raises.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> model = Double()
    >>> mk.rewrite.activate(model, torch.ones(2)).names
    ['function_modules.relu_0', 'function_modules.mul_0']
    >>> mk.rewrite.deactivate(model)
    """
    root = walk(model).modules[0]
    if args is not None or kwargs is not None:
        made = function_modules(model, () if args is None else args, kwargs)
    elif (session := sessions.get(id(root))) is not None:
        made = FunctionModules(root, session)
    else:
        raise RewritingError(
            "this model has no function modules yet: pass args, as activate(model, x); () for no inputs"
        )
    made.activate()
    return made


def deactivate(model: nn.Module) -> None:
    """Give each module of a model its own forward back; does nothing when inactive.

    Parameters
    ----------
    model : nn.Module
        The model.

    Raises
    ------
    RewritingError
        For a part of a model whose function modules are in use.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.rewrite.deactivate(nn.Linear(4, 2))
    """
    root = walk(model).modules[0]
    listener = interceptor_of(root)
    if not isinstance(listener, FunctionDispatcher):
        return
    if listener.session.model() is not None and listener.session.model() is not root:
        raise RewritingError("this module is part of a model that uses function modules: deactivate that model")
    listener.session.remove()


def is_active(model: nn.Module) -> bool:
    """Returns True if function modules serve the functions of this model, or of a model around it.

    Parameters
    ----------
    model : nn.Module
        The model.

    Returns
    -------
    bool
        Whether they do.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.rewrite.is_active(nn.Linear(4, 2))
    False
    """
    return isinstance(interceptor_of(walk(model).modules[0]), FunctionDispatcher)


def _check_inactive(places: Walk) -> None:
    for index, module in enumerate(places.modules):
        if interceptor_of(module) is not None:
            where = printable(places.path(index)) or "the model"
            raise RewritingError(f"{where} uses function modules already: leave that context, or deactivate them")
