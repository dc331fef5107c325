"""When to save next. The whole job follows one plan, or its ranks would wait for each other in two different collectives.

Rank 0 measures and decides; the others learn the number of steps through the job's own store, one review after it was
written there. Between reviews there is no traffic. A rank whose host is ahead of rank 0's (on GPUs hosts do not wait for
collectives) waits for the number: never is a missing one taken for "as before". Who has waited too long decides that it is
"as before", for all: number or not, the first to write it in the store is right.
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
from healthd.trainer.environment import read_environment
from healthd.trainer.interval.estimates import HazardEstimate, MedianCost
from healthd.trainer.interval.optimum import daly_s
from healthd.trainer.interval.published import read_hazard
from healthd.trainer.patience import FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX, Patience, StoreGoneError
from vocabulary.clock import Clock, SystemClock

FIRST_REVIEW_STEPS = 8  # by then the first steps, which compile and warm up, are outnumbered
REVIEWS_PER_INTERVAL = 8  # so a node that turns sick shortens the present interval, not only the next
REVIEW_STEPS_MAX = 1000
STEPS_KEPT = 64
STEPS_MAX = 1 << 40
WAIT_SECONDS = 30.0  # for rank 0's number: it is about as late as rank 0's host is behind this one
WORD_SECONDS = 20.0  # for a word from the store, whose answers may be lost
TRY_SECONDS = 1.0  # rank 0 tells its number; it insists one review later
_KEEP, _NOTHING = 0, -1
NODE_MTBF_S = 6500 * 3600.0  # 3.8 failures in 1000 node-days, the middle of what three fleets published

_log = logging.getLogger("healthd.trainer")


class Bounds(NamedTuple):
    """What the plan may not leave, whatever the arithmetic says. Seconds; `first_steps` holds until the first review."""

    least_s: float = 30.0
    most_s: float = 4 * 3600.0
    first_steps: int = 500


class Seat(NamedTuple):
    """Which rank of which job this is, and the directory where the node daemon publishes the job's hazard; "": nobody does."""

    job: str = ""
    attempt: int = 0
    rank: int = 0
    directory: str = ""


class CheckpointInterval:
    """`if interval.due(step): with interval.saving(step): ...`, once in every step, on every rank of the job alike.

    Args:
        nodes: nodes of the job.
        node_mtbf_s: mean time between failures of one node, for as long as nobody publishes a better one.
        seat: who this is.
        store: as the guard has it. Without one each rank decides alone: for a job of one rank only.
        stall_prior_s: what a save is taken to cost before the first one was measured.

    Raises:
        ValueError: a number that cannot be.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        node_mtbf_s: float = NODE_MTBF_S,
        seat: Seat = Seat(),  # noqa: B008 - immutable
        store: Store | None = None,
        stall_prior_s: float = 60.0,
        bounds: Bounds | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._hazard = HazardEstimate(nodes, node_mtbf_s)
        self._stall, self._write = MedianCost(stall_prior_s), MedianCost(0.0)
        self._job, self._directory, self._rank = seat.job, seat.directory, seat.rank
        self._store, self._key = store or LocalStore(), f"healthd/interval/{seat.attempt}/"
        self._bounds, self._clock = bounds or Bounds(), clock or SystemClock()
        self._steps_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._looked_at: float | None = None
        self._last_saved: int | None = None
        self._patience = Patience()
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
        """The interval of this process, as its environment variables place it; they mean what they mean to the guard.

        `HEALTHD_CHECKPOINT_STEPS` overrules all that is measured: so many steps lie between two saves.

        Raises:
            ValueError: a number that cannot be; names the variable.
        """
        environ = os.environ if environ is None else environ
        place, directory = read_environment(environ)
        seat = Seat(place.job, place.attempt, place.rank, directory)
        found = cls(nodes=nodes, node_mtbf_s=node_mtbf_s, seat=seat, store=store, bounds=bounds)
        if wanted := environ.get("HEALTHD_CHECKPOINT_STEPS"):
            found.fix(whole_steps("HEALTHD_CHECKPOINT_STEPS", wanted))
        return found

    def fix(self, steps: int) -> None:
        """From now on so many steps lie between two saves, whatever they cost. The same on every rank."""
        self.interval_steps, self._fixed = steps, True

    def due(self, step: int) -> bool:
        """Whether every rank saves in this step. Call it in every step, also in those that save for another reason."""
        self._measure()
        if self._last_saved is None:  # where this attempt began counts as saved: it came from a checkpoint
            self._last_saved, self._next_review = step - 1, step + FIRST_REVIEW_STEPS
        if step >= self._next_review and not self._fixed:
            self._review(step)
        return step - self._last_saved >= self.interval_steps

    @contextmanager
    def saving(self, step: int) -> Iterator[None]:
        """Around the part of a save that training waits for, whatever it was ordered by. A save that fails counts not."""
        began = self._clock.monotonic()
        yield
        self._stall.add(self._clock.monotonic() - began)
        self._last_saved = step
        self._looked_at = None  # the time since is no step's

    def written(self, seconds: float) -> None:
        """A save that went on beside training is whole `seconds` after training went on."""
        self._write.add(seconds)

    def failed(self, failures: int = 1) -> None:
        """Nodes of this job failed: a launcher that relaunches may hand down what earlier attempts lived through."""
        self._hazard.lived(0.0, failures)

    @property
    def mtbf_s(self) -> float:
        """The job's own, as far as is known now: what the centre publishes, else the estimate."""
        published = read_hazard(self._directory, self._job, self._clock.wall()) if self._directory else None
        return 1 / (published.per_s if published else self._hazard.per_s())

    @property
    def interval_s(self) -> float:
        """The optimum now, within the bounds; never shorter than a save needs to be written."""
        optimum_s = daly_s(self._stall.seconds, self.mtbf_s)
        return min(max(optimum_s, self._bounds.least_s, self._write.seconds), self._bounds.most_s)

    def _measure(self) -> None:
        now = self._clock.monotonic()
        if self._looked_at is not None:
            self._steps_s.append(now - self._looked_at)
            self._hazard.lived(now - self._looked_at)
        self._looked_at = now

    def _review(self, step: int) -> None:
        """Take up the number that was written at the last review, and (rank 0) write the next one."""
        try:
            agreed = self._learn(self._reviews) if self._reviews else _KEEP
        except StoreGoneError as error:
            self._fixed = True
            text = "%s; from now on %d steps lie between two saves, and training goes on"
            _log.error(text, error, self.interval_steps)
            return
        if agreed > 0:
            self.interval_steps = min(agreed, STEPS_MAX)
        self._reviews += 1
        self._next_review = step + min(max(1, self.interval_steps // REVIEWS_PER_INTERVAL), REVIEW_STEPS_MAX)
        if self._rank == 0:
            self._wanted = self._wanted_steps()
            with suppress(Exception):  # a store of any make
                self._patience.once(self._deciding(self._reviews, self._wanted), TRY_SECONDS)

    def _learn(self, review: int) -> int:
        """What all ranks follow from now on; raises StoreGoneError."""
        if self._rank == 0:
            return self._patience.insist(self._deciding(review, self._wanted), WORD_SECONDS)
        ends, pause = time.monotonic() + WAIT_SECONDS, FIRST_PAUSE_SECONDS
        while (found := self._patience.insist(self._looking(review), WORD_SECONDS)) == _NOTHING:
            if time.monotonic() >= ends:
                text = "no plan of rank 0 within %g s, the last one goes on: do all ranks call due() in every step?"
                _log.error(text, WAIT_SECONDS)
                return self._patience.insist(self._deciding(review, _KEEP), WORD_SECONDS)
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
        return found

    def _deciding(self, review: int, steps: int) -> Callable[[], int]:
        """Write it, unless something is there; what is there then. May be asked again, the first to decide stays it."""
        return lambda: int(self._store.compare_set(f"{self._key}{review}", "", str(steps)))

    def _looking(self, review: int) -> Callable[[], int]:
        """What is there. A store answers with what was expected where there is nothing."""
        return lambda: int(self._store.compare_set(f"{self._key}{review}", str(_NOTHING), str(_NOTHING)))

    def _wanted_steps(self) -> int:
        step_s = median(self._steps_s) if self._steps_s else 0.0
        return min(max(1, int(self.interval_s / step_s)), STEPS_MAX) if step_s > 0 else self.interval_steps


def whole_steps(variable: str, text: str) -> int:
    """The number of steps that an environment variable holds.

    Raises:
        ValueError: it holds none; names the variable.
    """
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= STEPS_MAX:
        raise ValueError(f"{variable}={text!r} is not a whole number above 0")
    return int(text)
