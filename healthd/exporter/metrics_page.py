"""The whole page, in the requested format: Prometheus text, or OpenMetrics.

Metrics of the node, its jobs, preflights and sources, and of this process; GPUs and events have their own modules.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from healthd.daemon_status import Status
from healthd.exporter.dcgm_metric_names import export_dcgm_metrics
from healthd.exporter.event_metrics import export_events
from healthd.exporter.gpu_metric_families import export_gpus
from healthd.exporter.metric_families import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    wants_openmetrics,
    write_page,
)
from healthd.exporter.sample_metrics import restate_sample
from healthd.samples.preflight import LEVELS, VERDICTS
from healthd.samples.source import SourceState
from healthd.source_monitoring.source_registry import SOURCES
from vocabulary import VERSION
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus

# The client's Accept header → content type and body.
Page = Callable[[str], tuple[str, bytes]]
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
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def make_page_renderer(
    status: Callable[[], Status],
    waiting: Callable[[], int],
    *,
    with_dcgm_names: bool = False,
    critical_xids: Sequence[str] = (),
) -> Page:
    """Return a function that renders the current page, for an Accept header.

    `critical_xids` are codes that have a counter at 0 before they were ever seen.
    """

    def render(accept: str) -> tuple[str, bytes]:
        openmetrics = wants_openmetrics(accept)
        families = [
            *_collect_families(status(), waiting(), critical_xids, with_dcgm_names=with_dcgm_names),
            *export_process(),
        ]
        return OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, write_page(families, openmetrics=openmetrics)

    return render


def _collect_families(
    status: Status, waiting: int, critical_xids: Sequence[str], *, with_dcgm_names: bool
) -> Iterator[Metric]:
    yield from export_node(status, waiting)
    yield from export_events(status, critical_xids)
    yield from export_jobs(status)
    yield from export_gpus(status)
    yield from export_preflights(status)
    yield from export_sources(status)
    if with_dcgm_names:
        yield from export_dcgm_metrics(status)


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


def export_jobs(status: Status) -> Iterator[Metric]:
    """Return this node's jobs, each rank's GPU as NVML knows its holder, and each job's progress.

    Join on `gpu` in a query: the GPU's own values name no job, so that no series ends when a job does.
    """
    alive = [rank for rank in status.ranks if rank.alive]
    yield GaugeMetricFamily("healthd_trainer_ranks", "Living trainer ranks on this node.", value=len(alive))
    job = InfoMetricFamily("healthd_job", "A job with ranks on this node.", labels=["job"])
    step = GaugeMetricFamily("healthd_job_step", "Current step of its slowest rank here.", labels=["job"])
    for name in sorted({rank.job for rank in alive}):
        ranks = [rank for rank in alive if rank.job == name]
        job.add_metric([name], {"attempt": str(max(r.attempt for r in ranks)), "world": str(ranks[0].world)})
        step.add_metric([name], min(rank.step for rank in ranks))
    yield from (job, step)
    yield from _make_step_time_families(alive)
    by_pid = {rank.pid: rank for rank in alive}
    gpu_job = InfoMetricFamily("healthd_gpu_job", "The rank that holds the GPU.", labels=["gpu", "uuid"])
    for state in status.states:
        holders = [by_pid[process.pid] for process in state.latest.processes or () if process.pid in by_pid]
        for rank in holders[:1]:
            gpu_job.add_metric([str(state.gpu.index), state.gpu.uuid], {"job": rank.job, "rank": str(rank.rank)})
    yield gpu_job


def _make_step_time_families(ranks: list[RankStatus]) -> Iterator[Metric]:
    """Return medians of the last steps, to compare a slow rank with its peers on other nodes."""
    labels = ["job", "rank", "stage", "gpu_uuid"]
    step = GaugeMetricFamily("healthd_rank_step_seconds", "Median of the rank's last 64 steps.", labels=labels)
    section = GaugeMetricFamily(
        "healthd_rank_section_seconds", "The same of a section of its steps.", labels=[*labels, "section"]
    )
    newest: dict[tuple[str, str, str, str], RankStatus] = {}  # of several attempts of one job on a node
    for rank in sorted(ranks, key=lambda rank: rank.attempt):
        stage = str(rank.pipeline_stage) if rank.pipeline_stage >= 0 else ""
        newest[rank.job, str(rank.rank), stage, rank.gpu] = rank
    for names, rank in newest.items():
        if rank.step_median > 0:
            step.add_metric(names, rank.step_median)
        for name, seconds in sorted(rank.sections_median.items()):
            section.add_metric([*names, name], seconds)
    yield from (step, section)


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


def export_process() -> Iterator[Metric]:
    """Return six numbers of /proc/self, under the names of all Prometheus clients; children are not counted.

    Unreadable ones are left out: the page works without a free descriptor.
    """
    for read in (_read_stat, _read_descriptors):
        with contextlib.suppress(OSError):
            yield from read()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield GaugeMetricFamily("process_max_fds", "Maximum number of open file descriptors.", value=limit)


def _read_stat() -> list[Metric]:
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # from the state on, the third field
    user, system, started, virtual, resident = (int(words[number]) for number in (11, 12, 19, 20, 21))
    begun = _read_boot_time() + started / _TICKS
    return [
        CounterMetricFamily("process_cpu_seconds_total", "User and system time.", value=(user + system) / _TICKS),
        GaugeMetricFamily("process_virtual_memory_bytes", "Size of the address space.", value=virtual),
        GaugeMetricFamily("process_resident_memory_bytes", "Memory in use.", value=resident * _PAGE_BYTES),
        GaugeMetricFamily("process_start_time_seconds", "When the process was started.", value=begun),
    ]


def _read_descriptors() -> list[Metric]:
    count = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return [GaugeMetricFamily("process_open_fds", "Open file descriptors.", value=count)]


def _read_boot_time() -> int:
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0
