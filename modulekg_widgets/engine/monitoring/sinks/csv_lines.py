"""CSV: one row for each reading, one line for each row, and no cell that a spreadsheet would run as a formula."""

from __future__ import annotations

import json
import re

from modulekg_widgets.engine.errors import RecordingError, shown
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.run import COLUMNS
from modulekg_widgets.engine.monitoring.sinks.lines import LineFormat
from modulekg_widgets.engine.monitoring.sinks.values import SPECIAL, checked, parsed, value_text

HEAD = ",".join(COLUMNS)
# what spreadsheets run: ASCII, and the full-width forms that some of them read as the same
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "'")
CELL = r'("[^"]*(?:""[^"]*)*"|[^",]*)'
ROW = re.compile(",".join([CELL] * len(COLUMNS)))
WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)

# ------------------------------------------------------------ text in cells


def plain(text: str) -> str:
    """`text` on one line of valid Unicode: as it is, or as a JSON text when it is not printable or looks like one."""
    return text if text.isprintable() and not text.startswith('"') else json.dumps(text)


def from_plain(found: str) -> str:
    """The text of which `plain` made this."""
    if not found.startswith('"'):
        return found
    text = parsed(found)
    if not isinstance(text, str):
        raise RecordingError(f"no text: {shown(found)}")
    return text


def _cell(text: str) -> str:
    made = plain(text)
    return _quoted(f"'{made}" if made.startswith(FORMULA) else made)


def _from_cell(found: str) -> str:
    return from_plain(found.removeprefix("'"))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _unquoted(found: str) -> str:
    return found[1:-1].replace('""', '"') if found.startswith('"') else found


# --------------------------------------------------------------------- rows


def _name(line: str) -> None:
    if line != HEAD:
        raise RecordingError(f"it does not begin with the columns {HEAD}: {shown(line)}")


def _line(reading: Reading) -> str:
    value = value_text(reading.value)
    bare = value.strip('"') if value[0] == '"' else value
    return (
        f"{_cell(reading.module)},{_cell(reading.metric)},{int(reading.step)},{_quoted(bare)},"
        f"{int(reading.call)},{reading.phase}"
    )


def _reading(line: str) -> Reading:
    found = ROW.fullmatch(line)
    if found is None:
        raise RecordingError(f"no row of {len(COLUMNS)} cells: {shown(line)}")
    module, metric, step, value, call, phase = map(_unquoted, found.groups())
    number = value if value in SPECIAL else parsed(value)
    return checked(_from_cell(module), _from_cell(metric), _whole(step), number, _whole(call), phase)


def _whole(found: str) -> int:
    if not WHOLE.fullmatch(found):
        raise RecordingError(f"a step and a call are whole numbers, not {shown(found)!r}")
    return int(found)


CSV = LineFormat(lambda name: HEAD, _name, _line, _reading)
