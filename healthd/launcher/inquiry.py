"""Asks nodes, and tells people what they said: whether they are fit, and what an attempt's ranks left there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.launcher.backend import Answers, Attempt, Backend, Question
from healthd.launcher.job import Job
from healthd.launcher.journal import Journal
from healthd.launcher.pages import RankPage, pages_of
from healthd.launcher.plan import Fitness, Gate, NodeVerdict

GATE_SECONDS = 20.0
PAGES_SECONDS = 20.0


class Inquiry:
    """One job's questions."""

    def __init__(self, job: Job, backend: Backend, journal: Journal, stopped: Callable[[], bool]) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._stopped = stopped

    def gate(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """What each node's own daemon says of it; nobody is asked where the gate is off."""
        if self._job.gate is Gate.OFF or not nodes:
            if self._job.gate is not Gate.OFF:
                self._journal.write("gate", "gate: no node left to ask", verdicts={}, reasons={})
            return []
        question = Question("gate", (self._job.socket_template,), GATE_SECONDS)
        verdicts = verdicts_of(self._backend.ask(nodes, question, self._stopped))
        self._tell("gate", nodes, verdicts)
        return verdicts

    def pages(self, attempt: Attempt, since: float) -> list[RankPage]:
        """What an attempt's ranks left in their pages; those of nodes that do not answer are missing."""
        question = Question("pages", (attempt.job, str(attempt.number), str(since)), PAGES_SECONDS)
        return pages_of(self._backend.ask(attempt.nodes, question, self._stopped))

    def _tell(self, event: str, nodes: Sequence[str], verdicts: Sequence[NodeVerdict]) -> None:
        said = {verdict.node: verdict.fitness.value for verdict in verdicts}
        words = {node: said.get(node, Fitness.UNKNOWN.value) for node in nodes}
        reasons = {verdict.node: verdict.reason for verdict in verdicts if verdict.reason}
        text = ", ".join(f"{node} {word}" for node, word in words.items())
        self._journal.write(event, f"{event}: {text}", verdicts=words, reasons=reasons)


def verdicts_of(answers: Answers) -> list[NodeVerdict]:
    """The verdicts among the answers; what is none is passed over, and so its node unknown."""
    verdicts = []
    for node, said in answers.items():
        try:
            verdicts.append(NodeVerdict(node, Fitness(said["fitness"]), str(said["reason"])))
        except (ValueError, KeyError, TypeError):
            continue
    return verdicts
