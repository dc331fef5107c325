from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from healthd.gpus import GpuState
from healthd.metrics import page
from healthd.outbox import Condemned
from healthd.samples.nvml import GpuConstants, GpuReading
from healthd.status import Counters, Status
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu, RankStatus


def finding(severity: Severity) -> Finding:
    return Finding(
        id="f1",
        node="n1",
        check="xid",
        code="79",
        component=Component(ComponentKind.GPU, name="GPU-3", pci="0000:13:00.0", index=3),
        severity=severity,
        summary="GPU has fallen off the bus",
        first_seen=1.0,
        last_seen=1.0,
        origin="b:1",
    )


def state(read: GpuReading, **latest: int) -> GpuState:
    gpu = Gpu(read.index, f"GPU-{read.index}", f"0000:1{read.index}:00.0")
    return GpuState(gpu, GpuConstants(index=read.index), msgspec.structs.replace(read, **latest), read)


CONDEMNED = Condemned("o1", 1.0, "XID 79")
WARNING, FATAL = finding(Severity.WARNING), finding(Severity.FATAL)


@pytest.mark.parametrize(
    ("findings", "silent", "condemned", "health", "fit"),
    [
        ((), (), None, Health.HEALTHY, True),
        ((WARNING,), (), None, Health.DEGRADED, True),
        ((), ("NVML",), None, Health.UNKNOWN, False),
        ((WARNING,), ("NVML",), None, Health.UNKNOWN, False),
        ((FATAL,), (), None, Health.UNHEALTHY, False),
        ((FATAL,), ("NVML",), None, Health.UNHEALTHY, False),
        ((), (), CONDEMNED, Health.HEALTHY, False),
        ((), ("NVML",), CONDEMNED, Health.UNKNOWN, False),
        ((FATAL,), (), CONDEMNED, Health.UNHEALTHY, False),
    ],
)
def test_every_combination_of_facts_silence_and_condemnation(
    findings: tuple[Finding, ...], silent: tuple[str, ...], condemned: Condemned | None, health: Health, *, fit: bool
) -> None:
    status = Status(node="n1", boot_id="b", at=5.0, findings=findings, silent=silent, condemned=condemned)
    verdict = status.verdict()
    assert (verdict.health, verdict.fit, verdict.condemned) == (health, fit, condemned is not None)
    assert len(verdict.reasons) == len(findings) + len(silent) + (condemned is not None)


def test_reasons_are_sentences_and_the_worst_comes_first() -> None:
    status = Status(node="n1", boot_id="b", at=5.0, findings=(WARNING, FATAL), condemned=CONDEMNED, silent=("NVML",))
    assert status.verdict().reasons == (
        "condemned by order o1: XID 79",
        "xid/79 (fatal): GPU has fallen off the bus",
        "xid/79 (warning): GPU has fallen off the bus",
        "no word from NVML",
    )


def test_the_metrics_page(golden: Callable[[str, str], None]) -> None:
    status = Status(
        node="n1",
        boot_id="b",
        at=5.0,
        findings=(FATAL, WARNING, msgspec.structs.replace(FATAL, injected=True)),
        condemned=CONDEMNED,
        gpus=(Gpu(0, "GPU-0", "0000:10:00.0"), Gpu(1, "GPU-1", "0000:11:00.0")),
        ranks=(RankStatus("j", 1, 0, 2, 7, 40, "step", 4.0), RankStatus("j", 1, 1, 2, 8, 40, "step", 4.0, alive=False)),
        states=(
            state(
                GpuReading(index=0, temperature_c=41, sm_clock_mhz=1980, power_mw=350500, throttle_mask=4),
                ecc_corrected=2,
                ecc_uncorrected=0,
                rows_remapped_corrected=1,
            ),
            state(GpuReading(index=1, lost=True)),
        ),
        sweep_seconds=0.0005,
        counters=Counters(kernel_records=9, sweeps=8, sweep_errors=7, nvml_starts=2, nvml_hangs=1, changes_dropped=3),
        abandoned=1,
    )
    text = page(lambda: status, lambda: 5)().decode()
    golden("healthd/metrics.txt", "".join(f"{x}\n" for x in text.splitlines() if not x.startswith("healthd_build")))


def test_an_empty_node_has_a_page_too() -> None:
    text = page(lambda: Status(node="n1", boot_id="b", at=5.0, silent=("NVML",)), lambda: 0)().decode()
    assert 'healthd_node_health{health="unknown"} 1.0' in text
    assert "healthd_node_fit 0.0" in text
