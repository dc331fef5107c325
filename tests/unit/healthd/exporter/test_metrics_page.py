from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from healthd.collectors.pressure import PressureSample, PressureStall
from healthd.daemon_status import Counters, Status
from healthd.exporter.metrics_page import make_page_renderer
from healthd.findings.event_counters import COUNTED_MAX, EventCounters
from healthd.findings.facts import Raise
from healthd.findings.gpu_state import GpuState
from healthd.preflight_reports.preflight_history import PreflightHistory
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, Link, Process
from healthd.samples.preflight import PreflightSample
from healthd.samples.source import SourceReading, SourceState
from healthd.storage.database_writer import LastCommit
from healthd.storage.history_marker import Condemnation
from tests.unit.healthd.test_shortages import descriptors_left
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu, RankStatus
from vocabulary.order import OrderState, OrderUpdate

GPUS = (
    Gpu(0, "GPU-0", "0000:10:00.0", "NVIDIA H100 80GB HBM3", "16501"),
    Gpu(1, "GPU-1", "0000:11:00.0", "NVIDIA H100 80GB HBM3", "16502"),
)
RANK = RankStatus(
    "j", 1, 0, 2, 7, 40, "step", 4.0, step_median=0.9, sections_median={"forward": 0.3, "backward": 0.5}, gpu="GPU-0"
)
READING = GpuReading(
    index=0,
    temperature_c=41,
    sm_clock_mhz=1980,
    power_mw=350500,
    throttle_mask=0x4,
    memory_temperature_c=52,
    temperature_margin_c=46,
    memory_clock_mhz=2619,
    gpu_percent=97,
    memory_percent=40,
    memory_used_bytes=70 << 30,
    memory_total_bytes=80 << 30,
    power_limit_mw=700000,
    performance_state=0,
    ecc_corrected=2,
    ecc_uncorrected=0,
    rows_remapped_corrected=1,
    rows_remapped_uncorrected=0,
    remap_pending=False,
    remap_failed=False,
    recovery_action=0,
    pcie_generation=5,
    pcie_width=16,
    energy_mj=123456,
    ecc_corrected_aggregate=12,
    ecc_uncorrected_aggregate=1,
    sram_threshold_exceeded=False,
    remap_histogram=(638, 1, 1, 0, 0),
    pcie_replays=3,
    throttled_power_ns=4_500_000_000,
    throttled_thermal_ns=0,
    throttled_sync_ns=0,
    fabric_state=3,
    fabric_status=0,
    links=(
        Link(0, active=True, crc_errors=0, replay_errors=2, recovery_errors=0, rx_kib=1000, tx_kib=2000),
        Link(1, active=False, rx_kib=24),
    ),
    processes=(Process(7, 70 << 30),),
    sm_active_percent=93.5,
    tensor_active_percent=41.0,
    dram_active_percent=38.25,
)


def event(code: str, at: float, *, gpu: Gpu | None = None, check: str = "xid", injected: bool = False) -> Raise:
    component = Component(ComponentKind.HOST)
    if gpu is not None:
        component = Component(ComponentKind.GPU, pci=gpu.pci)
    return Raise(
        check=check,
        code=code,
        component=component,
        severity=Severity.WARNING,
        summary="…",
        at=at,
        event=True,
        injected=injected,
    )


def finding(severity: Severity, *, injected: bool = False) -> Finding:
    return Finding(
        id="f1",
        node="n1",
        check="xid",
        code="79",
        component=Component(ComponentKind.GPU, name="GPU-1", pci=GPUS[1].pci, index=1),
        severity=severity,
        summary="GPU has fallen off the bus",
        first_seen=1.0,
        last_seen=1.0,
        origin="b:1",
        injected=injected,
    )


def full_status() -> Status:
    counts = EventCounters()
    for fact in (
        event("31", 3.0, gpu=GPUS[0]),
        event("79", 4.0, gpu=GPUS[1]),
        event("79", 5.5, gpu=GPUS[1]),
        event("48", 9.0, gpu=GPUS[1], injected=True),
        event("kill", 4.5, check="oom"),
    ):
        counts.add(fact)
    constants = GpuConstants(index=0, vbios="96.00.74.00.1A", minor=3, pcie_width_max=16, ecc_enabled=True)
    pressure = PressureSample(
        (PressureStall("memory", 0.0, 0.0, 1_500_000, 20), PressureStall("io", None, None, None, None))
    )
    seen = PreflightHistory()
    seen.told(PreflightSample("fail", "standard", started_at=1.0), 4.0)
    data = {"verdict": "pass", "seconds": 8.5, "figure gemm TFLOP/s bf16 8192": 612.5, "figure copy_rate GB/s": 12.5}
    seen.answered("gate", OrderUpdate(id="o1", state=OrderState.SUCCEEDED, at=4.5, detail="", data=data))
    return Status(
        node="n1",
        boot_id="b",
        at=5.0,
        findings=(finding(Severity.FATAL), finding(Severity.WARNING), finding(Severity.FATAL, injected=True)),
        condemned=Condemnation("o1", 1.0, "XID 79"),
        gpus=GPUS,
        ranks=(RANK, RankStatus("j", 1, 1, 2, 8, 40, "step", 4.0, alive=False)),
        states=(
            GpuState(GPUS[0], constants, READING, READING),
            GpuState(GPUS[1], GpuConstants(index=1), *[GpuReading(index=1, lost=True)] * 2),
        ),
        inventory=Inventory("570.86.15", 2, GPUS, nvml="12.570.86.15", cuda="12.8"),
        sources={
            "kernel_log": SourceReading(source="kernel_log", state=SourceState.PRESENT, at=5.0),
            "pressure": SourceReading(
                source="pressure", state=SourceState.PRESENT, at=4.0, seconds=0.001, sample=pressure
            ),
            "dcgm": SourceReading(source="dcgm", state=SourceState.ABSENT, at=3.0, reason="no dcgmi"),
            "infiniband": SourceReading(source="infiniband", state=SourceState.HUNG, at=2.0, reason="no answer"),
            "disks": SourceReading(source="disks", state=SourceState.OFF, at=0.0),
        },
        events=counts.rows,
        sweep_seconds=0.0005,
        counters=Counters(kernel_records=9, sweeps=8, sweep_errors=7, nvml_starts=2, nvml_hangs=1, changes_dropped=3),
        abandoned=1,
        preflights=seen.seen,
        unwritten=frozenset({"f1"}),
        last_commit=LastCommit(at=8.5, seconds=0.002),
        reported_at=8.75,
    )


def text_of(status: Status, accept: str = "", *, dcgm: bool = False) -> str:
    """The page, without the values of this very process, which differ from run to run."""
    _, body = make_page_renderer(lambda: status, lambda: 5, with_dcgm_names=dcgm)(accept)
    return re.sub(r"(?m)^(process_\w+) .*$", r"\1 0.0", body.decode())


def names_of(page: str) -> set[str]:
    return set(re.findall(r"(?m)^([a-zA-Z]\w*)", page))


def test_the_whole_page(golden: Callable[[str, str], None]) -> None:
    lines = text_of(full_status(), dcgm=True).splitlines()
    told = (line for line in lines if not line.startswith(("healthd_build_info{", "process_")))
    golden("healthd/metrics.prom", "".join(f"{line}\n" for line in told))


@pytest.mark.parametrize("left", [0, 1])
def test_the_page_comes_also_while_descriptors_are_short(left: int) -> None:
    """All else is said: it is then that somebody looks."""
    whole = names_of(text_of(full_status()))
    with descriptors_left(left):
        page = text_of(full_status())
    own = {"process_cpu_seconds_total", "process_virtual_memory_bytes", "process_resident_memory_bytes",
           "process_start_time_seconds", "process_open_fds"}  # fmt: skip
    assert whole - names_of(page) == (set() if left else own)
    assert "process_max_fds" in names_of(page)


def test_an_empty_node_has_a_page_too() -> None:
    text = text_of(Status(node="n1", boot_id="b", at=5.0, silent=("NVML",)), dcgm=True)
    assert 'healthd_node_health{health="unknown"} 1.0' in text
    assert "healthd_node_fit 0.0" in text


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
        ("nonsense/;;;=", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_that_was_asked_for(accept: str, kind: str) -> None:
    content_type, body = make_page_renderer(full_status, lambda: 0)(accept)
    assert content_type.startswith(kind)
    assert body.endswith(b"# EOF\n") == ("openmetrics" in kind)


def test_both_formats_say_the_same_to_prometheus_own_parsers() -> None:
    status = full_status()
    plain = {(s.name, *sorted(s.labels.items())): s.value for f in parse_text(text_of(status)) for s in f.samples}
    accept = "application/openmetrics-text; version=1.0.0"
    families = parse_openmetrics(text_of(status, accept))  # type: ignore[no-untyped-call]  # the library has no types
    said = {(s.name, *sorted(s.labels.items())): s.value for f in families for s in f.samples}
    assert said.keys() == plain.keys()
    assert not {name for name in said if said[name] != plain[name] and not name[0].startswith("process_")}


def test_a_value_that_is_not_known_is_left_out() -> None:
    gpu_1 = [line for line in text_of(full_status()).splitlines() if 'gpu="1"' in line]
    assert not any(line.startswith("healthd_gpu_temperature_celsius") for line in gpu_1)
    assert 'healthd_gpu_lost{gpu="1",uuid="GPU-1"} 1.0' in gpu_1


def test_every_name_is_exported_once() -> None:
    names = [line.split()[2] for line in text_of(full_status(), dcgm=True).splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_a_flood_of_different_events_is_counted_in_bounded_memory() -> None:
    counts = EventCounters()
    for code in range(2 * COUNTED_MAX):
        counts.add(event(str(code), 1.0, gpu=GPUS[0]))
    assert len(counts.rows) == COUNTED_MAX + 1
    assert sum(row.count for row in counts.rows) == 2 * COUNTED_MAX


def test_two_attempts_of_a_job_on_one_node_make_no_series_twice() -> None:
    earlier, later = (replace(RANK, attempt=attempt, step_median=0.1 * attempt) for attempt in (1, 2))
    page = text_of(replace(full_status(), ranks=(later, earlier)))
    rows = [line for line in page.splitlines() if line.startswith("healthd_rank_step_seconds{")]
    assert [line.rpartition(" ")[2] for line in rows] == ["0.2"]
