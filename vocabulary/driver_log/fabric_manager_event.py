"""NVSwitch errors in the fabric manager's log, as events like the kernel log's. Pure."""

from __future__ import annotations

from vocabulary.driver_log.fabric_manager_line import SWITCH_ERROR
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind
from vocabulary.identity import canonical_pci


def parse_switch_error(text: str) -> KernelEvent | None:
    """Return a line's error as the SXid that the kernel log has for it; None if there is none."""
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
