"""Failure causes: Llama 3's 419 interruptions in 54 days on 16 384 GPUs, each with healthd's finding.

Software faults are left out (jobs fail by them on their own); watchdogs and silent corruption leave no finding.
"""

from __future__ import annotations

from typing import NamedTuple

from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

GPU = Component(ComponentKind.GPU, name="GPU-0", index=0)
HOST = Component(ComponentKind.HOST)
PORT = Component(ComponentKind.NIC_PORT, name="mlx5_0")


class FailureCause(NamedTuple):
    """One cause: its frequency, its finding, and whether the job can still checkpoint."""

    weight: float
    check: str
    code: str
    severity: Severity
    component: Component
    leaves_time: bool = False

    @property
    def seen(self) -> bool:
        """Whether it leaves a finding."""
        return bool(self.check)


CAUSES = (
    FailureCause(60, "xid", "79", Severity.FATAL, GPU),  # GPU, 148 in total: lost, stopped, or losing a link
    FailureCause(60, "xid", "119", Severity.FATAL, GPU),
    FailureCause(28, "xid", "74", Severity.ERROR, GPU, leaves_time=True),
    FailureCause(36, "xid", "95", Severity.FATAL, GPU),  # HBM, 72: contained or not
    FailureCause(36, "xid", "94", Severity.ERROR, GPU, leaves_time=True),
    FailureCause(35, "infiniband", "link_down", Severity.ERROR, PORT, leaves_time=True),
    FailureCause(32, "lockup", "soft", Severity.ERROR, HOST, leaves_time=True),  # unscheduled host maintenance
    FailureCause(19, "xid", "48", Severity.FATAL, GPU),  # SRAM
    FailureCause(17, "xid", "119", Severity.FATAL, GPU),  # GSP
    FailureCause(7, "mlx5", "health", Severity.ERROR, PORT),
    FailureCause(13, "", "", Severity.INFO, HOST),  # watchdog 7, silent corruption 6
    FailureCause(6, "throttle", "hw_thermal", Severity.ERROR, GPU, leaves_time=True),
    FailureCause(3, "disks", "smart_failed", Severity.ERROR, HOST, leaves_time=True),
    FailureCause(11, "host_memory", "uncorrected", Severity.FATAL, HOST),  # supply, chassis, boards, CPU, DIMM
)
USERS = FailureCause(0, "xid", "31", Severity.INFO, GPU)  # a program error that looks like this on a good GPU
SLOW = FailureCause(0, "straggler", "gpu", Severity.ERROR, GPU, leaves_time=True)
LEMON = FailureCause(0, "lemon", "confirmed", Severity.ERROR, HOST)
