"""Text and HTML of a pruning plan: totals before and after, and what each axis loses."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modulekg_widgets.engine.errors import pluralize, printable

MAX_ROWS = 40
WIDTH = 100  # columns of a line, where names allow it
MEMBERS = 3  # as many are named at most
BEFORE, AFTER, REMAINING = "before", "after", "left"
GROUP, GROUPS = "channel group", "channel groups"
AXIS, TENSORS = f"{GROUP} (axis)", "tensors [dimension]"
CORRECTIONS, BLOCKS = "Corrections from the dry run", "Removed blocks"
MILLISECONDS = "milliseconds"


class AxisRow(NamedTuple):
    """Row of an axis: its size before and after."""

    name: str
    size: int
    left: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class PlanText:
    """Content of a printed plan, in the order in which it is shown."""

    totals: dict[str, tuple[float, float] | None]  # those that a plan does not know are left out
    blocks: Sequence[str]
    axes: Sequence[AxisRow]
    changes: Sequence[str]
    notes: Sequence[str]

    def __str__(self) -> str:
        # names may come from a file: they are printed as text, without what a terminal would obey
        parts = [self._totals_text()]
        if self.blocks:
            parts.append([f"{BLOCKS}:", *(f"  {printable(path)}" for path in self.blocks[:MAX_ROWS])])
            parts[-1] += _more(self.blocks, "block", "blocks")
        if self.axes:
            parts.append([*self._axes_text(), *_more(self.axes, GROUP, GROUPS)])
        if self.changes:
            parts.append([f"{CORRECTIONS}:", *(f"  {printable(change, 500)}" for change in self.changes[:MAX_ROWS])])
            parts[-1] += _more(self.changes, "correction", "corrections")
        if self.notes:
            parts.append([printable(note, 500) for note in self.notes])
        return "\n\n".join("\n".join(part) for part in parts)

    def html(self) -> str:
        """Returns what a notebook shows."""
        totals = _table(("", BEFORE, AFTER, REMAINING), self._totals())
        rows = [
            (row.name, str(row.size), str(row.left), _shortened(row.members, MEMBERS)) for row in self.axes[:MAX_ROWS]
        ]
        more = "".join(f"<p>{line.strip()}</p>" for line in _more(self.axes, GROUP, GROUPS))
        axes = _table((AXIS, BEFORE, AFTER, TENSORS), rows) + more if rows else ""
        changes = "".join(f"<li>{html.escape(change)}</li>" for change in self.changes[:MAX_ROWS])
        listed = f"<p>{CORRECTIONS}</p><ul>{changes}</ul>" if changes else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        blocks = f"<p>{BLOCKS}: {html.escape(_shortened(self.blocks, MEMBERS))}</p>" if self.blocks else ""
        return f"{totals}{blocks}{axes}{listed}{notes}"

    def _totals(self) -> Iterator[tuple[str, str, str, str]]:
        """Yields each total: name, before, after and remaining share."""
        for name, pair in self.totals.items():
            if pair is not None:
                before, after = (f"{each:.3g}" if name == MILLISECONDS else f"{each:,}" for each in pair)
                yield name, before, after, remaining_share(*pair)

    def _totals_text(self) -> list[str]:
        rows = [("", BEFORE, AFTER, REMAINING), *self._totals()]
        name, before, after, left = (max(len(row[at]) for row in rows) for at in range(4))
        return [f"{row[0]:<{name}}  {row[1]:>{before}} → {row[2]:<{after}}  {row[3]:>{left}}".rstrip() for row in rows]

    def _axes_text(self) -> list[str]:
        rows = [(printable(row.name), str(row.size), str(row.left), row.members) for row in self.axes[:MAX_ROWS]]
        name = max(len(AXIS), *(len(row[0]) for row in rows))
        before = max(len(BEFORE), *(len(row[1]) for row in rows))
        after = max(len(AFTER), *(len(row[2]) for row in rows))
        room = WIDTH - name - before - after - len("   →   ")
        lines = [f"{AXIS:<{name}}  {BEFORE:>{before}} → {AFTER:<{after}}  {TENSORS}"]
        for axis, size, left, members in rows:
            named = (text for count in range(MEMBERS, 0, -1) if len(text := _shortened(members, count)) <= room)
            shown = printable(next(named, pluralize(len(members), "tensor", "tensors")))
            lines.append(f"{axis:<{name}}  {size:>{before}} → {left:<{after}}  {shown}")
        return lines


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"


def _more(items: Sequence[object], one: str, many: str) -> list[str]:
    """Returns a line that says how many are not listed."""
    rest = len(items) - MAX_ROWS
    return [f"  … and {pluralize(rest, f'more {one}', f'more {many}')}"] if rest > 0 else []


def _shortened(names: Sequence[str], count: int) -> str:
    rest = len(names) - count
    return ", ".join(names[:count]) + (f", +{rest} more" if rest > 0 else "")


def remaining_share(before: float, after: float) -> str:
    """Returns the remaining share in percent; empty if there was nothing before."""
    return f"{after / before:.1%}" if before else ""
