"""The Prometheus page: the last status, restated. A scrape reads memory only; it never touches a driver or a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from healthd.status import Status
from vocabulary.health import Health

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# metric, help, reading's field, factor to the base unit
_GPU_GAUGES = (
    ("healthd_gpu_temperature_celsius", "GPU core temperature.", "temperature_c", 1.0),
    ("healthd_gpu_sm_clock_hertz", "Streaming multiprocessor clock.", "sm_clock_mhz", 1e6),
    ("healthd_gpu_power_watts", "Power drawn by the GPU.", "power_mw", 1e-3),
    ("healthd_gpu_throttle_reasons", "NVML's bit mask of reasons for a lowered clock.", "throttle_mask", 1.0),
)
_MEMORY_GAUGES = (
    ("healthd_gpu_ecc_errors", "Volatile ECC errors since the driver was loaded.", "corrected", "ecc_corrected"),
    ("healthd_gpu_ecc_errors", "", "uncorrected", "ecc_uncorrected"),
    ("healthd_gpu_remapped_rows", "Memory rows replaced by spares.", "corrected", "rows_remapped_corrected"),
    ("healthd_gpu_remapped_rows", "", "uncorrected", "rows_remapped_uncorrected"),
)
_COUNTERS = (
    ("healthd_kernel_records", "Kernel log records read by this process.", "kernel_records"),
    ("healthd_nvml_sweeps", "NVML sweeps completed.", "sweeps"),
    ("healthd_nvml_errors", "NVML calls that failed within a sweep.", "sweep_errors"),
    ("healthd_nvml_starts", "NVML children started.", "nvml_starts"),
    ("healthd_nvml_hangs", "Sweeps that did not end.", "nvml_hangs"),
    ("healthd_outbox_changes_dropped", "Changes given up because the outbox was at its limit.", "changes_dropped"),
)


class _Page(Collector):
    def __init__(self, status: Callable[[], Status], waiting: Callable[[], int]) -> None:
        self._status = status
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield InfoMetricFamily("healthd_build", "This agent.", value={"version": _version()})
        yield from _node(status)
        yield GaugeMetricFamily(
            "healthd_outbox_waiting_changes", "Changes the remediator has not acknowledged.", value=self._waiting()
        )
        yield from _gpus(status)
        for name, text, field in _COUNTERS:
            yield CounterMetricFamily(name, text, value=getattr(status.counters, field))


def page(status: Callable[[], Status], waiting: Callable[[], int]) -> Callable[[], bytes]:
    """Something that renders the page as it stands."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(status, waiting))
    return lambda: generate_latest(registry)


def _node(status: Status) -> Iterator[Metric]:
    health = GaugeMetricFamily("healthd_node_health", "1 for the present health, 0 for the others.", labels=["health"])
    for value in Health:
        health.add_metric([value.value], float(status.health is value))
    yield health
    yield GaugeMetricFamily("healthd_node_fit", "1 if work may be placed here.", value=float(status.verdict().fit))
    yield GaugeMetricFamily(
        "healthd_node_condemned",
        "1 from the order that names this node until a preflight passes.",
        value=float(status.condemned is not None),
    )
    findings = GaugeMetricFamily(
        "healthd_findings_active", "Active findings.", labels=["check", "code", "severity", "gpu", "injected"]
    )
    counts: dict[tuple[str, str, str, str, str], int] = {}
    for f in status.findings:
        gpu = "" if f.component.index is None else str(f.component.index)
        labels = (f.check, f.code, f.severity.value, gpu, str(f.injected).lower())
        counts[labels] = counts.get(labels, 0) + 1
    for values, count in sorted(counts.items()):
        findings.add_metric(list(values), count)
    yield findings
    alive = sum(rank.alive for rank in status.ranks)
    yield GaugeMetricFamily("healthd_trainer_ranks", "Living trainer ranks on this node.", value=alive)
    yield GaugeMetricFamily(
        "healthd_nvml_abandoned_children", "Killed NVML children still there.", value=status.abandoned
    )
    if status.sweep_seconds is not None:
        yield GaugeMetricFamily("healthd_nvml_sweep_seconds", "Duration of the last sweep.", value=status.sweep_seconds)


def _gpus(status: Status) -> Iterator[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for name, text, field, factor in _GPU_GAUGES:
        family = families[name] = GaugeMetricFamily(name, text, labels=["gpu", "uuid"])
        for state in status.states:
            value = getattr(state.read, field)
            if value is not None:
                family.add_metric([str(state.gpu.index), state.gpu.uuid], value * factor)
    for name, text, kind, field in _MEMORY_GAUGES:
        if name not in families:
            families[name] = GaugeMetricFamily(name, text, labels=["gpu", "uuid", "kind"])
        for state in status.states:
            value = getattr(state.latest, field)
            if value is not None:
                families[name].add_metric([str(state.gpu.index), state.gpu.uuid, kind], value)
    yield from families.values()


def _version() -> str:
    try:
        return version("gpu-healthd")
    except PackageNotFoundError:
        return "unknown"
