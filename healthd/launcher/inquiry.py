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
SILENT = "no answer from the node"
START_SECONDS = 30.0  # for a preflight to be started on every node, besides its own deadline


class Inquiry:
    """One job's questions."""

    def __init__(self, job: Job, backend: Backend, journal: Journal, stopped: Callable[[], bool]) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._stopped = stopped
        self._proven: dict[str, NodeVerdict] = {}

    def gate(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """What each node's own daemon says of it; nobody is asked where the gate is off."""
        if self._job.gate is Gate.OFF or not nodes:
            if self._job.gate is not Gate.OFF:
                self._journal.write("gate", "gate: no node left to ask", verdicts={}, reasons={})
            return []
        question = Question("gate", (self._job.socket_template,), GATE_SECONDS)
        return self._ask("gate", nodes, question)

    def unfit_by_now(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """Who is unfit by now, as the gate has it; asked while ranks run, and told to nobody."""
        if self._job.gate is Gate.OFF:
            return []
        question = Question("gate", (self._job.socket_template,), GATE_SECONDS)
        verdicts = verdicts_of(self._backend.ask(nodes, question, self._stopped))
        return [verdict for verdict in verdicts if verdict.fitness is Fitness.UNFIT]

    def preflight(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """What their preflight says of these nodes. Each is proven once; one that did not answer is asked again."""
        new = [node for node in nodes if node not in self._proven]
        if self._job.preflight and new:
            seconds = self._job.preflight_seconds
            question = Question("preflight", (f"{seconds:g}", *self._job.preflight), seconds + START_SECONDS)
            self._journal.write("preflight_started", f"preflight of {', '.join(new)}", nodes=new)
            verdicts = self._ask("preflight", new, question)
            self._proven |= {verdict.node: verdict for verdict in verdicts if verdict.reason != SILENT}
        return [self._proven[node] for node in nodes if node in self._proven]

    def pages(self, attempt: Attempt, since: float) -> list[RankPage]:
        """What an attempt's ranks left in their pages; those of nodes that do not answer are missing."""
        question = Question("pages", (attempt.job, str(attempt.number), str(since)), PAGES_SECONDS)
        return pages_of(self._backend.ask((*attempt.nodes, *attempt.spares), question, self._stopped))

    def _ask(self, topic: str, nodes: Sequence[str], question: Question) -> list[NodeVerdict]:
        """A verdict of each node: who does not answer is unknown."""
        said = {verdict.node: verdict for verdict in verdicts_of(self._backend.ask(nodes, question, self._stopped))}
        verdicts = [said.get(node) or NodeVerdict(node, Fitness.UNKNOWN, SILENT) for node in nodes]
        words = {verdict.node: verdict.fitness.value for verdict in verdicts}
        reasons = {verdict.node: verdict.reason for verdict in verdicts if verdict.reason}
        self._journal.write(
            topic,
            f"{topic}: {', '.join(_words(topic, verdict) for verdict in verdicts)}",
            verdicts=words,
            reasons=reasons,
        )
        return verdicts


def verdicts_of(answers: Answers) -> list[NodeVerdict]:
    """The verdicts among the answers; what is none is passed over, and so its node unknown."""
    verdicts = []
    for node, said in answers.items():
        try:
            verdicts.append(NodeVerdict(node, Fitness(said["fitness"]), str(said["reason"])))
        except (ValueError, KeyError, TypeError):
            continue
    return verdicts


def _words(topic: str, verdict: NodeVerdict) -> str:
    """A node and its fitness; with the reason where people should read it. That healthd is silent is said often enough."""
    plain = verdict.fitness is Fitness.FIT or (topic == "gate" and verdict.fitness is Fitness.UNKNOWN)
    reason = "" if plain or not verdict.reason else f" ({verdict.reason})"
    return f"{verdict.node} {verdict.fitness.value}{reason}"
