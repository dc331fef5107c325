"""Starts processes again on nodes that a run has lost, once these are fit; they wait as spares, and an elastic job grows.

A node that was condemned stays away until the scheduler grants it again. Whether a node is fit may take seconds to learn, so a thread asks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.scheduler_backend import Attempt
from vocabulary.text.plurals import format_count

PAUSE_SECONDS_MAX = 600.0  # however often a node was lost
_LOOK_SECONDS = 0.25


class GrowingRun(Protocol):
    """What this needs of a `ElasticRun`."""

    @property
    def rank_nodes(self) -> Sequence[str]:
        """The node of each rank."""

    @property
    def condemned(self) -> Collection[str]:
        """Nodes that stay away."""

    @property
    def stopped(self) -> bool:
        """Whether there will be no further generation."""

    def vacant(self) -> dict[str, list[int]]:
        """Places by node in which no process lives."""

    def start_on(self, node: str, local_ranks: Sequence[int]) -> None:
        """Start processes in these places. Raises OSError."""


class ReturningNodes:
    """Of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        journal: LaunchJournal,
        fit: Callable[[Sequence[str]], Sequence[str]],
        pause_seconds: float,
        unused: Sequence[str] = (),
    ) -> None:
        """Prepare.

        Args:
            attempt: whose nodes they are.
            journal: is told which ones return.
            fit: which of these nodes are at hand and fit; may take seconds.
            pause_seconds: from the loss of a node until it is asked; twice as long after each further loss. 0: never.
            unused: further nodes of the allocation, which are taken while the job has fewer nodes than it wants.
        """
        self._attempt, self._journal, self._fit = attempt, journal, fit
        self._pause = pause_seconds
        self._unused = set(unused)
        self._added: set[str] = set()  # granted by the scheduler
        self._losses: Counter[str] = Counter()
        self._due: dict[str, float] = {}  # when to ask, by node
        self._look_at = 0.0
        self._asked: list[str] = []  # of the question that is out
        self._answer: list[Sequence[str]] = []  # and what came of it

    def add(self, node: str) -> None:
        """The scheduler has granted this node: processes start there as soon as it is fit."""
        self._added.add(node)
        self._due[node] = 0.0

    def close(self) -> None:
        """Nothing: a question that is out ends by itself."""

    def poll(self, run: GrowingRun, now: float) -> None:
        """Call often; returns at once."""
        if run.stopped or now < self._look_at or not (self._pause or self._added):
            return
        self._look_at = now + min(_LOOK_SECONDS, self._pause / 2 or _LOOK_SECONDS)
        vacant = self._vacant(run)
        if self._asked:
            if self._answer:
                self._take(run, vacant, now)
            return
        for node in vacant:
            if node not in self._due:
                self._losses[node] += 1
                self._due[node] = now + min(PAUSE_SECONDS_MAX, self._pause * 2.0 ** min(self._losses[node] - 1, 32))
        self._asked = [node for node in vacant if now >= self._due[node]]
        if self._asked:
            threading.Thread(target=self._ask, args=(tuple(self._asked),), name="returning-nodes", daemon=True).start()

    def _vacant(self, run: GrowingRun) -> dict[str, list[int]]:
        found = run.vacant() if self._pause else {}
        if self._attempt.elastic and len(set(run.rank_nodes)) < self._attempt.elastic[1]:
            found |= {node: list(range(self._attempt.tasks_per_node)) for node in sorted(self._unused)}
        found = {node: places for node, places in found.items() if node not in run.condemned}
        return found | {node: list(range(self._attempt.tasks_per_node)) for node in sorted(self._added)}

    def _ask(self, nodes: Sequence[str]) -> None:
        found: Sequence[str] = ()
        try:
            found = self._fit(nodes)
        finally:
            self._answer.append(found)

    def _take(self, run: GrowingRun, vacant: dict[str, list[int]], now: float) -> None:
        asked, fit = self._asked, self._answer.pop()
        self._asked = []
        for node in asked:
            if node not in fit or node not in vacant:
                self._due[node] = now + (self._pause or PAUSE_SECONDS_MAX)
                continue
            del self._due[node]
            self._unused.discard(node)
            self._added.discard(node)
            text = f"{node} has returned: {format_count(len(vacant[node]), 'process', 'processes')} there will wait for a rank"
            try:
                run.start_on(node, vacant[node])
            except OSError as error:
                text = f"{node} has returned, but no process can be started there: {error}"
            self._journal.write("node_returned", text, attempt=self._attempt.number, node=node)
