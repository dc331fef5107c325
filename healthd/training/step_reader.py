"""Returns each finished step on the beacon pages once, when its values are complete."""

from __future__ import annotations

from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.trainer.beacons.beacon_page import Identity, RankState
from healthd.trainer.beacons.step_ring import ENTRIES, LATE_STEPS_MAX, StepRecord, unpack_entries

ENTRIES_PER_LOOK = 8 * ENTRIES  # any user may write pages that claim to be all new, so users share this limit
ENTRIES_MIN = 64

_Rank = tuple[int, str, int, int, int]


class StepReader:
    """Remembers how far each rank's process has been read."""

    def __init__(self) -> None:
        self._next: dict[_Rank, int] = {}
        self._seen: set[_Rank] = set()
        self._share = ENTRIES_PER_LOOK
        self._spent: dict[int, int] = {}

    def begin_look(self, users: int) -> None:
        """Start a pass over the pages of so many users."""
        self._share = max(ENTRIES_MIN, ENTRIES_PER_LOOK // max(1, users))

    def take(self, identity: Identity, state: RankState, ring: bytes, *, alive: bool, user: int = -1) -> RankSteps:
        """Return the new steps of one page. A step with pending GPU values is held back, and so are those after it."""
        key = (user, identity.job, identity.attempt, identity.rank, identity.pid)
        self._seen.add(key)
        at = self._next.get(key, 0)
        at = 0 if at > state.completed else at  # another page of the same process
        new: list[StepFacts] = []
        for ordinal in range(max(at, state.completed - ENTRIES), state.completed):
            spent = self._spent.get(user, 0)
            if spent >= self._share:
                break  # the rest in the next pass
            self._spent[user] = spent + 1
            found = unpack_entries(ring, ordinal + 1, 1)
            may_wait = alive and ordinal >= state.completed - LATE_STEPS_MAX
            if may_wait and (not found or found[0].awaited):
                break
            at = ordinal + 1
            if found:
                new.append(_make_step_facts(ordinal, found[0]))
        self._next[key] = at
        return RankSteps(
            job=identity.job,
            attempt=identity.attempt,
            rank=identity.rank,
            world=identity.world,
            pid=identity.pid,
            alive=alive,
            step=state.step,
            completed=state.completed,
            phase=state.phase.name.lower(),
            section=state.section.name.lower() if state.section else "",
            new=tuple(new),
            user=user,
        )

    def end_look(self) -> None:
        """Forget the processes whose pages were not among those taken since the last call."""
        self._next = {key: at for key, at in self._next.items() if key in self._seen}
        self._seen = set()
        self._spent = {}


def _make_step_facts(ordinal: int, record: StepRecord) -> StepFacts:
    return StepFacts(
        ordinal=ordinal,
        step=record.step,
        started_at=record.started_at,
        seconds=record.seconds,
        checkpoint_s=record.sections.get("checkpoint", 0.0),
        communication_s=record.sections.get("communication"),
        loss=record.loss,
        gradient_norm=record.grad_norm,
        tokens=record.tokens,
        data_s=record.sections.get("data"),
        forward_s=record.sections.get("forward"),
        backward_s=record.sections.get("backward"),
    )
