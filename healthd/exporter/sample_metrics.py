"""Turns rows of numbers into metric families, as their `Metric`s declare. An unknown value is left out, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from healthd.exporter.metric_families import Metric as PrometheusMetric
from healthd.samples.metric_declaration import Family, Metric

# The values of a row's labels, and the row itself.
Row = tuple[Sequence[str], Any]


def restate_sample(families: Iterable[Family], sample: Any) -> Iterator[PrometheusMetric]:
    """Export a source's sample, as it declares."""
    for family in families:
        rows = getattr(sample, family.rows) if family.rows else (sample,)
        named = [([format_label(getattr(row, label)) for label in family.labels], row) for row in rows]
        yield from restate_rows(family.metrics, family.labels, named)


def restate_rows(metrics: Iterable[Metric], labels: Sequence[str], rows: Sequence[Row]) -> Iterator[PrometheusMetric]:
    """Export these metrics of these rows. Metrics of one name are adjacent and have the same constant labels."""
    for (name, kind), group in groupby(metrics, lambda metric: (metric.name, metric.kind)):
        same = tuple(group)
        yield (
            _make_info_family(name, same, labels, rows)
            if kind == "info"
            else _make_number_family(name, kind, same, labels, rows)
        )


def format_label(value: Any) -> str:
    """Return a field as a label's value; empty if unknown."""
    return "" if value is None else str(value)


def _make_number_family(
    name: str, kind: str, same: Sequence[Metric], labels: Sequence[str], rows: Sequence[Row]
) -> PrometheusMetric:
    family_class = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = family_class(name, same[0].help, labels=[*labels, *(key for key, _ in same[0].labels)])
    for metric in same:
        constant = [value for _, value in metric.labels]
        for values, row in rows:
            value = getattr(row, metric.field)
            if value is not None:
                family.add_metric([*values, *constant], value * metric.factor)
    return family


def _make_info_family(
    name: str, same: Sequence[Metric], labels: Sequence[str], rows: Sequence[Row]
) -> PrometheusMetric:
    family = InfoMetricFamily(name.removesuffix("_info"), same[0].help, labels=list(labels))
    for values, row in rows:
        family.add_metric(list(values), {metric.field: format_label(getattr(row, metric.field)) for metric in same})
    return family
