"""The metrics of both daemons, from the golden exporter pages in `tests/golden`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tools.reference.markdown import code, head, joined, prose, table

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
ABOUT = (
    (
        "Names end in the base unit: seconds, bytes, celsius, watts, hertz, joules; ratios are 0 to 1; counters end in `_total`. "
        "An unknown value is left out, never 0."
    ),
    (
        "healthd and the remediator each serve `GET /metrics` on their `listen` address, without a token. A scrape reads memory only."
    ),
)
_ABOUT_DCGM = "Exported with `exporter.dcgm_names: true`, with the names and labels of dcgm-exporter."


def page() -> str:
    """docs/reference/metrics.md."""
    lines = head("Metrics", *ABOUT)
    for title, name, prefix in (("healthd", "healthd", "healthd_"), ("remediator", "remediator", "remediator_")):
        lines += [f"## {title}", "", *_table(_families(name), prefix)]
    process = [family for family in _families("healthd") if family.name.startswith("process_")]
    lines += ["## healthd's main process", "", *_table(process, "process_")]
    rest = [family for family in _families("healthd") if family.name.startswith("DCGM_")]
    if rest:
        lines += ["## DCGM names", "", _ABOUT_DCGM, "", *_table(rest, "DCGM_")]
    return joined(lines)


def _families(daemon: str) -> list[Metric]:
    """Every family of a daemon's golden pages, by name, from the page with the most samples."""
    found: dict[str, Metric] = {}
    for path in sorted((GOLDEN / daemon).glob("*.prom")):
        for family in text_string_to_metric_families(path.read_text()):
            if family.name not in found or len(family.samples) > len(found[family.name].samples):
                found[family.name] = family
    return [found[name] for name in sorted(found)]


def _table(families: Iterable[Metric], prefix: str) -> list[str]:
    rows = [
        [
            code(_exported(family)),
            family.type,
            ", ".join(code(label) for label in _labels(family)),
            prose(family.documentation),
        ]
        for family in families
        if family.name.startswith(prefix)
    ]
    return table(["metric", "type", "labels", "meaning"], rows)


def _exported(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> list[str]:
    return list(dict.fromkeys(label for sample in family.samples for label in sample.labels))
