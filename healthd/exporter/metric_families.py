"""Metric families, and the page made of them: Prometheus' text, or OpenMetrics.

The names are those of Prometheus' client library, which is not used here: it also loads web servers, TLS and decimal
arithmetic, which cost every node several MiB. The tests read the pages with that library's parsers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SUFFIX = {"counter": "_total", "info": "_info"}
_TEXT_TYPES = {"info": "gauge", "unknown": "untyped"}  # their names in the older format
_NO_NUMBER = {math.inf: "+Inf", -math.inf: "-Inf"}
Value = float | Mapping[str, str]


class Sample(NamedTuple):
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float


class Metric:
    """One family: its samples have one meaning and one type ("gauge", "counter", "info" or "unknown")."""

    type = "unknown"

    def __init__(self, name: str, documentation: str, value: Value | None = None, labels: Sequence[str] = ()) -> None:
        self.name = name.removesuffix(_SUFFIX.get(self.type, "\0"))
        self.documentation = documentation
        self.samples: list[Sample] = []
        self._labels = tuple(labels)
        if value is not None:  # the only sample
            self.add_metric((), value)

    def add_metric(self, labels: Sequence[str], value: Value) -> None:
        """Add one sample; `labels` are the values of the family's labels. Texts become further labels of the value 1."""
        known = dict(zip(self._labels, labels, strict=True))
        texts, number = ({}, value) if isinstance(value, int | float) else (value, 1)
        self.add_sample(self.name + _SUFFIX.get(self.type, ""), {**known, **texts}, number)

    def add_sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add a line with its own name."""
        self.samples.append(Sample(name, labels, value))


class GaugeMetricFamily(Metric):
    """A value that rises and falls."""

    type = "gauge"


class CounterMetricFamily(Metric):
    """A count that only rises. Its samples end in `_total`."""

    type = "counter"


class InfoMetricFamily(Metric):
    """Text values, as labels of a sample that is always 1 and ends in `_info`."""

    type = "info"


def wants_openmetrics(accept: str) -> bool:
    """Return whether a client with this Accept header prefers OpenMetrics 1.0 to the Prometheus text format."""
    best = {True: 0.0, False: 0.0}
    for offer in accept.split(","):
        kind, *words = (word.strip() for word in offer.split(";"))
        parameters = dict(word.split("=", 1) for word in words if "=" in word)
        openmetrics = kind == "application/openmetrics-text"
        if not openmetrics or parameters.get("version", "1.0.0") == "1.0.0":
            best[openmetrics] = max(best[openmetrics], _parse_weight(parameters.get("q", "1")))
    return best[True] > 0 and best[True] >= best[False]


def write_page(families: Iterable[Metric], *, openmetrics: bool) -> bytes:
    """Return all families, in UTF-8."""
    lines: list[str] = []
    for family in families:
        name = family.name if openmetrics else family.name + _SUFFIX.get(family.type, "")
        kind = family.type if openmetrics else _TEXT_TYPES.get(family.type, family.type)
        words = (
            _escape_label(family.documentation) if openmetrics else _escape_label(family.documentation, quotes=False)
        )
        lines += [f"# HELP {name} {words}\n", f"# TYPE {name} {kind}\n"]
        lines += [_format_sample(sample) for sample in family.samples]
    return "".join([*lines, "# EOF\n"] if openmetrics else lines).encode()


def _format_sample(sample: Sample) -> str:
    labels = ",".join(f'{label}="{_escape_label(value)}"' for label, value in sorted(sample.labels.items()))
    return (
        f"{sample.name}{{{labels}}} {_format_number(sample.value)}\n"
        if labels
        else f"{sample.name} {_format_number(sample.value)}\n"
    )


def _escape_label(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _format_number(value: float) -> str:
    return "NaN" if math.isnan(value) else _NO_NUMBER.get(value) or repr(float(value))


def _parse_weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
