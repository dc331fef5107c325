"""Bounds of everything that a node sends. The controller rejects more, and healthd never sends more.

Messages that exist only on the wire carry these bounds in their own types (`vocabulary.messages.wire`), so that the
published document shows them. Findings and answers to orders are also read from the node's own file and from the
controller's database, where an older release may have written longer ones: those types have no bounds, and each has a
twin here with the same fields and bounds, used only on receipt. `check_bounds` applies it;
`vocabulary.messages.message_truncation` makes a message fit.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

TTL_S_MIN, TTL_S_MAX = 0.1, 3600.0  # of a report: healthd sends three times its report interval
MOMENT_MAX = 253_402_300_799.0  # the end of the year 9999: the last moment that can be written as a date
INT_MAX = 2**63 - 1
NUMBER_MAX = 2.0**63  # the limit of a beacon page

NAME_CHARS_MAX = 255  # of a node, a job, a component
WORD_CHARS_MAX = 64  # of a check, a phase, a generated id
CODE_CHARS_MAX = 128
TEXT_CHARS_MAX = 2000  # of a summary, a value of the evidence
DETAIL_CHARS_MAX = 8000  # of an answer to an order
EVIDENCE_ENTRIES_MAX = 64
SECTIONS_MAX = 32
WINDOWS_MAX = 64
DIGESTS_MAX = 8
GPUS_MAX = 256
SWAPS_MAX = 512
CHANGES_PER_REPORT_MAX = 500
ACTIVE_MAX = 10_000
RANKS_MAX = 4096

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Word = Annotated[str, Meta(max_length=WORD_CHARS_MAX)]
Code = Annotated[str, Meta(max_length=CODE_CHARS_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
Count = Annotated[int, Meta(ge=0, le=INT_MAX)]
Whole = Annotated[int, Meta(ge=-INT_MAX, le=INT_MAX)]
Number = Annotated[float, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Moment = Annotated[float, Meta(ge=0.0, le=MOMENT_MAX)]  # UTC seconds
Ttl = Annotated[float, Meta(ge=TTL_S_MIN, le=TTL_S_MAX)]
Values = Annotated[dict[Word, Text | Whole | float | bool], Meta(max_length=EVIDENCE_ENTRIES_MAX)]

_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class ComponentBounds(msgspec.Struct, frozen=True):
    """The twin of `vocabulary.identity.Component`."""

    kind: Word
    name: Name = ""
    pci: Word = ""
    index: Whole | None = None


class FindingBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The twin of `vocabulary.finding.Finding`."""

    id: Annotated[str, Meta(pattern="^[!-~]{1,64}\\Z")]  # a key of the database
    node: Name
    check: Word
    code: Code
    component: ComponentBounds
    severity: Word
    summary: Text
    first_seen: Moment
    last_seen: Moment
    origin: Name
    boot_id: Word = ""
    count: Count = 1
    active: bool = True
    cleared_at: Moment | None = None
    cleared_by: Text = ""
    injected: bool = False
    level: bool = False
    evidence: Values = {}


class OrderUpdateBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The twin of `vocabulary.order.OrderUpdate`."""

    id: Annotated[str, Meta(max_length=512)]
    state: Word
    at: Moment
    detail: Annotated[str, Meta(max_length=DETAIL_CHARS_MAX)] = ""
    data: Values = {}


def check_bounds(message: Any, twin: type) -> None:
    """Validate a message against its twin.

    Raises:
        msgspec.ValidationError: it names the field and the bound.
    """
    msgspec.convert(message, twin, from_attributes=True)


def holds_nul(data: bytes | str) -> bool:
    """Return whether a text in this JSON holds the character NUL, which PostgreSQL rejects."""
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    return b"\\u0000" in raw and _ESCAPED_NUL.search(raw) is not None
