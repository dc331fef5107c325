"""Queries nodes and reports their answers: whether they are fit, and what an attempt's ranks left there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.launcher.decisions.relaunch_policy import Fitness, GateMode, NodeVerdict
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.rank_pages import RankPage, parse_rank_pages
from healthd.launcher.scheduler_backend import Answers, Attempt, Backend, NodeQuestion

GATE_SECONDS = 20.0
PAGES_SECONDS = 20.0
SILENT = "no answer from the node"
START_SECONDS = 30.0  # to start a preflight on every node, besides its own deadline


class NodeQueries:
    """One job's queries."""

    def __init__(
        self, job: JobDefinition, backend: Backend, journal: LaunchJournal, stopped: Callable[[], bool]
    ) -> None:
        self._job = job
        self._backend = backend
        self._journal = journal
        self._stopped = stopped
        self._proven: dict[str, NodeVerdict] = {}
        self._reporting: set[str] = set()  # nodes whose healthd has answered
        self._journalled: dict[tuple[str, str], NodeVerdict] = {}  # the last verdict, by topic and node

    def gate(self, nodes: Sequence[str], *, repeated: bool = False) -> list[NodeVerdict]:
        """Return each node's verdict from its own daemon; empty if the gate is off.

        Args:
            nodes: to query.
            repeated: query lost nodes every few seconds; verdicts are journalled only if one is new.
        """
        if self._job.gate is GateMode.OFF or not nodes:
            if self._job.gate is not GateMode.OFF:
                self._journal.write("gate", "gate: no node remains to query", verdicts={}, reasons={})
            return []
        question = NodeQuestion("gate", (self._job.socket_template,), GATE_SECONDS)
        verdicts = self._ask("gate", nodes, question, repeated=repeated)
        self._reporting |= {verdict.node for verdict in verdicts if verdict.fitness is not Fitness.UNKNOWN}
        return verdicts

    def mark_silent_nodes_unfit(self, verdicts: Sequence[NodeVerdict]) -> list[NodeVerdict]:
        """Return the gate's verdicts; a node whose healthd answered before and does not now is unfit: it may be off."""
        return [
            verdict._replace(fitness=Fitness.UNFIT, reason="healthd stopped answering")
            if verdict.fitness is Fitness.UNKNOWN and verdict.node in self._reporting
            else verdict
            for verdict in verdicts
        ]

    def list_unfit_nodes(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """Return the nodes that the gate calls unfit now; queried while ranks run, without output."""
        if self._job.gate is GateMode.OFF:
            return []
        question = NodeQuestion("gate", (self._job.socket_template,), GATE_SECONDS)
        verdicts = parse_verdicts(self._backend.ask(nodes, question, self._stopped))
        return [verdict for verdict in verdicts if verdict.fitness is Fitness.UNFIT]

    def preflight(self, nodes: Sequence[str]) -> list[NodeVerdict]:
        """Return the nodes' preflight verdicts. Each node is tested once; one that did not answer is queried again."""
        new = [node for node in nodes if node not in self._proven]
        if self._job.preflight and new:
            seconds = self._job.preflight_seconds
            question = NodeQuestion("preflight", (f"{seconds:g}", *self._job.preflight), seconds + START_SECONDS)
            self._journal.write("preflight_started", f"preflight of {', '.join(new)}", nodes=new)
            verdicts = self._ask("preflight", new, question)
            self._proven |= {verdict.node: verdict for verdict in verdicts if verdict.reason != SILENT}
        return [self._proven[node] for node in nodes if node in self._proven]

    def pages(self, attempt: Attempt, since: float) -> list[RankPage]:
        """Return the page contents that an attempt's ranks left; those of silent nodes are missing."""
        question = NodeQuestion("rank_pages", (attempt.job, str(attempt.number), str(since)), PAGES_SECONDS)
        return parse_rank_pages(self._backend.ask((*attempt.nodes, *attempt.spares), question, self._stopped))

    def _ask(
        self, topic: str, nodes: Sequence[str], question: NodeQuestion, *, repeated: bool = False
    ) -> list[NodeVerdict]:
        """Return a verdict per node: a silent node is unknown."""
        said = {verdict.node: verdict for verdict in parse_verdicts(self._backend.ask(nodes, question, self._stopped))}
        verdicts = [said.get(node) or NodeVerdict(node, Fitness.UNKNOWN, SILENT) for node in nodes]
        known = all(self._journalled.get((topic, verdict.node)) == verdict for verdict in verdicts)
        if repeated and known:
            return verdicts
        self._journalled |= {(topic, verdict.node): verdict for verdict in verdicts}
        words = {verdict.node: verdict.fitness.value for verdict in verdicts}
        reasons = {verdict.node: verdict.reason for verdict in verdicts if verdict.reason}
        self._journal.write(
            topic,
            f"{topic}: {', '.join(_describe_verdict(topic, verdict) for verdict in verdicts)}",
            verdicts=words,
            reasons=reasons,
        )
        return verdicts


def parse_verdicts(answers: Answers) -> list[NodeVerdict]:
    """Return the valid verdicts; an invalid one is skipped, so its node is unknown."""
    verdicts = []
    for node, said in answers.items():
        try:
            verdicts.append(NodeVerdict(node, Fitness(said["fitness"]), str(said["reason"])))
        except (ValueError, KeyError, TypeError):
            continue
    return verdicts


def _describe_verdict(topic: str, verdict: NodeVerdict) -> str:
    """Describe a node's fitness, with the reason where it helps; a silent healthd is reported elsewhere."""
    plain = verdict.fitness is Fitness.FIT or (topic == "gate" and verdict.fitness is Fitness.UNKNOWN)
    reason = "" if plain or not verdict.reason else f" ({verdict.reason})"
    return f"{verdict.node} {verdict.fitness.value}{reason}"
