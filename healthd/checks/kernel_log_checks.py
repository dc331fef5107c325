"""The kernel log as an evidence source: lost and unreadable records."""

from __future__ import annotations

from healthd.findings.facts import Raise
from healthd.samples.kernel_record import KernelGap
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

_HOST = Component(ComponentKind.HOST)


def judge_gap(gap: KernelGap) -> Raise:
    """Report overwritten, unread records: a fault among them would be unknown, so the node is not simply healthy."""
    return Raise(
        check="kernel_log",
        code="overrun",
        component=_HOST,
        severity=Severity.WARNING,
        summary=f"{gap.lost} kernel records were overwritten before they could be read; enlarge the ring (log_buf_len=)",
        at=gap.at,
        event=True,
        origin=f"{gap.source}:{gap.position}:gap",
        evidence={"lost": gap.lost, "before": gap.position},
    )


def judge_unreadable_record(problem: str, at: float) -> Raise:
    """Report bytes that are no record: logged, counted, skipped."""
    return Raise(
        check="kernel_log",
        code="garbage",
        component=_HOST,
        severity=Severity.INFO,
        summary=problem[:300],
        at=at,
        event=True,
        origin=f"garbage:{at:.6f}",
    )
