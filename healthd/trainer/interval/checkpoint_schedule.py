"""When to save next. The whole job follows one plan, or its ranks would wait for each other in different collectives.

Rank 0 measures and decides; the others read the number of steps from the job's store, one review after it was written.
Between reviews there is no traffic. A rank whose host is ahead of rank 0's (on GPUs hosts do not wait for collectives)
waits for the number and never takes a missing one as "unchanged". A rank that has waited too long decides "unchanged"
for all: the first to write to the store decides.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from statistics import median
from typing import NamedTuple

from healthd.trainer.agreement import LocalStore, Store
from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.interval.cost_estimates import HazardEstimate, MedianCost, compute_slowdown
from healthd.trainer.interval.hazard_file import read_hazard
from healthd.trainer.interval.optimal_interval import daly_s
from healthd.trainer.store_caller import FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX, StoreCaller, StoreGoneError
from vocabulary.clock import Clock, SystemClock

FIRST_REVIEW_STEPS = 8  # by then the first steps, which compile and warm up, are outnumbered
REVIEWS_PER_INTERVAL = 8  # so a degrading node shortens the current interval, not only the next
REVIEW_STEPS_MAX = 1000
STEPS_KEPT = 64
STEP_ENDS_KEPT = 4096  # after a save, to see how long its write slows steps down
STEPS_MAX = 1 << 40
WAIT_SECONDS = 30.0  # for rank 0's number, which lags as far as rank 0's host does
WORD_SECONDS = 20.0  # for an answer of the store, which may be lost
TRY_SECONDS = 1.0  # for rank 0 to write its number; it retries one review later
_KEEP, _NOTHING = 0, -1
NODE_MTBF_S = 6500 * 3600.0  # 3.8 failures in 1000 node-days, the middle of three fleets' published rates

_log = logging.getLogger("healthd.trainer")


class Bounds(NamedTuple):
    """Limits of the plan, whatever is computed. Seconds; `first_steps` holds until the first review, twice as many after each save.

    `cost_share` is the share of its time that training may lose to saves, the steps that a write slows down included: `most_s`
    gives way to it, and it gives way to the optimum where failures are so likely that rarer saves would lose more. None: no
    such limit.
    """

    least_s: float = 30.0
    most_s: float = 4 * 3600.0
    first_steps: int = 500
    cost_share: float | None = None


class RankIdentity(NamedTuple):
    """This rank, its job, and the directory where the node daemon publishes the job's hazard; "" if there is none."""

    job: str = ""
    attempt: int = 0
    rank: int = 0
    directory: str = ""


class _Resumption(NamedTuple):
    """When training went on after a save, and when each step since then ended, in seconds from there on."""

    at: float
    ends_s: list[float]


class CheckpointInterval:
    """`if interval.due(step): with interval.saving(step): ...`, once in every step, on every rank of the job alike.

    Args:
        nodes: nodes of the job.
        node_mtbf_s: mean time between failures of one node, until a better one is published.
        seat: this rank's identity.
        store: the guard's store. Without one each rank decides alone: only for a job of one rank.
        stall_prior_s: assumed cost of a save until the first one is measured.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        node_mtbf_s: float = NODE_MTBF_S,
        seat: RankIdentity = RankIdentity(),  # noqa: B008 - immutable
        store: Store | None = None,
        stall_prior_s: float = 60.0,
        bounds: Bounds | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._hazard = HazardEstimate(nodes, node_mtbf_s)
        self._stall, self._write = MedianCost(stall_prior_s), MedianCost(0.0)
        self._slowdown = MedianCost(0.0)  # of the steps beside a save's write, in all
        self._resumed: list[_Resumption] = []  # after the save before the newest one, and after that
        self._job, self._directory, self._rank = seat.job, seat.directory, seat.rank
        self._store, self._key = store or LocalStore(), f"healthd/interval/{seat.attempt}/"
        self._bounds, self._clock = bounds or Bounds(), clock or SystemClock()
        self._steps_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._looked_at: float | None = None
        self._last_saved: int | None = None
        self._patience = StoreCaller()
        self._wanted = _KEEP
        self._reviews = 0
        self._next_review = 0
        self.interval_steps = self._bounds.first_steps
        self._fixed = False

    @classmethod
    def from_env(
        cls,
        *,
        store: Store | None = None,
        nodes: int = 1,
        node_mtbf_s: float = NODE_MTBF_S,
        bounds: Bounds | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> CheckpointInterval:
        """Return this process's interval, from the same environment variables as the guard's.

        `HEALTHD_CHECKPOINT_STEPS` overrides all measurements: it sets the steps between two saves.

        Raises:
            ValueError: a number out of range; names the variable.
        """
        environ = os.environ if environ is None else environ
        place, directory = read_environment(environ)
        seat = RankIdentity(place.job, place.attempt, place.rank, directory)
        found = cls(nodes=nodes, node_mtbf_s=node_mtbf_s, seat=seat, store=store, bounds=bounds)
        if wanted := environ.get("HEALTHD_CHECKPOINT_STEPS"):
            found.fix(parse_step_count("HEALTHD_CHECKPOINT_STEPS", wanted))
        return found

    def fix(self, steps: int) -> None:
        """Fix the steps between two saves, whatever they cost. The same on every rank."""
        self.interval_steps, self._fixed = steps, True

    def due(self, step: int) -> bool:
        """Return whether every rank saves in this step.

        Call it in every step, also in those that save for another reason.
        """
        self._measure()
        if self._last_saved is None:  # this attempt started from a checkpoint, so its start counts as saved
            self._last_saved, self._next_review = step - 1, step + FIRST_REVIEW_STEPS
        if step >= self._next_review and not self._fixed:
            self._review(step)
        return step - self._last_saved >= self.interval_steps

    @contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Measure the part of a save that training waits for, whatever ordered it. A failed save does not count."""
        began = self._clock.monotonic()
        yield
        now = self._clock.monotonic()
        self._stall.add(now - began)
        self._resumed = [*self._resumed[-1:], _Resumption(now, [])]
        self._last_saved = step
        if not self._reviews and not self._fixed:  # the write behind this save may last for many steps
            self.interval_steps *= 2
        self._looked_at = (
            now  # the save belongs to no step; without the step after it nothing is known where each one is saved
        )

    def written(self, seconds: float) -> None:
        """Record that the background save before the newest one was complete `seconds` after training resumed."""
        self._write.add(seconds)
        if len(self._resumed) > 1 and (slowdown_s := compute_slowdown(self._resumed[0].ends_s, seconds)) is not None:
            self._slowdown.add(slowdown_s)

    def failed(self, failures: int = 1) -> None:
        """Record node failures of this job: a relaunching launcher may pass on those of earlier attempts."""
        self._hazard.lived(0.0, failures)

    @property
    def mtbf_s(self) -> float:
        """The job's MTBF as known now: the controller's, else the estimate."""
        published = read_hazard(self._directory, self._job, self._clock.wall()) if self._directory else None
        return 1 / (published.per_s if published else self._hazard.per_s())

    @property
    def interval_s(self) -> float:
        """The current optimum, within the limits; never shorter than a save takes to be written."""
        least_s, most_s, share = self._bounds.least_s, self._bounds.most_s, self._bounds.cost_share
        if share is None:
            return min(max(daly_s(self._stall.seconds, self.mtbf_s), least_s, self._write.seconds), most_s)
        lost_s = (self._stall.seconds if self._stall.measured else 0.0) + self._slowdown.seconds
        optimum_s = daly_s(lost_s, self.mtbf_s) if self._stall.measured else most_s
        found_s = min(max(optimum_s, least_s), max(most_s, lost_s * (1 - share) / share))
        # after a write there must be steps without one: they show by how much it slows steps down
        return max(found_s, 2 * self._write.seconds)

    def _measure(self) -> None:
        now = self._clock.monotonic()
        if self._looked_at is not None:
            self._steps_s.append(now - self._looked_at)
            self._hazard.lived(now - self._looked_at)
        self._looked_at = now
        if self._resumed and len(self._resumed[-1].ends_s) < STEP_ENDS_KEPT:
            self._resumed[-1].ends_s.append(now - self._resumed[-1].at)

    def _review(self, step: int) -> None:
        """Apply the number that was written at the last review, and (rank 0) write the next one."""
        try:
            agreed = self._learn(self._reviews) if self._reviews else _KEEP
        except StoreGoneError as error:
            self._fixed = True
            text = "%s; saving every %d steps from now on, and training continues"
            _log.error(text, error, self.interval_steps)
            return
        if agreed > 0:
            self.interval_steps = min(agreed, STEPS_MAX)
        self._reviews += 1
        self._next_review = step + min(max(1, self.interval_steps // REVIEWS_PER_INTERVAL), REVIEW_STEPS_MAX)
        if self._rank == 0:
            self._wanted = self._wanted_steps()
            with suppress(Exception):  # a store of any type
                self._patience.call_once(self._deciding(self._reviews, self._wanted), TRY_SECONDS)

    def _learn(self, review: int) -> int:
        """Return the plan of all ranks from now on; raises StoreGoneError."""
        if self._rank == 0:
            return self._patience.call_with_retries(self._deciding(review, self._wanted), WORD_SECONDS)
        ends, pause = time.monotonic() + WAIT_SECONDS, FIRST_PAUSE_SECONDS
        while (found := self._patience.call_with_retries(self._looking(review), WORD_SECONDS)) == _NOTHING:
            if time.monotonic() >= ends:
                text = "no plan from rank 0 within %g s, keeping the last one: check that all ranks call due() in every step"
                _log.error(text, WAIT_SECONDS)
                return self._patience.call_with_retries(self._deciding(review, _KEEP), WORD_SECONDS)
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        return found

    def _deciding(self, review: int, steps: int) -> Callable[[], int]:
        """Write the number unless one is there; return the one there. Idempotent: the first to decide wins."""
        return lambda: int(self._store.compare_set(f"{self._key}{review}", "", str(steps)))

    def _looking(self, review: int) -> Callable[[], int]:
        """Return the number there. A store returns the expected value if there is none."""
        return lambda: int(self._store.compare_set(f"{self._key}{review}", str(_NOTHING), str(_NOTHING)))

    def _wanted_steps(self) -> int:
        step_s = median(self._steps_s) if self._steps_s else 0.0
        return min(max(1, int(self.interval_s / step_s)), STEPS_MAX) if step_s > 0 else self.interval_steps


def parse_step_count(variable: str, text: str) -> int:
    """The number of steps that an environment variable holds.

    Raises:
        ValueError: it holds none; names the variable.
    """
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= STEPS_MAX:
        raise ValueError(f"{variable}={text!r} is not a whole number above 0")
    return int(text)
