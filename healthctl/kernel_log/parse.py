"""Lines of a log → one record each, saying what kind of fault the kernel reports there, if any."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import tee

import msgspec

from healthctl.kernel_log.kinds import classify
from healthctl.kernel_log.offline_xid import find_offline_event
from healthctl.kernel_log.transport import Heard, hear
from vocabulary.fabric_manager import switch_error
from vocabulary.fabric_manager_line import is_own_line
from vocabulary.xid import KernelEvent, KernelEventKind

PROBE_LINES = 3  # the driver's probe message names the GPU on its first line and the fault on its last


class ParsedLine(msgspec.Struct, frozen=True):
    """One line of a log. `kind`: xid, sxid, fallen_off_bus, aer, ecc, ib, mce, oom or none.

    What the line does not say is null (numbers and addresses) or empty (texts).
    """

    line_no: int
    kind: str = "none"
    xid: int | None = None
    sxid: int | None = None
    pci: str | None = None
    pid: int | None = None
    process: str = ""
    detail: str = ""
    injected: bool = False
    mig: str = ""
    caused_by: int | None = None
    recovery_action: int | None = None


_NAMED_GPU = re.compile(r"NVRM:[ ]{1,4}The NVIDIA GPU (?P<address>[0-9A-Fa-f:.]{5,16})")
_PCI_DEVICE = r"[\w.-]{1,40} [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]: "
# What may stand before the driver's words in a line that names no author: nothing, a place-holder, a device.
_CLEAN = re.compile(rf"\s*(?:\[(?:\.{{2,3}}|…)\]\s{{0,4}})?(?:{_PCI_DEVICE})?")
# In a line that bears dmesg's stamp any driver's half line may stand there, but not a program that reports.
_REPORTED = re.compile(
    r"^\s*[\w./@-]{1,64}(?:\(\w{1,20}\))?: ?$|^[\w.-]{1,64} [A-Za-z][\w./()-]{0,60}: ?$"
    r"|\b(?:saw|seen|found|detected|got|reports?|reported|logged|matched|match|line|event|message|msg|log|echo|grep)\b\W{0,4}$"
    r"|\b\w+=\S*\s*$|\b(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b\W{0,4}$",
    re.IGNORECASE,
)


def parse_lines(lines: Iterable[str]) -> Iterator[ParsedLine]:
    """One record for each line, numbered from 1. Never raises, whatever a line holds."""
    named_at, named = -PROBE_LINES, ""
    as_written, to_hear = tee(lines)
    for line_no, (line, heard) in enumerate(zip(as_written, hear(to_hear), strict=True), start=1):
        if is_own_line(line) and (told := switch_error(line)):  # the one author beside the kernel whose word counts
            yield _of_event(line_no, told, heard)
            continue
        if heard.text is None:
            yield ParsedLine(line_no)
            continue
        found = _judge(line_no, heard.text, heard)
        if found.kind == "fallen_off_bus" and not found.pci and line_no - named_at < PROBE_LINES:
            found = msgspec.structs.replace(found, pci=named)
        elif found.kind == "none" and (match := _NAMED_GPU.match(heard.text.lstrip())):
            event = find_offline_event(f"NVRM: GPU {match['address']}: GPU has fallen off the bus.")
            named_at, named = line_no, event[0].pci if event else ""
        yield found


def _judge(line_no: int, text: str, heard: Heard) -> ParsedLine:
    if ("NVRM" in text or "SXid" in text) and (found := find_offline_event(text)):
        event, before = found
        return _of_event(line_no, event, heard) if _is_spoken(before, heard) else ParsedLine(line_no)
    classed = classify(text.strip(), by_name=heard.by_name)
    if classed is None:
        return ParsedLine(line_no)
    return ParsedLine(
        line_no,
        kind=classed.kind,
        pci=classed.pci or None,
        pid=classed.pid,
        process=classed.process,
        detail=text.strip(),
        injected=heard.injected,
    )


def _is_spoken(before: str, heard: Heard) -> bool:
    """Whether the driver's words behind `before` are its own."""
    if not before:
        return True
    return not _REPORTED.search(before) if heard.by_name else _CLEAN.fullmatch(before) is not None


def _of_event(line_no: int, event: KernelEvent, heard: Heard) -> ParsedLine:
    return ParsedLine(
        line_no,
        kind=event.kind.value,
        xid=event.code if event.kind is KernelEventKind.XID else None,
        sxid=event.code if event.kind is KernelEventKind.SXID else None,
        pci=event.pci or None,
        pid=event.pid,
        process=event.process,
        detail=event.detail,
        injected=heard.injected,
        mig=event.mig,
        caused_by=event.caused_by,
        recovery_action=event.recovery_action,
    )
