"""Parses the driver's text of an Xid where its layout is known. Pure.

Extracts only what a line prints; the catalogue explains what a unit or register means for an operator. A truncated
line, or another driver's, gives what it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind
from vocabulary.hardware.recovery_requests import RECOVERY_REQUESTS

Detail = dict[str, str | int]

READ_CHARS_MAX = 600  # no driver's line is longer; a longer one must not cost more
_REASON_BITS, _REASON_MASK = 20, 0x3F  # of intrInfo, Xid 149: why a link went down

_HEX = r"0x[0-9a-fA-F]{1,16}"
_FAULT = re.compile(
    r"MMU Fault: ENGINE (?P<engine>\S{1,40})(?:.{0,60}? (?P<client>(?:HUB|GPC)CLIENT_\w{1,40}))?.{0,80}?"
    r" faulted @ (?P<virtual_address>0x[0-9a-fA-F_]{1,20})"
    r"(?:\. Fault is of type (?P<fault>\w{1,40})(?: (?P<access>ACCESS_TYPE_\w{1,40}))?)?"
)
_SM = re.compile(
    r"(?:SM (?P<exception>Warp|Global) Exception on )?\(GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})(?:, SM (?P<sm>\d{1,3}))?\)"
    r"(?:: (?P<reason>[^,]{1,80}))?"
)
_ESR = re.compile(rf"ESR (?P<esr>{_HEX}={_HEX}(?: {_HEX}={_HEX}){{0,6}})")
_ROW = re.compile(rf"[Rr]ow \(?(?P<row>{_HEX})\)?")
_PAGE = re.compile(rf"[Pp]age retired.{{0,60}}?\((?P<page>{_HEX})\)")
_ADDRESS = re.compile(rf"(?:physAddr|physical address|address)[: ]{{1,3}}(?P<physical_address>{_HEX})", re.IGNORECASE)
_UNIT = re.compile(r"detected on GPU in the (?P<unit>[\w /-]{1,40}?)(?: at |\.|$)")
_PARTITION = re.compile(r"\b(?:partition|FBPA) (?P<partition>\d{1,3}),? subpartition (?P<subpartition>\d{1,3})")
_CONTAINMENT = re.compile(
    r"(?P<containment>Contained|Uncontained): (?P<unit>[^(.]{1,60}?)\s*(?:\(|\.)(?:.{0,160}?\bRST: (?P<reset>Yes|No))?"
    r"(?:, D-RST: (?P<drain_reset>Yes|No))?"
)
_LINK = re.compile(rf"\blink (?P<nvlink>\d{{1,3}})\b(?:\s?\((?P<registers>{_HEX}(?:, {_HEX}){{0,9}}))?", re.IGNORECASE)
_RPC = re.compile(
    r"(?:Timeout after (?P<waited_s>\d{1,6})s)?.{0,60}?\bGSP!?(?: Expected function (?P<function>\d{1,6})"
    rf"(?: \((?P<rpc>\w{{1,60}})\))?(?: sequence (?P<sequence>\d{{1,12}}))?(?: \((?P<arguments>{_HEX}(?: {_HEX}){{0,3}})\))?)?"
)
_GSP_TASK = re.compile(
    r"GSP task (?P<exception>exception: [a-z ]{1,60}|watchdog timeout)"
    rf"(?:\(cause:(?P<cause>{_HEX})\) )?@ pc:(?P<pc>{_HEX})(?:, partition:(?P<partition>[\d#]{{1,8}}))?(?:, task:(?P<task>\d{{1,6}}))?"
)
_CHANNEL = re.compile(rf"errorString (?P<error>[A-Z_ ]{{1,60}}), Info (?P<info>{_HEX})")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Za-z0-9_/]{1,40}(?: [A-Z][a-z]{1,20})?)\s{1,3}(?P<word>Fatal|Non-?fatal|Link Fatal)\s{1,3}"
    r"(?P<contained>XC[01])\s{1,3}i(?P<injected>\d)\s{1,3}Link (?P<link>-?\d{1,3})"
    rf"(?:\s{{1,3}}\((?P<words>{_HEX}(?: {_HEX}){{0,9}}))?"
)
_SWITCH = re.compile(
    r"Severity (?P<switch_severity>\d{1,3}) Engine instance (?P<engine>\d{1,3}) Sub-engine instance (?P<sub_engine>\d{1,3})"
    rf"|Data \{{(?P<data>{_HEX}(?:, {_HEX}){{0,11}})"
)
_NUMBERS = frozenset(
    ("gpc", "tpc", "sm", "nvlink", "waited_s", "function", "sequence", "task", "subpartition", "engine", "sub_engine")
) | {"switch_severity"}


def decode_xid_detail(event: KernelEvent) -> Detail:
    """Return the parts of this Xid's text by name; empty if its layout is unknown.

    >>> from vocabulary.driver_log.xid_line import parse_live_record
    >>> event = parse_live_record("NVRM: Xid (PCI:0000:07:00): 74, NVLink: fatal error detected on link 11(0x10000, 0x0)")
    >>> decode_xid_detail(event)
    {'nvlink': 11, 'registers': '0x10000, 0x0'}
    """
    if event.kind is KernelEventKind.SXID:
        return _read_switch_detail(event)
    return _READERS.get(event.code, _read_no_detail)(event) if event.kind is KernelEventKind.XID and event.code else {}


def _build_pattern_reader(*patterns: re.Pattern[str]) -> Callable[[KernelEvent], Detail]:
    """Return a reader that collects the patterns' groups; the first match of a name wins."""

    def read(event: KernelEvent) -> Detail:
        found: Detail = {}
        for pattern in patterns:
            match = pattern.search(event.detail, 0, READ_CHARS_MAX)
            for name, value in match.groupdict().items() if match else ():
                if value:
                    found.setdefault(name, int(value) if name in _NUMBERS and value.isdecimal() else value.strip())
        return found

    return read


def _read_no_detail(event: KernelEvent) -> Detail:  # noqa: ARG001 - as every reader
    return {}


def _read_switch_detail(event: KernelEvent) -> Detail:
    word: Detail = {"word": event.word.replace("-", "").lower()} if event.word else {}
    return word | _SWITCH_WORDS(event)


def _read_nvlink5_detail(event: KernelEvent) -> Detail:
    match = _NVLINK5.search(event.detail, 0, READ_CHARS_MAX)
    if match is None:
        return {}
    found: Detail = {
        "unit": match["unit"],
        "word": match["word"].replace("-", "").lower(),
        "cross_contained": int(match["contained"][2]),
        "driver_injected": int(match["injected"]),
        "nvlink": int(match["link"]),
    }
    words = (match["words"] or "").split()
    if len(words) > 1:
        found |= {"interrupt": words[0], "status": words[1]}
    if len(words) > 2:
        found["debug"] = " ".join(words[2:])
    if event.code == 149 and words and (reason := int(words[0], 16) >> _REASON_BITS & _REASON_MASK):
        found["reason"] = reason
    return found


def _read_recovery_detail(event: KernelEvent) -> Detail:
    action = event.recovery_action
    if action is None:
        return {}
    request = RECOVERY_REQUESTS.get(action)
    return {"action": request.code if request else f"unknown ({action})"}


_SWITCH_WORDS = _build_pattern_reader(_SWITCH)
_MEMORY = _build_pattern_reader(_CONTAINMENT, _UNIT, _ROW, _PAGE, _ADDRESS, _PARTITION)
_GSP = _build_pattern_reader(_RPC, _GSP_TASK)

_READERS: dict[int, Callable[[KernelEvent], Detail]] = {
    13: _build_pattern_reader(_SM, _ESR),
    31: _build_pattern_reader(_FAULT),
    **dict.fromkeys((48, 63, 64, 92, 94, 95, 171, 172), _MEMORY),
    **dict.fromkeys((74, 136), _build_pattern_reader(_LINK)),
    109: _build_pattern_reader(_CHANNEL),
    **dict.fromkeys((1, 119, 120), _GSP),  # drivers print a GSP task's exception under either number
    **dict.fromkeys(range(144, 151), _read_nvlink5_detail),
    154: _read_recovery_detail,
}
