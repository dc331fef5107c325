"""Preflights on the page: how the last of each level ended, when, and what it measured."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.exporter.families import CounterMetricFamily, GaugeMetricFamily, Metric
from healthd.samples.preflight import VERDICTS
from healthd.status import Status


def preflights(status: Status) -> Iterator[Metric]:
    """Of this agent's life: an agent that was started anew knows none."""
    seen = status.preflights
    ended = CounterMetricFamily(
        "healthd_preflights", "Preflights that ended, ordered or told of.", labels=["level", "verdict", "by"]
    )
    for level, verdict, by, count in seen.ended:
        ended.add_metric([level, verdict, by], count)
    verdicts = GaugeMetricFamily(
        "healthd_preflight_verdict",
        "1 for the last verdict of the level, 0 for the others.",
        labels=["level", "verdict"],
    )
    at = GaugeMetricFamily("healthd_preflight_timestamp_seconds", "When the last of the level ended.", labels=["level"])
    took = GaugeMetricFamily("healthd_preflight_seconds", "How long it took.", labels=["level"])
    figures = GaugeMetricFamily(
        "healthd_preflight_figure",
        "What it measured, of the worst device.",
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
