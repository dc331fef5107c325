"""What a node may call a finding: nothing that a database could choke on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remediator.api.handler_context import Refusal
from remediator.api.report_handlers import _decode_report
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import FindingChange, Report, encode_message

GPU = Component(ComponentKind.GPU, "GPU-1")
GOOD = Finding(
    id=finding_id("n1", "c", "d", GPU, "o"),
    node="n1",
    check="c",
    code="d",
    component=GPU,
    severity=Severity.ERROR,
    summary="s",
    first_seen=1.0,
    last_seen=1.0,
    origin="o",
)


def report(*findings: Finding) -> bytes:
    changes = tuple(FindingChange(number, finding) for number, finding in enumerate(findings, 1))
    return encode_message(
        Report(
            version=1,
            node="n1",
            boot_id="b",
            agent="a",
            seq=1,
            sent_at=1.0,
            ttl_s=30,
            health=Health.HEALTHY,
            changes=changes,
            active=(),
            ranks=(),
        )
    )


def test_a_good_id_is_taken() -> None:
    assert _decode_report(report(GOOD, replace(GOOD, id="x" * 64)), "n1").changes[0].finding == GOOD


@pytest.mark.parametrize("odd", ["", "x" * 65, "a\0b", "a b", "naïve", "a\n"])
def test_an_odd_id_is_refused(odd: str) -> None:
    with pytest.raises(Refusal) as refused:
        _decode_report(report(GOOD, replace(GOOD, id=odd)), "n1")
    assert refused.value.status == 400
