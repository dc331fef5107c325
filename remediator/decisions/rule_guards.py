"""Evaluates the guards of a playbook; each answer includes its figures."""

from __future__ import annotations

import msgspec

from remediator.decisions.rule_matching import count_subject
from remediator.decisions.spare_nodes import count_other_free_nodes
from remediator.model.rule_conditions import Guards
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding

PASSED, REFUSED = "passed", "refused"  # first word of a guard's text


class GuardAnswer(msgspec.Struct, frozen=True):
    """One guard's answer."""

    name: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{PASSED if self.passed else REFUSED} {self.name}: {self.text}"


def is_guard_passed(words: str) -> bool:
    """Return whether a guard's text, as stored in decisions, lets the node through."""
    return words.startswith(f"{PASSED} ")


def evaluate_rule_guards(guards: Guards, finding: Finding, state: ClusterState, now: float) -> tuple[GuardAnswer, ...]:
    """Return every guard's answer for the node of `finding`; empty without guards."""
    node = state.nodes[finding.node]
    answers = []
    if guards.idle:
        jobs = ", ".join(ref.job for ref in node.jobs)
        answers.append(GuardAnswer("idle", not node.jobs, jobs or "no job on the node"))
    if guards.drained:
        hold = state.holds.get(node.node)
        drained = hold is not None and hold.drained
        answers.append(
            GuardAnswer("drained", drained, "no work remains" if drained else "the scheduler does not confirm it")
        )
    if guards.spares:
        free = count_other_free_nodes(state, node.node)
        answers.append(GuardAnswer("spares", free >= guards.spares, f"{free} free, {guards.spares} required"))
    for clause in guards.history:
        count = state.history.count(clause, count_subject(finding, state), now)
        answers.append(GuardAnswer("history", clause.accepts(count), f"{count} so far, required {clause}"))
    return tuple(answers)
