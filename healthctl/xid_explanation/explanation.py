"""The catalogue's knowledge about one Xid or SXid. Pure: text and catalogue in, facts out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from healthctl.kernel_log.offline_xid_grammar import parse_offline_line
from vocabulary.driver_log.fabric_manager_event import parse_switch_error
from vocabulary.driver_log.injected_line import parse_injected_line
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind
from vocabulary.fault_catalogue.catalogue import FALLEN_OFF_BUS_XID, Catalogue
from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.fault_catalogue.line_reading import Reading
from vocabulary.finding import Severity

GENERATIONS = {"A": "A100", "H": "H100", "B": "B100", "G": "GB200", "?": "not documented"}
PROCESS = {True: "survives", False: "dies", None: "unknown"}
ADVICE = {
    Advice.NONE: "nothing",
    Advice.WATCH: "nothing now; investigate if it recurs",
    Advice.RESTART_JOB: "restart the job",
    Advice.DRAIN_RESET: "let running work finish, take no new work, reset the GPU",
    Advice.RESET_GPU: "drain now, reset the GPU",
    Advice.RESET_FABRIC: "drain now; stop the fabric manager, reset all GPUs and switches together, start it again",
    Advice.REBOOT_NODE: "drain now, reboot the node",
    Advice.RESTART_VM: "restart the virtual machine that owns the GPU",
    Advice.ISOLATE_REPLACE: "isolate the node at once, plan its replacement",
    Advice.HANDS_ON: "drain; check seating and cables on site",
    Advice.UPDATE_SOFTWARE: "align the driver and guest versions",
    Advice.DECODE: "take no new work; the registers in the line determine the action",
    Advice.BY_VALUE: "as given by the number after 'to' in the line",
    Advice.TRIAGE: "take no new work; an operator must investigate",
}
DIGITS_MAX = 5
SWITCH_CODE_MIN = 10_000  # switch codes start here, so that they cannot be confused with Xids
TEXT_CHARS_MAX = 64 << 10

_NUMBER = re.compile(rf"(?P<kind>s?xid)?[\s:=#]{{0,4}}(?P<code>\d{{1,{DIGITS_MAX}}})", re.IGNORECASE | re.ASCII)
_PIECE = re.compile(
    r"(?P<xid>(?:NVRM: {1,4})?(?<![A-Za-z])Xid ?\()|(?P<sxid>(?:nvidia-nvswitch\d{1,4}: {1,4})?SXid ?\()"
    r"|(?P<fallen>NVRM: {1,4}[^\"]{0,80}?fallen off the bus)"
)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One explanation with flat fields. `known` is false for an undocumented number.

    `event` and `reading` are set only for a log line: `severity`, `action` and `advice` are then those of the line.
    `others` maps other systems to their reaction; `ports` the effect of a switch error on each kind of port.
    """

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
    look_at: tuple[str, ...]
    differs: Mapping[str, str]
    others: Mapping[str, str]
    why: str
    ports: Mapping[str, str]
    note: str
    sources: tuple[str, ...]
    catalogue: str
    event: KernelEvent | None = None
    reading: Reading | None = None


def explain_xid(text: str, catalogue: Catalogue) -> Explanation | None:
    """Explain a number (``79``, ``xid 79``, ``sxid 12028``), a log line or a part of one; None if it is neither."""
    asked = parse_xid_query(text)
    if asked is None:
        return None
    event = asked.event
    general = (_explain_sxid_code if event.kind is KernelEventKind.SXID else _explain_xid_code)(event, catalogue)
    if not asked.is_line:
        return general
    reading = catalogue.reading(event)
    return msgspec.structs.replace(
        general,
        severity=reading.severity,
        action=reading.action.value,
        advice=ADVICE[reading.action],
        event=event,
        reading=reading,
    )


def _explain_xid_code(event: KernelEvent, catalogue: Catalogue) -> Explanation:
    fallen = event.kind is KernelEventKind.FALLEN_OFF_BUS
    entry = catalogue.entry(FALLEN_OFF_BUS_XID if fallen else event.code or 0)
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
        look_at=entry.look_at,
        differs={generation.value: text for generation, text in entry.differs.items()},
        others=_name_parties(entry.others, catalogue),
        why=entry.why,
        ports={},
        note=entry.note,
        sources=tuple(catalogue.sources[tag] for tag in entry.sources),
        catalogue=catalogue.version,
    )


def _explain_sxid_code(event: KernelEvent, catalogue: Catalogue) -> Explanation:
    entry = catalogue.sxid_entry(event.code or 0)
    effect = catalogue.sxid_effects[entry.effect]
    bad = catalogue.severity_of(event).rank >= Severity.UNCLASSIFIED.rank
    return Explanation(
        kind="sxid",
        code=entry.code,
        known=entry.code in catalogue.sxids,
        name=entry.mnemonic,
        alias="",
        meaning=entry.meaning,
        severity=entry.severity,
        action=entry.action.value,
        advice=ADVICE[entry.action],
        blame=entry.blame.value,
        causes=(),
        process="unknown",
        nvidia_immediate="",
        nvidia_investigatory="",
        gpus=(),
        recovery_since="",
        look_at=(),
        differs={},
        others=_name_parties(entry.others, catalogue),
        why=entry.why,
        ports={"access": effect.access, "trunk": effect.trunk} if bad else {},
        note=entry.note,
        sources=tuple(catalogue.sources[tag] for tag in entry.sources),
        catalogue=catalogue.version,
    )


def _name_parties(others: Mapping[str, str], catalogue: Catalogue) -> dict[str, str]:
    return {catalogue.parties[party]: does for party, does in others.items()}


class XidQuery(msgspec.Struct, frozen=True):
    """The query. `is_line` is false if only a number was given."""

    event: KernelEvent
    is_line: bool


def parse_xid_query(text: str) -> XidQuery | None:
    """Parse a query as typed: a number, a log line in any format, or a part of one; None if it is neither.

    The text is not used as evidence, so its author does not matter: a line quoted in a ticket is explained too.

    >>> parse_xid_query("SXid 12028").event.kind.value
    'sxid'
    """
    text = text.strip()[:TEXT_CHARS_MAX]
    if match := _NUMBER.fullmatch(text):
        code = int(match["code"])
        switch = (match["kind"] or "").lower() == "sxid" or code >= SWITCH_CODE_MIN
        kind = KernelEventKind.SXID if switch else KernelEventKind.XID
        return XidQuery(KernelEvent(kind=kind, code=code), is_line=False)
    text = _extract_journal_message(text)
    marked = parse_injected_line(text)
    text = marked.text if marked else text
    event = parse_offline_line(text) or _find_partial_message(text) or parse_switch_error(text)
    return XidQuery(event, is_line=True) if event else None


def _extract_journal_message(text: str) -> str:
    """The message of a line of ``journalctl -o json``; any other text unchanged."""
    if not text.startswith("{"):
        return text
    try:
        found = msgspec.json.decode(text.encode(errors="backslashreplace"))
    except (msgspec.DecodeError, RecursionError):
        return text
    message = found.get("MESSAGE") if isinstance(found, dict) else None
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in message):
        return bytes(message).decode(errors="backslashreplace")  # the journal's format for invalid UTF-8
    return message if isinstance(message, str) else text


def _find_partial_message(text: str) -> KernelEvent | None:
    """A message that begins somewhere within the text, with or without the driver's name before it."""
    match = _PIECE.search(text)
    if match is None:
        return None
    piece = text[match.start() :]
    if match["xid"] and not piece.startswith("NVRM"):
        piece = f"NVRM: {piece}"
    if not match["sxid"] or piece.startswith("nvidia-"):
        return parse_offline_line(piece)
    event = parse_offline_line(f"nvidia-nvswitch0: {piece}")
    return msgspec.structs.replace(event, switch=None) if event else None
