"""Metrics of the sources: whether each is present, and its values."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.daemon_status import Status
from healthd.exporter.metric_families import GaugeMetricFamily, Metric
from healthd.exporter.sample_metrics import restate_sample
from healthd.samples.source import SourceState
from healthd.source_monitoring.source_registry import SOURCES


def export_sources(status: Status) -> Iterator[Metric]:
    """`healthd_source_up` is 1 while a source reports, 0 while it should and does not; absent ones have none."""
    up = GaugeMetricFamily("healthd_source_up", "1 if the source is read, 0 if it should be.", labels=["source"])
    state = GaugeMetricFamily("healthd_source_state", "1 for its current state.", labels=["source", "state"])
    read = GaugeMetricFamily(
        "healthd_source_read_timestamp_seconds", "When the source was last read.", labels=["source"]
    )
    seconds = GaugeMetricFamily("healthd_source_look_seconds", "Duration of the reading.", labels=["source"])
    for name, reading in sorted(status.sources.items()):
        state.add_metric([name, reading.state.value], 1.0)
        if reading.state not in (SourceState.ABSENT, SourceState.OFF):
            up.add_metric([name], float(reading.state is SourceState.PRESENT))
        if reading.at:
            read.add_metric([name], reading.at)
            seconds.add_metric([name], reading.seconds)
    yield from (up, state, read, seconds)
    for source in SOURCES:
        latest = status.sources.get(source.name)
        if latest is not None and latest.sample is not None:
            yield from restate_sample(source.metrics, latest.sample)
