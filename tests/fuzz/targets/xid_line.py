"""One line of the driver's, from its grammar to what it asks for."""

from __future__ import annotations

from healthctl.kernel_log.quotation import is_quotation
from tests.fuzz.target import Target, text
from vocabulary.catalogue_file import load_catalogue
from vocabulary.xid import KernelEventKind, format_xid, parse_line
from vocabulary.xid_detail import decode

CATALOGUE = load_catalogue()


def judge(data: bytes) -> None:
    """Never an error; what was read can be written and read again."""
    event = parse_line(text(data))
    if event is None:
        return
    decode(event)
    CATALOGUE.reading(event)
    if event.kind is not KernelEventKind.XID or not event.pci or event.code is None:
        return
    written = format_xid(event.code, event.pci, pid=event.pid, process="x")
    again = parse_line(written)
    if again is None or (again.code, again.pid) != (event.code, event.pid) or is_quotation(written, 0):
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
