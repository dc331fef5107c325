"""The form of a line about an NVSwitch error in the fabric manager's log. Pure.

[Mar 04 2025 12:00:00] [ERROR] [tid 7] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 …

Standard library only: the source child reads that log, and the codec alone would cost it 3 MiB.
"""

from __future__ import annotations

import re

SWITCH_ERROR = re.compile(
    r"detected NVSwitch (?P<word>fatal|non-fatal) error (?P<code>\d{1,7})\b"
    r"(?:.{0,80}?pci bus id (?P<pci>[0-9A-Fa-f:.]{7,20}))?(?:.{0,60}?\bport (?P<port>\d{1,4}))?"
)
_OWN_LINE = re.compile(
    r"\[[A-Z][a-z]{2} \d{2} \d{4} \d\d:\d\d:\d\d\] \[[A-Z]{1,10}\] \[tid \d{1,10}\] (?=detected NVSwitch )"
)


def is_fabric_manager_line(line: str) -> bool:
    """Return whether a line has the fabric manager's form and is about a switch."""
    return _OWN_LINE.match(line) is not None
