"""Groups pending approvals: nodes with the same proposed plan share one row. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import msgspec

from remediator.model.journal_records import Incident
from remediator.model.views_actions import AwaitingView
from remediator.web.incident_grouping import ALIKE_MIN
from remediator.web.severity_order import drill_text, known_incident_findings
from vocabulary.finding import Finding


class ApprovalGroup(msgspec.Struct, frozen=True):
    """One pending approval, or several similar ones, represented by the first. `drill` is the result of `drill_text`."""

    awaiting: tuple[AwaitingView, ...]
    drill: str = ""

    @property
    def first(self) -> AwaitingView:
        """The approval that has been pending longest."""
        return self.awaiting[0]


def group_approvals(
    awaiting: Iterable[AwaitingView], incidents: Mapping[str, Incident], findings: Mapping[str, Finding]
) -> list[ApprovalGroup]:
    """Group approvals with the same plan, oldest first; injected test faults form groups of their own."""
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
