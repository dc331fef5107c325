"""What one input changed in the state: rows for the store to write in one transaction, and audit events."""

from __future__ import annotations

import dataclasses

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Action, AuditEvent, Decision, Incident, NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.override_records import OperatorOverride
from vocabulary.finding import Finding


@dataclasses.dataclass
class StateChanges:
    """What one input changed: rows to write in one transaction, and audit events."""

    nodes: dict[str, NodeRecord] = dataclasses.field(default_factory=dict)
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)
    incidents: dict[str, Incident] = dataclasses.field(default_factory=dict)
    decisions: dict[str, Decision] = dataclasses.field(default_factory=dict)
    actions: dict[str, Action] = dataclasses.field(default_factory=dict)
    occurrences: list[Occurrence] = dataclasses.field(default_factory=list)
    audit: list[AuditEvent] = dataclasses.field(default_factory=list)
    settled: dict[str, Settlement | None] = dataclasses.field(default_factory=dict)  # by finding; None: not settled
    operator_overrides: dict[str, OperatorOverride | None] = dataclasses.field(default_factory=dict)  # None: ended

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in dataclasses.fields(self))
