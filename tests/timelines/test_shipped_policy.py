"""Which rule of the shipped policy answers what healthd can say."""

from __future__ import annotations

import pytest

from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import TRAINER_ORDERS


@pytest.mark.parametrize(
    ("kind", "severity", "rule"),
    [
        ("xid/79", Severity.FATAL, "gpu-lost"),
        ("xid/fallen_off_bus", Severity.FATAL, "gpu-lost"),
        ("nvml/hang", Severity.FATAL, "driver-hangs"),
        ("gpu_presence/lost", Severity.FATAL, "gpu-lost"),
        ("gpu_presence/vanished", Severity.FATAL, "gpu-lost"),
        ("xid/64", Severity.FATAL, "uncorrectable-memory-error"),
        ("row_remap/failure", Severity.FATAL, "row-remap-failed"),
        ("row_remap/pending", Severity.ERROR, "row-remap-pending"),
        ("outbox/corrupt", Severity.ERROR, "history-lost"),
        ("outbox/unwritable", Severity.ERROR, "agent-in-trouble"),
        ("outbox/overdue", Severity.ERROR, "agent-in-trouble"),
        ("outbox/hung", Severity.ERROR, "state-disk-hung"),
        ("kernel_log/overrun", Severity.WARNING, "agent-in-trouble"),
        ("source/hung", Severity.WARNING, "agent-in-trouble"),
        ("check/failed", Severity.WARNING, "agent-in-trouble"),
        ("nvml/unavailable", Severity.WARNING, "agent-in-trouble"),
        ("xid/48", Severity.FATAL, "uncorrectable-memory-error"),
        ("sxid/20034", Severity.ERROR, "switch-may-fail"),
        ("xid/4711", Severity.UNCLASSIFIED, "unknown"),
        ("xid/92", Severity.WARNING, "memory-wears"),
    ],
)
def test_every_kind_finds_its_rule(kind: str, severity: Severity, rule: str) -> None:
    story = Story()
    story.finding(kind, severity)
    (incident,) = story.state.incidents.values()
    assert incident.rule == rule


def test_a_fault_of_the_agent_takes_nothing_from_the_job() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("outbox/corrupt", Severity.ERROR)
    story.finding("outbox/unwritable", Severity.ERROR)
    assert not [a for a in story.actions.values() if a.verb in {kind.value for kind in TRAINER_ORDERS}]
