"""The catalogue of Xids and SXids: meaning, likely cause, severity, and recommended action.

The knowledge itself is data, read by `vocabulary.fault_catalogue.catalogue_file`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind
from vocabulary.fault_catalogue.catalogue_entry import (
    Advice,
    ErrorReach,
    RecoveryAction,
    SxidEffect,
    SxidEntry,
    XidEntry,
    make_undescribed_sxid,
    make_undescribed_xid,
)
from vocabulary.fault_catalogue.line_reading import Basis, Reading
from vocabulary.fault_catalogue.nvlink_tables import NvlinkTables, read_nvlink_event
from vocabulary.fault_catalogue.reading_rules import has_severity_rules, read_by_rules
from vocabulary.finding import Severity

# The severity in the head line of an SXid, and the digit in its second line.
_SXID_WORDS: dict[str | int | None, Severity] = {
    "Fatal": Severity.FATAL,
    "Non-fatal": Severity.WARNING,
    1: Severity.FATAL,
    0: Severity.WARNING,
}
FALLEN_OFF_BUS_XID = 79  # the driver also prints this number when it still can


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The whole catalogue, validated."""

    version: str
    sources: Mapping[str, str]
    parties: Mapping[str, str]
    xids: Mapping[int, XidEntry]
    recovery_actions: Mapping[int, RecoveryAction]
    sxids: Mapping[int, SxidEntry]
    sxid_effects: Mapping[ErrorReach, SxidEffect]
    nvlink: NvlinkTables

    def entry(self, code: int) -> XidEntry:
        """Return the entry of `code`; for an undescribed number, an entry that says so."""
        return self.xids.get(code) or make_undescribed_xid(code)

    def sxid_entry(self, code: int) -> SxidEntry:
        """Return the entry of an SXid."""
        return self.sxids.get(code) or make_undescribed_sxid(code)

    def recovery(self, value: int) -> RecoveryAction:
        """Return the entry of a recovery-action number; an unknown one requires a person."""
        return self.recovery_actions.get(value) or RecoveryAction(
            f"recovery action {value}, which is not described here", Severity.UNCLASSIFIED, Advice.TRIAGE
        )

    def severity_of(self, event: KernelEvent) -> Severity:
        """Return the severity of a kernel event: from its number, its other parts, then the table. Cheap."""
        if event.kind is KernelEventKind.FALLEN_OFF_BUS:
            return self.entry(FALLEN_OFF_BUS_XID).severity
        if event.kind is KernelEventKind.SXID:
            return severity_from_sxid_line(event) or self.sxid_entry(event.code or 0).severity
        if event.recovery_action is not None:
            return self.recovery(event.recovery_action).severity
        reading = read_nvlink_event(event, self.nvlink)
        if reading is not None:
            return reading.severity
        entry = self.entry(event.code or 0)
        return read_by_rules(event, entry).severity if has_severity_rules(entry) else entry.severity

    def reading(self, event: KernelEvent) -> Reading:
        """Return the action for this line, and why. Its severity is that of `severity_of`."""
        if event.kind is KernelEventKind.SXID:
            return self._of_switch(event)
        if event.kind is KernelEventKind.XID and event.recovery_action is not None:
            recovery = self.recovery(event.recovery_action)
            says = (f"Recovery action {event.recovery_action}: {recovery.meaning}.",)
            return Reading(severity=recovery.severity, action=recovery.action, basis=Basis.LINE, says=says)
        entry = self.entry(FALLEN_OFF_BUS_XID if event.kind is KernelEventKind.FALLEN_OFF_BUS else event.code or 0)
        reading = read_nvlink_event(event, self.nvlink) or read_by_rules(event, entry)
        if reading.follow is None:
            return reading
        cause = self.entry(reading.follow)
        name = f"Xid {cause.code} {cause.mnemonic}".strip()
        return msgspec.structs.replace(reading, says=(*reading.says, f"{name}: {cause.meaning}"))

    def _of_switch(self, event: KernelEvent) -> Reading:
        entry, said = self.sxid_entry(event.code or 0), severity_from_sxid_line(event)
        if said is None:
            return Reading(severity=entry.severity, action=entry.action, basis=Basis.ENTRY)
        if said is Severity.FATAL:
            action, says = self.sxid_effects[entry.effect].fatal, ("The line calls it fatal.",)
        else:
            action, says = Advice.WATCH, ("The line calls it non-fatal.",)
        return Reading(severity=said, action=action, basis=Basis.LINE, says=says)


def severity_from_sxid_line(event: KernelEvent) -> Severity | None:
    """Return the severity that the lines of an SXid state themselves; None if they do not."""
    return _SXID_WORDS.get(event.word) or _SXID_WORDS.get(decode_xid_detail(event).get("switch_severity"))
