"""Reports to the engine what no node reports: silent nodes, and node locations by file and by scheduler. Own thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from remediator.engine.decision_engine import DecisionEngine
from remediator.fleet.report_registry import ReportRegistry
from remediator.fleet.topology_file import TopologyError, load_topology
from remediator.incidents.silent_nodes import reported_silent_nodes
from remediator.model.node_location import BACKEND, FILE, NodeLocation
from remediator.model.pipeline_inputs import SilenceObserved, TopologyObserved
from remediator.schedulers.scheduler_protocol import ReportsLocations
from vocabulary.clock import Clock

log = logging.getLogger(__name__)
LOOK_S = 5.0
PATIENCE_S = 300.0  # how long the topology file waits for a backend that cannot be queried
PLACES_S = 60.0  # how often the scheduler is queried for node locations
PARTS = ("silence", "scheduler", "topology")  # parts of one pass
GROWING_S = 20.0  # longer than it takes to miss, one by one, nodes that fell silent together


def find_silent_nodes(
    nodes: Iterable[str],
    registry: ReportRegistry,
    begun_at: float,
    now: float,
    after_s: float,
    before: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Find nodes silent for longer than `after_s` and than their announced interval, with last times (UTC s).

    A term that began at `begun_at` has received nothing before: a node without a report in it counts as silent since
    then, or since the time in `before`. A new leader's missing history is no sign of life.
    """
    found = {}
    for node in nodes:
        entry = registry.get(node)
        if entry is None and node in before:
            found[node] = before[node]
            continue
        last, patience = (entry.seen_at, max(after_s, entry.ttl_s)) if entry is not None else (begun_at, after_s)
        if now - last > patience:
            found[node] = last
    return found


class FleetObserver:
    """Runs a pass every few seconds while this process leads, and submits an input when the result has changed."""

    def __init__(
        self,
        engine: DecisionEngine,
        registry: ReportRegistry,
        clock: Clock,
        after_s: float,
        topology: Path | None,
        backend: ReportsLocations | None = None,
    ) -> None:
        self.problem = ""  # why the current topology file is not in force
        self.failing: dict[str, bool] = dict.fromkeys(PARTS, False)  # parts whose last pass ended in an internal error
        self._engine = engine
        self._report_registry = registry
        self._clock = clock
        self._after_s = after_s
        self._topology = topology
        self._backend = backend
        self._backend_said: dict[str, NodeLocation] | None = None
        self._ask_at = clock.monotonic()
        self._wait_until = clock.monotonic() + (PATIENCE_S if backend is not None else 0.0)
        self._begun_at = clock.wall()
        self._silent: frozenset[str] | None = None  # as last submitted
        self._seen: frozenset[str] = frozenset()  # as last observed
        self._growing_since: float | None = None  # monotonic
        self._placed: tuple[frozenset[str], float] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-observer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=LOOK_S)

    def poll_once(self) -> None:
        """Run one pass. A part that fails does not stop the others."""
        nodes = frozenset(self._engine.snapshot.nodes)
        self._part("silence", lambda: self._look_for_silence(nodes))
        self._part("scheduler", self._ask_backend)
        self._part("topology", lambda: self._look_at_topology(nodes))

    def _part(self, name: str, look: Callable[[], None]) -> None:
        try:
            look()
        except queue.Full:
            log.warning("the engine's queue is full; the %s pass is submitted later", name)
        except Exception:
            if not self.failing[name]:
                log.exception("the check of %s failed, its last result stays in force; please report it", name)
            self.failing[name] = True
        else:
            self.failing[name] = False

    def _look_for_silence(self, nodes: frozenset[str]) -> None:
        now, known = self._clock.wall(), self._engine.snapshot
        before = reported_silent_nodes(known.findings.values(), known.incidents.values())
        found = find_silent_nodes(nodes, self._report_registry, self._begun_at, now, self._after_s, before)
        names = frozenset(found)
        if names != self._silent and not self._still_grows(names):
            self._engine.submit(SilenceObserved(at=now, silent=found))
            self._silent = names

    def _still_grows(self, names: frozenset[str]) -> bool:
        """Return whether the set of silent nodes still grows.

        Nodes that lose power or network together are missed within seconds of each other; submitted at once, each would
        be alone.
        """
        more, self._seen = names - self._seen, names
        now = self._clock.monotonic()
        since = now if self._growing_since is None else self._growing_since
        grows = bool(more) and self._silent is not None and now - since < GROWING_S
        self._growing_since = since if grows else None
        return grows

    def _ask_backend(self) -> None:
        """Query the backend. Its last answer stays in force while it cannot be reached."""
        now = self._clock.monotonic()
        if self._backend is None or now < self._ask_at:
            return
        self._ask_at = now + PLACES_S
        places = self._backend.places()
        if places is not None and places != self._backend_said:
            self._engine.submit(TopologyObserved(at=self._clock.wall(), source=BACKEND, places=places))
            self._backend_said = places

    def _look_at_topology(self, nodes: frozenset[str]) -> None:
        """Submit the topology file's locations when the file, or the set of nodes, has changed.

        A new term does not know which source a location came from, and earlier locations last until the file is read: a
        location that only a broken file gave is unknown to the backend. So the file waits a while for a backend that
        cannot be queried, or nodes would lose a rack that only the backend knew. A file that does not exist is reported
        once the backend has answered.
        """
        if self._topology is None:
            if self._backend_said is not None and self._placed is None:
                self._engine.submit(TopologyObserved(at=self._clock.wall(), source=FILE, places={}))
                self._placed = (frozenset(), 0.0)
            return
        if self._backend_said is None and self._clock.monotonic() < self._wait_until:
            return
        try:
            seen = (nodes, self._topology.stat().st_mtime)
            if seen == self._placed:
                return
            places = load_topology(self._topology).of(nodes)
        except (TopologyError, OSError) as error:
            if self.problem != str(error):
                log.error("the topology file is invalid, the last valid one stays in force: %s", error)
            self.problem = str(error)
            return
        self._engine.submit(TopologyObserved(at=self._clock.wall(), source=FILE, places=places))
        self._placed, self.problem = seen, ""

    def _run(self) -> None:
        while True:
            self.poll_once()
            if self._stopping.wait(LOOK_S):
                return
