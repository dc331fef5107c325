"""What is known about one Xid or SXid, gathered for printing. Pure: text and catalogue in, facts out."""

from __future__ import annotations

import msgspec

from vocabulary.catalogue import Catalogue, said_by_switch
from vocabulary.catalogue_entry import Advice, XidEntry
from vocabulary.finding import Severity
from vocabulary.injection import unmark
from vocabulary.xid import KernelEvent, KernelEventKind, parse_line

DIGITS_MAX = 5
FALLEN_OFF_BUS_XID = 79  # what the driver prints as well when it still can

GENERATIONS = {"A": "A100", "H": "H100", "B": "B100", "G": "GB200", "?": "not documented"}
PROCESS = {True: "survives", False: "dies", None: "unknown"}
ADVICE = {
    Advice.NONE: "nothing",
    Advice.WATCH: "nothing now; look into it when it comes again",
    Advice.RESTART_JOB: "restart the job; look at the program",
    Advice.DRAIN_RESET: "let running work finish, take no new work, reset the GPU",
    Advice.RESET_GPU: "drain now, reset the GPU",
    Advice.RESET_FABRIC: "drain now; stop the fabric manager, reset all GPUs and switches together, start it again",
    Advice.REBOOT_NODE: "drain now, reboot the node",
    Advice.RESTART_VM: "restart the virtual machine that owns the GPU",
    Advice.ISOLATE_REPLACE: "isolate the node at once, plan its replacement",
    Advice.HANDS_ON: "drain; somebody must go and check seating and cables",
    Advice.UPDATE_SOFTWARE: "bring driver and guest versions together",
    Advice.DECODE: "take no new work; the registers in the line say what it needs",
    Advice.BY_VALUE: "what the number after 'to' in the line says",
    Advice.TRIAGE: "take it out of new work and let a person look",
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Flat, as printed. `known` is false for a number that no source describes; `event` only for a whole line."""

    kind: str
    code: int
    known: bool
    name: str
    alias: str
    meaning: str
    severity: Severity
    action: str
    advice: str
    blame: str
    causes: tuple[str, ...]
    process: str
    nvidia_immediate: str
    nvidia_investigatory: str
    gpus: tuple[str, ...]
    recovery_since: str
    note: str
    sources: tuple[str, ...]
    catalogue: str
    event: KernelEvent | None = None


def explain(text: str, catalogue: Catalogue) -> Explanation | None:
    """Explain a number (``79``, ``xid 79``, the number of an SXid) or a whole line of a log; None if `text` is neither."""
    word = text.strip().lower().removeprefix("xid").strip(" :")
    if word.isascii() and word.isdecimal() and len(word) <= DIGITS_MAX:
        code = int(word)
        if code not in catalogue.xids and code in catalogue.sxids:
            return _of_sxid(KernelEvent(kind=KernelEventKind.SXID, code=code), catalogue)
        return _of_xid(catalogue.entry(code), catalogue)
    marked = unmark(text)
    event = parse_line(marked.text if marked else text)
    if event is None:
        return None
    if event.kind is KernelEventKind.SXID:
        return _of_sxid(event, catalogue)
    code = FALLEN_OFF_BUS_XID if event.kind is KernelEventKind.FALLEN_OFF_BUS else event.code or 0
    return _of_line(event, _of_xid(catalogue.entry(code), catalogue), catalogue)


def _of_xid(entry: XidEntry, catalogue: Catalogue) -> Explanation:
    return Explanation(
        kind="xid",
        code=entry.code,
        known=entry.code in catalogue.xids,
        name=entry.mnemonic,
        alias=entry.alias,
        meaning=entry.meaning,
        severity=entry.severity,
        action=entry.action.value,
        advice=ADVICE[entry.action],
        blame=entry.blame.value,
        causes=tuple(cause.value for cause in entry.causes),
        process=PROCESS[entry.process_survives],
        nvidia_immediate=entry.nvidia_immediate,
        nvidia_investigatory=entry.nvidia_investigatory,
        gpus=tuple(GENERATIONS.get(letter, letter) for letter in entry.gpus),
        recovery_since=entry.recovery_since,
        note=entry.note,
        sources=tuple(catalogue.sources[tag] for tag in entry.sources),
        catalogue=catalogue.version,
    )


def _of_line(event: KernelEvent, general: Explanation, catalogue: Catalogue) -> Explanation:
    """The general entry, with what this very line adds: Xid 154 carries its own meaning."""
    explained = msgspec.structs.replace(general, event=event, severity=catalogue.severity_of(event))
    if event.recovery_action is None:
        return explained
    recovery = catalogue.recovery(event.recovery_action)
    return msgspec.structs.replace(
        explained,
        meaning=f"{general.meaning} Here: {recovery.meaning}.",
        action=recovery.action.value,
        advice=ADVICE[recovery.action],
    )


def _of_sxid(event: KernelEvent, catalogue: Catalogue) -> Explanation:
    entry = catalogue.sxid_entry(event.code or 0)
    said = f" The line calls it {event.word.lower()}." if event.word else ""
    severity = catalogue.severity_of(event)
    action = entry.action
    if said_by_switch(event) is Severity.FATAL:
        action = catalogue.sxid_effects[entry.effect].fatal
    return Explanation(
        kind="sxid",
        code=entry.code,
        known=bool(entry.sources),
        name=entry.mnemonic,
        alias="",
        meaning=f"{entry.meaning}{said}",
        severity=severity,
        action=action.value,
        advice=ADVICE[action],
        blame=entry.blame.value,
        causes=(),
        process="unknown",
        nvidia_immediate="",
        nvidia_investigatory="",
        gpus=(),
        recovery_since="",
        note=entry.note,
        sources=tuple(catalogue.sources[tag] for tag in entry.sources),
        catalogue=catalogue.version,
        event=event if event.switch is not None else None,
    )
