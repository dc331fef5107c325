"""Publishes each local job's hazard to its ranks, once a minute, as a small file beside their beacon pages.

Runs in its own thread, so that a controller that does not answer delays nothing else. On any failure the old file
stays; it states until when it is valid, after which the ranks use the value they started with.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from healthd.controller.controller_client import ControllerError, RequestRejected
from healthd.daemon_status import Status
from healthd.trainer.interval.hazard_file import PublishedHazard, hazard_path, write_hazard
from vocabulary.clock import Clock
from vocabulary.messages.job_hazard import JobHazard

EVERY_S = 60.0
NEW_JOB_S = 2.0  # how soon a new job gets its file
JOBS_MAX = 64  # per node; any user can write a page and so invent jobs
VALID_S_MAX = 86400.0

_log = logging.getLogger("healthd.hazards")


class HazardSource(Protocol):
    """The part of the controller client that the publisher needs."""

    def hazard(self, job: str) -> JobHazard:
        """Return the hazard of a job."""

    def close(self) -> None:
        """Close the connection."""


class HazardPublisher:
    """The hazard publisher thread."""

    def __init__(
        self, directory: str, connect: Callable[[], HazardSource], status: Callable[[], Status], clock: Clock
    ) -> None:
        self._directory, self.connect, self._status, self._clock = directory, connect, status, clock
        self._stop = threading.Event()
        self._written: set[str] = set()
        self._trouble = ""

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    def run(self) -> None:
        """Fetch and write hazards until stopped."""
        controller = self.connect()
        known, due = None, 0.0
        while not self._stop.wait(NEW_JOB_S):
            jobs, now = self._jobs(), self._clock.monotonic()
            if jobs != known or now >= due:
                known, due = jobs, now + EVERY_S
                self.look(controller)
        controller.close()

    def look(self, controller: HazardSource) -> None:
        """Write a file for each job that runs here and remove the files of ended jobs."""
        jobs = self._jobs()
        for job in self._written - set(jobs):
            with contextlib.suppress(OSError):
                hazard_path(self._directory, job).unlink()
        self._written &= set(jobs)
        trouble = ""
        for job in jobs:
            try:
                self._publish(job, controller.hazard(job))
            except RequestRejected:  # the controller does not know the job yet; the next report names it
                continue
            except (ControllerError, OSError) as error:
                trouble = str(error)
                break  # what blocks one request blocks all
        if trouble and not self._trouble:
            _log.warning("job hazards cannot be published, jobs keep the last value: %s", trouble)
        self._trouble = trouble

    def _jobs(self) -> list[str]:
        return sorted({rank.job for rank in self._status().ranks if rank.alive})[:JOBS_MAX]

    def _publish(self, job: str, hazard: JobHazard) -> None:
        until = self._clock.wall() + min(
            max(0.0, hazard.valid_s), VALID_S_MAX
        )  # this node's clock, which the ranks share
        write_hazard(self._directory, job, PublishedHazard(hazard.per_s, hazard.nodes, until))
        self._written.add(job)
