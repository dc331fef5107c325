"""Metrics of the node: its health, its findings, and this agent's own state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from healthd.daemon_status import Status
from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from vocabulary import VERSION
from vocabulary.health import Health

_COUNTERS = (
    ("healthd_kernel_records_total", "Kernel log records read by this process.", "kernel_records"),
    ("healthd_nvml_sweeps_total", "NVML sweeps completed.", "sweeps"),
    ("healthd_nvml_errors_total", "NVML calls that failed within a sweep.", "sweep_errors"),
    ("healthd_nvml_starts_total", "NVML children started.", "nvml_starts"),
    ("healthd_nvml_xid_events_total", "Xids the driver reported through NVML.", "xid_events"),
    ("healthd_nvml_xid_events_alone_total", "Those of them without a line in the kernel log.", "xid_events_alone"),
    ("healthd_nvml_hangs_total", "Sweeps that did not end.", "nvml_hangs"),
    (
        "healthd_outbox_changes_dropped_total",
        "Changes dropped because the outbox was at its limit.",
        "changes_dropped",
    ),
    (
        "healthd_outbox_changes_rejected_total",
        "Changes set aside because the remediator rejects them.",
        "changes_rejected",
    ),
)


def export_node(status: Status, waiting: int) -> Iterator[Metric]:
    """Return the node's metrics; `waiting` is how many changes the remediator has not acknowledged."""
    yield InfoMetricFamily("healthd_build", "This agent.", value={"version": VERSION})
    health = GaugeMetricFamily("healthd_node_health", "1 for the current health, 0 for the others.", labels=["health"])
    for value in Health:
        health.add_metric([value.value], float(status.health is value))
    yield health
    yield GaugeMetricFamily("healthd_node_fit", "1 if work may be placed here.", value=float(status.verdict().fit))
    yield GaugeMetricFamily(
        "healthd_node_condemned",
        "1 from the order that names this node until a preflight passes.",
        value=float(status.condemned is not None),
    )
    yield _make_finding_family(status)
    yield GaugeMetricFamily(
        "healthd_outbox_waiting_changes", "Changes the remediator has not acknowledged.", value=waiting
    )
    yield GaugeMetricFamily(
        "healthd_outbox_unwritten_findings",
        "Findings held in memory only, because the state disk fails or hangs.",
        value=len(status.unwritten),
    )
    if status.last_commit is not None:
        yield GaugeMetricFamily(
            "healthd_outbox_commit_timestamp_seconds",
            "When the last write to the state disk was durable.",
            value=status.last_commit.at,
        )
        yield GaugeMetricFamily(
            "healthd_outbox_commit_seconds", "Duration of that write.", value=status.last_commit.seconds
        )
    if status.reported_at is not None:
        yield GaugeMetricFamily(
            "healthd_report_accepted_timestamp_seconds",
            "When the remediator last accepted a report.",
            value=status.reported_at,
        )
    yield GaugeMetricFamily(
        "healthd_abandoned_children", "Killed children that have not exited.", value=status.abandoned
    )
    if status.sweep_seconds is not None:
        yield GaugeMetricFamily("healthd_nvml_sweep_seconds", "Duration of the last sweep.", value=status.sweep_seconds)
    for name, help_text, field in _COUNTERS:
        yield CounterMetricFamily(name, help_text, value=getattr(status.counters, field))


def _make_finding_family(status: Status) -> Metric:
    labels = ["check", "code", "severity", "component", "gpu", "injected"]
    family = GaugeMetricFamily("healthd_findings_active", "Active findings.", labels=labels)
    counts = Counter(
        (
            f.check,
            f.code,
            f.severity.value,
            f.component.kind.value,
            "" if f.component.index is None else str(f.component.index),
            str(f.injected).lower(),
        )
        for f in status.findings
    )
    for values, count in sorted(counts.items()):
        family.add_metric(list(values), count)
    return family
