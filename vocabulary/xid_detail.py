"""The driver's own words within an Xid, taken apart where their layout is known. Pure.

Only what a line prints is read; what a unit or register means for an operator is the catalogue's business. A line that
is cut, or of another driver's making, gives what it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vocabulary.xid import KernelEvent, KernelEventKind

Detail = dict[str, str | int]

RECOVERY_ACTIONS = {
    0: "none",
    1: "reset_gpu",
    2: "reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
_REASON_BITS, _REASON_MASK = 20, 0x3F  # of intrInfo, Xid 149: why a link went down

_HEX = r"0x[0-9a-fA-F]{1,16}"
_FAULT = re.compile(
    r"MMU Fault: ENGINE (?P<engine>\S{1,40}).{0,80}?faulted @ (?P<address>0x[0-9a-fA-F_]{1,20})"
    r"(?:\. Fault is of type (?P<fault>\w{1,40})(?: (?P<access>ACCESS_TYPE_\w{1,40}))?)?"
)
_SM = re.compile(r"\(GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})(?:, SM (?P<sm>\d{1,3}))?\)")
_ROW = re.compile(rf"[Rr]ow \(?(?P<row>{_HEX})\)?")
_ADDRESS = re.compile(rf"(?:physAddr|physical address|address)[: ]{{1,3}}(?P<address>{_HEX})", re.IGNORECASE)
_CONTAINMENT = re.compile(
    r"(?P<containment>Contained|Uncontained): (?P<unit>[^(.]{1,60}?)\s*(?:\(|\.)(?:.{0,160}?\bRST: (?P<reset>Yes|No))?"
    r"(?:, D-RST: (?P<drain_reset>Yes|No))?"
)
_LINK = re.compile(rf"link (?P<link>\d{{1,3}})\s?\((?P<registers>{_HEX}(?:, {_HEX}){{0,9}})", re.IGNORECASE)
_GSP = re.compile(
    r"(?:Timeout after (?P<seconds>\d{1,6})s)?.{0,60}?\bGSP!?(?: Expected function (?P<function>\d{1,6}) \((?P<name>\w{1,60})\))?"
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Za-z0-9_/]{1,40}(?: [A-Z][a-z]{1,20})?)\s{1,3}(?P<word>Fatal|Non-?fatal|Link Fatal)\s{1,3}"
    r"(?P<contained>XC[01])\s{1,3}i(?P<injected>\d)\s{1,3}Link (?P<link>-?\d{1,3})"
    rf"(?:\s{{1,3}}\((?P<words>{_HEX}(?: {_HEX}){{0,9}}))?"
)


def decode(event: KernelEvent) -> Detail:
    """What the text of this Xid says, by name; empty where nothing is known of its layout.

    >>> from vocabulary.xid import parse_line
    >>> event = parse_line("NVRM: Xid (PCI:0000:07:00): 74, NVLink: fatal error detected on link 11(0x10000, 0x0)")
    >>> decode(event)
    {'nvlink': 11, 'registers': '0x10000, 0x0'}
    """
    if event.kind is not KernelEventKind.XID or event.code is None:
        return {}
    return _READERS.get(event.code, _nothing)(event)


def _nothing(event: KernelEvent) -> Detail:  # noqa: ARG001 - as every reader
    return {}


def _memory_fault(event: KernelEvent) -> Detail:
    return _words(_FAULT, event.detail, {"address": "virtual_address"})


def _graphics(event: KernelEvent) -> Detail:
    found = _words(_SM, event.detail)
    return {name: int(value) for name, value in found.items()}


def _ecc(event: KernelEvent) -> Detail:
    found = _words(_CONTAINMENT, event.detail) | _words(_ROW, event.detail)
    return found | _words(_ADDRESS, event.detail, {"address": "physical_address"})


def _nvlink(event: KernelEvent) -> Detail:
    match = _LINK.search(event.detail)
    return {"nvlink": int(match["link"]), "registers": match["registers"]} if match else {}


def _gsp(event: KernelEvent) -> Detail:
    found = _words(_GSP, event.detail, {"seconds": "waited_s", "name": "rpc"})
    return {name: int(value) if name in ("waited_s", "function") else value for name, value in found.items()}


def _nvlink5(event: KernelEvent) -> Detail:
    match = _NVLINK5.search(event.detail)
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
    if event.code == 149 and words and (reason := int(words[0], 16) >> _REASON_BITS & _REASON_MASK):
        found["reason"] = reason
    return found


def _recovery(event: KernelEvent) -> Detail:
    action = event.recovery_action
    return {} if action is None else {"action": RECOVERY_ACTIONS.get(action, f"unknown ({action})")}


def _words(pattern: re.Pattern[str], text: str, names: dict[str, str] | None = None) -> Detail:
    match = pattern.search(text)
    found = match.groupdict() if match else {}
    return {(names or {}).get(name, name): value for name, value in found.items() if value}


_READERS: dict[int, Callable[[KernelEvent], Detail]] = {
    13: _graphics,
    31: _memory_fault,
    **dict.fromkeys((48, 63, 64, 92, 94, 95, 171, 172), _ecc),
    74: _nvlink,
    **dict.fromkeys((119, 120), _gsp),
    **dict.fromkeys(range(144, 151), _nvlink5),
    154: _recovery,
}
