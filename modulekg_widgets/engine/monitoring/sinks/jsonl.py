"""JSON lines: a header, then one object for each reading; strict JSON, so NaN and infinities are texts."""

from __future__ import annotations

import json

from modulekg_widgets.engine.errors import RecordingError, shown
from modulekg_widgets.engine.monitoring.readings import Reading
from modulekg_widgets.engine.monitoring.sinks.files import FORMAT, VERSION, checked_head
from modulekg_widgets.engine.monitoring.sinks.lines import LineFormat
from modulekg_widgets.engine.monitoring.sinks.values import checked, parsed, value_text

REQUIRED = {"module", "metric", "step", "value"}
FIELDS = REQUIRED | {"call", "phase"}


def _head(name: str) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, "name": name})


def _name(line: str) -> str:
    return checked_head(parsed(line))


def _line(reading: Reading) -> str:
    # escaped to ASCII, in which a lone surrogate in a name survives
    return (
        f'{{"module":{json.dumps(reading.module)},"metric":{json.dumps(reading.metric)},"step":{int(reading.step)},'
        f'"value":{value_text(reading.value)},"call":{int(reading.call)},"phase":"{reading.phase}"}}'
    )


def _reading(line: str) -> Reading:
    found = parsed(line)
    if not isinstance(found, dict) or not found.keys() >= REQUIRED or not found.keys() <= FIELDS:
        raise RecordingError(f"no reading, which has {', '.join(sorted(FIELDS))}: {shown(line)}")
    return checked(**found)


JSONL = LineFormat(_head, _name, _line, _reading)
