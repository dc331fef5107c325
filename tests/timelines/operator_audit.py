"""The auditor of persons' words: by books of its own, which fault a person spoke of, when, and whether that counts still.

A word ends an incident: a resolve, or the node back in service by a person's hand. From then on what was known of the node
opens and joins no incident for the quiet time, and after it only what is seen anew and is fatal (or info, which is seen and
never asserted); what cleared, grew graver or was taken up again by a person is nobody's any more.
"""

from __future__ import annotations

from typing import Any

from remediator.model.journal_records import Incident
from remediator.model.pipeline_inputs import (
    ActionEnded,
    AnyInput,
    FindingsReported,
    HoldsObserved,
    IncidentCommand,
    IncidentReopened,
    NodeCommand,
    NodeCommandKind,
)
from remediator.model.rule_conditions import NodeState
from tests.timelines.audited_timeline import Limits, Watched
from vocabulary.finding import Finding, Severity

QUIET_S = 900.0
THEIRS = {NodeState.OPERATOR_HELD, NodeState.RETIRED}
SEEN_ANEW = {Severity.FATAL, Severity.INFO}


class Worded(Watched):
    """A cluster whose people's words are kept in books too."""

    def __init__(self, rules: Any, nodes: int, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.words: dict[str, float] = {}  # finding → when a person's word on it was said last
        self.dealt_with: set[str] = set()  # findings of closed incidents, whoever closed them
        self.spoken = self.came_again = self.held_off = 0
        super().__init__(rules, nodes, limits)

    def _tell(self, item: AnyInput) -> None:
        known = dict(self.state.findings)
        states = {name: node.state for name, node in self.state.nodes.items()}
        opened = {i.id: i for i in self.state.incidents.values() if not i.wide}
        before = dict(self.incidents)
        super()._tell(item)
        changed = [i for i in self.incidents.values() if not i.wide and before.get(i.id) != i]
        told = self._told(item, known, states)
        self._forget(item, known)
        for finding_id in told:
            self.came_again += 1
            assert any(finding_id in i.findings for i in changed), f"{finding_id} came again, and nobody decides"
            self.words.pop(finding_id)
        for incident in self.state.incidents.values():
            if incident.wide:
                continue
            kept = self.words.keys() & set(incident.findings)
            assert not kept, f"{incident.id} takes up {kept}, whatever a person said, after {item}"
            self.dealt_with -= set(incident.findings)
        self._hear_end(item, [opened[i] for i in opened.keys() - self.state.incidents.keys()], states)

    def _told(self, item: AnyInput, known: dict[str, Finding], states: dict[str, NodeState]) -> list[str]:
        """What a person spoke of and is fatal, and was seen anew after their word was over."""
        if not isinstance(item, FindingsReported) or states.get(item.node) in THEIRS:
            return []
        told, counts = [], {name: finding.count for name, finding in known.items()}
        for finding in item.changes:
            word, before = self.words.get(finding.id), counts.get(finding.id, 0)
            counts[finding.id] = finding.count
            if word is None or finding.node != item.node or finding.count <= before:
                continue
            over = min(finding.last_seen, item.at) > word + QUIET_S
            self.held_off += not over
            if over and finding.severity is Severity.FATAL and finding.active and known[finding.id].active:
                told.append(finding.id)
            elif over and finding.severity is Severity.INFO:
                self.words.pop(finding.id)  # the policy's affair, as ever
        return told

    def _forget(self, item: AnyInput, known: dict[str, Finding]) -> None:
        """What nobody's word is about any more."""
        for name in [name for name in self.dealt_with | self.words.keys() if self._is_news(name, known)]:
            self.dealt_with.discard(name)
            self.words.pop(name, None)
        if isinstance(item, NodeCommand) and item.word is NodeCommandKind.UNRETIRE:
            self._drop({f.id for f in self.state.active_on(item.node)})
        elif isinstance(item, IncidentReopened):
            self._drop(set(item.incident.findings))

    def _is_news(self, name: str, known: dict[str, Finding]) -> bool:
        now, before = self.state.findings.get(name), known.get(name)
        if now is None or before is None:
            return True
        cleared = not now.active and now.severity is not Severity.INFO
        return cleared or now.severity.rank > before.severity.rank

    def _drop(self, findings: set[str]) -> None:
        self.dealt_with -= findings
        self.words = {name: at for name, at in self.words.items() if name not in findings}

    def _hear_end(self, item: AnyInput, closed: list[Incident], states: dict[str, NodeState]) -> None:
        """What a person ended, and what else of a node was dealt with when they put it back."""
        asserted = {name for name, f in self.state.findings.items() if f.active or f.severity is Severity.INFO}
        ended = {name for incident in closed for name in incident.findings} & asserted
        self.dealt_with |= ended
        if isinstance(item, IncidentCommand):
            self._spoken(ended, item.at)
        uncordoned = isinstance(item, ActionEnded) and self.actions[item.action].verb == "uncordon_by_hand"
        released = isinstance(item, NodeCommand) and item.word is NodeCommandKind.RELEASE
        if uncordoned or released or isinstance(item, HoldsObserved):
            for name, node in self.state.nodes.items():
                back = node.state is NodeState.PROBATION and states.get(name) is not NodeState.PROBATION
                if back and self.state.incident_of(name) is None:
                    there = {f.id for f in self.state.findings_on(name)}
                    self._spoken(there & self.dealt_with, item.at)

    def _spoken(self, findings: set[str], at: float) -> None:
        self.spoken += bool(findings)
        self.words |= dict.fromkeys(findings, at)
