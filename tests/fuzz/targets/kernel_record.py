"""A record of the kernel log, from a file's line to what healthd makes of it."""

from __future__ import annotations

from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.xid_checks import XidCheck
from healthd.kernel_log.log_file import parse_log_line
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.samples.kernel_record import KernelRecord
from tests.fuzz.target import Target, text
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

WITNESS = RecordAuthenticator("n1", accept_injected=True)
CHECKS = (XidCheck(WITNESS, load_catalogue()), KernelMessageCheck(WITNESS, FAMILIES))


def judge(data: bytes) -> None:
    """Never an error; words behind any other text are not read."""
    line = parse_log_line(text(data))
    for check in CHECKS:
        check.judge(KernelRecord("b", 1, 1.0, line.facility, line.text), {})
        behind = KernelRecord("b", 1, 1.0, 0, f"a name of any length, {line.text}")
        if check.judge(behind, {}) is not None:
            raise AssertionError(f"{behind.text!r} is read although a name stands before it")


TARGET = Target(
    judge,
    (
        b"Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen",
        b"2026-11-22T10:00:00.123456+00:00 n1 kernel: EXT4-fs (sda1): Remounting filesystem read-only",
        b"<4>[ 1.5][ T99] mlx5_core 0000:1a:00.0 ens1f0np0: RX timeout on channel: 3, ICOSQ: 0x1a3 RQ: 0x1b2, CQ: 0x2c1",
        b"gpu-healthd-inject node=n1: EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#1 (channel:0 slot:1)",
        b"watchdog: BUG: soft lockup - CPU#37 stuck for 22s! [python3:31337]",
        b"md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.",
        b"traps: ray::_RayTrainW[99] general protection fault ip:7f12 sp:7ffd error:0 in libnccl.so.2[7f1200000000+1000]",
        b"LustreError: 167-0: work-OST0003-osc-ffff8e1c2f3a4000: This client was evicted by work-OST0003; in progress",
    ),
    bytes_max=512,
)
