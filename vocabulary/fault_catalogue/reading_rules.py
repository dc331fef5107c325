"""The catalogue's rules for reading a line: which parts of it have which consequences. Pure."""

from __future__ import annotations

from string import Formatter

from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEvent
from vocabulary.fault_catalogue.catalogue_entry import Condition, ReadingRule, XidEntry
from vocabulary.fault_catalogue.line_reading import Basis, Reading

_OF_THE_EVENT = ("caused_by", "pid", "process", "mig")


def list_rule_parts(rule: ReadingRule) -> set[str]:
    """Return the parts of the line that the rule's sentence contains.

    Raises:
        ValueError: the sentence has braces that name no part.
    """
    names = {name for _, name, _, _ in Formatter().parse(rule.says) if name is not None}
    if strange := {name for name in names if not name.isidentifier()}:
        raise ValueError(f"braces hold {', '.join(sorted(map(repr, strange)))}, which is not a part of a line")
    return names


def read_by_rules(event: KernelEvent, entry: XidEntry) -> Reading:
    """Return what this line adds to the entry of its number; of several rules with a severity, the worst counts."""
    general = Reading(severity=entry.severity, action=entry.action, basis=Basis.ENTRY, follow=event.caused_by)
    if not entry.reads:
        return general
    parts = event_parts(event)
    fits = [
        rule
        for rule in entry.reads
        if all(_matches_condition(parts.get(name), wanted) for name, wanted in rule.when.items())
    ]
    judging = [
        Reading(severity=rule.severity, action=rule.action, basis=Basis.TABLE)
        for rule in fits
        if rule.severity is not None and rule.action is not None
    ]
    judged = max(judging, key=lambda reading: reading.weight, default=general)
    return Reading(
        severity=judged.severity,
        action=judged.action,
        basis=Basis.TABLE if judging or any(rule.when for rule in fits) else Basis.ENTRY,
        says=tuple(rule.says.format_map(parts) for rule in fits),
        follow=event.caused_by,
    )


def has_severity_rules(entry: XidEntry) -> bool:
    """Return whether rules can change the severity of a line of this number."""
    return any(rule.severity is not None for rule in entry.reads)


def event_parts(event: KernelEvent) -> dict[str, str | int]:
    """Return all parts of a line that a rule may use, by name."""
    known = {name: getattr(event, name) for name in _OF_THE_EVENT}
    return {name: value for name, value in known.items() if value not in (None, "")} | decode_xid_detail(event)


def _matches_condition(value: str | int | None, wanted: Condition) -> bool:
    if isinstance(wanted, tuple):
        return any(_matches_condition(value, one) for one in wanted)
    said, asked = str(value).casefold(), str(wanted).casefold()
    if asked == "none":
        return value is None
    if value is None:
        return False
    if asked.startswith("not "):
        return said != asked.removeprefix("not ")
    return asked in ("any", said)
