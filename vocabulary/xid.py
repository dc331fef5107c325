"""The grammar of the GPU driver's kernel messages: Xid, SXid, and a GPU that fell off the bus.

Twenty years of drivers print the same fact in a dozen ways; this reads them all, left to right from a fixed prefix,
because the process name inside is chosen by a user and may hold anything, even another Xid. Who wrote the record is
judged by `vocabulary.log_author` where the line says so; a reader of ``/dev/kmsg`` must check the facility itself.
"""

from __future__ import annotations

import enum
import re

import msgspec

from vocabulary.identity import canonical_pci
from vocabulary.log_author import kernel_text
from vocabulary.quotation import is_quotation

NAME_BYTES_MAX = 15  # of a task's name in the kernel
NAME_CHARS_MAX = 4 * NAME_BYTES_MAX  # kmsg shows a byte it dislikes as \xNN


class KernelEventKind(str, enum.Enum):
    """What a driver's line reports."""

    XID = "xid"
    SXID = "sxid"
    FALLEN_OFF_BUS = "fallen_off_bus"


class KernelEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One driver message. Absent parts are empty or None; `detail` is the driver's own text after the known fields.

    `pci` is canonical (``dddd:bb:dd.f``), or empty when the line prints none that can be read. `recovery_action` is
    the number Xid 154 changes to. `word` and `link` belong to an SXid's head line; `switch` is the NVSwitch's number.
    """

    kind: KernelEventKind
    code: int | None = None
    pci: str = ""
    mig: str = ""
    pid: int | None = None
    process: str = ""
    detail: str = ""
    caused_by: int | None = None
    recovery_action: int | None = None
    switch: int | None = None
    word: str = ""
    link: int | None = None


_XID = re.compile(
    r"NVRM:[ ]{1,4}Xid[ ]{0,2}\("
    r"(?P<address>[^()\s]{1,40})(?P<mig>(?:[ ]GPU-[IC]{1,2}:\d{1,3}){0,2})"
    r"\):[ ]{0,2}(?P<code>\d{1,5})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_XID_OF_2005 = re.compile(r"NVRM:[ ]{1,4}Xid:[ ]{1,2}(?P<code>\d{1,5}),(?P<rest>[ ].*)", re.DOTALL)  # of no address
_SXID = re.compile(
    r"(?:nvidia-nvswitch(?P<switch>\d{1,4}):?[ ]{1,4}|^)SXid[ ]{0,2}\((?P<address>[^()\s]{1,40})\):[ ]{0,2}"
    r"(?P<code>\d{1,7})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_FALLEN = re.compile(  # drivers before about 2017 said "GPU at 0000:01:00.0 has fallen"
    r"NVRM:[ ]{1,4}GPU (?:(?:at )?(?:PCI:)?(?P<address>[0-9A-Fa-f:.]{5,18}) )?(?:GPU )?has fallen off the bus\b"
)
_FALLEN_AT_PROBE = re.compile(
    r"NVRM:[ ]{1,4}The NVIDIA GPU (?P<address>[0-9A-Fa-f:.]{5,16})\b.{0,400}?fallen off the bus and is not responding",
    re.DOTALL,
)
_FALLEN_SOMEWHERE = re.compile(  # the last of the lines into which a log cut that record
    r"NVRM:[ ]{1,4}(?:(?!NVRM)[\w().:,]{1,20}[ ]){0,10}?fallen off the bus and is not responding to commands"
)

_PID = re.compile(r"\s*pid=(?P<quote>'?)(?P<pid>\d{1,10}|<unknown>|)(?P=quote)(?:,|$)")
_NAME = re.compile(rf"\s*name=(?P<name>.{{0,{NAME_CHARS_MAX}}}?)(?:,[ ]|,?$)", re.DOTALL)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,5})\W{0,3}$")
_RECOVERY = re.compile(r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} .{0,80}?\bto 0x([0-9a-fA-F]{1,8})\b")
_TWO_PART = re.compile(r"(?P<bus>[0-9A-Fa-f]{1,4}):(?P<device>[0-9A-Fa-f]{1,2})(?:\.[0-7])?")
_SXID_HEAD = re.compile(r"\s*(?P<word>Fatal|Non-fatal)\b(?:,?\s*Link (?P<link>\d{1,4})\b)?", re.IGNORECASE)


def parse_line(text: str) -> KernelEvent | None:
    """Read one kernel record, bare or as a log shows it. None if it is not a message of this grammar.

    >>> event = parse_line("NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus.")
    >>> event.code, event.pci, event.pid, event.process, event.detail
    (79, '0000:3b:00.0', 42, 'python3', 'GPU has fallen off the bus.')
    """
    record = kernel_text(text)
    found = None if record is None else find_event(record)
    return found[0] if found else None


def find_event(record: str) -> tuple[KernelEvent, str] | None:
    """The driver's message in a record without its transport's prefix, and what stands before it; None if it has none."""
    for pattern, read in _READERS:
        match = pattern.search(record)
        if match is not None:
            return None if is_quotation(record, match.start()) else (read(match), record[: match.start()])
    return None


def format_xid(code: int, pci: str, *, pid: int | None = None, process: str = "", detail: str = "") -> str:
    """The line a present driver prints for this Xid; the inverse of `parse_line`.

    Raises:
        ValueError: `pci` is no PCI address.
    """
    address = canonical_pci(pci).rpartition(".")[0]
    client = f"pid={pid}, name={process}, " if pid is not None else ""
    return f"NVRM: Xid (PCI:{address}): {code}, {client}{detail}"


def _read_xid(match: re.Match[str]) -> KernelEvent:
    rest = match["rest"].rstrip()  # a file from another system ends its lines with CR
    pid, process = None, ""
    if found := _PID.match(rest):
        pid = int(found["pid"]) if found["pid"].isdigit() else None
        rest = rest[found.end() :]
    if named := _NAME.match(rest):
        process = _known(named["name"])
        rest = rest[named.end() :]
    detail = rest.strip()
    caused_by = _CAUSED_BY.search(detail)
    recovery = _RECOVERY.search(detail)
    return KernelEvent(
        kind=KernelEventKind.XID,
        code=int(match["code"]),
        pci=_pci(match.groupdict().get("address", "")),
        mig=match.groupdict().get("mig", "").strip(),
        pid=pid,
        process=process,
        detail=detail,
        caused_by=int(caused_by[1]) if caused_by else None,
        recovery_action=int(recovery[1], 16) if recovery else None,
    )


def _read_sxid(match: re.Match[str]) -> KernelEvent:
    head = _SXID_HEAD.match(match["rest"])
    return KernelEvent(
        kind=KernelEventKind.SXID,
        code=int(match["code"]),
        pci=_pci(match["address"]),
        detail=match["rest"].strip(),
        switch=int(match["switch"]) if match["switch"] else None,
        word=head["word"].capitalize() if head else "",
        link=int(head["link"]) if head and head["link"] else None,
    )


def _read_fallen(match: re.Match[str]) -> KernelEvent:
    address = match.groupdict().get("address") or ""
    return KernelEvent(kind=KernelEventKind.FALLEN_OFF_BUS, pci=_pci(address), detail=" ".join(match[0].split()))


_READERS = (
    (_XID, _read_xid),
    (_XID_OF_2005, _read_xid),
    (_SXID, _read_sxid),
    (_FALLEN, _read_fallen),
    (_FALLEN_AT_PROBE, _read_fallen),
    (_FALLEN_SOMEWHERE, _read_fallen),
)


def _pci(address: str) -> str:
    """Canonical, also from the two-part form of the oldest drivers; empty if unreadable (the event still counts)."""
    old = _TWO_PART.fullmatch(address)
    if old is not None:
        address = f"0:{int(old['bus'], 16) & 0xFF:x}:{old['device']}"
    try:
        return canonical_pci(address.rstrip(".:"))
    except ValueError:
        return ""


def _known(name: str) -> str:
    name = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "'" else name
    return "" if name == "<unknown>" else name
