"""Distillation: a loss that trains a cut model towards the outputs and features of the uncut one.

Users call a `Distillation` object in their training loop in place of a loss on targets. Outputs are
compared by the KL divergence of softened logits or, where there are no classes, by the squared error.
Features are compared in the modules that repeat: `keep_masks_of` reads from the receipt which indices
remain, so that the teacher's features are sliced to the student's and no projection has to be learnt.
The teacher runs as a copy that shares its parameters, in eval mode and without gradients.
`check_teacher` refuses a teacher of other shapes or of unrelated weights.

    distill = mk.pruning.Distillation(teacher, receipt)
    loss = distill(student, batch)
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import KeepMasks, resolve
from modulekg_widgets.engine.axes.graph import DataflowGraph, trace
from modulekg_widgets.engine.axes.terms.algebra import atoms
from modulekg_widgets.engine.axes.terms.term_positions import keep_mask
from modulekg_widgets.engine.errors import CutError, TraceError, UnknownPathError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.cut.receipt import Receipt, Samples, sample_entries
from modulekg_widgets.engine.pruning.importance.calibration import check_samples, model_inputs
from modulekg_widgets.engine.pruning.recover.sandbox_runs import TracedCall
from modulekg_widgets.engine.residuals.module_removal import paths_after
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import CALL_HOOKS
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, tensors
from modulekg_widgets.engine.tracing.dataflow import DataNode

# -------------------- The positions of the uncut model's values that remain in the cut model


Positions = dict[int, torch.Tensor]  # dimension → the positions that stay


def keep_masks_of(axes: Axes, edits: Edits) -> KeepMasks:
    """The remaining indices of each axis, from the edits of tensors.

    Raises `CutError` where the traced model is not the one that the edits are of.
    """
    keeps: KeepMasks = {}
    for edit in edits.tensors:
        node = next((axes.graph.state[name] for name in edit.names if name in axes.graph.state), None)
        if node is None:
            continue  # another pass of the model may leave a tensor alone
        if node.shape != edit.shape:
            raise CutError(
                f"{printable(edit.names[0])!r} has the shape {list(node.shape)}, and {list(edit.shape)} before the "
                "cut: "
                "pass the uncut model that the receipt came from, as copy.deepcopy(model) before plan.cut(model)"
            )
        for at, positions in edit.kept.items():
            keep = np.zeros(edit.shape[at], dtype=bool)
            keep[positions] = True
            resolve(axes.inference.dims(node)[at], keep, keeps, f"dimension {at} of {printable(edit.names[0])}")
    return keeps


def positions_of(axes: Axes, keeps: KeepMasks, node: DataNode) -> Positions:
    """The remaining positions of each dimension of a value that loses some."""
    return {
        at: torch.from_numpy(np.flatnonzero(keep_mask(term, keeps)))
        for at, term in enumerate(axes.inference.dims(node))
        if any(atom in keeps for atom in atoms(term))
    }


def select_positions(value: torch.Tensor, positions: Positions) -> torch.Tensor:
    """The remaining slices of a value."""
    for at, own in positions.items():
        value = value.index_select(at, own.to(value.device))
    return value


def first_float(value: object) -> torch.Tensor | None:
    """The first floating-point tensor in a module's output."""
    return next((tensor for _, tensor in tensors(value) if tensor.is_floating_point()), None)


# -------------------- Check that a teacher is the model that a receipt came from


MIN_COSINE = 0.1  # the cosine between weights below which they have nothing to do with one another
CHANCE_FACTOR = 3.0  # over the root of how many entries there are: as far as chance alone may take it
MAX_REQUIRED_COSINE = 0.5  # what no teacher needs to exceed, however few entries there are


def check_teacher(teacher: nn.Module, receipt: Receipt, compares_features: bool) -> None:
    """Raise `CutError` for a teacher of other shapes or, with features, of unrelated weights.

    Indices have a meaning in one network only: those of another training, of the same shapes, are other features. What
    the model before the cut was trained to since, or an average of its weights, is near to it.
    """
    own = dict(teacher.state_dict(keep_vars=True))
    cut = [edit for edit in receipt.edits.tensors if any(name in own for name in edit.names)]
    if not cut and not receipt.edits.removal:
        raise CutError("the teacher has none of the tensors that were cut: pass the model that the receipt came from")
    for edit in cut:
        name = next(name for name in edit.names if name in own)
        if tuple(own[name].shape) != edit.shape:
            raise CutError(
                f"the teacher's {printable(name)!r} has the shape {list(own[name].shape)}, and {list(edit.shape)} "
                "before "
                "the cut: pass the uncut model that the receipt came from, as copy.deepcopy(model) before the cut"
            )
    cosine = _low_cosine(own, {} if receipt.is_spent else receipt.samples) if compares_features else None
    if cosine is not None:
        raise CutError(
            "the teacher's weights are not those of the model before the cut, nor near them (cosine "
            f"{cosine:.2f}): its features mean something else. Pass the uncut model that the receipt came from, as "
            "copy.deepcopy(model) before the cut, or features=False to compare outputs alone"
        )


def _low_cosine(own: Mapping[str, Tensor], before: Samples) -> float | None:
    """The cosine between both weights, if it is too low for related models; else None."""
    known = [name for name in before if name in own and not own[name].is_meta]
    if not known:
        return None
    one, two = (
        torch.cat(each) for each in ([sample_entries(own[name]) for name in known], [before[name] for name in known])
    )
    lengths = float(one.norm() * two.norm())
    cosine = float(one @ two) / lengths if lengths else 1.0
    return cosine if cosine < min(MAX_REQUIRED_COSINE, max(MIN_COSINE, CHANCE_FACTOR / len(one) ** 0.5)) else None


# ----------------------------------------


MAX_FEATURES = 24  # modules that are compared unless the user names them
SUM_TOLERANCE = 5e-3  # how far from 1 the sum of a half-precision softmax may be
LOGIT_EPSILON = 1e-6  # probabilities so near to 0 or 1 have no logits


class Distillation:
    """A loss for training a cut model towards the uncut one: `loss = distill(student, batch)`.

    The sum of two parts. The outputs: KL(teacher ‖ student) of logits at a temperature T, times T² (Hinton et al. 2015,
    "Distilling the Knowledge in a Neural Network"), averaged over all distributions; where the model gives
    probabilities, as behind a softmax or a sigmoid, that of the logits that they come from; where it gives neither, as
    hidden states or one number a sample, the mean squared difference relative to the teacher's variance. The features:
    the same relative difference between what modules give in both, in each of their calls, where the teacher's values
    are those at the indices that the cut kept, so that no projection has to be learnt.

    Parameters
    ----------
    teacher : nn.Module
        The model before the cut, as `copy.deepcopy(model)`. It is not written to: a copy that shares its parameters
        and has buffers of its own runs, in eval mode and without gradients.
    receipt : Receipt, optional
        What `plan.cut(model)` gave; without it only outputs are compared.
    temperature : float, default 2.0
        Above 0; 1 compares the probabilities themselves.
    features : bool, str or iterable of str, default True
        Modules that are compared: paths in the teacher, with wildcards; none for False. By default those that are
        repeated, as the blocks of a network, or where there are none its children; at most 24, evenly chosen. What was
        removed is left out, and what moved up behind it is compared with what it was.
    weight : float, default 1.0
        What the part of the features is multiplied with.
    outputs : {"auto", "kl", "mse"} or function, default "auto"
        How outputs are compared; a function takes (student's output, teacher's output) and gives a tensor of one
        number. A model whose only tensor has no classes, as that of an autoencoder, needs "mse". Outputs that lie
        between 0 and 1 in both models count as probabilities: of one choice where they add up to 1, else each of its
        own yes and no.

    Raises
    ------
    CutError
        For a teacher that the receipt is not of, by its shapes or, where features are compared, by its weights; and
        for numbers that make no loss.

    Examples
    --------
    >>> import copy, torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> teacher, x = copy.deepcopy(model), torch.randn(3, 4)
    >>> receipt = mk.plan(mk.trace(model, x), ratio=0.5).cut(model)
    >>> distill = mk.pruning.Distillation(teacher, receipt, temperature=2.0)
    >>> loss = distill(model, x)
    >>> loss.backward()
    >>> loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        teacher: nn.Module,
        receipt: Receipt | None = None,
        *,
        temperature: float = 2.0,
        features: bool | str | Iterable[str] = True,
        weight: float = 1.0,
        outputs: str | Callable[..., Tensor] = "auto",
    ) -> None:
        _check_arguments(teacher, receipt, temperature, weight, outputs)
        self.temperature = float(temperature)
        self.weight = float(weight)
        self.outputs = outputs
        self._requested_features = _requested_paths(features)
        if receipt is not None:
            check_teacher(teacher, receipt, compares_features=self._requested_features is not False)
        self._edits = None if receipt is None else receipt.edits
        self._moved = {} if receipt is None else paths_after(walk(teacher), receipt.edits.removal)
        self._source = teacher
        self._teacher = _sharing_copy(teacher)
        wanted = TracedCall.of_signature(teacher)
        self._call = (wanted.args, wanted.kwargs)  # how batches are read
        self._positions: dict[str, list[Positions]] | None = None  # per module that is compared, and per call
        self._are_scores = True  # whether all outputs so far lay between 0 and 1
        self._form = "logits"  # of the outputs, as they were compared last

    # ------------------------------------------------------------------ loss

    def __call__(self, student: nn.Module, batch: object) -> Tensor:
        """The loss of one batch, with gradients for the student.

        Parameters
        ----------
        student : nn.Module
            The cut model.
        batch : object
            What forward takes: a tensor, a tuple of arguments or a dict of keywords, or a pair of that and a target,
            which is left aside.

        Returns
        -------
        Tensor
            A scalar.

        Raises
        ------
        CutError
            For a batch that does not fit, a teacher whose output is not finite, a student that gives other shapes, and
            a loss that is not finite.
        """
        if not isinstance(student, nn.Module):
            raise CutError(f"the student is {a_type(student)}: pass distill(the cut model, batch)")
        args, kwargs = call = model_inputs(batch, self._call)
        check_samples(call, "the batch")
        if self._positions is None:
            self._positions = self._features(args, kwargs)
        with torch.no_grad(), _record_outputs(self._teacher, self._positions) as of_teacher:
            self._renew_buffers()
            expected = _run_model(self._teacher, args, kwargs, "teacher")
        compare = self._comparison(expected)  # before the student runs, which may count what is no batch
        with _record_outputs(student, [self._moved[path] for path in self._positions]) as of_student:
            output = _run_model(student, args, kwargs, "student")
        loss = compare(output)
        parts = [part for path in self._positions for part in self._feature_losses(path, of_student, of_teacher)]
        loss = loss + self.weight * torch.stack(parts).mean() if parts and self.weight else loss
        if not bool(torch.isfinite(loss)):
            raise CutError(f"the loss of this batch is {float(loss.detach())}: look at the weights of the student")
        return loss

    def _renew_buffers(self) -> None:
        """Copy the present buffers of the teacher, as forward may write into the copy."""
        for own, its in zip(self._teacher.buffers(), self._source.buffers(), strict=True):
            own.copy_(its)

    def _comparison(self, expected: object) -> Callable[[object], Tensor]:
        """The comparison of the student's output with the teacher's; raises `CutError` if there is none."""
        theirs = _compared_tensors(expected)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in theirs):
            raise CutError("what the teacher gives for this batch is not finite: look at the batch and its weights")
        if callable(self.outputs):
            compare_all = self.outputs
            return lambda output: _as_scalar(compare_all(output, expected))
        have_classes = all(_has_classes(tensor) for tensor in theirs)
        if self.outputs == "kl" and not have_classes:
            raise CutError(
                f"outputs='kl' compares distributions over classes, and the teacher gives "
                f"{[list(tensor.shape) for tensor in theirs]}, one class or none: pass outputs='mse'"
            )
        way = self.outputs if self.outputs != "auto" else "kl" if _are_logits(expected) and have_classes else "mse"
        compare = self._divergence if way == "kl" else relative_error
        return lambda output: _mean_comparison(compare, _compared_tensors(output), theirs)

    def _divergence(self, output: Tensor, expected: Tensor) -> Tensor:
        """The KL divergence over classes, averaged over all else; probabilities are compared as logits."""
        output, expected = output.float(), expected.float()
        self._are_scores = (
            self._are_scores and _are_within_unit_interval(expected) and _are_within_unit_interval(output)
        )
        if not self._are_scores:
            self._form = "logits"
            return self._choice_divergence(output, expected, _probability_dim(expected.exp()))
        dim = _probability_dim(expected)
        self._form = "probabilities" if dim is None else "probabilities of one choice"
        if dim is not None:
            return self._choice_divergence(_safe_log(output), _safe_log(expected), dim)
        ours, theirs = (torch.logit(each, LOGIT_EPSILON) / self.temperature for each in (output, expected))
        yes, no = (torch.sigmoid(sign * theirs) * _log_ratio(sign * theirs, sign * ours) for sign in (1, -1))
        return (yes + no).mean() * self.temperature**2

    def _choice_divergence(self, output: Tensor, expected: Tensor, dim: int | None) -> Tensor:
        dim = _class_dim(output) if dim is None else dim
        ours = F.log_softmax(output / self.temperature, dim)
        theirs = F.log_softmax(expected / self.temperature, dim)
        return F.kl_div(ours, theirs, reduction="none", log_target=True).sum(dim).mean() * self.temperature**2

    def _feature_losses(
        self, path: str, of_student: Mapping[str, list[Tensor]], of_teacher: Mapping[str, list[Tensor]]
    ) -> list[Tensor]:
        """The losses of each call of a module."""
        assert self._positions is not None
        theirs, ours = of_teacher.get(path, []), of_student.get(self._moved[path], [])
        kept = self._positions[path]
        if len(kept) != len(theirs) and all(_are_equal(one, kept[0]) for one in kept):
            kept = [kept[0]] * len(theirs)
        if not len(kept) == len(theirs) == len(ours):
            raise CutError(
                f"{printable(path)!r} runs {len(theirs)} times in the teacher, {len(ours)} times in the student and "
                f"{len(kept)} times for the first batch: its calls cannot be compared; leave it out of features="
            )
        pairs = zip(ours, theirs, kept, strict=True)
        return [
            self._call_loss(path, output, select_positions(expected, positions))
            for output, expected, positions in pairs
        ]

    def _call_loss(self, path: str, output: Tensor, expected: Tensor) -> Tensor:
        if output.shape != expected.shape:
            raise CutError(
                f"{printable(path)!r} gives the shape {list(output.shape)} in the student and {list(expected.shape)} "
                "at the "
                "kept indices of the teacher: is the student the model that the receipt is of, and not cut again "
                "since? features=False leaves them out"
            )
        return relative_error(output, expected)

    # -------------------------------------------------------------- features

    def _features(self, args: Args, kwargs: Kwargs) -> dict[str, list[Positions]]:
        """The compared modules, each with the remaining positions of its output for each call."""
        if self._edits is None or self._requested_features is False:
            return {}
        try:
            graph = trace(self._teacher, args, kwargs)
        except TraceError as error:
            raise CutError(f"the batch does not go through the teacher: {printable(str(error), 300)}") from error
        axes = graph.free_axes(inputs=True, outputs=True)  # what `outputs=` of the cut model's trace had left free, too
        keeps = keep_masks_of(axes, self._edits)
        positions = {}
        for path in (path for path in self._paths(graph) if path in self._moved):
            nodes = float_outputs(graph, path)
            if not nodes:
                raise CutError(f"{printable(path)!r} gives no floating-point tensor: leave it out of features=")
            positions[path] = [positions_of(axes, keeps, node) for node in nodes]
        return positions

    def _paths(self, graph: DataflowGraph) -> list[str]:
        if isinstance(self._requested_features, bool):
            have_one = [path for path in _repeated_modules(graph) if path in self._moved and float_outputs(graph, path)]
            return _evenly_spaced(have_one, MAX_FEATURES)
        paths: dict[str, None] = {}
        known = [path for path in graph.modules if path]
        for entry in self._requested_features:
            matching = [path for path in known if path == entry or fnmatchcase(path, entry)]
            if not matching:
                raise UnknownPathError(f"no module {printable(entry)!r} runs: {closest_match_hint(entry, known)}")
            paths.update(dict.fromkeys(matching))
        return list(paths)

    def __repr__(self) -> str:
        if self._edits is None or self._requested_features is False:
            inside = ", outputs alone"
        elif self._positions is None:
            inside = ", features of modules that the first batch tells"
        else:
            inside = f", features of {len(self._positions)} modules"
        other = "outputs by a function" if callable(self.outputs) else "squared differences"
        form = "" if self._form == "logits" else f", outputs are {self._form}"
        how = f"temperature {self.temperature:g}{form}" if self.outputs in ("auto", "kl") else other
        return f"<Distillation from {printable(type(self._teacher).__name__)}: {how}{inside}>"


def relative_error(output: Tensor, expected: Tensor) -> Tensor:
    """The mean squared difference relative to the variance of the expected values."""
    expected = expected.float()
    spread = expected.var(correction=0) if expected.numel() > 1 else expected.square().mean()
    return (output.float() - expected).square().mean() / spread.clamp_min(1e-12)


def _class_dim(logits: Tensor) -> int:
    """The last dimension, or the second one for images."""
    return 1 if logits.dim() >= 4 else -1


def _has_classes(output: Tensor) -> bool:
    """True if an output has more than one class."""
    return output.dim() > 1 and output.shape[_class_dim(output)] > 1


def _mean_comparison(compare: Callable[[Tensor, Tensor], Tensor], ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
    """The mean comparison of all tensors of two outputs; raises `CutError` for other shapes."""
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs] or not ours:
        shapes = [[list(tensor.shape) for tensor in each] for each in (ours, theirs)]
        raise CutError(f"the student gives {shapes[0]} and the teacher {shapes[1]}: pass outputs=a function of both")
    return torch.stack([compare(one, other) for one, other in zip(ours, theirs, strict=True)]).mean()


def _as_scalar(value: object) -> Tensor:
    """The result of the user's function as a scalar."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"the shape {list(value.shape)}" if isinstance(value, Tensor) else a_type(value)
        raise CutError(f"outputs= returned {what}: return a tensor of one number, as a mean")
    return value.reshape(())


def float_outputs(graph: DataflowGraph, path: str) -> list[DataNode]:
    """The first floating-point output of each call of a module."""
    firsts = (
        next((node for node in call.outputs if node.dtype.is_floating_point), None)
        for call in graph.modules[path].calls
    )
    return [node for node in firsts if node is not None]


def _are_equal(one: Positions, other: Positions) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[at], other[at]) for at in one)


# ------------------------------------------------------------- probabilities


def _are_within_unit_interval(values: Tensor) -> bool:
    least, greatest = values.detach().aminmax()
    return bool((least >= 0) & (greatest <= 1))


def _probability_dim(shares: Tensor) -> int | None:
    """The dimension along which probabilities sum to 1, if there is one."""
    shares = shares.detach()
    for dim in dict.fromkeys((_class_dim(shares) % shares.dim(), shares.dim() - 1, 1)):
        if shares.shape[dim] > 1 and bool(((shares.sum(dim) - 1).abs() < SUM_TOLERANCE).all()):
            return dim
    return None


def _safe_log(shares: Tensor) -> Tensor:
    return shares.clamp_min(torch.finfo(shares.dtype).tiny).log()


def _log_ratio(one: Tensor, other: Tensor) -> Tensor:
    return F.logsigmoid(one) - F.logsigmoid(other)


# ------------------------------------------------------------------- choices


def _check_arguments(teacher: object, receipt: object, temperature: object, weight: object, outputs: object) -> None:
    if not isinstance(teacher, nn.Module):
        raise CutError(f"the teacher is {a_type(teacher)}: pass the uncut nn.Module")
    if receipt is not None and not isinstance(receipt, Receipt):
        raise CutError(f"the receipt is {a_type(receipt)}: pass what plan.cut(model) gave")
    if not (isinstance(temperature, int | float) and 0 < temperature < float("inf")):
        raise CutError(f"temperature={printable(repr(temperature))}: give a number above 0")
    if not (isinstance(weight, int | float) and 0 <= weight < float("inf")):
        raise CutError(f"weight={printable(repr(weight))}: give a number of at least 0")
    if not callable(outputs) and outputs not in ("auto", "kl", "mse"):
        raise CutError(f"outputs={printable(repr(outputs))}: give 'auto', 'kl', 'mse' or a function of both outputs")


def _requested_paths(features: object) -> bool | list[str]:
    """The `features` argument, as a list if it names modules."""
    if isinstance(features, bool):
        return features
    every = [features] if isinstance(features, str) or not isinstance(features, Iterable) else list(features)
    paths = [each for each in every if isinstance(each, str)]
    if len(paths) < len(every):
        raise CutError(f"features={printable(repr(features))}: give paths of modules, True for some or False for none")
    return paths


def _repeated_modules(graph: DataflowGraph) -> list[str]:
    """The modules with siblings of their class, else the model's children with weights."""
    paths = [path for path in graph.modules if path]
    inner = {path.rpartition(".")[0] for path in paths}
    kinds: dict[tuple[str, type], list[str]] = {}
    for path in paths:
        if path in inner:
            kinds.setdefault((path.rpartition(".")[0], type(graph.modules[path].module)), []).append(path)
    repeated = {path for alike in kinds.values() if len(alike) > 1 for path in alike}
    below = [path for path in repeated if not any(path.startswith(f"{other}.") for other in repeated)]
    if below:
        return sorted(below, key=paths.index)
    return [path for path in paths if "." not in path and graph.modules[path].params] or paths


def _evenly_spaced(every: list[str], most: int) -> list[str]:
    if len(every) <= most:
        return every
    step = (len(every) - 1) / (most - 1)
    return [every[round(at * step)] for at in range(most)]


def _compared_tensors(output: object) -> list[Tensor]:
    """The compared tensors of an output: the logits, else all floating-point ones."""
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return [logits]
    return [tensor for _, tensor in tensors(output) if tensor.is_floating_point()]


def _are_logits(output: object) -> bool:
    return isinstance(output, Tensor) or isinstance(getattr(output, "logits", None), Tensor)


# --------------------------------------------------------------------- passes


def _sharing_copy(teacher: nn.Module) -> nn.Module:
    """A copy of the modules with shared parameters and without hooks, in eval mode."""
    try:
        shared = copy.deepcopy(teacher, {id(tensor): tensor for tensor in teacher.parameters()})
    except Exception as error:  # of the classes of what is in the model
        raise CutError(
            f"the teacher cannot be copied ({type(error).__name__}: {printable(str(error), 200)}): detach what it holds"
        ) from error
    for module in shared.modules():
        for name in CALL_HOOKS:
            module_state(module)[name] = OrderedDict()
    return shared.eval()


def _run_model(model: nn.Module, args: Args, kwargs: Kwargs, role: str) -> object:
    try:
        return model(*args, **kwargs)
    except Exception as error:
        raise CutError(
            f"the batch does not go through the {role}: {type(error).__name__}: {printable(str(error), 300)}; a "
            "batch is "
            "what forward takes, or a pair of that and a target"
        ) from error


@contextmanager
def _record_outputs(model: nn.Module, paths: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Record the outputs of modules while this thread runs the model."""
    every = dict(model.named_modules(remove_duplicate=False))
    names = {id(every[path]): path for path in paths if path in every}
    outputs: dict[str, list[Tensor]] = {}
    thread = threading.get_ident()

    def take(module: nn.Module, _: Args, output: object) -> None:
        path = names.get(id(module))
        if path is not None and threading.get_ident() == thread:
            value = first_float(output)
            if value is not None:
                outputs.setdefault(path, []).append(value)

    if not names:
        yield outputs
        return
    handle = nn.modules.module.register_module_forward_hook(take)
    try:
        yield outputs
    finally:
        handle.remove()
