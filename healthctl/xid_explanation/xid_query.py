"""Parses a query as typed: a number, a log line in any format, or a part of one. Pure.

The text is not used as evidence, so its author does not matter: a line quoted in a ticket is explained too.
"""

from __future__ import annotations

import re

import msgspec

from healthctl.kernel_log.offline_xid_grammar import parse_offline_line
from vocabulary.driver_log.fabric_manager_event import parse_switch_error
from vocabulary.driver_log.injected_line import parse_injected_line
from vocabulary.driver_log.xid import KernelEvent, KernelEventKind

DIGITS_MAX = 5
SWITCH_CODE_MIN = 10_000  # switch codes start here, so that they cannot be confused with Xids
TEXT_CHARS_MAX = 64 << 10

_NUMBER = re.compile(rf"(?P<kind>s?xid)?[\s:=#]{{0,4}}(?P<code>\d{{1,{DIGITS_MAX}}})", re.IGNORECASE | re.ASCII)
_PIECE = re.compile(
    r"(?P<xid>(?:NVRM: {1,4})?(?<![A-Za-z])Xid ?\()|(?P<sxid>(?:nvidia-nvswitch\d{1,4}: {1,4})?SXid ?\()"
    r"|(?P<fallen>NVRM: {1,4}[^\"]{0,80}?fallen off the bus)"
)


class XidQuery(msgspec.Struct, frozen=True):
    """The query. `is_line` is false if only a number was given."""

    event: KernelEvent
    is_line: bool


def parse_xid_query(text: str) -> XidQuery | None:
    """Parse `text`; None if it is neither a number nor a driver message.

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
