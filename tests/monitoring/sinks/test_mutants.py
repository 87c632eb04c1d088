"""10,000 damaged recordings: read as something, or refused by name; never a crash, a hang or a flood of memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modulekg_widgets.engine.errors import RecordingError
from modulekg_widgets.engine.monitoring.sinks import parquet_sink
from modulekg_widgets.engine.monitoring.sinks.recording import Recording, continue_file, load_recording
from monitoring.sinks.mutants import mutant
from monitoring.sinks.samples import KINDS, assert_same, every_reading, record, scalars

READINGS = [*every_reading(), *scalars(20)]
MEMORY = 300 << 10  # kB that the process may grow by


def loaded(path: Path) -> tuple[Recording | None, str]:
    """The recording, or the text of the error."""
    try:
        return load_recording(path), ""
    except RecordingError as error:
        return None, str(error)


class Damage:
    """A recording, and what became of its mutants so far."""

    def __init__(self, path: Path) -> None:
        self.path = record(path, READINGS, "run")
        self.raw = path.read_bytes()
        self.loaded = self.refused = 0

    def try_all(self, seeds: range) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for seed in seeds:
            self.path.write_bytes(mutant(self.raw, seed, self.path.suffix))
            begin = time.process_time()
            self.try_one()
            assert time.process_time() - begin < 2, seed
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY

    def try_one(self) -> None:
        recording, text = loaded(self.path)
        if recording is None:
            self.refused += 1
            assert str(self.path) in text
            assert text.isprintable()
            assert len(text) < 1000
            with pytest.raises(RecordingError):
                continue_file(self.path, 1 << 62)
            return
        self.loaded += 1
        found = list(recording.readings(None))
        assert recording.get_output() or not any(reading.phase == "train" for reading in found)
        # what was taken can be written and read again
        assert_same(load_recording(record(self.path, found)).readings(None), found)


@pytest.fixture(params=[*KINDS, "bare parquet"])
def damage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Callable[..., None]
) -> Damage:
    kind = request.param
    if "parquet" in kind:
        require("pyarrow")
    if kind == "bare parquet":  # without the checksums that find most of the damage
        monkeypatch.setitem(parquet_sink.OPTIONS, "write_page_checksum", False)
        kind = ".parquet"
    return Damage(tmp_path / f"run{kind}")


def test_mutants(damage: Damage) -> None:
    damage.try_all(range(75))
    assert min(damage.loaded, damage.refused) > 0


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ten_thousand_mutants(damage: Damage) -> None:
    damage.try_all(range(1000, 3500))
    assert min(damage.loaded, damage.refused) > 50
