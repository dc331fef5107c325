"""Metrics of preflights: result, time and figures of the last one of each level."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.daemon_status import Status
from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, Metric
from healthd.samples.preflight import LEVELS, VERDICTS


def export_preflights(status: Status) -> Iterator[Metric]:
    """Return the preflights since this agent started."""
    seen = status.preflights
    ended = CounterMetricFamily(
        "healthd_preflights", "Preflights that ended, ordered or reported.", labels=["level", "verdict", "by"]
    )
    # At 0 before the first one, which increase() would miss otherwise.
    counts = {(level, verdict, by): 0 for level in LEVELS for verdict in VERDICTS for by in ("order", "told")}
    for labels, count in (counts | {each[:3]: each[3] for each in seen.ended}).items():
        ended.add_metric(labels, count)
    verdicts = GaugeMetricFamily(
        "healthd_preflight_verdict",
        "1 for the last verdict of the level, 0 for the others.",
        labels=["level", "verdict"],
    )
    at = GaugeMetricFamily("healthd_preflight_timestamp_seconds", "When the last of the level ended.", labels=["level"])
    took = GaugeMetricFamily("healthd_preflight_seconds", "Duration of the preflight.", labels=["level"])
    figures = GaugeMetricFamily(
        "healthd_preflight_figure",
        "Measured value of the worst device.",
        labels=["level", "figure", "unit", "setting"],
    )
    for last in seen.last:
        for verdict in VERDICTS:
            verdicts.add_metric([last.level, verdict], float(last.verdict == verdict))
        at.add_metric([last.level], last.at)
        if last.seconds is not None:
            took.add_metric([last.level], last.seconds)
        for each in last.figures:
            figures.add_metric([last.level, each.name, each.unit, each.setting], each.value)
    yield from (ended, verdicts, at, took, figures)
