"""Judges what nodes report together, in a thread of its own beside the deciding one, and hands it what is news."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYetWritten

from remediator.engine import Engine, Snapshot
from remediator.model.inputs import VerdictsReached
from remediator.model.records import JobRef
from remediator.roster import Entry, Roster
from remediator.store.database import StoreError
from remediator.watch import slow, stuck
from remediator.watch.conclusions import origin_of
from remediator.watch.job import JobWatch, Known, by_job
from remediator.watch.leftovers import ended
from remediator.watch.timings import Heard
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.wire import RankStatus

log = logging.getLogger(__name__)
LOOK_S = 2.0
WRITTEN_WITHIN_S = 30.0
HEARD_ALL_S = 600.0  # into a term: a job that no node has told of by then has ended under another leader
JOBS_PER_NODE = 16
SOURCES = (slow.SOURCE, stuck.SOURCE)


class Watcher:
    """Looks every few seconds while this process leads."""

    def __init__(
        self, engine: Engine, roster: Roster, clock: Clock, lemons: Callable[[Snapshot, float], tuple[Finding, ...]]
    ) -> None:
        """Args: `lemons` judges the past of all nodes, when it is time to; the others are what `Term` has."""
        self._engine = engine
        self._roster = roster
        self._clock = clock
        self._lemons = lemons
        self._jobs: dict[JobRef, JobWatch] = {}
        self._seen: dict[str, Entry] = {}
        self._known: tuple[Snapshot, Known] | None = None
        self._begun_at = clock.wall()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=WRITTEN_WITHIN_S)

    def look(self) -> None:
        """Look once; what is news is written when this returns, or told again at the next look."""
        now, snapshot = self._clock.wall(), self._engine.snapshot
        if self._known is None or self._known[0] is not snapshot:
            self._known = snapshot, Known(snapshot.findings.values())
        known = self._known[1]
        self._listen(snapshot)
        news: list[Finding] = []
        for job in self._jobs.values():
            if self._stopping.is_set():
                return
            news += job.judge(known, self._speaks, now)
        over = [ref for ref, job in self._jobs.items() if not job.lives(now)]
        for ref in over:
            del self._jobs[ref]
        news += self._ended(known, over, now)
        news += self._lemons(snapshot, now)
        if news:
            self._tell(tuple(news), now)

    def _listen(self, snapshot: Snapshot) -> None:
        """Hand the jobs what nodes have said since the last look."""
        words: dict[JobRef, list[Heard]] = {}
        for name in snapshot.nodes:
            entry, before = self._roster.get(name), self._seen.get(name)
            if entry is None or entry is before:
                continue
            self._seen[name] = entry
            told: dict[JobRef, list[RankStatus]] = {}
            for rank in sorted(entry.ranks, key=lambda rank: not rank.alive):
                ref = JobRef(rank.job, rank.attempt)
                if ref in told or len(told) < JOBS_PER_NODE:
                    told.setdefault(ref, []).append(rank)
            for ref, ranks in told.items():
                words.setdefault(ref, []).append(Heard(name, ranks, entry.seen_at, entry.sent_at))
            if before is not None:
                for ref in {JobRef(rank.job, rank.attempt) for rank in before.ranks} - told.keys():
                    if ref in self._jobs:
                        self._jobs[ref].words.pop(name, None)
        by_job(words, self._jobs)

    def _speaks(self, node: str) -> bool:
        entry = self._roster.get(node)
        return entry is not None and self._clock.wall() - entry.seen_at <= entry.ttl_s

    def _ended(self, known: Known, over: list[JobRef], now: float) -> tuple[Finding, ...]:
        living = {origin_of(source, ref) for ref in self._jobs for source in SOURCES}
        gone = {origin_of(source, ref) for ref in over for source in SOURCES}
        sure = now - self._begun_at > HEARD_ALL_S
        origins = [origin for origin in known.of_origin if origin not in living and (sure or origin in gone)]
        return ended((finding for origin in origins for finding in known.of_origin[origin]), now)

    def _tell(self, findings: tuple[Finding, ...], now: float) -> None:
        """Each conclusion is an input, and so in the journal before anything follows from it."""
        try:
            self._engine.submit_durably(VerdictsReached(at=now, findings=findings)).result(WRITTEN_WITHIN_S)
        except (queue.Full, NotYetWritten, StoreError) as error:
            log.warning("%d conclusions are told later: %s", len(findings), str(error) or type(error).__name__)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.exception("judging what nodes report together failed")
