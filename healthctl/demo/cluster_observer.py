"""Observes the demo through the remediator's audit log, the launcher's journal and the ranks' beacons.

Adds everything new to the timeline; takes no action.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from healthctl.api_client.remediator_client import ServerUnreachable
from healthctl.demo.demo_cluster import DemoCluster
from healthctl.demo.timeline import Timeline, TrainingProgress
from healthctl.demo.training_jobs import Job, Training
from healthctl.exit_codes import Failure
from healthctl.process_supervision.supervised_programs import ProgramError
from healthd.trainer.beacons.page_reader import BeaconView, read_all_pages
from remediator.model.views import EventList, EventView

POLL_S = 0.05


Start = tuple[int, int]  # an attempt, and the generation of its process group
UNTOLD = frozenset({"node_joined", "action_planned", "incident_opened"})
BEFORE = frozenset({"token_issued", "policy"})  # events of the startup, which the demo has already reported
TRAINER_ORDERS = {
    "checkpoint_then_eject": "save and leave",
    "checkpoint_then_stop": "save and stop",
    "revert": "go back",
    "abort": "abort",
}


class LaunchEvent(msgspec.Struct, frozen=True):
    """One line of the launcher's journal."""

    at: float
    event: str
    text: str
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    outcome: str = ""
    condemned: tuple[str, ...] = ()
    generation: int = 0
    before: str = ""
    lost: int | None = 0

    @property
    def start(self) -> Start:
        """The process group of this event."""
        return self.attempt, self.generation


class ClusterObserver:
    """Polls the sources, updates the timeline, and waits for conditions."""

    def __init__(self, cluster: DemoCluster, job: Job, training: Training, timeline: Timeline) -> None:
        self.events: list[EventView] = []
        self.launches: list[LaunchEvent] = []
        self.ranks: dict[str, BeaconView] = {}
        self.first_step_at: dict[Start, float] = {}
        self._cluster = cluster
        self._server = cluster.server
        self._job = job
        self._training = training
        self._timeline = timeline
        self._journal = cluster.workdir / "launcher.jsonl"
        self._read_bytes = 0
        self._furthest = -1
        self._told: set[tuple[str, str]] = set()

    @property
    def attempt(self) -> int:
        """The newest attempt of any running rank; 0 for none."""
        return max((view.identity.attempt for view in self.ranks.values()), default=0)

    @property
    def step(self) -> int:
        """The step that every rank of the newest attempt has at least started; -1 until all of them run."""
        if len(self.ranks) < self._training.nodes:
            return -1
        return min(view.state.step for view in self.ranks.values())

    def training_on(self, attempt: int, step: int = 0) -> bool:
        """Whether `attempt`, or a later one, is past `step`."""
        return self.attempt >= attempt and self.step >= step

    def happened(self, kind: str, node: str = "", *, verb: str = "", words: str = "") -> bool:
        """Whether the audit log contains such an event."""
        return any(
            event.kind == kind
            and node in ("", event.node)
            and verb in ("", event.data.get("verb", ""))
            and words in event.text
            for event in self.events
        )

    def until(self, ready: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Poll until `ready()`.

        Raises:
            ProgramError: not within `deadline_s`; names `what` was awaited.
        """
        end = time.monotonic() + deadline_s
        while True:
            self.poll_once()
            if ready():
                return
            if time.monotonic() > end:
                raise ProgramError(f"waited {deadline_s:g} s for {what}")
            time.sleep(POLL_S)

    def poll_once(self) -> None:
        """Read everything new, once."""
        self._job.look_after()
        self._look_at_ranks()
        self._look_at_launcher()
        self._look_at_audit_log()
        nodes = tuple(node for node in self._cluster.nodes if node in self.ranks)
        self._furthest = self.step if self.step >= 0 else self._furthest
        note = "" if nodes else "no rank runs"
        self._timeline.progress(TrainingProgress(self._furthest, self._training.steps, nodes, note))

    def _look_at_ranks(self) -> None:
        views: dict[str, BeaconView] = {}
        for node in self._cluster.nodes:
            found, _ = read_all_pages(str(self._cluster.beacon_dir(node)))
            for view in found:
                if view.alive and view.identity.attempt >= views.get(node, view).identity.attempt:
                    views[node] = view
        newest = max((view.identity.attempt for view in views.values()), default=0)
        self.ranks = {node: view for node, view in views.items() if view.identity.attempt == newest}
        if self.step >= 0 and (newest, 0) not in self.first_step_at:
            self.first_step_at[newest, 0] = time.time()
            where = " ".join(sorted(self.ranks))
            self._timeline.add("trainer", "training", f"attempt {newest} trains from step {self.step} on {where}")

    def _look_at_launcher(self) -> None:
        for line in read_new_lines(self._journal, self._read_bytes):
            self._read_bytes += len(line)
            event = parse_launch_event(line)
            if event is not None:
                self.launches.append(event)
                if event.event == "swapped":
                    self.first_step_at[event.start] = event.at
                self._timeline.add("launcher", event.event, event.text, at=event.at)

    def _look_at_audit_log(self) -> None:
        after = self.events[-1].seq if self.events else 0
        try:
            found = self._server.get("/v1/events", EventList, after=after).events
        except ServerUnreachable:
            return  # it was killed, and restarts
        except Failure as error:
            raise ProgramError(str(error.message)) from error
        for event in found:
            self.events.append(event)
            self._tell(event)

    def _tell(self, event: EventView) -> None:
        """Deduplicate events that arrive from each node of a job, so that an order is reported once."""
        text = format_event(event)
        whole_job = event.data.get("verb") in TRAINER_ORDERS
        if text is None or (whole_job and (event.incident, text) in self._told):
            return
        self._told.add((event.incident, text))
        node = "" if whole_job else event.node
        self._timeline.add("remediator", event.kind, text, node=node, at=event.at, injected=event.injected)


def find_start_without_node(launches: Sequence[LaunchEvent], node: str) -> Start | None:
    """The last process group with a rank on `node`, once the job is known to continue without it; None until then.

    The job continues if a spare took the rank's place, or if the launcher condemned the node and started the next attempt
    without it, or found too few nodes.
    """
    last: Start | None = None
    over = False
    for event in launches:
        if event.event == "attempt_started":
            if node in event.nodes:
                last, over = event.start, False
            elif over:
                return last
        elif event.event == "rank_replaced" and event.before == node:
            return event.attempt, event.generation - 1
        elif event.event == "attempt_ended" and last is not None and event.attempt == last[0]:
            over = True
            if node in event.condemned:
                return last
        elif event.event in {"requeued", "stopped"} and over:
            return last
    return None


def read_new_lines(path: Path, offset: int) -> list[bytes]:
    """The complete lines of a growing file from `offset` on; none while the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    except FileNotFoundError:
        return []


def parse_launch_event(line: bytes) -> LaunchEvent | None:
    """Parse a line of the launcher's journal; None for a truncated one."""
    try:
        document: dict[str, Any] = json.loads(line)
        return msgspec.convert(document, LaunchEvent)
    except (ValueError, msgspec.ValidationError):
        return None


def format_event(event: EventView) -> str | None:
    """One line without the node's name, which has its own column."""
    if event.kind in UNTOLD | BEFORE:
        return None
    if event.kind in {"order_progress", "action_ended"} and event.data.get("verb") in TRAINER_ORDERS:
        return _format_order_event(event)
    text = event.text.removeprefix(f"{event.node}: ")
    for words in (f" of {event.node}", f" on {event.node}") if event.node else ():
        text = text.replace(words, "")
    if event.kind == "node_state":
        return None if "→ suspect" in text else f"node: {text.partition(' (')[0]}"
    if event.kind == "decision":
        return f"decision: {text.partition(' ')[2]}"
    return text


def _format_order_event(event: EventView) -> str | None:
    """Format an order that all ranks of a job share; it is reported once, so it contains nothing node-specific."""
    name = TRAINER_ORDERS[str(event.data["verb"])]
    _, _, result = event.text.partition(f" of {event.node} ")
    if event.kind == "action_ended" and not result.startswith("succeeded"):
        return f"order '{name}' to {event.node} {result}"
    if "saved_at" in event.data:
        return f"order '{name}': the checkpoint is complete"
    if event.kind == "action_ended":
        return None
    if "agreed_step" in event.data:
        return f"order '{name}': all ranks agree on step {event.data['agreed_step']}"
    return f"order '{name}' is in the ranks' mailboxes" if "mailbox_at" in event.data else None
