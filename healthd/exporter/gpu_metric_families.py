"""Metrics of the GPUs: identity, values, links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthd.daemon_status import Status
from healthd.exporter.gpu_metrics import CONSTANT, FRESH, KNOWN
from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from healthd.exporter.sample_metrics import format_label, restate_rows
from healthd.findings.gpu_state import GpuState
from vocabulary.hardware.throttle_reasons import THROTTLE_REASONS

LABELS = ("gpu", "uuid")
SPARE_ROWS = ("max", "high", "partial", "low", "none")  # the order of NVML's histogram
_LINK_ERRORS = (("crc", "crc_errors"), ("replay", "replay_errors"), ("recovery", "recovery_errors"))
_KIB = 1024


def export_gpus(status: Status) -> Iterator[Metric]:
    """Return everything that was read of every GPU since NVML was started."""
    states = status.states
    yield _make_gpu_info(states)
    if status.inventory is not None:
        inventory = status.inventory
        driver = {"driver": inventory.driver, "nvml": inventory.nvml, "cuda": inventory.cuda}
        yield InfoMetricFamily("healthd_driver", "The GPU driver.", value=driver)
    lost = GaugeMetricFamily("healthd_gpu_lost", "1 if the driver no longer reaches the GPU.", labels=LABELS)
    for state in states:
        lost.add_metric(_list_gpu_labels(state), float(state.read.lost))
    yield lost
    yield from restate_rows(FRESH, LABELS, [(_list_gpu_labels(state), state.read) for state in states])
    yield _make_throttle_family(states)
    yield from restate_rows(KNOWN, LABELS, [(_list_gpu_labels(state), state.latest) for state in states])
    yield from restate_rows(CONSTANT, LABELS, [(_list_gpu_labels(state), state.constants) for state in states])
    yield _make_spare_row_family(states)
    yield _make_process_family(states)
    yield from _make_link_families(states)


def _list_gpu_labels(state: GpuState) -> list[str]:
    return [str(state.gpu.index), state.gpu.uuid]


def _make_gpu_info(states: Sequence[GpuState]) -> Metric:
    family = InfoMetricFamily("healthd_gpu", "The GPU's identity.", labels=LABELS)
    for state in states:
        gpu, constants = state.gpu, state.constants
        words = {
            "pci": gpu.pci,
            "name": gpu.name,
            "serial": gpu.serial,
            "part_number": constants.part_number,
            "vbios": constants.vbios,
            "inforom": constants.inforom,
            "compute_capability": constants.compute_capability,
            "minor": format_label(constants.minor),
        }
        family.add_metric(_list_gpu_labels(state), words)
    return family


def _make_throttle_family(states: Sequence[GpuState]) -> Metric:
    family = GaugeMetricFamily(
        "healthd_gpu_throttled", "1 if the clock is lowered for this reason.", labels=[*LABELS, "reason"]
    )
    for state in states:
        mask = state.read.throttle_mask
        if mask is not None:
            for bit, reason in THROTTLE_REASONS.items():
                family.add_metric([*_list_gpu_labels(state), reason], float(bool(mask & bit)))
    return family


def _make_spare_row_family(states: Sequence[GpuState]) -> Metric:
    family = GaugeMetricFamily(
        "healthd_gpu_memory_banks", "Memory banks by number of spare rows.", labels=[*LABELS, "spare_rows"]
    )
    for state in states:
        for level, banks in zip(SPARE_ROWS, state.latest.remap_histogram or (), strict=False):
            family.add_metric([*_list_gpu_labels(state), level], banks)
    return family


def _make_process_family(states: Sequence[GpuState]) -> Metric:
    family = GaugeMetricFamily("healthd_gpu_processes", "Processes that hold the GPU.", labels=LABELS)
    for state in states:
        if state.latest.processes is not None:
            family.add_metric(_list_gpu_labels(state), len(state.latest.processes))
    return family


def _make_link_families(states: Sequence[GpuState]) -> Iterator[Metric]:
    active = GaugeMetricFamily("healthd_nvlink_active", "1 if the link is up.", labels=[*LABELS, "link"])
    errors = CounterMetricFamily("healthd_nvlink_errors_total", "Errors on the link.", labels=[*LABELS, "link", "kind"])
    carried = CounterMetricFamily(
        "healthd_nvlink_bytes_total", "Data over all links of the GPU.", labels=[*LABELS, "direction"]
    )
    for state in states:
        links = state.latest.links or ()
        for link in links:
            where = [*_list_gpu_labels(state), str(link.link)]
            if link.active is not None:
                active.add_metric(where, float(link.active))
            for kind, field in _LINK_ERRORS:
                count = getattr(link, field)
                if count is not None:
                    errors.add_metric([*where, kind], count)
        for direction, field in (("receive", "rx_kib"), ("transmit", "tx_kib")):
            known = [value for link in links if (value := getattr(link, field)) is not None]
            if known:
                carried.add_metric([*_list_gpu_labels(state), direction], sum(known) * _KIB)
    yield from (active, errors, carried)
