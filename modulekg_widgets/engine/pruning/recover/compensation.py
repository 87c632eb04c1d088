"""Output compensation: each layer that reads a cut axis is fitted to what it gave before, where that helps.

Means: bias += mean of the uncut output - mean of the cut one (An et al. 2024, "FLAP"). Least squares: the values that
went as a mixture of those that stayed, folded into the reading weight (He et al. 2017, "Channel pruning").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, TensorEdit
from modulekg_widgets.engine.pruning.recover.layer_calls import LayerCall, LayerWatch, rows
from modulekg_widgets.engine.pruning.recover.mixing import Correction, dropped_by, mixed, wide
from modulekg_widgets.engine.pruning.recover.passes import Batches, Call, CutStage, on_stage
from modulekg_widgets.engine.pruning.recover.reference import Reader, Reference, comparable
from modulekg_widgets.engine.pruning.recover.statistics import Renewal

Tensor = torch.Tensor
MEANS, LEAST_SQUARES, NOTHING = "means", "least squares", ""
WHOLE_MODEL = "the model's output"
CLEAR = 1e-3  # the share of an error by which it has to fall


class Compensated(NamedTuple):
    """What was tried at one layer: its errors are shares of the squared output of the uncut model, on held-out data."""

    layer: str  # by the name of its weight
    axis: str  # what it reads that was cut
    way: str  # the better one of "means" and "least squares", "" where none was tried
    before: float
    after: float
    kept: bool
    note: str = ""  # why not

    def __str__(self) -> str:
        where = shown(f"{self.layer} reads {self.axis}" if self.axis else self.layer)
        if not self.way:
            return f"{where}: {shown(self.note)}"
        done = "kept" if self.kept else f"not kept{', ' + self.note if self.note else ''}"
        return f"{where}: {self.way}, error {self.before:.3g} → {self.after:.3g}, {done}"


class _Sums:
    """Of the outputs of one layer in one way, and of what they lack."""

    def __init__(self, like: Tensor) -> None:
        self.total = torch.zeros(like.shape[-1], dtype=wide(like), device=like.device)
        self.lack, self.square = self.total.clone(), self.total.clone()
        self.rows = self.held = 0

    def learn(self, output: Tensor) -> None:
        self.total += output.to(self.total.dtype).sum(0)
        self.rows += len(output)

    def compare(self, output: Tensor, wanted: Tensor) -> None:
        lack = wanted.to(self.total.dtype) - output.to(self.total.dtype)
        self.lack += lack.sum(0)
        self.square += lack.square().sum(0)
        self.held += len(output)

    def error(self, shift: Tensor | None = None) -> float:
        """The squared error when `shift` is added to each output."""
        if shift is None:
            return float(self.square.sum())
        return float((self.square - 2 * shift * self.lack + self.held * shift.square()).sum())


class _Enough(BaseException):
    """All that is wanted of a pass has run; no `Exception`, so that the model's code does not catch it."""


class _Fitting:
    """Goes through the layers in the order in which they run, each with all before it cut and compensated."""

    def __init__(self, stage: CutStage, reference: Reference, batches: Batches, axes: Mapping[Any, str]) -> None:
        self._stage, self._reference, self._batches, self._axes = stage, reference, batches, axes
        # parameters get other memory and are not written, buffers may be
        self._start = {name: tensor.detach() if name in reference.full else tensor.detach().clone()
                       for name, tensor in stage.tensors.items()}  # fmt: skip
        self.found: list[tuple[Compensated, Correction | None]] = []

    def run(self) -> None:
        every = list(self._reference.readers.values())
        for group in sorted({each.group for each in every}):
            layers = [each for each in every if each.group == group]
            self._fit([_Trial(each, self._reference.full[each.name]) for each in layers if not each.why])
            self.found += [(self._row(each, note=each.why), None) for each in layers if each.why]
        self._choose()

    def _row(
        self, reader: Reader, way: str = NOTHING, errors: tuple[float, float] = (0.0, 0.0), note: str = ""
    ) -> Compensated:
        before, after = (error / (reader.square or 1.0) for error in errors)
        axis = self._axes.get((reader.name, reader.reads), "")
        return Compensated(reader.name, axis, way, before, after, after < before * (1 - CLEAR), note)

    def _fit(self, trials: Sequence[_Trial]) -> None:
        """Try the layers that read one value."""
        if not trials:
            return
        renewal = Renewal(self._stage)
        for call in self._reference.fit:
            self._pass(call, trials, _Trial.learn, renewal)
        self._put(renewal.values())
        for call in self._reference.held:
            self._pass(call, trials, _Trial.compare)
        for trial in trials:
            if trial.is_comparable():
                way, *errors = trial.best()
                row = self._row(trial.reader, way, (errors[0], errors[1]))
                correction = trial.correction(way, self._reference.full) if row.kept else None
                self.found.append((row, correction))
                if correction is not None:
                    self._put(correction.values(self._reference.full))

    def _pass(
        self, call: Call, trials: Sequence[_Trial], take: Callable[[_Trial, LayerCall], None], around: Any = None
    ) -> None:
        """Run the model as far as these layers."""
        by_name = {trial.reader.name: trial for trial in trials}
        left = {name: trial.reader.calls for name, trial in by_name.items()}

        def see(seen: LayerCall) -> None:
            take(by_name[seen.name], seen)
            left[seen.name] -= 1
            if all(count <= 0 for count in left.values()):
                raise _Enough

        watch = LayerWatch({name: self._stage.tensors[name] for name in by_name}, see)
        try:
            with around or nullcontext(), watch:
                self._batches.run(self._stage.model, call)
        except _Enough:
            pass

    def _put(self, values: Mapping[str, NewValue]) -> None:
        for name, new in values.items():
            self._stage.put(name, new.tensor)

    # ------------------------------------------------------------ as a whole

    def _choose(self) -> None:
        """Keep the ways that, together, lower the error of the model's output most; none where all raise it."""
        kept = {row.way for row, correction in self.found if correction is not None}
        if not kept:
            return
        before = self._output_error(())
        errors = {ways: self._output_error(ways) for ways in (tuple(sorted(kept)), *((way,) for way in sorted(kept)))}
        ways, after = min(errors.items(), key=lambda entry: entry[1])
        helps = after < before * (1 - CLEAR)
        for at, (row, correction) in enumerate(self.found):
            if correction is not None and not (helps and row.way in ways):
                self.found[at] = row._replace(kept=False, note=f"for {WHOLE_MODEL} is worse with it"), None
        self.found.append((Compensated(WHOLE_MODEL, "", " and ".join(ways), before, after, helps), None))

    def _output_error(self, ways: Iterable[str]) -> float:
        """Of the whole model with the compensations of some ways, as a share of the squared output before the cut."""
        for name, value in self._start.items():
            self._stage.put(name, value if name in self._reference.full else value.clone())
        for row, correction in self.found:
            if correction is not None and row.way in ways:
                self._put(correction.values(self._reference.full))
        renewal = Renewal(self._stage)
        for call in self._reference.fit:
            with renewal:
                self._batches.run(self._stage.model, call)
        self._put(renewal.values())
        error = square = 0.0
        for call, wanted in zip(self._reference.held, self._reference.results, strict=True):
            for now, before in zip(comparable(self._batches.run(self._stage.model, call)), wanted, strict=False):
                if now.shape == before.shape:
                    error += float((now.to(wide(now)) - before.to(wide(now))).square().sum())
                    square += float(before.to(wide(now)).square().sum())
        return error / (square or 1.0)


class _Trial:
    """One layer of the cut model, as it is cut and with least squares."""

    def __init__(self, reader: Reader, full: Tensor) -> None:
        self.reader = reader
        edit, reads = reader.edit, reader.reads
        self._mixing = reader.moments.mixing(edit.kept[reads], dropped_by(edit, reads), reader.bias is not None)
        self._weight = mixed(edit, reads, full, self._mixing)
        self._sums: dict[str, _Sums] = {}
        self._number = 0  # of the next held-out output

    def _outputs(self, call: LayerCall) -> list[tuple[_Sums, Tensor]]:
        found = {NOTHING: call.out, LEAST_SQUARES: call.again(self._weight)}
        every = [(way, rows(output, call.out_at)) for way, output in found.items()]
        return [(self._sums.setdefault(way, _Sums(values)), values) for way, values in every]

    def learn(self, call: LayerCall) -> None:
        for sums, values in self._outputs(call):
            sums.learn(values)

    def compare(self, call: LayerCall) -> None:
        wanted = self.reader.outputs[self._number] if self._number < len(self.reader.outputs) else None
        self._number += 1
        for sums, values in self._outputs(call):
            if wanted is None or wanted.shape != values.shape:
                self.reader.why = "what it gives is cut in another way too"
            else:
                sums.compare(values, wanted)

    def is_comparable(self) -> bool:
        """Whether the layer ran in the cut model as it did before; its reader says else why not."""
        if not self._number and not self.reader.why:
            self.reader.why = "the cut model does not run it alike"
        return not self.reader.why

    def best(self) -> tuple[str, float, float]:
        """The better way, and the squared errors before and after."""
        plain, solved = self._sums[NOTHING], self._sums[LEAST_SQUARES]
        errors = {LEAST_SQUARES: solved.error(self._shift(solved))}
        if self.reader.bias is not None:
            errors[MEANS] = plain.error(self._shift(plain))
        way = min(errors, key=lambda each: errors[each])
        return way, plain.error(), errors[way]

    def _shift(self, sums: _Sums) -> Tensor | None:
        """What the bias lacks so that the mean is as before; None where there is none."""
        return None if self.reader.bias is None else self.reader.mean - sums.total / sums.rows

    def correction(self, way: str, full: Mapping[str, Tensor]) -> Correction:
        """What is to be kept of a way."""
        reader = self.reader
        solved = way == LEAST_SQUARES
        bias = None
        if reader.bias is not None:
            kept = reader.edit.kept.get(reader.makes)
            bias = TensorEdit((reader.bias,), tuple(full[reader.bias].shape), {} if kept is None else {0: kept})
        shift = self._shift(self._sums[LEAST_SQUARES if solved else NOTHING])
        return Correction(reader.edit, reader.reads, self._mixing if solved else None, bias, shift)


def compensated(
    model: nn.Module, edits: Edits, training: bool, batches: Batches, axes: Mapping[Any, str]
) -> tuple[tuple[Compensated, ...], list[Correction]]:
    """What was tried at each layer that reads what is cut, and what is to be kept of it.

    `axes` are the names of axes by parameter and dimension.
    """
    reference = Reference(model, edits, training, batches)

    def run(stage: CutStage) -> list[tuple[Compensated, Correction | None]]:
        fitting = _Fitting(stage, reference, batches, axes)
        fitting.run()
        return fitting.found

    found = on_stage(model, edits, training, run)
    return tuple(row for row, _ in found), [correction for _, correction in found if correction is not None]
