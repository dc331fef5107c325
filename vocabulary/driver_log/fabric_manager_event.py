"""What the fabric manager's own log says of a switch, as an event of the kernel log's kind. Pure."""

from __future__ import annotations

from vocabulary.driver_log.fabric_manager_line import SWITCH_ERROR
from vocabulary.driver_log.xid import KernelEvent, KernelEventKind
from vocabulary.identity import canonical_pci


def parse_switch_error(text: str) -> KernelEvent | None:
    """The error that a line speaks of, as the SXid that the kernel log has for it; None if it speaks of none."""
    match = SWITCH_ERROR.search(text)
    if match is None:
        return None
    try:
        pci = canonical_pci(match["pci"] or "")
    except ValueError:
        pci = ""
    return KernelEvent(
        kind=KernelEventKind.SXID,
        code=int(match["code"]),
        pci=pci,
        detail=match[0],
        word=match["word"].capitalize(),
        link=int(match["port"]) if match["port"] else None,
    )
