"""Gives a run's condemned nodes back to the scheduler, and asks it for others, while the run goes on.

The scheduler may take seconds to answer and hours to grant a node, so threads ask. What a thread has learnt is recorded
at the next `poll`.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.scheduler_backend import Attempt, BackendError

LOOK_SECONDS = 2.0
RELEASE_TRIES = 30  # Slurm changes a job's size again only once its accounting has recorded the last change
REFUSED_SECONDS, REFUSED_SECONDS_MAX = 30.0, 1800.0  # between requests; a slurmctld that restarts refuses as well
STAY_SECONDS = 60.0  # a process that cannot be killed, in a driver call, keeps its node in the allocation no longer


class ResizableAllocation(Protocol):
    """The scheduler's side. Every call may take seconds."""

    def nodes(self) -> Sequence[str]:
        """The nodes of the allocation now."""

    def release(self, node: str) -> None:
        """Give a node back. Raises BackendError: it stays."""

    def request_node(self, stopped: Callable[[], bool]) -> str | None:
        """Wait for one more node; None once `stopped`. Raises BackendError: there will be none."""


class ShrinkingRun(Protocol):
    """What this needs of an `ElasticRun`."""

    @property
    def condemned(self) -> Collection[str]:
        """Nodes that are not used any more."""

    @property
    def stopped(self) -> bool:
        """Whether there will be no further generation."""

    def living_nodes(self) -> Collection[str]:
        """Nodes on which a process lives."""

    def vacant(self) -> dict[str, list[int]]:
        """Places by node in which no process lives; none on condemned nodes."""


class NodeReplacement:
    """Of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        journal: LaunchJournal,
        allocation: ResizableAllocation,
        add: Callable[[str], None],
        asked_to_stop: Callable[[], bool],
    ) -> None:
        """Prepare.

        Args:
            attempt: whose nodes they are.
            journal: of the job.
            allocation: the job's.
            add: takes a node that was granted.
            asked_to_stop: whether the job is about to end.
        """
        self._attempt, self._journal, self._allocation, self._add = attempt, journal, allocation, add
        self._asked_to_stop = asked_to_stop
        self._least = attempt.elastic[0] if attempt.elastic else len(attempt.nodes)
        self._ended = False
        self._look_at = 0.0
        self._condemned_at: dict[str, float] = {}
        self._settled: set[str] = set()  # nodes that were given back, or must stay
        self._tries: Counter[str] = Counter()  # to give a node back
        self._missing: set[str] = set()  # nodes that the job has lost for good, and that nobody has replaced
        self._replaced: set[str] = set()
        self._fresh: set[str] = set()  # nodes that were condemned, and are granted again
        self._looking = self._requesting = False
        self._request_at, self._refusals, self._refusal = 0.0, 0, ""
        self._news: deque[Callable[[], None]] = deque()  # of the threads, for the thread that polls

    def poll(self, run: ShrinkingRun, now: float) -> None:
        """Call often; returns at once."""
        while self._news:
            self._news.popleft()()
        if run.stopped or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        self._fresh &= set(run.condemned)
        condemned, living = set(run.condemned) - self._fresh, run.living_nodes()
        for node in condemned:
            self._condemned_at.setdefault(node, now)
        self._missing |= condemned - self._replaced
        free = [
            node
            for node in sorted(condemned - self._settled)
            if node not in living or now - self._condemned_at[node] >= STAY_SECONDS
        ]
        vacant = [node for node in run.vacant() if node not in self._missing | self._replaced]
        if (free or vacant) and not self._looking:
            self._looking = True
            self._start(self._look, free, vacant, condemned)
        tried = condemned <= self._settled | self._tries.keys()  # first back, then on: see RELEASE_TRIES
        if self._missing and tried and not self._requesting and now >= self._request_at:
            self._requesting = True
            self._start(self._request, now)

    def close(self) -> None:
        """The attempt has ended: a request that waits is withdrawn."""
        self._ended = True

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name="node-replacement", daemon=True).start()

    def _look(self, free: Sequence[str], vacant: Sequence[str], condemned: Collection[str]) -> None:
        """Give back what the job can spare, and find what the scheduler has taken."""
        try:
            here = self._allocation.nodes()
            gone = {node for node in vacant if node not in here}
            self._news.append(lambda: self._missing.update(gone))
            left = [node for node in here if node not in condemned]
            for node in free:
                if node not in here:
                    self._settled.add(node)
                else:
                    self._tries[node] += 1
                    if len(left) >= self._least:  # else a requeue would bring the job back with too few
                        self._release(node)
        finally:
            self._looking = False

    def _release(self, node: str) -> None:
        try:
            self._allocation.release(node)
        except BackendError as error:
            if self._tries[node] < RELEASE_TRIES:
                return
            self._note("node_kept", f"{node} is condemned but stays in the job's allocation: {error}", node=node)
        else:
            self._note("node_released", f"{node} was given back to the scheduler: it can be repaired now", node=node)
        self._settled.add(node)

    def _request(self, now: float) -> None:
        try:
            if not self._refusals:
                self._note("node_requested", "the scheduler was asked for another node")
            node = self._allocation.request_node(lambda: self._ended or self._asked_to_stop())
            if node is not None:
                self._news.append(lambda: self._take(node))
                self._note("node_granted", f"the scheduler has granted {node}: spare processes start there", node=node)
        except BackendError as error:
            if str(error) != self._refusal:
                self._note("node_refused", f"the scheduler grants no other node now; the launcher asks again: {error}")
            self._refusal = str(error)
            self._request_at = now + min(REFUSED_SECONDS * 2.0 ** min(self._refusals, 16), REFUSED_SECONDS_MAX)
            self._refusals += 1
            self._requesting = False

    def _take(self, node: str) -> None:
        """A node was granted, perhaps one that was given back and repaired."""
        replaced = node if node in self._missing else min(self._missing, default=node)
        self._missing.discard(replaced)
        self._replaced.add(replaced)
        self._replaced.discard(node)
        self._settled.discard(node)
        self._tries.pop(node, None)
        self._condemned_at.pop(node, None)
        self._fresh.add(node)
        self._requesting = False
        self._refusals, self._refusal = 0, ""
        self._add(node)

    def _note(self, kind: str, text: str, **facts: object) -> None:
        attempt = self._attempt.number
        self._news.append(lambda: self._journal.write(kind, text, attempt=attempt, **facts))
