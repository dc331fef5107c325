"""A log file of a person's, in any dress: dmesg, syslog, journal, a terminal's copy."""

from __future__ import annotations

from healthctl.kernel_log.log_line_parser import parse_lines
from tests.fuzz.target import Target, text


def judge(data: bytes) -> None:
    """Never an error, and one record for each line."""
    lines = text(data).split("\n")
    records = list(parse_lines(lines))
    if [record.line_no for record in records] != list(range(1, len(lines) + 1)):
        raise AssertionError("not one record for each line")


TARGET = Target(
    judge,
    (
        b"[   12.345678] NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus.\n",
        b"2026-11-22T10:00:00+00:00 n1 kernel: NVRM: The NVIDIA GPU 0000:3b:00.0\nfallen off the bus and is not responding",
        b"Nov 22 10:00:00 n1 nv-fabricmanager: detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci 0000:c1:00.0\n",
        b"kern  :err   : [Sun Nov 22 10:00:00 2026] mlx5_core 0000:5e:00.0: assert_var[0] 0x0\nOut of memory: Killed process 7 (x)",
        b"\x1b[31m<3>[ 1.0] nvme nvme0: I/O 1 QID 2 timeout, aborting\x1b[0m",
    ),
)
