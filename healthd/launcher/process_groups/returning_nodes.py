"""Starts processes again on nodes that a run has lost, once these are fit; they wait as spares, and an elastic job grows.

A condemned node stays out until the scheduler grants it again. A query may take seconds, so a thread makes it.
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
_POLL_SECONDS = 0.25


class GrowingRun(Protocol):
    """The part of an `ElasticRun` that this needs."""

    @property
    def rank_nodes(self) -> Sequence[str]:
        """The node of each rank."""

    @property
    def condemned(self) -> Collection[str]:
        """Nodes that stay out."""

    @property
    def stopped(self) -> bool:
        """Whether there will be no further generation."""

    def vacant(self) -> dict[str, list[int]]:
        """Return the places without a process, by node."""

    def start_on(self, node: str, local_ranks: Sequence[int]) -> None:
        """Start processes in these places. Raises OSError."""


class ReturningNodes:
    """The returning nodes of one attempt."""

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
            journal: records which nodes return.
            fit: returns which of these nodes are available and fit; may take seconds.
            pause_seconds: from the loss of a node until it is queried; doubles after each further loss. 0: never.
            unused: further nodes of the allocation, used while the job has fewer nodes than it wants.
        """
        self._attempt, self._journal, self._fit = attempt, journal, fit
        self._pause = pause_seconds
        self._unused = set(unused)
        self._added: set[str] = set()  # granted by the scheduler
        self._losses: Counter[str] = Counter()
        self._due: dict[str, float] = {}  # when to query it, by node
        self._poll_at = 0.0
        self._pending: list[str] = []  # nodes in the pending query
        self._result: list[Sequence[str]] = []  # its result: the fit nodes

    def add(self, node: str) -> None:
        """Add a node that the scheduler has granted: processes start there as soon as it is fit."""
        self._added.add(node)
        self._due[node] = 0.0

    def close(self) -> None:
        """No-op; a pending query ends on its own."""

    def poll(self, run: GrowingRun, now: float) -> None:
        """Call often; returns at once."""
        if run.stopped or now < self._poll_at or not (self._pause or self._added):
            return
        self._poll_at = now + min(_POLL_SECONDS, self._pause / 2 or _POLL_SECONDS)
        vacant = self._vacant(run)
        if self._pending:
            if self._result:
                self._take(run, vacant, now)
            return
        for node in vacant:
            if node not in self._due:
                self._losses[node] += 1
                self._due[node] = now + min(PAUSE_SECONDS_MAX, self._pause * 2.0 ** min(self._losses[node] - 1, 32))
        self._pending = [node for node in vacant if now >= self._due[node]]
        if self._pending:
            threading.Thread(target=self._ask, args=(self._pending,), name="returning-nodes", daemon=True).start()

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
            self._result.append(found)

    def _take(self, run: GrowingRun, vacant: dict[str, list[int]], now: float) -> None:
        queried, fit = self._pending, self._result.pop()
        self._pending = []
        for node in queried:
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
