"""What must hold before something is done: a playbook's own guards, each answer with the figures in it."""

from __future__ import annotations

import msgspec

from remediator.decide.match import subject_of
from remediator.decide.spares import free_besides
from remediator.model.rules import Guards
from remediator.state import ClusterState
from vocabulary.finding import Finding

PASSED, REFUSED = "passed", "refused"  # the first word of an answer in words


class Guarded(msgspec.Struct, frozen=True):
    """One guard's answer."""

    name: str
    passed: bool
    text: str

    def __str__(self) -> str:
        return f"{PASSED if self.passed else REFUSED} {self.name}: {self.text}"


def has_passed(words: str) -> bool:
    """Whether a guard's answer in words, as decisions keep it, lets the node through."""
    return words.startswith(f"{PASSED} ")


def ask(guards: Guards, finding: Finding, state: ClusterState, now: float) -> tuple[Guarded, ...]:
    """Every guard's answer for the node of `finding`; none if there are no guards."""
    node = state.nodes[finding.node]
    answers = []
    if guards.idle:
        jobs = ", ".join(ref.job for ref in node.jobs)
        answers.append(Guarded("idle", not node.jobs, jobs or "no job on the node"))
    if guards.drained:
        hold = state.holds.get(node.node)
        drained = hold is not None and hold.drained
        answers.append(Guarded("drained", drained, "no work is left" if drained else "the scheduler does not say so"))
    if guards.spares:
        free = free_besides(state, node.node)
        answers.append(Guarded("spares", free >= guards.spares, f"{free} free, {guards.spares} wanted"))
    for clause in guards.history:
        count = state.history.count(clause, subject_of(finding, state), now)
        answers.append(Guarded("history", clause.accepts(count), f"{count} so far, wanted {clause}"))
    return tuple(answers)
