"""Tells the engine what no report says: who is silent, and where nodes stand by the topology file. A thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from pathlib import Path

from remediator.engine import Engine
from remediator.model.inputs import SilenceObserved, TopologyObserved
from remediator.roster import Roster
from remediator.topology import TopologyError, load_topology
from vocabulary.clock import Clock

log = logging.getLogger(__name__)
LOOK_S = 5.0


def silent_nodes(nodes: Iterable[str], roster: Roster, begun_at: float, now: float, after_s: float) -> dict[str, float]:
    """Which of `nodes` were not heard for longer than `after_s` and than they promised, and when they were last (UTC s).

    A term that began at `begun_at` has heard nobody before: a node that it has not heard is silent since then.
    """
    found = {}
    for node in nodes:
        entry = roster.get(node)
        last, patience = (entry.seen_at, max(after_s, entry.ttl_s)) if entry is not None else (begun_at, after_s)
        if now - last > patience:
            found[node] = last
    return found


class Lookout:
    """Looks every few seconds while this process leads, and speaks when the answer is another than last time."""

    def __init__(self, engine: Engine, roster: Roster, clock: Clock, after_s: float, topology: Path | None) -> None:
        self.problem = ""  # why the topology file as it is now is not in force
        self._engine = engine
        self._roster = roster
        self._clock = clock
        self._after_s = after_s
        self._topology = topology
        self._begun_at = clock.wall()
        self._silent: frozenset[str] | None = None
        self._placed: tuple[frozenset[str], float] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=LOOK_S)

    def look(self) -> None:
        """Look once."""
        nodes = frozenset(self._engine.snapshot.nodes)
        try:
            self._look_for_silence(nodes)
            self._look_at_topology(nodes)
        except queue.Full:
            log.warning("the engine's queue is full; it is told later")

    def _look_for_silence(self, nodes: frozenset[str]) -> None:
        now = self._clock.wall()
        found = silent_nodes(nodes, self._roster, self._begun_at, now, self._after_s)
        if frozenset(found) != self._silent:
            self._engine.submit(SilenceObserved(at=now, silent=found))
            self._silent = frozenset(found)

    def _look_at_topology(self, nodes: frozenset[str]) -> None:
        """The file counts as it is: a change of it does, and so does a node that its patterns have not met yet."""
        if self._topology is None:
            return
        try:
            seen = (nodes, self._topology.stat().st_mtime)
            if seen == self._placed:
                return
            places = load_topology(self._topology).of(nodes)
        except (TopologyError, OSError) as error:
            if self.problem != str(error):
                log.error("the topology file is not taken, what it said before stays in force: %s", error)
            self.problem = str(error)
            return
        self._engine.submit(TopologyObserved(at=self._clock.wall(), source="file", places=places))
        self._placed, self.problem = seen, ""

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("looking for what no report says failed")
            if self._stopping.wait(LOOK_S):
                return
