"""The offline grammar of GPU driver messages: every format of twenty years, in any log format, for people who read logs.

It is wider than the live grammar (`vocabulary.driver_log.xid_line`), and much of it can be forged: the 2005 format without an
address fits into a task's name, and other text may precede the message. Code that acts must not use it; healthd cannot
import it.
"""

from __future__ import annotations

import re

from healthctl.kernel_log.log_prefix import extract_kernel_text
from healthctl.kernel_log.quotation import is_quotation
from vocabulary.driver_log.xid_line import (
    KernelEvent,
    parse_live_record,
    read_fallen_match,
    read_sxid_match,
    read_xid_match,
)

_XID = re.compile(
    r"NVRM:[ ]{1,4}Xid[ ]{0,2}\("
    r"(?P<address>[^()\s]{1,40})(?P<mig>(?:[ ]GPU-[IC]{1,2}:\d{1,3}){0,2})"
    r"\):[ ]{0,2}(?P<code>\d{1,5})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_XID_OF_2005 = re.compile(r"NVRM:[ ]{1,4}Xid:[ ]{1,2}(?P<code>\d{1,5}),(?P<rest>[ ].*)", re.DOTALL)  # has no address
_SXID = re.compile(
    r"(?:nvidia-nvswitch(?P<switch>\d{1,4}):?[ ]{1,4}|^)SXid[ ]{0,2}\((?P<address>[^()\s]{1,40})\):[ ]{0,2}"
    r"(?P<code>\d{1,7})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_FALLEN = re.compile(
    r"NVRM:[ ]{1,4}GPU (?:(?:at )?(?:PCI:)?(?P<address>[0-9A-Fa-f:.]{5,18}) )?(?:GPU )?has fallen off the bus\b"
)
_FALLEN_AT_PROBE = re.compile(
    r"NVRM:[ ]{1,4}The NVIDIA GPU (?P<address>[0-9A-Fa-f:.]{5,16})\b.{0,400}?fallen off the bus and is not responding",
    re.DOTALL,
)
_FALLEN_SOMEWHERE = re.compile(  # the last of several lines into which a log split that record
    r"NVRM:[ ]{1,4}(?:(?!NVRM)[\w().:,]{1,20}[ ]){0,10}?fallen off the bus and is not responding to commands"
)
_OFFLINE_FORMS = (
    (_XID, read_xid_match),
    (_XID_OF_2005, read_xid_match),
    (_SXID, read_sxid_match),
    (_FALLEN, read_fallen_match),
    (_FALLEN_AT_PROBE, read_fallen_match),
    (_FALLEN_SOMEWHERE, read_fallen_match),
)


def parse_offline_line(line: str) -> KernelEvent | None:
    """Parse one line of a log, with or without a log prefix. None if it holds no driver message.

    >>> parse_offline_line("Mar  4 12:00:00 n1 kernel: [ 1.5] NVRM: Xid (0002:00): 13, 0003 00000000").pci
    '0000:02:00.0'
    """
    record = extract_kernel_text(line)
    found = None if record is None else find_offline_event(record)
    return found[0] if found else None


def find_offline_event(record: str) -> tuple[KernelEvent, str] | None:
    """The driver message in a record without log prefix, and the text before it; None if it has none."""
    if (live := parse_live_record(record)) is not None:
        return live, ""
    for pattern, read in _OFFLINE_FORMS:
        match = pattern.search(record)
        if match is not None:
            return None if is_quotation(record, match.start()) else (read(match), record[: match.start()])
    return None
