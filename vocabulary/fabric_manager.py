"""What the fabric manager writes into a log of its own when a switch reports an error. Pure.

[Mar 04 2025 12:00:00] [ERROR] [tid 7] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 …
"""

from __future__ import annotations

import re

from vocabulary.identity import canonical_pci
from vocabulary.xid import KernelEvent, KernelEventKind

SWITCH_ERROR = re.compile(
    r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<code>\d{1,7})\b"
    r"(?:.{0,80}?pci bus id (?P<pci>[0-9A-Fa-f:.]{7,20}))?(?:.{0,60}?\bport (?P<port>\d{1,4}))?"
)
_OWN_LINE = re.compile(
    r"\[[A-Z][a-z]{2} \d{2} \d{4} \d\d:\d\d:\d\d\] \[[A-Z]{1,10}\] \[tid \d{1,10}\] (?=detected NVSwitch )"
)


def is_own_line(line: str) -> bool:
    """Whether a line stands as the fabric manager's own log has it, and tells of a switch."""
    return _OWN_LINE.match(line) is not None


def switch_error(text: str) -> KernelEvent | None:
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
