r"""The live grammar of the GPU driver's kernel records: Xid, SXid, and a GPU that fell off the bus.

healthd acts on the result, so this module accepts only forms that the driver prints today, and only at the start of a
record. The kernel prints names that users choose: a task's name holds 15 bytes and may be ``NVRM: Xid: 79, ``. Every
form here therefore begins with driver text that a name of 15 bytes cannot complete, whatever the kernel prints behind
the name; `tests/adversary/test_user_names_in_kernel_records.py` verifies it for every form.

`healthctl.kernel_log.offline_xid_grammar`, which healthd cannot import, parses older forms and log files with prefixes.
A reader of ``/dev/kmsg`` must check the record's facility itself.
"""

from __future__ import annotations

import enum
import re

import msgspec

from vocabulary.identity import canonical_pci

NAME_BYTES_MAX = 15  # of a task's name in the kernel
RECOVERY_XID = "154"  # the only one whose text names a recovery action
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


_ADDRESS = r"(?P<address>(?:PCI:)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)"
# What dev_printk puts in front: newer drivers print some messages that way.
_DEVICE = r"(?:nvidia [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: )?"
_LIVE_XID = re.compile(
    rf"{_DEVICE}NVRM: Xid \({_ADDRESS}(?P<mig>(?: GPU-[IC]{{1,2}}:\d{{1,3}}){{0,2}})\): "
    r"(?P<code>\d{1,5})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_LIVE_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \({_ADDRESS}\): (?P<code>\d{{1,7}})(?:,|(?=\s|$))(?P<rest>.*)",
    re.DOTALL,
)
_LIVE_FALLEN = re.compile(  # drivers before about 2017 print "GPU at 0000:01:00.0 has fallen"
    rf"{_DEVICE}NVRM: (?:GPU (?:at )?{_ADDRESS}:? )?(?:GPU )?has fallen off the bus\b"
)
_LIVE_FALLEN_AT_PROBE = re.compile(
    rf"{_DEVICE}NVRM: The NVIDIA GPU {_ADDRESS}\b.{{0,400}}?fallen off the bus and is not responding", re.DOTALL
)
_LIVE_FALLEN_SOMEWHERE = re.compile(  # the last of the lines into which a log cuts that record
    r"NVRM: (?:\(PCI ID: [0-9a-f]{4}:[0-9a-f]{4}\) )?(?:(?:installed in this )?system has )?"
    r"fallen off the bus and is not responding to commands"
)

_PID = re.compile(r"\s*pid=(?P<quote>'?)(?P<pid>\d{1,10}|<unknown>|)(?P=quote)(?:,|$)")
_NAME = re.compile(rf"\s*name=(?P<name>.{{0,{NAME_CHARS_MAX}}}?)(?:,[ ]|,?$)", re.DOTALL)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,5})\W{0,3}$")
_RECOVERY = re.compile(r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} .{0,80}?\bto 0x([0-9a-fA-F]{1,8})\b")
_TWO_PART = re.compile(r"(?P<bus>[0-9A-Fa-f]{1,4}):(?P<device>[0-9A-Fa-f]{1,2})(?:\.[0-7])?")
_SXID_HEAD = re.compile(r"\s*(?P<word>Fatal|Non-fatal)\b(?:,?\s*Link (?P<link>\d{1,4})\b)?", re.IGNORECASE)


def parse_live_record(record: str) -> KernelEvent | None:
    """Parse one kernel record without any prefix. None unless it begins with a driver message.

    >>> event = parse_live_record("NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus.")
    >>> event.code, event.pci, event.pid, event.process, event.detail
    (79, '0000:3b:00.0', 42, 'python3', 'GPU has fallen off the bus.')
    >>> parse_live_record("NVRM: Xid: 79,  invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0") is None
    True
    """
    for pattern, read in LIVE_FORMS:
        match = pattern.match(record)
        if match is not None:
            return read(match)
    return None


def format_xid(code: int, pci: str, *, pid: int | None = None, process: str = "", detail: str = "") -> str:
    """Return the line a current driver prints for this Xid; the inverse of `parse_live_record`.

    Raises:
        ValueError: `pci` is no PCI address.
    """
    address = canonical_pci(pci).rpartition(".")[0]
    client = f"pid={pid}, name={process}, " if pid is not None else ""
    return f"NVRM: Xid (PCI:{address}): {code}, {client}{detail}"


def read_xid_match(match: re.Match[str]) -> KernelEvent:
    """Return the event of a match with the groups `code` and `rest`, and perhaps `address` and `mig`."""
    rest = match["rest"].rstrip()  # a file from another system ends its lines with CR
    pid, process = None, ""
    if found := _PID.match(rest):
        pid = int(found["pid"]) if found["pid"].isdigit() else None
        rest = rest[found.end() :]
    if named := _NAME.match(rest):
        process = _known_process_name(named["name"])
        rest = rest[named.end() :]
    detail = rest.strip()
    caused_by = _CAUSED_BY.search(detail)
    recovery = _RECOVERY.search(detail) if match["code"] == RECOVERY_XID else None
    return KernelEvent(
        kind=KernelEventKind.XID,
        code=int(match["code"]),
        pci=_canonical_pci_or_empty(match.groupdict().get("address", "")),
        mig=match.groupdict().get("mig", "").strip(),
        pid=pid,
        process=process,
        detail=detail,
        caused_by=int(caused_by[1]) if caused_by else None,
        recovery_action=int(recovery[1], 16) if recovery else None,
    )


def read_sxid_match(match: re.Match[str]) -> KernelEvent:
    """Return the event of a match with the groups `switch`, `address`, `code` and `rest`."""
    head = _SXID_HEAD.match(match["rest"])
    return KernelEvent(
        kind=KernelEventKind.SXID,
        code=int(match["code"]),
        pci=_canonical_pci_or_empty(match["address"]),
        detail=match["rest"].strip(),
        switch=int(match["switch"]) if match["switch"] else None,
        word=head["word"].capitalize() if head else "",
        link=int(head["link"]) if head and head["link"] else None,
    )


def read_fallen_match(match: re.Match[str]) -> KernelEvent:
    """Return the event of a match that may have the group `address`."""
    address = match.groupdict().get("address") or ""
    return KernelEvent(
        kind=KernelEventKind.FALLEN_OFF_BUS, pci=_canonical_pci_or_empty(address), detail=" ".join(match[0].split())
    )


LIVE_FORMS = (
    (_LIVE_XID, read_xid_match),
    (_LIVE_SXID, read_sxid_match),
    (_LIVE_FALLEN, read_fallen_match),
    (_LIVE_FALLEN_AT_PROBE, read_fallen_match),
    (_LIVE_FALLEN_SOMEWHERE, read_fallen_match),
)


def _canonical_pci_or_empty(address: str) -> str:
    """Return the canonical form, also for the oldest drivers' two parts; empty if unreadable (the event still counts)."""
    old = _TWO_PART.fullmatch(address)
    if old is not None:
        address = f"0:{int(old['bus'], 16) & 0xFF:x}:{old['device']}"
    try:
        return canonical_pci(address.rstrip(".:"))
    except ValueError:
        return ""


def _known_process_name(name: str) -> str:
    name = name[1:-1] if len(name) > 1 and name[0] == name[-1] == "'" else name
    return "" if name == "<unknown>" else name
