"""Output compensation: layers that read a cut axis are fitted to their old output, where that helps.

Means: bias += mean of the uncut output - mean of the cut one (An et al. 2024, "FLAP"). Least squares: removed inputs as
a mixture of the remaining ones, folded into the weight (He et al. 2017, "Channel pruning"). Errors are measured on
held-out batches, and a fit is kept only if the model's output improves as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, TensorEdit
from modulekg_widgets.engine.pruning.recover.recalibration import RecalibrationMode
from modulekg_widgets.engine.pruning.recover.sandbox_runs import Batches, CutSandbox, run_as_cut
from modulekg_widgets.engine.pruning.recover.uncut_reference import (
    LayerCall,
    LayerCallMode,
    LayerValues,
    ReadingLayer,
    StopForward,
    UncutReference,
    comparable_outputs,
    parameters_of_model,
    sample_rows,
)
from modulekg_widgets.engine.torch_runtime.pytree import Call

# -------------------- Least-squares fit of a layer's removed inputs by its remaining ones, and the shift of its bias


Tensor = torch.Tensor
RIDGE = 1e-3  # of the mean square of what is read


class Mixture(NamedTuple):
    """The linear map from remaining inputs to all inputs: selection plus `added`, and a `constant`."""

    added: Tensor  # (now, before)
    constant: Tensor  # (before,)


class LeastSquaresSums:
    """Sums and products of a layer's inputs in the cut and in the uncut model."""

    def __init__(self, edit: TensorEdit, reads: int, like: Tensor) -> None:
        def zeros(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=accumulation_dtype(like), device=like.device)

        self._positions = torch.from_numpy(edit.kept[reads]).to(like.device)
        kept_size, size = len(self._positions), edit.shape[reads]
        self._sum_now, self._sum_before = zeros(kept_size), zeros(size)
        self._products, self._cross_products = zeros(kept_size, kept_size), zeros(kept_size, size)
        self._count = 0

    def add(self, now: Tensor, before: Tensor) -> None:
        now, before = now.to(self._sum_now.dtype), before.to(self._sum_now.dtype)
        self._sum_now += now.sum(0)
        self._sum_before += before.sum(0)
        self._products += now.T @ now
        self._cross_products += now.T @ before
        self._count += len(now)

    def are_finite(self) -> bool:
        return bool(self._products.isfinite().all()) and bool(self._cross_products.isfinite().all())

    def mixture(self, centred: bool) -> Mixture:
        """The least-squares mixture with a ridge; `centred` adds a constant for the bias."""
        count = max(self._count, 1)
        products, across = self._products, self._cross_products
        if centred:
            products = products - torch.outer(self._sum_now, self._sum_now) / count
            across = across - torch.outer(self._sum_now, self._sum_before) / count
        residual_products = across.clone()
        residual_products[:, self._positions] -= products
        ridge = RIDGE * float(products.diagonal().mean()) or 1.0
        factor, failed = torch.linalg.cholesky_ex(
            products + ridge * torch.eye(len(products), dtype=products.dtype, device=products.device)
        )
        added = torch.zeros_like(residual_products) if bool(failed) else torch.cholesky_solve(residual_products, factor)
        constant = torch.zeros_like(self._sum_before)
        if centred:
            constant = (self._sum_before - self._sum_now @ added) / count
            constant[self._positions] -= self._sum_now / count
        return Mixture(added, constant)


def accumulation_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of sums on this device."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class LayerCorrection:
    """The compensation of one layer, added to its remaining slices."""

    edit: TensorEdit  # of its weight
    reads: int  # the dimension along which the weight reads
    added: Tensor | None  # of the mixture, None where the weight stays as it is cut
    bias: TensorEdit | None = None
    shift: Tensor | None = None

    def parameter_names(self) -> set[str]:
        """The names of the parameters that it is computed from."""
        return {self.edit.names[0], *(self.bias.names if self.bias is not None else ())}

    def values(self, full: Mapping[str, Tensor]) -> dict[str, NewValue]:
        """The compensated weight and bias of a model with these tensors."""
        values = {}
        if self.added is not None:
            name = self.edit.names[0]
            values[name] = NewValue(mixed_weight(self.edit, self.reads, full[name], self.added))
        if self.bias is not None and self.shift is not None:
            name = self.bias.names[0]
            cut = self.bias.slice(full[name])
            values[name] = NewValue((cut.to(self.shift) + self.shift).to(cut))
        return values


def mixed_weight(edit: TensorEdit, reads: int, full: Tensor, added: Tensor) -> Tensor:
    """The remaining slices of a weight, with the mixture folded in."""
    part = edit.slice(full)
    part = part.clone() if part.is_inference() else part  # which could not be written
    more = _with_full_input(edit, reads, full).to(added).movedim(reads, -1) @ added.T
    return part.copy_(part.to(added) + more.movedim(-1, reads))  # with the strides that the cut gives it


def bias_shift(edit: TensorEdit, reads: int, makes: int, full: Tensor, constant: Tensor) -> Tensor:
    """The output shift that a constant input adds, without padded positions."""
    products = _with_full_input(edit, reads, full).to(constant).movedim(reads, -1) @ constant
    at = makes - (makes > reads)
    return products.movedim(at, 0).reshape(products.shape[at], -1).sum(1)


def _with_full_input(edit: TensorEdit, reads: int, full: Tensor) -> Tensor:
    """The slices for the remaining outputs, with all inputs."""
    return TensorEdit(edit.names, edit.shape, {at: kept for at, kept in edit.kept.items() if at != reads}).slice(full)


# ----------------------------------------


MEANS, LEAST_SQUARES, WITH_BIAS, UNCHANGED = "means", "least squares", "least squares with bias", ""
METHOD_SETS = ((MEANS, LEAST_SQUARES, WITH_BIAS), (LEAST_SQUARES, WITH_BIAS), (MEANS,))  # ways that are tried together
MODEL_OUTPUT = "the model's output"
MIN_IMPROVEMENT = 1e-3  # the share of an error by which it has to fall
AxisNames = Mapping[tuple[str, int], str]  # by parameter and dimension
Parts = tuple[list[Call], list[Call]]  # of the batches, those to learn from and those held out


class CompensationRow(NamedTuple):
    """The compensation of one layer: errors are shares of the squared uncut output, on held-out data."""

    layer: str  # by the name of its weight
    axis: str  # what it reads that was cut
    way: str  # the best one: "means", "least squares" or "least squares with bias"; "" where none was tried
    before: float
    after: float
    kept: bool
    note: str = ""  # why not

    def __str__(self) -> str:
        where = printable(f"{self.layer} reads {self.axis}" if self.axis else self.layer)
        if not self.way and self.note:
            return f"{where}: {printable(self.note)}"
        done = "kept" if self.kept else f"not kept{', ' + self.note if self.note else ''}"
        return f"{where}: {self.way + ', ' if self.way else ''}error {self.before:.3g} → {self.after:.3g}, {done}"


Compensation = tuple[tuple[CompensationRow, ...], list[LayerCorrection]]


class _Fitting:
    """Fits the layers in forward order, each after all earlier ones are cut and compensated."""

    def __init__(
        self, sandbox: CutSandbox, reference: UncutReference, batches: Batches, parts: Parts, axes: AxisNames
    ) -> None:
        self._sandbox, self._reference, self._batches, self._axes = sandbox, reference, batches, axes
        self._fit_on, self._held_out = parts
        # parameters get other memory and are not written, buffers may be
        self._start = {name: tensor.detach() if name in reference.full else tensor.detach().clone()
                       for name, tensor in sandbox.tensors.items()}  # fmt: skip
        self.rows: list[CompensationRow] = []
        self._trials: dict[str, _LayerTrial] = {}

    def run(self) -> None:
        every = list(self._reference.readers.values())
        for group in sorted({each.group for each in every}):
            layers = [each for each in every if each.group == group]
            self._fit([_LayerTrial(each) for each in layers if not each.reason])
            self.rows += [self._row(each, note=each.reason) for each in layers if each.reason]
        self._choose_by_output()

    def _row(
        self, layer: ReadingLayer, way: str = UNCHANGED, before: float = 0.0, after: float = 0.0, note: str = ""
    ) -> CompensationRow:
        axis = self._axes.get((layer.name, layer.reads), "")
        return CompensationRow(layer.name, axis, way, before, after, after < before * (1 - MIN_IMPROVEMENT), note)

    def _fit(self, trials: Sequence[_LayerTrial]) -> None:
        """Fit the layers that read one value."""
        if not trials:
            return
        renewal = RecalibrationMode(self._sandbox)
        for call in self._fit_on:
            self._run_layers(call, trials, _LayerTrial.learn, renewal)
        self._set_values(renewal.values())
        for trial in trials:
            trial.solve(self._reference.full[trial.reader.name])
        for call in self._held_out:
            self._run_layers(call, trials, _LayerTrial.compare)
        for trial in trials:
            if trial.is_comparable():
                way, before, after = trial.best(METHOD_SETS[0])
                self.rows.append(self._row(trial.reader, way, before, after))
                self._trials[trial.reader.name] = trial
                if self.rows[-1].kept:
                    self._set_values(trial.correction(way, self._reference.full).values(self._reference.full))

    def _run_layers(
        self,
        call: Call,
        trials: Sequence[_LayerTrial],
        take: Callable[[_LayerTrial, LayerCall, LayerValues], None],
        around: AbstractContextManager[object] | None = None,
    ) -> None:
        """Run the uncut and the cut model up to these layers."""
        by_name = {trial.reader.name: trial for trial in trials}
        before = self._reference.layer_values([trial.reader for trial in trials if not trial.reader.reason], call)
        left = {name: len(seen) for name, seen in before.items()}

        def see(now: LayerCall) -> None:
            if left.get(now.name, 0) > 0:
                take(by_name[now.name], now, before[now.name][-left[now.name]])
                left[now.name] -= 1
            if not any(left.values()):
                raise StopForward

        try:
            with around or nullcontext(), LayerCallMode({name: self._sandbox.tensors[name] for name in by_name}, see):
                self._batches.run(self._sandbox.model, call)
        except StopForward:
            return
        for name, count in left.items():
            if count:
                by_name[name].reader.reason = "the cut model does not run it alike"

    def _set_values(self, values: Mapping[str, NewValue]) -> None:
        for name, new in values.items():
            self._sandbox.set_value(name, new.tensor)

    # ------------------------------------------------------------ as a whole

    def _choose_by_output(self) -> None:
        """Keep the fits that improve the model's output as well."""
        plain = self._rows_with(())
        sets = [self._rows_with(ways) for ways in METHOD_SETS]
        sets = [rows for at, rows in enumerate(sets) if rows != plain and rows not in sets[:at]]
        if not sets:
            return
        before = self._output_error(plain)
        if before is None:  # the layers alone can tell
            return
        errors = [self._output_error(rows) or 0.0 for rows in sets]
        after = min(errors)
        chosen = sets[errors.index(after)]
        for at in reversed(range(len(chosen))):  # a sigmoid behind the last layers makes little of their largest errors
            without = [*chosen[:at], chosen[at]._replace(kept=False), *chosen[at + 1 :]]
            if chosen[at].kept and (error := self._output_error(without) or 0.0) < after * (1 - MIN_IMPROVEMENT):
                chosen, after = without, error
        helps = after < before * (1 - MIN_IMPROVEMENT)
        note = f"for {MODEL_OUTPUT} is worse with it"
        self.rows = [new if helps and new.kept else old._replace(kept=False, note=note if old.kept else old.note)
                     for old, new in zip(self.rows, chosen, strict=True)]  # fmt: skip
        self.rows.append(CompensationRow(MODEL_OUTPUT, "", "", before, after, helps))

    def _rows_with(self, ways: Sequence[str]) -> list[CompensationRow]:
        """The rows if only these methods are allowed."""
        rows = []
        for row in self.rows:
            trial = self._trials.get(row.layer)
            if trial is None or not ways:
                rows.append(row._replace(kept=False))
            else:
                rows.append(self._row(trial.reader, *trial.best(ways)))
        return rows

    def corrections(self) -> list[LayerCorrection]:
        """The corrections that are kept."""
        full = self._reference.full
        return [self._trials[row.layer].correction(row.way, full) for row in self.rows
                if row.kept and row.layer in self._trials]  # fmt: skip

    def _output_error(self, rows: Iterable[CompensationRow]) -> float | None:
        """The error of the model's output with these rows, relative to the squared uncut output.

        None where the model gives no numbers that can be compared, as where it gives indices.
        """
        for name, value in self._start.items():
            self._sandbox.set_value(name, value if name in self._reference.full else value.clone())
        for row in rows:
            if row.kept:
                self._set_values(
                    self._trials[row.layer].correction(row.way, self._reference.full).values(self._reference.full)
                )
        renewal = RecalibrationMode(self._sandbox)
        for call in self._fit_on[: len(self._held_out)]:
            with renewal:
                self._batches.run(self._sandbox.model, call)
        self._set_values(renewal.values())
        error = square = 0.0
        for call in self._held_out:
            now_given = comparable_outputs(self._batches.run(self._sandbox.model, call))
            for now, before in zip(now_given, self._reference.output(call), strict=False):
                if now.shape == before.shape:
                    error += float(
                        (now.to(accumulation_dtype(now)) - before.to(accumulation_dtype(now))).square().sum()
                    )
                    square += float(before.to(accumulation_dtype(now)).square().sum())
        return error / square if square else None


class _LayerFit(NamedTuple):
    """The fit of a layer by one method."""

    added: Tensor | None  # of a mixture
    weight: Tensor | None  # with it, None where it stays as it is cut
    shift: Tensor | None  # of the bias


class _LayerTrial:
    """One layer of the cut model, with its fits by each method."""

    def __init__(self, layer: ReadingLayer) -> None:
        self.reader = layer
        self._sums: LeastSquaresSums | None = None
        self._residual_sum: Tensor | float = 0.0  # what the outputs lack, summed
        self._row_count = 0
        self._fits: dict[str, _LayerFit] = {}
        self._errors: dict[str, float] = {}
        self._square = 0.0

    def learn(self, now: LayerCall, before: LayerValues) -> None:
        reader = self.reader
        inputs, outputs = sample_rows(now.x, now.x_at), sample_rows(now.out, now.out_at)
        if len(inputs) != len(before.input) or outputs.shape != before.output.shape:
            reader.reason = "what it gives is cut in another way too"
            return
        self._sums = self._sums or LeastSquaresSums(reader.edit, reader.reads, inputs)
        self._sums.add(inputs, before.input)
        self._residual_sum = self._residual_sum + (before.output.to(accumulation_dtype(outputs)) - outputs).sum(0)
        self._row_count += len(outputs)

    def solve(self, full: Tensor) -> None:
        """Compute the fit of each method."""
        reader = self.reader
        if self._sums is None or reader.reason:
            return
        if not self._sums.are_finite():
            raise CutError(f"what {printable(reader.name)} reads is not finite: look for NaN in the batches")
        self._fits = {
            UNCHANGED: _LayerFit(None, None, None),
            LEAST_SQUARES: self._weight_fit(full, self._sums.mixture(False)),
        }
        if reader.bias is not None and isinstance(self._residual_sum, Tensor):
            mixture = self._sums.mixture(True)
            shift = bias_shift(reader.edit, reader.reads, reader.makes, full, mixture.constant)
            self._fits[WITH_BIAS] = self._weight_fit(full, mixture)._replace(shift=shift)
            self._fits[MEANS] = _LayerFit(None, None, self._residual_sum / max(self._row_count, 1))
        self._errors = dict.fromkeys(self._fits, 0.0)

    def _weight_fit(self, full: Tensor, mixture: Mixture) -> _LayerFit:
        return _LayerFit(mixture.added, mixed_weight(self.reader.edit, self.reader.reads, full, mixture.added), None)

    def compare(self, now: LayerCall, before: LayerValues) -> None:
        plain = sample_rows(now.out, now.out_at)
        if plain.shape != before.output.shape:
            self.reader.reason = "what it gives is cut in another way too"
            return
        wanted = before.output.to(accumulation_dtype(plain))
        self._square += float(wanted.square().sum())
        for name, way in self._fits.items():
            outputs = plain if way.weight is None else sample_rows(now.rerun(way.weight), now.out_at)
            residual = wanted - outputs
            self._errors[name] += float((residual if way.shift is None else residual - way.shift).square().sum())

    def is_comparable(self) -> bool:
        """True if the layer ran in the cut model as before; else its `reason` is set."""
        if not self._fits and not self.reader.reason:
            self.reader.reason = "the cut model does not run it alike"
        return not self.reader.reason

    def best(self, ways: Sequence[str]) -> tuple[str, float, float]:
        """The best of these methods, and the errors before and after."""
        way = min((way for way in ways if way in self._fits), key=self._errors.__getitem__, default=UNCHANGED)
        square = self._square or 1.0
        if not math.isfinite(self._errors[UNCHANGED]):
            raise CutError(f"what {printable(self.reader.name)} gives is not finite: look for NaN in the batches")
        return way, self._errors[UNCHANGED] / square, self._errors[way] / square

    def correction(self, way: str, full: Mapping[str, Tensor]) -> LayerCorrection:
        """The correction of a method."""
        reader, fit = self.reader, self._fits[way]
        bias = None
        if reader.bias is not None and fit.shift is not None:
            kept = reader.edit.kept.get(reader.makes)
            bias = TensorEdit((reader.bias,), tuple(full[reader.bias].shape), {} if kept is None else {0: kept})
        return LayerCorrection(reader.edit, reader.reads, fit.added, bias, fit.shift)


def compensate_layers(
    model: nn.Module, edits: Edits, training: bool, batches: Batches, axes: AxisNames
) -> Compensation:
    """The compensation rows of all layers that read a cut axis, and the corrections to keep.

    `axes` are the names of axes by parameter and dimension.
    """
    parts, full = batches.split(), parameters_of_model(model)

    def beside(uncut: CutSandbox) -> Compensation:
        reference = UncutReference(uncut, full, edits, batches, parts[0][0])

        def run(sandbox: CutSandbox) -> Compensation:
            fitting = _Fitting(sandbox, reference, batches, parts, axes)
            fitting.run()
            return tuple(fitting.rows), fitting.corrections()

        return run_as_cut(model, edits, training, run, step_by_step=True)

    return run_as_cut(model, Edits(()), training, beside, step_by_step=True)
