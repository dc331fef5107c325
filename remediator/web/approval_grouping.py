"""What waits for a person's word; of many nodes that wait for the same, one row: it is read once. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import msgspec

from remediator.model.journal_records import Incident
from remediator.model.views_actions import AwaitingView
from remediator.web.incident_grouping import ALIKE_MIN
from remediator.web.severity_order import drill_text, known_incident_findings
from vocabulary.finding import Finding


class ApprovalGroup(msgspec.Struct, frozen=True):
    """What one node waits for, or several of which the first speaks for all. `drill` as gravity.drill says it."""

    awaiting: tuple[AwaitingView, ...]
    drill: str = ""

    @property
    def first(self) -> AwaitingView:
        """The one that stands for all, and has waited longest."""
        return self.awaiting[0]


def group_approvals(
    awaiting: Iterable[AwaitingView], incidents: Mapping[str, Incident], findings: Mapping[str, Finding]
) -> list[ApprovalGroup]:
    """All of it in its order; those alike in what would be done stand where the first of them stood, drills apart."""
    alike: dict[Hashable, list[AwaitingView]] = {}
    for each in awaiting:
        known = incidents.get(each.incident)
        marked = (
            drill_text(known_incident_findings(known, findings), injected=known.injected) if known is not None else ""
        )
        alike.setdefault((marked, each.text, each.proposed), []).append(each)
    rows = []
    for (marked, *_), those in alike.items():  # type: ignore[misc]  # the keys made above
        rows += (
            [ApprovalGroup((each,), marked) for each in those]
            if len(those) < ALIKE_MIN
            else [ApprovalGroup(tuple(those), marked)]
        )
    return sorted(rows, key=lambda row: (row.first.since, row.first.what))
