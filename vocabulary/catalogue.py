"""The Xid catalogue: what each number means, whom it blames, how bad it is, and what we would do about it.

The knowledge itself is data, read by `vocabulary.catalogue_file`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vocabulary.catalogue_entry import Advice, RecoveryAction, XidEntry, undescribed
from vocabulary.finding import Severity
from vocabulary.xid import KernelEvent, KernelEventKind

_SXID_WORDS = {"Fatal": Severity.FATAL, "Non-fatal": Severity.WARNING}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The whole catalogue, read and checked."""

    version: str
    sources: Mapping[str, str]
    parties: Mapping[str, str]
    xids: Mapping[int, XidEntry]
    recovery_actions: Mapping[int, RecoveryAction]
    sxids: Mapping[int, Severity]

    def entry(self, code: int) -> XidEntry:
        """What is known about `code`; for a number nobody has described, an entry that says exactly that."""
        return self.xids.get(code) or undescribed(code)

    def recovery(self, value: int) -> RecoveryAction:
        """What a recovery-action number asks for; an unknown one asks for a person."""
        return self.recovery_actions.get(value) or RecoveryAction(
            f"recovery action {value}, which is not described here", Severity.UNCLASSIFIED, Advice.TRIAGE
        )

    def severity_of(self, event: KernelEvent) -> Severity:
        """How bad one kernel event is: by the number it carries, the word in its line, then the table."""
        if event.kind is KernelEventKind.FALLEN_OFF_BUS:
            return self.entry(79).severity
        if event.kind is KernelEventKind.SXID:
            return _SXID_WORDS.get(event.word) or self.sxids.get(event.code or 0, Severity.UNCLASSIFIED)
        if event.recovery_action is not None:
            return self.recovery(event.recovery_action).severity
        return self.entry(event.code or 0).severity
