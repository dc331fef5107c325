"""Converts log lines to one record each, with the kind of fault that the kernel reports, if any."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import tee

import msgspec

from healthctl.kernel_log.line_classes import classify_kernel_line, parse_pci_address
from healthctl.kernel_log.log_transport import KernelText, extract_kernel_texts
from healthctl.kernel_log.offline_xid_grammar import find_offline_event
from healthd.kernel_log.message_patterns.line_pattern import LinePattern, match_pattern
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from vocabulary.driver_log.fabric_manager_event import parse_switch_error
from vocabulary.driver_log.fabric_manager_line import is_fabric_manager_line
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record

PROBE_LINES = 3  # the driver's probe message names the GPU on its first line and the fault on its last


class ParsedLine(msgspec.Struct, frozen=True):
    """One line of a log. `kind` is one of `KINDS`.

    Missing values are null (numbers and addresses) or empty (texts). `meaning` is healthd's summary. `live` names the finding
    (check/code) that healthd raises if the kernel log holds this record; empty if it raises none, because the line's
    format is parsed offline only.
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
    meaning: str = ""
    live: str = ""


# Names of healthd's line families, for lines without a class in `line_classes`.
_KIND_OF_CHECK = {
    "nvidia_driver": "nvidia_driver",
    "pcie_aer": "aer",
    "host_memory": "mce",
    "mlx5": "ib",
    "nvme_log": "nvme",
    "filesystem": "filesystem",
    "lockup": "lockup",
    "oom": "oom",
    "cpu": "cpu",
    "program_crash": "program_crash",
}
_KIND_OF_FINDING = {"filesystem/raid": "raid", "filesystem/array_failed": "raid", "lockup/panic": "panic"}
KINDS = tuple(
    dict.fromkeys(
        (
            "xid",
            "sxid",
            "fallen_off_bus",
            "aer",
            "ecc",
            "ib",
            "mce",
            "oom",
            *_KIND_OF_CHECK.values(),
            "raid",
            "panic",
            "none",
        )
    )
)

_NAMED_GPU = re.compile(r"NVRM:[ ]{1,4}The NVIDIA GPU (?P<address>[0-9A-Fa-f:.]{5,16})")
_PCI_DEVICE = r"[\w.-]{1,40} [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]: "
# Text that may precede the driver's message in a line without an author: nothing, a placeholder, a device.
_CLEAN = re.compile(rf"\s*(?:\[(?:\.{{2,3}}|…)\]\s{{0,4}})?(?:{_PCI_DEVICE})?")
# In a line with dmesg's stamp, another driver's partial line may precede the message, but not a reporting program.
_REPORTED = re.compile(
    r"^\s*[\w./@-]{1,64}(?:\(\w{1,20}\))?: ?$|^[\w.-]{1,64} [A-Za-z][\w./()-]{0,60}: ?$"
    r"|\b(?:saw|seen|found|detected|got|reports?|reported|logged|matched|match|line|event|message|msg|log|echo|grep)\b\W{0,4}$"
    r"|\b\w+=\S*\s*$|\b(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b\W{0,4}$",
    re.IGNORECASE,
)


def parse_lines(lines: Iterable[str]) -> Iterator[ParsedLine]:
    """One record per line, numbered from 1. Never raises."""
    named_at, named = -PROBE_LINES, ""
    as_written, to_hear = tee(lines)
    for line_no, (line, heard) in enumerate(zip(as_written, extract_kernel_texts(to_hear), strict=True), start=1):
        if is_fabric_manager_line(line) and (
            told := parse_switch_error(line)
        ):  # the only author besides the kernel that is trusted
            yield _record_from_event(line_no, told, heard)
            continue
        if heard.text is None:
            yield ParsedLine(line_no)
            continue
        found = _parse_line(line_no, heard.text, heard)
        if found.kind == "fallen_off_bus" and not found.pci and line_no - named_at < PROBE_LINES:
            found = msgspec.structs.replace(found, pci=named)
        elif found.kind == "none" and (match := _NAMED_GPU.match(heard.text.lstrip())):
            event = find_offline_event(f"NVRM: GPU {match['address']}: GPU has fallen off the bus.")
            named_at, named = line_no, event[0].pci if event else ""
        yield found


def _parse_line(line_no: int, text: str, heard: KernelText) -> ParsedLine:
    if ("NVRM" in text or "SXid" in text) and (found := find_offline_event(text)):
        event, before = found
        return _record_from_event(line_no, event, heard) if _is_driver_message(before, heard) else ParsedLine(line_no)
    text = text.strip()
    check, form = _match_live_form(text)
    classed = classify_kernel_line(text, by_name=heard.by_name)
    if classed is None and form is None:
        return ParsedLine(line_no)
    finding = f"{check}/{form.code}" if form else ""
    kind = classed.kind if classed else _KIND_OF_FINDING.get(finding) or _KIND_OF_CHECK[check]
    return ParsedLine(
        line_no,
        kind=kind,
        pci=(classed.pci if classed else parse_pci_address(text)) or None,
        pid=classed.pid if classed else None,
        process=classed.process if classed else "",
        detail=text,
        injected=heard.injected,
        meaning=form.summary if form else "",
        live=finding,
    )


def _match_live_form(text: str) -> tuple[str, LinePattern | None]:
    """The form by which healthd recognizes this record, and the check."""
    for family in FAMILIES:
        if any(word in text for word in family.words):
            form, _ = match_pattern(family, text)
            if form is not None:
                return family.check, form
    return "", None


def _is_driver_message(before: str, heard: KernelText) -> bool:
    """Whether the driver's message after `before` is genuine, not quoted."""
    if not before:
        return True
    return not _REPORTED.search(before) if heard.by_name else _CLEAN.fullmatch(before) is not None


def _record_from_event(line_no: int, event: KernelEvent, heard: KernelText) -> ParsedLine:
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
        live=_match_live_kind(heard.text or ""),
    )


def _match_live_kind(text: str) -> str:
    """The finding that healthd raises for this record; empty if it parses no such format."""
    event = parse_live_record(text.strip())
    if event is None:
        return ""
    check = "sxid" if event.kind is KernelEventKind.SXID else "xid"
    return f"{check}/{event.kind.value if event.code is None else event.code}"
