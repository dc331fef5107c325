"""How long a person's word on a fault counts: against all that was known then, and a quiet time after it. Pure.

A fault that streams on is no news within that time. A fatal one that is seen after it is: whoever said that it is over did
not know of that. What only lasts, and is not seen anew, stays as the person left it.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.finding_settlement import Settlement
from remediator.model.rule_conditions import THEIRS, NodeState
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding, Severity
from vocabulary.text import duration_format


def reopening_delay_text(
    state: ClusterState, word: Settlement, before: Finding | None, finding: Finding, now: float, after_s: float
) -> str:
    """How long after which word a fault has come again, in words; empty: the word still counts.

    Args:
        state: whose the node is; on one that is a person's, their word goes on counting.
        word: the person's.
        before: the fault as it was known; None: it was not.
        finding: as it is told of now.
        now: UTC seconds. What is dated later was seen now.
        after_s: for how long a word counts against what is seen anew.
    """
    seen_at = min(finding.last_seen, now)
    news = before is None or finding.count > before.count
    if not news or seen_at <= word.at + after_s or state.nodes[finding.node].state in THEIRS:
        return ""
    if finding.severity not in (Severity.FATAL, Severity.INFO):
        return ""
    return f"again {duration_format.format_duration(seen_at - word.at)} after {word.said} ({word.incident})"


def settlement_expiry(finding: Finding, word: Settlement, owned: NodeState, after_s: float) -> float | None:
    """From when on (UTC s) a fault that is seen anew is decided upon in spite of a word on it; None: never, as things are.

    `owned`: the state of its node.
    """
    fatal = finding.active and finding.severity is Severity.FATAL
    return word.at + after_s if fatal and owned not in THEIRS else None


def restart_settlements(state: ClusterState, node: str, said: str, now: float) -> None:
    """A person speaks of a node: their word counts for all of it that was settled before, from now on."""
    for finding in state.findings_on(node):
        by = state.settled.get(finding.id)
        if by is not None:
            state.settle(finding.id, replace(by, said=said, at=now))


def clamp_settlement_times(state: ClusterState, now: float) -> None:
    """The clock of a leader before may have been ahead: no word was said later than now."""
    for finding_id, word in [(name, word) for name, word in state.settled.items() if word.at > now]:
        state.settle(finding_id, replace(word, at=now))
