"""One line of the driver's, from both grammars to what it asks for."""

from __future__ import annotations

from healthctl.kernel_log.offline_xid_grammar import find_offline_event, parse_offline_line
from tests.fuzz.target import Target, text
from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEventKind, format_xid, parse_live_record
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

CATALOGUE = load_catalogue()


def judge(data: bytes) -> None:
    """Never an error; what is live is read offline as well; what was read can be written and read again."""
    line = text(data)
    live, event = parse_live_record(line), parse_offline_line(line)
    if live is not None and find_offline_event(line) is None:
        raise AssertionError(f"{line!r} is read live and not offline")
    for found in (live, event):
        if found is None:
            continue
        decode_xid_detail(found)
        CATALOGUE.reading(found)
        if found.kind is not KernelEventKind.XID or not found.pci or found.code is None:
            continue
        written = format_xid(found.code, found.pci, pid=found.pid, process="x")
        again = parse_live_record(written)
        if again is None or (again.code, again.pid) != (found.code, found.pid):
            raise AssertionError(f"{written!r} is read as {again}")


TARGET = Target(
    judge,
    (
        b"NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus.",
        b"NVRM: Xid (PCI:0000:3b:00 GPU-I:02 GPU-CI:00): 43, pid='<unknown>', name=<unknown>, Ch 00000010",
        b"Nov 22 10:00:00 host kernel: [  12.345678] NVRM: Xid (PCI:0000:00:06): 31, pid=461, name=bad, MMU Fault",
        b"NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        b"NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x004505c6 0x00000000 0x00000000)",
        b"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        b"NVRM: GPU at 0000:01:00.0 has fallen off the bus.",
        b"NVRM: Xid:  13, Channel 00000001",
        b"NVRM: Xid (PCI:0000:18:00): 74, pid=1, name=a, NVLink: fatal error detected on link 6(0x0, 0x0, 0x10000)",
    ),
    bytes_max=512,
)
