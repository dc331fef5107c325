from __future__ import annotations

import msgspec
import pytest

from healthd.daemon_status import Status
from healthd.storage.node_database import Condemnation
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind


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


CONDEMNED = Condemnation("o1", 1.0, "XID 79")
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
    findings: tuple[Finding, ...], silent: tuple[str, ...], condemned: Condemnation | None, health: Health, *, fit: bool
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
        "no report from NVML",
    )


def test_a_test_fault_is_called_one() -> None:
    injected = msgspec.structs.replace(WARNING, injected=True)
    status = Status(node="n1", boot_id="b", at=5.0, findings=(injected,))
    assert status.verdict().reasons == ("xid/79 (warning, injected): GPU has fallen off the bus",)
