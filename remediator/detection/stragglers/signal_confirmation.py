"""Confirms a straggler verdict with independent signals from the machine. Pure.

Timing alone may order a test but never an eject: among a hundred healthy nodes even a good detector names more of them
than there are slow ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict, VerdictReason

CLOCK_LOW = 0.03  # below its peers' at the same activity
ACTIVE = 0.9  # a victim waits: it is less active than its peers, so its clock means nothing
PROBE_MARGIN = 0.05


class ConfirmationState(str, Enum):
    """Three states: not confirmed does not mean refuted."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MachineSignals:
    """What is known of a culprit's machine besides timing; None if unknown.

    Attributes:
        sm_clock: its SM clock over the median of its peers'.
        activity: its tensor activity over that of its peers.
        throttled: share of the time in which a hardware, thermal or power-brake throttle reason was set.
        xids: Xids of the hardware on its GPU since shortly before the slowdown.
        pcie_narrow: its PCIe link is narrower or slower than it can be, under load.
        link_errors: rate of link errors over the usual, on its NIC or NVLink.
        probe_gemm, probe_link: results of an active test over the baseline (1.0 is as it should be).
    """

    sm_clock: float | None = None
    activity: float | None = None
    throttled: float | None = None
    xids: tuple[int, ...] = ()
    pcie_narrow: bool | None = None
    link_errors: float | None = None
    probe_gemm: float | None = None
    probe_link: float | None = None


@dataclass(frozen=True)
class Confirmation:
    """The result, and its numbers; `test`: an active test is recommended if the signals decide nothing."""

    confirmed: ConfirmationState
    reasons: tuple[VerdictReason, ...]
    test: tuple[str, ...]


JOBS_OWN_XIDS = {13, 31, 43, 45}  # a user's program causes these
LINK_ERRORS_MANY = 10.0


def confirm_culprit(verdict: StragglerVerdict, culprit: Culprit, signals: MachineSignals) -> Confirmation:
    """Return whether an independent signal agrees that this culprit is slow.

    An active test decides if there is one: it measures the machine without the job. Otherwise one signal is enough.
    """
    if not verdict.culprits:
        return Confirmation(ConfirmationState.UNKNOWN, (), ())
    link = verdict.verdict is SlowdownKind.LINK
    probe = signals.probe_link if link else signals.probe_gemm
    if probe is not None and 0 < probe < float("inf"):
        answer = ConfirmationState.YES if probe < 1 - PROBE_MARGIN else ConfirmationState.NO
        reason = VerdictReason("probe_over_baseline", round(probe, 4), culprit.rank)
        others = () if link or answer is ConfirmationState.YES else _machine_reasons(signals, culprit)
        # a passed probe a minute later does not refute an observed throttle: it may have been transient
        return Confirmation(
            ConfirmationState.UNKNOWN if others else answer, (reason, *others), ("soak",) if others else ()
        )
    signs = _link_reasons(signals, culprit) if link else _machine_reasons(signals, culprit)
    tests = ("point_to_point",) if link else ("gemm", "point_to_point")
    return Confirmation(ConfirmationState.YES if signs else ConfirmationState.UNKNOWN, signs, () if signs else tests)


def _machine_reasons(signals: MachineSignals, culprit: Culprit) -> tuple[VerdictReason, ...]:
    found: list[VerdictReason] = []
    working = signals.activity is None or signals.activity >= ACTIVE
    if signals.sm_clock is not None and working and 0 < signals.sm_clock < 1 - CLOCK_LOW:
        found.append(VerdictReason("sm_clock_over_peers", round(signals.sm_clock, 4), culprit.rank))
    if signals.throttled is not None and signals.throttled > 0.1:
        found.append(VerdictReason("throttled_share_of_time", round(signals.throttled, 4), culprit.rank))
    if signals.pcie_narrow:
        found.append(VerdictReason("pcie_link_below_its_best", 1.0, culprit.rank))
    found += [VerdictReason("xid", float(xid), culprit.rank) for xid in signals.xids if xid not in JOBS_OWN_XIDS]
    return tuple(found)


def _link_reasons(signals: MachineSignals, culprit: Culprit) -> tuple[VerdictReason, ...]:
    found: list[VerdictReason] = []
    if signals.link_errors is not None and signals.link_errors > LINK_ERRORS_MANY:
        found.append(VerdictReason("link_errors_over_usual", round(signals.link_errors, 2), culprit.rank))
    if signals.pcie_narrow:
        found.append(VerdictReason("pcie_link_below_its_best", 1.0, culprit.rank))
    return tuple(found)
