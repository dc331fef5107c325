"""How long an operator's settlement counts: against faults known then, and for a quiet time after it. Pure.

Within that time a repeated fault is no news. A fatal fault seen later is: the operator who closed it did not know of
it. What only persists, without a new sighting, stays as the operator left it.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.finding_settlement import Settlement
from remediator.model.rule_conditions import OPERATOR_OWNED_STATES, NodeState
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding, Severity
from vocabulary.text import duration_format


def reopening_delay_text(
    state: ClusterState, word: Settlement, before: Finding | None, finding: Finding, now: float, after_s: float
) -> str:
    """Return how long after which settlement a fault has come again, as text; empty if the settlement still counts.

    Args:
        state: the node's lifecycle state; on an operator-held node the settlement keeps counting.
        word: the operator's settlement.
        before: the fault as it was known; None if it was not.
        finding: as reported now.
        now: UTC seconds. Later times count as now.
        after_s: how long a settlement counts against new sightings.
    """
    seen_at = min(finding.last_seen, now)
    news = before is None or finding.count > before.count
    if not news or seen_at <= word.at + after_s or state.nodes[finding.node].state in OPERATOR_OWNED_STATES:
        return ""
    if finding.severity not in (Severity.FATAL, Severity.INFO):
        return ""
    return f"again {duration_format.format_duration(seen_at - word.at)} after {word.said} ({word.incident})"


def settlement_expiry(finding: Finding, word: Settlement, owned: NodeState, after_s: float) -> float | None:
    """Return from when on (UTC s) a new sighting is decided despite a settlement; None: never, as things are.

    `owned`: the state of its node.
    """
    fatal = finding.active and finding.severity is Severity.FATAL
    return word.at + after_s if fatal and owned not in OPERATOR_OWNED_STATES else None


def restart_settlements(state: ClusterState, node: str, said: str, now: float) -> None:
    """Restart all settlements of a node from now on, because an operator gave a command on it."""
    for finding in state.findings_on(node):
        by = state.settled.get(finding.id)
        if by is not None:
            state.settle(finding.id, replace(by, said=said, at=now))


def clamp_settlement_times(state: ClusterState, now: float) -> None:
    """Clamp settlement times to now: a former leader's clock may have been ahead."""
    for finding_id, word in [(name, word) for name, word in state.settled.items() if word.at > now]:
        state.settle(finding_id, replace(word, at=now))
