"""`mk.save_model` and `mk.load_pretrained`: cut models as folders for other processes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from modulekg_widgets.engine.errors import ModelFolderError, ModuleKGError, a_type, printable
from modulekg_widgets.engine.pruning.cut.receipt import Receipt
from modulekg_widgets.engine.pruning.plan.saved.plan_file import parse_plan
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.saving.load import load
from modulekg_widgets.engine.pruning.saving.save import SavedModel, save
from modulekg_widgets.engine.safe_files import PATHLIKE

_plans_of_loaded: weakref.WeakKeyDictionary[nn.Module, list[PruningPlan]] = (
    weakref.WeakKeyDictionary()
)  # what cut them before


def save_model(
    model: nn.Module,
    folder: PATHLIKE,
    receipt: Receipt | PruningPlan | Sequence[Receipt | PruningPlan] | None = None,
    arguments: Mapping[str, object] | tuple[object, ...] | None = None,
    builder: Callable[..., nn.Module] | None = None,
) -> SavedModel:
    """Save a model, cut or not, as safetensors and JSON; `mk.load_pretrained` reads it in another process.

    The model is built anew without weights, by its library or its class, and cut alike; only if all names, shapes and
    sizes agree, the folder is written, as a whole or not at all.

    Parameters
    ----------
    model : nn.Module
        A model of transformers or timm, or any other one whose class can be imported.
    folder : str or path
        A new or empty folder, or one that a model was saved in before, which is replaced.
    receipt : Receipt, PruningPlan or a sequence of these, optional
        What it was cut by; several cuts in turn. Those of a model that `mk.load_pretrained` gave are known.
    arguments : dict or tuple, optional
        What the class was called with, as JSON has it. Without it the arguments are those that the model keeps in
        attributes of their names, or none.
    builder : callable, optional
        A function at the top of a module that builds the model, where its class alone cannot.

    Returns
    -------
    SavedModel
        With `folder`, `plain` (whether the library's own `from_pretrained` loads it) and `reason`.

    Raises
    ------
    ModelFolderError
        For a model that is not built anew as it is, and for a folder that holds something else or cannot be written.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    >>> receipt = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5).cut(model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = mk.save_model(model, folder, receipt)
    ...     again = mk.load_pretrained(folder)
    >>> torch.equal(again(torch.ones(1, 4)), model(torch.ones(1, 4)))
    True
    """
    if not isinstance(model, nn.Module):
        raise ModelFolderError(f"got {a_type(model)}: pass the model, an instance of torch.nn.Module")
    receipts = receipt if isinstance(receipt, list | tuple) else [] if receipt is None else [receipt]
    cuts = [_plan_of_receipt(each).saved_cut for each in receipts]
    before = [plan.saved_cut for plan in _plans_of_loaded.get(model, ())]
    if [cut.text for cut in cuts[: len(before)]] != [cut.text for cut in before]:
        cuts = before + cuts
    return save(model, folder, cuts, arguments, builder)


def _plan_of_receipt(value: object) -> PruningPlan:
    plan = value.plan if isinstance(value, Receipt) else value
    if isinstance(value, Receipt) and value.is_spent:
        raise ModelFolderError(f"{value!r} was undone: leave it out")
    if not isinstance(plan, PruningPlan):
        raise ModelFolderError(
            f"{printable(repr(value))} is not a receipt of a cut: pass what plan.cut gave, or leave it out where sizes "
            "stayed"
        )
    return plan


def load_pretrained(folder: PATHLIKE, classes: Sequence[Callable[..., object]] = ()) -> nn.Module:
    """Load a model that was saved by `receipt.save_pretrained`, `plan.save_pretrained` or `mk.save_model`.

    The folder is data: no pickle is opened, no code in it is run, nothing is downloaded, and no module is imported
    because it says so, but for those of transformers, timm and torch themselves.

    Parameters
    ----------
    folder : str or path
        The folder.
    classes : sequence, optional
        Your own classes and functions that it may name to build the model. A module class that has been imported
        already need not be listed.

    Returns
    -------
    nn.Module
        The cut model in eval mode on the CPU, with the dtypes that it was saved with.

    Raises
    ------
    ModelFolderError
        For any other folder: missing or foreign files, other shapes, the plan of another model. Nothing is half loaded.
    MissingPackageError
        Where the library of the model is not installed.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = plan.save_pretrained(model, folder)
    ...     smaller = mk.load_pretrained(folder)
    >>> smaller[0].out_features, model[0].out_features
    (4, 8)
    """
    plans: list[PruningPlan] = []

    def replay(text: bytes, model: nn.Module) -> None:
        try:
            plans.append(parse_plan(text, "mk.load_plan(…)"))
        except ModuleKGError:
            raise
        except (ValueError, RecursionError) as error:
            raise ModelFolderError(f"the plan in the folder is not JSON: {printable(str(error), 200)}") from error
        plans[-1].cut(model)

    model = load(folder, classes, replay)
    _plans_of_loaded[model] = plans
    return model
