"""The page is written without Prometheus' client library, and read here by its parsers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from healthd.exporter.metric_families import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    wants_openmetrics,
    write_page,
)
from healthd.exporter.metrics_page import export_process

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")) | st.sampled_from('\n"\\'), max_size=20)
NUMBER = st.floats(allow_nan=False) | st.integers(-(2**60), 2**60) | st.booleans()
PARSERS: dict[bool, Callable[[str], Iterable[Metric]]] = {False: parse_text, True: parse_openmetrics}


@pytest.mark.parametrize("openmetrics", [False, True])
@given(help_text=TEXT, label=TEXT, value=NUMBER)
def test_what_is_written_is_what_is_read(*, openmetrics: bool, help_text: str, label: str, value: float) -> None:
    gauge = GaugeMetricFamily("a_seconds", help_text, labels=["b", "a"])
    gauge.add_metric([label, "x"], value)
    (family,) = PARSERS[openmetrics](write_page([gauge], openmetrics=openmetrics).decode())
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == ("a_seconds", {"a": "x", "b": label}, float(value))
    assert family.type == "gauge"
    assert family.documentation == help_text or help_text.strip() != help_text


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_type_is_said_as_its_format_wants_it(*, openmetrics: bool) -> None:
    families = [
        CounterMetricFamily("a_total", "A.", value=3),
        InfoMetricFamily("b", "B.", value={"version": "1"}),
        Metric("c", "C."),
        GaugeMetricFamily("d", "D.", value=math.inf),
        GaugeMetricFamily("e", "E.", value=math.nan),
    ]
    families[2].add_sample("c", {}, 1)
    page = write_page(families, openmetrics=openmetrics).decode()
    read = list(PARSERS[openmetrics](page))
    names = {sample.name: sample.value for family in read for sample in family.samples}
    assert names.keys() == {"a_total", "b_info", "c", "d", "e"}
    assert (names["a_total"], names["d"]) == (3.0, math.inf)
    assert math.isnan(names["e"])
    types = {line.split()[2]: line.split()[3] for line in page.splitlines() if line.startswith("# TYPE")}
    text = {"a_total": "counter", "b_info": "gauge", "c": "untyped", "d": "gauge", "e": "gauge"}
    assert types == ({"a": "counter", "b": "info", "c": "unknown", "d": "gauge", "e": "gauge"} if openmetrics else text)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2", True),
        ("application/openmetrics-text;version=0.0.1;q=0.9,text/plain;q=0.1", False),
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.2", False),
        ("application/openmetrics-text;q=nonsense,;;=,", False),
        ("application/openmetrics-text;q=0", False),
    ],
)
def test_openmetrics_is_for_those_who_prefer_it(accept: str, *, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


def test_the_process_is_on_the_page() -> None:
    values = {sample.name: sample.value for family in export_process() for sample in family.samples}
    assert values.keys() == {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }
    assert all(value > 0 for value in values.values())
    assert values["process_resident_memory_bytes"] < values["process_virtual_memory_bytes"]
    assert values["process_start_time_seconds"] < Path(f"/proc/{os.getpid()}/stat").stat().st_mtime + 1


def test_the_daemon_loads_neither_the_client_library_nor_what_only_it_needs() -> None:
    code = "import sys; import healthd.daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"prometheus_client", "wsgiref", "urllib.request", "statistics"} & set(loaded)
