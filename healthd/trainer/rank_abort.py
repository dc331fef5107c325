"""The abort of one rank: save what host memory holds, free the communicator, and exit, each step within a time limit."""

from __future__ import annotations

import logging
from collections.abc import Callable

from healthd.trainer.beacons.beacon import Beacon, NullBeacon
from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome, Phase
from healthd.trainer.exit_codes import ExitCode
from healthd.trainer.framework import Framework
from healthd.trainer.process_exit import exit_now, exit_within, log_without_blocking, run_final_actions, run_within

COMMUNICATOR_SECONDS = 1.0
FINAL_ACTIONS_SECONDS = 2.0
SPARE_SECONDS = 4.0  # for steps that should take no time: acknowledging, flushing, threads that start late

Snapshot = Callable[[float], "str | None"]
Acknowledge = Callable[..., None]


class RankAbort:
    """Ends this process with `ExitCode.ABORTED`, whatever hangs. May run on a thread while the main thread is stuck."""

    def __init__(
        self, beacon: Beacon | NullBeacon, framework: Framework, snapshot: Snapshot | None, acknowledge: Acknowledge
    ) -> None:
        """Args: `snapshot`: saves from host memory within so many seconds and may return a path; `acknowledge`: answers the order."""
        self._beacon, self._framework, self._snapshot, self._acknowledge = beacon, framework, snapshot, acknowledge

    def run(self, order: MailboxOrder, snapshot_seconds: float, wall: Callable[[], float], *, condemned: bool) -> None:
        """Abort because of `order`. Does not return.

        Args:
            order: what asked for it.
            snapshot_seconds: how long the snapshot may take.
            wall: the time, UTC seconds.
            condemned: whether this rank's node is condemned; its final actions run then.
        """
        exit_within(snapshot_seconds + FINAL_ACTIONS_SECONDS + COMMUNICATOR_SECONDS + SPARE_SECONDS, ExitCode.ABORTED)
        self._beacon.phase(Phase.ABORTING)
        self._acknowledge(order, OrderOutcome.SEEN)
        log_without_blocking(logging.ERROR, "order %s: aborting: %s", order.id, order.reason)
        path: list[str | None] = []
        if self._snapshot is not None:
            snapshot = self._snapshot
            run_within(snapshot_seconds, "snapshot", lambda: path.append(snapshot(snapshot_seconds)))
        saved = next(filter(None, path), "")
        left = {"left_at": wall(), "checkpoint": saved, "exit_code": int(ExitCode.ABORTED)}
        self._acknowledge(order, OrderOutcome.ABORTED, **left)
        if condemned:
            run_within(FINAL_ACTIONS_SECONDS, "last words", run_final_actions)
        run_within(COMMUNICATOR_SECONDS, "communicator abort", self._framework.abort)
        exit_now(ExitCode.ABORTED)
