"""How a sample's numbers are exported: declared beside the sample, used by the exporter."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One metric: its name (Prometheus style, base unit in it; counters end in _total), and its field.

    `factor` converts the field to the base unit. `kind` is "gauge", "counter", or "info": text fields of one name
    become labels named like the fields, and the value is 1. `labels` are constant: they distinguish metrics that share
    a name.
    """

    name: str
    help: str
    field: str
    kind: str = "gauge"
    factor: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()


class Family(NamedTuple):
    """The metrics of one kind of row.

    `rows` is the sample's field that holds the rows ("" means the sample itself), `labels` the row's fields that
    identify it, `metrics` what to export of each.
    """

    rows: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]
