"""Checks of every source of the source child: each is read once, as healthd would."""

from __future__ import annotations

import time
from collections.abc import Iterator

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthd.config import Config
from healthd.host import Host
from healthd.samples.source import SourceReading, SourceState
from healthd.source_monitoring.source_prober import SourceProber
from healthd.source_monitoring.source_registry import SOURCES, Source
from healthd.source_monitoring.source_schedules import make_source_schedules

START_S = 30.0


def check_sources(config: Config) -> Iterator[Diagnosis]:
    """The result of each source, or the reason for its failure."""
    readings = _read_all(config)
    for source in SOURCES:
        reading = readings.get(source.name)
        part = f"source {source.name}"
        if reading is None and not config.sources.get(source.name):
            yield diagnose_bad(part, "no answer", source.when_absent, "healthd skips it and continues; try again")
        elif reading is None:
            yield diagnose_absent(part, "switched off", source.when_absent, f"remove sources.{source.name}.enabled")
        else:
            yield _diagnose_source(part, source, reading)


def _diagnose_source(part: str, source: Source, reading: SourceReading) -> Diagnosis:
    if reading.state is SourceState.PRESENT:
        return diagnose_good(part, f"{source.reads} ({reading.seconds * 1000:.1f} ms, every {source.every_s:.0f} s)")
    if reading.state is SourceState.ABSENT:
        return diagnose_absent(part, reading.reason, source.when_absent)
    todo = "run as root; if it persists, please report it"
    return diagnose_bad(part, f"{reading.state.value}: {reading.reason}", source.when_absent, todo)


def _read_all(config: Config) -> dict[str, SourceReading]:
    """The first reading of each source, or a hang."""
    plans = make_source_schedules(config)
    prober = SourceProber(Host(), plans, config.source_deadline_s)
    readings: dict[str, SourceReading] = {}
    deadline = time.monotonic() + START_S + config.source_deadline_s
    try:
        while plans.keys() - readings.keys() and time.monotonic() < deadline:
            for reading in prober.poll():
                readings.setdefault(reading.source, reading)
            time.sleep(0.02)
    finally:
        prober.close()
    return readings
