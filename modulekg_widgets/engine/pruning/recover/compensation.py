"""Output compensation: each layer that reads a cut axis is fitted to what it gave before, where that helps.

Means: bias += mean of the uncut output - mean of the cut one (An et al. 2024, "FLAP"). Least squares: the values that
went as a mixture of those that stayed, folded into the reading weight (He et al. 2017, "Channel pruning").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, TensorEdit
from modulekg_widgets.engine.pruning.recover.passes import Batches, Call, CutStage, on_stage
from modulekg_widgets.engine.pruning.recover.reference import (
    Enough,
    LayerCall,
    LayerWatch,
    Reader,
    Reference,
    Seen,
    comparable,
    parameters_of_model,
    rows,
)
from modulekg_widgets.engine.pruning.recover.statistics import Renewal

# --------------------
# How a layer makes up for what it no longer reads: what went as a mixture of what stayed, and a shifted bias.


Tensor = torch.Tensor
RIDGE = 1e-3  # of the mean square of what is read


class Mixture(NamedTuple):
    """What was read before is nearest to what is read now times (the choice of what stayed + `added`) + `constant`."""

    added: Tensor  # (now, before)
    constant: Tensor  # (before,)


class Pairs:
    """Sums over rows of what a layer reads now, what it read before, and their products; `edit` is of its weight."""

    def __init__(self, edit: TensorEdit, reads: int, like: Tensor) -> None:
        def zeros(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=wide(like), device=like.device)

        self._kept = torch.from_numpy(edit.kept[reads]).to(like.device)
        stays, size = len(self._kept), edit.shape[reads]
        self._now, self._before = zeros(stays), zeros(size)
        self._products, self._across = zeros(stays, stays), zeros(stays, size)
        self._count = 0

    def add(self, now: Tensor, before: Tensor) -> None:
        now, before = now.to(self._now.dtype), before.to(self._now.dtype)
        self._now += now.sum(0)
        self._before += before.sum(0)
        self._products += now.T @ now
        self._across += now.T @ before
        self._count += len(now)

    def are_finite(self) -> bool:
        return bool(self._products.isfinite().all()) and bool(self._across.isfinite().all())

    def mixture(self, centred: bool) -> Mixture:
        """By least squares, with a ridge towards what stayed alone; `centred`: with a constant, which a bias takes."""
        count = max(self._count, 1)
        products, across = self._products, self._across
        if centred:
            products = products - torch.outer(self._now, self._now) / count
            across = across - torch.outer(self._now, self._before) / count
        lacking = across.clone()
        lacking[:, self._kept] -= products
        ridge = RIDGE * float(products.diagonal().mean()) or 1.0
        factor, failed = torch.linalg.cholesky_ex(
            products + ridge * torch.eye(len(products), dtype=products.dtype, device=products.device)
        )
        added = torch.zeros_like(lacking) if bool(failed) else torch.cholesky_solve(lacking, factor)
        constant = torch.zeros_like(self._before)
        if centred:
            constant = (self._before - self._now @ added) / count
            constant[self._kept] -= self._now / count
        return Mixture(added, constant)


def wide(tensor: Tensor) -> torch.dtype:
    """What sums are computed in, as far as the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class Correction:
    """What one layer gets on top of the slices that stay."""

    edit: TensorEdit  # of its weight
    reads: int  # the dimension along which the weight reads
    added: Tensor | None  # of the mixture, None where the weight stays as it is cut
    bias: TensorEdit | None = None
    shift: Tensor | None = None

    def needs(self) -> set[str]:
        """The parameters that it is computed of."""
        return {self.edit.names[0], *(self.bias.names if self.bias is not None else ())}

    def values(self, full: Mapping[str, Tensor]) -> dict[str, NewValue]:
        """The weight and the bias of a model with these tensors, cut and corrected."""
        found = {}
        if self.added is not None:
            name = self.edit.names[0]
            found[name] = NewValue(mixed(self.edit, self.reads, full[name], self.added))
        if self.bias is not None and self.shift is not None:
            name = self.bias.names[0]
            cut = self.bias.of(full[name])
            found[name] = NewValue((cut.to(self.shift) + self.shift).to(cut))
        return found


def mixed(edit: TensorEdit, reads: int, full: Tensor, added: Tensor) -> Tensor:
    """The slices that stay of a weight, and what is added to them along the dimension that it reads."""
    part = edit.of(full)
    part = part.clone() if part.is_inference() else part  # which could not be written
    more = _read_in_full(edit, reads, full).to(added).movedim(reads, -1) @ added.T
    return part.copy_(part.to(added) + more.movedim(-1, reads))  # with the strides that the cut gives it


def shifted(edit: TensorEdit, reads: int, makes: int, full: Tensor, constant: Tensor) -> Tensor:
    """What a constant in what a layer reads adds to its outputs that stay, where no position is padded."""
    given = _read_in_full(edit, reads, full).to(constant).movedim(reads, -1) @ constant
    at = makes - (makes > reads)
    return given.movedim(at, 0).reshape(given.shape[at], -1).sum(1)


def _read_in_full(edit: TensorEdit, reads: int, full: Tensor) -> Tensor:
    """The slices for the outputs that stay, with all that was read."""
    return TensorEdit(edit.names, edit.shape, {at: kept for at, kept in edit.kept.items() if at != reads}).of(full)


# ----------------------------------------


MEANS, LEAST_SQUARES, WITH_BIAS, NOTHING = "means", "least squares", "least squares with bias", ""
SETS = ((MEANS, LEAST_SQUARES, WITH_BIAS), (LEAST_SQUARES, WITH_BIAS), (MEANS,))  # ways that are tried together
WHOLE_MODEL = "the model's output"
CLEAR = 1e-3  # the share of an error by which it has to fall
Parts = tuple[list[Call], list[Call]]  # of the batches, those to learn from and those held out


class Compensated(NamedTuple):
    """What was tried at one layer: its errors are shares of the squared output of the uncut model, on held-out data."""

    layer: str  # by the name of its weight
    axis: str  # what it reads that was cut
    way: str  # the best one: "means", "least squares" or "least squares with bias"; "" where none was tried
    before: float
    after: float
    kept: bool
    note: str = ""  # why not

    def __str__(self) -> str:
        where = shown(f"{self.layer} reads {self.axis}" if self.axis else self.layer)
        if not self.way and self.note:
            return f"{where}: {shown(self.note)}"
        done = "kept" if self.kept else f"not kept{', ' + self.note if self.note else ''}"
        return f"{where}: {self.way + ', ' if self.way else ''}error {self.before:.3g} → {self.after:.3g}, {done}"


Found = tuple[tuple[Compensated, ...], list[Correction]]


class _Fitting:
    """Goes through the layers in the order in which they run, each with all before it cut and compensated."""

    def __init__(
        self, stage: CutStage, reference: Reference, batches: Batches, parts: Parts, axes: Mapping[Any, str]
    ) -> None:
        self._stage, self._reference, self._batches, self._axes = stage, reference, batches, axes
        self._fit_on, self._held_out = parts
        # parameters get other memory and are not written, buffers may be
        self._start = {name: tensor.detach() if name in reference.full else tensor.detach().clone()
                       for name, tensor in stage.tensors.items()}  # fmt: skip
        self.rows: list[Compensated] = []
        self._trials: dict[str, _Trial] = {}

    def run(self) -> None:
        every = list(self._reference.readers.values())
        for group in sorted({each.group for each in every}):
            layers = [each for each in every if each.group == group]
            self._fit([_Trial(each) for each in layers if not each.why])
            self.rows += [self._row(each, note=each.why) for each in layers if each.why]
        self._choose()

    def _row(self, reader: Reader, way: str = NOTHING, before: float = 0.0, after: float = 0.0, note: str = "") -> Any:
        axis = self._axes.get((reader.name, reader.reads), "")
        return Compensated(reader.name, axis, way, before, after, after < before * (1 - CLEAR), note)

    def _fit(self, trials: Sequence[_Trial]) -> None:
        """Try the layers that read one value."""
        if not trials:
            return
        renewal = Renewal(self._stage)
        for call in self._fit_on:
            self._pass(call, trials, _Trial.learn, renewal)
        self._put(renewal.values())
        for trial in trials:
            trial.solve(self._reference.full[trial.reader.name])
        for call in self._held_out:
            self._pass(call, trials, _Trial.compare)
        for trial in trials:
            if trial.is_comparable():
                way, before, after = trial.best(SETS[0])
                self.rows.append(self._row(trial.reader, way, before, after))
                self._trials[trial.reader.name] = trial
                if self.rows[-1].kept:
                    self._put(trial.correction(way, self._reference.full).values(self._reference.full))

    def _pass(
        self, call: Call, trials: Sequence[_Trial], take: Callable[[_Trial, LayerCall, Seen], None], around: Any = None
    ) -> None:
        """Run the uncut and the cut model as far as these layers."""
        by_name = {trial.reader.name: trial for trial in trials}
        before = self._reference.seen([trial.reader for trial in trials if not trial.reader.why], call)
        left = {name: len(seen) for name, seen in before.items()}

        def see(now: LayerCall) -> None:
            if left.get(now.name, 0) > 0:
                take(by_name[now.name], now, before[now.name][-left[now.name]])
                left[now.name] -= 1
            if not any(left.values()):
                raise Enough

        try:
            with around or nullcontext(), LayerWatch({name: self._stage.tensors[name] for name in by_name}, see):
                self._batches.run(self._stage.model, call)
        except Enough:
            return
        for name, count in left.items():
            if count:
                by_name[name].reader.why = "the cut model does not run it alike"

    def _put(self, values: Mapping[str, NewValue]) -> None:
        for name, new in values.items():
            self._stage.put(name, new.tensor)

    # ------------------------------------------------------------ as a whole

    def _choose(self) -> None:
        """Of what helps the layers, keep what helps the model's output as well; none where nothing does."""
        plain = self._rows_with(())
        sets = [self._rows_with(ways) for ways in SETS]
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
            if chosen[at].kept and (error := self._output_error(without) or 0.0) < after * (1 - CLEAR):
                chosen, after = without, error
        helps = after < before * (1 - CLEAR)
        note = f"for {WHOLE_MODEL} is worse with it"
        self.rows = [new if helps and new.kept else old._replace(kept=False, note=note if old.kept else old.note)
                     for old, new in zip(self.rows, chosen, strict=True)]  # fmt: skip
        self.rows.append(Compensated(WHOLE_MODEL, "", "", before, after, helps))

    def _rows_with(self, ways: Sequence[str]) -> list[Compensated]:
        """The rows where some ways alone are open to the layers."""
        found = []
        for row in self.rows:
            trial = self._trials.get(row.layer)
            if trial is None or not ways:
                found.append(row._replace(kept=False))
            else:
                found.append(self._row(trial.reader, *trial.best(ways)))
        return found

    def corrections(self) -> list[Correction]:
        """What is kept."""
        full = self._reference.full
        return [self._trials[row.layer].correction(row.way, full) for row in self.rows
                if row.kept and row.layer in self._trials]  # fmt: skip

    def _output_error(self, rows: Iterable[Compensated]) -> float | None:
        """Of the whole model as these rows compensate it, as a share of the squared output before the cut.

        None where the model gives no numbers that can be compared, as where it gives indices.
        """
        for name, value in self._start.items():
            self._stage.put(name, value if name in self._reference.full else value.clone())
        for row in rows:
            if row.kept:
                self._put(
                    self._trials[row.layer].correction(row.way, self._reference.full).values(self._reference.full)
                )
        renewal = Renewal(self._stage)
        for call in self._fit_on[: len(self._held_out)]:
            with renewal:
                self._batches.run(self._stage.model, call)
        self._put(renewal.values())
        error = square = 0.0
        for call in self._held_out:
            now_given = comparable(self._batches.run(self._stage.model, call))
            for now, before in zip(now_given, self._reference.output(call), strict=False):
                if now.shape == before.shape:
                    error += float((now.to(wide(now)) - before.to(wide(now))).square().sum())
                    square += float(before.to(wide(now)).square().sum())
        return error / square if square else None


class _Way(NamedTuple):
    """What a way does to a layer."""

    added: Tensor | None  # of a mixture
    weight: Tensor | None  # with it, None where it stays as it is cut
    shift: Tensor | None  # of the bias


class _Trial:
    """One layer of the cut model, as it is cut and in each way."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._pairs: Pairs | None = None
        self._lack: Tensor | float = 0.0  # what the outputs lack, summed
        self._learnt = 0
        self._ways: dict[str, _Way] = {}
        self._errors: dict[str, float] = {}
        self._square = 0.0

    def learn(self, now: LayerCall, before: Seen) -> None:
        reader = self.reader
        read, gave = rows(now.x, now.x_at), rows(now.out, now.out_at)
        if len(read) != len(before.read) or gave.shape != before.gave.shape:
            reader.why = "what it gives is cut in another way too"
            return
        self._pairs = self._pairs or Pairs(reader.edit, reader.reads, read)
        self._pairs.add(read, before.read)
        self._lack = self._lack + (before.gave.to(wide(gave)) - gave).sum(0)
        self._learnt += len(gave)

    def solve(self, full: Tensor) -> None:
        """What each way does to the weight and to the bias."""
        reader = self.reader
        if self._pairs is None or reader.why:
            return
        if not self._pairs.are_finite():
            raise CutError(f"what {shown(reader.name)} reads is not finite: look for NaN in the batches")
        self._ways = {NOTHING: _Way(None, None, None), LEAST_SQUARES: self._way(full, self._pairs.mixture(False))}
        if reader.bias is not None and isinstance(self._lack, Tensor):
            mixture = self._pairs.mixture(True)
            shift = shifted(reader.edit, reader.reads, reader.makes, full, mixture.constant)
            self._ways[WITH_BIAS] = self._way(full, mixture)._replace(shift=shift)
            self._ways[MEANS] = _Way(None, None, self._lack / max(self._learnt, 1))
        self._errors = dict.fromkeys(self._ways, 0.0)

    def _way(self, full: Tensor, mixture: Mixture) -> _Way:
        return _Way(mixture.added, mixed(self.reader.edit, self.reader.reads, full, mixture.added), None)

    def compare(self, now: LayerCall, before: Seen) -> None:
        plain = rows(now.out, now.out_at)
        if plain.shape != before.gave.shape:
            self.reader.why = "what it gives is cut in another way too"
            return
        wanted = before.gave.to(wide(plain))
        self._square += float(wanted.square().sum())
        for name, way in self._ways.items():
            gave = plain if way.weight is None else rows(now.again(way.weight), now.out_at)
            lack = wanted - gave
            self._errors[name] += float((lack if way.shift is None else lack - way.shift).square().sum())

    def is_comparable(self) -> bool:
        """Whether the layer ran in the cut model as it did before; its reader says else why not."""
        if not self._ways and not self.reader.why:
            self.reader.why = "the cut model does not run it alike"
        return not self.reader.why

    def best(self, ways: Sequence[str]) -> tuple[str, float, float]:
        """The best of these ways, and the errors before and after, as shares of the squared output."""
        way = min((way for way in ways if way in self._ways), key=self._errors.__getitem__, default=NOTHING)
        square = self._square or 1.0
        if not math.isfinite(self._errors[NOTHING]):
            raise CutError(f"what {shown(self.reader.name)} gives is not finite: look for NaN in the batches")
        return way, self._errors[NOTHING] / square, self._errors[way] / square

    def correction(self, way: str, full: Mapping[str, Tensor]) -> Correction:
        """What is to be kept of a way."""
        reader, found = self.reader, self._ways[way]
        bias = None
        if reader.bias is not None and found.shift is not None:
            kept = reader.edit.kept.get(reader.makes)
            bias = TensorEdit((reader.bias,), tuple(full[reader.bias].shape), {} if kept is None else {0: kept})
        return Correction(reader.edit, reader.reads, found.added, bias, found.shift)


def compensated(model: nn.Module, edits: Edits, training: bool, batches: Batches, axes: Mapping[Any, str]) -> Found:
    """What was tried at each layer that reads what is cut, and what is to be kept of it.

    `axes` are the names of axes by parameter and dimension.
    """
    parts, full = batches.split(), parameters_of_model(model)

    def beside(uncut: CutStage) -> Found:
        reference = Reference(uncut, full, edits, batches, parts[0][0])

        def run(stage: CutStage) -> Found:
            fitting = _Fitting(stage, reference, batches, parts, axes)
            fitting.run()
            return tuple(fitting.rows), fitting.corrections()

        return on_stage(model, edits, training, run, step_by_step=True)

    return on_stage(model, Edits(()), training, beside, step_by_step=True)
