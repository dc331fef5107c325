"""The demo scenario: a job trains, two nodes fail in two ways, the job continues, one node returns.

Faults are injected at observed training steps, never after a time, so that slow machines show the same sequence.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

import msgspec

from healthctl.demo.cluster_observer import ClusterObserver, find_start_without_node
from healthctl.demo.demo_cluster import DemoCluster
from healthctl.demo.faults import FaultLine
from healthctl.demo.timeline import Timeline
from healthctl.demo.training_jobs import Job, Training, start_reference
from healthctl.process_supervision.supervised_programs import ProgramError

FIRST_FAULT_STEP = 25
STEP_DEADLINE_S = 240.0  # generous, for a machine with much other load; nothing waits longer than it must
RELAUNCH_DEADLINE_S = 240.0
REQUEUE_DEADLINE_S = 240.0
RETURN_DEADLINE_S = 240.0
GRACEFUL, ABORT, WITNESS = 0, 1, 2  # node indices; the third node trains in every attempt

# Named points of the scenario, in order, and the node whose daemon a kill test kills there.
POINTS = {
    "training": GRACEFUL,
    "graceful-fault": GRACEFUL,
    "graceful-ordered": GRACEFUL,
    "relaunched": ABORT,
    "abort-fault": ABORT,
    "abort-ordered": ABORT,
    "requeued": WITNESS,
    "resumed": WITNESS,
    "testing": GRACEFUL,
}
TARGETS = ("healthd", "remediator", "rank")


class KillPoint(msgspec.Struct, frozen=True):
    """SIGKILL of one process at one point of the scenario; `node` counts from 0."""

    target: Literal["healthd", "remediator", "rank"]
    point: str
    node: int


def parse_kill(text: str) -> KillPoint:
    """Parse ``TARGET@POINT`` or ``TARGET:N@POINT``, N counting from 1.

    Raises:
        ValueError: names the mistake and the valid values.
    """
    what, _, point = text.partition("@")
    target, _, node = what.partition(":")
    if target not in TARGETS or point not in POINTS or node not in {"", "1", "2", "3", "4", "5"}:
        raise ValueError(
            f"{text!r}: write TARGET[:N]@POINT; targets: {', '.join(TARGETS)}; points: {', '.join(POINTS)}"
        )
    number = int(node) - 1 if node else WITNESS if target == "rank" else POINTS[point]
    return KillPoint(target, point, number)  # type: ignore[arg-type]  # just checked


class Scenario:
    """Runs the scenario once."""

    def __init__(
        self,
        cluster: DemoCluster,
        job: Job,
        training: Training,
        watch: ClusterObserver,
        timeline: Timeline,
        kill: KillPoint | None,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._training = training
        self._watch = watch
        self._timeline = timeline
        self._kill = kill
        self._graceful_node, self._abort_node = cluster.nodes[GRACEFUL], cluster.nodes[ABORT]

    def play(self) -> None:
        """Run all chapters.

        Raises:
            ProgramError: a chapter was not reached in time.
        """
        self._train()
        self._graceful()
        self._abort()
        self._return()

    def _train(self) -> None:
        self._timeline.headline("A job trains on three nodes; spares wait on two more")
        self._timeline.add("demo", "submitted", f"job {self._job.submit()}: {self._training.steps} steps")
        watch = self._watch
        watch.until(lambda: watch.training_on(1), STEP_DEADLINE_S, "the job's first step")
        start_reference(self._cluster, self._training)  # now that the processors have little to do
        self._point("training")
        watch.until(lambda: watch.step >= FIRST_FAULT_STEP, STEP_DEADLINE_S, f"step {FIRST_FAULT_STEP}")

    def _graceful(self) -> None:
        self._timeline.headline("A GPU degrades: a spare replaces its rank")
        watch = self._watch
        self._strike(self._graceful_node, self._cluster.faults.worn(self._graceful_node))
        self._point("graceful-fault")
        watch.until(lambda: self._ordered(self._graceful_node), STEP_DEADLINE_S, "the order to save and leave")
        self._point("graceful-ordered")
        watch.until(
            lambda: self._left(self._graceful_node), RELAUNCH_DEADLINE_S, f"the job to leave {self._graceful_node}"
        )
        watch.until(lambda: self._trains_without(self._graceful_node), RELAUNCH_DEADLINE_S, "training on the spare")
        self._point("relaunched")

    def _abort(self) -> None:
        self._timeline.headline("A GPU falls off the bus: abort the stuck collective, continue with the second spare")
        watch, every = self._watch, self._training.every
        begun = max(watch.step, 0)
        strike = (begun // every + 1) * every + every // 2  # in the middle between two periodic checkpoints
        watch.until(lambda: watch.step >= strike and self._abort_node in watch.ranks, STEP_DEADLINE_S, f"step {strike}")
        os.kill(watch.ranks[self._abort_node].identity.pid, signal.SIGSTOP)  # like a rank stuck in the driver
        self._strike(self._abort_node, self._cluster.faults.lost(self._abort_node), "; its rank is frozen")
        self._point("abort-fault")
        watch.until(lambda: self._ordered(self._abort_node), STEP_DEADLINE_S, "the order to abort")
        self._point("abort-ordered")
        watch.until(lambda: self._left(self._abort_node), RELAUNCH_DEADLINE_S, f"the job to leave {self._abort_node}")
        self._point("requeued")
        watch.until(lambda: self._trains_without(self._abort_node), REQUEUE_DEADLINE_S, "training on the second spare")
        self._point("resumed")

    def _return(self) -> None:
        self._timeline.headline("The first node passes its test; the second waits for a replacement part")
        watch = self._watch
        watch.until(
            lambda: watch.happened("action_planned", self._graceful_node, verb="run_preflight"),
            RETURN_DEADLINE_S,
            f"the test of {self._graceful_node}",
        )
        self._point("testing")
        watch.until(
            lambda: watch.happened("node_state", self._graceful_node, words="→ probation"),
            RETURN_DEADLINE_S,
            f"{self._graceful_node} on probation",
        )
        watch.until(lambda: self._job.exit_code() is not None, RETURN_DEADLINE_S, "the end of the job")
        self._timeline.add("demo", "job_ended", f"the job ended with exit code {self._job.exit_code()}")
        watch.until(
            lambda: watch.happened("node_state", self._abort_node, words="→ replacing"),
            RETURN_DEADLINE_S,
            f"{self._abort_node} in quarantine",
        )
        # Slurm reports a node as "not responding" until its next poll.
        watch.until(self._usable, RETURN_DEADLINE_S, f"the scheduler to use {self._graceful_node} again")

    def _usable(self) -> bool:
        node = self._graceful_node
        return self._cluster.scheduler.observe([node])[node].schedulable is True

    def _ordered(self, node: str) -> bool:
        """Whether an order to the trainer because of `node` was planned."""
        orders = ("checkpoint_then_eject", "abort")
        incidents = {event.incident for event in self._watch.events if event.node == node and event.kind == "decision"}
        return any(
            event.kind == "action_planned" and event.incident in incidents and event.data.get("verb") in orders
            for event in self._watch.events
        )

    def _left(self, node: str) -> bool:
        return find_start_without_node(self._watch.launches, node) is not None

    def _trains_without(self, node: str) -> bool:
        watch, last = self._watch, find_start_without_node(self._watch.launches, node)
        again = last is not None and any(start > last for start in watch.first_step_at)
        return again and watch.step >= 0 and node not in watch.ranks

    def _strike(self, node: str, line: FaultLine, more: str = "") -> None:
        """Write the kernel log line first, so that everything that follows counts as injected."""
        text = f"{line.told}{more}; training is at step {self._watch.step}"
        self._timeline.add("fault", "fault", text, node=node, injected=True)
        self._cluster.inject(node, line)
        self._cluster.faults.happen(node, line)

    def _point(self, name: str) -> None:
        """A named point of the scenario, where a kill test may strike."""
        kill = self._kill
        if kill is None or kill.point != name:
            return
        node = self._cluster.nodes[kill.node]
        if kill.target == "rank":
            self._watch.until(lambda: node in self._watch.ranks, RELAUNCH_DEADLINE_S, f"a rank on {node}")
            os.kill(self._watch.ranks[node].identity.pid, signal.SIGKILL)
        else:
            program = "remediator" if kill.target == "remediator" else f"healthd-{node}"
            if not self._cluster.programs.kill(program):
                raise ProgramError(f"{program} is not running, so it cannot be killed")
        where = "" if kill.target == "remediator" else f" on {node}"
        self._timeline.add("fault", "killed", f"kill -9 of the {kill.target}{where}, at '{name}'")
